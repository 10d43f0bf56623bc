//! The parameters of ACP, and of the switches between a peer and an ensemble.

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
use crate::error::{Fault, Problem};
use crate::quantity::{Bits, Count, Number, PacketsPerSecond, Seconds};
use crate::schema::{ReceiverTable, SpanTable};

/// `sessions.acp`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct AcpTable {
    /// How the congestion window changes.
    #[serde(default)]
    pub control: ControlName,
    /// How receive buffers are protected; by default as the congestion control allows.
    pub flow: Option<FlowName>,
    /// The parameters of soft flow control.
    #[serde(default)]
    pub soft: SoftTable,
    /// Bytes of a frame.
    pub frame: Option<Bits>,
    /// Bytes that are not acknowledged, or wait.
    pub send_buffer: Option<Bits>,
    /// Bytes that have arrived and were not read.
    pub receive_buffer: Option<Bits>,
    /// The first window, in frames.
    pub initial_window: Option<Count>,
    /// The shortest retransmission time-out.
    pub minimum_rto: Option<Seconds>,
    /// After so long without a packet the other end is probed.
    pub keep_alive: Option<Seconds>,
    /// So many times something is sent without an answer.
    pub attempts: Option<Count>,
    /// What those who send frames say of themselves.
    #[serde(default)]
    pub lie: LieName,
    /// Who sends frames.
    #[serde(default)]
    pub direction: Direction,
    /// Frames per second of each application that sends, at most.
    pub frame_rate: Option<PacketsPerSecond>,
    /// Each application that sends closes after so many.
    pub frames: Option<Count>,
    /// The keys of frames are drawn from so many; 0 counts them up.
    #[serde(default)]
    pub keys: Count,
    /// How long an application works on a frame that it has read.
    pub service: Option<Seconds>,
    /// The same, where it changes.
    pub square: Option<SquareTable>,
    /// The switches between the sender and the receivers, the one next to the sender first.
    #[serde(default)]
    pub switches: Vec<SwitchTable>,
}

/// How ACP's congestion window changes.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ControlName {
    /// By the feedback of XCP's routers.
    #[default]
    Xcp,
    /// By losses.
    Reno,
}

/// How ACP's receivers protect their buffers.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlowName {
    /// By XCP's feedback.
    Soft,
    /// By credit.
    Credit,
}

/// What a sender of ACP says in place of the truth, or does in place of what it is told.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LieName {
    /// The truth.
    #[default]
    Honest,
    /// That its window is ten times what it is.
    TenfoldWindow,
    /// That it is a tenth.
    TenthOfWindow,
    /// That its round-trip time is ten times what it is.
    TenfoldRtt,
    /// That it is a tenth.
    TenthOfRtt,
    /// It does not follow negative feedback.
    NeverDecreases,
    /// It takes what it asked for.
    TakesAll,
}

/// Who sends frames, seen from the ensemble.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// The session's sender.
    #[default]
    Inbound,
    /// The receivers, to the sender.
    Outbound,
    /// All.
    Both,
}

/// `sessions.acp.soft`
#[derive(Copy, Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SoftTable {
    /// incrthresh.
    pub increase_below: Option<Number>,
    /// decrthresh.
    pub decrease_above: Option<Number>,
    /// gamma.
    pub decrease: Option<Number>,
    /// By how many frames the target grows in a round-trip time.
    pub step: Option<Count>,
    /// Whether the drain rate is measured and followed, instead of probed for.
    pub follow_drain: Option<bool>,
}

/// `sessions.acp.square`: the second half of each period is slow.
#[derive(Copy, Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SquareTable {
    /// The time for a frame in the first half.
    pub low: Seconds,
    /// The time for a frame in the second half.
    pub high: Seconds,
    /// Both halves.
    pub period: Seconds,
}

