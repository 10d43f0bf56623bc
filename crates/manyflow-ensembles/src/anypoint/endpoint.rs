//! Sockets with connections: those that an application opens, and those that it accepts.

use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::task::Poll;

use manyflow_anypoint::ConfigError;

use super::connection::{Connection, ConnectionError};
use super::core::{EndCore, Shared};
use super::driver::drive;
use super::options::Options;
use super::wire::Wire;

/// A socket from which connections are opened. It remains until its connections are over.
#[derive(Debug)]
pub struct Endpoint {
    shared: Arc<Shared>,
    local: SocketAddr,
}

impl Endpoint {
    /// Opens a socket at `local`, and starts its task on the current tokio runtime.
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub fn bind(local: SocketAddr, options: Options) -> io::Result<Endpoint> {
        Endpoint::open(local, options, false)
    }

    fn open(local: SocketAddr, options: Options, is_listening: bool) -> io::Result<Endpoint> {
        options.acp().check().map_err(io::Error::other)?;
        let (wire, local) = Wire::open(local)?;
        Ok(Endpoint::start(wire, local, options, is_listening))
    }

    /// Takes the end of a wire inside of this process.
    pub(super) fn inside(wire: Wire, options: Options) -> Result<Endpoint, ConfigError> {
        options.acp().check()?;
        Ok(Endpoint::start(wire, Wire::INSIDE, options, false))
    }

    fn start(wire: Wire, local: SocketAddr, options: Options, is_listening: bool) -> Endpoint {
        let mut core = EndCore::new(wire, options, is_listening);
        core.handles += 1;
        let shared = Shared::new(core);
        tokio::spawn(drive(Arc::clone(&shared)));
        Endpoint { shared, local }
    }

    /// Returns the address of the socket.
    pub fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// Opens a connection, and waits until the other end has accepted it.
    ///
    /// # Errors
    /// If the other end refuses the connection, or does not answer in time.
    pub async fn connect(&self, remote: SocketAddr) -> Result<Connection, ConnectionError> {
        let slot = self.shared.lock().connect(remote)?;
        let connection = Connection::new(Arc::clone(&self.shared), slot);
        connection.established().await?;
        Ok(connection)
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        let mut core = self.shared.lock();
        core.stop_listening();
        core.handles -= 1;
        if let Some(driver) = core.driver.take() {
            driver.wake();
        }
    }
}

/// Opens a connection from a socket of its own.
///
/// # Errors
/// If there is no socket, or the other end refuses the connection or does not answer in time.
pub async fn connect(remote: SocketAddr, options: Options) -> Result<Connection, ConnectionError> {
    let any = match remote {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let endpoint = Endpoint::bind(any, options).map_err(ConnectionError::Socket)?;
    endpoint.connect(remote).await
}

/// A member of a service, or a server without a switch: accepts connections on one socket.
#[derive(Debug)]
pub struct Member(Endpoint);

/// Accepts connections at `listen`.
///
/// # Errors
/// If the address cannot be bound.
pub fn serve(listen: SocketAddr, options: Options) -> io::Result<Member> {
    Endpoint::open(listen, options, true).map(Member)
}

impl Member {
    /// Returns the address of the socket.
    pub fn local_address(&self) -> SocketAddr {
        self.0.local
    }

    /// Waits for the next connection that a peer opens. Connections that are not accepted count as
    /// open for their peers.
    ///
    /// # Errors
    /// None at present; a socket may fail in the future.
    pub async fn accept(&mut self) -> io::Result<Connection> {
        let shared = &self.0.shared;
        let slot = poll_fn(|context| {
            let mut core = shared.lock();
            match core.accept() {
                Some(slot) => Poll::Ready(slot),
                None => {
                    core.acceptors.push(context.waker().clone());
                    Poll::Pending
                }
            }
        });
        Ok(Connection::new(Arc::clone(shared), slot.await))
    }
}
