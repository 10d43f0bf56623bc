//! The state of one connection, and what is common to both of its directions.

use std::collections::VecDeque;

use super::member::{Member, State};
use super::missing::Missing;
use super::outbound::Sent;
use super::ratios::Ratios;
use super::reorder::Reorder;
use super::ring::{Ring, before};
use super::transform::Aggregate;
use super::{Candidate, Leg, MemberId, SwitchConfig, inbound::Route};
use crate::anypoint::Event;
use crate::anypoint::{Ack, Body, Payload, Segment, UNLIMITED};
use crate::time::Time;
use crate::xcp::Congestion;

/// What waits to be fetched.
#[derive(Debug)]
pub(super) struct Output<P> {
    pub(super) transmits: VecDeque<(Leg, Segment, P)>,
    pub(super) events: VecDeque<Event>,
}

impl<P> Output<P> {
    pub(super) fn new() -> Output<P> {
        Output {
            transmits: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Adds what waits there.
    pub(super) fn append(&mut self, mut other: Output<P>) {
        self.transmits.append(&mut other.transmits);
        self.events.append(&mut other.events);
    }
}

/// A connection between the peer and the ensemble.
#[derive(Debug)]
pub(super) struct Connection<P> {
    pub(super) config: SwitchConfig,
    pub(super) number: u32,
    /// There has been one member only: all passes unchanged, and is only watched.
    pub(super) single: bool,
    /// The peer was told that the connection is open.
    pub(super) accepted: bool,
    /// There is nothing left to do for it.
    pub(super) over: bool,
    /// Both directions are closed, since then.
    pub(super) finished: Option<Time>,
    /// When the timer is due.
    pub(super) tick: Time,
    /// By number.
    pub(super) members: Vec<Member<P>>,
    /// Those that take frames.
    pub(super) candidates: Vec<Candidate>,

    // Inbound: the peer's numbers.
    pub(super) arrivals: Reorder<P>,
    /// From the peer's first frame that no member has acknowledged.
    pub(super) routes: Ring<Route>,
    /// Frames that were lost on their way to a member, or with it.
    pub(super) missing: Missing,
    pub(super) ratios: Ratios,
    /// XCP's header of the peer's latest frame.
    pub(super) source: Congestion,
    /// The number of the peer's Close.
    pub(super) peer_close: Option<u32>,

    // Outbound: our numbers towards the peer.
    /// From the first frame that the peer has not acknowledged.
    pub(super) sent: Ring<Sent<P>>,
    /// The latest headers of the members, together.
    pub(super) aggregate: Aggregate,
    /// What the peer granted at first: all of its buffer.
    buffer: u32,
    /// What the peer grants.
    pub(super) credit: u32,
    /// Of it, what frames of failed members take.
    pub(super) orphan_bytes: u32,
    /// The number of our Close to the peer.
    pub(super) close: Option<u32>,

    pub(super) output: Output<P>,
}

impl<P: Payload + Default> Connection<P> {
    /// A connection that the peer opens with this credit; `ensemble` says which members are there.
    pub(super) fn new(
        config: SwitchConfig,
        now: Time,
        number: u32,
        credit: u32,
        ensemble: &[bool],
    ) -> Connection<P> {
        let mut connection = Connection {
            number,
            single: ensemble.len() == 1,
            accepted: false,
            over: false,
            finished: None,
            tick: now,
            members: Vec::new(),
            candidates: Vec::new(),
            arrivals: Reorder::new(config.held_frames_max),
            routes: Ring::new(),
            missing: Missing::default(),
            ratios: Ratios::new(config.histogram_frames),
            source: Congestion::default(),
            peer_close: None,
            sent: Ring::new(),
            aggregate: Aggregate::default(),
            buffer: credit,
            credit,
            orphan_bytes: 0,
            close: None,
            output: Output::new(),
            config,
        };
        for there in ensemble {
            let state = if *there { State::Opening } else { State::Left };
            connection.add_member(now, state);
        }
        connection
    }

    pub(super) fn add_member(&mut self, now: Time, state: State) {
        let member = Member::new(state, now, self.config.held_frames_max);
        self.members.push(member);
        self.ratios.add_member();
    }

    pub(super) fn send(&mut self, to: Leg, body: Body) {
        self.send_with(to, body, P::default());
    }

    pub(super) fn send_with(&mut self, to: Leg, body: Body, payload: P) {
        let connection = self.number;
        let segment = Segment { connection, body };
        self.output.transmits.push_back((to, segment, payload));
    }

    pub(super) fn send_to(&mut self, member: usize, body: Body) {
        self.send(leg(member), body);
    }

    /// Lets the members that are open, and only those, take frames. For changes of the ensemble.
    pub(super) fn gather_candidates(&mut self) {
        self.candidates.clear();
        for (index, member) in self.members.iter_mut().enumerate() {
            let open = member.state == State::Open;
            member.place = open.then_some(self.candidates.len());
            if open {
                self.candidates.push(Candidate {
                    member: MemberId(index as u16),
                    outstanding: member.outstanding,
                });
            }
        }
    }

    /// Whether an acknowledgement speaks of what was sent alone: numbers below `next`.
    pub(super) fn is_possible(ack: &Ack, next: u32) -> bool {
        before(ack.of, next) && !before(next, ack.cumulative)
    }

    /// What the strict policy grants the peer: the smallest credit of a member (section V).
    pub(super) fn credit_for_peer(&self) -> u32 {
        let open = self.members.iter().filter(|member| member.is_open());
        let least = open.map(|member| member.credit).min();
        least.unwrap_or(0)
    }

    /// What it grants a member: its part of the peer's credit (section V), and no more than what others were granted leaves. Without
    /// that, what they were granted when the peer had more room would be granted twice.
    pub(super) fn credit_for_member(&self, index: usize) -> u32 {
        let part = self.part_of_credit();
        if part == UNLIMITED {
            return UNLIMITED;
        }
        let others = self
            .members
            .iter()
            .enumerate()
            .filter(|(i, member)| *i != index && member.is_active() && !member.has_sent_all());
        let granted = others.map(|(_, member)| member.granted);
        let taken = granted.fold(self.orphan_bytes, u32::saturating_add);
        part.min(self.credit.saturating_sub(taken))
    }

    /// The peer's credit divided by the number of members.
    pub(super) fn part_of_credit(&self) -> u32 {
        self.part_of(self.credit)
    }

    /// A member's part of the peer's buffer.
    pub(super) fn part_of_buffer(&self) -> u32 {
        self.part_of(self.buffer)
    }

    fn part_of(&self, credit: u32) -> u32 {
        let active = self.members.iter().filter(|member| member.is_active());
        match credit {
            UNLIMITED => UNLIMITED,
            credit => credit / active.count().max(1) as u32,
        }
    }
}

/// The leg of the member with this index.
pub(super) fn leg(member: usize) -> Leg {
    Leg::Member(MemberId(member as u16))
}

/// The numbers that an acknowledgement reports missing, below `next`.
pub(super) fn missing_numbers(ack: &Ack, next: u32) -> impl Iterator<Item = u32> + use<> {
    let Ack {
        cumulative,
        missing,
        ..
    } = *ack;
    let numbers = move |gap: crate::anypoint::Gap| {
        let first = cumulative.wrapping_add(gap.offset.into());
        (0..u32::from(gap.frames)).map(move |place| first.wrapping_add(place))
    };
    let below = move |number: &u32| before(*number, next);
    missing
        .into_iter()
        .flat_map(move |gap| numbers(gap).take_while(below))
}
