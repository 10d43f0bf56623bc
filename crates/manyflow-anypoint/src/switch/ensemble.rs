//! The members of a connection: the state of each, and when it was last heard.

use core::time::Duration;

use super::{MemberId, SwitchConfig};
use crate::Reason;
use manyflow_core::time::Time;

/// The state of a member.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum MemberState {
    /// The member gets an Open as soon as the peer's credit has room for one more member.
    Waiting,
    /// The switch has sent the member an Open, and the member has not accepted.
    Opening,
    /// The member takes frames.
    Open,
    /// The member gets a Close instead of new frames. The frames that it sends still go to the
    /// peer.
    Leaving,
    /// The member has left, or did not belong to the service when the connection was opened.
    Left,
    /// The member did not answer in time, reset the connection, or was released before it had
    /// accepted. Everything that it sends is ignored.
    Failed,
}

/// The action that is due for a member when the timer fires.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Nothing is due.
    Nothing,
    /// A waiting member may be admitted.
    Admission,
    /// A leaving member has finished: it has left now.
    Departure,
    /// The member has been silent for too long.
    Failure,
    /// The segments that the member has not answered are repeated; `probe` asks for a Probe as
    /// well.
    Reminder { probe: bool },
}

/// The duties of a member when the timer fires.
#[derive(Copy, Clone, Debug)]
pub(super) struct Duties {
    /// Both of the member's streams are closed and acknowledged.
    pub(super) is_done: bool,
    /// The member has not acknowledged all frames, or its Close.
    pub(super) owes_answer: bool,
    /// The member has kept frames without an answer for too long.
    pub(super) is_stuck: bool,
    /// The numbers that the member's streams have reached.
    pub(super) marks: [u32; 3],
}

/// A member that leaves and neither takes nor sends anything is given up after this multiple of
/// [`SwitchConfig::stall_timeout`]: two minutes, as for a peer that is silent.
const FAREWELL_LIMITS: u32 = 12;

/// One member of a connection.
#[derive(Debug)]
struct Presence {
    state: MemberState,
    /// When the last packet came from the member. Before the first packet, when it was added or
    /// opened.
    heard: Time,
    /// When the member was last seen to owe no answer.
    idle: Time,
    /// The numbers that the member's streams had reached at `moved`.
    marks: [u32; 3],
    /// When the member was last seen to advance, or began to leave.
    moved: Time,
    /// A Probe was sent to the member, and nothing has come from it since.
    is_probed: bool,
    /// The member has probed the peer, and waits for the answer.
    awaits_peer: bool,
    /// Why the member was given up, if it was.
    given_up: Option<Reason>,
}

impl Presence {
    /// Returns whether the member belongs to the connection.
    fn is_active(&self) -> bool {
        !matches!(self.state, MemberState::Left | MemberState::Failed)
    }

    /// Returns whether frames pass in both directions.
    fn is_open(&self) -> bool {
        matches!(self.state, MemberState::Open | MemberState::Leaving)
    }
}

/// The members of a connection, by their numbers in the service.
#[derive(Debug)]
pub(super) struct Ensemble {
    members: Vec<Presence>,
}

impl Ensemble {
    /// Creates a list without members.
    pub(super) fn new() -> Ensemble {
        Ensemble {
            members: Vec::new(),
        }
    }

    /// Adds the member with the next number.
    pub(super) fn add(&mut self, now: Time, state: MemberState) -> MemberId {
        self.members.push(Presence {
            state,
            heard: now,
            idle: now,
            marks: [0; 3],
            moved: now,
            is_probed: false,
            awaits_peer: false,
            given_up: None,
        });
        debug_assert!(self.members.len() <= usize::from(u16::MAX));
        MemberId((self.members.len() - 1) as u16)
    }

    /// Iterates over all members, including those that have left or failed.
    pub(super) fn all(&self) -> impl Iterator<Item = MemberId> + Clone + use<> {
        (0..self.members.len() as u16).map(MemberId)
    }

    /// Iterates over the members that belong to the connection.
    pub(super) fn active(&self) -> impl Iterator<Item = MemberId> {
        let numbered = self.all().zip(&self.members);
        numbered.filter_map(|(id, member)| member.is_active().then_some(id))
    }

    /// Iterates over the members that exchange frames with the peer.
    pub(super) fn open(&self) -> impl Iterator<Item = MemberId> {
        let numbered = self.all().zip(&self.members);
        numbered.filter_map(|(id, member)| member.is_open().then_some(id))
    }

    /// Iterates over the members that wait for credit to join.
    pub(super) fn waiting(&self) -> impl Iterator<Item = MemberId> {
        let numbered = self.all().zip(&self.members);
        numbered.filter_map(|(id, member)| (member.state == MemberState::Waiting).then_some(id))
    }

    pub(super) fn state(&self, id: MemberId) -> MemberState {
        self.members[id.index()].state
    }

    /// Returns whether the member belongs to the connection.
    pub(super) fn is_active(&self, id: MemberId) -> bool {
        self.members[id.index()].is_active()
    }

    /// Returns whether frames pass between the member and the peer.
    pub(super) fn is_open(&self, id: MemberId) -> bool {
        self.members[id.index()].is_open()
    }

