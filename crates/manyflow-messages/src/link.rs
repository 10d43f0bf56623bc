//! Connections between daemons.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use manyflow_net::address::lookup;
use manyflow_net::reach::{Notice, Reach};
use manyflow_overlay::WireError;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use super::config::LinkConfig;
use super::core::{Connection, DaemonCore, Phase};
use super::datagram::{DatagramLink, Datagrams, Endpoint};
use super::handshakes::Handshakes;
use super::hello::{Hello, HelloError, Resume};
use super::link_traffic::LinkMeter;
use super::outgoing::Outgoing;
use super::security::{Channel, LinkSecurity, Reader};
use super::server::DAEMON_PORT;

/// The number of bytes that the buffer of a link grows by.
const READ_BYTES: usize = 256 * 1024;
/// The time that a handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// The time between attempts to connect, at first and at most.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// The time after which a connection whose bytes are not acknowledged is broken.
const BROKEN_AFTER: Duration = Duration::from_secs(3);
/// The time between two questions whether the other end runs, and the time without any byte from it
/// after which it counts as one that hangs.
const SILENCE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));
/// Unsent bytes that the kernel may hold for a link. Messages that it holds are invisible to the
/// controller, which sees the daemon's own queue only.
const UNSENT_BYTES: u32 = 16 * 1024;

/// The parts that all links of a daemon share.
pub(super) struct Links {
    pub(super) core: Rc<RefCell<DaemonCore>>,
    pub(super) security: LinkSecurity,
    pub(super) configured: Vec<LinkConfig>,
    /// The names of daemons that may connect besides those configured; every name if `None`.
    pub(super) accepts: Option<Vec<String>>,
    /// The socket of links, if they are of datagrams.
    pub(super) datagrams: Option<Rc<Datagrams>>,
    /// Connections from other hosts whose handshakes are under way.
    pub(super) handshakes: Handshakes,
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
    #[error(
        "the other daemon is {found} of the overlay {overlay}, and not {expected} of {own}: check the names and addresses in both files"
    )]
    Name {
        found: String,
        overlay: String,
        expected: String,
        own: String,
    },
    #[error(
        "the daemon {0} is not in this daemon's file: add it to `accept` or [links] if it may connect"
    )]
    Unknown(String),
    #[error(
        "the daemons {other} and {own} have the same number {id}: give one of them another `id`"
    )]
    SameNumber { other: String, own: String, id: u16 },
    #[error("another daemon has the name {0} of this one: give one of them another name")]
    SameName(String),
    #[error(
        "a link to the daemon {name}{at} is up: stop one of them, if two daemons have this name"
    )]
    Taken { name: String, at: String },
    #[error(
        "the clock of the daemon {0} is more than a day ahead of this one's: set both clocks, for example by NTP"
    )]
    Clock(String),
    #[error("the daemon {0} announced a state that no daemon can have less than a minute ago")]
    Misconduct(String),
    #[error("the certificate is not that of the daemon {0} with its number")]
    Certificate(String),
    #[error(
        "the other daemon has {other}, and this one {own}: all daemons of an overlay use the same controller"
    )]
    Kind {
        own: &'static str,
        other: &'static str,
    },
    #[error(
        "no packets arrive: a firewall may block UDP to port {own} here or to port {other} there"
    )]
    Blocked { own: u16, other: u16 },
    #[error("nothing has arrived for some seconds, although its machine can be reached")]
    Hangs,
    #[error("no packets have arrived for some seconds")]
    Silent,
    #[error("the other daemon dials this link itself")]
    Dials,
    #[error("the other daemon closed the connection")]
    Closed,
    #[error("another connection replaces this one")]
    Replaced,
    #[error("too many connections of {0} have not completed their handshakes")]
    Handshakes(IpAddr),
}

impl Links {
    fn find(&self, name: &str) -> Option<&LinkConfig> {
        self.configured.iter().find(|link| link.name == name)
    }

    /// Keeps a connection to a configured neighbour until the daemon closes its connections.
    pub(super) async fn dial(&self, link: &LinkConfig) {
        let mut pause = RETRY.0;
        let daemon = format!("the daemon {} at {}", link.name, link.address);
        let mut reach = Reach::new(daemon, "does it run, and may this machine connect to it?");
        while self.core.borrow().phase() < Phase::Closes {
            let is_connected = self.core.borrow().is_connected_to(link.number());
            if is_connected {
                reach.up().iter().for_each(Notice::log);
            } else {
                match self.connect(link, &mut reach).await {
                    Ok(()) | Err(LinkError::Dials) => pause = RETRY.0,
                    Err(error) => {
                        self.core.borrow_mut().counters.failed_links += 1;
                        let (link, peer) = (&link.name, &link.address);
                        tracing::debug!(link, peer, reason = %error, "cannot connect a link");
                        pause = (2 * pause).min(RETRY.1);
                    }
                }
            }
            tokio::select! {
                () = sleep(pause) => {}
                never = reach.warn_while_down() => match never {},
            }
        }
    }

