//! The parameters of overlays, and of the sessions in them.

mod events;
mod session;
mod wire;

pub(crate) use session::{Overlays, add_daemons, endpoint, slow_groups};

use manyflow_core::ConfigError;
use manyflow_overlay::controller::{Controller, Open};
use manyflow_overlay::cost_benefit::{CostBenefit, CostBenefitConfig};
use manyflow_overlay::tfrc::{Tfrc, TfrcConfig};
use manyflow_overlay::{DaemonId, LinkKind, OverlayConfig, PAYLOAD_BYTES_MAX, SlowPolicy};
use serde::Deserialize;

use super::{TcpTable, set};
use crate::error::{Fault, Problem};
use crate::quantity::{Bits, BitsPerSecond, Count, Number, Seconds};

/// `[[overlays]]`
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct OverlayTable {
    /// Its name in sessions.
    pub name: String,
    /// The nodes and groups of nodes that have a daemon.
    pub daemons: Vec<String>,
    /// Which daemons are joined; by default those that a network link joins.
    #[serde(default)]
    pub links: Vec<OverlayLinkEntry>,
    /// What decides when a client's message may enter.
    pub controller: ControllerName,
    /// What the links are made of; by default what the controller needs.
    pub kind: Option<KindName>,
    /// The parameters of the controller `cost-benefit`.
    #[serde(default)]
    pub cost_benefit: CostBenefitTable,
    /// The parameters of the controller `tfrc`.
    #[serde(default)]
    pub tfrc: TfrcTable,
    /// The parameters of streams.
    #[serde(default)]
    pub tcp: TcpTable,
    /// Messages that wait for a link before its daemon reads no more.
    pub queue: Option<Count>,
    /// Messages that wait for a client before it counts as slow.
    pub client_buffer: Option<Count>,
    /// What is done about slow members.
    #[serde(default)]
    pub slow: SlowName,
    /// For `evict`: for how long their senders wait.
    pub slow_deadline: Option<Seconds>,
}

/// A link of an overlay: two nodes, or a table.
#[derive(Clone, Debug, PartialEq)]
pub struct OverlayLinkEntry(pub OverlayLinkTable);

/// `overlays.links`
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct OverlayLinkTable {
    /// Two nodes; a group stands for a link to each of its nodes.
    pub between: [String; 2],
    /// What it adds to the length of a path.
    pub weight: Option<Count>,
}

/// What decides when a client's message may enter an overlay.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ControllerName {
    /// Links have prices, clients have salaries (Amir, Awerbuch, Danilov and Stanton).
    CostBenefit,
    /// Receiving daemons report the rates that TCP would have (Anker, Dolev, Shnayderman and
    /// Sukhov).
    Tfrc,
    /// The links' back-pressure alone.
    None,
}

/// What an overlay's links are made of.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KindName {
    /// TCP.
    Streams,
    /// Datagrams that are repaired link by link.
    Datagrams,
}

/// What is done about members that read too slowly.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SlowName {
    /// Their senders wait.
    #[default]
    Block,
    /// They miss messages.
    Drop,
    /// Their senders wait for a time; then they are members no more.
    Evict,
}

/// `overlays.cost-benefit`
#[derive(Copy, Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct CostBenefitTable {
    /// What a client is paid at a time, in dollars.
    pub salary: Option<Number>,
    /// S.
    pub savings: Option<Number>,
    /// M, in messages.
    pub soft_limit: Option<Number>,
    /// What each message costs besides its links, in dollars.
    pub fee: Option<Number>,
    /// H.
    pub threshold: Option<Number>,
    /// Tmin.
    pub update_min: Option<Seconds>,
    /// Tmax.
    pub update_max: Option<Seconds>,
    /// The shortest time between a client's salaries.
    pub salary_period_min: Option<Seconds>,
    /// The longest.
    pub salary_period_max: Option<Seconds>,
    /// How long a client waits until it asks again, on average, for each dollar that its message
    /// costs.
    pub retry_per_dollar: Option<Seconds>,
    /// Whether a client buys with probability 1/C.
    pub randomise: Option<bool>,
    /// Whether a daemon knows its own queues at any time.
    pub own_queues_at_once: Option<bool>,
}

