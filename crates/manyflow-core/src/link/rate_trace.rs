//! Rate traces in the format of Mahimahi (Netravali et al., "Mahimahi: Accurate
//! Record-and-Replay for HTTP", USENIX ATC 2015).
//!
//! Each line of a trace has a time in milliseconds at which the link can send one packet of the
//! maximum size. A line is an opportunity: if no packet waits, it is lost. Several lines with the
//! same time are several opportunities. After its last line the trace begins again, and its time 0
//! is the time of the last line.

use core::fmt;
use core::str::FromStr;
use std::sync::Arc;

use crate::units::Rate;

/// The bytes that an opportunity carries. `mm-link` reads packets from a TUN device, which puts
/// [`FRAMING_BYTES`] before each packet of at most 1,500 bytes.
pub(super) const OPPORTUNITY_BYTES: u64 = 1504;
/// The bytes by which `mm-link` counts a packet longer than its IP packet.
pub(super) const FRAMING_BYTES: u64 = 4;
/// The bytes of a full IP packet, which takes a whole opportunity.
pub const FULL_PACKET_BYTES: u64 = OPPORTUNITY_BYTES - FRAMING_BYTES;

/// A rate trace: the times at which a link can send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateTrace {
    instants: Vec<Instant>,
}

/// All opportunities at one time.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Instant {
    ms: u32,
    /// The number of opportunities up to this time, including those at it.
    until: u32,
}

/// The reason why a text is not a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateTraceError {
    /// The number of the line, from 1. `None` if the error concerns the whole trace.
    pub line: Option<usize>,
    /// The mistake, and what to do.
    pub why: &'static str,
}

impl RateTraceError {
    /// Returns a message that names the file: `lte.trace:3: the reason`.
    pub fn in_file(&self, file: &str) -> String {
        match self.line {
            Some(line) => format!("{file}:{line}: {}", self.why),
            None => format!("{file}: {}", self.why),
        }
    }
}

impl fmt::Display for RateTraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.why),
            None => f.write_str(self.why),
        }
    }
}

impl core::error::Error for RateTraceError {}

impl FromStr for RateTrace {
    type Err = RateTraceError;

    /// Reads a trace. Fails if a line is not a whole number of milliseconds, if times decrease, if
    /// there is no line, or if all times are 0: such a trace would begin again at once.
    fn from_str(text: &str) -> Result<RateTrace, RateTraceError> {
        let times = text.lines().zip(1..).map(|(line, number)| {
            let time = line.trim_end().parse::<u32>();
            time.map_err(|_| RateTraceError {
                line: Some(number),
                why: "a line is one time in whole milliseconds, at most 4294967295",
            })
        });
        RateTrace::collect(times)
    }
}

impl RateTrace {
    /// Creates a trace with an opportunity at each of these times in milliseconds.
    ///
    /// # Errors
    /// Returns an error if there are no times, if a time is before the previous one, or if all
    /// times are 0.
    pub fn new(times_ms: impl IntoIterator<Item = u32>) -> Result<RateTrace, RateTraceError> {
        RateTrace::collect(times_ms.into_iter().map(Ok))
    }

    fn collect(
        times_ms: impl Iterator<Item = Result<u32, RateTraceError>>,
    ) -> Result<RateTrace, RateTraceError> {
        let mut instants: Vec<Instant> = Vec::new();
        for (ms, until) in times_ms.zip(1..) {
            let ms = ms?;
            match instants.last_mut() {
                Some(last) if last.ms == ms => last.until = until,
                Some(last) if last.ms > ms => {
                    return Err(RateTraceError {
                        line: Some(until as usize),
                        why: "the time is before that of the line above: times must not decrease",
                    });
                }
                _ => instants.push(Instant { ms, until }),
            }
        }
        let whole = |why| RateTraceError { line: None, why };
        match instants.last() {
            None => Err(whole("the trace has no line: give at least one time")),
            Some(last) if last.ms == 0 => Err(whole(
                "the trace takes no time: its last line must be above 0",
            )),
            Some(_) => Ok(RateTrace { instants }),
        }
    }

    /// Returns the duration of the trace in milliseconds: the time of its last line.
    pub fn duration_ms(&self) -> u32 {
        self.last().ms
    }

    /// Returns the number of opportunities, the lines of the trace.
    pub fn opportunities(&self) -> u32 {
        self.last().until
    }

