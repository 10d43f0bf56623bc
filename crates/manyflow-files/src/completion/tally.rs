//! The sender's side: counts the receivers that have reported.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};

use manyflow_net::client::client_of;
use ring::hmac;

use super::CompletionKey;
use super::message::{Kind, MESSAGE_BYTES, Message};

/// Maximum number of receivers that are counted for one IPv4 address or one IPv6 network of 64
/// bits, in sessions without a group key.
pub const RECEIVERS_PER_CLIENT_MAX: u32 = 16;

/// Counts the receivers that report, each once, up to the number that the sender expects.
#[derive(Debug)]
pub struct Tally {
    key: CompletionKey,
    /// The key of the cookies, which only this process knows.
    secret: hmac::Key,
    expected: u32,
    receivers: HashSet<u64>,
    /// The number of counted receivers by client, without a group key.
    clients: HashMap<IpAddr, u32>,
}

impl Tally {
    /// Makes a tally of up to `expected` receivers. `secret` must be random.
    pub fn new(key: CompletionKey, expected: u32, secret: [u8; 32]) -> Self {
        Tally {
            key,
            secret: hmac::Key::new(hmac::HMAC_SHA256, &secret),
            expected,
            receivers: HashSet::new(),
            clients: HashMap::new(),
        }
    }

    /// Returns the number of receivers that have all files.
    pub fn count(&self) -> u32 {
        self.receivers.len() as u32
    }

    /// Handles a datagram that came from `from`. Returns the answer, which is as long as a report.
    pub fn handle(&mut self, from: SocketAddr, datagram: &[u8]) -> Option<[u8; MESSAGE_BYTES]> {
        let report = Message::decode(datagram, &self.key)?;
        if report.kind != Kind::Report {
            return None;
        }
        let cookie = self.cookie(from, report.receiver);
        let kind = match report.cookie == cookie {
            false => Kind::Challenge,
            true if self.admit(from.ip(), report.receiver) => Kind::Counted,
            true => return None,
        };
        let answer = Message {
            kind,
            cookie,
            ..report
        };
        Some(answer.encode(&self.key))
    }

    /// Counts a receiver, unless it is counted already. Returns whether the receiver is counted
    /// now, or need not be because all are.
    fn admit(&mut self, ip: IpAddr, receiver: u64) -> bool {
        if self.receivers.contains(&receiver) || self.count() >= self.expected {
            return true;
        }
        if !self.key.is_secret {
            let counted = self.clients.entry(client_of(ip)).or_default();
            if *counted == RECEIVERS_PER_CLIENT_MAX {
                return false;
            }
            *counted += 1;
        }
        self.receivers.insert(receiver)
    }

    /// Returns the cookie of a receiver at this address, which is never 0.
    fn cookie(&self, from: SocketAddr, receiver: u64) -> u64 {
        let mut context = hmac::Context::with_key(&self.secret);
        match from.ip().to_canonical() {
            IpAddr::V4(ip) => context.update(&ip.octets()),
            IpAddr::V6(ip) => context.update(&ip.octets()),
        }
        context.update(&from.port().to_be_bytes());
        context.update(&receiver.to_be_bytes());
        let tag = context.sign();
        let first = tag.as_ref().first_chunk();
        u64::from_be_bytes(*first.expect("HMAC-SHA-256 has 32 bytes")) | 1
    }
}
