//! The membership of a receiver in a session.

use manyflow_core::Time;

/// The session that a receiver belongs to, and when.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The number of the session.
    pub session: u32,
    /// The number of the session's groups that the receiver can join, 1 to
    /// [`GROUPS_MAX`](crate::GROUPS_MAX).
    pub groups: u8,
    /// When the receiver joins the lowest group.
    pub start: Time,
    /// When the receiver leaves all groups; `None` if it never does.
    pub stop: Option<Time>,
}

impl Membership {
    /// Returns the membership of a receiver that can join `groups` groups of `session`, from
    /// [`Time::ZERO`] on.
    pub fn new(session: u32, groups: u8) -> Membership {
        Membership {
            session,
            groups,
            start: Time::ZERO,
            stop: None,
        }
    }
}