    /// Connects a link and carries its frames until the connection ends. `reach` logs that the
    /// other daemon cannot be reached.
    async fn connect(&self, link: &LinkConfig, reach: &mut Reach) -> Result<(), LinkError> {
        let opened = reach.during(self.open(link)).await?;
        let result = self.run(opened).await;
        match &result {
            Ok(()) => reach.down("the connection was closed"),
            Err(error) => reach.down(error),
        }
        result
    }

    async fn open(&self, link: &LinkConfig) -> Result<Opened, LinkError> {
        let opened = async {
            let socket =
                TcpStream::connect(&*lookup(&link.address, Some(DAEMON_PORT)).await?).await?;
            prepare(&socket)?;
            let ends = Ends::of(&socket)?;
            let mut channel = self.security.connect(socket, &link.name).await?;
            let (reader, writer) = (&mut channel.reader, &mut channel.writer);
            let own = Hello {
                dials: true,
                ..self.core.borrow().hello.clone()
            };
            writer.write_all(&own.encode()).await?;
            writer.flush().await?;
            let hello = Hello::read(reader).await?;
            self.check(&hello, Some(link), &own)?;
            if !channel.certificate.is_of(&hello.name, hello.id) {
                return Err(LinkError::Certificate(hello.name));
            }
            if hello.dials && hello.id < own.id {
                return Err(LinkError::Dials);
            }
            let other = Resume::read(reader).await?;
            self.make_way(&hello).await?;
            let resume = self.core.borrow_mut().resume(hello.id);
            resume.write(writer).await?;
            let datagrams = self
                .add_datagrams(&mut channel, ends.peer.ip(), true)
                .await?;
            Ok(Opened {
                hello,
                resumes: (resume, other),
                weight: link.weight,
                ends,
                channel,
                datagrams,
            })
        };
        let opened = timeout(HANDSHAKE_TIMEOUT, opened).await;
        opened.map_err(|_| LinkError::Slow)?
    }

    /// Serves a connection from another daemon.
    pub(super) async fn accept(&self, socket: TcpStream, from: SocketAddr) {
        match self.serve(socket, from.ip()).await {
            Ok(()) | Err(LinkError::Dials | LinkError::Closed | LinkError::Replaced) => {}
            Err(error) => {
                self.core.borrow_mut().refuse_daemon(from.ip(), &error);
            }
        }
    }

    async fn serve(&self, socket: TcpStream, from: IpAddr) -> Result<(), LinkError> {
        let handshake = self.handshakes.begin(from);
        let handshake = handshake.ok_or(LinkError::Handshakes(from))?;
        prepare(&socket)?;
        let ends = Ends::of(&socket)?;
        let opened = async {
            let mut channel = self.security.accept(socket).await?;
            let (reader, writer) = (&mut channel.reader, &mut channel.writer);
            let hello = Hello::read(reader).await?;
            let link = self.find(&hello.name);
            let own = Hello {
                dials: link.is_some(),
                ..self.core.borrow().hello.clone()
            };
            self.check(&hello, None, &own)?;
            if !channel.certificate.is_of(&hello.name, hello.id) {
                return Err(LinkError::Certificate(hello.name));
            }
            writer.write_all(&own.encode()).await?;
            if own.dials && own.id < hello.id {
                writer.flush().await?;
                return Err(LinkError::Dials);
            }
            self.make_way(&hello).await?;
            let resume = self.core.borrow_mut().resume(hello.id);
            resume.write(writer).await?;
            let other = Resume::read(reader).await?;
            let weight = link.map_or(1, |link| link.weight);
            let datagrams = self.add_datagrams(&mut channel, from, false).await?;
            Ok(Opened {
                hello,
                resumes: (resume, other),
                weight,
                ends,
                channel,
                datagrams,
            })
        };
        let opened = timeout(HANDSHAKE_TIMEOUT, opened).await;
        let opened = opened.map_err(|_| LinkError::Slow)??;
        drop(handshake);
        self.run(opened).await
    }

