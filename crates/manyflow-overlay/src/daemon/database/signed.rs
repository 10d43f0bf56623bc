//! The signatures of states: this daemon's own, and those of others.

use core::time::Duration;

use super::digests::{GroupDigests, changes_digest};
use super::record::{Limits, Proof};
use super::seal::{CHANGES_MAX, StateSeal, Statement};
use super::wanted::Whole;
use super::{Database, Heard};
use crate::event::Misconduct;
use crate::message::{Change, DaemonId, Item, Summary};
use crate::notary::{Claim, Notary};
use crate::sequence::ChangeSeq;
use manyflow_core::Payload;
use manyflow_core::time::Time;

/// The time between two seals of this daemon: [`SEAL_INTERVAL`], and [`SEAL_INTERVAL_ITEM`] for
/// each item that was read for the last one, so that digests take at most some percent of the time.
const SEAL_INTERVAL: Duration = Duration::from_millis(5);
const SEAL_INTERVAL_ITEM: Duration = Duration::from_micros(5);

/// The changes of this daemon that have not been signed and sent.
#[derive(Debug)]
pub(super) struct Unsigned<P> {
    changes: Vec<(ChangeSeq, Item, P)>,
    /// The digests of the groups that have not changed since the last seal.
    groups: GroupDigests,
    /// The earliest time of the next seal.
    next_seal: Time,
}

impl<P> Default for Unsigned<P> {
    fn default() -> Unsigned<P> {
        Unsigned {
            changes: Vec::new(),
            groups: GroupDigests::default(),
            next_seal: Time::ZERO,
        }
    }
}

impl<P> Unsigned<P> {
    pub(super) fn push(&mut self, number: ChangeSeq, item: Item, name: P) {
        self.groups.forget(item);
        self.changes.push((number, item, name));
    }

    /// Forgets the changes: they are part of the state of a new incarnation.
    pub(super) fn clear(&mut self) {
        self.changes.clear();
    }

    /// Returns when the changes are signed.
    pub(super) fn due(&self) -> Option<Time> {
        (!self.changes.is_empty()).then_some(self.next_seal)
    }
}

/// Changes of this daemon, with the seal that covers them.
#[derive(Debug)]
pub(in crate::daemon) struct Announcement<P> {
    pub(in crate::daemon) changes: Vec<(Change, P)>,
    pub(in crate::daemon) summary: Summary,
    pub(in crate::daemon) seal: P,
}

impl<P: Payload + Default + PartialEq> Database<P> {
    /// Lets the daemon sign its states, and believe only states that their daemons have signed.
    pub(in crate::daemon) fn set_notary(&mut self, notary: Box<dyn Notary<P>>) {
        self.notary = Some(notary);
    }

    /// Returns whether states are signed.
    pub(in crate::daemon) fn is_signed(&self) -> bool {
        self.notary.is_some()
    }

    /// Returns whether as many changes of this daemon wait as one seal covers: it must be now.
    pub(in crate::daemon) fn must_seal(&self) -> bool {
        self.unsigned.changes.len() >= CHANGES_MAX
    }

    /// Signs and returns the changes of this daemon, if there are any and it is time.
    pub(in crate::daemon) fn seal(&mut self, now: Time) -> Option<Announcement<P>> {
        let is_due = self.unsigned.due()? <= now;
        is_due.then(|| self.seal_now(now))?
    }

    /// Signs and returns the changes of this daemon, if there are any.
    pub(in crate::daemon) fn seal_now(&mut self, now: Time) -> Option<Announcement<P>> {
        let notary = self.notary.as_deref()?;
        let mut own = self.records.get_mut(self.here)?;
        let changes = core::mem::take(&mut self.unsigned.changes);
        if changes.is_empty() {
            return None;
        }
        let (age, groups) = (own.age(), &mut self.unsigned.groups);
        let statement = Statement::new(notary, self.here, age, &own.state, groups, &changes);
        let pause = SEAL_INTERVAL + SEAL_INTERVAL_ITEM * groups.read();
        self.unsigned.next_seal = now + pause;
        let seal = StateSeal::new(notary, statement);
        let payload = notary.payload(&seal.encode());
        own.seal = Some(seal);
        let incarnation = own.incarnation;
        let changes = changes.into_iter().map(|(change, item, name)| {
            let change = Change {
                incarnation,
                change,
                item,
            };
            (change, name)
        });
        Some(Announcement {
            changes: changes.collect(),
            summary: own.summary(),
            seal: payload,
        })
    }

