//! The parameters of ACP, and of the switches between a peer and the members of a service.

mod events;
mod session;
mod wire;

pub(crate) use session::Acp;

use std::collections::BTreeMap;

use manyflow_anypoint::switch::{Scaling, SwitchConfig};
use manyflow_anypoint::{AcpConfig, Control, FlowControl, SoftConfig};
use manyflow_netsim::models::anypoint::{Lie, Service, Span, Worker, Workload};
use serde::Deserialize;

use super::set;
use crate::schema::{ReceiverTable, SpanTable};
use manyflow_model::error::{Fault, Problem};
use manyflow_model::quantity::{Bits, Count, Number, PacketsPerSecond, Seconds};

/// `sessions.acp`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct AcpTable {
    /// The congestion control.
    #[serde(default)]
    pub control: ControlName,
    /// The flow control. The default is soft flow control with XCP, and credit with Reno.
    pub flow: Option<FlowName>,
    /// The parameters of soft flow control.
    #[serde(default)]
    pub soft: SoftTable,
    /// The size of a frame.
    pub frame: Option<Bits>,
    /// The size of the send buffer: queued plus unacknowledged bytes.
    pub send_buffer: Option<Bits>,
    /// The size of the receive buffer: bytes that have arrived and are not yet read.
    pub receive_buffer: Option<Bits>,
    /// The initial window, in frames.
    pub initial_window: Option<Count>,
    /// The minimum retransmission time-out.
    pub minimum_rto: Option<Seconds>,
    /// The time without a packet after which an end probes the other end.
    pub keep_alive: Option<Seconds>,
    /// The maximum number of times that a packet is sent without an answer.
    pub attempts: Option<Count>,
    /// The false statements of the ends that send frames.
    #[serde(default)]
    pub lie: LieName,
    /// The ends that send frames.
    #[serde(default)]
    pub direction: Direction,
    /// The maximum rate of each sending application, in frames per second.
    pub frame_rate: Option<PacketsPerSecond>,
    /// The number of frames after which each sending application closes.
    pub frames: Option<Count>,
    /// The number of keys from which the keys of frames are drawn. With 0, each frame has the next
    /// number as its key.
    #[serde(default)]
    pub keys: Count,
    /// The time for which an application works on each frame that it has read.
    pub service: Option<Seconds>,
    /// The time for which an application works on each frame, if it alternates between two values.
    pub square: Option<SquareTable>,
    /// The switches between the sender and the receivers. The first one is next to the sender.
    #[serde(default)]
    pub switches: Vec<SwitchTable>,
}

/// The congestion control of ACP.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ControlName {
    /// Follows the feedback of XCP routers.
    #[default]
    Xcp,
    /// Reacts to losses, as TCP Reno does.
    Reno,
    /// Follows the feedback of XCP routers where they answer, and losses elsewhere.
    Auto,
}

/// The flow control of ACP, which protects receive buffers.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlowName {
    /// Uses XCP's feedback.
    Soft,
    /// Uses credit.
    Credit,
}

/// The false statements of an ACP sender to XCP routers, and its deviations from their feedback.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LieName {
    /// States the truth and follows the feedback.
    #[default]
    Honest,
    /// States ten times its window.
    TenfoldWindow,
    /// States a tenth of its window.
    TenthOfWindow,
    /// States ten times its round-trip time.
    TenfoldRtt,
    /// States a tenth of its round-trip time.
    TenthOfRtt,
    /// Ignores negative feedback.
    NeverDecreases,
    /// Takes all that it asked for, whatever was granted.
    TakesAll,
}

/// The ends that send frames. Directions are named from the point of view of the service.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// The session's sender sends to the receivers.
    #[default]
    Inbound,
    /// The receivers send to the session's sender.
    Outbound,
    /// The session's sender and the receivers send.
    Both,
}

/// `sessions.acp.soft`
#[derive(Copy, Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SoftTable {
    /// incrthresh: the share of the buffer below which the target grows.
    pub increase_below: Option<Number>,
    /// decrthresh: the share of the buffer above which the target shrinks.
    pub decrease_above: Option<Number>,
    /// gamma: the share by which the target shrinks.
    pub decrease: Option<Number>,
    /// The number of frames by which the target grows in a round-trip time.
    pub step: Option<Count>,
    /// Whether the drain rate is measured and followed. Otherwise the target probes for it.
    pub follow_drain: Option<bool>,
}

/// `sessions.acp.square`: a service time that is low in the first half of each period and high in
/// the second.
#[derive(Copy, Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SquareTable {
    /// The service time in the first half.
    pub low: Seconds,
    /// The service time in the second half.
    pub high: Seconds,
    /// The length of both halves together.
    pub period: Seconds,
}