/// An entry of `sessions.acp.switches`
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SwitchTable {
    /// Where it is.
    pub node: String,
    /// Its members: receivers, groups of them, or the nodes of later switches.
    pub members: Vec<String>,
    /// Which member gets a frame.
    #[serde(default)]
    pub policy: PolicyName,
    /// For `weighted`: of each member.
    #[serde(default)]
    pub weights: BTreeMap<String, Number>,
    /// For `rule`: which keys go where.
    #[serde(default)]
    pub rules: Vec<RuleTable>,
    /// The frames over which receive ratios are counted.
    pub histogram: Option<Count>,
    /// How feedback is scaled.
    pub scaling: Option<ScalingName>,
    /// A member that answers nothing for so long has failed.
    pub failure_timeout: Option<Seconds>,
    /// A member from which nothing came for so long is probed.
    pub keep_alive: Option<Seconds>,
    /// Frames beyond a gap that are held for each leg.
    pub held_frames: Option<Count>,
}

/// How a switch chooses members.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyName {
    /// Each in turn.
    #[default]
    RoundRobin,
    /// The one with the fewest frames that are not acknowledged.
    LeastOutstanding,
    /// By the hash of the key.
    Hash,
    /// In proportion to weights.
    Weighted,
    /// By ranges of keys.
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
    /// Who gets frames with keys between them.
    pub member: String,
}

/// How a switch scales feedback.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScalingName {
    /// As the paper writes it.
    Paper,
    /// So that totals of a round-trip time are kept.
    PerPacket,
}

impl AcpTable {
    /// The parameters of the sender's end, and of receivers that have none of their own.
    pub(crate) fn config(&self) -> AcpConfig {
        let mut config = AcpConfig {
            control: match self.control {
                ControlName::Xcp => Control::Xcp,
                ControlName::Reno => Control::Reno,
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

    /// The parameters of a receiver's end.
    pub(crate) fn receiver(&self, own: &ReceiverTable) -> AcpConfig {
        let mut config = self.config();
        set(&mut config.send_buffer, own.send_buffer.map(bytes));
        set(&mut config.receive_buffer, own.receive_buffer.map(bytes));
        config
    }

    /// What ends say of themselves to XCP's routers.
    pub(crate) fn lie(&self) -> Lie {
        self.lie.lie()
    }

    /// An application that sends at these times, if it sends at all, and works on each frame for
    /// `service`, if that is given.
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

    /// Whether the parameters fit together.
    pub(crate) fn check(&self, receivers: &[&ReceiverTable]) -> Result<(), Fault> {
        if (self.control, self.flow) == (ControlName::Reno, Some(FlowName::Soft)) {
            let message =
                "soft flow control goes by XCP's feedback: with `reno` it can only be `credit`";
            return Err(Fault::at(&["flow"], Problem::Value(message.to_owned())));
        }
        if self.service.is_some() && self.square.is_some() {
            return Err(Fault::value("give one of `service` and `square`"));
        }
        let refuse = |key: &str, message: &str| Fault::at(&[key], Problem::Value(message.into()));
        if self.frame_rate.is_some_and(|rate| rate.0 <= 0.0) {
            return Err(refuse("frame-rate", "it must be above 0"));
        }
        if self.square.is_some_and(|square| square.period.0 <= 0.0) {
            return Err(refuse("square", "its period must be above 0"));
        }
        let config = self.config();
        config.check().map_err(Fault::value)?;
        let lie = self.lie().check(config.control);
        lie.map_err(Fault::value)?;
        for receiver in receivers {
            self.receiver(receiver).check().map_err(Fault::value)?;
            if !is_in_order(&receiver.sends) {
                let message =
                    "`sends` of a receiver is in the order of time, and its spans do not touch";
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
    /// The switch's parameters.
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
            let message = format!("this policy takes {missing}");
            return Err(Fault::at(&["policy"], Problem::Value(message)));
        }
        if self.weights.values().any(|weight| weight.0 < 0.0) {
            let message = "weights are not negative".to_owned();
            return Err(Fault::at(&["weights"], Problem::Value(message)));
        }
        self.config().check().map_err(Fault::value)
    }
}

/// Whether each span begins before it ends, and the next one after that.
fn is_in_order(spans: &[SpanTable]) -> bool {
    let ends = spans
        .iter()
        .flat_map(|span| [span.from.0, span.to.map_or(f64::INFINITY, |to| to.0)]);
    ends.is_sorted_by(|a, b| a < b)
}

/// What does not fit is beyond every limit.
fn bytes(size: Bits) -> u32 {
    u32::try_from(size.bytes()).unwrap_or(u32::MAX)
}
