//! The sender's side: takes reports, and knows the state of each receiver.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime};

use manyflow_core::Time;
use manyflow_net::client::client_of;
use manyflow_net::keys::PublicKey;
use ring::hmac;

use super::audience::Audience;
use super::identity::ReceiverName;
use super::message::{self, Answer, AnswerKind, Report};
use super::status::ReceiverStatus;
use super::table::{Receiver, ReceiverTable};
use super::{CompletionKey, progress_window};

/// Maximum number of receivers outside the list that are counted for one IPv4 address or one IPv6
/// network of 64 bits, in sessions without a group key.
pub const RECEIVERS_PER_CLIENT_MAX: u32 = 16;
/// Maximum number of receivers outside a list that are in the table.
pub const UNEXPECTED_MAX: u32 = 1_000;

/// Takes the reports of receivers, each receiver once.
#[derive(Debug)]
pub struct Tally {
    key: CompletionKey,
    /// The key of the cookies, which only this process knows.
    secret: hmac::Key,
    audience: Audience,
    table: ReceiverTable,
    /// The rows of listed keys.
    by_key: HashMap<PublicKey, usize>,
    /// The rows of listed names, and whether the list has a key for the name.
    by_name: HashMap<ReceiverName, (usize, bool)>,
    /// The rows of receivers that are not listed, by number.
    by_number: HashMap<u64, usize>,
    /// The number of rows by client, without a group key.
    clients: HashMap<IpAddr, u32>,
}

/// The place of a receiver in the table.
#[derive(Copy, Clone, Debug)]
enum Place {
    /// The receiver is in the table.
    Row(usize),
    /// The receiver is new. `lacks_key`: its name is listed with a key that it has not shown.
    New { lacks_key: bool },
}

impl Tally {
    /// Makes a tally. `secret` must be random.
    pub fn new(key: CompletionKey, audience: Audience, secret: [u8; 32]) -> Self {
        let listed = match &audience {
            Audience::Number(_) => &[][..],
            Audience::Listed { receivers, .. } => receivers,
        };
        let (mut by_key, mut by_name) = (HashMap::new(), HashMap::new());
        for (row, expected) in listed.iter().enumerate() {
            if let Some(key) = expected.key {
                by_key.insert(key, row);
            }
            by_name.insert(expected.name.clone(), (row, expected.key.is_some()));
        }
        let rows = listed.iter();
        let rows = rows.map(|one| Receiver::new(one.name.clone(), one.key, true));
        Tally {
            key,
            secret: hmac::Key::new(hmac::HMAC_SHA256, &secret),
            table: ReceiverTable::new(rows.collect()),
            audience,
            by_key,
            by_name,
            by_number: HashMap::new(),
            clients: HashMap::new(),
        }
    }

    /// Returns the receivers whose reports are taken.
    pub fn audience(&self) -> &Audience {
        &self.audience
    }

    /// Returns the receivers with their states.
    pub fn table(&self) -> &ReceiverTable {
        &self.table
    }

    /// Whether as many receivers have all files as end the session.
    pub fn is_complete(&self) -> bool {
        let ends_after = self.audience.ends_after();
        ends_after.is_some_and(|number| self.table.counts().done() >= number)
    }

    /// Takes note of the system's time at [`Time::ZERO`].
    pub fn start(&mut self, now: SystemTime) {
        self.table.start(now);
    }

    /// Notices receivers that have become silent. To be called once in a second or so.
    pub fn handle_timeout(&mut self, now: Time) {
        self.table.advance(now, self.window());
    }

    /// The window in which each receiver shall report once. It grows with receivers that are not
    /// listed, so that the sender gets no more reports in a second.
    fn window(&self) -> Duration {
        match self.audience.reports_progress() {
            true => progress_window(self.table.receivers().len() as u32),
            false => self.audience.window(),
        }
    }

