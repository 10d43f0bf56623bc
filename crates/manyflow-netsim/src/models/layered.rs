//! Receivers of SIM whose reports are not true, for scenarios that show the effect of a liar.

use manyflow_core::{Action, Ecn, Endpoint, Packet, Time};
use manyflow_layered::sim::Receiver;
use manyflow_layered::{Event, Feedback, Message};

/// The reports of a lying receiver.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Lie {
    /// Congestion, in each round.
    AlwaysCongested,
    /// No congestion. The receiver does not see any mark, so it does not drop a group either.
    NeverCongested,
    /// Its received rate, times this factor.
    RateTimes(f64),
}

impl Lie {
    /// Returns the report with the lie in it.
    pub fn falsify(self, mut report: Feedback) -> Feedback {
        match self {
            Lie::AlwaysCongested => report.congested = report.reports,
            Lie::NeverCongested => report.congested = 0,
            Lie::RateTimes(factor) => {
                let rate = f64::from(report.minimum) * factor;
                (report.minimum, report.maximum) = (rate as u32, rate as u32);
            }
        }
        report
    }

    /// Returns whether the receiver sees the marks of its packets.
    pub fn sees_marks(self) -> bool {
        self != Lie::NeverCongested
    }
}

/// A receiver of SIM that lies.
pub struct LayeredLiar {
    receiver: Receiver,
    lie: Lie,
}

impl LayeredLiar {
    /// Makes `receiver` lie.
    pub fn new(receiver: Receiver, lie: Lie) -> LayeredLiar {
        LayeredLiar { receiver, lie }
    }
}

impl Endpoint for LayeredLiar {
    type Rx = Message;
    type Tx = Message;
    type Event = Event;

    fn handle_packet(&mut self, now: Time, packet: &Packet<Message>) {
        match packet.ecn {
            Ecn::Marked if !self.lie.sees_marks() => {
                let unmarked = packet.clone().with_ecn(Ecn::Capable);
                self.receiver.handle_packet(now, &unmarked);
            }
            _ => self.receiver.handle_packet(now, packet),
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.receiver.handle_timeout(now);
    }

    fn poll_action(&mut self, now: Time) -> Option<Action<Message>> {
        let mut action = self.receiver.poll_action(now)?;
        if let Action::Send(packet) = &mut action
            && let Message::Feedback(feedback) = &mut packet.header
        {
            *feedback = self.lie.falsify(*feedback);
        }
        Some(action)
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.receiver.poll_timeout()
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.receiver.poll_event()
    }
}

#[cfg(test)]
mod tests {
    use manyflow_core::time::seconds;
    use manyflow_core::{Channel, Destination, EndpointId};
    use manyflow_layered::sim::ReceiverConfig;
    use manyflow_layered::{Data, Feedback, Membership};

    use super::*;

    fn receiver() -> Receiver {
        let (config, parent) = (ReceiverConfig::default(), EndpointId(7));
        Receiver::new(config, Membership::new(0, 1), 1, parent).unwrap()
    }

    /// Returns the last report of a receiver that has received one packet a second in the only
    /// group, with or without a mark.
    fn report(mut endpoint: impl Endpoint<Rx = Message, Tx = Message>, ecn: Ecn) -> Feedback {
        let mut reports = Vec::new();
        endpoint.handle_timeout(Time::ZERO);
        for request in 1..=8 {
            let now = Time::ZERO + seconds(f64::from(request));
            let data = Data {
                group: 0,
                sequence: request.into(),
                request,
                is_for_group: false,
                rate: 1000,
                rtt_us: 100_000,
                next_rate: 0,
                is_pair: false,
            };
            let channel = Channel {
                session: 0,
                number: 0,
            };
            let packet = Packet::new(Destination::Channel(channel), Message::Data(data), 900);
            endpoint.handle_packet(now, &packet.with_ecn(ecn));
            while let Some(action) = endpoint.poll_action(now) {
                if let Action::Send(packet) = action
                    && let Message::Feedback(feedback) = packet.header
                {
                    reports.push(feedback);
                }
            }
        }
        *reports.last().expect("each round is answered")
    }

    #[test]
    fn reports_of_a_liar_differ_from_an_honest_receivers_by_the_lie_alone() {
        for ecn in [Ecn::Capable, Ecn::Marked] {
            let honest = report(receiver(), ecn);
            let lying = |lie| report(LayeredLiar::new(receiver(), lie), ecn);
            assert_eq!(honest.congested, u32::from(ecn == Ecn::Marked));
            let congested = |congested| Feedback {
                congested,
                ..honest
            };
            assert_eq!(lying(Lie::AlwaysCongested), congested(1));
            assert_eq!(lying(Lie::NeverCongested), congested(0));
            let tenfold = Feedback {
                minimum: 10 * honest.minimum,
                maximum: 10 * honest.maximum,
                ..honest
            };
            assert_eq!(lying(Lie::RateTimes(10.0)), tenfold);
        }
    }
}