/// An entry of `sessions.acp.switches`
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SwitchTable {
    /// The node of the switch.
    pub node: String,
    /// The members: receivers, groups of receivers, or the nodes of later switches.
    pub members: Vec<String>,
    /// The policy that chooses a member for each frame.
    #[serde(default)]
    pub policy: PolicyName,
    /// The weight of each member, for the policy `weighted`.
    #[serde(default)]
    pub weights: BTreeMap<String, Number>,
    /// The ranges of keys of each member, for the policy `rule`.
    #[serde(default)]
    pub rules: Vec<RuleTable>,
    /// The number of frames over which receive ratios are counted.
    pub histogram: Option<Count>,
    /// The way in which feedback is scaled.
    pub scaling: Option<ScalingName>,
    /// The time without an answer after which a member counts as failed.
    pub failure_timeout: Option<Seconds>,
    /// The time after which a member counts as stalled that is alive and takes nothing.
    pub stall_timeout: Option<Seconds>,
    /// The time without a packet after which a member is probed.
    pub keep_alive: Option<Seconds>,
    /// The number of frames beyond a gap that are held for each leg.
    pub held_frames: Option<Count>,
}

/// The choice of members by a switch.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyName {
    /// Chooses the members in turn.
    #[default]
    RoundRobin,
    /// Chooses the member with the fewest unacknowledged frames.
    LeastOutstanding,
    /// Chooses a member by the hash of the key.
    Hash,
    /// Chooses members in proportion to their weights.
    Weighted,
    /// Chooses a member by ranges of keys.
    Rule,
}

/// An entry of `sessions.acp.switches.rules`
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct RuleTable {
    /// The first key.
    pub from: Count,
    /// The last key.
    pub to: Count,
    /// The member that receives frames with keys in the range.
    pub member: String,
}

/// The way in which a switch scales feedback.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScalingName {
    /// Scales as the paper describes.
    Paper,
    /// Scales so that the totals over a round-trip time are preserved.
    PerPacket,
}

impl AcpTable {
    /// Returns the parameters of the sender's end, which are the defaults of the receivers' ends.
    pub(crate) fn config(&self) -> AcpConfig {
        let mut config = AcpConfig {
            control: match self.control {
                ControlName::Xcp => Control::Xcp,
                ControlName::Reno => Control::Reno,
                ControlName::Auto => Control::Auto,
            },
            flow: self.flow_control(),
            ..AcpConfig::default()
        };
        let sizes = [
            (&mut config.frame_bytes_max, self.frame),
            (&mut config.send_buffer, self.send_buffer),
            (&mut config.receive_buffer, self.receive_buffer),
        ];
        for (size, given) in sizes {
            set(size, given.map(bytes));
        }
        let times = [
            (&mut config.minimum_rto, self.minimum_rto),
            (&mut config.keep_alive, self.keep_alive),
        ];
        for (time, given) in times {
            set(time, given.map(Seconds::duration));
        }
        set(
            &mut config.initial_window,
            self.initial_window.map(Count::get),
        );
        set(&mut config.attempts, self.attempts.map(Count::get));
        config
    }

    fn flow_control(&self) -> FlowControl {
        match (self.flow, self.control) {
            (Some(FlowName::Credit), _) | (None, ControlName::Reno) => FlowControl::Credit,
            _ => FlowControl::Soft(self.soft.config()),
        }
    }

    /// Returns the parameters of a receiver's end.
    pub(crate) fn receiver(&self, own: &ReceiverTable) -> AcpConfig {
        let mut config = self.config();
        set(&mut config.send_buffer, own.send_buffer.map(bytes));
        set(&mut config.receive_buffer, own.receive_buffer.map(bytes));
        config
    }

    /// Returns the false statements of the ends to XCP routers.
    pub(crate) fn lie(&self) -> Lie {
        self.lie.lie()
    }

    /// Returns an application that sends during the spans `sends` and works on each frame for
    /// `service`. Without `service`, the session's own service time applies.
    pub(crate) fn worker(
        &self,
        sends: Vec<Span>,
        service: Option<Seconds>,
        seed: u64,
    ) -> Result<Worker, Fault> {
        let workload = self.workload(sends, service);
        let longest = self.config().frame_bytes_max;
        Worker::new(workload, longest, seed).map_err(Fault::value)
    }

    fn workload(&self, sends: Vec<Span>, service: Option<Seconds>) -> Workload {
        let constant = service.or(self.service).unwrap_or_default();
        Workload {
            sends,
            frames: self.frames.map(Count::get),
            frame_bytes: self.config().frame_bytes_max,
            frames_per_s: self.frame_rate.map(|rate| rate.0),
            keys: self.keys.get(),
            service: match (service, self.square) {
                (None, Some(square)) => square.service(),
                _ => Service::Constant(constant.duration()),
            },
        }
    }

