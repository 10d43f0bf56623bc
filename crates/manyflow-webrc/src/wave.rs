//! The shape of a wave, and the times of its packets (RFC 3738 section 3.1.2; the paper's Fig. 1).
//!
//! From its third time slot on, a wave falls exponentially, by the factor P per slot, down to BCR_P
//! at its end. Let E(k) be that curve at layer k, and S(k) the rate of the base channel and the k
//! lowest layers together. The first two slots are shaped such that the sum over all channels is
//! the session rate SR. The waves below leave a residue of R = SR - S(N-2), which the two highest
//! waves share:
//!
//! ```text
//!   phase of the slot   0 .. u0      u0 .. u1     u1 .. 1
//!   second slot         R            R - BCR      E(N-2)
//!   first slot          silent       BCR          SR - S(N-1)
//!
//!   u0: R = 2 BCR, so there is room for another wave
//!   u1: SR - S(N-1) = BCR, so the older wave is on its curve
//! ```
//!
//! Each piece is a constant minus an exponential, so the number of packets that are still to be
//! sent has a closed form. Its inverse gives the time of a packet. A wave's last packet is sent
//! half a packet spacing before the wave's end.

use super::Session;

/// The shape of a wave, which all waves of a session share.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wave {
    pieces: Vec<Piece>,
    packets: u64,
}

/// A part of a wave with the rate `constant - exponential P^((t - origin) / TSD)`, in packets per
/// second.
#[derive(Clone, Debug, PartialEq)]
struct Piece {
    start_s: f64,
    end_s: f64,
    origin_s: f64,
    constant: f64,
    exponential: f64,
    /// ln(1/P) / TSD, per second.
    decay: f64,
    /// The exponential term at the end of the piece.
    falling_at_end: f64,
    /// Packets in the whole piece, as a fluid.
    total: f64,
    /// Packets that are still to be sent at the end of the piece, as a fluid.
    remaining_after: f64,
}

impl Piece {
    fn falling(&self, t_s: f64) -> f64 {
        self.exponential * libm::exp(-self.decay * (t_s - self.origin_s))
    }

    fn rate(&self, t_s: f64) -> f64 {
        self.constant - self.falling(t_s)
    }

    /// Packets from `t_s` to the end of the piece, as a fluid.
    fn remaining(&self, t_s: f64) -> f64 {
        self.constant * (self.end_s - t_s) - (self.falling(t_s) - self.falling_at_end) / self.decay
    }

    /// Returns the time at which `packets` remain in this piece: the inverse of
    /// [`remaining`](Piece::remaining). It has a closed form if the piece is constant or has no
    /// constant term.
    fn time_of(&self, packets: f64) -> f64 {
        let t_s = if self.exponential == 0.0 {
            self.end_s - packets / self.constant
        } else if self.constant == 0.0 {
            let falling = self.falling_at_end - packets * self.decay;
            self.origin_s - libm::log(falling / self.exponential) / self.decay
        } else {
            self.solve(packets)
        };
        t_s.clamp(self.start_s, self.end_s)
    }

    /// Inverts [`remaining`](Piece::remaining) by Newton's method. The function is smooth and falls
    /// everywhere, so a few steps reach a nanosecond.
    fn solve(&self, packets: f64) -> f64 {
        let mut t_s = self.end_s - (self.end_s - self.start_s) * packets / self.total;
        for _ in 0..20 {
            let falling = self.falling(t_s);
            let remaining =
                self.constant * (self.end_s - t_s) - (falling - self.falling_at_end) / self.decay;
            let step = (remaining - packets) / (self.constant - falling);
            t_s = (t_s + step).clamp(self.start_s, self.end_s);
            if step.abs() < 1e-10 {
                break;
            }
        }
        t_s
    }
}

impl Wave {
    /// Computes the shape of the waves of `session`.
    pub fn new(session: &Session) -> Wave {
        let mut pieces = pieces(session);
        let mut remaining = 0.0;
        for piece in pieces.iter_mut().rev() {
            piece.falling_at_end = piece.falling(piece.end_s);
            piece.total = piece.remaining(piece.start_s);
            piece.remaining_after = remaining;
            remaining += piece.total;
        }
        Wave {
            packets: (remaining + 0.5) as u64,
            pieces,
        }
    }

    /// Returns the number of packets in a wave.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Returns the rate in packets per second, `t_s` seconds after the beginning of the wave's
    /// first slot; 0 while the wave is silent.
    pub fn rate(&self, t_s: f64) -> f64 {
        let piece = self
            .pieces
            .iter()
            .find(|piece| (piece.start_s..piece.end_s).contains(&t_s));
        piece.map_or(0.0, |piece| piece.rate(t_s))
    }

    /// Returns the time of the packet with which `remaining` packets are still to be sent, itself
    /// included: the last packet has 1. The time is in seconds since the beginning of the wave's
    /// first slot.
    pub fn time_of(&self, remaining: u64) -> f64 {
        let fluid = remaining as f64 - 0.5;
        let piece = self
            .pieces
            .iter()
            .rev()
            .find(|piece| fluid <= piece.remaining_after + piece.total);
        // Rounding may place the first packet slightly before the first piece.
        let piece = piece.unwrap_or(&self.pieces[0]);
        piece.time_of(fluid - piece.remaining_after)
    }

