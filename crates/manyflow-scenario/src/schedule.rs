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
pub struct Schedule {
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
    pub fn new(schema: &Schema, topology: &Topology) -> Result<Schedule, Fault> {
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

    /// Returns the links that change.
    pub fn links(&self) -> impl Iterator<Item = LinkId> {
        self.configs.keys().copied().map(LinkId)
    }

    /// Returns the number of changes that have been expanded so far.
    pub fn changes_made(&self) -> usize {
        self.rules.iter().map(|rule| rule.made).sum()
    }

    /// Returns the time of the next change.
    pub fn next_time(&self) -> Option<Time> {
        self.rules.iter().filter_map(|rule| rule.next).min()
    }

    /// Schedules all changes until `end` in the network, in order of time. Changes at the
    /// same time keep the order of the file.
    pub fn apply_until(&mut self, network: &mut dyn World, end: Time) {
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
