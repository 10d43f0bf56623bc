//! HyStart++: leaves slow start when the round-trip time rises, before packets are lost (RFC 9406).
//!
//! A round whose shortest round-trip time is higher than that of the round before ends slow start.
//! Conservative slow start follows, which grows a quarter as fast: if the round-trip time falls
//! again, the rise was noise, and slow start continues; after five rounds, congestion avoidance
//! begins. It is used in the first slow start only (section 4.2).

/// MIN_RTT_THRESH and MAX_RTT_THRESH in seconds (section 4.3).
const THRESHOLD_S: (f64, f64) = (0.004, 0.016);
/// MIN_RTT_DIVISOR: the share of the round-trip time that is a rise.
const RTT_DIVISOR: f64 = 8.0;
/// N_RTT_SAMPLE: the number of samples that a round needs.
const SAMPLES: u32 = 8;
/// CSS_GROWTH_DIVISOR
const GROWTH_DIVISOR: f64 = 4.0;
/// CSS_ROUNDS
const ROUNDS: u32 = 5;
/// L for senders without pacing: the segments of an acknowledgement that count.
const COUNTED: u32 = 8;

/// The state of slow start.
#[derive(Debug)]
pub(in super::super) struct PlusPlus {
    /// windowEnd: the round ends when this number is acknowledged.
    round_end: u32,
    /// lastRoundMinRTT and currentRoundMinRTT in seconds.
    last_rtt_s: f64,
    rtt_s: f64,
    /// rttSampleCount
    samples: u32,
    conservative: Option<Conservative>,
}

/// Conservative slow start.
#[derive(Copy, Clone, Debug)]
struct Conservative {
    /// cssBaselineMinRtt in seconds.
    baseline_s: f64,
    /// The rounds that have begun in it.
    rounds: u32,
}

impl Default for PlusPlus {
    fn default() -> PlusPlus {
        PlusPlus {
            round_end: 0,
            last_rtt_s: f64::INFINITY,
            rtt_s: f64::INFINITY,
            samples: 0,
            conservative: None,
        }
    }
}

impl PlusPlus {
    /// Handles an acknowledgement of all segments below `first` when `next` is the next new number,
    /// with a sample of the round-trip time, or 0. Returns whether slow start ends (section 4.2).
    pub(super) fn on_ack(&mut self, first: u32, next: u32, rtt_s: f64) -> bool {
        if rtt_s > 0.0 {
            self.rtt_s = self.rtt_s.min(rtt_s);
            self.samples += 1;
        }
        match self.conservative {
            None if self.has_risen() => {
                self.conservative = Some(Conservative {
                    baseline_s: self.rtt_s,
                    rounds: 1,
                });
            }
            Some(state) if self.samples >= SAMPLES && self.rtt_s < state.baseline_s => {
                self.conservative = None;
            }
            _ => {}
        }
        first > self.round_end && self.begin_round(next)
    }

    /// Returns the growth of the window in segments for an acknowledgement of `acknowledged`.
    pub(super) fn growth(&self, acknowledged: u32) -> f64 {
        let counted = f64::from(acknowledged.min(COUNTED));
        match self.conservative {
            None => counted,
            Some(_) => counted / GROWTH_DIVISOR,
        }
    }

    fn has_risen(&self) -> bool {
        let threshold_s = (self.last_rtt_s / RTT_DIVISOR).clamp(THRESHOLD_S.0, THRESHOLD_S.1);
        self.samples >= SAMPLES && self.rtt_s >= self.last_rtt_s + threshold_s
    }

    /// Begins a round. Returns whether conservative slow start has lasted long enough.
    fn begin_round(&mut self, next: u32) -> bool {
        self.round_end = next;
        self.last_rtt_s = self.rtt_s;
        self.rtt_s = f64::INFINITY;
        self.samples = 0;
        let Some(state) = &mut self.conservative else {
            return false;
        };
        state.rounds += 1;
        state.rounds > ROUNDS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs rounds of 20 acknowledgements each with these round-trip times. Returns the growth of
    /// each round, up to the end of slow start.
    fn rounds(rtts_s: &[f64]) -> Vec<f64> {
        let (mut hystart, mut first) = (PlusPlus::default(), 0);
        let mut growths = Vec::new();
        for rtt_s in rtts_s {
            let mut growth = 0.0;
            for _ in 0..20 {
                first += 1;
                if hystart.on_ack(first, first + 20, *rtt_s) {
                    return growths;
                }
                growth += hystart.growth(1);
            }
            growths.push(growth);
        }
        growths
    }

    #[test]
    fn a_steady_round_trip_leaves_slow_start_alone() {
        assert_eq!(rounds(&[0.05; 8]), [20.0; 8]);
    }

    #[test]
    fn a_rise_makes_growth_slow_for_five_rounds_and_then_ends_it() {
        let growths = rounds(&[0.05, 0.05, 0.06, 0.07, 0.08, 0.09, 0.1, 0.11, 0.12]);
        assert_eq!(growths[..2], [20.0; 2]);
        assert!(growths[2] < 20.0 && growths[3] == 5.0, "{growths:?}");
        assert!((6..=7).contains(&growths.len()), "{growths:?}");
    }

    #[test]
    fn after_a_rise_that_was_noise_slow_start_continues() {
        let growths = rounds(&[0.05, 0.05, 0.06, 0.05, 0.05]);
        assert!(growths[2] < 20.0 && growths[4] == 20.0, "{growths:?}");
    }
}
