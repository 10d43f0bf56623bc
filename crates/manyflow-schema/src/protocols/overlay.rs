//! The parameters of overlays and of overlay sessions.

mod benefit;
mod cost_benefit;
mod layers;
mod order;

pub use benefit::{BenefitEntry, BenefitTable, LayerTable};
pub use cost_benefit::{CostBenefitTable, LawName};
pub use layers::UnitLayerTable;
pub use order::{OrderName, ServiceName};

use std::collections::BTreeMap;

use manyflow_core::ConfigError;
use manyflow_overlay::controller::{Controller, Open};
use manyflow_overlay::cost_benefit::{Benefit, Benefits, CostBenefitConfig, Law};
use manyflow_overlay::tfrc::{LossAverage, Tfrc, TfrcConfig};
use manyflow_overlay::{DaemonId, GroupId, LinkKind, OverlayConfig, PAYLOAD_BYTES_MAX, SlowPolicy};
use manyflow_tcp::{TcpConfig, Variant};
use serde::Deserialize;

use super::{ResponseName, TcpTable, set, set_equation};
use manyflow_model::error::{Fault, Problem};
use manyflow_model::quantity::{Bits, BitsPerSecond, Count, Number, Seconds};

/// `[[overlays]]`
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct OverlayTable {
    /// The name to which sessions refer; `spines/B` is the daemon at B in measures.
    pub name: String,
    /// Nodes and groups of nodes; each node has a daemon.
    pub daemons: Vec<String>,
    /// The links between daemons: a list of pairs such as `["A", "B"]`, or of tables. Those of the
    /// default have weights in proportion to their delays, so that messages take the routes of the
    /// network.
    ///
    /// Default: where a link of the network joins two daemons.
    #[serde(default)]
    pub links: Vec<OverlayLinkEntry>,
    /// Decides when a client's message may enter: `cost-benefit`, `tfrc`, or `none`, with which
    /// only the back-pressure of links delays clients.
    pub controller: ControllerName,
    /// The transport of links: TCP, or datagrams that are repaired link by link. `cost-benefit`
    /// takes its prices from queues, so it needs streams; `tfrc` takes its rates from losses, so it
    /// needs datagrams.
    ///
    /// Default: `streams`; `datagrams` with `tfrc`.
    pub kind: Option<KindName>,
    /// The order in which members deliver the messages of sessions with a `service`: `marks`, that
    /// of docs/order.md; or, to compare with, `sequencer`, a daemon that decides;
    /// `moving-sequencer`, which goes to where most messages come from; or `ring`, the token ring
    /// of Totem, which uses its own datagrams and no `controller`.
    ///
    /// Default: none.
    pub order: Option<OrderName>,
    /// The parameters of the controller `cost-benefit`.
    ///
    /// Default: its defaults.
    #[serde(default)]
    pub cost_benefit: CostBenefitTable,
    /// The gain of a client by its messages under `cost-benefit`, for which it is paid:
    /// docs/scenarios.md#benefit.
    ///
    /// Default: `per-message`.
    pub benefit: Option<BenefitEntry>,
    /// The parameters of the controller `tfrc`.
    ///
    /// Default: its defaults.
    #[serde(default)]
    pub tfrc: TfrcTable,
    /// The parameters of streams: a table like `sessions.tcp`, without `transfer`, `segment` and
    /// `ecn`; each message is a segment.
    ///
    /// Default: its defaults, but `cubic` as `variant`.
    #[serde(default)]
    pub tcp: TcpTable,
    /// The number of messages that may wait for a link; at this number, its daemon stops reading.
    ///
    /// Default: 1000.
    pub queue: Option<Count>,
    /// The number of messages that may wait for a client; at this number, the client counts as
    /// slow.
    ///
    /// Default: 256.
    pub client_buffer: Option<Count>,
    /// The policy for slow members: their senders wait; `drop`: they miss messages; `evict`: their
    /// senders wait, and a member that has not caught up within `slow-deadline` is removed from the
    /// group.
    ///
    /// Default: `block`.
    #[serde(default)]
    pub slow: SlowName,
    /// For `evict`: the time from the first pause of the senders to the removal.
    ///
    /// Default: required with `evict`.
    pub slow_deadline: Option<Seconds>,
}

/// A link of an overlay: two nodes, or a table.
#[derive(Clone, Debug, PartialEq)]
pub struct OverlayLinkEntry(pub OverlayLinkTable);