    /// Returns whether any member was sent an Open and has not accepted.
    pub(super) fn awaits_accept(&self) -> bool {
        let mut members = self.members.iter();
        members.any(|member| member.state == MemberState::Opening)
    }

    /// Notes a packet from the member. Returns whether to handle it: the switch knows the member,
    /// and has not given it up.
    pub(super) fn note_packet(&mut self, now: Time, id: MemberId) -> bool {
        match self.members.get_mut(id.index()) {
            Some(member) if member.state != MemberState::Failed => {
                member.heard = now;
                member.is_probed = false;
                true
            }
            _ => false,
        }
    }

    /// Notes that the member is sent an Open at `now`.
    pub(super) fn begin_opening(&mut self, now: Time, id: MemberId) {
        let member = &mut self.members[id.index()];
        debug_assert_eq!(member.state, MemberState::Waiting);
        member.state = MemberState::Opening;
        member.heard = now;
        member.idle = now;
    }

    /// Notes that the member has accepted. Returns false if no Accept was awaited.
    pub(super) fn accept(&mut self, id: MemberId) -> bool {
        let member = &mut self.members[id.index()];
        let is_awaited = member.state == MemberState::Opening;
        if is_awaited {
            member.state = MemberState::Open;
        }
        is_awaited
    }

    /// Begins the release of an open member: it gets no new frames from now on.
    pub(super) fn begin_leaving(&mut self, now: Time, id: MemberId) {
        let member = &mut self.members[id.index()];
        debug_assert_eq!(member.state, MemberState::Open);
        member.moved = now;
        member.state = MemberState::Leaving;
    }

    /// Gives the member up for this reason.
    pub(super) fn give_up(&mut self, id: MemberId, reason: Reason) {
        let member = &mut self.members[id.index()];
        member.state = MemberState::Failed;
        member.given_up = Some(reason);
    }

    /// Returns why the member was given up. The reason is [`Reason::Unknown`] if the switch has no
    /// such member.
    pub(super) fn reason_given_up(&self, id: MemberId) -> Reason {
        let member = self.members.get(id.index());
        let reason = member.and_then(|member| member.given_up);
        reason.unwrap_or(Reason::Unknown)
    }

    /// Iterates over the reasons why members were given up; `None` for those that were not.
    pub(super) fn reasons_given_up(&self) -> impl Iterator<Item = Option<Reason>> {
        self.members.iter().map(|member| member.given_up)
    }

    /// Ignores the member's silence before `now`.
    pub(super) fn restart_watch(&mut self, now: Time, id: MemberId) {
        self.members[id.index()].idle = now;
    }

    /// Notes that the member has probed the peer.
    pub(super) fn note_probe(&mut self, id: MemberId) {
        self.members[id.index()].awaits_peer = true;
    }

    /// Returns whether the member has probed the peer since this was last called.
    pub(super) fn take_probe(&mut self, id: MemberId) -> bool {
        core::mem::take(&mut self.members[id.index()].awaits_peer)
    }

    /// Returns when the last packet came from the member. Before the first packet, when the member
    /// was added or opened.
    pub(super) fn heard(&self, id: MemberId) -> Time {
        self.members[id.index()].heard
    }

    /// Returns the time since the last packet of the member.
    pub(super) fn silence(&self, now: Time, id: MemberId) -> Duration {
        now - self.members[id.index()].heard
    }

    /// Returns the action that is due for an active member with these duties.
    ///
    /// Two clocks run. A member that owes an answer must send something, so that a member without
    /// power is found soon. That is no proof of progress: a member must also take what it was sent,
    /// and while it leaves it must come closer to its end.
    pub(super) fn watch(
        &mut self,
        now: Time,
        id: MemberId,
        duties: Duties,
        config: &SwitchConfig,
    ) -> Due {
        let Duties { is_done, .. } = duties;
        let member = &mut self.members[id.index()];
        debug_assert!(member.is_active());
        if member.marks != duties.marks {
            member.marks = duties.marks;
            member.moved = now;
        }
        let is_opening = member.state == MemberState::Opening;
        match member.state {
            MemberState::Leaving if is_done => {
                member.state = MemberState::Left;
                return Due::Departure;
            }
            _ if is_done => return Due::Nothing,
            MemberState::Waiting => return Due::Admission,
            _ => {}
        }
        if !(duties.owes_answer || is_opening || member.is_probed) {
            member.idle = now;
        }
        let owing = now - member.heard.max(member.idle);
        // A member that sends other packets than an Accept takes part in another connection: that
        // of a switch that no longer exists.
        let refuses = is_opening && now - member.idle >= 4 * config.failure_timeout;
        let lingers = member.state == MemberState::Leaving
            && now - member.moved >= FAREWELL_LIMITS * config.stall_timeout;
        if refuses || lingers || duties.is_stuck || owing >= config.failure_timeout {
            return Due::Failure;
        }
        let is_silent =
            now - member.heard >= config.keep_alive || owing >= config.failure_timeout / 2;
        // An Open serves as a probe too, and a member that has not received one knows no
        // connection.
        let probe = is_silent && member.is_open();
        member.is_probed |= probe;
        Due::Reminder { probe }
    }
}