    /// Returns the pieces of the proof of a state. This daemon's own is signed again if the last
    /// signature is not of its present incarnation.
    pub(super) fn proof(&mut self, daemon: DaemonId) -> Vec<P> {
        let Some(notary) = self.notary.as_deref() else {
            return Vec::new();
        };
        let Some(mut record) = self.records.get_mut(daemon) else {
            return Vec::new();
        };
        let age = record.age();
        let is_of = |seal: &StateSeal| (seal.statement.incarnation, seal.statement.last) == age;
        if daemon == self.here && !record.seal.as_ref().is_some_and(is_of) {
            let groups = &mut self.unsigned.groups;
            let statement = Statement::new(notary, daemon, age, &record.state, groups, &[]);
            record.seal = Some(StateSeal::new(notary, statement));
        }
        let identity = match daemon == self.here {
            true => notary.identity(),
            false => &record.identity,
        };
        let pieces = record.seal.as_ref().map(|seal| seal.pieces(identity));
        let pieces = pieces.into_iter().flatten();
        pieces.map(|piece| notary.payload(&piece)).collect()
    }

    /// Holds a change of another daemon until its seal has arrived.
    pub(super) fn insert_unsealed(
        &mut self,
        now: Time,
        from: DaemonId,
        origin: DaemonId,
        change: &Change,
        name: P,
    ) -> Heard {
        let age = (change.incarnation, change.change);
        let may_hold = self.may_wait();
        let record = self.records.get_mut(origin);
        let known = record.filter(|record| !record.has_no_state() && record.incarnation == age.0);
        let is_held = known.is_some_and(|mut record| {
            let (number, item) = (change.change, change.item);
            may_hold && record.waiting.add_change(from, number, item, name)
        });
        match is_held {
            true => self.take_sealed(from, origin),
            false => self.offer(now, from, origin, age),
        }
    }

    /// Handles a seal of another daemon.
    pub(in crate::daemon) fn handle_seal(
        &mut self,
        now: Time,
        from: DaemonId,
        origin: DaemonId,
        summary: &Summary,
        payload: &P,
    ) -> Heard {
        let age = (summary.incarnation, summary.change);
        let Some(notary) = self.notary.as_deref() else {
            return Heard::Nothing;
        };
        if age.1 == ChangeSeq(0) {
            return match origin == self.here {
                true => self.check_own_incarnation(now, age.0, payload),
                false => self.handle_summary(now, from, origin, summary),
            };
        }
        if origin == self.here {
            return self.hear_of_self(now, from, age);
        }
        if let Some(doubt) = self.own.doubt(now, age.0) {
            return doubt;
        }
        let record = self.records.get(&origin);
        let known = record.filter(|record| !record.has_no_state() && record.incarnation >= age.0);
        let Some(record) = known else {
            return self.offer(now, from, origin, age);
        };
        if age <= record.age() {
            return Heard::Nothing;
        }
        let Some(seal) = StateSeal::decode(notary.bytes(payload), origin, summary) else {
            return Heard::Forged(Misconduct::Signature);
        };
        let record = self.records.get_mut(origin);
        let is_held = record.is_some_and(|mut record| record.waiting.add_seal(from, seal));
        match is_held {
            true => self.take_sealed(from, origin),
            false => self.offer(now, from, origin, age),
        }
    }

    /// Returns the message that proves the incarnation of a daemon whose state was dropped: the
    /// daemon's last seal, about no change.
    pub(in crate::daemon) fn proof_of_incarnation(&self, daemon: DaemonId) -> Option<(Summary, P)> {
        let notary = self.notary.as_deref()?;
        let record = self.records.get(&daemon).filter(|it| it.has_no_state())?;
        let seal = record.seal.as_ref()?;
        Some((record.summary(), notary.payload(&seal.encode())))
    }