/// `overlays.links`
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct OverlayLinkTable {
    /// Two nodes with daemons; a group stands for a link to each of its nodes.
    pub between: [String; 2],
    /// The link's share in the length of a path; messages take the shortest path.
    ///
    /// Default: 1.
    pub weight: Option<Count>,
}

/// The controller of an overlay, which decides when a client's message may enter.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ControllerName {
    /// Cost-Benefit: links have prices, and clients have salaries (Amir, Awerbuch, Danilov and
    /// Stanton).
    CostBenefit,
    /// Many-to-many TFRC: receiving daemons report the rates that TCP would have (Anker, Dolev,
    /// Shnayderman and Sukhov).
    Tfrc,
    /// No controller: only the links' back-pressure limits clients.
    None,
}

/// The hop of an overlay's links.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KindName {
    /// Streams: TCP connections.
    Streams,
    /// Datagrams, which each link repairs.
    Datagrams,
}

/// The treatment of members that read too slowly.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SlowName {
    /// The senders wait until the member has read.
    #[default]
    Block,
    /// The member misses messages.
    Drop,
    /// The senders wait for a time. Then the member is evicted.
    Evict,
}

/// `overlays.tfrc`
#[derive(Copy, Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct TfrcTable {
    /// The rate to a daemon that has not reported yet, and the assumed demand of a client that
    /// starts to send.
    ///
    /// Default: `100 kbit/s`.
    pub initial_rate: Option<BitsPerSecond>,
    /// The round-trip time that a receiving daemon assumes until it is informed of one.
    ///
    /// Default: `500 ms`.
    pub initial_rtt: Option<Seconds>,
    /// The weight of the past in the average round-trip time.
    ///
    /// Default: 0.5.
    pub rtt_history: Option<Number>,
    /// The TCP that the equation describes: `reno`, as in the paper, or `cubic`, the larger of
    /// Reno's and CUBIC's average windows.
    ///
    /// Default: `reno`.
    pub response: Option<ResponseName>,
    /// The minimum RTO of that TCP, up to 60 s: for windows of less than three packets, and the
    /// less the larger the window; docs/choices.md#options-of-webrc-that-are-not-in-the-papers.
    ///
    /// Default: `0 s`.
    pub minimum_rto: Option<Seconds>,
    /// Whether repaired copies count towards the rate, which leaves less for new messages.
    ///
    /// Default: true.
    pub count_repairs: Option<bool>,
    /// Whether the lost packet that begins a loss event counts for the interval that it begins;
    /// `false` follows the paper literally and counts only packets that arrived.
    ///
    /// Default: true.
    pub count_losses: Option<bool>,
    /// Q2 of RFC 5348 section 4.5: the rate falls while the round-trip time is above its average,
    /// in which the past has this weight; the RFC recommends 0.9 for it and for `rtt-history`.
    ///
    /// Default: none.
    pub damping_history: Option<Number>,
    /// Whether an interval between loss events includes the packets in the round-trip time of the
    /// event that begins it, as in RFC 5348 section 5.3; the paper ignores them.
    ///
    /// Default: false.
    pub whole_intervals: Option<bool>,
    /// The average of these intervals: `exponential`, as in Eq. (2) of the paper; `intervals`, the
    /// weighted average over the last eight (RFC 5348 section 5.4); `discounted-intervals`, the
    /// same with history discounting (section 5.5).
    ///
    /// Default: `exponential`.
    pub loss_average: Option<LossAverageName>,
    /// For `exponential`: the weight of the past, below 1; Eq. (2) has one half.
    ///
    /// Default: 0.5.
    pub loss_history: Option<Number>,
    /// Whether routers may mark messages over links of datagrams instead of dropping them. A mark
    /// counts as a loss.
    ///
    /// Default: false.
    pub ecn: Option<bool>,
    /// The time between measurements of the demand of local clients.
    ///
    /// Default: `500 ms`.
    pub demand_interval: Option<Seconds>,
    /// The weight of the past in the demand, below 0.5.
    ///
    /// Default: 0.25.
    pub demand_history: Option<Number>,
}

/// The average of the intervals between loss events.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LossAverageName {
    /// An exponential average, as in the paper.
    #[default]
    Exponential,
    /// The weighted average over the last eight intervals (RFC 5348 section 5.4).
    Intervals,
    /// The same with history discounting (RFC 5348 section 5.5).
    DiscountedIntervals,
}