    /// Returns the average rate of full IP packets of 1,500 bytes.
    pub fn rate(&self) -> Rate {
        let bits = u64::from(self.opportunities()) * FULL_PACKET_BYTES * 8;
        // At most 2^32 * 12,000 * 1,000 < 2^56.
        Rate::from_bits_per_s(bits * 1000 / u64::from(self.duration_ms()))
    }

    fn last(&self) -> &Instant {
        self.instants.last().expect("a trace has a line")
    }
}

impl fmt::Display for RateTrace {
    /// Writes the trace in Mahimahi's format: a line for each opportunity.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = 0;
        for instant in &self.instants {
            for _ in before..instant.until {
                writeln!(f, "{}", instant.ms)?;
            }
            before = instant.until;
        }
        Ok(())
    }
}

/// A place in a repeated trace: the opportunities at one time.
#[derive(Clone, Debug)]
pub(super) struct Cursor {
    trace: Arc<RateTrace>,
    /// The number of whole traces before this place.
    rounds: u64,
    index: usize,
}

impl Cursor {
    /// Returns the place of the first opportunities.
    pub(super) fn new(trace: Arc<RateTrace>) -> Cursor {
        Cursor {
            trace,
            rounds: 0,
            index: 0,
        }
    }

    /// Returns the time of this place, in milliseconds from the beginning of the trace.
    pub(super) fn ms(&self) -> u64 {
        let within = self.trace.instants[self.index].ms;
        let rounds = self.rounds * u64::from(self.trace.duration_ms());
        rounds + u64::from(within)
    }

    /// Returns the number of opportunities here.
    pub(super) fn count(&self) -> u64 {
        u64::from(self.trace.instants[self.index].until) - self.before_in_round()
    }

    /// Returns the number of all opportunities before this place.
    pub(super) fn before(&self) -> u64 {
        self.rounds * u64::from(self.trace.opportunities()) + self.before_in_round()
    }

    fn before_in_round(&self) -> u64 {
        match self.index {
            0 => 0,
            index => u64::from(self.trace.instants[index - 1].until),
        }
    }

    /// Moves to the next place. Its time is the same if the trace begins again at 0.
    pub(super) fn advance(&mut self) {
        self.index += 1;
        if self.index == self.trace.instants.len() {
            (self.rounds, self.index) = (self.rounds + 1, 0);
        }
    }

    /// Moves to the first place after this time.
    pub(super) fn skip(&mut self, ms: u64) {
        let duration = u64::from(self.trace.duration_ms());
        let within = ms % duration;
        self.rounds = ms / duration;
        let past = |instant: &Instant| u64::from(instant.ms) <= within;
        self.index = self.trace.instants.partition_point(past);
        debug_assert!(self.index < self.trace.instants.len(), "the last is later");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_read_and_written() {
        let text = "0\n5\n5\n12\n";
        let trace: RateTrace = text.parse().unwrap();
        assert_eq!((trace.duration_ms(), trace.opportunities()), (12, 4));
        assert_eq!(trace.rate(), Rate::from_bits_per_s(4_000_000));
        assert_eq!(trace.to_string(), text);
        assert_eq!("0\r\n5\r\n5\r\n12".parse(), Ok(trace));
    }

    #[test]
    fn wrong_traces_are_refused_with_the_line() {
        let message = |text: &str| text.parse::<RateTrace>().unwrap_err().in_file("a");
        for (text, line) in [
            ("1\n\n2\n", "2: "),
            ("1\n2\nfast\n", "3: "),
            ("-1\n", "1: "),
            ("1.5\n", "1: "),
            ("4294967296\n", "1: "),
            ("7\n7\n6\n", "3: "),
        ] {
            let message = message(text);
            let start = format!("a:{line}");
            assert!(message.starts_with(&start), "{text:?}: {message}");
        }
        assert!(message("").starts_with("a: the trace has no line"));
        assert!(message("0\n0\n").contains("takes no time"));
    }

    #[test]
    fn a_place_is_found_in_any_round() {
        let trace = Arc::new(RateTrace::new([0, 5, 5, 12]).unwrap());
        let mut slow = Cursor::new(Arc::clone(&trace));
        for ms in 0..60 {
            while slow.ms() <= ms {
                slow.advance();
            }
            let mut fast = Cursor::new(Arc::clone(&trace));
            fast.skip(ms);
            let of = |cursor: &Cursor| (cursor.ms(), cursor.count(), cursor.before());
            assert_eq!(of(&fast), of(&slow), "after {ms} ms");
        }
    }
}
