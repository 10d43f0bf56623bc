//! The client's connection, which is opened again when it is lost.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use manyflow_anypoint::switch::Prefix;
use manyflow_core::Time;
use manyflow_net::clock::Clock;
use manyflow_net::reach::Reach;
use manyflow_store::{Answer, Download, Lookup, Request, Survey, Upload};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::{Connect, Frames};

/// The first wait before another attempt to connect; each following one is twice as long.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(5);
/// The bits of a request's number that a machine chooses. Those above are the number of the machine
/// in the session, and the highest are the prefix of the connection.
const MACHINE_BITS: u32 = 36;
const MACHINE_MASK: u64 = (1 << MACHINE_BITS) - 1;
/// The number of machines before their numbers begin again.
const MACHINES: u64 = 1 << (u64::BITS - Prefix::BITS - MACHINE_BITS);

/// Progress of a transfer.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The bytes of chunks that are stored, or read.
    pub bytes: u64,
    /// The length of the file in bytes.
    pub total: u64,
}

/// The reason why a client has no connection.
#[derive(Debug, thiserror::Error)]
#[error("cannot reach the service for {} s ({error}); check the address of the switch, or those of the members", after.as_secs())]
pub struct SessionError {
    /// The time for which the client tried.
    pub after: Duration,
    /// The last error.
    pub error: io::Error,
}

/// A client's state machine.
pub(super) trait Machine {
    fn handle_answer(&mut self, now: Time, answer: &Answer);
    fn handle_timeout(&mut self, now: Time);
    fn handle_reconnect(&mut self);
    fn poll_reconnect(&mut self) -> bool;
    fn poll_transmit(&mut self, now: Time) -> Option<(u32, Request)>;
    fn poll_timeout(&self) -> Option<Time>;
}

macro_rules! machine {
    ($($name:ident),*) => {$(
        impl Machine for $name {
            fn handle_answer(&mut self, now: Time, answer: &Answer) {
                $name::handle_answer(self, now, answer);
            }
            fn handle_timeout(&mut self, now: Time) {
                $name::handle_timeout(self, now);
            }
            fn handle_reconnect(&mut self) {
                $name::handle_reconnect(self);
            }
            fn poll_reconnect(&mut self) -> bool {
                $name::poll_reconnect(self)
            }
            fn poll_transmit(&mut self, now: Time) -> Option<(u32, Request)> {
                $name::poll_transmit(self, now)
            }
            fn poll_timeout(&self) -> Option<Time> {
                $name::poll_timeout(self)
            }
        }
    )*};
}
machine!(Upload, Download, Lookup, Survey);

/// A connection with a task for each direction, so that waiting for both can be given up.
struct Connection {
    prefix: Prefix,
    outgoing: mpsc::Sender<(u32, Bytes)>,
    incoming: mpsc::Receiver<Bytes>,
    _tasks: JoinSet<()>,
}

impl Connection {
    fn new(frames: impl Frames) -> Connection {
        let (prefix, frames) = (frames.prefix(), Arc::new(frames));
        let (outgoing, mut requests) = mpsc::channel::<(u32, Bytes)>(1);
        let (answers, incoming) = mpsc::channel(1);
        let mut tasks = JoinSet::new();
        let sender = Arc::clone(&frames);
        tasks.spawn(async move {
            while let Some((key, frame)) = requests.recv().await {
                if sender.send(key, frame).await.is_err() {
                    return;
                }
            }
        });
        tasks.spawn(async move {
            while let Ok((_, frame)) = frames.recv().await {
                if answers.send(frame).await.is_err() {
                    return;
                }
            }
        });
        Connection {
            prefix,
            outgoing,
            incoming,
            _tasks: tasks,
        }
    }
}

/// A connection that no machine uses.
pub(super) struct IdleConnection {
    connection: Connection,
    machines: u64,
}

/// A client of the service.
pub(super) struct StoreSession<'a, C> {
    connector: &'a C,
    connection: Option<Connection>,
    /// The number of machines that have used the connection. Answers to earlier machines are
    /// ignored.
    machines: u64,
    clock: Clock,
    patience: Duration,
    /// The wait before the next connection if this one ends without an answer.
    wait: Duration,
    reach: Reach,
}