/// `sessions.overlay`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct OverlaySessionTable {
    /// The name of the overlay. Required if there are several.
    ///
    /// Default: the only one.
    pub overlay: Option<String>,
    /// The name of the group.
    ///
    /// Default: the session's name.
    pub group: Option<String>,
    /// The number of sending clients, which are independent; 0 for a session that only receives.
    ///
    /// Default: 1.
    pub clients: Option<Count>,
    /// The length of a message; headers are added.
    ///
    /// Default: `1000 B`.
    pub message: Option<Bits>,
    /// The rate at which each client offers messages.
    ///
    /// Default: as much as it may.
    pub rate: Option<BitsPerSecond>,
    /// The layers of each message, in order: docs/multirate.md. Together they have the length
    /// `message`, to which a table is added, and no byte of a layer is worth more than one before.
    /// Links under the law `live` carry as many of them as the message buys there. They need a
    /// `rate`.
    ///
    /// Default: none.
    #[serde(default)]
    pub layers: Vec<UnitLayerTable>,
    /// Whether messages are sent in their layers; `false` sends them whole, to compare.
    ///
    /// Default: true.
    pub layered: Option<bool>,
    /// The number of messages that each client sends.
    ///
    /// Default: without end.
    pub messages: Option<Count>,
    /// The guarantees of the messages, in an overlay with an `order`: `fifo`, `causal`, `agreed` or
    /// `safe`, as in docs/order.md#promises. All sessions of a group have the same. Members read at
    /// once.
    ///
    /// Default: `agreed`.
    pub service: Option<ServiceName>,
    /// The multiple of other clients' share that the controller gives: `150 %`.
    ///
    /// Default: 1.
    pub priority: Option<Number>,
    /// The gain of the clients by messages to the group: docs/scenarios.md#benefit.
    ///
    /// Default: that of the overlay.
    pub benefit: Option<BenefitEntry>,
    /// The policy for slow members of the group: `block`, `drop`, `evict`.
    ///
    /// Default: that of the overlay.
    pub slow: Option<SlowName>,
    /// For `evict`: the time from the first pause of the senders to the removal.
    ///
    /// Default: required with `evict`.
    pub slow_deadline: Option<Seconds>,
}

/// Returns the treatment of slow members. Ignores a deadline that the treatment does not use, so
/// that a scenario can sweep `slow`.
fn slow_policy(slow: SlowName, deadline: Option<Seconds>) -> Result<SlowPolicy, Fault> {
    match (slow, deadline) {
        (SlowName::Block, _) => Ok(SlowPolicy::Block),
        (SlowName::Drop, _) => Ok(SlowPolicy::Drop),
        (SlowName::Evict, Some(deadline)) => Ok(SlowPolicy::Evict(deadline.duration())),
        (SlowName::Evict, None) => {
            let problem = Problem::Value("`evict` needs a `slow-deadline`".to_owned());
            Err(Fault::at(&["slow"], problem))
        }
    }
}

impl OverlayTable {
    /// Returns the hop of the overlay's links.
    fn kind(&self) -> KindName {
        self.kind.unwrap_or(match self.controller {
            ControllerName::CostBenefit | ControllerName::None => KindName::Streams,
            ControllerName::Tfrc => KindName::Datagrams,
        })
    }

    /// Returns the hop of the overlay's links, with its parameters.
    pub fn link_kind(&self) -> LinkKind {
        match self.kind() {
            KindName::Streams => LinkKind::Streams(TcpConfig {
                variant: self.tcp.variant().unwrap_or(Variant::Cubic),
                ..self.tcp.config()
            }),
            KindName::Datagrams => LinkKind::Datagrams,
        }
    }

    /// Returns the parameters of the daemons.
    pub fn config(&self) -> OverlayConfig {
        let mut config = OverlayConfig {
            slow: slow_policy(self.slow, self.slow_deadline).unwrap_or_default(),
            ..OverlayConfig::default()
        };
        let messages = |count: Count| count.get() as usize;
        set(&mut config.queue_messages, self.queue.map(messages));
        set(
            &mut config.client_messages,
            self.client_buffer.map(messages),
        );
        config
    }

