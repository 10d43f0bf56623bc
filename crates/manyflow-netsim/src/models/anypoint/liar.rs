//! A sender that lies to XCP's routers about itself, or does not follow their feedback.

use std::collections::VecDeque;

use manyflow_core::xcp::{Congestion, WindowChange};
use manyflow_core::{Action, Endpoint, Packet, Time};

use manyflow_anypoint::{Ack, Body, ConfigError, Control, Data, Segment};

/// The lie of a sender: false values in XCP's headers, or a false reaction to feedback.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub enum Lie {
    /// Reports true values and follows all feedback.
    #[default]
    Honest,
    /// Reports its window multiplied by this factor, above 0.
    WindowTimes(f64),
    /// Reports its round-trip time multiplied by this factor, above 0.
    RttTimes(f64),
    /// Reports true values, but ignores negative feedback.
    NeverDecreases,
    /// Reports true values, but increases its window by everything that it asked for, whatever was
    /// granted.
    TakesAll,
}

impl Lie {
    /// Checks that a sender whose window follows `control` can use the lie.
    ///
    /// # Errors
    /// If a factor is not above 0, or there are no XCP routers to lie to.
    pub fn check(self, control: Control) -> Result<(), ConfigError> {
        let (window, rtt) = self.factors();
        let is_told = control != Control::Reno && window > 0.0 && rtt > 0.0;
        ConfigError::first_of([(
            "a lie",
            "told to XCP's routers, by a factor above 0",
            self == Lie::Honest || is_told,
        )])
    }

    /// Returns the factors of the window and of the round-trip time in headers.
    fn factors(self) -> (f64, f64) {
        match self {
            Lie::WindowTimes(factor) => (factor, 1.0),
            Lie::RttTimes(factor) => (1.0, factor),
            Lie::Honest | Lie::NeverDecreases | Lie::TakesAll => (1.0, 1.0),
        }
    }
}

/// Wraps an end of a connection, and falsifies its headers or its feedback by a [`Lie`].
#[derive(Debug)]
pub struct Liar<E> {
    end: E,
    lie: Lie,
    /// The feedback that each unacknowledged frame asked for, from number `first` on. Recorded only
    /// for [`Lie::TakesAll`].
    asked: VecDeque<WindowChange>,
    first: u32,
}

impl<E> Liar<E> {
    /// Wraps `end` with this lie.
    pub fn new(end: E, lie: Lie) -> Liar<E> {
        Liar {
            end,
            lie,
            asked: VecDeque::new(),
            first: 0,
        }
    }

    /// Returns the wrapped end.
    pub fn end_mut(&mut self) -> &mut E {
        &mut self.end
    }

    /// Falsifies the header of a frame that the end sends.
    fn falsify_data(&mut self, data: &mut Data) {
        let (window, rtt) = self.lie.factors();
        let Congestion { cwnd, rtt_us, .. } = &mut data.congestion;
        *cwnd = (f64::from(*cwnd) * window) as u32;
        *rtt_us = libm::ceil(f64::from(*rtt_us) * rtt) as u32;
        if self.lie == Lie::TakesAll {
            self.note_asked(data);
        }
    }

    fn note_asked(&mut self, data: &Data) {
        let Some(place) = data.sequence.checked_sub(self.first) else {
            return;
        };
        let place = place as usize;
        if self.asked.len() <= place {
            self.asked.resize(place + 1, WindowChange::default());
        }
        self.asked[place] = data.congestion.feedback;
    }

    /// Falsifies an acknowledgement before the end sees it.
    fn falsify_ack(&mut self, ack: &mut Ack) {
        match self.lie {
            Lie::NeverDecreases => {
                ack.feedback.change = ack.feedback.change.max(WindowChange::default())
            }
            Lie::TakesAll => {
                let place = ack.of.checked_sub(self.first);
                let asked = place.and_then(|place| self.asked.get(place as usize));
                ack.feedback.change = asked.copied().unwrap_or_default();
                while self.first < ack.cumulative && self.asked.pop_front().is_some() {
                    self.first += 1;
                }
            }
            Lie::Honest | Lie::WindowTimes(_) | Lie::RttTimes(_) => {}
        }
    }
}

impl<E: Endpoint<Rx = Segment, Tx = Segment>> Endpoint for Liar<E> {
    type Rx = Segment;
    type Tx = Segment;
    type Event = E::Event;

    fn handle_packet(&mut self, now: Time, packet: &Packet<Segment>) {
        let mut packet = packet.clone();
        if let Body::Ack(ack) = &mut packet.header.body {
            self.falsify_ack(ack);
        }
        self.end.handle_packet(now, &packet);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.end.handle_timeout(now);
    }

    fn poll_action(&mut self, now: Time) -> Option<Action<Segment>> {
        let mut action = self.end.poll_action(now)?;
        if let Action::Send(packet) = &mut action
            && let Body::Data(data) = &mut packet.header.body
        {
            self.falsify_data(data);
        }
        Some(action)
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.end.poll_timeout()
    }

