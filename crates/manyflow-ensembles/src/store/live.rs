//! The store over live Anypoint connections.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use manyflow_net::address::lookup;
use manyflow_net::reach::Reach;
use tokio::time::timeout;

use super::{Connect, Frames};
use crate::anypoint::switch::{InsideSwitch, MemberConfig, PolicyName, ServiceError, StartError};
use crate::anypoint::{Connection, Options, Prefix, connect};

/// The time that one attempt to connect may take. A switch that starts meanwhile answers the next
/// attempt at once, while the Opens of a long attempt come at longer and longer intervals.
const ATTEMPT_MAX: Duration = Duration::from_secs(5);

impl Frames for Connection {
    async fn send(&self, key: u32, frame: Bytes) -> io::Result<()> {
        let sent = self.send_frame(key, frame).await;
        sent.map_err(io::Error::other)
    }

    fn prefix(&self) -> Prefix {
        Connection::prefix(self)
    }

    async fn recv(&self) -> io::Result<(u32, Bytes)> {
        match self.recv_frame().await {
            Ok(Some(message)) => Ok((message.key, message.payload)),
            Ok(None) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) => Err(io::Error::other(error)),
        }
    }
}

/// The members of a store: behind a switch elsewhere, or behind one of this process.
#[derive(Clone, Debug)]
pub struct LiveService {
    route: Route,
}

#[derive(Clone, Debug)]
enum Route {
    /// A switch at `HOST:PORT`, and the parameters of connections to it.
    Switch(String, Options),
    Inside(Arc<InsideSwitch>),
}

impl LiveService {
    /// Creates a client of the service whose switch is at `switch`: `HOST:PORT`. The name is looked
    /// up for each connection. The policy of the switch must be
    /// [`Replicas`](PolicyName::Replicas).
    pub fn new(switch: impl Into<String>, options: Options) -> LiveService {
        let route = Route::Switch(switch.into(), options);
        LiveService { route }
    }

    /// Creates a client of these members, with a switch as a task of the current tokio runtime.
    ///
    /// # Errors
    /// If the members or the options cannot be used, or there is no socket.
    pub fn of_members(
        members: Vec<MemberConfig>,
        options: Options,
    ) -> Result<LiveService, StartError> {
        let switch = InsideSwitch::start(members, PolicyName::Replicas, options)?;
        let route = Route::Inside(Arc::new(switch));
        Ok(LiveService { route })
    }

    /// Replaces the members of a client that has a switch. They join and leave open connections.
    ///
    /// # Errors
    /// If they cannot be used, or the switch is elsewhere.
    pub fn set_members(&self, members: Vec<MemberConfig>) -> Result<(), ServiceError> {
        match &self.route {
            Route::Switch(..) => Err(ServiceError::Role),
            Route::Inside(switch) => switch.set_members(members),
        }
    }

    /// Ends the connections through a switch of this process, so that members need not wait for
    /// their time-outs. Does nothing if the switch is elsewhere.
    pub async fn end(&self) {
        if let Route::Inside(switch) = &self.route {
            switch.end().await;
        }
    }
}

impl Connect for LiveService {
    type Frames = Connection;

    fn reach(&self) -> Reach {
        match &self.route {
            // The switch warns by itself, of each of its members.
            Route::Inside(_) => Reach::silent(),
            Route::Switch(switch, _) => Reach::new(
                format!("the store behind the switch at {switch}"),
                "does it run at this address, and do members of it run?",
            ),
        }
    }

    async fn connect(&self) -> io::Result<Connection> {
        match &self.route {
            Route::Switch(switch, options) => {
                let address = lookup(switch, None).await?[0];
                match timeout(ATTEMPT_MAX, connect(address, options.clone())).await {
                    Ok(connection) => connection.map_err(io::Error::other),
                    Err(_) => Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        format!("no answer from {address}"),
                    )),
                }
            }
            // The reason of a connection names the switch, which the user does not know.
            Route::Inside(switch) => match timeout(ATTEMPT_MAX, switch.connect()).await {
                Ok(Ok(connection)) => Ok(connection),
                Ok(Err(_)) | Err(_) => Err(io::Error::other(switch.unreached())),
            },
        }
    }
}
