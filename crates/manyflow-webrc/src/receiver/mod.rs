//! WEBRC's receiver (RFC 3738 section 3.2).
//!
//! ```text
//!   Waiting --start--> JoiningBase --first packet--> Running --silence, base lost--> Ended
//! ```
//!
//! | file | what it holds |
//! |---|---|
//! | `running.rs` | what packets change, once the receiver has found its place in the time slots |
//! | `epoch.rs` | what a running receiver decides at the end of each epoch, and at time-outs |
//! | `timeline.rs` | how far the sender has come |
//! | `whole.rs` | receivers of all waves |
//! | `check.rs` | the refusal of packets that the sender cannot have sent yet |
//! | `context.rs` | what outlives the phases: parameters, actions, events, totals |
//! | `rates.rs` | the reception rates |
//! | `marks.rs` | marks of routers: as losses, or by L4S' law |
//! | `dispersion.rs`, `jump.rs` | the rate that packet trains show, and joins up to half of it |
//! | `pairs.rs` | the capacity that pairs of packets show |
//! | `config.rs` | the receiver's own parameters |

mod check;
mod config;
mod context;
mod delay;
mod dispersion;
mod epoch;
mod jump;
mod lossy;
mod marks;
mod pairs;
mod parameters;
mod rates;
mod resume;
mod running;
mod timeline;
mod whole;

use core::convert::Infallible;
use core::ops::ControlFlow;
use std::collections::VecDeque;
use std::sync::Arc;

pub use config::{ReceiverConfig, TargetRule, Weights};
pub use context::Refusals;
use context::{Context, Totals};
pub use parameters::Parameter;
use running::Running;

use super::{Cci, Session};
use crate::{EndReason, Event};
use manyflow_core::ConfigError;
use manyflow_core::time::Time;
use manyflow_core::units::Rate;
use manyflow_core::{Action, Ecn, Endpoint};
use manyflow_core::{Destination, Packet};

/// The receiving end of a session.
#[derive(Debug)]
pub struct Receiver {
    phase: Phase,
    context: Context,
}

/// How far a receiver has come.
#[derive(Debug)]
enum Phase {
    /// The receiver joins the base channel at this time.
    Waiting(Time),
    /// The receiver joined the base channel at this time and waits for its first packet.
    JoiningBase(Time),
    /// Packets arrive, and waves are joined and left.
    Running(Box<Running>),
    /// The session is over for this receiver.
    Ended,
}

/// A receiver's present state, for displays and measurements.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Status {
    /// NWC: the number of joined waves.
    pub waves: u32,
    /// TRR: the average reception rate.
    pub received: Rate,
    /// The rate of the TCP equation, REQN; `None` in start-up.
    pub equation: Option<Rate>,
    /// ARTT, the average multicast round-trip time, in seconds.
    pub rtt_s: f64,
    /// LOSSP, the average loss event probability.
    pub loss_probability: f64,
    /// Number of received packets.
    pub packets_received: u64,
    /// Number of lost packets.
    pub packets_lost: u64,
    /// Number of packets that routers have marked.
    pub packets_marked: u64,
    /// Numbers of refused packets.
    pub refused: Refusals,
}

impl Receiver {
    /// Makes a receiver of `session`, which the world knows by `id`. It joins at `start`.
    ///
    /// # Errors
    /// If a parameter is outside its range.
    pub fn new(
        session: Arc<Session>,
        config: Arc<ReceiverConfig>,
        id: u32,
        start: Time,
    ) -> Result<Receiver, ConfigError> {
        config.check(&session)?;
        Ok(Receiver {
            phase: Phase::Waiting(start),
            context: Context {
                session,
                config,
                id,
                actions: VecDeque::new(),
                events: VecDeque::new(),
                totals: Totals::default(),
                arrived: start,
                ecn: Ecn::NotCapable,
                marks: None,
            },
        })
    }

    /// Changes the maximum rate (MRR) from the next epoch on, for an application that cannot keep
    /// pace. `None` is no maximum. It has to be above 0.
    pub fn set_maximum_rate(&mut self, rate: Option<Rate>) {
        debug_assert!(rate.is_none_or(|rate| rate > Rate::default()));
        Arc::make_mut(&mut self.context.config).maximum_rate = rate;
    }

