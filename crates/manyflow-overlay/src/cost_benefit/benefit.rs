//! The benefit of messages, which scales what their clients are paid (sections IV-A and IV-B.2).

use std::collections::BTreeMap;

use crate::message::GroupId;
use manyflow_core::ConfigError;

/// The least and the most that one message is worth. Outside this range, a client would be paid
/// never, or faster than the clock counts.
const WORTH: (f64, f64) = (1e-3, 1e3);

/// The gain of a client by its messages to a group. A client is paid in proportion to the gain of
/// one more message, its *worth*, which is 1 under [`PerMessage`](Benefit::PerMessage).
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Benefit {
    /// A message is worth 1, so that the network carries as many messages as possible. This is the
    /// paper's choice.
    #[default]
    PerMessage,
    /// A message is worth 1 for each member of its group, at all daemons, which favours senders to
    /// large groups. At most 1000 members count.
    PerReceiver,
    /// The gain of a rate r is k ln(1 + r/k): the first messages of a second are worth 1 each, one
    /// more at the rate k is worth a half.
    Diminishing {
        /// k: the rate in messages per second at which a message is worth a half; positive.
        half_messages_per_s: f64,
    },
    /// The gain is a concave line with corners: the paper's example of a stream in layers, of
    /// which the first few messages of a second are worth $10, some more $5, and the rest $2. The
    /// layers begin with the most valuable for each of its messages. Messages beyond the last are
    /// worth 1/1000.
    Layers(Vec<Layer>),
}

/// Messages of a client that are of use together.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Layer {
    /// The rate of the layer in messages per second, in addition to the layers before; positive.
    pub messages_per_s: f64,
    /// The worth of the layer in dollars, where a message under [`Benefit::PerMessage`] is worth
    /// one; positive.
    pub dollars: f64,
}

impl Layer {
    /// Returns the worth of each of the layer's messages.
    fn worth(&self) -> f64 {
        self.dollars / self.messages_per_s
    }
}

impl Benefit {
    /// Checks the parameters' ranges.
    ///
    /// # Errors
    /// Returns an error if a parameter is outside its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        let in_range = |value: f64| (1e-6..=1e9).contains(&value);
        let layers = match self {
            Benefit::PerMessage | Benefit::PerReceiver => return Ok(()),
            Benefit::Diminishing {
                half_messages_per_s,
            } => {
                return ConfigError::first_of([(
                    "the rate at which a message is worth a half",
                    "1e-6 to 1e9 messages a second",
                    in_range(*half_messages_per_s),
                )]);
            }
            Benefit::Layers(layers) => layers,
        };
        let positive = |layer: &Layer| in_range(layer.messages_per_s) && in_range(layer.dollars);
        ConfigError::first_of([
            (
                "the layers of a benefit",
                "at least one",
                !layers.is_empty(),
            ),
            (
                "the rate and the dollars of a layer",
                "1e-6 to 1e9",
                layers.iter().all(positive),
            ),
            (
                "the layers of a benefit",
                "in the order of what one of their messages is worth, the most first",
                layers.is_sorted_by(|before, after| before.worth() >= after.worth()),
            ),
        ])
    }

    /// Returns what one more message is worth for a client that sends at `messages_per_s`. The
    /// group has as many members as `members` returns.
    pub fn worth(&self, messages_per_s: f64, members: impl FnOnce() -> u32) -> f64 {
        let worth = match self {
            Benefit::PerMessage => return 1.0,
            Benefit::PerReceiver => f64::from(members()),
            Benefit::Diminishing {
                half_messages_per_s: half,
            } => half / (half + messages_per_s),
            Benefit::Layers(layers) => {
                let mut end = 0.0;
                let ends_later = |layer: &&Layer| {
                    end += layer.messages_per_s;
                    messages_per_s < end
                };
                let layer = layers.iter().find(ends_later);
                layer.map_or(0.0, Layer::worth)
            }
        };
        worth.clamp(WORTH.0, WORTH.1)
    }

    /// Returns the rate x in messages per second at which a client buys what it is paid for: the
    /// one with x = `bought` w(x), where w is the worth of one more message and `bought` is the
    /// rate that a client buys whose messages are worth 1. Since the worth never rises with the
    /// rate, there is one such rate, or x is at the end of a layer.
    pub fn rate(&self, bought: f64, members: impl FnOnce() -> u32) -> f64 {
        match self {
            Benefit::PerMessage | Benefit::PerReceiver => bought * self.worth(0.0, members),
            Benefit::Diminishing {
                half_messages_per_s: half,
            } => {
                // The root of x^2 + k x = k b. Far above k, its usual form would lose digits less
                // than far below, where this one keeps them.
                let root = libm::sqrt(half * half + 4.0 * half * bought);
                let rate = 2.0 * half * bought / (half + root);
                rate.max(bought * WORTH.0)
            }
            Benefit::Layers(layers) => rate_in_layers(bought, layers.iter().copied()),
        }
    }
}