    /// Refuses parameters of TCP that streams do not support.
    fn check_streams(&self) -> Result<(), &'static str> {
        match &self.tcp {
            tcp if tcp.transfer.is_some() => {
                Err("the streams of an overlay take no `transfer`: they would end after it")
            }
            tcp if tcp.control.is_some() => {
                Err("the streams of an overlay take no `control`: set their `variant`")
            }
            tcp if tcp.segment.is_some() => {
                Err("the streams of an overlay take no `segment`: each message is one segment")
            }
            tcp if tcp.ecn == Some(true) => Err("the streams of an overlay do not support `ecn`"),
            _ => Ok(()),
        }
    }

    /// Returns the controller of a daemon.
    ///
    /// # Errors
    /// Returns an error if a parameter is out of its range.
    pub fn controller(
        &self,
        here: DaemonId,
        seed: u64,
        benefits: Benefits,
    ) -> Result<Box<dyn Controller>, ConfigError> {
        Ok(match self.controller {
            ControllerName::CostBenefit => self.law().controller(here, seed, benefits)?,
            ControllerName::Tfrc => {
                Box::new(Tfrc::new(self.tfrc.config(TfrcConfig::default()), here)?)
            }
            ControllerName::None => Box::new(Open),
        })
    }

    /// Returns the benefits of messages, of which some groups have their own.
    pub fn benefits(&self, groups: BTreeMap<GroupId, Benefit>) -> Benefits {
        let others = self.benefit.clone();
        Benefits {
            others: others.map(|entry| entry.0).unwrap_or_default(),
            groups,
        }
    }

    /// Checks a benefit of this overlay or of one of its groups.
    pub fn check_benefit(&self, benefit: Option<&BenefitEntry>) -> Result<(), Fault> {
        let Some(BenefitEntry(benefit)) = benefit else {
            return Ok(());
        };
        let problem = match benefit.check() {
            Ok(()) if self.controller == ControllerName::CostBenefit => return Ok(()),
            Ok(()) => "only the controller `cost-benefit` pays clients by benefits".to_owned(),
            Err(error) => error.to_string(),
        };
        Err(Fault::at(&["benefit"], Problem::Value(problem)))
    }

    /// Returns the law of Cost-Benefit, whose keys have been checked.
    fn law(&self) -> Law {
        let law = self.cost_benefit.law(LawName::Paper);
        law.unwrap_or(Law::Live)
    }

    /// Returns the parameters of the prices of links, if the controller is Cost-Benefit with the
    /// paper's law. Under the live law, a price does not follow from the length of a queue.
    pub fn prices(&self) -> Option<CostBenefitConfig> {
        match (self.controller, self.law()) {
            (ControllerName::CostBenefit, Law::Paper(config)) => Some(config),
            _ => None,
        }
    }

    /// Checks that the parameters are compatible.
    pub fn check(&self) -> Result<(), Fault> {
        let refuse = |key: &str, message: &str| {
            let problem = Problem::Value(message.to_owned());
            Err(Fault::at(&[key], problem))
        };
        match (self.controller, self.kind()) {
            (ControllerName::CostBenefit | ControllerName::Tfrc, _)
                if self.order == Some(OrderName::Ring) =>
            {
                refuse(
                    "controller",
                    "a `ring` has flow control of its own: use `none`",
                )
            }
            (ControllerName::CostBenefit, KindName::Datagrams) => refuse(
                "kind",
                "`cost-benefit` needs `streams`: its prices depend on the lengths of queues, and datagrams do not fill any",
            ),
            (ControllerName::Tfrc, KindName::Streams) => refuse(
                "kind",
                "`tfrc` needs `datagrams`: its rates depend on losses, and streams never lose a message",
            ),
            _ => Ok(()),
        }?;
        slow_policy(self.slow, self.slow_deadline)?;
        if let Err(message) = self.cost_benefit.law(LawName::Paper) {
            refuse("cost-benefit", &message)?;
        }
        self.tfrc.check().map_err(|fault| fault.within("tfrc"))?;
        self.check_streams()
            .or_else(|message| refuse("tcp", message))?;
        self.tcp.check().map_err(|fault| fault.within("tcp"))?;
        self.config().check().map_err(Fault::value)?;
        self.check_benefit(self.benefit.as_ref())?;
        let controller = self.controller(DaemonId(0), 0, Benefits::default());
        controller.map(|_| ()).map_err(Fault::value)
    }
}