    /// Handles a proof that this daemon has lived in a later incarnation: outbids it, if this
    /// daemon's present key made the seal.
    fn check_own_incarnation(&mut self, now: Time, incarnation: u32, payload: &P) -> Heard {
        let (Some(notary), Some(present)) = (self.notary.as_deref(), self.incarnation(self.here))
        else {
            return Heard::Nothing;
        };
        if let Some(doubt @ Heard::Forged(_)) = self.own.doubt(now, incarnation) {
            return doubt;
        }
        let seal = StateSeal::decode_any(notary.bytes(payload));
        let is_own = seal.is_some_and(|seal| {
            let statement = &seal.statement;
            // The certificate may have been renewed since, and is valid now.
            let claim = Claim {
                origin: self.here,
                incarnation: present,
                identity: notary.identity(),
                statement: &statement.encode(),
                signature: &seal.signature,
            };
            (statement.origin, statement.incarnation) == (self.here, incarnation)
                && incarnation > present
                && notary.verify(&claim)
        });
        if is_own {
            self.own.schedule_outbid(now, incarnation);
        }
        Heard::Nothing
    }

    /// Takes the changes of a daemon that a neighbour has sent with their seals, if it is their
    /// turn.
    fn take_sealed(&mut self, from: DaemonId, origin: DaemonId) -> Heard {
        let (Some(notary), Some(mut record)) = (&self.notary, self.records.get_mut(origin)) else {
            return Heard::Nothing;
        };
        loop {
            let next = record.next_unsealed();
            let Some((seal, changes)) = record.waiting.take(from, next) else {
                return Heard::Nothing;
            };
            let covered = changes
                .iter()
                .map(|(number, item, name)| (*number, *item, name));
            let is_true = changes_digest(&**notary, covered) == seal.statement.changes
                && is_signed(&**notary, &seal, &record.identity);
            if !is_true {
                return Heard::Forged(Misconduct::Signature);
            }
            let payload = notary.payload(&seal.encode());
            record.insert_sealed(seal, payload, changes, from);
        }
    }

    /// Returns whether a whole state that a neighbour has sent is the one that its daemon has
    /// signed, with the proof. A state that exceeds the limits lacks its groups then: those that
    /// are there cannot be verified.
    pub(super) fn verify(
        &self,
        origin: DaemonId,
        whole: &mut Whole<P>,
        limits: Limits,
    ) -> Result<Option<Proof>, Misconduct> {
        let Some(notary) = self.notary.as_deref() else {
            return Ok(None);
        };
        let pieces = whole.proof.iter().map(|piece| notary.bytes(piece));
        let proof: Vec<u8> = pieces.flatten().copied().collect();
        let (seal, identity) = StateSeal::of_proof(&proof).ok_or(Misconduct::Signature)?;
        let statement = &seal.statement;
        let age = (statement.incarnation, statement.last);
        let is_about = statement.origin == origin && age == whole.age;
        if !is_about || statement.items != whole.items || !is_signed(notary, &seal, identity) {
            return Err(Misconduct::Signature);
        }
        let is_too_large = statement.bytes > whole.bytes_max.min(limits.bytes) as u64;
        if whole.is_cut && is_too_large {
            whole.state.drop_groups();
        }
        let is_true = match whole.is_cut {
            true => is_too_large && statement.has_links_of(&whole.state),
            false => statement.is_of(notary, &whole.state),
        };
        let identity = identity.to_vec();
        is_true.then_some(()).ok_or(Misconduct::Signature)?;
        Ok(Some(Proof {
            seal,
            identity,
            is_cut: whole.is_cut,
        }))
    }

    /// Forgets the changes without a seal that a neighbour has sent.
    pub(super) fn forget_unsealed(&mut self, from: DaemonId) {
        self.records.retain(|_, record| {
            record.waiting.forget_neighbour(from);
            true
        });
    }

    /// Returns the payload of the message with the last seal of a daemon.
    #[cfg(test)]
    pub(in crate::daemon) fn encoded_seal(&self, daemon: DaemonId) -> Vec<u8> {
        let seal = self.records[&daemon].seal.as_ref();
        seal.expect("a seal").encode()
    }

    /// Returns when the changes of this daemon are signed.
    pub(super) fn seal_due(&self) -> Option<Time> {
        self.unsigned.due()
    }
}

fn is_signed<P>(notary: &dyn Notary<P>, seal: &StateSeal, identity: &[u8]) -> bool {
    notary.verify(&Claim {
        origin: seal.statement.origin,
        incarnation: seal.statement.incarnation,
        identity,
        statement: &seal.statement.encode(),
        signature: &seal.signature,
    })
}
