//! The options of `pub` and `sub`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use manyflow_core::units::{Bytes, Rate};
use manyflow_messages::Service;

pub(super) const PUB_EXAMPLES: &str = "\
Examples:
  manyflow pub news.sport 'three to one'

  # Each line of standard input is a message
  tail -f /var/log/syslog | manyflow pub logs.web1

  # 100,000 messages of 1 KB; the network decides how fast they leave if there is no --rate
  manyflow pub load --size 1KB --count 100000 --rate 1000

  # Wait for an answer
  manyflow pub clock.now --request

  # To the members of two ordered groups, at the same place among all messages
  manyflow pub orders '17 chairs' --service agreed --also stock

  # In layers, of which each link carries what its price allows: a purse of 20 ms, then bytes and worth
  manyflow pub cam --size 1240B --rate 50 --count 500 --header 'Manyflow-Layers: 20ms 40:10 200:5 1000:2'

  # With a header, to another daemon, as a user
  manyflow pub orders.new '{}' --header 'Trace: 17' --server b.example.net:4222 --user shop --password-file shop.password";

pub(super) const SUB_EXAMPLES: &str = "\
Examples:
  manyflow sub news.sport
  manyflow sub 'news.*' 'orders.>' --json

  # Ten messages, then exit
  manyflow sub logs.web1 --count 10

  # Each message goes to one of the workers
  manyflow sub orders.new --queue workers

  # As a member of an ordered group: messages, and who else is a member
  manyflow sub orders --views

A daemon holds the senders of a group back while a member does not read.";

/// The daemon, and how to connect to it.
#[derive(Debug, Args)]
pub(crate) struct ClientArgs {
    /// The host and port at which a daemon serves clients, or the URL that the daemon prints:
    /// nats://192.0.2.1:4222 or, for a Unix socket, unix:/run/manyflow.sock. The port is 4222 by
    /// default
    #[arg(long, value_name = "HOST[:PORT]|unix:PATH", default_value = "127.0.0.1:4222", value_parser = crate::address::server)]
    pub(crate) server: String,
    /// The user's name
    #[arg(long, value_name = "NAME", requires = "password_file")]
    pub(crate) user: Option<String>,
    /// The file with the user's password
    #[arg(
        long,
        value_name = "FILE",
        requires = "user",
        conflicts_with = "token_file"
    )]
    pub(crate) password_file: Option<PathBuf>,
    /// The file with the user's token
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Connect over TLS, to a daemon whose certificate an authority of this machine has issued
    #[arg(long)]
    pub(crate) tls: bool,
    /// Connect over TLS, and accept certificates of the authorities in this PEM file
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
}

/// Arguments of `pub`.
#[derive(Debug, Args)]
pub(crate) struct PubArgs {
    /// The subject
    pub(crate) subject: String,
    /// The payload; without it and --size, each line of standard input is a message
    #[arg(conflicts_with = "size")]
    pub(crate) payload: Option<String>,
    #[command(flatten)]
    pub(crate) server: ClientArgs,
    /// Publish a payload of this length
    #[arg(long)]
    pub(crate) size: Option<Bytes>,
    /// The number of messages; of lines of standard input the maximum [default: 1, or all lines]
    #[arg(long, value_name = "MESSAGES", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// The maximum rate of publishing: messages per second, or a rate such as 10Mbit/s
    #[arg(long, value_name = "MESSAGES|RATE")]
    pub(crate) rate: Option<PublishRate>,
    /// Send to the members of the ordered group SUBJECT with a promise: unreliable, reliable, fifo,
    /// causal, agreed or safe
    #[arg(long, value_name = "SERVICE", conflicts_with_all = ["header", "reply", "request"])]
    pub(crate) service: Option<Service>,
    /// Publish to this subject, too; links carry one copy for several; can be repeated
    #[arg(long, value_name = "SUBJECT")]
    pub(crate) also: Vec<String>,
    /// Add a header; can be repeated
    #[arg(long, value_name = "NAME: VALUE")]
    pub(crate) header: Vec<HeaderArg>,
    /// The subject for answers
    #[arg(long, value_name = "SUBJECT", conflicts_with = "request")]
    pub(crate) reply: Option<String>,
    /// Wait for an answer to each message, and print it
    #[arg(long)]
    pub(crate) request: bool,
}

/// Arguments of `sub`.
#[derive(Debug, Args)]
pub(crate) struct SubArgs {
    /// Subjects; * stands for one word between dots, > at the end for one or more
    #[arg(required = true, value_name = "SUBJECT")]
    pub(crate) subjects: Vec<String>,
    #[command(flatten)]
    pub(crate) server: ClientArgs,
    /// Exit after this number of messages
    #[arg(long, value_name = "MESSAGES", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Share the messages with all other workers of this name
    #[arg(long, value_name = "NAME")]
    pub(crate) queue: Option<String>,
    /// Be a member of the ordered groups SUBJECT, and print their messages and views in one order
    #[arg(long, conflicts_with = "queue")]
    pub(crate) views: bool,
}

/// A rate of publishing.
#[derive(Debug, Copy, Clone, PartialEq)]
pub(crate) enum PublishRate {
    MessagesPerS(f64),
    Payload(Rate),
}

impl FromStr for PublishRate {
    type Err = String;

    fn from_str(text: &str) -> Result<PublishRate, String> {
        match text.parse() {
            Ok(messages) if messages > 0.0 => Ok(PublishRate::MessagesPerS(messages)),
            Ok(_) => Err(format!("`{text}` is not a rate above 0")),
            Err(_) => match text.parse::<Rate>() {
                Ok(rate) if rate.bits_per_s() > 0 => Ok(PublishRate::Payload(rate)),
                _ => Err(format!(
                    "`{text}` is neither a number of messages per second nor a rate such as `10Mbit/s`"
                )),
            },
        }
    }
}

/// A header such as `Trace: 17`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HeaderArg {
    pub(crate) name: String,
    pub(crate) value: String,
}

impl FromStr for HeaderArg {
    type Err = String;

    fn from_str(text: &str) -> Result<HeaderArg, String> {
        let (name, value) = text
            .split_once(':')
            .ok_or_else(|| format!("`{text}` is not a header such as `Trace: 17`"))?;
        Ok(HeaderArg {
            name: name.trim().to_owned(),
            value: value.trim().to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_number_is_a_rate_of_messages() {
        assert_eq!("1000".parse(), Ok(PublishRate::MessagesPerS(1000.0)));
        let rate = Rate::from_bits_per_s(10_000_000);
        assert_eq!("10Mbit/s".parse(), Ok(PublishRate::Payload(rate)));
        for wrong in ["0", "-1", "fast", "0bit/s"] {
            assert!(wrong.parse::<PublishRate>().is_err(), "{wrong}");
        }
    }
}