impl<'a, C: Connect> StoreSession<'a, C> {
    /// Creates a client that tries to connect for `patience` each time.
    pub(super) fn new(connector: &'a C, patience: Duration) -> StoreSession<'a, C> {
        StoreSession {
            connector,
            connection: None,
            machines: 0,
            clock: Clock::start(),
            patience,
            wait: RETRY_MIN,
            reach: connector.reach(),
        }
    }

    /// Goes on with a connection that another session has left.
    pub(super) fn resume(&mut self, idle: Option<IdleConnection>) {
        if let Some(idle) = idle {
            (self.connection, self.machines) = (Some(idle.connection), idle.machines);
            self.begin_machine();
        }
    }

    /// Leaves the connection, if there is one, to another session.
    pub(super) fn leave(self) -> Option<IdleConnection> {
        let machines = self.machines;
        let connection = self.connection?;
        Some(IdleConnection {
            connection,
            machines,
        })
    }

    pub(super) fn now(&self) -> Time {
        self.clock.now()
    }

    /// Begins with another machine, which answers to the machines before never reach.
    pub(super) fn begin_machine(&mut self) {
        self.machines = (self.machines + 1) % MACHINES;
    }

    /// Runs a machine until it has handled an answer or a timer.
    pub(super) async fn step(&mut self, machine: &mut impl Machine) -> Result<(), SessionError> {
        if machine.poll_reconnect() {
            self.lose_connection(machine);
        }
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        if self.exchange(&mut connection, machine).await {
            self.connection = Some(connection);
            return Ok(());
        }
        self.lose_connection(machine);
        self.pause(self.wait).await;
        self.wait = (2 * self.wait).min(RETRY_MAX);
        machine.handle_timeout(self.now());
        Ok(())
    }

    /// Returns whether the connection still works.
    async fn exchange(&mut self, connection: &mut Connection, machine: &mut impl Machine) -> bool {
        let mut has_more = true;
        let machine_id = connection.prefix.id(self.machines << MACHINE_BITS);
        loop {
            tokio::select! {
                frame = connection.incoming.recv() => {
                    let Some(frame) = frame else {
                        return false;
                    };
                    self.wait = RETRY_MIN;
                    match Answer::decode(&frame) {
                        Ok(mut answer) if answer.id & !MACHINE_MASK == machine_id => {
                            answer.id &= MACHINE_MASK;
                            machine.handle_answer(self.now(), &answer);
                        }
                        Ok(_) => {}
                        Err(error) => tracing::warn!("a frame is not an answer of the store: {error}"),
                    }
                    return true;
                }
                permit = connection.outgoing.reserve(), if has_more => {
                    let Ok(permit) = permit else {
                        return false;
                    };
                    match machine.poll_transmit(self.now()) {
                        Some((key, mut request)) => {
                            debug_assert!(request.id() & !MACHINE_MASK == 0, "a machine's number");
                            request.set_id(request.id() | machine_id);
                            permit.send((key, request.encode()));
                        }
                        None => has_more = false,
                    }
                }
                () = self.clock.sleep_until(machine.poll_timeout()) => {
                    machine.handle_timeout(self.now());
                    return true;
                }
            }
        }
    }

    fn lose_connection(&mut self, machine: &mut impl Machine) {
        self.connection = None;
        self.reach.down("the connection was lost");
        machine.handle_reconnect();
    }

    /// Waits, and logs meanwhile that the service cannot be reached.
    async fn pause(&mut self, wait: Duration) {
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            never = self.reach.warn_while_down() => match never {},
        }
    }

    async fn connect(&mut self) -> Result<Connection, SessionError> {
        let started = self.now();
        let mut wait = RETRY_MIN;
        loop {
            let connector = self.connector;
            match self.reach.during(connector.connect()).await {
                Ok(frames) => return Ok(Connection::new(frames)),
                Err(error) if self.now() - started >= self.patience => {
                    let after = self.patience;
                    return Err(SessionError { after, error });
                }
                Err(_) => self.pause(wait).await,
            }
            wait = (2 * wait).min(RETRY_MAX);
        }
    }
}