    /// Leaves all channels and ends.
    pub fn leave(&mut self) {
        if let Phase::Running(running) = &self.phase {
            running.leave_waves(&mut self.context);
        }
        if !matches!(self.phase, Phase::Waiting(_) | Phase::Ended) {
            self.context.leave(self.context.session.wave_channels());
        }
        self.phase = Phase::Ended;
    }

    /// Returns the receiver's present state; `None` before the first packet and after the end.
    pub fn status(&self) -> Option<Status> {
        match &self.phase {
            Phase::Running(running) => Some(running.status(&self.context)),
            _ => None,
        }
    }

    /// Returns the numbers of packets that were refused so far, in all phases.
    pub fn refused(&self) -> Refusals {
        self.context.totals.refused
    }

    /// Handles a packet at `now` that has reached this host at `arrived`. Packet trains need the
    /// time of arrival, and a driver that takes several packets at a time knows it better than by
    /// `now`. It may be earlier than times that were passed before.
    pub fn handle_arrival(&mut self, now: Time, arrived: Time, packet: &Packet<Cci>) {
        let Some(cci) = self.accept(packet) else {
            return;
        };
        (self.context.arrived, self.context.ecn) = (arrived, packet.ecn);
        if let Phase::JoiningBase(joined) = self.phase
            && u32::from(cci.channel) == self.context.session.wave_channels()
        {
            let running = Running::new(&mut self.context, now, now - joined, &cci);
            self.phase = Phase::Running(Box::new(running));
        }
        if let Phase::Running(running) = &mut self.phase
            && let ControlFlow::Break(reason) = running.on_packet(&mut self.context, now, &cci)
        {
            self.end(reason);
        }
    }

    fn join_base(&mut self, now: Time) {
        self.phase = Phase::JoiningBase(now);
        self.context.join(self.context.session.wave_channels());
    }

    fn end(&mut self, reason: EndReason) {
        self.leave();
        self.context.events.push_back(Event::Ended(reason));
    }

    /// Returns the header of a packet of this session; `None` for packets that are refused.
    fn accept(&mut self, packet: &Packet<Cci>) -> Option<Cci> {
        let cci = packet.header;
        let fits = self.context.fits(&cci);
        let refused = &mut self.context.totals.refused;
        match packet.destination {
            Destination::Channel(channel) if fits && channel.session == self.context.id => {
                if channel.number == cci.channel {
                    return Some(cci);
                }
                refused.channel += 1;
            }
            _ => refused.header += 1,
        }
        None
    }
}

impl Endpoint for Receiver {
    type Rx = Cci;
    type Tx = Infallible;
    type Event = Event;

    fn handle_packet(&mut self, now: Time, packet: &Packet<Cci>) {
        self.handle_arrival(now, now, packet);
    }

    fn handle_timeout(&mut self, now: Time) {
        match &mut self.phase {
            Phase::Waiting(start) if *start <= now => self.join_base(now),
            Phase::JoiningBase(joined) if *joined + self.context.silence_timeout() <= now => {
                self.end(EndReason::NoPackets(self.context.silence_timeout()));
            }
            Phase::Running(running) => {
                if let ControlFlow::Break(reason) = running.on_timeout(&mut self.context, now) {
                    self.end(reason);
                }
            }
            _ => {}
        }
    }

    fn poll_action(&mut self, _now: Time) -> Option<Action<Infallible>> {
        take_first(&mut self.context.actions)
    }

    fn poll_timeout(&self) -> Option<Time> {
        match &self.phase {
            Phase::Waiting(start) => Some(*start),
            Phase::JoiningBase(joined) => Some(*joined + self.context.silence_timeout()),
            Phase::Running(running) => Some(running.next_timeout(&self.context)),
            Phase::Ended => None,
        }
    }

    fn poll_event(&mut self) -> Option<Event> {
        take_first(&mut self.context.events)
    }
}

/// Returns the first item. A drained queue frees its memory, since a simulation can have a million
/// receivers.
#[inline]
fn take_first<T>(queue: &mut VecDeque<T>) -> Option<T> {
    let first = queue.pop_front();
    if first.is_none() && queue.capacity() > 0 {
        *queue = VecDeque::new();
    }
    first
}
