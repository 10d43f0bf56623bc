//! What a client's messages are worth, relative to others': its salary follows (section IV-B.2).

use core::fmt;

/// The sender of a message, and who gets it.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Sending {
    /// The members of its group, anywhere.
    pub receivers: u32,
    /// Messages that the client has sent lately, per second: an average over some [ten
    /// seconds](super::RATE_AVERAGE).
    pub messages_per_s: f64,
}

/// What one more message is worth, in units of a message's worth by default. Clients are paid in
/// proportion.
pub trait Benefit: fmt::Debug + Send {
    /// The benefit; positive. It is held between 1/1000 and 1000.
    fn of(&self, sending: Sending) -> f64;
}

/// One unit for each message that is sent, so that the network sends as much as it can: the paper's
/// choice.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct PerMessage;

impl Benefit for PerMessage {
    fn of(&self, _sending: Sending) -> f64 {
        1.0
    }
}

/// One unit for each member that gets the message: senders to large groups have the advantage.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct PerReceiver;

impl Benefit for PerReceiver {
    fn of(&self, sending: Sending) -> f64 {
        f64::from(sending.receivers.max(1))
    }
}

/// The rate r is worth k ln(1 + r/k): the first messages of a second are worth a unit each, the
/// k-th half a unit. Clients whose paths are dear keep more of their rate than by [`PerMessage`],
/// at the price of the sum.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Diminishing {
    /// k: the rate at which a message is worth half a unit, in messages per second; positive.
    pub half_messages_per_s: f64,
}

impl Benefit for Diminishing {
    fn of(&self, sending: Sending) -> f64 {
        let half = self.half_messages_per_s.max(f64::MIN_POSITIVE);
        half / (half + sending.messages_per_s)
    }
}
