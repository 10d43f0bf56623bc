//! The receiving end: cumulative and selective acknowledgements (RFC 5681 section 4.2, RFC 2018
//! section 4).

use core::time::Duration;

use super::Segment;
use super::config::{ConfigError, TcpConfig};
use crate::Event;
use manyflow_core::time::Time;
use manyflow_core::{Action, Endpoint};
use manyflow_core::{Destination, Ecn, EndpointId, Packet};

/// The maximum delay of an acknowledgement, as in ns-2 (RFC 5681 section 4.2: at most 500 ms).
const DELAY: Duration = Duration::from_millis(100);

/// The receiving end of a connection.
#[derive(Debug)]
pub struct Receiver {
    config: TcpConfig,
    peer: EndpointId,
    /// The next number expected (RCV.NXT). All segments below it were delivered.
    next: u32,
    /// The application has taken all segments below this number; `None` if it takes each at once.
    taken: Option<u32>,
    /// The last window that was announced.
    announced: u16,
    /// The blocks received above `next`, disjoint and not adjacent. The block that grew last is the
    /// last one.
    blocks: Vec<(u32, u32)>,
    acknowledge: Acknowledge,
    /// See [`Segment::ecn_echo`].
    ecn_echo: u8,
    duplicates: u64,
}

/// When the next acknowledgement is sent.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Acknowledge {
    Nothing,
    /// One segment waits for a second one until this time.
    Delayed(Time),
    Now,
}

impl Receiver {
    /// Creates a receiver that sends its acknowledgements to `peer`.
    ///
    /// # Errors
    /// Names the first parameter that is outside its range.
    pub fn new(config: TcpConfig, peer: EndpointId) -> Result<Receiver, ConfigError> {
        config.check()?;
        Ok(Receiver {
            config,
            peer,
            next: 0,
            taken: None,
            announced: Segment::UNLIMITED,
            blocks: Vec::new(),
            acknowledge: Acknowledge::Nothing,
            ecn_echo: 0,
            duplicates: 0,
        })
    }

    /// Creates the receiver of a stream, which announces `maximum_window` segments less those that
    /// the application has not [taken](Receiver::take).
    ///
    /// # Errors
    /// Names the first parameter that is outside its range.
    pub fn of_stream(config: TcpConfig, peer: EndpointId) -> Result<Receiver, ConfigError> {
        let receiver = Receiver::new(config, peer)?;
        Ok(Receiver {
            taken: Some(0),
            ..receiver
        })
    }

    /// Notes that the application of a stream has taken one more of the delivered segments. A
    /// closed window is announced as open at once, as its sender may have nothing in flight that
    /// would be acknowledged.
    pub fn take(&mut self) {
        if let Some(taken) = &mut self.taken
            && *taken < self.next
        {
            *taken += 1;
            if self.announced == 0 {
                self.acknowledge = Acknowledge::Now;
            }
        }
    }

    /// Returns the number of segments delivered in order: the goodput.
    pub fn delivered_segments(&self) -> u32 {
        self.next
    }

    /// Returns the number of segments that arrived more than once.
    pub fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// Handles a segment. Returns whether it is new, so that its payload must be kept.
    pub fn handle_segment(&mut self, now: Time, segment: &Segment, ecn: Ecn) -> bool {
        // A segment beyond the window is not held, so the blocks stay bounded. It may be a probe of
        // a closed window.
        if segment.sequence.saturating_sub(self.next) >= self.room() {
            if self.announced == 0 {
                self.acknowledge = Acknowledge::Now;
            }
            return false;
        }
        self.note_mark(segment, ecn == Ecn::Marked);
        let duplicates = self.duplicates;
        let in_order = self.place(segment.sequence);
        self.schedule(now, in_order);
        self.duplicates == duplicates
    }

    fn note_mark(&mut self, segment: &Segment, is_marked: bool) {
        if self.config.variant.counts_marks() {
            self.ecn_echo = self.ecn_echo.wrapping_add(is_marked.into());
            return;
        }
        // RFC 3168 section 6.1.3: after a mark, echo it until the sender announces that it has
        // reduced its window.
        if segment.window_reduced {
            self.ecn_echo = 0;
        }
        self.ecn_echo |= u8::from(is_marked);
    }

    /// Returns the acknowledgement that is due.
    pub fn poll_transmit(&mut self) -> Option<Segment> {
        if self.acknowledge != Acknowledge::Now {
            return None;
        }
        self.acknowledge = Acknowledge::Nothing;
        self.announced = self.window();
        Some(self.acknowledgement())
    }

    /// Returns the number of segments from the next one on that there is room for (RCV.WND).
    fn room(&self) -> u32 {
        self.config.maximum_window - (self.next - self.taken.unwrap_or(self.next))
    }

    fn window(&self) -> u16 {
        match self.taken {
            // One less than the value that stands for no limit.
            Some(_) => self.room().min(u32::from(Segment::UNLIMITED) - 1) as u16,
            None => Segment::UNLIMITED,
        }
    }

    /// Puts a segment in its place. Returns false if it must be acknowledged at once: it is out of
    /// order, fills a gap, or is a duplicate.
    fn place(&mut self, number: u32) -> bool {
        if number == self.next {
            let in_order = self.blocks.is_empty();
            self.next += 1;
            self.join_blocks();
            return in_order;
        }
        if number < self.next || self.holds(number) {
            self.duplicates += 1;
        } else {
            self.add_to_blocks(number);
        }
        false
    }

