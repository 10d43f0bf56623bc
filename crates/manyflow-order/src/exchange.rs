//! The exchange that leads from one view of the daemons to the next.
//!
//! Each daemon sends a state: with whom it wants to enter the next view, and what it has of the
//! present one. When it has a state of each of those, and all want the same, it knows the next
//! view, whose number follows from all these states. Those that leave the same view (the
//! *transitional set*) send each other what some of them lack. A daemon that has all of it says
//! that it is ready for the view. When all of its daemons have said so, a daemon delivers what is
//! left of the present view, and enters the next one.
//!
//! No daemon decides for others. A daemon that notices a failure, or another daemon, sends a new
//! state. Those that are not in the next view yet then look for another one; those that are send a
//! new state, too, and get one of each that has not entered their view. Being ready means having
//! the same states as all others, so no two of them enter different views again and again, each
//! with an old state of the other.

use core::time::Duration;
use std::collections::BTreeMap;

use bytes::Bytes;
use manyflow_core::time::Time;
use manyflow_overlay::DaemonId;

use crate::names::{Peer, ViewId};
use crate::parts::Assembly;
use crate::present::Present;
use crate::wire::{Arrived, Part, Record, State};

/// How far the attempt of another daemon can be ahead: a daemon that lies must not use them up.
const ATTEMPTS_AHEAD: u32 = 1 << 24;

/// A daemon's stream, beyond the present view.
#[derive(Debug, Default)]
pub(crate) struct Source {
    /// The daemon's incarnation, once it is a peer.
    incarnation: Option<u32>,
    /// The next record that is expected; `None` before the first one.
    next: Option<u64>,
    /// A record of the daemon's own of which parts have arrived.
    assembly: Assembly,
    /// Roster records since the last state.
    rosters: Vec<Bytes>,
    /// The last state, if no view has been entered on it.
    pub(crate) heard: Option<Heard>,
    /// The view that the daemon has said to be ready for.
    pub(crate) ready: Option<ViewId>,
    /// The records after that state: they belong to the view that the daemon enters on it.
    pub(crate) later: Vec<Bytes>,
}

/// A state that has arrived.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) state: State,
    pub(crate) sequence: u64,
    pub(crate) rosters: Vec<Bytes>,
}

impl Heard {
    /// Returns where the daemon's stream of its present view ends.
    fn end(&self) -> u64 {
        match self.state.first {
            0 => self.sequence,
            first => first,
        }
    }
}

/// The next view, as far as it follows from the states of its daemons.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) id: ViewId,
    /// The daemons of the next view, and the first numbers of their streams in it.
    pub(crate) members: Vec<(Peer, u64)>,
    /// Those that come from this daemon's present view.
    pub(crate) stay: Vec<DaemonId>,
    /// For each stream of the present view, where it ends for those that stay.
    pub(crate) ends: Vec<u64>,
    /// For each of these streams: before which number it depends on nothing that they lack.
    pub(crate) sound: Vec<u64>,
    /// For each of these streams: whether it ends there at its daemon, too.
    pub(crate) are_complete: Vec<bool>,
    /// The records that some of those that stay lack and others have.
    pub(crate) gaps: Vec<Gap>,
}

/// Records of the stream with this index that some daemons lack.
#[derive(Debug)]
pub(crate) struct Gap {
    pub(crate) index: usize,
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// The daemon that sends them.
    pub(crate) by: DaemonId,
}

/// The exchange of a daemon.
#[derive(Debug)]
pub(crate) struct Exchange {
    here: Peer,
    /// The daemons that can be reached, in ascending order.
    pub(crate) peers: Vec<Peer>,
    pub(crate) sources: BTreeMap<DaemonId, Source>,
    /// Whether this daemon has sent a state and has not entered a view since.
    pub(crate) is_running: bool,
    /// The highest attempt that this daemon has seen.
    attempt: u32,
    /// Whether this daemon's own last state has not come back yet.
    awaits_own: bool,
    /// Whether another state has to follow when it has.
    is_outdated: bool,
    /// The view for which this daemon has sent what others lack, and for which it has said that it
    /// is ready.
    pub(crate) sent_for: Option<ViewId>,
    pub(crate) ready_for: Option<ViewId>,
    /// Whether this daemon has been ready for a view since it entered the present one.
    pub(crate) has_promised: bool,
    retry: Duration,
    tries: u32,
    pub(crate) retry_at: Option<Time>,
}

impl Exchange {
    pub(crate) fn new(here: Peer, retry: Duration) -> Exchange {
        Exchange {
            here,
            peers: vec![here],
            sources: BTreeMap::new(),
            is_running: false,
            attempt: 0,
            awaits_own: false,
            is_outdated: false,
            sent_for: None,
            ready_for: None,
            has_promised: false,
            retry,
            tries: 0,
            retry_at: None,
        }
    }