/// `overlays.tfrc`
#[derive(Copy, Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct TfrcTable {
    /// A group's rate before any daemon has reported.
    pub initial_rate: Option<BitsPerSecond>,
    /// What a receiving daemon takes for the round-trip time until it is told.
    pub initial_rtt: Option<Seconds>,
    /// The weight of the past in the average round-trip time.
    pub rtt_history: Option<Number>,
    /// Whether repaired copies count towards the rate.
    pub count_repairs: Option<bool>,
    /// Whether the lost packet that begins a loss event counts for its interval.
    pub count_losses: Option<bool>,
    /// The weight of the past in the average interval between loss events.
    pub loss_history: Option<Number>,
    /// The time between looks at what local clients ask for.
    pub demand_interval: Option<Seconds>,
    /// The weight of the past in what they ask for.
    pub demand_history: Option<Number>,
}

/// `sessions.overlay`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct OverlaySessionTable {
    /// Which overlay; by default the only one.
    pub overlay: Option<String>,
    /// Which group; by default one of the session's name.
    pub group: Option<String>,
    /// So many clients send, each at the sender.
    pub clients: Option<Count>,
    /// Bytes of a message, without headers.
    pub message: Option<Bits>,
    /// How much each client has to send; by default as much as it may.
    pub rate: Option<BitsPerSecond>,
    /// Each client sends so many messages; by default without end.
    pub messages: Option<Count>,
    /// A multiple of what other clients get.
    pub priority: Option<Number>,
    /// What is done about slow members of the group; by default what the overlay does.
    pub slow: Option<SlowName>,
    /// For `evict`: for how long their senders wait.
    pub slow_deadline: Option<Seconds>,
}

/// What is done about slow members. A deadline that nothing waits for is ignored, so that `slow`
/// can be swept.
fn slow_policy(slow: SlowName, deadline: Option<Seconds>) -> Result<SlowPolicy, Fault> {
    match (slow, deadline) {
        (SlowName::Block, _) => Ok(SlowPolicy::Block),
        (SlowName::Drop, _) => Ok(SlowPolicy::Drop),
        (SlowName::Evict, Some(deadline)) => Ok(SlowPolicy::Evict(deadline.duration())),
        (SlowName::Evict, None) => {
            let problem = Problem::Value("`evict` takes a `slow-deadline`".to_owned());
            Err(Fault::at(&["slow"], problem))
        }
    }
}

impl OverlayTable {
    /// What its links are made of.
    fn kind(&self) -> KindName {
        self.kind.unwrap_or(match self.controller {
            ControllerName::CostBenefit | ControllerName::None => KindName::Streams,
            ControllerName::Tfrc => KindName::Datagrams,
        })
    }

    /// The parameters of its daemons.
    pub(crate) fn link_kind(&self) -> LinkKind {
        match self.kind() {
            KindName::Streams => LinkKind::Streams(self.tcp.config()),
            KindName::Datagrams => LinkKind::Datagrams,
        }
    }

    pub(crate) fn config(&self) -> OverlayConfig {
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

    /// Whether streams have all that their table gives.
    fn check_streams(&self) -> Result<(), &'static str> {
        match &self.tcp {
            tcp if tcp.transfer.is_some() => {
                Err("the streams of an overlay have no `transfer`: they end with it")
            }
            tcp if tcp.segment.is_some() => {
                Err("the streams of an overlay have no `segment`: each message is one")
            }
            tcp if tcp.ecn == Some(true) => Err("the streams of an overlay have no `ecn`"),
            _ => Ok(()),
        }
    }

    /// The controller of a daemon.
    ///
    /// # Errors
    /// Where a parameter is outside its range.
    pub(crate) fn controller(
        &self,
        here: DaemonId,
        seed: u64,
    ) -> Result<Box<dyn Controller>, ConfigError> {
        Ok(match self.controller {
            ControllerName::CostBenefit => {
                Box::new(CostBenefit::new(self.cost_benefit.config(), here, seed)?)
            }
            ControllerName::Tfrc => Box::new(Tfrc::new(self.tfrc.config(), here)?),
            ControllerName::None => Box::new(Open),
        })
    }

