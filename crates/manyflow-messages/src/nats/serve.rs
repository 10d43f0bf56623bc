//! The connection of a NATS client.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::{Bytes, BytesMut};
use manyflow_net::tls::Identity;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::ConnectOptions;
use super::parse::{Operation, parse, parse_greeting};
use super::pings::WaitingPings;
use super::session::Peer;
use crate::accept::Arrivals;
use crate::access::{Access, Permissions, Shown};
use crate::config::DaemonConfig;
use crate::core::{DaemonCore, Phase, SessionKey};
use crate::jwt::JwtError;
use crate::outgoing::Outgoing;

/// The number of bytes that the buffer of a socket grows by: first the lower one, so that thousands
/// of clients that send little take little, then twice as many each time.
const READ_BYTES: (usize, usize) = (2 * 1024, 64 * 1024);
/// The number of bytes that the buffer of a client has before CONNECT. Larger CONNECTs double it.
const GREETING_BYTES: usize = 1024;
/// The maximum number of bytes of the buffers of all clients before CONNECT, besides the first
/// [`GREETING_BYTES`] of each: enough for 256 of the longest CONNECTs at once.
const GREETINGS_BYTES_MAX: usize = 32 << 20;
/// The number of PINGs that a client may leave unanswered.
pub(crate) const PINGS_MAX: u32 = 2;
/// The maximum time until a JWT expires that counts, in seconds.
const DECADE_S: u64 = 315_360_000;
/// The time within which a client must send CONNECT.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// The parameters of all connections of clients.
#[derive(Clone, Debug)]
pub(crate) struct ClientLimits {
    /// Bytes of the longest payload, headers included.
    pub(crate) payload_bytes_max: usize,
    /// The number of subscriptions that a client may have.
    pub(crate) subscriptions_max: usize,
    /// The time between two PINGs of the daemon.
    pub(crate) ping_interval: Duration,
}

impl ClientLimits {
    /// Returns the parameters of a daemon.
    pub(crate) fn of(config: &DaemonConfig) -> ClientLimits {
        ClientLimits {
            payload_bytes_max: config.payload_bytes_max,
            subscriptions_max: 100_000,
            ping_interval: config.ping_interval,
        }
    }
}

/// The parts that all connections of clients share.
pub(crate) struct Front {
    pub(crate) core: Rc<RefCell<DaemonCore>>,
    pub(crate) access: Access,
    pub(crate) limits: ClientLimits,
    /// The name of the daemon.
    pub(crate) name: String,
    /// A name that no other process has.
    pub(crate) server_id: String,
    /// The host and port at which clients connect.
    pub(crate) local: (String, u16),
    /// The addresses that other daemons announce to their clients for this one: over TCP, and over
    /// WebSocket.
    pub(crate) advertised: [Vec<String>; 2],
    /// The origins of further pages that may connect over WebSocket.
    pub(crate) origins: Vec<String>,
    /// The certificate for clients, which then have to use TLS.
    pub(crate) tls: Option<Identity>,
    /// The bytes of the buffers of clients that have not sent CONNECT.
    pub(crate) greeting_bytes: Cell<usize>,
    pub(crate) arrivals: Rc<Arrivals>,
    /// Whether the daemon has announced that it stops.
    pub(crate) is_retiring: Cell<bool>,
}

impl Front {
    /// Returns the first line that a client receives.
    pub(crate) fn info(&self, peer: Peer) -> String {
        format!("INFO {}\r\n", self.info_object(peer))
    }

    /// Returns the line by which a daemon announces that it stops soon ("lame duck mode" of
    /// nats-server).
    pub(crate) fn lame_duck_info(&self, peer: Peer) -> String {
        let mut info = self.info_object(peer);
        info["ldm"] = true.into();
        format!("INFO {info}\r\n")
    }

    fn info_object(&self, peer: Peer) -> serde_json::Value {
        let mut info = json!({
            "server_id": self.server_id,
            "server_name": self.name,
            "version": env!("CARGO_PKG_VERSION"),
            // The version of Go. The protocol's documentation requires it, so some clients fail
            // without it.
            "go": "",
            "proto": 1,
            "host": self.local.0,
            "port": self.local.1,
            "headers": true,
            "max_payload": self.limits.payload_bytes_max,
            "client_id": peer.number,
            "client_ip": peer.address.ip().to_string(),
        });
        let core = self.core.borrow();
        let addresses = core.addresses_of_daemons(peer.address.ip(), peer.is_websocket);
        let own = &self.advertised[usize::from(peer.is_websocket)];
        let is_other = |address: &&str| !own.iter().any(|own| own == address);
        // A daemon without others has no list, as a nats-server without a cluster.
        if addresses.iter().any(is_other) {
            info["connect_urls"] = addresses.into();
        }
        if let Some(nonce) = peer.nonce {
            info["nonce"] = nonce.text().into();
        }
        let verifies = self.tls.as_ref().is_some_and(Identity::verifies_clients);
        // As nats-server does, without those that are false.
        for (name, holds) in [
            ("auth_required", self.access.is_restricted()),
            // TLS is below a WebSocket.
            ("tls_required", self.tls.is_some() && !peer.is_websocket),
            ("tls_verify", verifies && !peer.is_websocket),
        ] {
            if holds {
                info[name] = true.into();
            }
        }
        info
    }

