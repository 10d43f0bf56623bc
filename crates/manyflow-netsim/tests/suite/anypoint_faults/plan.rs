//! The plan of a run, drawn from its seed.

use core::time::Duration;
use std::sync::Arc;

use manyflow_anypoint::switch::{
    HashOfKey, KeyRule, LeastOutstanding, MemberId, MemberMetrics, Policy, RateAware, RoundRobin,
    Scaling, SwitchConfig, Weighted,
};
use manyflow_anypoint::{AcpConfig, Control, FlowControl, SoftConfig};
use manyflow_core::link::{LinkConfig, LossModel, QueueLimit};
use manyflow_core::xcp::XcpConfig;
use manyflow_core::{Contents, Rate, Time};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// The plan of a run.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// Whether there is no switch, so that the peer and its one member are connected directly.
    pub(crate) is_direct: bool,
    pub(crate) config: AcpConfig,
    pub(crate) switch: SwitchConfig,
    policy: Routing,
    /// The number of members at the start, 1 to 4. Members that join later have the following
    /// numbers.
    pub(crate) members: u16,
    /// The number of frames that the peer sends.
    pub(crate) inbound: u32,
    /// The number of frames that each member sends.
    pub(crate) outbound: u32,
    /// The time for which each application works on a frame: first the peer, then the members.
    pub(crate) service: Vec<Duration>,
    pub(crate) transit: LinkConfig,
    /// The link of each member, including members that join later.
    pub(crate) spokes: Vec<LinkConfig>,
    pub(crate) faults: Vec<(Time, Fault)>,
}

/// A fault, or a change of the members.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A member crashes.
    Crash(MemberId),
    /// A member leaves.
    Leave(MemberId),
    /// Another member joins.
    Join,
    /// The switch loses its state.
    Restart,
}

#[derive(Debug)]
enum Routing {
    RoundRobin,
    LeastOutstanding,
    HashOfKey,
    Weighted(Vec<f64>),
    KeyRule(u32),
    /// Learned shares. A switch that restarts begins with the metrics of the former one.
    RateAware(Vec<Arc<MemberMetrics>>),
}

impl Plan {
    /// Draws the plan of a seed, with the policy that learns.
    pub(crate) fn learning(seed: u64) -> Plan {
        let mut plan = Plan::of(seed);
        let metrics = plan.spokes.iter().map(|_| Arc::default());
        plan.policy = Routing::RateAware(metrics.collect());
        plan
    }

    /// Draws the plan of a seed.
    pub(crate) fn of(seed: u64) -> Plan {
        let random = &mut Pcg64Mcg::seed_from_u64(seed);
        let is_direct = random.random_bool(0.1);
        let members = if is_direct {
            1
        } else {
            random.random_range(1..=4)
        };
        let mut faults = faults(members, random);
        faults.retain(|(_, fault)| !is_direct || matches!(fault, Fault::Crash(_)));
        let joining = faults.iter().filter(|(_, fault)| *fault == Fault::Join);
        let ends = usize::from(members) + joining.count();
        let direction = random.random_range(0..3);
        let frames = |random: &mut Pcg64Mcg, goes| match goes {
            true => random.random_range(1..=400),
            false => 0,
        };
        let config = config(ends as u32, random);
        Plan {
            seed,
            is_direct,
            switch: switch(config.frame_bytes_max, random),
            config,
            policy: policy(members, random),
            members,
            inbound: frames(random, direction != 1),
            outbound: frames(random, direction != 0),
            service: (0..=ends).map(|_| service(random)).collect(),
            transit: link(random),
            spokes: (0..ends).map(|_| link(random)).collect(),
            faults,
        }
    }

    /// Returns the switch's policy.
    pub(crate) fn policy(&self) -> Box<dyn Policy<Contents>> {
        match &self.policy {
            Routing::RoundRobin => Box::new(RoundRobin::default()),
            Routing::LeastOutstanding => Box::new(LeastOutstanding::default()),
            Routing::HashOfKey => Box::new(HashOfKey::default()),
            Routing::Weighted(weights) => Box::new(Weighted::new(weights.clone())),
            Routing::KeyRule(up_to) => Box::new(KeyRule::new(vec![(0..=*up_to, MemberId(0))])),
            Routing::RateAware(metrics) => {
                let mut policy = RateAware::shared(self.seed);
                for (member, metrics) in (0..).zip(metrics) {
                    policy.share_metrics(MemberId(member), Arc::clone(metrics));
                }
                Box::new(policy)
            }
        }
    }

    /// Returns the time of a fault, if the plan has it.
    pub(crate) fn time_of(&self, fault: Fault) -> Option<Time> {
        let found = self.faults.iter().find(|(_, other)| *other == fault);
        found.map(|(time, _)| *time)
    }
}