    /// Returns the number of packets that are still to be sent `t_s` seconds after the beginning of
    /// the wave's first slot.
    pub fn remaining_at(&self, t_s: f64) -> u64 {
        let rest = |piece: &Piece| piece.remaining_after + piece.remaining(t_s.max(piece.start_s));
        let current = self.pieces.iter().find(|piece| t_s < piece.end_s);
        current.map_or(0, |piece| ((rest(piece) + 0.5) as u64).min(self.packets))
    }
}

/// Returns the pieces of non-zero length, in order.
fn pieces(session: &Session) -> Vec<Piece> {
    let slot_s = session.time_slot_s();
    let waves = session.active_slots();
    let decay = -libm::log(session.decrease()) / slot_s;
    let piece = |start_s, end_s, origin_s, constant, exponential| Piece {
        start_s,
        end_s,
        origin_s,
        constant,
        exponential,
        decay,
        falling_at_end: 0.0,
        total: 0.0,
        remaining_after: 0.0,
    };
    let end_s = f64::from(waves) * slot_s;
    let curve = -session.layer_rate(waves - 1, 0.0);
    if !session.config().constant_aggregate {
        return vec![piece(0.0, end_s, 0.0, 0.0, curve)];
    }
    let (rate, base) = (session.session_rate(), session.base_rate());
    let below = |layers: u32| session.subscribed_rate(layers, 0.0);
    // The phase at which a rate that falls from `fluid` has reached `rate - level`.
    let phase = |level: f64, fluid: f64| {
        let power = ((rate - level) / fluid).clamp(f64::MIN_POSITIVE, 1.0);
        (libm::log(power) / libm::log(session.decrease())).min(1.0)
    };
    let room_s = phase(2.0 * base, below(waves - 2)) * slot_s;
    let on_curve_s = (phase(base, below(waves - 1)) * slot_s).max(room_s);
    let all = vec![
        piece(room_s, on_curve_s, 0.0, base, 0.0),
        piece(on_curve_s, slot_s, 0.0, rate, below(waves - 1)),
        piece(slot_s, slot_s + room_s, slot_s, rate, below(waves - 2)),
        piece(
            slot_s + room_s,
            slot_s + on_curve_s,
            slot_s,
            rate - base,
            below(waves - 2),
        ),
        piece(slot_s + on_curve_s, end_s, 0.0, 0.0, curve),
    ];
    all.into_iter()
        .filter(|piece| piece.end_s > piece.start_s)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SessionConfig;
    use manyflow_core::units::Rate;
    use proptest::prelude::*;

    fn session(kbit_per_s: u64, constant_aggregate: bool) -> Session {
        let config = SessionConfig::wan(Rate::from_bits_per_s(kbit_per_s * 1000));
        Session::new(SessionConfig {
            constant_aggregate,
            ..config
        })
        .unwrap()
    }

    /// Returns the rate of base and waves together at a phase of a slot. Layer k is in its slot
    /// N-1-k.
    fn total_rate(session: &Session, wave: &Wave, phase: f64) -> f64 {
        let slots = 0..session.active_slots();
        let waves: f64 = slots
            .map(|slot| wave.rate((f64::from(slot) + phase) * session.time_slot_s()))
            .sum();
        waves + session.base_rate() * session.power(phase)
    }

    proptest! {
        #[test]
        fn all_channels_together_send_at_the_session_rate(kbit in 20u64..1_000_000, phase in 0.0..0.9999) {
            let session = session(kbit, true);
            let total = total_rate(&session, &Wave::new(&session), phase);
            prop_assert!((total / session.session_rate() - 1.0).abs() < 1e-9, "{} of {}", total, session.session_rate());
        }

        #[test]
        fn no_wave_falls_below_the_base_rate_while_a_newer_one_is_active(kbit in 20u64..1_000_000, phase in 0.0..0.9999) {
            let session = session(kbit, true);
            let wave = Wave::new(&session);
            let (first, second) = (wave.rate(phase * 10.0), wave.rate((1.0 + phase) * 10.0));
            prop_assert!(first == 0.0 || first >= 0.999, "{}", first);
            prop_assert!(second >= 0.999 || (first == 0.0 && second >= 0.749), "{}", second);
        }

        #[test]
        fn packets_leave_in_order_within_the_wave(kbit in 40u64..3_000, constant: bool) {
            let session = session(kbit, constant);
            let wave = Wave::new(&session);
            let end_s = f64::from(session.active_slots()) * session.time_slot_s();
            let mut previous = 0.0;
            for remaining in (1..=wave.packets()).rev() {
                let t_s = wave.time_of(remaining);
                prop_assert!(t_s >= previous && t_s < end_s);
                prop_assert_eq!(wave.remaining_at(t_s + 1e-6), remaining - 1);
                previous = t_s;
            }
        }
    }

    #[test]
    fn a_wave_falls_to_the_base_rate_at_its_end() {
        let session = session(10_000, true);
        let wave = Wave::new(&session);
        let end_s = f64::from(session.active_slots()) * 10.0;
        assert!((wave.rate(end_s - 1e-6) - 1.0).abs() < 1e-6);
        assert!((wave.rate(end_s - 10.0) - 1.0 / 0.75).abs() < 1e-6);
        assert_eq!(wave.rate(end_s), 0.0);
    }

    #[test]
    fn a_varying_aggregate_stays_within_the_session_rate() {
        let session = session(10_000, false);
        let wave = Wave::new(&session);
        assert!(total_rate(&session, &wave, 0.0) <= session.session_rate());
        assert!(total_rate(&session, &wave, 0.0) > 0.74 * session.session_rate());
    }
}