    /// Serves a client until its connection ends. The client has received INFO, and has shown a
    /// certificate with these names. Calls `greeted` when it has sent CONNECT.
    pub(crate) async fn serve(
        &self,
        peer: Peer,
        names: Vec<String>,
        mut reader: impl AsyncRead + Unpin,
        writer: impl AsyncWrite + Unpin + 'static,
        greeted: impl FnOnce(),
    ) {
        let out = Rc::new(Outgoing::default());
        let session = Rc::new(RefCell::new(None));
        let writing = Outgoing::begin_writing(&out, writer, {
            let (core, session) = (self.core.clone(), session.clone());
            move || {
                if let Some(key) = *session.borrow() {
                    core.borrow_mut().handle_client_drained(key);
                }
            }
        });
        let mut connection = Connection {
            front: self,
            peer,
            shown: Shown {
                nonce: peer.nonce,
                names,
                is_websocket: peer.is_websocket,
            },
            out: Rc::clone(&out),
            permissions: None,
            session: None,
            bytes: BytesMut::new(),
            growth: 0,
            greeting_bytes: 0,
            unanswered: 0,
            expires: None,
            pinged_at: None,
            pings: WaitingPings::default(),
        };
        let read = connection.run(&mut reader, &session, greeted).await;
        connection.return_greeting_bytes();
        if let Err(End::Refused(error)) = &read {
            out.push_parts(&[b"-ERR '", error.as_bytes(), b"'\r\n"], Bytes::new());
        }
        out.close();
        let key = session.borrow_mut().take();
        if let Some(key) = key {
            connection.finish(key).await;
            self.core.borrow_mut().disconnect(key);
        }
        // A client that does not read its last bytes must not hold the connection.
        let _ = tokio::time::timeout(CONNECT_TIMEOUT, writing).await;
    }
}

/// Returns the error for a client that is no user. Libraries know its first two words.
fn violation(reason: Option<JwtError>) -> String {
    match reason {
        None => "Authorization Violation".to_owned(),
        Some(reason) => format!("Authorization Violation: {reason}"),
    }
}

/// Reads the options of CONNECT as nats-server does, with the JSON of Go: null is an option that is
/// not there, the last of several equal keys counts, keys may have capital letters, and bytes that
/// are no UTF-8 are replaced.
fn connect_options(options: &[u8]) -> Result<ConnectOptions, End> {
    let text = String::from_utf8_lossy(options);
    let read = serde_json::from_str(&text).and_then(|given: serde_json::Map<_, _>| {
        let given = given.into_iter().filter(|(_, value)| !value.is_null());
        let given = given.map(|(key, value)| (key.to_ascii_lowercase(), value));
        serde_json::from_value(given.collect())
    });
    read.map_err(|_| End::Refused("Invalid CONNECT options".to_owned()))
}

/// Waits for a notification, if there is one.
async fn notified(notify: Option<&Notify>) {
    match notify {
        Some(notify) => notify.notified().await,
        None => core::future::pending().await,
    }
}

/// The reason why a connection ends.
pub(super) enum End {
    /// The client closed it, or it broke.
    Closed,
    /// The client violated the protocol or lacks permission; the error goes to the client.
    Refused(String),
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> End {
        End::Closed
    }
}

impl From<super::parse::ParseError> for End {
    fn from(error: super::parse::ParseError) -> End {
        End::Refused(error.to_string())
    }
}

/// The reading half of a connection.
pub(super) struct Connection<'a> {
    pub(super) front: &'a Front,
    peer: Peer,
    shown: Shown,
    out: Rc<Outgoing>,
    pub(super) permissions: Option<Permissions>,
    session: Option<SessionKey>,
    bytes: BytesMut,
    /// The number of bytes that the buffer last grew by.
    growth: usize,
    /// The part of [`Front::greeting_bytes`] that this connection has.
    greeting_bytes: usize,
    /// The number of PINGs that the client has not answered.
    unanswered: u32,
    /// When the client's JWT expires.
    expires: Option<Instant>,
    /// When the daemon sent its last PING, until the client answers.
    pinged_at: Option<Instant>,
    /// The client's PINGs that have not been answered.
    pings: WaitingPings,
}

