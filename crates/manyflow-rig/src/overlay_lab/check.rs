//! Checks that members have read the messages of senders once and in order.
//!
//! The ledger itself finds messages that are wrong, repeated or swapped. A message may be missing
//! only if the daemons of its sender and of its member were without a path for too long, if the
//! sender's daemon crashed, or if the sender's daemon did not know the member yet.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::faults::Faults;
use super::ledger::{Flow, Ledger, Life};

/// The time within which a daemon knows a member to which there is a path, and within which
/// messages that have entered arrive.
const SETTLED: Duration = Duration::from_secs(25);

/// The rules by which the messages of a run are judged.
#[derive(Debug)]
pub struct Judge<'a> {
    /// All messages sent and read.
    pub ledger: &'a Ledger,
    /// The faults of the run, which excuse some losses.
    pub faults: &'a Faults,
    /// The time at which all daemons knew the members that had joined before: these members miss no
    /// message that was sent later.
    pub ready: Duration,
    /// Whether all messages of connected senders should have arrived.
    pub is_over: bool,
}

/// The findings of a judge.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Judged {
    /// Pairs of a connection that sent and one that read.
    pub pairs: u64,
    /// The messages of these pairs that were read.
    pub messages: u64,
    /// Messages that were not read because the daemons were separated or not known to each other.
    pub separated: u64,
}

impl Judge<'_> {
    /// Checks all pairs of a sender and a member of the same group.
    ///
    /// # Errors
    /// Returns the first failure.
    pub fn check_all(&self) -> Result<Judged> {
        let lives = self.ledger.lives();
        let mut judged = Judged::default();
        for sender in &lives {
            for member in &lives {
                if member.seat.group == sender.seat.group {
                    self.check_pair(sender, member, &mut judged)?;
                }
            }
        }
        Ok(judged)
    }

    fn check_pair(&self, sender: &Life, member: &Life, judged: &mut Judged) -> Result<()> {
        // Clients go on meanwhile, and a client reads its own messages, too: one lock at a time.
        let (flow, joined, ended) = {
            let log = member.log();
            (
                log.flows.get(&sender.number).cloned(),
                log.joined,
                log.ended,
            )
        };
        let Some(joined) = joined else {
            return Ok(());
        };
        let pair = Pair {
            judge: self,
            sender,
            member,
            begun: sender.begun.max(joined),
            end: ended.unwrap_or_else(|| self.ledger.now()),
            has_ended: ended.is_some(),
        };
        if pair.begun >= pair.end {
            return Ok(());
        }
        if let Some(flow) = &flow {
            let missed: u64 = flow.gaps.iter().map(|gap| gap.until - gap.from).sum();
            judged.pairs += 1;
            judged.messages += flow.next - flow.first - missed;
            judged.separated += missed;
            pair.check_gaps(flow)?;
            pair.check_first(flow.first)?;
        }
        match self.is_over {
            true => pair.check_last(flow.map_or(0, |flow| flow.next)),
            false => Ok(()),
        }
    }
}

/// A connection that sends, and one that reads.
struct Pair<'a> {
    judge: &'a Judge<'a>,
    sender: &'a Life,
    member: &'a Life,
    begun: Duration,
    /// When the member's connection ended, or now.
    end: Duration,
    has_ended: bool,
}

