//! FLID-DL, Fair Layered Increase/Decrease with Dynamic Layering: receivers change their level once
//! in a time slot, at signals in the data, and channels lose rate by themselves.
//!
//! Source: Byers, Frumin, Horn, Luby, Mitzenmacher, Roetter and Shaver, "FLID-DL: Congestion
//! Control for Layered Multicast", NGC 2000; Byers, Horn, Luby, Mitzenmacher and Shaver, IEEE JSAC
//! 20(8), 2002, here called the paper. Its abstract and what WEBRC's paper says about it were at
//! hand: time slots of half a second, increases at signals of the sender that keep the growth of a
//! rate linear on average, geometric steps, and layers that make slow leaves harmless and probes
//! needless. The rest is cited from memory. SIM's authors expect their conclusions about RLM to
//! hold for FLID (section IV-H of their paper).
//!
//! ```text
//!             slot 0   slot 1   slot 2   slot 3
//!   channel 1 layer 1  quiet    quiet    layer 3      each channel falls by one layer in a slot
//!   channel 2 layer 2  layer 1  quiet    quiet        a receiver at level 2 has layers 1 and 2:
//!   channel 3 layer 3  layer 2  layer 1  quiet        it joins one channel in each slot
//!   channel 4 quiet    layer 3  layer 2  layer 1
//!   channel 5 quiet    quiet    layer 3  layer 2      channel 0 always carries the base
//! ```
//!
//! - **Layers.** Level i has the rate B_i = B_0 c^i, with c = 1.3: layer i adds B_i - B_(i-1) to
//!   the base.
//! - **Dynamic layering.** The layers wander over the channels. A channel begins with the top
//!   layer, carries the next lower one in each slot, and is quiet after the lowest. A receiver that
//!   does nothing falls by one level in a slot, so that a lower rate does not wait for a leave. To
//!   keep its level it joins one channel, and to rise it joins two. It leaves channels that are
//!   quiet.
//! - **Decrease.** A receiver that has lost packets in a slot joins nothing at its end.
//! - **Increase.** Each slot has a signal s, which all its packets carry: receivers at a level
//!   below s that have lost nothing rise by one level at the end of the slot. Signals are nested,
//!   so that those behind one bottleneck rise together. The sender draws them: a receiver at level
//!   i finds one with the probability p_i.
//! - **Fairness.** TCP adds a packet per round-trip time R in each round-trip time, and keeps half
//!   of its rate at a loss. A sender that adds a packets and keeps the share b has the same average
//!   rate at the same losses if a = 3 (1 - b) / (1 + b); here b = 1/c. With packets of s bytes and
//!   slots of T seconds, p_i (B_(i+1) - B_i) = a s T / R^2 gives the growth of a packets. The
//!   signal is the highest one whose probability exceeds a number that is drawn evenly from 0 to 1.
//!
//! Choices where the paper leaves something open, or where our memory of it is uncertain:
//!
//! - R, the round-trip time of the TCP that the signals are fair to, is 100 ms. At lower values,
//!   and for low levels, p_i is 1.
//! - A channel is quiet for four slots, 2 s, before it begins again.
//! - A receiver does not rise at the end of its first slot, of which it has seen a part.
//! - A gap belongs to the slot of the packet behind it. A receiver that loses packets in two slots
//!   falls twice: it is never deaf.
//! - A receiver that hears nothing for some slots falls by one level in each, as its channels do.
//! - The base is never left.
//! - The field of the request carries the number of the slot modulo the number of dynamic channels,
//!   and the signal ([`slot_field`]).
//! - Packets leave at random points of their intervals, as those of [RLM](crate::rlm).

mod config;
mod receiver;
mod sender;

pub use config::{ConfigError, ReceiverConfig, SenderConfig};
pub use receiver::Receiver;
pub use sender::Sender;

/// The number of bits of a signal in the request field.
const SIGNAL_BITS: u32 = 5;

/// Returns the request field of a packet in a slot whose number is `index` modulo the number of
/// dynamic channels, and whose increase signal is `signal`; both are below 32.
pub fn slot_field(index: u8, signal: u8) -> u16 {
    debug_assert!(index < 1 << SIGNAL_BITS && signal < 1 << SIGNAL_BITS);
    u16::from(index) << SIGNAL_BITS | u16::from(signal)
}

/// Returns the index of the slot and its signal in a request field.
fn read_slot_field(field: u16) -> (u8, u8) {
    let signal = field & ((1 << SIGNAL_BITS) - 1);
    ((field >> SIGNAL_BITS) as u8, signal as u8)
}

/// Returns the channel that carries a layer above the base, from 1, in the slot with this index.
/// There are `dynamic` channels besides the base.
fn channel_of(layer: u8, index: u8, dynamic: u8) -> u8 {
    debug_assert!(layer > 0 && layer <= dynamic && index < dynamic);
    ((u16::from(index) + u16::from(layer) - 1) % u16::from(dynamic)) as u8 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_falls_by_one_layer_in_a_slot() {
        for layer in 2..=5 {
            for index in 0..6 {
                let channel = channel_of(layer, index, 7);
                assert_eq!(channel_of(layer - 1, index + 1, 7), channel);
            }
        }
        let in_one_slot: Vec<_> = (1..=5).map(|layer| channel_of(layer, 4, 7)).collect();
        assert_eq!(in_one_slot, [5, 6, 7, 1, 2]);
    }

    #[test]
    fn a_slot_field_is_read_as_it_was_written() {
        for (index, signal) in [(0, 0), (31, 0), (0, 31), (17, 5)] {
            assert_eq!(read_slot_field(slot_field(index, signal)), (index, signal));
        }
    }
}