/// Draws no fault, a restart, or one or two changes of the members, each of a different member. At
/// least one member remains.
fn faults(members: u16, random: &mut Pcg64Mcg) -> Vec<(Time, Fault)> {
    let mut faults = Vec::new();
    let kind = random.random_range(0..8);
    let count = match kind {
        0 | 1 => 0,
        2 => 1,
        _ => random.random_range(1..=2),
    };
    for place in 0..count {
        // Loss of state while the connection is being opened is the hardest to notice. Half of the
        // restarts are that early.
        let latest_ms = match kind == 2 && random.random_bool(0.5) {
            true => 200,
            false => 4000,
        };
        let time = Time::ZERO + Duration::from_millis(random.random_range(0..latest_ms));
        let member = MemberId(place);
        let fault = match random.random_range(0..3) {
            _ if kind == 2 => Fault::Restart,
            0 if members > place + 1 => Fault::Leave(member),
            1 if members > place + 1 || place == 0 => Fault::Crash(member),
            _ => Fault::Join,
        };
        faults.push((time, fault));
    }
    faults.sort_by_key(|(time, _)| *time);
    faults
}

/// Draws the parameters of ACP. The peer's receive buffer has two frames for each member. With less
/// than one, a share of its credit admits no frame, and under soft flow control other members'
/// frames fill the buffer while the peer waits for one frame, so that minutes pass.
pub(crate) fn config(members: u32, random: &mut Pcg64Mcg) -> AcpConfig {
    let control = match random.random_range(0..10) {
        0..4 => Control::Xcp,
        4..8 => Control::Auto,
        _ => Control::Reno,
    };
    let soft = control != Control::Reno && random.random_bool(0.5);
    let flow = match soft {
        true => FlowControl::Soft(SoftConfig::default()),
        false => FlowControl::Credit,
    };
    let frame_bytes_max = random.random_range(100..=1400);
    let buffer = |random: &mut Pcg64Mcg, least| frame_bytes_max * random.random_range(least..=100);
    AcpConfig {
        control,
        flow,
        frame_bytes_max,
        send_buffer: buffer(random, 4),
        receive_buffer: buffer(random, 4.max(2 * members)),
        initial_window: random.random_range(1..=4),
        minimum_rto: Duration::from_millis(random.random_range(100..=400)),
        keep_alive: Duration::from_millis(random.random_range(500..=10_000)),
        attempts: 12,
    }
}

pub(crate) fn switch(frame_bytes_max: u32, random: &mut Pcg64Mcg) -> SwitchConfig {
    SwitchConfig {
        histogram_frames: random.random_range(1..=200),
        scaling: match random.random_bool(0.5) {
            true => Scaling::Paper,
            false => Scaling::PerPacket,
        },
        fallback: random.random_bool(0.5),
        // Lost packets alone do not make a member appear to have failed.
        failure_timeout: Duration::from_secs(5),
        keep_alive: Duration::from_millis(500),
        frame_bytes_max,
        stall_timeout: SwitchConfig::default().stall_timeout,
        held_frames_max: 1 << random.random_range(0..=12),
        suspect_timeout: random
            .random_bool(0.5)
            .then(|| Duration::from_millis(random.random_range(50..=500))),
        bound: false,
    }
}

fn policy(members: u16, random: &mut Pcg64Mcg) -> Routing {
    match random.random_range(0..5) {
        0 => Routing::RoundRobin,
        1 => Routing::LeastOutstanding,
        2 => Routing::HashOfKey,
        3 => Routing::Weighted(
            (0..members)
                .map(|_| random.random_range(0.1..3.0))
                .collect(),
        ),
        _ => Routing::KeyRule(random.random_range(0..400)),
    }
}

/// Draws a service time: none, or up to 5 ms.
pub(crate) fn service(random: &mut Pcg64Mcg) -> Duration {
    match random.random_bool(0.5) {
        true => Duration::ZERO,
        false => Duration::from_micros(random.random_range(1..5000)),
    }
}

pub(crate) fn link(random: &mut Pcg64Mcg) -> LinkConfig {
    let some = |random: &mut Pcg64Mcg, value| match random.random_bool(0.5) {
        true => value,
        false => 0.0,
    };
    LinkConfig {
        rate: Some(Rate::from_bits_per_s(
            random.random_range(2_000_000..50_000_000),
        )),
        delay: Duration::from_micros(random.random_range(100..20_000)),
        queue: QueueLimit::Packets(random.random_range(10..200)),
        xcp: random.random_bool(0.7).then(XcpConfig::default),
        loss: LossModel::Bernoulli(some(random, 0.05)),
        duplication: some(random, 0.05),
        jitter: Duration::from_secs_f64(some(random, 0.005)),
        ..LinkConfig::default()
    }
}