/// Returns the [rate](Benefit::rate) of a client whose messages have a benefit in these layers.
pub(crate) fn rate_in_layers(bought: f64, layers: impl IntoIterator<Item = Layer>) -> f64 {
    let mut begin = 0.0;
    for layer in layers {
        let rate = bought * layer.worth().clamp(WORTH.0, WORTH.1);
        let end = begin + layer.messages_per_s;
        if rate <= end {
            return rate.max(begin);
        }
        begin = end;
    }
    (bought * WORTH.0).max(begin)
}

/// The benefits of an overlay's messages by group, the same at all daemons.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Benefits {
    /// The benefit of messages to groups that are not in `groups`.
    pub others: Benefit,
    /// Groups with a benefit of their own.
    pub groups: BTreeMap<GroupId, Benefit>,
}

impl Benefits {
    /// Returns the benefit of messages to a group.
    pub fn of(&self, group: GroupId) -> &Benefit {
        self.groups.get(&group).unwrap_or(&self.others)
    }

    /// Returns the least [rate](Benefit::rate) that a client may send at, to a group of one member.
    pub(super) fn least_rate(&self, bought: f64) -> f64 {
        let groups = self.groups.values();
        let rates = groups.map(|benefit| benefit.rate(bought, || 1));
        rates.fold(self.others.rate(bought, || 1), f64::min)
    }

    /// Checks the parameters' ranges.
    ///
    /// # Errors
    /// Returns an error if a parameter is outside its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        let mut all = self.groups.values().chain([&self.others]);
        all.try_for_each(Benefit::check)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's stream (section IV-A) in messages of a kilobyte: voice, pictures, and colours.
    fn stream() -> Benefit {
        let layer = |messages_per_s, dollars| Layer {
            messages_per_s,
            dollars,
        };
        Benefit::Layers(vec![layer(2.0, 10.0), layer(10.0, 5.0), layer(50.0, 2.0)])
    }

    #[test]
    fn a_client_buys_what_one_more_message_is_worth() {
        let diminishing = Benefit::Diminishing {
            half_messages_per_s: 10.0,
        };
        for benefit in [
            Benefit::PerMessage,
            Benefit::PerReceiver,
            diminishing,
            stream(),
        ] {
            let mut last = 0.0;
            for step in 0..200 {
                let bought = 0.01 * libm::exp2(f64::from(step) / 10.0);
                let rate = benefit.rate(bought, || 3);
                assert!(rate >= last, "{benefit:?}: {rate} after {last}");
                last = rate;
                // Just below the rate, the client would be paid for more; just above, for less.
                let below = bought * benefit.worth(rate * (1.0 - 1e-9), || 3);
                let above = bought * benefit.worth(rate * (1.0 + 1e-9), || 3);
                assert!(
                    below >= rate * (1.0 - 1e-6) && above <= rate * (1.0 + 1e-6),
                    "{benefit:?}: {below} {rate} {above}"
                );
            }
        }
    }

    #[test]
    fn a_client_keeps_a_layer_while_its_price_rises_tenfold() {
        let benefit = stream();
        let rates = [250.0, 24.0, 4.0, 0.4].map(|bought| benefit.rate(bought, || 1));
        assert_eq!(rates, [12.0, 12.0, 2.0, 2.0]);
        assert_eq!(benefit.rate(0.3, || 1), 1.5);
        assert_eq!(benefit.rate(1e6, || 1), 1000.0);
    }

    #[test]
    fn benefits_outside_their_ranges_are_refused() {
        let layers = |layers: &[(f64, f64)]| {
            let layer = |&(messages_per_s, dollars)| Layer {
                messages_per_s,
                dollars,
            };
            Benefit::Layers(layers.iter().map(layer).collect()).check()
        };
        assert!(stream().check().is_ok());
        assert!(layers(&[]).is_err());
        assert!(layers(&[(0.0, 1.0)]).is_err());
        assert!(layers(&[(1.0, f64::NAN)]).is_err());
        assert!(layers(&[(1.0, 1.0), (1.0, 2.0)]).is_err());
        let half_messages_per_s = 0.0;
        let half = Benefit::Diminishing {
            half_messages_per_s,
        };
        let benefits = Benefits {
            groups: BTreeMap::from([(GroupId(1), half)]),
            ..Benefits::default()
        };
        assert!(benefits.check().is_err());
    }
}
