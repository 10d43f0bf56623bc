//! Connections between daemons.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use manyflow_overlay::WireError;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::config::LinkConfig;
use super::core::{Core, Phase};
use super::daemon_id;
use super::hello::{Hello, HelloError, Resume};
use super::link_traffic::LinkMeter;
use super::outgoing::Outgoing;
use super::security::{LinkSecurity, Reader, Writer};

/// The number of bytes that the buffer of a link grows by.
const READ_BYTES: usize = 256 * 1024;
/// The time that a handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// The time between attempts to connect, at first and at most.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// The time after which a connection whose bytes are not acknowledged is broken.
const BROKEN_AFTER: Duration = Duration::from_secs(3);
/// Unsent bytes that the kernel may hold for a link. Messages that it holds are invisible to the
/// controller, which sees the daemon's own queue only.
const UNSENT_BYTES: u32 = 16 * 1024;

/// The parts that all links of a daemon share.
pub(super) struct Links {
    pub(super) core: Rc<RefCell<Core>>,
    pub(super) security: LinkSecurity,
    pub(super) configured: Vec<LinkConfig>,
    /// The names of daemons that may connect besides those configured; every name if `None`.
    pub(super) accepts: Option<Vec<String>>,
}

/// The reason why a connection between daemons ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Hello(#[from] HelloError),
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("the handshake takes too long")]
    Slow,
    #[error("the other daemon is {found:?} of the overlay {overlay:?}, and not {expected:?}")]
    Name {
        found: String,
        overlay: String,
        expected: String,
    },
    #[error("{0:?} is not in this daemon's file, and `accept` does not name it")]
    Unknown(String),
    #[error("{other:?} and {own:?} have the same number {id}: give one of them another `id`")]
    SameNumber { other: String, own: String, id: u16 },
    #[error("the certificate is not that of {0:?}")]
    Certificate(String),
    #[error("the other daemon dials this link itself")]
    Dials,
    #[error("the other daemon closed the connection")]
    Closed,
}

impl Links {
    fn find(&self, name: &str) -> Option<&LinkConfig> {
        self.configured.iter().find(|link| link.name == name)
    }

    /// Keeps a connection to a configured neighbour until the daemon closes its connections.
    pub(super) async fn dial(&self, link: &LinkConfig) {
        let mut pause = RETRY.0;
        while self.core.borrow().phase() < Phase::Closes {
            let id = link.id.unwrap_or_else(|| daemon_id(&link.name));
            let is_connected = self.core.borrow().is_connected_to(id);
            if !is_connected {
                match self.connect(link).await {
                    Ok(()) | Err(LinkError::Dials) => pause = RETRY.0,
                    Err(error) => {
                        self.core.borrow_mut().counters.failed_links += 1;
                        let (link, peer) = (&link.name, &link.address);
                        tracing::debug!(link, peer, reason = %error, "cannot connect a link");
                        pause = (2 * pause).min(RETRY.1);
                    }
                }
            }
            sleep(pause).await;
        }
    }

    async fn connect(&self, link: &LinkConfig) -> Result<(), LinkError> {
        let opened = async {
            let socket = TcpStream::connect(&link.address).await?;
            prepare(&socket)?;
            let ends = Ends::of(&socket)?;
            let (mut reader, mut writer) = self.security.connect(socket, &link.name).await?;
            let own = Hello {
                dials: true,
                ..self.core.borrow().hello.clone()
            };
            writer.write_all(&own.encode()).await?;
            writer.flush().await?;
            let hello = Hello::read(&mut reader).await?;
            self.check(&hello, Some(link), &own)?;
            if hello.dials && hello.id < own.id {
                return Err(LinkError::Dials);
            }
            let other = Resume::read(&mut reader).await?;
            let resume = self.core.borrow().resume(hello.id);
            resume.write(&mut writer).await?;
            Ok((hello, (resume, other), ends, reader, writer))
        };
        let opened = timeout(HANDSHAKE_TIMEOUT, opened).await;
        let (hello, resumes, ends, reader, writer) = opened.map_err(|_| LinkError::Slow)??;
        self.run(hello, resumes, link.weight, ends, (reader, writer))
            .await
    }

    /// Serves a connection from another daemon.
    pub(super) async fn accept(&self, socket: TcpStream, from: SocketAddr) {
        match self.serve(socket).await {
            Ok(()) | Err(LinkError::Dials | LinkError::Closed) => {}
            Err(error) => {
                tracing::warn!(peer = %from, reason = %error, "refused a connection of a daemon");
            }
        }
    }

