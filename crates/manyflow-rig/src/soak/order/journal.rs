//! The actions and observations of a round's members, as traces for the checker.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use anyhow::{Context as _, Result};
use manyflow_order::check::{End, Sent, Trace, TraceEvent, Viewed};
use manyflow_order::{GroupViewId, Service};
use serde_json::{Value, json};

/// All connections of clients in a round.
#[derive(Debug, Default)]
pub(super) struct Journal {
    lives: Mutex<Vec<Arc<Life>>>,
    next_message: AtomicU64,
}

impl Journal {
    /// Begins the trace of a connection.
    pub(super) fn begin(&self, client: usize) -> Arc<Life> {
        let life = Arc::new(Life {
            client,
            log: Mutex::default(),
        });
        self.lock().push(Arc::clone(&life));
        life
    }

    /// Returns a number that no other message of the round has.
    pub(super) fn next_message(&self) -> u64 {
        self.next_message.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the lowest number that no message has had yet.
    pub(super) fn messages(&self) -> u64 {
        self.next_message.load(Ordering::Relaxed)
    }

    pub(super) fn lives(&self) -> Vec<Arc<Life>> {
        self.lock().clone()
    }

    /// Returns the traces of all connections that have seen a view: a client without one does not
    /// know its name, and has sent nothing.
    pub(super) fn traces(&self) -> Vec<Trace> {
        let lives = self.lives();
        let traces = lives.iter().filter_map(|life| life.log().trace());
        traces.collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Life>>> {
        self.lives.lock().expect("nothing panics with the lock")
    }
}

/// One connection of a client.
#[derive(Debug)]
pub(super) struct Life {
    /// The number of the client.
    pub(super) client: usize,
    log: Mutex<Log>,
}

impl Life {
    pub(super) fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().expect("nothing panics with the lock")
    }
}

/// Everything that a connection did and saw.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// The client's name in views, which the first view has.
    pub(super) name: Option<Arc<str>>,
    events: Vec<TraceEvent>,
    /// The present view of each group that it is a member of.
    pub(super) views: BTreeMap<Arc<str>, (GroupViewId, BTreeSet<Arc<str>>)>,
    /// Messages that it has sent, and the group of each.
    pub(super) sent: BTreeMap<u64, Arc<str>>,
    /// Its own messages to groups that it is a member of, which it has not delivered yet.
    pub(super) expected: BTreeSet<u64>,
    pub(super) delivered: BTreeSet<u64>,
    /// Whether its connection has ended.
    pub(super) is_gone: bool,
}

impl Log {
    /// Notes that a message is sent, before its bytes are.
    pub(super) fn add_sent(&mut self, message: u64, service: Service, group: &Arc<str>) {
        self.events.push(TraceEvent::Sent(Sent {
            message,
            service,
            groups: vec![Arc::clone(group)],
            self_discard: false,
        }));
        self.sent.insert(message, Arc::clone(group));
        if self.views.contains_key(group) {
            self.expected.insert(message);
        }
    }

    /// Notes a message that has arrived.
    pub(super) fn add_delivered(&mut self, message: u64) {
        self.events.push(TraceEvent::Delivered(message));
        self.expected.remove(&message);
        self.delivered.insert(message);
    }

    /// Notes a view or a transitional signal, as the daemon publishes it.
    pub(super) fn add_published(&mut self, text: &[u8]) -> Result<()> {
        let object: Value = serde_json::from_slice(text).context("a view is no JSON")?;
        self.name.get_or_insert(text_of(&object["self"])?);
        let group = text_of(&object["group"])?;
        if object["transitional"] == true {
            self.events.push(TraceEvent::Transitional(group));
            return Ok(());
        }
        let view = Viewed {
            group: Arc::clone(&group),
            id: text_of(&object["view"])?.parse()?,
            members: names_of(&object["members"])?.into(),
            by_network: object["cause"] == "network",
            stayed: names_of(&object["stayed"])?.into(),
        };
        let members = view.members.iter().cloned().collect();
        self.views.insert(group, (view.id, members));
        self.events.push(TraceEvent::View(view));
        Ok(())
    }

