//! Proportional Rate Reduction: how many segments may be sent during a recovery (RFC 6937, with the
//! Slow Start Reduction Bound of draft-ietf-tcpm-prr-rfc6937bis).
//!
//! Without it, a sender that halves its window stays silent for half a round-trip time and then
//! sends one segment for each acknowledgement. With it, the sender sends in proportion to what is
//! delivered, and its flight ends at the slow start threshold.

/// The state of one recovery.
#[derive(Copy, Clone, Debug)]
pub(super) struct Prr {
    /// RecoverFS: the flight at the beginning, in segments.
    flight: u32,
    /// ssthresh in segments.
    threshold: f64,
    /// prr_delivered
    delivered: u32,
    /// prr_out
    sent: u32,
}

impl Prr {
    /// Begins a recovery with `flight` segments in flight, of which `threshold` are to remain.
    pub(super) fn new(flight: u32, threshold: f64) -> Prr {
        Prr {
            flight: flight.max(1),
            threshold,
            delivered: 0,
            sent: 0,
        }
    }

    /// Handles an acknowledgement that has delivered `delivered` segments. `pipe` are in the
    /// network now; `is_safe` is whether it advances and shows no further loss (SafeACK). Returns
    /// the window in segments.
    pub(super) fn on_ack(&mut self, delivered: u32, pipe: u32, is_safe: bool) -> f64 {
        self.delivered += delivered;
        let pipe_segments = f64::from(pipe);
        let may_send = if pipe_segments > self.threshold {
            let share = f64::from(self.delivered) * self.threshold / f64::from(self.flight);
            (libm::ceil(share) - f64::from(self.sent)).max(0.0)
        } else {
            let conserved = i64::from(self.delivered) - i64::from(self.sent);
            let bound = conserved.max(i64::from(delivered)).max(0) + i64::from(is_safe);
            (bound as f64).min(self.threshold - pipe_segments)
        };
        pipe_segments + may_send
    }

    /// Notes a transmission.
    pub(super) fn on_sent(&mut self) {
        self.sent += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Acknowledges a flight of 20 segments one by one, of which the first `lost` are lost. Returns
    /// the segments sent after each.
    fn recovery(lost: u32, threshold: f64) -> (Vec<u32>, u32) {
        let mut prr = Prr::new(20, threshold);
        let mut pipe = 20 - lost;
        let mut sent = Vec::new();
        for _ in lost..20 {
            pipe -= 1;
            let window = prr.on_ack(1, pipe, false);
            let before = pipe;
            while f64::from(pipe + 1) <= window {
                pipe += 1;
                prr.on_sent();
            }
            sent.push(pipe - before);
        }
        (sent, pipe)
    }

    #[test]
    fn after_one_loss_every_second_acknowledgement_sends_one_segment() {
        let (sent, pipe) = recovery(1, 10.0);
        assert!(sent.iter().all(|count| *count <= 1), "{sent:?}");
        assert!((9..=11).contains(&pipe), "{pipe}");
    }

    #[test]
    fn after_many_losses_the_flight_grows_back_to_the_threshold_by_one_for_one() {
        let (sent, pipe) = recovery(15, 10.0);
        assert_eq!(sent, [1; 5]);
        assert_eq!(pipe, 5);
    }
}
