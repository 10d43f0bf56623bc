//! The configuration of a bridge.

use manyflow_core::ConfigError;
use manyflow_messages::{CLIENT_PORT, ClientOptions};
use nkeys::KeyPair;

use crate::names::OVERLAY;

/// A bridge of a site.
#[derive(Clone, Debug)]
pub struct BridgeConfig {
    /// The site's name, which no other site has: 1 to 64 letters, digits, hyphens and underscores.
    /// "overlay" stands for clients of daemons.
    pub site: String,
    /// The address of the daemon, as [`Client::connect`](manyflow_messages::Client::connect) takes
    /// it.
    pub daemon: String,
    /// How the bridge connects to the daemon.
    pub daemon_options: ClientOptions,
    /// The address of the site's nats-server: a host and a port, or a URL.
    pub nats: String,
    /// How the bridge connects to nats-server: users and TLS.
    pub nats_options: NatsOptions,
    /// The subjects that pass in both directions. Wildcards are allowed.
    pub subjects: Vec<String>,
    /// The streams of JetStream that leave this site, or arrive.
    pub streams: Vec<StreamConfig>,
}

/// How to connect to nats-server.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct NatsOptions {
    /// The user and the password.
    pub user: Option<(String, String)>,
    /// A token, instead of a user.
    pub token: Option<String>,
    /// The seed of a user's NKEY, which begins with `SU`, instead of a user.
    pub nkey: Option<String>,
    /// A file with a user's JWT and seed, as `nsc generate creds` writes it, instead of a user. It
    /// is read whenever the bridge connects, so it may be replaced before the JWT expires.
    pub credentials: Option<std::path::PathBuf>,
    /// Whether only connections over TLS are allowed.
    pub tls: bool,
    /// A PEM file with the authorities whose certificates nats-server may have; those of this
    /// machine if `None`.
    pub ca: Option<std::path::PathBuf>,
}

impl NatsOptions {
    /// Returns the number of ways in which the bridge would prove who it is.
    fn ways(&self) -> usize {
        [
            self.user.is_some(),
            self.token.is_some(),
            self.nkey.is_some(),
            self.credentials.is_some(),
        ]
        .into_iter()
        .filter(|is_given| *is_given)
        .count()
    }
}

/// A stream of JetStream, and where its messages go or come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamConfig {
    /// The name of the stream at this site.
    pub name: String,
    /// The direction.
    pub way: Way,
}

/// The direction of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// Messages leave for these sites.
    To(Vec<String>),
    /// Messages of the stream with this name at another site arrive.
    From {
        /// The other site.
        site: String,
        /// The name of the stream there.
        stream: String,
    },
}

impl BridgeConfig {
    /// Returns a bridge between the nats-server and the daemon at these addresses, which carries
    /// nothing yet: set `subjects` or `streams`.
    pub fn new(site: &str, nats: &str, daemon: &str) -> BridgeConfig {
        BridgeConfig {
            site: site.to_owned(),
            daemon: daemon.to_owned(),
            daemon_options: ClientOptions {
                name: Some(format!("bridge of {site}")),
                echo: false,
                ..ClientOptions::default()
            },
            nats: nats.to_owned(),
            nats_options: NatsOptions::default(),
            subjects: Vec::new(),
            streams: Vec::new(),
        }
    }

    /// Returns the address of a daemon on this machine with the default port.
    pub fn default_daemon() -> String {
        format!("127.0.0.1:{CLIENT_PORT}")
    }

