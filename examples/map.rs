//! A map that replicas at several daemons have alike, over an ordered group.
//!
//! Each operation, reads included, is a safe message to the group, and each replica applies all of
//! them in their order. So the map is linearizable, as long as these rules hold:
//!
//! - After each view, each member sends its values, and the last view in which it has served. When
//!   the states of all members are there, the values of the latest of these views count. Until
//!   then, nobody serves.
//! - A view serves if most of all replicas had values before, or if all begin without any. Two such
//!   views in a row have a replica in common, so no operation of a minority is ever believed.
//! - A replica answers when it has delivered its operation. Then all members have it, and all
//!   operations before it, because it was safe. After a transitional signal this is not certain:
//!   the replica applies the operation, because others may have answered, but answers `Unknown`.
//! - A replica that loses its connection may have missed operations. It begins without values.
//!
//! Each change of the members sends the whole map from each of them, which suits small maps.

use std::collections::{BTreeMap, BTreeSet};

use manyflow_messages::{Client, GroupViewId, Member, MemberEvent, OrderedMessage, Service, View};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot, watch};

/// The ordered group of the replicas.
const GROUP: &str = "map";

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// An operation on the value of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// Reads the value.
    Get(String),
    /// Reads the value that this replica has, without the others. It can be old, so this alone is
    /// not linearizable.
    Peek(String),
    /// Sets the value.
    Put(String, u64),
    /// Sets the value to the second one if it is the first one.
    CompareAndSet(String, Option<u64>, u64),
}

/// The answer to an operation.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The value that was read.
    Value(Option<u64>),
    /// Whether the value was set.
    Stored(bool),
    /// The operation was not made, because most replicas cannot be reached or begin.
    NotServed,
    /// The operation may have been made, because replicas were lost meanwhile.
    Unknown,
}

/// An operation of a program, and where its answer goes. No answer means [`Answer::Unknown`].
pub type Request = (Operation, oneshot::Sender<Answer>);

/// A message of the group.
#[derive(Debug, Serialize, Deserialize)]
enum Entry {
    /// The sender's operation of this number.
    Operation(u64, Operation),
    State(State),
}

/// The state of a replica at the beginning of a view.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct State {
    replica: String,
    view: String,
    /// The last view in which the replica has served; `None` if it has no values yet.
    served: Option<String>,
    values: BTreeMap<String, u64>,
}

/// The reaction of a replica to an event.
#[derive(Debug)]
enum Action {
    Send(Entry),
    Answer(u64, Answer),
}

/// One of the replicas, without its connection.
#[derive(Debug)]
pub struct Replica {
    name: String,
    replicas: usize,
    values: BTreeMap<String, u64>,
    served: Option<GroupViewId>,
    view: Option<View>,
    is_transitional: bool,
    /// The states of members in this view, by the members' names.
    states: BTreeMap<String, State>,
}

impl Replica {
    /// Returns one of a number of replicas, which have different names.
    pub fn new(name: &str, replicas: usize) -> Replica {
        Replica {
            name: name.to_owned(),
            replicas,
            values: BTreeMap::new(),
            served: None,
            view: None,
            is_transitional: false,
            states: BTreeMap::new(),
        }
    }

    /// Returns the number of replicas in a view that serves; 0 in another one.
    fn serving(&self) -> usize {
        let view = self.view.as_ref();
        let view = view.filter(|view| self.served == Some(view.id));
        view.map_or(0, |view| view.members.len())
    }

    fn handle(&mut self, event: MemberEvent) -> Result<Option<Action>, Failure> {
        match event {
            MemberEvent::View(view) => return Ok(Some(self.handle_view(view))),
            MemberEvent::Transitional(_) => self.is_transitional = true,
            MemberEvent::Message(message) => return self.handle_message(&message),
            _ => {}
        }
        Ok(None)
    }

    fn handle_view(&mut self, view: View) -> Action {
        self.is_transitional = false;
        self.states.clear();
        let state = State {
            replica: self.name.clone(),
            view: view.id.to_string(),
            served: self.served.map(|id| id.to_string()),
            values: self.values.clone(),
        };
        self.view = Some(view);
        Action::Send(Entry::State(state))
    }

