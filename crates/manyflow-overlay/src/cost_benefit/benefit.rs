//! The benefit of a client's messages relative to others, which scales the client's salary (section
//! IV-B.2).

use core::fmt;

/// The circumstances of a message on which its benefit may depend.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Sending {
    /// The number of members of the message's group, at all daemons.
    pub receivers: u32,
    /// The recent rate of messages that the client has bought, per second: an average over about
    /// [ten seconds](super::RATE_AVERAGE).
    pub messages_per_s: f64,
}

/// The benefit of one more message. 1 is the benefit of a message under [`PerMessage`]. Clients are
/// paid in proportion to it.
pub trait Benefit: fmt::Debug + Send {
    /// Returns the benefit, which is positive. The controller limits it to the range 1/1000 to
    /// 1000.
    fn of(&self, sending: Sending) -> f64;
}

/// One unit for each message that is sent, so that the network carries as many messages as
/// possible. This is the paper's choice.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct PerMessage;

impl Benefit for PerMessage {
    fn of(&self, _sending: Sending) -> f64 {
        1.0
    }
}

/// One unit for each member that receives the message, which favours senders to large groups.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct PerReceiver;

impl Benefit for PerReceiver {
    fn of(&self, sending: Sending) -> f64 {
        f64::from(sending.receivers.max(1))
    }
}

/// The benefit of a rate r is k ln(1 + r/k): the first messages of a second are worth one unit
/// each, the k-th is worth half a unit. Clients with expensive paths keep more of their rate than
/// under [`PerMessage`], at the expense of the total.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Diminishing {
    /// k: the rate in messages per second at which a message is worth half a unit; positive.
    pub half_messages_per_s: f64,
}

impl Benefit for Diminishing {
    fn of(&self, sending: Sending) -> f64 {
        let half = self.half_messages_per_s.max(f64::MIN_POSITIVE);
        half / (half + sending.messages_per_s)
    }
}