    /// Delivers the block that follows the delivered segments without a gap.
    fn join_blocks(&mut self) {
        let reached = self.blocks.iter().position(|b| b.0 == self.next);
        if let Some(place) = reached {
            self.next = self.blocks.remove(place).1;
        }
    }

    fn holds(&self, number: u32) -> bool {
        let block = |b: &(u32, u32)| (b.0..b.1).contains(&number);
        self.blocks.iter().rev().any(block)
    }

    /// Adds a number that no block holds, and joins the blocks that it connects.
    fn add_to_blocks(&mut self, number: u32) {
        let mut grown = (number, number + 1);
        if let Some(below) = self.blocks.iter().rposition(|b| b.1 == number) {
            grown.0 = self.blocks.remove(below).0;
        }
        if let Some(above) = self.blocks.iter().rposition(|b| b.0 == number + 1) {
            grown.1 = self.blocks.remove(above).1;
        }
        self.blocks.push(grown);
    }

    fn schedule(&mut self, now: Time, in_order: bool) {
        let wait = in_order && self.config.delayed_acks;
        self.acknowledge = match self.acknowledge {
            Acknowledge::Nothing if wait => Acknowledge::Delayed(now + DELAY),
            _ => Acknowledge::Now,
        };
    }

    fn acknowledgement(&self) -> Segment {
        let mut sack = [(0, 0); 3];
        if self.config.variant.uses_sack() {
            let newest = self.blocks.iter().rev();
            sack.iter_mut().zip(newest).for_each(|(s, b)| *s = *b);
        }
        Segment {
            acknowledgement: self.next,
            window: self.announced,
            sack,
            ecn_echo: self.ecn_echo,
            ..Segment::default()
        }
    }
}

impl Endpoint for Receiver {
    type Rx = Segment;
    type Tx = Segment;
    type Event = Event;

    fn handle_packet(&mut self, now: Time, packet: &Packet<Segment>) {
        self.handle_segment(now, &packet.header, packet.ecn);
    }

    fn handle_timeout(&mut self, now: Time) {
        if matches!(self.acknowledge, Acknowledge::Delayed(until) if now >= until) {
            self.acknowledge = Acknowledge::Now;
        }
    }

    fn poll_action(&mut self, _now: Time) -> Option<Action<Segment>> {
        let acknowledgement = self.poll_transmit()?;
        Some(Action::Send(Packet::new(
            Destination::Endpoint(self.peer),
            acknowledgement,
            0,
        )))
    }

    fn poll_timeout(&self) -> Option<Time> {
        match self.acknowledge {
            Acknowledge::Delayed(until) => Some(until),
            Acknowledge::Nothing | Acknowledge::Now => None,
        }
    }

    fn poll_event(&mut self) -> Option<Event> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hands over the segments of `numbers`. Returns the last acknowledgement.
    fn take(receiver: &mut Receiver, numbers: impl IntoIterator<Item = u32>) -> Option<Segment> {
        let mut last = None;
        for sequence in numbers {
            let packet = Packet::new(
                Destination::Endpoint(EndpointId(1)),
                Segment {
                    sequence,
                    ..Segment::default()
                },
                1000,
            );
            receiver.handle_packet(Time::ZERO, &packet);
            last = receiver.poll_action(Time::ZERO).map(|action| match action {
                Action::Send(Packet { header: ack, .. }) => ack,
                other => panic!("{other:?} is no acknowledgement"),
            });
        }
        last
    }

    fn receiver(config: TcpConfig) -> Receiver {
        Receiver::new(config, EndpointId(0)).unwrap()
    }

    #[test]
    fn the_block_that_grew_last_is_reported_first() {
        let mut receiver = receiver(TcpConfig::default());
        // RFC 2018 section 7, case 3: every second of eight segments is lost.
        let ack = take(&mut receiver, [0, 2, 4, 6, 8]).unwrap();
        assert_eq!(
            (ack.acknowledgement, ack.sack),
            (1, [(8, 9), (6, 7), (4, 5)])
        );
        // Then the fourth segment arrives, which joins two blocks, and then the second, which
        // reaches the first block.
        let ack = take(&mut receiver, [3]).unwrap();
        assert_eq!(
            (ack.acknowledgement, ack.sack),
            (1, [(2, 5), (8, 9), (6, 7)])
        );
        let ack = take(&mut receiver, [1]).unwrap();
        assert_eq!(
            (ack.acknowledgement, ack.sack),
            (5, [(8, 9), (6, 7), (0, 0)])
        );
    }

    #[test]
    fn a_segment_beyond_the_window_is_neither_held_nor_acknowledged() {
        let mut receiver = receiver(TcpConfig {
            maximum_window: 10,
            ..TcpConfig::default()
        });
        assert_eq!(take(&mut receiver, [10, u32::MAX]), None);
        assert_eq!(take(&mut receiver, [9]).unwrap().sack[0], (9, 10));
        assert_eq!(take(&mut receiver, 0..9).unwrap().acknowledgement, 10);
    }

    #[test]
    fn only_what_is_in_order_is_acknowledged_late() {
        let mut receiver = receiver(TcpConfig {
            delayed_acks: true,
            ..TcpConfig::default()
        });
        assert_eq!(take(&mut receiver, [0]), None);
        assert_eq!(receiver.poll_timeout(), Some(Time::ZERO + DELAY));
        for (number, acknowledgement) in [(1, 2), (3, 2), (2, 4), (2, 4)] {
            let ack = take(&mut receiver, [number]).unwrap();
            assert_eq!(ack.acknowledgement, acknowledgement, "{number}");
        }
        assert_eq!(receiver.duplicates(), 1);
    }
}