    fn poll_event(&mut self) -> Option<E::Event> {
        self.end.poll_event()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manyflow_anypoint::{NO_GAPS, UNLIMITED};
    use manyflow_core::xcp::Feedback;
    use manyflow_core::{Destination, EndpointId};

    const ASKED: WindowChange = WindowChange(1000);

    /// An end that sends one frame after the other, and records the feedback that it receives.
    #[derive(Debug, Default)]
    struct Honest {
        next: u32,
        heard: Vec<i32>,
    }

    fn packet(body: Body) -> Packet<Segment> {
        let connection = 1;
        let destination = Destination::Endpoint(EndpointId(0));
        Packet::new(destination, Segment { connection, body }, 0)
    }

    impl Endpoint for Honest {
        type Rx = Segment;
        type Tx = Segment;
        type Event = ();

        fn handle_packet(&mut self, _now: Time, packet: &Packet<Segment>) {
            if let Body::Ack(ack) = packet.header.body {
                self.heard.push(ack.feedback.change.0);
            }
        }

        fn handle_timeout(&mut self, _now: Time) {}

        fn poll_action(&mut self, _now: Time) -> Option<Action<Segment>> {
            let congestion = Congestion {
                cwnd: 2000,
                rtt_us: 100_000,
                feedback: WindowChange(ASKED.0 + self.next as i32),
                answered: false,
            };
            let data = Data {
                sequence: self.next,
                key: 0,
                congestion,
            };
            self.next += 1;
            Some(Action::Send(packet(Body::Data(data))))
        }

        fn poll_timeout(&self) -> Option<Time> {
            None
        }

        fn poll_event(&mut self) -> Option<()> {
            None
        }
    }

    fn sent_header(liar: &mut Liar<Honest>) -> Congestion {
        match liar.poll_action(Time::ZERO) {
            Some(Action::Send(packet)) => match packet.header.body {
                Body::Data(data) => data.congestion,
                other => panic!("no frame: {other:?}"),
            },
            other => panic!("no packet: {other:?}"),
        }
    }

    /// Returns the feedback that the end receives for frame `of`.
    fn heard(liar: &mut Liar<Honest>, cumulative: u32, of: u32, feedback: i32) -> i32 {
        let ack = Ack {
            cumulative,
            of,
            credit: UNLIMITED,
            feedback: Feedback {
                change: WindowChange(feedback),
                ..Feedback::default()
            },
            missing: NO_GAPS,
        };
        liar.handle_packet(Time::ZERO, &packet(Body::Ack(ack)));
        *liar.end.heard.last().expect("an acknowledgement")
    }

    #[test]
    fn a_lie_about_the_sender_changes_only_the_header() {
        let header = |lie| sent_header(&mut Liar::new(Honest::default(), lie));
        let truth = header(Lie::Honest);
        let window = header(Lie::WindowTimes(10.0));
        assert_eq!((window.cwnd, window.rtt_us), (20_000, 100_000));
        let rtt = header(Lie::RttTimes(0.5));
        assert_eq!((rtt.cwnd, rtt.rtt_us), (2000, 50_000));
        assert_eq!((window.feedback, rtt.feedback), (ASKED, ASKED));
        assert_eq!(truth.feedback, ASKED);
    }

    #[test]
    fn a_sender_that_never_decreases_receives_only_positive_feedback() {
        let mut liar = Liar::new(Honest::default(), Lie::NeverDecreases);
        sent_header(&mut liar);
        assert_eq!(heard(&mut liar, 0, 0, -500), 0);
        assert_eq!(heard(&mut liar, 0, 0, 500), 500);
    }

    #[test]
    fn a_sender_that_takes_all_receives_the_feedback_that_each_frame_asked_for() {
        let mut liar = Liar::new(Honest::default(), Lie::TakesAll);
        for _ in 0..5 {
            sent_header(&mut liar);
        }
        assert_eq!(heard(&mut liar, 0, 1, -500), ASKED.0 + 1);
        assert_eq!(heard(&mut liar, 3, 2, -500), ASKED.0 + 2);
        assert_eq!(liar.asked.len(), 2, "frames 3 and 4 are on their way");
        assert_eq!(heard(&mut liar, 3, 4, 0), ASKED.0 + 4);
    }

    #[test]
    fn a_lie_needs_routers_that_believe_it_and_a_factor_above_0() {
        assert!(Lie::Honest.check(Control::Reno).is_ok());
        assert!(Lie::RttTimes(10.0).check(Control::Xcp).is_ok());
        assert!(Lie::RttTimes(10.0).check(Control::Reno).is_err());
        assert!(Lie::WindowTimes(0.0).check(Control::Xcp).is_err());
    }
}
