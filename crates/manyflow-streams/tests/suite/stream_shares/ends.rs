//! The sender and the receiver of a stream, of either protocol.

use manyflow_core::{Endpoint, EndpointId, Time};
use manyflow_layered::{Event, Membership, Message, Offer, rlm, sim};
use manyflow_streams::{SendControl, live_receiver_config, live_rlm_receiver_config};

pub(crate) const SESSION: u32 = 7;

/// The sender of either protocol.
pub(crate) type Sender = Box<dyn Offer>;

/// The receiver of either protocol.
pub(crate) trait Subscriber: Endpoint<Rx = Message, Tx = Message, Event = Event> {
    /// Returns the number of joined groups.
    fn joined(&self) -> u8;
}

impl Subscriber for sim::Receiver {
    fn joined(&self) -> u8 {
        self.subscribed()
    }
}

impl Subscriber for rlm::Receiver {
    fn joined(&self) -> u8 {
        self.level()
    }
}

pub(crate) fn sender(control: &SendControl) -> Sender {
    match control.clone() {
        SendControl::Sim(config) => Box::new(
            sim::Sender::new(config, SESSION, Time::ZERO, None).expect("valid in this test"),
        ),
        SendControl::Rlm(config) => Box::new(
            rlm::Sender::new(config, SESSION, Time::ZERO, None).expect("valid in this test"),
        ),
    }
}

/// Returns the cumulative rates of groups at the start, in bytes per second.
pub(crate) fn initial_rates(control: &SendControl) -> Vec<f64> {
    let rates = control.initial_rates();
    let known = rates.iter().take(control.groups().into());
    known.map(|rate| rate.bits_per_s() as f64 / 8.0).collect()
}

pub(crate) fn subscriber(control: &SendControl, id: u32, start: Time) -> Box<dyn Subscriber> {
    let to = EndpointId(0);
    let membership = Membership {
        start,
        ..Membership::new(SESSION, control.groups())
    };
    match control {
        SendControl::Sim(_) => {
            let config = live_receiver_config();
            let made = sim::Receiver::new(config, membership, id, to);
            Box::new(made.expect("valid in this test"))
        }
        SendControl::Rlm(_) => {
            let config = live_rlm_receiver_config();
            let made = rlm::Receiver::new(config, membership, to, id.into());
            Box::new(made.expect("valid in this test"))
        }
    }
}