impl Connection<'_> {
    async fn run(
        &mut self,
        reader: &mut (impl AsyncRead + Unpin),
        session: &RefCell<Option<SessionKey>>,
        greeted: impl FnOnce(),
    ) -> Result<(), End> {
        let deadline = Instant::now() + CONNECT_TIMEOUT;
        while self.session.is_none() {
            let read = async {
                self.out.wait_for_answers().await;
                self.read(reader).await
            };
            match timeout_at(deadline, read).await {
                Ok(read) => read?,
                Err(_) => return Err(End::Refused("Authentication Timeout".to_owned())),
            }
            self.connect()?;
            *session.borrow_mut() = self.session;
        }
        self.return_greeting_bytes();
        greeted();
        let mut ping_at = Instant::now() + self.front.limits.ping_interval;
        while let Some(key) = self.session {
            if self.front.core.borrow().phase() != Phase::Serves {
                return self.discard(reader).await;
            }
            self.handle_operations(key).await?;
            self.answer_pings(key);
            let (may_read, waiting) = (self.may_read(key), self.waiting(key));
            if self.expires.is_some_and(|at| at <= Instant::now()) {
                return Err(End::Refused("User Authentication Expired".to_owned()));
            }
            let deadlines = [self.pings.deadline(), self.expires];
            let wake_at = deadlines.into_iter().flatten().fold(ping_at, Instant::min);
            tokio::select! {
                read = self.read(reader), if may_read => read?,
                () = notified(waiting.as_deref()), if waiting.is_some() => {}
                () = sleep_until(wake_at) => {
                    if wake_at == ping_at {
                        // The client's PONG would not be read.
                        if may_read {
                            self.ping()?;
                        }
                        ping_at = Instant::now() + self.front.limits.ping_interval;
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns whether there is room for what the client sends behind a message that waits.
    fn may_read(&self, key: SessionKey) -> bool {
        !self.pings.is_full() && self.front.core.borrow().has_room_to_hold(key)
    }

    /// Returns the notification of a message of the client that has entered; `None` if none waits.
    fn waiting(&self, key: SessionKey) -> Option<Rc<Notify>> {
        let mut core = self.front.core.borrow_mut();
        let session = core.session(key);
        session.is_busy().then(|| Rc::clone(&session.ready))
    }

    /// Answers the client's PINGs whose time has come.
    fn answer_pings(&mut self, key: SessionKey) {
        if self.pings.deadline().is_none() {
            return;
        }
        let entered = self.front.core.borrow_mut().session(key).entered();
        for _ in 0..self.pings.take_due(Instant::now(), entered) {
            self.out.push_answer(&[b"PONG\r\n"]);
        }
    }

    /// Waits until the messages that the client had sent before its end have entered, or the daemon
    /// ends.
    async fn finish(&self, key: SessionKey) {
        self.front.core.borrow_mut().leave_all(key);
        while let Some(ready) = self.waiting(key) {
            if self.front.core.borrow().phase() == Phase::Closes {
                return;
            }
            ready.notified().await;
        }
    }

    async fn read(&mut self, reader: &mut (impl AsyncRead + Unpin)) -> Result<(), End> {
        let free = self.bytes.capacity() - self.bytes.len();
        if self.session.is_none() && free == 0 {
            // A stranger has only what it has filled.
            let more = self.bytes.len().max(GREETING_BYTES);
            if !self.bytes.is_empty() {
                self.borrow_greeting_bytes(more)?;
            }
            self.bytes.reserve(more);
        } else if self.session.is_some() && free <= self.growth / 4 {
            let (least, most) = READ_BYTES;
            self.growth = (2 * self.growth).clamp(least, most);
            self.bytes.reserve(self.growth);
        }
        if reader.read_buf(&mut self.bytes).await? == 0 {
            return Err(End::Closed);
        }
        if let Some(key) = self.session {
            self.front.core.borrow_mut().note_read(key);
        }
        Ok(())
    }

    /// Takes memory for a CONNECT from the pool of all strangers.
    fn borrow_greeting_bytes(&mut self, more: usize) -> Result<(), End> {
        let all = self.front.greeting_bytes.get() + more;
        if all > GREETINGS_BYTES_MAX {
            return Err(End::Refused("Maximum Control Line Exceeded".to_owned()));
        }
        self.front.greeting_bytes.set(all);
        self.greeting_bytes += more;
        Ok(())
    }

    /// Gives the memory back that was taken for a CONNECT.
    fn return_greeting_bytes(&mut self) {
        let own = core::mem::take(&mut self.greeting_bytes);
        let all = self.front.greeting_bytes.get();
        self.front.greeting_bytes.set(all - own);
    }

    fn ping(&mut self) -> Result<(), End> {
        if self.unanswered >= PINGS_MAX {
            return Err(End::Refused("Stale Connection".to_owned()));
        }
        self.unanswered += 1;
        self.pinged_at = Some(Instant::now());
        self.out.push(b"PING\r\n", Bytes::new());
        Ok(())
    }

    /// Handles operations until CONNECT.
    fn connect(&mut self) -> Result<(), End> {
        while let Some(operation) = parse_greeting(&mut self.bytes)? {
            match operation {
                Operation::Connect(options) => return self.authenticate(&options),
                Operation::Ping => self.out.push_answer(&[b"PONG\r\n"]),
                _ => {}
            }
        }
        Ok(())
    }

    fn authenticate(&mut self, options: &[u8]) -> Result<(), End> {
        let options = connect_options(options)?;
        let mut core = self.front.core.borrow_mut();
        let from = self.peer.address.ip();
        let may_try = core.may_guess(from);
        // Nothing about credentials is said when too many before them were wrong.
        let admitted = match may_try {
            true => {
                let now = SystemTime::now();
                self.front.access.admit(&options, from, &self.shown, now)
            }
            false => Err(None),
        };
        let permissions = match admitted {
            Ok(permissions) => permissions,
            Err(reason) => {
                let name = options.user.as_deref().or(options.nkey.as_deref());
                core.refuse_credentials(from, name, may_try);
                return Err(End::Refused(violation(reason)));
            }
        };
        let wall_s = SystemTime::now().duration_since(UNIX_EPOCH);
        let wall_s = wall_s.map_or(0, |wall| wall.as_secs());
        let left = permissions.expires.map(|at| at.saturating_sub(wall_s));
        self.expires = left.map(|left| Instant::now() + Duration::from_secs(left.min(DECADE_S)));
        let key = core.connect(Rc::clone(&self.out), &permissions, self.peer);
        let session = core.session(key);
        session.options = options;
        session.acknowledge();
        drop(core);
        // The client had connected before the daemon announced that it stops.
        if self.front.is_retiring.get() {
            let line = self.front.lame_duck_info(self.peer);
            self.out.push(line.as_bytes(), Bytes::new());
        }
        self.permissions = Some(permissions);
        self.session = Some(key);
        Ok(())
    }

    /// Handles the operations that have been read, as far as there is room for them.
    async fn handle_operations(&mut self, key: SessionKey) -> Result<(), End> {
        let most = self.front.limits.payload_bytes_max;
        while self.may_read(key) {
            let before = self.bytes.len();
            let Some(operation) = parse(&mut self.bytes, most)? else {
                break;
            };
            self.handle(key, operation, before - self.bytes.len())?;
            self.out.wait_for_answers().await;
            if self.front.core.borrow().phase() != Phase::Serves {
                break;
            }
        }
        Ok(())
    }

    /// Reads what a client sends to a daemon that stops, until the client closes the connection.
    /// Unread bytes would make the kernel reset the connection, and the client's last messages
    /// could get lost.
    async fn discard(&mut self, reader: &mut (impl AsyncRead + Unpin)) -> Result<(), End> {
        loop {
            self.bytes.clear();
            self.read(reader).await?;
        }
    }

    /// Handles an operation of this many bytes.
    fn handle(&mut self, key: SessionKey, operation: Operation, bytes: usize) -> Result<(), End> {
        match operation {
            Operation::Publish(message) => return self.publish(key, message, bytes),
            Operation::Subscribe {
                pattern,
                queue,
                sid,
            } => self.subscribe(key, pattern, queue, sid),
            Operation::Unsubscribe { sid, max } => {
                self.front.core.borrow_mut().limit(key, &sid, max);
                self.acknowledge(key);
            }
            Operation::Ping => self.handle_ping(key),
            Operation::Pong => self.handle_pong(key),
            Operation::Connect(options) => {
                // Some clients repeat CONNECT to change their options.
                let options = connect_options(&options)?;
                self.front.core.borrow_mut().session(key).options = options;
                self.acknowledge(key);
            }
        }
        self.front.core.borrow_mut().count_operation(key, bytes);
        Ok(())
    }

    /// Answers a PING at once if no message waits, or later.
    fn handle_ping(&mut self, key: SessionKey) {
        let mut core = self.front.core.borrow_mut();
        let session = core.session(key);
        match session.is_busy() {
            true => self.pings.push(Instant::now(), session.taken),
            false => self.out.push_answer(&[b"PONG\r\n"]),
        }
    }

    fn handle_pong(&mut self, key: SessionKey) {
        self.unanswered = 0;
        if let Some(at) = self.pinged_at.take() {
            self.front.core.borrow_mut().session(key).rtt = Some(at.elapsed());
        }
    }

    fn acknowledge(&self, key: SessionKey) {
        self.front.core.borrow_mut().session(key).acknowledge();
    }

    pub(super) fn report(&self, error: &str) {
        let error = error.as_bytes();
        self.out.push_answer(&[b"-ERR '", error, b"'\r\n"]);
    }
}