    /// Handles a datagram that came from `from`. Returns the answer, which is shorter than the
    /// report.
    pub fn handle(&mut self, now: Time, from: SocketAddr, datagram: &[u8]) -> Option<Vec<u8>> {
        let report = message::decode_report(datagram, &self.key)?;
        if report.status != ReceiverStatus::Done && !self.audience.reports_progress() {
            return None;
        }
        let listed = report
            .claimed_key
            .filter(|key| self.by_key.contains_key(key));
        let place = self.place_of(&report, listed.as_ref());
        let turn = match place {
            Place::Row(row) => self.table.row(row).turn,
            Place::New { .. } => 0,
        };
        let is_reachable = report.cookie == self.cookie(from, report.number, turn);
        let kind = match is_reachable {
            false => AnswerKind::Challenge,
            true if listed.is_some() && !message::is_signed(datagram, &self.key, &report) => {
                return None;
            }
            true => self.take(now, from, place, &report)?,
        };
        let turn = turn + u64::from(kind == AnswerKind::Accepted);
        let answer = Answer {
            kind,
            number: report.number,
            answered_cookie: report.cookie,
            next_cookie: self.cookie(from, report.number, turn),
            window: self.window(),
        };
        Some(answer.encode(&self.key))
    }

    /// Returns the place of the receiver that makes this report with a key of the list, if
    /// `listed`. A listed name without a key belongs to all who use it.
    fn place_of(&self, report: &Report, listed: Option<&PublicKey>) -> Place {
        if let Some(row) = listed.and_then(|key| self.by_key.get(key)) {
            return Place::Row(*row);
        }
        let named = self.by_name.get(&report.name);
        if let Some((row, false)) = named {
            return Place::Row(*row);
        }
        match self.by_number.get(&report.number) {
            Some(row) => Place::Row(*row),
            None => Place::New {
                lacks_key: named.is_some(),
            },
        }
    }

    /// Takes a report of a receiver whose address is proven. Returns `None` if the receiver cannot
    /// be counted.
    fn take(
        &mut self,
        now: Time,
        from: SocketAddr,
        place: Place,
        report: &Report,
    ) -> Option<AnswerKind> {
        let row = match place {
            Place::Row(row) => row,
            Place::New { .. } if self.is_full() => return Some(AnswerKind::Accepted),
            Place::New { lacks_key } => self.add(from.ip(), report, lacks_key)?,
        };
        let said = (report.status, report.transfer, report.needs.clone());
        self.table.update(row, now, from, said);
        Some(AnswerKind::Accepted)
    }

    /// Whether the table has room for no receiver outside the list. A receiver that is not counted
    /// gets an answer nevertheless, so that it ends.
    fn is_full(&self) -> bool {
        let counts = self.table.counts();
        match &self.audience {
            Audience::Number(number) => counts.done() >= *number,
            Audience::Listed { .. } => counts.unexpected >= UNEXPECTED_MAX,
        }
    }

    /// Adds a receiver outside the list, unless its client has too many.
    fn add(&mut self, ip: IpAddr, report: &Report, lacks_key: bool) -> Option<usize> {
        if !self.key.is_secret {
            let counted = self.clients.entry(client_of(ip)).or_default();
            if *counted == RECEIVERS_PER_CLIENT_MAX {
                return None;
            }
            *counted += 1;
        }
        let row = self.table.add(report.name.clone(), lacks_key);
        self.by_number.insert(report.number, row);
        Some(row)
    }

    /// Returns the cookie for a receiver's report number `turn` from this address, which is never
    /// 0. Each report that is taken makes earlier cookies invalid, so a report that is repeated
    /// later counts nothing.
    fn cookie(&self, from: SocketAddr, number: u64, turn: u64) -> u64 {
        let mut context = hmac::Context::with_key(&self.secret);
        match from.ip().to_canonical() {
            IpAddr::V4(ip) => context.update(&ip.octets()),
            IpAddr::V6(ip) => context.update(&ip.octets()),
        }
        context.update(&from.port().to_be_bytes());
        context.update(&number.to_be_bytes());
        context.update(&turn.to_be_bytes());
        let tag = context.sign();
        let first = tag.as_ref().first_chunk();
        u64::from_be_bytes(*first.expect("HMAC-SHA-256 has 32 bytes")) | 1
    }
}