    /// Checks names and subjects.
    ///
    /// # Errors
    /// If one is outside its range, if two entries are for the same stream, or if the bridge
    /// carries nothing.
    pub fn check(&self) -> Result<(), ConfigError> {
        let others = || self.streams.iter().flat_map(|stream| stream.way.sites());
        let names = self.streams.iter().flat_map(StreamConfig::names);
        ConfigError::first_of([
            (
                "the name of a site",
                "1 to 64 letters, digits, hyphens and underscores, and not \"overlay\"",
                is_site(&self.site) && others().all(|site| is_site(site)),
            ),
            (
                "the nkey of a user of nats-server",
                "a seed, which begins with SU and has 58 letters and digits",
                self.nats_options
                    .nkey
                    .as_ref()
                    .is_none_or(|seed| is_seed(seed)),
            ),
            (
                "a user of nats-server",
                "given in one way: a password, a token, an nkey or credentials",
                self.nats_options.ways() <= 1,
            ),
            (
                "the sites of a stream",
                "other sites than this one, each named once",
                self.streams
                    .iter()
                    .all(|stream| stream.way.has_others(&self.site)),
            ),
            (
                "the name of a stream",
                "1 to 255 bytes without spaces, dots, wildcards and slashes",
                names.into_iter().all(is_stream),
            ),
            (
                "a stream with a direction",
                "in one entry",
                has_no_equal(self.streams.iter().map(StreamConfig::key)),
            ),
            (
                "subjects",
                "words between dots, of which each may be *, and the last >, but none below _MF, $JS or _INBOX, nor all subjects",
                self.subjects.iter().all(|subject| is_carried(subject)),
            ),
            (
                "subjects",
                "without repetition",
                has_no_equal(self.subjects.iter()),
            ),
            (
                "subjects or streams",
                "named, or there is nothing to carry",
                !self.subjects.is_empty() || !self.streams.is_empty(),
            ),
        ])
    }
}

impl StreamConfig {
    fn names(&self) -> Vec<&str> {
        match &self.way {
            Way::To(_) => vec![&self.name],
            Way::From { stream, .. } => vec![&self.name, stream],
        }
    }

    /// Returns what no other entry may have.
    fn key(&self) -> (&str, &str) {
        match &self.way {
            Way::To(_) => (&self.name, ""),
            Way::From { site, stream } => (stream, site),
        }
    }
}

impl Way {
    fn sites(&self) -> Vec<&String> {
        match self {
            Way::To(sites) => sites.iter().collect(),
            Way::From { site, .. } => vec![site],
        }
    }

    fn has_others(&self, own: &str) -> bool {
        let sites = self.sites();
        let are_others = sites.iter().all(|site| *site != own);
        are_others && !sites.is_empty() && has_no_equal(sites.into_iter())
    }
}

fn has_no_equal<T: Ord>(items: impl Iterator<Item = T>) -> bool {
    let mut items: Vec<T> = items.collect();
    items.sort();
    items.windows(2).all(|pair| pair[0] != pair[1])
}

/// Returns whether a text is the seed of a user's key.
fn is_seed(text: &str) -> bool {
    text.starts_with("SU") && KeyPair::from_seed(text).is_ok()
}

fn is_site(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=64).contains(&name.len()) && name.bytes().all(allowed) && name != OVERLAY
}

fn is_stream(name: &str) -> bool {
    let refused = |byte: u8| {
        byte.is_ascii_whitespace()
            || byte.is_ascii_control()
            || matches!(byte, b'.' | b'*' | b'>' | b'/' | b'\\')
    };
    (1..=255).contains(&name.len()) && !name.bytes().any(refused)
}

/// Returns whether a bridge may carry a pattern of subjects. Those of requests' answers, of
/// JetStream and of bridges would cross it in other ways, too.
fn is_carried(pattern: &str) -> bool {
    let words: Vec<_> = pattern.split('.').collect();
    let last = words.len() - 1;
    let is_word = |(place, word): (usize, &&str)| match *word {
        "" => false,
        "*" => true,
        ">" => place == last,
        word => !word.contains(|character: char| {
            character.is_whitespace() || character.is_control() || matches!(character, '*' | '>')
        }),
    };
    let is_reserved = matches!(words[0], ">" | "*" | "_MF" | "_INBOX") || words[0].starts_with('$');
    words.iter().enumerate().all(is_word) && !is_reserved
}