    async fn serve(&self, socket: TcpStream) -> Result<(), LinkError> {
        prepare(&socket)?;
        let ends = Ends::of(&socket)?;
        let opened = async {
            let (mut reader, mut writer, certificate) = self.security.accept(socket).await?;
            let hello = Hello::read(&mut reader).await?;
            let link = self.find(&hello.name);
            let own = Hello {
                dials: link.is_some(),
                ..self.core.borrow().hello.clone()
            };
            self.check(&hello, None, &own)?;
            if !certificate.is_of(&hello.name) {
                return Err(LinkError::Certificate(hello.name));
            }
            writer.write_all(&own.encode()).await?;
            if own.dials && own.id < hello.id {
                writer.flush().await?;
                return Err(LinkError::Dials);
            }
            let resume = self.core.borrow().resume(hello.id);
            resume.write(&mut writer).await?;
            let other = Resume::read(&mut reader).await?;
            let weight = link.map_or(1, |link| link.weight);
            Ok((hello, (resume, other), weight, reader, writer))
        };
        let opened = timeout(HANDSHAKE_TIMEOUT, opened).await;
        let (hello, resumes, weight, reader, writer) = opened.map_err(|_| LinkError::Slow)??;
        self.run(hello, resumes, weight, ends, (reader, writer))
            .await
    }

    /// Checks that the other end is a daemon that this one may have a link to.
    fn check(
        &self,
        hello: &Hello,
        dialled: Option<&LinkConfig>,
        own: &Hello,
    ) -> Result<(), LinkError> {
        let expected = dialled.map_or(&hello.name, |link| &link.name);
        if hello.overlay != own.overlay || hello.name != *expected {
            return Err(LinkError::Name {
                found: hello.name.clone(),
                overlay: hello.overlay.clone(),
                expected: expected.clone(),
            });
        }
        if hello.id == own.id {
            return Err(LinkError::SameNumber {
                other: hello.name.clone(),
                own: own.name.clone(),
                id: own.id.0,
            });
        }
        let accepts = self.accepts.as_ref();
        let is_accepted = accepts.is_none_or(|names| names.contains(&hello.name));
        if !is_accepted && self.find(&hello.name).is_none() {
            return Err(LinkError::Unknown(hello.name.clone()));
        }
        Ok(())
    }

    /// Carries the link's frames until the connection ends.
    async fn run(
        &self,
        hello: Hello,
        resumes: (Resume, Resume),
        weight: u32,
        ends: Ends,
        (mut reader, mut writer): (Reader, Writer),
    ) -> Result<(), LinkError> {
        let (id, core) = (hello.id, &self.core);
        let out = Rc::new(Outgoing::default());
        let connection =
            core.borrow_mut()
                .attach(&hello, resumes, weight, (Rc::clone(&out), ends.meter));
        let (link, peer) = (&hello.name, ends.peer);
        tracing::info!(link, %peer, "a link is up");
        let result = tokio::select! {
            written = out.write(&mut writer, || core.borrow_mut().handle_link_drained(id, connection)) => {
                written.map_err(LinkError::Io)
            }
            read = self.read(id, &mut reader) => read,
        };
        out.close();
        if core.borrow_mut().detach(id, connection) {
            let reason = match &result {
                Ok(()) => "closed".to_owned(),
                Err(error) => error.to_string(),
            };
            tracing::info!(link, %peer, reason, "a link is down");
        }
        result
    }

    async fn read(
        &self,
        id: manyflow_overlay::DaemonId,
        reader: &mut Reader,
    ) -> Result<(), LinkError> {
        let mut bytes = BytesMut::with_capacity(READ_BYTES);
        loop {
            self.core.borrow_mut().handle_link_bytes(id, &mut bytes)?;
            let pause = self.core.borrow().link_pause(id);
            if let Some(readable) = pause {
                readable.notified().await;
                continue;
            }
            if bytes.capacity() - bytes.len() < READ_BYTES / 4 {
                bytes.reserve(READ_BYTES);
            }
            if reader.read_buf(&mut bytes).await? == 0 {
                return Err(LinkError::Closed);
            }
        }
    }
}

/// A connection apart from its bytes.
struct Ends {
    peer: SocketAddr,
    meter: LinkMeter,
}

impl Ends {
    fn of(socket: &TcpStream) -> io::Result<Ends> {
        Ok(Ends {
            peer: socket.peer_addr()?,
            meter: LinkMeter::of(socket),
        })
    }
}

/// Sets the options of a socket between daemons.
fn prepare(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let socket = SockRef::from(socket);
    socket.set_tcp_keepalive(
        &TcpKeepalive::new()
            .with_time(Duration::from_secs(1))
            .with_interval(Duration::from_secs(1)),
    )?;
    #[cfg(target_os = "linux")]
    {
        socket.set_tcp_user_timeout(Some(BROKEN_AFTER))?;
        socket.set_tcp_notsent_lowat(UNSENT_BYTES)?;
    }
    Ok(())
}
