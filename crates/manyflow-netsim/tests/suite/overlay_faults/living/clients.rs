//! Clients at a daemon that send or read, and connect again when their daemon restarts.

use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard};

use manyflow_core::{Contents, Time};
use manyflow_overlay::{Client, ClientEvent, ClientFrame, ClientId, DaemonId, Data, GroupId};

use super::plan::{LAST, Member, Sender};

/// The time that a client needs to connect again.
const AGAIN: Duration = Duration::from_millis(100);
/// A message's identity: its sender in the upper 8 bits, the sender's life in the next 8, and its
/// number.
const LIFE: u32 = 1 << 16;
const SENDER: u32 = 1 << 24;

/// The actions of a client between the start of its daemon and the crash.
#[derive(Debug, Default)]
pub(crate) struct Life {
    /// The life of the daemon.
    pub(crate) daemon_life: usize,
    pub(crate) begun: Time,
    /// The group of each message of a sender, and the time at which the daemon accepted it.
    pub(crate) taken: Vec<(GroupId, Time)>,
    /// The origin and header of each message that a member has read.
    pub(crate) read: Vec<(DaemonId, Data)>,
    /// Whether a sender has sent all messages.
    pub(crate) over: bool,
}

/// The lives of a client, which the test reads while the client is in the network.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<Life>>>);

impl Log {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Vec<Life>> {
        self.0.lock().unwrap()
    }

    fn present(&self, change: impl FnOnce(&mut Life)) {
        if let Some(life) = self.lock().last_mut() {
            change(life);
        }
    }
}

/// Returns the sender, its life and the number of a message.
pub(crate) fn identity(data: &Data) -> (usize, usize, usize) {
    let part = |bits: u32| (bits & 0xff) as usize;
    let number = (data.sent_us % LIFE) as usize;
    (
        part(data.sent_us / SENDER),
        part(data.sent_us / LIFE),
        number,
    )
}

pub(crate) enum Task {
    /// Sends messages as the sender with this number.
    Sends(u32, Sender),
    Reads(Member),
}

/// A client, and its connection if it has one.
pub(crate) struct Person {
    task: Task,
    pub(crate) log: Log,
    pub(crate) connection: Option<(ClientId, Client<Contents>)>,
    connects_at: Option<Time>,
    sends_at: Option<Time>,
    busy_until: Option<Time>,
}

impl Person {
    pub(crate) fn new(task: Task, log: Log) -> Person {
        Person {
            task,
            log,
            connection: None,
            connects_at: None,
            sends_at: None,
            busy_until: None,
        }
    }

    /// Handles the start of the daemon.
    pub(crate) fn on_start(&mut self, now: Time) {
        let start = match &self.task {
            Task::Sends(_, sender) => sender.start,
            Task::Reads(member) => member.start,
        };
        self.connects_at = Some(start.max(now + AGAIN));
    }

    /// Handles the crash of the daemon.
    pub(crate) fn on_crash(&mut self) {
        self.connection = None;
        (self.connects_at, self.sends_at, self.busy_until) = (None, None, None);
    }

    /// Returns whether the client connects now.
    pub(crate) fn connects(&mut self, now: Time) -> bool {
        self.connects_at.take_if(|at| *at <= now).is_some()
    }

    pub(crate) fn on_connect(&mut self, now: Time, id: ClientId, daemon_life: usize) {
        let mut client = Client::new();
        client.connect(100);
        // The daemon has connected the client already.
        client.poll_transmit();
        match &self.task {
            Task::Sends(..) => self.sends_at = Some(now),
            Task::Reads(member) => {
                for group in &member.groups {
                    client.join(*group, Contents::from(&group.0.to_be_bytes()[..]));
                }
            }
        }
        self.connection = Some((id, client));
        self.log.lock().push(Life {
            daemon_life,
            begun: now,
            ..Life::default()
        });
    }

    pub(crate) fn handle_frame(&mut self, now: Time, frame: &ClientFrame, payload: Contents) {
        let Some((_, client)) = &mut self.connection else {
            return;
        };
        client.handle_frame(frame, payload).unwrap();
        let mut is_ready = false;
        while let Some(event) = client.poll_event() {
            is_ready |= event == ClientEvent::Ready;
        }
        if is_ready {
            self.on_ready(now);
        }
    }

    fn on_ready(&mut self, now: Time) {
        let Task::Sends(_, sender) = &self.task else {
            return;
        };
        let groups = &sender.groups;
        self.log.present(|life| {
            let number = life.taken.len();
            life.taken.push((groups[number % groups.len()], now));
            let (all, last) = (sender.messages as usize, groups.len());
            let sent = life.taken.len();
            life.over = sent == all + last;
            self.sends_at = match sent {
                _ if life.over => None,
                _ if sent >= all => Some(now.max(LAST)),
                _ => Some(now + sender.pause.max(Duration::from_micros(100))),
            };
        });
    }

    /// Sends and reads what is due.
    pub(crate) fn work(&mut self, now: Time) {
        let Some((_, client)) = &mut self.connection else {
            return;
        };
        match &self.task {
            Task::Sends(number, sender) => {
                if self.sends_at.take_if(|at| *at <= now).is_some() {
                    let lives = self.log.lock();
                    let message = lives.last().map_or(0, |life| life.taken.len());
                    let group = sender.groups[message % sender.groups.len()];
                    let identity = number * SENDER + (lives.len() as u32 - 1) * LIFE;
                    let payload = Contents::from(1 + message as u32 * 7919 % 1400);
                    let sent = client.send(group, identity + message as u32, payload);
                    sent.unwrap();
                }
            }
            Task::Reads(member) => {
                if self.busy_until.take_if(|until| *until <= now).is_some()
                    && let Some(message) = client.read()
                {
                    self.log
                        .present(|life| life.read.push((message.origin, message.data)));
                }
                if self.busy_until.is_none() && client.unread() > 0 {
                    self.busy_until = Some(now + member.service);
                }
            }
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        let times = [self.connects_at, self.sends_at, self.busy_until];
        times.into_iter().flatten().min()
    }
}