impl Pair<'_> {
    fn may_miss(&self, until: Duration) -> bool {
        let daemons = [self.sender.seat.daemon, self.member.seat.daemon];
        self.judge.faults.may_miss(daemons, self.begun, until)
    }

    /// When a message had entered, in the accuracy of a millisecond.
    fn accepted_at(&self, number: u64) -> Option<Duration> {
        let log = self.sender.log();
        let accepted = log.accepted_ms.get(number as usize)?;
        Some(Duration::from_millis(u64::from(*accepted)))
    }

    fn check_gaps(&self, flow: &Flow) -> Result<()> {
        for gap in &flow.gaps {
            ensure!(
                self.may_miss(gap.at),
                "{self} missed its messages {} to {} before {:.1} s",
                gap.from,
                gap.until - 1,
                gap.at.as_secs_f64()
            );
        }
        ensure!(
            flow.next <= self.sender.log().written,
            "{self} read its message {}, which was not sent",
            flow.next - 1
        );
        Ok(())
    }

    /// When the sender's daemon surely knows the member.
    fn known(&self) -> Duration {
        match self.begun <= self.judge.ready {
            true => self.judge.ready,
            false => self.begun + SETTLED,
        }
    }

    fn check_first(&self, first: u64) -> Result<()> {
        let last_missed = first.checked_sub(1).and_then(|last| self.accepted_at(last));
        let is_early = last_missed.is_none_or(|at| at <= self.known());
        ensure!(
            is_early || self.may_miss(self.end),
            "{self} missed its messages up to {}, although it had joined long before",
            first - 1
        );
        Ok(())
    }

    /// Checks that the member has read up to the last message that should have arrived. `next` is
    /// the number after the last message that it read; 0 if it read none.
    fn check_last(&self, next: u64) -> Result<()> {
        let faults = self.judge.faults;
        let crash = faults.first_crash(self.sender.seat.daemon, self.sender.begun);
        let ends = [crash, self.has_ended.then_some(self.end)];
        let limit = ends.into_iter().flatten().min();
        let limit = limit.map(|limit| limit.saturating_sub(SETTLED));
        let is_due =
            |at: &u32| limit.is_none_or(|limit| Duration::from_millis(u64::from(*at)) <= limit);
        let due = self.sender.log().accepted_ms.partition_point(is_due) as u64;
        let last = due.checked_sub(1).and_then(|last| self.accepted_at(last));
        let is_known = next > 0 || last.is_some_and(|last| last > self.known());
        ensure!(
            next >= due || !is_known || self.may_miss(self.end),
            "{self} read its messages up to {next} (not included) instead of {due}"
        );
        Ok(())
    }
}

impl std::fmt::Display for Pair<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (member, sender) = (self.member, self.sender);
        write!(
            formatter,
            "connection {} of client {} (daemon {}, from {:.1} s to {:.1} s) reads connection {} of client {} \
             (daemon {}, from {:.1} s): it",
            member.number,
            member.seat.client,
            daemon_name(member.seat.daemon),
            self.begun.as_secs_f64(),
            self.end.as_secs_f64(),
            sender.number,
            sender.seat.client,
            daemon_name(sender.seat.daemon),
            sender.begun.as_secs_f64(),
        )
    }
}

/// Returns the name of a daemon: `a`, `b` and so on.
pub fn daemon_name(place: usize) -> char {
    char::from(b'a' + place as u8)
}

/// Waits until members have read all messages of senders that are connected, or have read none for
/// a while.
pub async fn wait_until_read(ledger: &Ledger) {
    const SILENCE_LIMIT: Duration = Duration::from_secs(10);
    let (mut read, mut since) = (0, ledger.now());
    while ledger.now() < since + SILENCE_LIMIT && !is_all_read(ledger) {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let now_read = ledger.lives().iter().map(|life| read_messages(life)).sum();
        if now_read != read {
            (read, since) = (now_read, ledger.now());
        }
    }
}

fn read_messages(life: &Life) -> u64 {
    life.log().flows.values().map(|flow| flow.next).sum()
}

/// Returns whether all messages of connected senders have entered and were read by all connected
/// members.
pub fn is_all_read(ledger: &Ledger) -> bool {
    let lives = ledger.lives();
    let lives: Vec<_> = lives.iter().filter(|life| life.log().is_alive()).collect();
    lives.iter().all(|sender| {
        let (written, accepted) = {
            let log = sender.log();
            (log.written, log.accepted())
        };
        let members = lives
            .iter()
            .filter(|member| member.seat.group == sender.seat.group);
        written == accepted
            && members.into_iter().all(|member| {
                let log = member.log();
                let next = log.flows.get(&sender.number).map_or(0, |flow| flow.next);
                next == written
            })
    })
}