    /// Exchanges descriptions of the ends of a link of datagrams, if it is one.
    async fn add_datagrams(
        &self,
        channel: &mut Channel,
        peer: IpAddr,
        dialled: bool,
    ) -> Result<Option<Packets>, LinkError> {
        let Some(socket) = &self.datagrams else {
            return Ok(None);
        };
        let own = socket.endpoint();
        own.write(&mut channel.writer).await?;
        let other = Endpoint::read(&mut channel.reader).await?;
        let link = socket.add((own, other), peer, channel.keys.as_ref(), dialled);
        let ports = (own.port, other.port);
        Ok(Some(Packets { link, ports }))
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
                own: own.overlay.clone(),
            });
        }
        if hello.datagrams != own.datagrams {
            let kind = |hello: &Hello| match hello.datagrams {
                true => "links of datagrams (tfrc)",
                false => "links of streams (cost-benefit or none)",
            };
            return Err(LinkError::Kind {
                own: kind(own),
                other: kind(hello),
            });
        }
        if hello.name == own.name {
            return Err(LinkError::SameName(own.name.clone()));
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
        let core = self.core.borrow();
        if core.is_refused(hello.id) {
            return Err(LinkError::Misconduct(hello.name.clone()));
        }
        let now = core.clock.now();
        if !core.daemon.is_credible(now, hello.incarnation) {
            return Err(LinkError::Clock(hello.name.clone()));
        }
        Ok(())
    }

    /// Waits until a new connection may take the place of the present one. Under TLS, the same run
    /// of a daemon may do so at once. Other newcomers wait until the present connection breaks,
    /// which it does in time if its other end has gone: they may be strangers, or another daemon
    /// with the same name.
    ///
    /// # Errors
    /// Returns an error if the present connection does not break.
    async fn make_way(&self, hello: &Hello) -> Result<(), LinkError> {
        let deadline = Instant::now() + BROKEN_AFTER + Duration::from_secs(1);
        loop {
            let Some((at, incarnation)) = self.core.borrow().present_end(hello.id) else {
                return Ok(());
            };
            let is_proved = matches!(self.security, LinkSecurity::Tls(_));
            if is_proved && incarnation == hello.incarnation {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let name = hello.name.clone();
                let at = at.map_or_else(String::new, |at| format!(" at {at}"));
                return Err(LinkError::Taken { name, at });
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Carries the link's frames until the connection ends.
    async fn run(&self, opened: Opened) -> Result<(), LinkError> {
        let Opened {
            hello,
            resumes,
            weight,
            ends,
            mut channel,
            datagrams,
        } = opened;
        if let Some(packets) = &datagrams
            && !packets.link.wait_until_heard().await
        {
            let (own, other) = packets.ports;
            return Err(LinkError::Blocked { own, other });
        }
        let (id, core) = (hello.id, &self.core);
        let out = Rc::new(Outgoing::default());
        let connection = Connection {
            out: Rc::clone(&out),
            datagrams: datagrams.as_ref().map(|packets| Rc::clone(&packets.link)),
            meter: Some(ends.meter),
            peer: Some(ends.peer),
        };
        let connection = core
            .borrow_mut()
            .attach(&hello, resumes, weight, connection)
            .ok_or(LinkError::Replaced)?;
        let (link, peer) = (&hello.name, ends.peer);
        tracing::info!(link, %peer, "a link is up");
        let heard_at = Cell::new(Some(Instant::now()));
        let result = tokio::select! {
            written = out.write(&mut channel.writer, || core.borrow_mut().handle_link_drained(id, connection)) => {
                written.map_err(LinkError::Io)
            }
            read = self.read(id, connection, &mut channel.reader, &heard_at) => read,
            () = out.aborted() => Err(LinkError::Replaced),
            error = self.silence(id, connection, &heard_at, datagrams.as_ref()) => Err(error),
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
        connection: u64,
        reader: &mut Reader,
        heard_at: &Cell<Option<Instant>>,
    ) -> Result<(), LinkError> {
        let mut bytes = BytesMut::with_capacity(READ_BYTES);
        loop {
            self.core
                .borrow_mut()
                .handle_link_bytes(id, connection, &mut bytes)?;
            let pause = self.core.borrow().link_pause(id);
            if let Some(readable) = pause {
                heard_at.set(None);
                readable.notified().await;
                heard_at.set(Some(Instant::now()));
                continue;
            }
            if bytes.capacity() - bytes.len() < READ_BYTES / 4 {
                bytes.reserve(READ_BYTES);
            }
            if reader.read_buf(&mut bytes).await? == 0 {
                return Err(LinkError::Closed);
            }
            heard_at.set(Some(Instant::now()));
        }
    }

    /// Keeps the link alive. Returns when the other end has been silent for too long. `heard_at` is
    /// `None` while nothing is read, because the daemon takes no more.
    async fn silence(
        &self,
        id: manyflow_overlay::DaemonId,
        connection: u64,
        heard_at: &Cell<Option<Instant>>,
        packets: Option<&Packets>,
    ) -> LinkError {
        if let Some(packets) = packets {
            packets.link.keep_alive().await;
            return LinkError::Silent;
        }
        loop {
            let began = Instant::now();
            sleep(SILENCE.0).await;
            // If it was this program that did not run, the answers may have arrived.
            let has_run = began.elapsed() < 2 * SILENCE.0;
            let silence = heard_at.get().map(|at| at.elapsed());
            if has_run && silence.is_some_and(|silence| silence > SILENCE.1) {
                return LinkError::Hangs;
            }
            self.core.borrow_mut().keep_link_alive(id, connection);
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

/// A connection between daemons after the handshake.
struct Opened {
    hello: Hello,
    /// The states of the link that this daemon and the other have sent.
    resumes: (Resume, Resume),
    weight: u32,
    ends: Ends,
    channel: Channel,
    datagrams: Option<Packets>,
}

/// The packets of a link of datagrams. The link is removed from its socket when this is dropped.
struct Packets {
    link: Rc<DatagramLink>,
    /// The ports of this daemon and of the other.
    ports: (u16, u16),
}

impl Drop for Packets {
    fn drop(&mut self) {
        self.link.remove();
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
