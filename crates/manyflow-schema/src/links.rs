//! `[[links]]`: the joined nodes, and the properties of the links.

use manyflow_core::link::{
    Aqm, LinkConfig, LossModel, Marking, Overload, QueueLimit, RedConfig, RedVariant,
};
use serde::Deserialize;

use super::queues::{self, CakeTable, CoDelTable, DualPi2Table, FqCoDelTable, PieTable};
use super::rates::{LinkJitter, LinkRate};
use manyflow_core::xcp::XcpConfig;
use manyflow_model::quantity::{Bits, Count, Dimension, Number, Probability, Quantity, Seconds};

/// Defines two tables that share the properties of a link. Serde cannot flatten one table into
/// another and still refuse unknown keys.
macro_rules! link_tables {
    ($(#[$properties_doc:meta])* $properties:ident; $(#[$table_doc:meta])* $table:ident { $($own:tt)* };
     $($(#[$doc:meta])* $field:ident: $type:ty,)*) => {
        $(#[$properties_doc])*
        #[derive(Clone, Debug, Default, PartialEq, Deserialize)]
        #[serde(rename_all = "kebab-case", deny_unknown_fields)]
        pub struct $properties { $($(#[$doc])* pub $field: Option<$type>,)* }

        $(#[$table_doc])*
        #[derive(Clone, Debug, Deserialize)]
        #[serde(rename_all = "kebab-case", deny_unknown_fields)]
        pub struct $table { $($own)* $($(#[$doc])* pub $field: Option<$type>,)* }

        impl $table {
            /// Returns the properties of the links from the first node to the second.
            pub fn properties(&self) -> $properties {
                $properties { $($field: Clone::clone(&self.$field),)* }
            }
        }
    };
}

link_tables! {
    /// The properties of a link. A property that is not given keeps its value.
    LinkProperties;
    /// `[[links]]`
    LinkTable {
        /// A name for all links of the entry; each is also called `A-B` after its ends.
        ///
        /// Default: none.
        pub name: Option<String>,
        /// The number of entries like this, see docs/scenarios.md#many-from-one.
        ///
        /// Default: 1.
        pub count: Option<Count>,
        /// Two nodes; a group stands for a link to each of its nodes.
        ///
        /// Default: one of the three.
        pub between: Option<[String; 2]>,
        /// Two or more nodes of a chain, each joined to the next. A group stands for its nodes in
        /// order.
        ///
        /// Default: one of the three.
        pub chain: Option<Vec<String>>,
        /// The links of a tree, dumbbell or random graph.
        ///
        /// Default: one of the three.
        pub all_of: Option<String>,
        /// Whether the link has one direction only.
        #[serde(default)]
        pub one_way: bool,
        /// A table of the properties that differ on the way back.
        ///
        /// Default: as the way there.
        #[serde(default)]
        pub back: LinkProperties,
    };
    /// The rate, or a table of a rate that varies by itself: a trace, a shape or a token bucket.
    /// Without a rate, the link transmits packets instantly.
    ///
    /// Default: no limit.
    rate: LinkRate,
    /// The one-way propagation delay.
    ///
    /// Default: `0 s`.
    delay: Seconds,
    /// The capacity of the queue. `40 packets`, `64 kB`, or a formula such as `2 Mbit/s * 100 ms`;
    /// the packet in transmission is not counted.
    ///
    /// Default: no limit.
    queue: QueueSize,
    /// The probability that a packet is lost on the wire.
    ///
    /// Default: 0.
    loss: Probability,
    /// The parameters of loss in bursts, instead of `loss`.
    ///
    /// Default: none.
    bursts: BurstTable,
    /// The probability that a packet arrives twice.
    ///
    /// Default: 0.
    duplication: Probability,
    /// The maximum of an additional delay, drawn uniformly for each packet; or a table of another
    /// distribution.
    ///
    /// Default: `0 s`.
    jitter: LinkJitter,
    /// Whether packets overtake each other by jitter, or when the delay of the link falls.
    ///
    /// Default: true.
    reorder: bool,
    /// The parameters of random early detection.
    ///
    /// Default: none.
    red: RedTable,
    /// The parameters of CoDel; `{}` with the defaults. A link takes one of `red`, `codel`,
    /// `fq-codel`, `cake`, `pie`, `dualpi2` and `xcp`.
    ///
    /// Default: none.
    codel: CoDelTable,
    /// The parameters of FQ-CoDel; `{}` with the defaults.
    ///
    /// Default: none.
    fq_codel: FqCoDelTable,
    /// The parameters of CAKE; `{}` with the defaults.
    ///
    /// Default: none.
    cake: CakeTable,
    /// The parameters of PIE; `{}` with the defaults.
    ///
    /// Default: none.
    pie: PieTable,
    /// The parameters of DualPI2; `{}` with the defaults.
    ///
    /// Default: none.
    dualpi2: DualPi2Table,
    /// The link is an XCP router's, which needs a `rate`; `{}` with the defaults.
    ///
    /// Default: none.
    xcp: XcpTable,
}

/// The capacity of a queue.
#[derive(Copy, Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Quantity")]
pub enum QueueSize {
    /// A number of packets.
    Packets(u32),
    /// A number of bytes.
    Bytes(u64),
}

/// `bursts`: loss in two states (Gilbert 1960, Elliott 1963).
#[derive(Copy, Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct BurstTable {
    /// The probability of a step from the good to the bad state, for each packet.
    pub to_bad: Probability,
    /// The probability of a step from the bad to the good state, for each packet.
    pub to_good: Probability,
    /// The probability of loss in the good state.
    ///
    /// Default: 0.
    #[serde(default)]
    pub loss_good: Probability,
    /// The probability of loss in the bad state.
    ///
    /// Default: 1.
    #[serde(default = "certain")]
    pub loss_bad: Probability,
}

fn certain() -> Probability {
    Probability(1.0)
}

/// `red`: random early detection (Floyd and Jacobson 1993).
#[derive(Copy, Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct RedTable {
    /// The average queue in packets below which no packet is dropped or marked.
    ///
    /// Default: 5.
    pub minimum: Option<Number>,
    /// The average queue in packets at which the probability reaches `probability`.
    ///
    /// Default: 15.
    pub maximum: Option<Number>,
    /// The probability at the maximum, max_p.
    ///
    /// Default: 0.1.
    pub probability: Option<Probability>,
    /// The weight of the current queue in its average.
    ///
    /// Default: 0.002.
    pub weight: Option<Probability>,
    /// Whether packets that support ECN are marked instead of dropped.
    ///
    /// Default: true.
    pub ecn: Option<bool>,
    /// The size of a typical packet, for the decay while the queue is idle.
    ///
    /// Default: `1000 B`.
    pub packet_size: Option<Bits>,
    /// The packets that may be marked. `top-group`: marks only packets of the top group of each
    /// layered session that is joined over the link. In the emulator, the groups of a host that
    /// programs join are such a session, ranked in the order in which each was first joined.
    ///
    /// Default: `all`.
    #[serde(default)]
    pub marking: MarkingName,
    /// The treatment of packets that support ECN while the average is above the maximum. `mark`:
    /// above the maximum all packets that support ECN are marked, and only a full queue drops them.
    ///
    /// Default: `drop`.
    #[serde(default)]
    pub above_maximum: AboveMaximum,
    /// The description of RED that the queue follows. `ns-2`: behaves as ns-2's `Queue/RED`, with
    /// `wait_` and `bytes_`. `paper`: the description of 1993; see docs/choices.md#red.
    ///
    /// Default: `ns-2`.
    #[serde(default)]
    pub variant: RedVariantName,
}

/// A description of RED.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RedVariantName {
    /// The description of Floyd and Jacobson 1993.
    Paper,
    /// The implementation of ns-2, with its defaults.
    #[default]
    #[serde(rename = "ns-2")]
    Ns2,
}

/// The choice of the packets that may be marked, among those that support ECN.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MarkingName {
    /// Marks all packets.
    #[default]
    All,
    /// In a layered session, marks only the packets of the top subscribed group.
    TopGroup,
}

/// The treatment of packets that support ECN while the average is above the maximum.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AboveMaximum {
    /// Drops the packets.
    #[default]
    Drop,
    /// Marks the packets.
    Mark,
}

/// `xcp`: the constants of an XCP router (Katabi, Handley and Rohrs 2002).
#[derive(Copy, Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct XcpTable {
    /// Whether the link is an XCP router's. `false` removes the router from the link: a change
    /// `set.xcp.answers = false` ends its answers in the middle of a run.
    ///
    /// Default: true.
    pub answers: Option<bool>,
    /// The share of the spare capacity that is given out in each interval.
    ///
    /// Default: 0.4.
    pub alpha: Option<Probability>,
    /// The share of the persistent queue that is taken back in each interval.
    ///
    /// Default: 0.226.
    pub beta: Option<Probability>,
    /// The share of the traffic that is moved between flows in each interval.
    ///
    /// Default: 0.1.
    pub gamma: Option<Probability>,
    /// The interval until a packet states a round-trip time; afterwards the interval is the mean of
    /// the stated round-trip times.
    ///
    /// Default: `50 ms`.
    pub initial_interval: Option<Seconds>,
}

impl TryFrom<Quantity> for QueueSize {
    type Error = String;

    fn try_from(quantity: Quantity) -> Result<QueueSize, String> {
        let value = quantity.value;
        let whole = (0.0..=4e9).contains(&value);
        match quantity.dimension {
            _ if !whole => Err(format!("{quantity} is out of range for a queue")),
            Dimension::PACKETS => Ok(QueueSize::Packets(value.round() as u32)),
            Dimension::SIZE => Ok(QueueSize::Bytes((value / 8.0).round() as u64)),
            other => Err(format!(
                "this is {}, where a queue such as `40 packets`, `64 kB` or `2 Mbit/s * 100 ms` is expected",
                other.described()
            )),
        }
    }
}

impl QueueSize {
    fn limit(self) -> QueueLimit {
        match self {
            QueueSize::Packets(packets) => QueueLimit::Packets(packets),
            QueueSize::Bytes(bytes) => QueueLimit::Bytes(bytes),
        }
    }
}

impl RedTable {
    fn config(self) -> RedConfig {
        let default = RedConfig::default();
        let number = |given: Option<f64>, otherwise| given.unwrap_or(otherwise);
        RedConfig {
            minimum_packets: number(self.minimum.map(|x| x.0), default.minimum_packets),
            maximum_packets: number(self.maximum.map(|x| x.0), default.maximum_packets),
            maximum_probability: number(self.probability.map(|x| x.0), default.maximum_probability),
            weight: number(self.weight.map(|x| x.0), default.weight),
            ecn: self.ecn.unwrap_or(default.ecn),
            mean_packet_bytes: self
                .packet_size
                .map_or(default.mean_packet_bytes, |size| size.bytes() as u32),
            marking: match self.marking {
                MarkingName::All => Marking::All,
                MarkingName::TopGroup => Marking::TopGroup,
            },
            overload: match self.above_maximum {
                AboveMaximum::Drop => Overload::Drop,
                AboveMaximum::Mark => Overload::Mark,
            },
            variant: match self.variant {
                RedVariantName::Paper => RedVariant::Paper,
                RedVariantName::Ns2 => RedVariant::Ns2,
            },
        }
    }
}

impl XcpTable {
    fn config(self) -> XcpConfig {
        let default = XcpConfig::default();
        let share = |given: Option<Probability>, otherwise| given.map_or(otherwise, |x| x.0);
        XcpConfig {
            alpha: share(self.alpha, default.alpha),
            beta: share(self.beta, default.beta),
            gamma: share(self.gamma, default.gamma),
            initial_interval: self
                .initial_interval
                .map_or(default.initial_interval, Seconds::duration),
        }
    }
}

impl LinkProperties {
    /// Returns the queues that are given.
    fn aqms(&self) -> impl Iterator<Item = Aqm> {
        let queues = [
            self.codel.map(CoDelTable::aqm),
            self.fq_codel.map(FqCoDelTable::aqm),
            self.cake.map(CakeTable::aqm),
            self.pie.map(PieTable::aqm),
            self.dualpi2.map(DualPi2Table::aqm),
        ];
        queues.into_iter().flatten()
    }

    /// Checks that no two queues are given.
    ///
    /// # Errors
    /// Returns the reason if there are two.
    pub fn check(&self) -> Result<(), &'static str> {
        match self.aqms().count() {
            0 | 1 => Ok(()),
            _ => Err(ONE_QUEUE),
        }
    }

    /// Sets the properties that are given, and keeps the others.
    pub fn apply(&self, config: &mut LinkConfig) {
        config.delay = self.delay.map_or(config.delay, Seconds::duration);
        if let Some(jitter) = self.jitter {
            jitter.apply(config);
        }
        if let Some(rate) = &self.rate {
            rate.apply(config);
        }
        config.queue = self.queue.map_or(config.queue, QueueSize::limit);
        config.red = self.red.map(RedTable::config).or(config.red.take());
        config.aqm = self.aqms().next().or(config.aqm);
        if let Some(xcp) = self.xcp {
            config.xcp = xcp.answers.unwrap_or(true).then(|| xcp.config());
        }
        config.duplication = self.duplication.map_or(config.duplication, |p| p.0);
        config.reorder = self.reorder.unwrap_or(config.reorder);
        match (self.loss, self.bursts) {
            (_, Some(bursts)) => config.loss = bursts.model(),
            (Some(loss), None) if loss.0 == 0.0 => config.loss = LossModel::None,
            (Some(loss), None) => config.loss = LossModel::Bernoulli(loss.0),
            (None, None) => {}
        }
    }
}

/// The error of a link with two queues.
const ONE_QUEUE: &str =
    "a link takes one of `red`, `codel`, `fq-codel`, `cake`, `pie` and `dualpi2`";

/// Checks that the properties of a link are compatible.
///
/// # Errors
/// Returns the reason if they are not.
pub fn check(config: &LinkConfig) -> Result<(), &'static str> {
    if config.rate.is_some_and(|rate| rate.bits_per_s() == 0) {
        return Err(
            "a link of 0 bit/s carries no packet: cut it with `[[at]]`, or leave out `rate`",
        );
    }
    if let Some(aqm) = &config.aqm {
        queues::check(aqm)?;
        if config.red.is_some() {
            return Err(ONE_QUEUE);
        }
        if config.xcp.is_some() {
            return Err("a link takes either active queue management or `xcp`");
        }
    }
    match config.xcp {
        Some(_) if config.rate.is_none() => {
            Err("an XCP router allocates the `rate` of its link: give one")
        }
        Some(_) if config.red.is_some() => {
            Err("a link takes either `red` or `xcp`: both control the same queue")
        }
        _ => Ok(()),
    }
}

impl BurstTable {
    fn model(self) -> LossModel {
        LossModel::GilbertElliott {
            to_bad: self.to_bad.0,
            to_good: self.to_good.0,
            loss_good: self.loss_good.0,
            loss_bad: self.loss_bad.0,
        }
    }
}