    /// Notes the arrival of a record. Returns whether it is the one that was expected: if not,
    /// records before it are lost, or the daemon has restarted.
    pub(crate) fn arrive(&mut self, origin: DaemonId, sequence: u64) -> bool {
        let source = self.sources.entry(origin).or_default();
        let is_next = source.next.replace(sequence + 1) == Some(sequence);
        if !is_next {
            let (next, incarnation) = (source.next, source.incarnation);
            *source = Source {
                next,
                incarnation,
                ..Source::default()
            };
        }
        is_next
    }

    /// Notes the daemons that can be reached. Returns those that have restarted: the records of
    /// their last incarnations are all here that will ever be.
    pub(crate) fn set_peers(&mut self, peers: &[Peer]) -> Vec<DaemonId> {
        self.peers = peers.to_vec();
        let mut restarted = Vec::new();
        for peer in peers {
            let source = self.sources.entry(peer.daemon).or_default();
            let before = source.incarnation.replace(peer.incarnation);
            if before.is_some_and(|before| before != peer.incarnation) {
                *source = Source {
                    incarnation: Some(peer.incarnation),
                    ..Source::default()
                };
                restarted.push(peer.daemon);
            }
        }
        restarted
    }

    /// Begins another incarnation of this daemon, which is alone.
    pub(crate) fn begin_incarnation(&mut self, here: Peer) {
        (self.here, self.peers) = (here, vec![here]);
        if let Some(source) = self.sources.get_mut(&here.daemon) {
            source.incarnation = Some(here.incarnation);
        }
    }

    /// Adds a part of a daemon's own record. Returns the record if it is complete.
    pub(crate) fn assemble(&mut self, origin: DaemonId, part: &Part<'_>) -> Option<Bytes> {
        self.sources.get_mut(&origin)?.assembly.add(part)
    }

    /// Keeps a roster record until the state that follows it.
    pub(crate) fn add_roster(&mut self, origin: DaemonId, record: Bytes) {
        if let Some(source) = self.sources.get_mut(&origin) {
            source.rosters.push(record);
        }
    }

    /// Handles a state. Returns whether it is complete.
    pub(crate) fn handle_state(&mut self, origin: DaemonId, sequence: u64, state: State) -> bool {
        if state.attempt > self.attempt.saturating_add(ATTEMPTS_AHEAD) {
            return false;
        }
        self.attempt = self.attempt.max(state.attempt);
        let Some(source) = self.sources.get_mut(&origin) else {
            return false;
        };
        if origin == self.here.daemon {
            self.awaits_own = false;
        }
        // It has entered a view on this daemon's last state, and needs another one.
        let before = source.heard.as_ref();
        self.is_outdated |= self.is_running
            && origin != self.here.daemon
            && before.is_some_and(|before| before.state.previous != state.previous);
        let rosters = core::mem::take(&mut source.rosters);
        source.later.clear();
        source.ready = None;
        source.heard = None;
        if rosters.len() != usize::from(state.rosters) {
            return false;
        }
        source.heard = Some(Heard {
            state,
            sequence,
            rosters,
        });
        true
    }

    /// Takes whether another state has to be sent and the last one has come back.
    pub(crate) fn take_outdated(&mut self) -> bool {
        !self.awaits_own && core::mem::take(&mut self.is_outdated)
    }

    /// Counts a try that has led to no view in time.
    pub(crate) fn count_try(&mut self) {
        self.tries += 1;
    }

    /// Notes that this daemon is ready for a view. The others have the time of a try to get ready,
    /// too: a try that began now could interrupt them each time.
    pub(crate) fn set_ready(&mut self, now: Time, view: ViewId) {
        self.ready_for = Some(view);
        self.retry_at = Some(now + self.patience());
    }

    /// Returns the time after which an exchange without a result begins again.
    fn patience(&self) -> Duration {
        self.retry * (1 << self.tries.min(4))
    }

    /// Begins with a state: returns its attempt, unless the last one has not come back yet; another
    /// one follows it then.
    pub(crate) fn begin(&mut self, now: Time) -> Option<u32> {
        self.tries = if self.is_running { self.tries } else { 0 };
        self.retry_at = Some(now + self.patience());
        self.is_running = true;
        if self.awaits_own {
            self.is_outdated = true;
            return None;
        }
        self.awaits_own = true;
        self.attempt += 1;
        (self.sent_for, self.ready_for) = (None, None);
        Some(self.attempt)
    }

    /// Ends with a view of these daemons.
    pub(crate) fn end(&mut self) {
        self.is_running = false;
        self.has_promised = false;
        self.retry_at = None;
        for peer in &self.peers {
            if let Some(source) = self.sources.get_mut(&peer.daemon) {
                source.heard = None;
                source.ready = None;
                source.later = Vec::new();
            }
        }
    }

    /// Returns what this daemon's last state says of the streams of its present view.
    pub(crate) fn declared(&self) -> &[Arrived] {
        let source = self.sources.get(&self.here.daemon);
        let heard = source.and_then(|source| source.heard.as_ref());
        heard.map_or(&[], |heard| &heard.state.arrived)
    }