    fn handle_message(&mut self, message: &OrderedMessage) -> Result<Option<Action>, Failure> {
        let view = self
            .view
            .as_ref()
            .ok_or("a message before the first view")?;
        match serde_json::from_slice(&message.payload)? {
            Entry::State(state) if state.view == view.id.to_string() => {
                self.states.insert(message.sender.clone(), state);
                if self.states.len() == view.members.len() {
                    self.agree(view.id)?;
                }
                Ok(None)
            }
            Entry::State(_) => Ok(None),
            Entry::Operation(number, operation) => {
                let is_own = message.sender == view.own_name;
                let answer = match self.serving() {
                    0 => Answer::NotServed,
                    _ => self.apply(operation),
                };
                let answer = if self.is_transitional {
                    Answer::Unknown
                } else {
                    answer
                };
                Ok(is_own.then_some(Action::Answer(number, answer)))
            }
        }
    }

    /// Takes the latest values if this view may serve. All states are there.
    fn agree(&mut self, view: GroupViewId) -> Result<(), Failure> {
        let states = self.states.values();
        let all: BTreeSet<&str> = states.clone().map(|state| state.replica.as_str()).collect();
        let informed = states.clone().filter(|state| state.served.is_some());
        let informed: BTreeSet<&str> = informed.map(|state| state.replica.as_str()).collect();
        let may_begin = informed.is_empty() && all.len() == self.replicas;
        if informed.len() * 2 > self.replicas || may_begin {
            let served = |state: &State| state.served.as_ref().map(|id| id.parse()).transpose();
            let mut latest: (Option<GroupViewId>, BTreeMap<String, u64>) = Default::default();
            for state in states {
                let served = served(state)?;
                if served > latest.0 {
                    latest = (served, state.values.clone());
                }
            }
            self.values = latest.1;
            self.served = Some(view);
        }
        Ok(())
    }

    fn apply(&mut self, operation: Operation) -> Answer {
        match operation {
            Operation::Get(key) | Operation::Peek(key) => {
                Answer::Value(self.values.get(&key).copied())
            }
            Operation::Put(key, value) => {
                self.values.insert(key, value);
                Answer::Stored(true)
            }
            Operation::CompareAndSet(key, expected, value) => {
                let is_expected = self.values.get(&key).copied() == expected;
                if is_expected {
                    self.values.insert(key, value);
                }
                Answer::Stored(is_expected)
            }
        }
    }

    /// Takes part until the connection ends, or all requesters are gone. `serving` is set to the
    /// number of replicas in the view, or to 0 while the view does not serve.
    ///
    /// # Errors
    /// If the connection ends. The next replica of this name is a new one.
    pub async fn run(
        mut self,
        client: Client,
        requests: &mut mpsc::Receiver<Request>,
        serving: &watch::Sender<usize>,
    ) -> Result<(), Failure> {
        let mut member: Member = client.member()?;
        member.join(GROUP).await?;
        let (mut pending, mut last) = (BTreeMap::new(), 0);
        loop {
            let entry = tokio::select! {
                event = member.next() => {
                    match self.handle(event.ok_or("the group has ended")??)? {
                        Some(Action::Send(entry)) => Some(entry),
                        Some(Action::Answer(number, answer)) => {
                            let asked: Option<oneshot::Sender<Answer>> = pending.remove(&number);
                            // The requester may have given up.
                            asked.map(|asked| asked.send(answer));
                            None
                        }
                        None => None,
                    }
                }
                request = requests.recv() => {
                    let Some((operation, asked)) = request else {
                        return Ok(());
                    };
                    if let Operation::Peek(_) = operation {
                        let _ = asked.send(self.apply(operation));
                        continue;
                    }
                    last += 1;
                    pending.insert(last, asked);
                    Some(Entry::Operation(last, operation))
                }
            };
            serving.send_replace(self.serving());
            if let Some(entry) = entry {
                let payload = serde_json::to_vec(&entry)?;
                client.multicast(Service::Safe, &[GROUP], payload).await?;
            }
        }
    }
}
