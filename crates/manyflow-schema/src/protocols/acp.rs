//! The parameters of ACP, and of the switches between a peer and the members of a service.

use std::collections::BTreeMap;

use manyflow_anypoint::switch::{Scaling, SwitchConfig};
use manyflow_anypoint::{AcpConfig, Control, FlowControl, SoftConfig};
use serde::Deserialize;

use super::set;
use crate::{ReceiverTable, SpanTable};
use manyflow_model::error::{Fault, Problem};
use manyflow_model::quantity::{Bits, Count, Number, PacketsPerSecond, Seconds};

/// `sessions.acp`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct AcpTable {
    /// The rule by which the window changes; with `reno` it follows losses (ACP-Reno), with `auto`
    /// it follows XCP's routers where they answer, and losses elsewhere. With `auto` the switches
    /// have the fallback of docs/anypoint.md#without-xcp-routers.
    ///
    /// Default: `xcp`.
    #[serde(default)]
    pub control: ControlName,
    /// The protection of receive buffers: by feedback or by credit.
    ///
    /// Default: `soft`; `credit` with `reno`.
    pub flow: Option<FlowName>,
    /// A table, the parameters of soft flow control.
    ///
    /// Default: its defaults. Name: SFC.
    #[serde(default)]
    pub soft: SoftTable,
    /// The data of a frame; headers are added.
    ///
    /// Default: `1 KiB`.
    pub frame: Option<Bits>,
    /// Frames that the application has handed over and that are not acknowledged.
    ///
    /// Default: `200 KiB`.
    pub send_buffer: Option<Bits>,
    /// Frames that have arrived and that the application has not read.
    ///
    /// Default: `200 KiB`.
    pub receive_buffer: Option<Bits>,
    /// The initial window, in frames.
    ///
    /// Default: 2.
    pub initial_window: Option<Count>,
    /// The shortest retransmission time-out.
    ///
    /// Default: `200 ms`.
    pub minimum_rto: Option<Seconds>,
    /// The silence after which the other end is probed.
    ///
    /// Default: `10 s`.
    pub keep_alive: Option<Seconds>,
    /// The number of Opens or Probes in a row without an answer after which the connection fails.
    ///
    /// Default: 8.
    pub attempts: Option<Count>,
    /// The false reports of senders of frames to XCP's routers: `tenfold-window`,
    /// `tenth-of-window`, `tenfold-rtt`, `tenth-of-rtt`; or how they ignore the answer:
    /// `never-decreases` follows no negative feedback, `takes-all` takes every increase that it
    /// asked for.
    ///
    /// Default: `honest`.
    #[serde(default)]
    pub lie: LieName,
    /// The direction of frames: from the sender; `outbound`: from the receivers to the sender;
    /// `both`.
    ///
    /// Default: `inbound`.
    #[serde(default)]
    pub direction: Direction,
    /// The rate of each application that sends, in `packets/s`.
    ///
    /// Default: no limit.
    pub frame_rate: Option<PacketsPerSecond>,
    /// The number of frames after which each application that sends closes.
    ///
    /// Default: without end.
    pub frames: Option<Count>,
    /// The number of keys, from which each frame's key is drawn; with 0, keys count the frames, and
    /// each of several `initiators` has an equal part of all keys to itself.
    ///
    /// Default: 0.
    #[serde(default)]
    pub keys: Count,
    /// The time that an application spends on a frame before it reads the next.
    ///
    /// Default: `0 s`.
    pub service: Option<Seconds>,
    /// A service time that alternates, instead of `service`.
    ///
    /// Default: none.
    pub square: Option<SquareTable>,
    /// A list of tables; the first is next to the sender.
    ///
    /// Default: none.
    #[serde(default)]
    pub switches: Vec<SwitchTable>,
    /// A list of nodes and groups that open the connection together. The sender's node is then
    /// their switch, with the parameters of the first of `switches` and the policy `round-robin`.
    ///
    /// Default: the sender alone.
    #[serde(default)]
    pub initiators: Vec<String>,
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
    /// The target grows while less than this share of the buffer is used.
    ///
    /// Default: 1/3. Name: incrthresh.
    pub increase_below: Option<Number>,
    /// The target falls while more than this share of the buffer is used.
    ///
    /// Default: 1/2. Name: decrthresh.
    pub decrease_above: Option<Number>,
    /// The share by which the target shrinks.
    ///
    /// Default: 0.1. Name: gamma.
    pub decrease: Option<Number>,
    /// The number of frames by which the target grows in a round-trip time.
    ///
    /// Default: 2.
    pub step: Option<Count>,
    /// Whether the target is the measured drain rate; `false` is the paper's law, which probes for
    /// the drain rate with `decrease` and `step`.
    ///
    /// Default: true.
    pub follow_drain: Option<bool>,
}