impl TfrcTable {
    /// Returns the parameters, with the values of `defaults` for those that are not given.
    pub fn config(self, defaults: TfrcConfig) -> TfrcConfig {
        let mut config = defaults;
        set(
            &mut config.initial_rate,
            self.initial_rate.map(BitsPerSecond::rate),
        );
        let times = [
            (&mut config.initial_rtt, self.initial_rtt),
            (&mut config.demand_interval, self.demand_interval),
        ];
        for (time, given) in times {
            set(time, given.map(Seconds::duration));
        }
        let shares = [
            (&mut config.rtt_history, self.rtt_history),
            (&mut config.demand_history, self.demand_history),
        ];
        for (share, given) in shares {
            set(share, given.map(|number| number.0));
        }
        set_equation(&mut config.equation, self.response, self.minimum_rto);
        if let Some(history) = self.damping_history {
            config.damping_history = Some(history.0);
        }
        set(&mut config.loss_average, self.loss_average());
        set(&mut config.whole_intervals, self.whole_intervals);
        set(&mut config.ecn, self.ecn);
        set(&mut config.count_repairs, self.count_repairs);
        set(&mut config.count_losses, self.count_losses);
        config
    }
}

impl TfrcTable {
    /// Refuses a weight of the past for an average that has none.
    fn check(self) -> Result<(), Fault> {
        let is_other = self
            .loss_average
            .is_some_and(|name| name != LossAverageName::Exponential);
        if is_other && self.loss_history.is_some() {
            let message = "only the `exponential` average has a `loss-history`".to_owned();
            return Err(Fault::at(&["loss-history"], Problem::Value(message)));
        }
        Ok(())
    }

    /// Returns the average of the intervals, if the table gives one or its weight.
    fn loss_average(self) -> Option<LossAverage> {
        match (self.loss_average, self.loss_history) {
            (None, None) => None,
            (None | Some(LossAverageName::Exponential), history) => {
                Some(history.map_or_else(LossAverage::default, |history| {
                    LossAverage::Exponential { history: history.0 }
                }))
            }
            (Some(LossAverageName::Intervals), _) => {
                Some(LossAverage::Intervals { discounts: false })
            }
            (Some(LossAverageName::DiscountedIntervals), _) => {
                Some(LossAverage::Intervals { discounts: true })
            }
        }
    }
}

impl OverlaySessionTable {
    /// Returns the number of sending clients.
    pub fn clients(&self) -> u32 {
        self.clients.map_or(1, Count::get)
    }

    /// Returns the size of a message in bytes.
    pub fn message_bytes(&self) -> u64 {
        self.message.map_or(1000, Bits::bytes)
    }

    /// Returns the share of each client, in percent of the share of other clients.
    pub fn priority_percent(&self) -> f64 {
        self.priority
            .map_or(100.0, |priority| (priority.0 * 100.0).round())
    }

    /// Returns the treatment of slow members, if the session has its own.
    pub fn slow_policy(&self) -> Option<SlowPolicy> {
        slow_policy(self.slow?, self.slow_deadline).ok()
    }

    /// Checks that the parameters are in their ranges.
    pub fn check(&self) -> Result<(), Fault> {
        let refuse = |key: &str, message: &str| {
            let problem = Problem::Value(message.to_owned());
            Err(Fault::at(&[key], problem))
        };
        slow_policy(self.slow.unwrap_or_default(), self.slow_deadline)?;
        self.check_layers()
            .or_else(|message| refuse("layers", &message))?;
        match () {
            _ if !(1..=u64::from(PAYLOAD_BYTES_MAX)).contains(&self.message_bytes()) => {
                let message = format!("a message can have 1 to {PAYLOAD_BYTES_MAX} bytes");
                refuse("message", &message)
            }
            _ if !(1.0..=65_535.0).contains(&self.priority_percent()) => {
                refuse("priority", "a priority has to be from 1 % to 65,535 %")
            }
            _ if self.rate.is_some_and(|rate| rate.rate().bits_per_s() == 0) => {
                refuse("rate", "a rate has to be at least 1 bit/s")
            }
            _ if self.clients() > CLIENTS_MAX => {
                refuse("clients", "at most 100,000 clients are possible")
            }
            _ => Ok(()),
        }
    }
}

/// The maximum number of sending clients of a session. More are a mistake.
const CLIENTS_MAX: u32 = 100_000;