    /// Whether the parameters fit together.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        let refuse = |key: &str, message: &str| {
            let problem = Problem::Value(message.to_owned());
            Err(Fault::at(&[key], problem))
        };
        match (self.controller, self.kind()) {
            (ControllerName::CostBenefit, KindName::Datagrams) => refuse(
                "kind",
                "`cost-benefit` needs `streams`: its prices are made of queues, and datagrams leave none to fill",
            ),
            (ControllerName::Tfrc, KindName::Streams) => refuse(
                "kind",
                "`tfrc` needs `datagrams`: its rates are made of losses, and of streams nothing is ever lost",
            ),
            _ => Ok(()),
        }?;
        slow_policy(self.slow, self.slow_deadline)?;
        self.check_streams()
            .or_else(|message| refuse("tcp", message))?;
        self.tcp.check().map_err(|fault| fault.within("tcp"))?;
        self.config().check().map_err(Fault::value)?;
        let controller = self.controller(DaemonId(0), 0);
        controller.map(|_| ()).map_err(Fault::value)
    }
}

impl CostBenefitTable {
    fn config(self) -> CostBenefitConfig {
        let mut config = CostBenefitConfig::default();
        let numbers = [
            (&mut config.salary_dollars, self.salary),
            (&mut config.savings_dollars, self.savings),
            (&mut config.queue_messages, self.soft_limit),
            (&mut config.fee_dollars, self.fee),
            (&mut config.threshold_dollars, self.threshold),
        ];
        for (number, given) in numbers {
            set(number, given.map(|number| number.0));
        }
        let (shortest, longest) = &mut config.salary_period;
        let times = [
            (&mut config.update_min, self.update_min),
            (&mut config.update_max, self.update_max),
            (shortest, self.salary_period_min),
            (longest, self.salary_period_max),
            (&mut config.retry_per_dollar, self.retry_per_dollar),
        ];
        for (time, given) in times {
            set(time, given.map(Seconds::duration));
        }
        set(&mut config.randomise, self.randomise);
        set(&mut config.own_queues_at_once, self.own_queues_at_once);
        config
    }
}

impl TfrcTable {
    fn config(self) -> TfrcConfig {
        let mut config = TfrcConfig::default();
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
            (&mut config.loss_history, self.loss_history),
            (&mut config.demand_history, self.demand_history),
        ];
        for (share, given) in shares {
            set(share, given.map(|number| number.0));
        }
        set(&mut config.count_repairs, self.count_repairs);
        set(&mut config.count_losses, self.count_losses);
        config
    }
}

impl OverlaySessionTable {
    /// How many clients send.
    pub(crate) fn clients(&self) -> u32 {
        self.clients.map_or(1, Count::get)
    }

    /// The bytes of a message.
    pub(crate) fn message_bytes(&self) -> u64 {
        self.message.map_or(1000, Bits::bytes)
    }

    /// What its clients get, in percent of what others get.
    pub(crate) fn priority_percent(&self) -> f64 {
        self.priority
            .map_or(100.0, |priority| (priority.0 * 100.0).round())
    }

    /// What is done about slow members of the group, if the session says so.
    pub(crate) fn slow_policy(&self) -> Option<SlowPolicy> {
        slow_policy(self.slow?, self.slow_deadline).ok()
    }

    /// Whether the parameters are in their ranges.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        let refuse = |key: &str, message: &str| {
            let problem = Problem::Value(message.to_owned());
            Err(Fault::at(&[key], problem))
        };
        slow_policy(self.slow.unwrap_or_default(), self.slow_deadline)?;
        match () {
            _ if !(1..=u64::from(PAYLOAD_BYTES_MAX)).contains(&self.message_bytes()) => {
                let message = format!("a message has 1 to {PAYLOAD_BYTES_MAX} bytes");
                refuse("message", &message)
            }
            _ if !(1.0..=65_535.0).contains(&self.priority_percent()) => {
                refuse("priority", "it must be 1 % to 65,535 %")
            }
            _ if self.rate.is_some_and(|rate| rate.rate().bits_per_s() == 0) => {
                refuse("rate", "it must be at least 1 bit/s")
            }
            _ if self.clients() > CLIENTS_MAX => {
                refuse("clients", "at most 100,000 clients are possible")
            }
            _ => Ok(()),
        }
    }
}

/// More clients of one session are a mistake.
const CLIENTS_MAX: u32 = 100_000;
