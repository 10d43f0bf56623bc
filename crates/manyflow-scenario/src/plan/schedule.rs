//! The changes of `[[at]]`. They are expanded only when they are due, because there may be
//! thousands.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use manyflow_core::Time;
use manyflow_core::link::LinkConfig;

use crate::plan::topology::Topology;
use crate::schema::links::LinkProperties;
use crate::schema::{ChangeTable, Schema};
use crate::world::World;
use manyflow_model::error::Fault;
use manyflow_netsim::{Change, LinkId};

/// The changes that remain in a run.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    rules: Vec<Rule>,
    /// The configuration of each link that changes, with all changes so far. Each change
    /// builds on the previous ones.
    configs: BTreeMap<u32, Arc<LinkConfig>>,
}

/// An entry of `[[at]]`.
#[derive(Debug)]
struct Rule {
    /// The time of the next change, or `None` after the last one.
    next: Option<Time>,
    every: Option<Duration>,
    end: Time,
    links: Vec<u32>,
    /// The changes, which alternate.
    turns: Vec<Turn>,
    /// The number of changes made so far.
    made: usize,
}

#[derive(Debug)]
struct Turn {
    cut: Option<bool>,
    set: LinkProperties,
}

impl Schedule {
    /// Reads the changes of a scenario.
    ///
    /// # Errors
    /// Returns an error if a link does not exist.
    pub(crate) fn new(schema: &Schema, topology: &Topology) -> Result<Schedule, Fault> {
        let mut schedule = Schedule::default();
        let duration = schema.run.duration.time();
        for change in &schema.at {
            let links = topology.both_directions(&change.link);
            let links = links.map_err(|problem| Fault::at(&["at", "link"], problem))?;
            for &link in &links {
                let config = &topology.links[link as usize].config;
                schedule.configs.insert(link, Arc::clone(config));
            }
            schedule.rules.push(Rule::new(change, links, duration));
        }
        Ok(schedule)
    }

    /// Returns the time of the next change.
    pub(crate) fn next_time(&self) -> Option<Time> {
        self.rules.iter().filter_map(|rule| rule.next).min()
    }

    /// Schedules all changes until `end` in the network, in order of time. Changes at the
    /// same time keep the order of the file.
    pub(crate) fn apply_until(&mut self, network: &mut dyn World, end: Time) {
        while let Some(time) = self.next_time().filter(|&time| time <= end) {
            for rule in self.rules.iter_mut().filter(|rule| rule.next == Some(time)) {
                rule.apply_next(network, time, &mut self.configs);
            }
        }
    }
}

impl Rule {
    fn new(change: &ChangeTable, links: Vec<u32>, duration: Time) -> Rule {
        let mut turns = vec![Turn {
            cut: change.cut,
            set: change.set.clone(),
        }];
        turns.extend(change.then.clone().map(|then| Turn {
            cut: then.cut,
            set: then.set,
        }));
        let end = change.until.map_or(duration, |until| until.time());
        let first = change.time.time();
        Rule {
            next: (first <= end).then_some(first),
            every: change.every.map(|every| every.duration()),
            end,
            links,
            turns,
            made: 0,
        }
    }

    fn apply_next(
        &mut self,
        network: &mut dyn World,
        time: Time,
        configs: &mut BTreeMap<u32, Arc<LinkConfig>>,
    ) {
        debug_assert_eq!(self.next, Some(time));
        let turn = &self.turns[self.made % self.turns.len()];
        for link in &self.links {
            if let Some(cut) = turn.cut {
                network.at(time, Change::Cut(LinkId(*link), cut));
            }
            if turn.set != LinkProperties::default()
                && let Some(config) = configs.get_mut(link)
            {
                turn.set.apply(Arc::make_mut(config));
                let changed = Change::Configure(LinkId(*link), Arc::clone(config));
                network.at(time, changed);
            }
        }
        self.made += 1;
        let next = self.every.map(|every| time + every);
        self.next = next.filter(|next| *next <= self.end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Network;
    use crate::Scenario;
    use manyflow_core::time::seconds;

    fn network(at: &str) -> (Network, Schedule, LinkId) {
        let text = format!(
            "title = \"t\"\nrun.duration = \"10 s\"\nnodes.names = [\"a\", \"b\"]\n\
             [[links]]\nname = \"l\"\nbetween = [\"a\", \"b\"]\nrate = \"9 Mbit/s\"\ndelay = \"1 ms\"\n{at}"
        );
        let schema = Scenario::parse("t.toml", &text, false).unwrap();
        let schema = schema.cell(0).unwrap().schema;
        let topology = Topology::new(&schema).unwrap();
        let mut network = Network::new(1);
        let [a, b] = ["a", "b"].map(|name| network.add_node(name));
        let (link, _) = network.add_duplex(a, b, Arc::clone(&topology.links[0].config));
        let schedule = Schedule::new(&schema, &topology).unwrap();
        (network, schedule, link)
    }

    /// Returns the rate in Mbit/s at the end of each second.
    fn rates(at: &str) -> Vec<f64> {
        let (mut network, mut schedule, link) = network(at);
        let rate = |second: u32| {
            let now = Time::ZERO + seconds(f64::from(second));
            schedule.apply_until(&mut network, now);
            network.run_until(now, &mut ()).unwrap();
            let rate = network.link_config(link).rate.unwrap();
            assert_eq!(network.link_config(link).delay, Duration::from_millis(1));
            rate.bits_per_s() as f64 / 1e6
        };
        (1..=8).map(rate).collect()
    }

    #[test]
    fn then_alternates_with_set() {
        let alternating = "[[at]]\nlink = \"l\"\ntime = \"1 s\"\nevery = \"2 s\"\nuntil = \"6 s\"\n\
                           set.rate = \"1 Mbit/s\"\nthen.set.rate = \"3 Mbit/s\"\n";
        assert_eq!(rates(alternating), [1.0, 1.0, 3.0, 3.0, 1.0, 1.0, 1.0, 1.0]);
    }

    #[test]
    fn the_later_entry_wins_at_equal_times() {
        let both = "[[at]]\nlink = \"l\"\ntime = \"2 s\"\nset.rate = \"1 Mbit/s\"\n\
                    [[at]]\nlink = \"a-b\"\ntime = \"1 s\"\nevery = \"1 s\"\nuntil = \"2 s\"\n\
                    set.rate = \"4 Mbit/s\"\nthen.set.rate = \"5 Mbit/s\"\n";
        assert_eq!(rates(both)[..3], [4.0, 5.0, 5.0]);
    }

    #[test]
    fn changes_are_expanded_only_until_the_requested_time() {
        let (mut network, mut schedule, _) = network(
            "[[at]]\nlink = \"l\"\ntime = \"0 s\"\nevery = \"1 ms\"\nset.rate = \"1 Mbit/s\"\n",
        );
        for ms in 1..=1000 {
            let now = Time::ZERO + Duration::from_millis(ms);
            schedule.apply_until(&mut network, now);
            network.run_until(now, &mut ()).unwrap();
        }
        // At 0 ms and at each millisecond.
        assert_eq!(schedule.rules[0].made, 1001);
        assert_eq!(
            schedule.next_time(),
            Some(Time::ZERO + Duration::from_millis(1001))
        );
    }
}