/// Returns whether a subject can match both patterns.
pub(crate) fn overlap(one: &str, other: &str) -> bool {
    let (mut one, mut other) = (one.split('.'), other.split('.'));
    loop {
        match (one.next(), other.next()) {
            (None, None) => return true,
            (None, _) | (_, None) => return false,
            (Some(">"), _) | (_, Some(">")) => return true,
            (Some(one), Some(other)) if one == other || one == "*" || other == "*" => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> BridgeConfig {
        BridgeConfig {
            subjects: vec!["orders.>".to_owned()],
            ..BridgeConfig::new("berlin", "127.0.0.1:4333", "127.0.0.1:4222")
        }
    }

    fn to(name: &str, sites: &[&str]) -> StreamConfig {
        let sites = sites.iter().map(|site| (*site).to_owned()).collect();
        StreamConfig {
            name: name.to_owned(),
            way: Way::To(sites),
        }
    }

    #[test]
    fn subjects_of_others_are_refused() {
        config().check().unwrap();
        for subject in [
            ">",
            "*.a",
            "_MF.x",
            "_INBOX.>",
            "$JS.API.>",
            "$SYS.a",
            "a..b",
            "a.>.b",
            "a b",
            "a*",
            "",
        ] {
            let mut config = config();
            config.subjects = vec![subject.to_owned()];
            assert!(config.check().is_err(), "{subject}");
        }
        for subject in ["a", "a.*", "a.*.b.>"] {
            let mut config = config();
            config.subjects = vec![subject.to_owned()];
            config.check().unwrap();
        }
    }

    #[test]
    fn patterns_overlap_if_a_subject_matches_both() {
        for (one, other, expected) in [
            ("a", "a", true),
            ("a", "b", false),
            ("a.*", "a.b", true),
            ("a.*", "*.b", true),
            ("a.>", "a", false),
            ("a.>", "a.b.c", true),
            ("a.b", "a.b.c", false),
            (">", "a.b", true),
        ] {
            assert_eq!(overlap(one, other), expected, "{one} {other}");
            assert_eq!(overlap(other, one), expected, "{other} {one}");
        }
    }

    #[test]
    fn sites_and_streams_are_named_once() {
        for streams in [
            vec![to("S", &[])],
            vec![to("S", &["berlin"])],
            vec![to("S", &["paris", "paris"])],
            vec![to("S", &["a.b"])],
            vec![to("a.b", &["paris"])],
            vec![to("S", &["paris"]), to("S", &["rome"])],
        ] {
            let shown = format!("{streams:?}");
            let config = BridgeConfig {
                streams,
                ..config()
            };
            assert!(config.check().is_err(), "{shown}");
        }
        let from = StreamConfig {
            name: "S".to_owned(),
            way: Way::From {
                site: "paris".to_owned(),
                stream: "S".to_owned(),
            },
        };
        let config = BridgeConfig {
            streams: vec![to("S", &["paris", "rome"]), from],
            ..config()
        };
        config.check().unwrap();
    }

    #[test]
    fn a_user_proves_itself_in_one_way() {
        let mut config = config();
        let seed = KeyPair::new_user().seed().unwrap();
        config.nats_options.nkey = Some(seed.clone());
        config.check().unwrap();
        config.nats_options.token = Some("t".to_owned());
        let error = config.check().unwrap_err().to_string();
        assert!(error.contains("one way"), "{error}");
        config.nats_options.token = None;
        let account = KeyPair::new_account().seed().unwrap();
        for wrong in [&seed[..57], &account, "SU", ""] {
            config.nats_options.nkey = Some(wrong.to_owned());
            let error = config.check().unwrap_err().to_string();
            assert!(error.contains("nkey"), "{error}");
            assert!(wrong.is_empty() || !error.contains(&seed), "{error}");
        }
    }

    #[test]
    fn a_bridge_carries_something() {
        let mut config = config();
        config.subjects.clear();
        let error = config.check().unwrap_err().to_string();
        assert!(error.contains("nothing to carry"), "{error}");
    }
}