/// `sessions.acp.square`: a service time that is low in the first half of each period and high in
/// the second.
#[derive(Copy, Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SquareTable {
    /// The time for a frame in the first half of each period.
    pub low: Seconds,
    /// The time for a frame in the second half of each period.
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
    /// A list of nodes and groups: receivers, or later switches.
    pub members: Vec<String>,
    /// The choice of a member for each frame: by what each member's path carries, which the switch
    /// learns; `round-robin`, `least-outstanding`, `hash` (of the key), `weighted`, `rule`.
    ///
    /// Default: `rate-aware`.
    #[serde(default)]
    pub policy: PolicyName,
    /// For `weighted`: a table such as `{ A = 3, B = 1 }`; other members get no frames.
    ///
    /// Default: required with `weighted`.
    #[serde(default)]
    pub weights: BTreeMap<String, Number>,
    /// For `rule`: a list of tables; the first that contains the key decides.
    ///
    /// Default: required with `rule`.
    #[serde(default)]
    pub rules: Vec<RuleTable>,
    /// The number of frames over which receive ratios are counted.
    ///
    /// Default: 128.
    pub histogram: Option<Count>,
    /// The scaling of feedback in the switch: `per-packet` keeps the total of a round-trip time,
    /// `paper` applies the formulas for totals to single packets.
    ///
    /// Default: `per-packet`.
    pub scaling: Option<ScalingName>,
    /// The time without an answer after which a member has failed.
    ///
    /// Default: `2 s`.
    pub failure_timeout: Option<Seconds>,
    /// The time after which a member that is alive and takes nothing gets no new frames; after
    /// three times that its frames go to others.
    ///
    /// Default: `10 s`.
    pub stall_timeout: Option<Seconds>,
    /// The time without a packet after which a member is probed.
    ///
    /// Default: `1 s`.
    pub keep_alive: Option<Seconds>,
    /// The number of frames that are held beyond a gap, for each stream.
    ///
    /// Default: 4096.
    pub held_frames: Option<Count>,
}

/// The choice of members by a switch.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyName {
    /// Chooses members in proportion to the rates that their paths carry, as it learns them.
    #[default]
    RateAware,
    /// Chooses the members in turn.
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
    pub fn config(&self) -> AcpConfig {
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
    pub fn receiver(&self, own: &ReceiverTable) -> AcpConfig {
        let mut config = self.config();
        set(&mut config.send_buffer, own.send_buffer.map(bytes));
        set(&mut config.receive_buffer, own.receive_buffer.map(bytes));
        config
    }

    /// Checks that the parameters are compatible.
    pub fn check(&self, receivers: &[&ReceiverTable]) -> Result<(), Fault> {
        if (self.control, self.flow) == (ControlName::Reno, Some(FlowName::Soft)) {
            let message = "soft flow control needs XCP's feedback: with `reno` take `credit`";
            return Err(Fault::at(&["flow"], Problem::Value(message.to_owned())));
        }
        if !self.initiators.is_empty() && self.switches.is_empty() {
            let message = "initiators need `switches`: their connection leads to a service";
            return Err(Fault::at(&["initiators"], Problem::Value(message.into())));
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

impl SwitchTable {
    /// Returns the parameters of the switch.
    pub fn config(&self) -> SwitchConfig {
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