    /// Checks that the parameters are compatible.
    pub(crate) fn check(&self, receivers: &[&ReceiverTable]) -> Result<(), Fault> {
        if (self.control, self.flow) == (ControlName::Reno, Some(FlowName::Soft)) {
            let message = "soft flow control needs XCP's feedback: with `reno` take `credit`";
            return Err(Fault::at(&["flow"], Problem::Value(message.to_owned())));
        }
        if self.service.is_some() && self.square.is_some() {
            return Err(Fault::value("give either `service` or `square`, not both"));
        }
        let refuse = |key: &str, message: &str| Fault::at(&[key], Problem::Value(message.into()));
        if self.frame_rate.is_some_and(|rate| rate.0 <= 0.0) {
            return Err(refuse("frame-rate", "a frame rate has to be above 0"));
        }
        if self.square.is_some_and(|square| square.period.0 <= 0.0) {
            return Err(refuse("square", "the period has to be above 0"));
        }
        let config = self.config();
        config.check().map_err(Fault::value)?;
        let lie = self.lie().check(config.control);
        lie.map_err(Fault::value)?;
        for receiver in receivers {
            self.receiver(receiver).check().map_err(Fault::value)?;
            if !is_in_order(&receiver.sends) {
                let message = "the spans in `sends` have to be in order of time and must not touch";
                return Err(Fault::value(message));
            }
        }
        for (index, switch) in self.switches.iter().enumerate() {
            let within = |fault: Fault| fault.within(&index.to_string()).within("switches");
            switch.check().map_err(within)?;
        }
        Ok(())
    }
}

impl LieName {
    fn lie(self) -> Lie {
        match self {
            LieName::Honest => Lie::Honest,
            LieName::TenfoldWindow => Lie::WindowTimes(10.0),
            LieName::TenthOfWindow => Lie::WindowTimes(0.1),
            LieName::TenfoldRtt => Lie::RttTimes(10.0),
            LieName::TenthOfRtt => Lie::RttTimes(0.1),
            LieName::NeverDecreases => Lie::NeverDecreases,
            LieName::TakesAll => Lie::TakesAll,
        }
    }
}

impl SoftTable {
    fn config(self) -> SoftConfig {
        let mut config = SoftConfig::default();
        let shares = [
            (&mut config.increase_below, self.increase_below),
            (&mut config.decrease_above, self.decrease_above),
            (&mut config.decrease, self.decrease),
        ];
        for (share, given) in shares {
            set(share, given.map(|number| number.0));
        }
        set(&mut config.step_frames, self.step.map(Count::get));
        set(&mut config.follow_drain, self.follow_drain);
        config
    }
}

impl SquareTable {
    fn service(self) -> Service {
        Service::Square {
            low: self.low.duration(),
            high: self.high.duration(),
            period: self.period.duration(),
        }
    }
}

impl SwitchTable {
    /// Returns the parameters of the switch.
    pub(crate) fn config(&self) -> SwitchConfig {
        let mut config = SwitchConfig::default();
        set(&mut config.histogram_frames, self.histogram.map(Count::get));
        set(
            &mut config.scaling,
            self.scaling.map(|scaling| match scaling {
                ScalingName::Paper => Scaling::Paper,
                ScalingName::PerPacket => Scaling::PerPacket,
            }),
        );
        let times = [
            (&mut config.failure_timeout, self.failure_timeout),
            (&mut config.stall_timeout, self.stall_timeout),
            (&mut config.keep_alive, self.keep_alive),
        ];
        for (time, given) in times {
            set(time, given.map(Seconds::duration));
        }
        set(
            &mut config.held_frames_max,
            self.held_frames.map(Count::get),
        );
        config
    }

    fn check(&self) -> Result<(), Fault> {
        let missing = match self.policy {
            PolicyName::Weighted if self.weights.is_empty() => Some("`weights`"),
            PolicyName::Rule if self.rules.is_empty() => Some("`rules`"),
            _ => None,
        };
        if let Some(missing) = missing {
            let message = format!("this policy needs {missing}");
            return Err(Fault::at(&["policy"], Problem::Value(message)));
        }
        if self.weights.values().any(|weight| weight.0 < 0.0) {
            let message = "weights must not be negative".to_owned();
            return Err(Fault::at(&["weights"], Problem::Value(message)));
        }
        self.config().check().map_err(Fault::value)
    }
}

/// Returns whether each span begins before it ends, and ends before the next one begins.
fn is_in_order(spans: &[SpanTable]) -> bool {
    let ends = spans
        .iter()
        .flat_map(|span| [span.from.0, span.to.map_or(f64::INFINITY, |to| to.0)]);
    ends.is_sorted_by(|a, b| a < b)
}

/// Returns the size in bytes. Sizes above `u32::MAX` become `u32::MAX`, which exceeds every limit.
fn bytes(size: Bits) -> u32 {
    u32::try_from(size.bytes()).unwrap_or(u32::MAX)
}