    pub(super) fn trace(&self) -> Option<Trace> {
        Some(Trace {
            member: Arc::clone(self.name.as_ref()?),
            events: self.events.clone(),
            end: match self.is_gone {
                true => End::Gone,
                false => End::Quiet,
            },
        })
    }
}

fn text_of(value: &Value) -> Result<Arc<str>> {
    let text = value.as_str();
    Ok(text.context("a view lacks a key")?.into())
}

fn names_of(value: &Value) -> Result<Vec<Arc<str>>> {
    let names = value.as_array().context("a view lacks its members")?;
    names.iter().map(text_of).collect()
}

/// Returns a trace in the format of `manyflow check-order`.
pub(super) fn lines(trace: &Trace) -> String {
    let member = &*trace.member;
    let names = |names: &[Arc<str>]| {
        names
            .iter()
            .map(|name| name.to_string())
            .collect::<Vec<_>>()
    };
    let mut lines = String::new();
    for event in &trace.events {
        let line = match event {
            TraceEvent::Sent(sent) => json!({
                "event": "sent", "member": member, "message": sent.message,
                "service": sent.service.to_string(), "groups": names(&sent.groups),
            }),
            TraceEvent::Delivered(message) => {
                json!({"event": "delivered", "member": member, "message": message})
            }
            TraceEvent::View(view) => json!({
                "event": "view", "member": member, "group": *view.group, "view": view.id.to_string(),
                "members": names(&view.members), "stayed": names(&view.stayed),
                // The checker only asks whether it was the network.
                "cause": if view.by_network { "network" } else { "join" },
            }),
            TraceEvent::Transitional(group) => {
                json!({"event": "transitional", "member": member, "group": **group})
            }
            TraceEvent::Left(group) => json!({"event": "left", "member": member, "group": **group}),
        };
        lines += &format!("{line}\n");
    }
    let how = match trace.end {
        End::Gone => "gone",
        End::Quiet => "quiet",
    };
    lines
        + &format!(
            "{}\n",
            json!({"event": "end", "member": member, "how": how})
        )
}

#[cfg(test)]
mod tests {
    use manyflow_order::check::{Property, check};

    use super::*;

    const VIEW: &str = r##"{"group":"g","view":"1-00000000000000aa.0","members":["#a#x","#b#y"],
        "cause":"network","who":null,"stayed":[],"self":"NAME"}"##;

    /// Two members of a group, of which the first has sent two messages.
    fn two_members() -> (Journal, [Arc<Life>; 2]) {
        let journal = Journal::default();
        let lives = [journal.begin(0), journal.begin(1)];
        for (life, name) in lives.iter().zip(["#a#x", "#b#y"]) {
            let view = VIEW.replace("NAME", name);
            life.log().add_published(view.as_bytes()).unwrap();
        }
        for service in [Service::Agreed, Service::Safe] {
            let number = journal.next_message();
            lives[0].log().add_sent(number, service, &"g".into());
        }
        (journal, lives)
    }

    #[test]
    fn traces_of_members_that_miss_nothing_pass_the_checker() {
        let (journal, lives) = two_members();
        for life in &lives {
            (0..2).for_each(|message| life.log().add_delivered(message));
        }
        assert_eq!(check(&journal.traces()), []);
        assert!(lives[0].log().expected.is_empty());
    }

    #[test]
    fn a_missing_message_is_found_unless_the_member_is_gone() {
        let (journal, lives) = two_members();
        (0..2).for_each(|message| lives[0].log().add_delivered(message));
        lives[1].log().add_delivered(0);
        let found = check(&journal.traces());
        let properties: Vec<_> = found.iter().map(|violation| violation.property).collect();
        assert!(properties.contains(&Property::Safety), "{found:?}");
        lives[1].log().is_gone = true;
        assert_eq!(check(&journal.traces()), []);
    }

    #[test]
    fn a_trace_is_written_as_check_order_reads_it() {
        let (journal, lives) = two_members();
        lives[1].log().add_delivered(0);
        let text = lines(&journal.traces()[1]);
        let events: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let kinds: Vec<_> = events.iter().map(|event| &event["event"]).collect();
        assert_eq!(kinds, ["view", "delivered", "end"]);
        assert!(events.iter().all(|event| event["member"] == "#b#y"));
        assert_eq!(events[2]["how"], "quiet");
    }
}
