//! The configuration of a link.

use core::time::Duration;

use super::{Aqm, Pace};
use crate::units::Rate;
use crate::xcp::XcpConfig;

/// The configuration of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// The transmitter's rate, or its average rate if the link has a `pace`. With neither,
    /// transmission takes no time.
    pub rate: Option<Rate>,
    /// How the rate varies by itself. It decides when packets leave, instead of `rate`.
    pub pace: Option<Pace>,
    /// Propagation delay.
    pub delay: Duration,
    /// The limit of the queue, which the packet in transmission does not count towards.
    pub queue: QueueLimit,
    /// Active queue management. With `None` the queue only drops packets that it has no room for.
    pub red: Option<RedConfig>,
    /// Active queue management with a queue of its own, instead of RED and XCP.
    pub aqm: Option<Aqm>,
    /// The constants of an XCP router, which needs a rate.
    pub xcp: Option<XcpConfig>,
    /// How packets are lost on the wire.
    pub loss: LossModel,
    /// The probability, 0 to 1, that a packet arrives twice.
    pub duplication: f64,
    /// The scale of a further delay that is drawn for each packet: its maximum if the distribution
    /// is uniform, otherwise its mean.
    pub jitter: Duration,
    /// The distribution of the further delay.
    pub jitter_distribution: JitterDistribution,
    /// Whether packets can overtake each other because of jitter.
    pub reorder: bool,
}

impl LinkConfig {
    /// Sets a rate that varies by itself, and its average.
    pub fn set_pace(&mut self, pace: Pace) {
        self.rate = Some(pace.rate());
        self.pace = Some(pace);
    }

    /// Returns whether marks depend on the groups that are subscribed over the link.
    pub fn marks_by_group(&self) -> bool {
        self.red.is_some_and(|red| red.marking == Marking::TopGroup)
    }
}

impl Default for LinkConfig {
    /// A link without rate, limit, delay or faults, whose jitter would reorder packets.
    fn default() -> LinkConfig {
        LinkConfig {
            rate: None,
            pace: None,
            delay: Duration::ZERO,
            queue: QueueLimit::Unlimited,
            red: None,
            aqm: None,
            xcp: None,
            loss: LossModel::None,
            duplication: 0.0,
            jitter: Duration::ZERO,
            jitter_distribution: JitterDistribution::Uniform,
            reorder: true,
        }
    }
}

/// The limit of a queue.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueueLimit {
    /// The queue takes every packet.
    Unlimited,
    /// The queue holds this many packets.
    Packets(u32),
    /// The queue holds this many bytes.
    Bytes(u64),
}

/// The distribution of jitter.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum JitterDistribution {
    /// Uniform from 0 to the jitter.
    #[default]
    Uniform,
    /// Normal with the jitter as its mean, without values below 0, which become 0.
    Normal {
        /// The standard deviation.
        deviation: Duration,
    },
    /// Pareto's second kind (Lomax), which begins at 0, with the jitter as its mean. A large value
    /// is rare, but not as rare as with other distributions.
    Pareto {
        /// Pareto's index, above 1. The lower it is, the more frequent are large values.
        index: f64,
    },
}

/// How packets are lost on a wire.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum LossModel {
    /// No packet is lost.
    #[default]
    None,
    /// Each packet is lost with this probability, 0 to 1, independently of the others.
    Bernoulli(f64),
    /// Packets are lost in bursts (Gilbert 1960, Elliott 1963): a Markov chain with two states
    /// takes a step for each packet.
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

/// Random early detection (Floyd and Jacobson 1993), with the gentle slope between one and two
/// times the maximum.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct RedConfig {
    /// The average queue, in packets, below which nothing happens.
    pub minimum_packets: f64,
    /// The average queue at which the probability reaches `maximum_probability`.
    pub maximum_packets: f64,
    /// max_p, the probability at the maximum, 0 to 1.
    pub maximum_probability: f64,
    /// w_q: the weight of the present queue in its average, 0 to 1.
    pub weight: f64,
    /// Whether packets that support ECN are marked instead of dropped, up to the maximum (RFC 3168
    /// section 7).
    pub ecn: bool,
    /// The length of a typical packet. While the queue is empty, its average decays by one step for
    /// each such packet that could have been sent.
    pub mean_packet_bytes: u32,
    /// Which of the packets that support ECN are marked.
    pub marking: Marking,
    /// The treatment of packets that support ECN while the average is above the maximum.
    pub overload: Overload,
    /// How packets are chosen, and which of them count as queued.
    pub variant: RedVariant,
}

/// The description of RED that a queue follows.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RedVariant {
    /// The algorithm of Floyd and Jacobson 1993. The gap between two packets that are dropped or
    /// marked is uniform up to the inverse of the probability, even if the queue has become empty
    /// since. The packet in transmission counts as queued.
    Paper,
    /// The `Queue/RED` of ns-2 with its defaults `wait_` and `bytes_`. The gap is uniform from the
    /// inverse of the probability to twice that, measured in bytes over `mean_packet_bytes`. A
    /// packet is dropped or marked only if more than one packet waits before it. Packets that find
    /// the queue full enter the average, too. The packet in transmission does not count as queued.
    #[default]
    Ns2,
}

/// Which of the packets that support ECN are marked.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Marking {
    /// Every packet is marked.
    #[default]
    All,
    /// In a layered session, only packets of the top group that is subscribed over this link are
    /// marked: SIM's priority marking (section III-A1 of its paper). Receivers with fewer groups
    /// see nothing of the congestion that the top group causes.
    TopGroup,
}

/// The treatment, while the average is above the maximum, of packets that would be marked below it.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overload {
    /// Packets are dropped, on the gentle slope (RFC 3168 section 7).
    #[default]
    Drop,
    /// Every packet is marked. Packets are dropped only when the queue is full.
    Mark,
}

impl Default for RedConfig {
    /// The recommendations of RED's authors: 5 and 15 packets, 0.1, 0.002, marks up to the maximum,
    /// packets of 1000 bytes.
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
            variant: RedVariant::Ns2,
        }
    }
}
