//! The headers of data packets and feedback packets (RFC 4654 section 2.2).

use crate::number::{RateCode, RttCode, Stamp};

/// A receiver's number, unique in its session. It may simply be an IP address
/// (RFC 4654 section 2.2.2).
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReceiverId(pub u32);

/// The header of a packet of TFMCC.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// From the sender to the session's channel.
    Data(Data),
    /// From a receiver to the sender.
    Feedback(Feedback),
}

/// The header of a data packet (RFC 4654 section 2.2.1).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Data {
    /// i: the packet's sequence number, modulo 2^32.
    pub sequence: u32,
    /// ts_i: when the packet was sent, on the sender's clock.
    pub sent: Stamp,
    /// fb_nr: the feedback round, modulo 256.
    pub round: u8,
    /// R_max: the maximum of all receivers' round-trip times.
    pub rtt_max: RttCode,
    /// X_supp: receivers with a higher calculated rate suppress their feedback.
    pub suppression: RateCode,
    /// The echo of one receiver's report; `None` before the first report.
    pub echo: Option<Echo>,
}

/// The echo of a report, from which its receiver measures the round-trip time (RFC 4654 section
/// 2.2.1).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Echo {
    /// r: the receiver whose report is echoed.
    pub receiver: ReceiverId,
    /// tr_r': the report's timestamp plus the time that the sender held it, on the receiver's
    /// clock.
    pub sent: Stamp,
    /// is_CLR: whether this receiver is the current limiting receiver.
    pub is_clr: bool,
}

/// The header of a feedback packet (RFC 4654 section 2.2.2).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Feedback {
    /// r: the receiver that reports.
    pub receiver: ReceiverId,
    /// tr_r: when the report was sent, on the receiver's clock.
    pub sent: Stamp,
    /// ts_i': the last data packet's timestamp plus the time since it arrived, on the sender's
    /// clock.
    pub echo: Stamp,
    /// fb_nr: the latest feedback round that the receiver has seen.
    pub round: u8,
    /// X_r: the receiver's desired rate.
    pub rate: RateCode,
    /// have_RTT: whether the receiver has measured its round-trip time.
    pub have_rtt: bool,
    /// have_loss: whether the receiver has seen a loss event.
    pub have_loss: bool,
    /// receiver_leave: the receiver is about to leave and must not limit the rate.
    pub leaving: bool,
}

const _: () = assert!(size_of::<Message>() <= 40, "headers are passed by value");
