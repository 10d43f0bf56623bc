//! What a link is like.

use core::time::Duration;

use crate::units::Rate;
use crate::xcp::XcpConfig;

/// What a link is like.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// The transmitter's rate; `None` takes no time.
    pub rate: Option<Rate>,
    /// Propagation delay.
    pub delay: Duration,
    /// What the queue holds at most, the packet in transmission not counted.
    pub queue: QueueLimit,
    /// Active queue management; `None` only drops what the queue cannot hold.
    pub red: Option<RedConfig>,
    /// The link is an XCP router's: it needs a rate.
    pub xcp: Option<XcpConfig>,
    /// Packets lost on the wire.
    pub loss: LossModel,
    /// The probability, 0 to 1, that a packet arrives twice.
    pub duplication: f64,
    /// A packet is delayed further by up to this, uniformly.
    pub jitter: Duration,
    /// Whether a packet that is delayed more may be overtaken by one that is delayed less.
    pub reorder: bool,
}

impl LinkConfig {
    /// Whether marks depend on who has subscribed to what.
    pub fn marks_by_group(&self) -> bool {
        self.red.is_some_and(|red| red.marking == Marking::TopGroup)
    }
}

impl Default for LinkConfig {
    /// A wire without limits, delay or faults, which reorders if it is given jitter.
    fn default() -> LinkConfig {
        LinkConfig {
            rate: None,
            delay: Duration::ZERO,
            queue: QueueLimit::Unlimited,
            red: None,
            xcp: None,
            loss: LossModel::None,
            duplication: 0.0,
            jitter: Duration::ZERO,
            reorder: true,
        }
    }
}

/// How much a queue holds.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum QueueLimit {
    /// Whatever comes.
    Unlimited,
    /// This many packets.
    Packets(u32),
    /// This many bytes.
    Bytes(u64),
}

/// How packets get lost on a wire.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub enum LossModel {
    /// None do.
    #[default]
    None,
    /// Each with this probability, 0 to 1, whatever happens to the others.
    Bernoulli(f64),
    /// In bursts (Gilbert 1960, Elliott 1963): a chain of two states, which takes a step for each packet.
    GilbertElliott {
        /// The probability of a step from good to bad.
        to_bad: f64,
        /// The probability of a step from bad to good.
        to_good: f64,
        /// The probability of loss in the good state.
        loss_good: f64,
        /// The probability of loss in the bad state.
        loss_bad: f64,
    },
}

/// Random early detection (Floyd and Jacobson 1993), with the gentle slope between one and two times the maximum.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct RedConfig {
    /// The average queue, in packets, below which nothing happens.
    pub minimum_packets: f64,
    /// The average queue at which the probability reaches `maximum_probability`.
    pub maximum_packets: f64,
    /// max_p, 0 to 1.
    pub maximum_probability: f64,
    /// w_q: the weight of the present queue in its average, 0 to 1.
    pub weight: f64,
    /// Whether it marks packets that know ECN, instead of dropping them, up to the maximum (RFC 3168 section 7).
    pub ecn: bool,
    /// A typical packet's length: an idle queue's average decays by one step for each that could have been sent.
    pub mean_packet_bytes: u32,
    /// Which packets it marks, of those that know ECN.
    pub marking: Marking,
    /// What it does to packets that know ECN while the average is above the maximum.
    pub overload: Overload,
    /// How packets are chosen, and what counts as queue.
    pub variant: RedVariant,
}

/// Which description of RED is followed.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum RedVariant {
    /// Floyd and Jacobson 1993: the gap between two packets that are dropped or marked is uniform up to the inverse of the
    /// probability, even where the queue has become empty since. The packet in transmission counts as queued.
    #[default]
    Paper,
    /// The `Queue/RED` of ns-2 with its defaults `wait_` and `bytes_`: that gap is uniform from the inverse of the probability
    /// to twice as much, in bytes over `mean_packet_bytes`; a packet is dropped or marked only where more than one waits
    /// before it; packets that find the queue full count, too. The packet in transmission does not count as queued.
    Ns2,
}

/// Which of the packets that know ECN are marked.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Marking {
    /// All.
    #[default]
    All,
    /// Of a layered session those of its top group that is subscribed over this link: SIM's priority marking (section III-A1
    /// of its paper). Receivers with fewer groups hear nothing of a congestion that the top group causes.
    TopGroup,
}

/// What happens while the average is above the maximum to packets that would be marked below it.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Overload {
    /// They are dropped, on the gentle slope (RFC 3168 section 7).
    #[default]
    Drop,
    /// Each is marked; what is too much is left to the full queue.
    Mark,
}

impl Default for RedConfig {
    /// 5 and 15 packets, 0.1, 0.002, marking up to the maximum, 1000 bytes: the recommendations of RED's authors.
    fn default() -> RedConfig {
        RedConfig {
            minimum_packets: 5.0,
            maximum_packets: 15.0,
            maximum_probability: 0.1,
            weight: 0.002,
            ecn: true,
            mean_packet_bytes: 1000,
            marking: Marking::All,
            overload: Overload::Drop,
            variant: RedVariant::Paper,
        }
    }
}
