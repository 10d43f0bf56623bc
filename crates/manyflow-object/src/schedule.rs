//! Which block the next packet of a layer serves.
//!
//! Layers are cumulative: who hears layer n hears all lower ones too. In WEBRC layer 0 is the base channel, and layer n
//! the wave channel in its n-th last time slot: a receiver catches the tail of each wave, so what it hears over time is
//! layers 0 to n without a gap, whichever channels bear them.
//!
//! What those hear whose highest layer is n must hold every block in proportion to its symbols, at any time, or they
//! wait for one block while others overflow. So a packet of layer n serves the block that these receivers have been
//! served least: the lower layers are balanced in themselves, and layer n, a quarter of their packets, fills what these
//! leave uneven. Least is meant as in Webster's method of apportionment: the smallest (2 served + 1) / weight. Where
//! many are equal, as among thousands of tiny files, it takes the one that layer n + 1's receivers lack most, so that
//! low layers and high ones do not serve the same files at one time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Keeps every layer's receivers evenly served.
pub(crate) struct Schedule {
    weights: Vec<u64>,
    layers: usize,
    /// Packets of each layer that served each unit; a unit's layers are adjacent.
    served: Vec<u64>,
    /// The order of service of each layer. An entry may be out of date, as other layers served its unit too; it is then
    /// too early, never too late, and is put right when it comes up.
    queues: Vec<BinaryHeap<Reverse<Turn>>>,
}

/// When a unit is due: by its share among the layer's receivers, then by packets that the next layer's have heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    due: u64,
    heard_by_next: u64,
    unit: usize,
}

impl Schedule {
    /// One unit a weight, none of them 0.
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

    /// The unit that the next packet of `layer` serves.
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
                // Layers send at rates that fall by a quarter, as waves do.
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