    /// Returns whether all daemons of the next view have said that they are ready for it.
    pub(crate) fn are_ready(&self, view: ViewId) -> bool {
        self.peers.iter().all(|peer| {
            let source = self.sources.get(&peer.daemon);
            source.is_some_and(|source| source.ready == Some(view))
        })
    }

    /// Forgets daemons that can neither be reached nor are in the present view.
    pub(crate) fn forget(&mut self, present: &Present) {
        let peers = &self.peers;
        self.sources.retain(|daemon, _| {
            present.index(*daemon).is_some() || peers.iter().any(|peer| peer.daemon == *daemon)
        });
    }

    /// Returns the next view, if there is a state of each of its daemons and all agree.
    pub(crate) fn plan(&self, present: &Present) -> Option<Plan> {
        if self.awaits_own || self.is_outdated {
            return None;
        }
        let heard: Vec<&Heard> = self.peers.iter().map_while(|p| self.matching(*p)).collect();
        if heard.len() != self.peers.len() {
            return None;
        }
        let all = || self.peers.iter().copied().zip(heard.iter().copied());
        let stay: Vec<(DaemonId, &Heard)> = all()
            .filter(|(peer, heard)| heard.state.previous == present.id && present.has(*peer))
            .map(|(peer, heard)| (peer.daemon, heard))
            .collect();
        let count = present.streams.len();
        if stay
            .iter()
            .any(|(_, heard)| heard.state.arrived.len() != count)
        {
            return None;
        }
        let mut plan = Plan {
            id: view_id(all().map(|(peer, heard)| (peer, heard.state.attempt))),
            members: all()
                .map(|(peer, heard)| (peer, heard.sequence + 1))
                .collect(),
            stay: stay.iter().map(|(daemon, _)| *daemon).collect(),
            ends: Vec::with_capacity(count),
            sound: Vec::with_capacity(count),
            are_complete: Vec::with_capacity(count),
            gaps: Vec::new(),
        };
        for index in 0..count {
            plan.end_stream(present, index, &stay);
        }
        Some(plan)
    }

    /// Returns the last state of a daemon, if it wants to enter the next view with the same daemons
    /// as this one.
    fn matching(&self, peer: Peer) -> Option<&Heard> {
        let heard = self.sources.get(&peer.daemon)?.heard.as_ref()?;
        let state = &heard.state;
        (state.incarnation == peer.incarnation && state.peers == self.peers).then_some(heard)
    }
}

impl Plan {
    /// Finds where a stream ends for those that stay, and what some of them lack.
    fn end_stream(&mut self, present: &Present, index: usize, stay: &[(DaemonId, &Heard)]) {
        let origin = present.streams[index].peer.daemon;
        let own = stay.iter().find(|(daemon, _)| *daemon == origin);
        let arrived = |heard: &Heard| heard.state.arrived[index];
        let most = stay.iter().map(|(_, heard)| arrived(heard).next).max();
        let end = own.map_or(most.unwrap_or(0), |(_, heard)| heard.end());
        let mut from = end;
        for (daemon, heard) in stay {
            let has = arrived(heard);
            if *daemon == origin || has.next >= end {
                continue;
            }
            // The records of a daemon that stays arrive by themselves.
            if own.is_none() || has.is_cut {
                from = from.min(has.next);
            }
        }
        self.ends.push(end);
        let sound = stay.iter().map(|(_, heard)| arrived(heard).sound);
        self.sound.push(sound.max().unwrap_or(0));
        let mut complete = stay.iter().map(|(_, heard)| arrived(heard).is_complete);
        self.are_complete
            .push(complete.any(|is_complete| is_complete));
        let holder = stay
            .iter()
            .find(|(daemon, heard)| *daemon == origin || arrived(heard).next >= end);
        if from < end
            && let Some((by, _)) = holder
        {
            self.gaps.push(Gap {
                index,
                from,
                to: end,
                by: *by,
            });
        }
    }
}

/// Returns the number of the view that these attempts of daemons lead to (FNV-1a).
pub(crate) fn view_id(attempts: impl Iterator<Item = (Peer, u32)>) -> ViewId {
    let (mut counter, mut hash) = (0, 0xcbf2_9ce4_8422_2325_u64);
    for (peer, attempt) in attempts {
        counter = attempt.max(counter);
        let words = [peer.daemon.0.into(), peer.incarnation, attempt];
        for byte in words.iter().flat_map(|word| word.to_be_bytes()) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
    ViewId { counter, hash }
}

/// Returns the clients and groups in the roster records of a daemon. A client without groups comes
/// once, with an empty name of a group.
pub(crate) fn brought(rosters: &[Bytes]) -> impl Iterator<Item = (crate::ClientId, &str, &str)> {
    let rosters = rosters
        .iter()
        .filter_map(|bytes| match Record::decode(bytes) {
            Some(Record::Roster(roster)) => Some(roster),
            _ => None,
        });
    rosters.flatten().flat_map(|(client, name, groups)| {
        core::iter::once("")
            .chain(groups)
            .map(move |group| (client, name, group))
    })
}
