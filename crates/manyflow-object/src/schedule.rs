//! Chooses the block that the next packet of a layer serves.
//!
//! Layers are cumulative: a receiver of layer n also receives all lower layers. In WEBRC, layer 0
//! is the base channel, and layer n is the wave channel in its n-th last time slot. A receiver
//! catches the tail of each wave, so over time it receives layers 0 to n without a gap, whichever
//! channels carry them.
//!
//! The receivers whose highest layer is n must always hold every block in proportion to its
//! symbols. Otherwise they wait for one block while they receive surplus symbols of others. So a
//! packet of layer n serves the block that these receivers have received least of. The lower layers
//! are already balanced; layer n carries a quarter of these receivers' packets and evens out the
//! differences that the lower layers leave. "Least" follows Webster's method of apportionment: the
//! smallest (2 served + 1) / weight. Among equals, which are common with thousands of tiny files,
//! the schedule takes the block that the receivers of layer n + 1 lack most, so that low and high
//! layers do not serve the same files at the same time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Keeps the receivers of every layer evenly served.
pub(crate) struct Schedule {
    weights: Vec<u64>,
    layers: usize,
    /// The number of packets of each layer that served each unit; the layers of a unit are
    /// adjacent.
    served: Vec<u64>,
    /// The order of service of each layer. Packets of other layers can make an entry outdated. It
    /// is then too early, never too late, and is corrected when it comes up.
    queues: Vec<BinaryHeap<Reverse<Turn>>>,
}

/// The order in which units are served: by their share among the layer's receivers, then by the
/// packets that the next layer's receivers have received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    due: u64,
    heard_by_next: u64,
    unit: usize,
}

impl Schedule {
    /// Creates one unit for each weight; no weight may be 0.
    pub(crate) fn new(weights: Vec<u64>, layers: u16) -> Self {
        let layers = usize::from(layers);
        let mut schedule = Schedule {
            served: vec![0; weights.len() * layers],
            queues: Vec::new(),
            layers,
            weights,
        };
        let queue: BinaryHeap<_> = (0..schedule.weights.len())
            .map(|unit| Reverse(schedule.turn(unit, 0)))
            .collect();
        schedule.queues = vec![queue; layers];
        schedule
    }

    /// Returns the unit that the next packet of `layer` serves.
    ///
    /// # Panics
    /// If there is no such layer.
    pub(crate) fn next_unit(&mut self, layer: u16) -> usize {
        let layer = usize::from(layer);
        loop {
            let Reverse(noted) = self.queues[layer]
                .pop()
                .expect("each unit is always in each queue");
            let unit = noted.unit;
            let is_due = self.turn(unit, layer) == noted;
            self.served[unit * self.layers + layer] += u64::from(is_due);
            let turn = self.turn(unit, layer);
            self.queues[layer].push(Reverse(turn));
            if is_due {
                return unit;
            }
        }
    }

    /// Counts a packet of `unit` that `layer` sends out of turn.
    pub(crate) fn count(&mut self, unit: usize, layer: u16) {
        self.served[unit * self.layers + usize::from(layer)] += 1;
    }

    fn turn(&self, unit: usize, layer: usize) -> Turn {
        let served = &self.served[unit * self.layers..][..self.layers];
        let heard: u64 = served[..=layer].iter().sum();
        let heard_by_next = heard + served.get(layer + 1).copied().unwrap_or(0);
        Turn {
            due: ((2 * heard + 1) << 24) / self.weights[unit],
            heard_by_next,
            unit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn at_any_time_each_layers_receivers_have_heard_units_by_weight(
            weights in proptest::collection::vec(1_u64..1_000, 1..30), layers in 1_u16..20, skip in 0_usize..5_000, run in 1_usize..5_000,
        ) {
            let mut schedule = Schedule::new(weights.clone(), layers);
            let mut packet = (0_u64..).map(|count| {
                // Send the layers at rates that fall by a quarter from one to the next, as waves
                // do.
                let layer = (0..layers).rev().nth((count.trailing_ones() as usize).min(usize::from(layers) - 1)).unwrap();
                (layer, schedule.next_unit(layer))
            });
            let _ = packet.by_ref().take(skip).count();
            let sent: Vec<_> = packet.take(run).collect();
            let total: u64 = weights.iter().sum();
            for highest in 0..layers {
                let heard: Vec<_> = sent.iter().filter(|&&(layer, _)| layer <= highest).map(|&(_, unit)| unit).collect();
                for (unit, &weight) in weights.iter().enumerate() {
                    let share = heard.len() as f64 * weight as f64 / total as f64;
                    let served = heard.iter().filter(|&&heard| heard == unit).count() as f64;
                    prop_assert!((served - share).abs() < 6.0, "{served} packets where {share} were due");
                }
            }
        }
    }
}
