//! Clients of the overlay: programs that publish messages to groups, and join groups.
//!
//! A client speaks the NATS client protocol with one daemon. It differs from other NATS clients in
//! one respect: it drops no message. If a program reads the messages of a group too slowly, the
//! client reads nothing more from its daemon, and the daemon applies the group's policy for slow
//! members. If the network is full, [`Client::publish`] waits. If the connection ends, all streams
//! report an error, because messages may have been missed.
//!
//! ```no_run
//! use manyflow_messages::client::{Client, ClientOptions};
//!
//! # async fn example() -> Result<(), manyflow_messages::client::ClientError> {
//! let client = Client::connect("127.0.0.1:4222", &ClientOptions::default()).await?;
//! let mut news = client.join("news.*").await?;
//! client.publish("news.sport", "3:1").await?;
//! while let Some(message) = news.next().await {
//!     let message = message?;
//!     println!("{}: {:?}", message.subject(), message.payload());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `connect.rs` | the beginning of a connection |
//! | `connection.rs` | the connection with its subscriptions |
//! | `members.rs` | the members of a group |
//! | `message.rs` | messages, subjects and headers |
//! | `ordered.rs` | ordered groups: [`Client::multicast`], [`Member`] |
//! | `view.rs` | the events of members of ordered groups |
//! | `wire.rs` | the operations of the protocol |

mod connect;
mod connection;
mod error;
mod members;
mod message;
mod ordered;
mod view;
mod wire;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use manyflow_net::tls::Authorities;
use rand::RngExt as _;
use rand::rngs::StdRng;
use tokio::sync::{OnceCell, mpsc};
use tokio::task::AbortHandle;
use tokio::time::timeout;

pub use self::connect::CLIENT_PORT;
use self::connection::{State, Target};
pub use self::error::ClientError;
pub use self::members::Members;
pub use self::message::Message;
pub use self::ordered::Member;
pub use self::view::{MemberEvent, OrderedMessage, View};

use super::Credentials;
use super::fragment::FRAGMENT_BYTES;
use super::nats::subject::{is_pattern, is_subject};

/// The status of an answer that says that there are no responders.
const NO_RESPONDERS: u16 = 503;

/// The parameters of a [`Client`].
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// A name for the daemon's log.
    pub name: Option<String>,
    /// How the client proves who it is.
    pub credentials: Option<Credentials>,
    /// The authorities whose certificates the daemon may have. With authorities, the client
    /// connects only over TLS; without, only to daemons that do not require TLS.
    pub tls: Option<Authorities>,
    /// Whether the client's groups receive its own messages, too. Without, this is Spread's option
    /// SELF_DISCARD in ordered groups.
    pub echo: bool,
    /// The number of messages that each stream buffers, at least 1, before the client reads nothing
    /// more from its daemon.
    pub buffer_messages: usize,
    /// Time for the daemon to accept the client.
    pub connect_timeout: Duration,
    /// Time for an answer to a request.
    pub request_timeout: Duration,
}

impl Default for ClientOptions {
    fn default() -> ClientOptions {
        ClientOptions {
            name: None,
            credentials: None,
            tls: None,
            echo: true,
            buffer_messages: 256,
            connect_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(10),
        }
    }
}

/// A client of a daemon. Clones share one connection, which ends when the last clone and the last
/// stream are dropped.
#[derive(Clone, Debug)]
pub struct Client {
    connection: Arc<Connection>,
}

struct Connection {
    state: Arc<State>,
    options: ClientOptions,
    message_bytes_max: usize,
    /// The subjects of answers without their last word. The first request joins them.
    inbox: OnceCell<String>,
    next_request: AtomicU64,
    /// Whether there is a [`Member`].
    has_member: AtomicBool,
    reader: AbortHandle,
}

impl fmt::Debug for Connection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "connection to {}", self.state.address)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.reader.abort();
        self.state.close();
    }
}

impl Client {
    /// Connects to the daemon at `address`: a host and a port, or a Unix socket on this machine
    /// such as `unix:/run/manyflow.sock`. Needs a tokio runtime, which serves the connection.
    ///
    /// # Errors
    /// If the daemon cannot be reached, refuses the client, or does not answer in time; if only one
    /// of both requires TLS.
    pub async fn connect(address: &str, options: &ClientOptions) -> Result<Client, ClientError> {
        let connected = timeout(options.connect_timeout, connect::connect(address, options));
        let connected = connected.await.map_err(|_| ClientError::TimedOut {
            address: address.to_owned(),
            seconds: options.connect_timeout.as_secs_f64(),
        })??;
        let state = Arc::new(State::new(address.to_owned(), connected.writer));
        let (reading, writing) = (Arc::clone(&state), Arc::clone(&state));
        tokio::spawn(async move { writing.write_waiting().await });
        let reader = async move { reading.read(connected.reader, connected.input).await };
        let connection = Arc::new(Connection {
            state,
            options: options.clone(),
            message_bytes_max: connected.message_bytes_max,
            inbox: OnceCell::new(),
            next_request: AtomicU64::new(0),
            has_member: AtomicBool::new(false),
            reader: tokio::spawn(reader).abort_handle(),
        });
        Ok(Client { connection })
    }

    /// The address that the client has connected to.
    pub fn address(&self) -> &str {
        &self.state().address
    }

    /// Joins the groups whose subjects fit `pattern`: a subject, or words between dots of which
    /// each may be `*`, and the last `>`. Returns when the daemon has accepted the request.
    ///
    /// # Errors
    /// If the pattern is invalid, if the daemon refuses it, or if the connection has ended.
    pub async fn join(&self, pattern: &str) -> Result<Messages, ClientError> {
        self.join_with(pattern, None).await
    }

    /// Joins as one of the workers of `queue`: each message goes to one of them.
    ///
    /// # Errors
    /// As [`join`](Client::join).
    pub async fn join_queue(&self, pattern: &str, queue: &str) -> Result<Messages, ClientError> {
        self.join_with(pattern, Some(queue)).await
    }

    async fn join_with(&self, pattern: &str, queue: Option<&str>) -> Result<Messages, ClientError> {
        if let Some(subject) = [
            Some(pattern).filter(|pattern| !is_pattern(pattern.as_bytes())),
            queue.filter(|queue| !is_subject(queue.as_bytes())),
        ]
        .into_iter()
        .flatten()
        .next()
        {
            let subject = subject.to_owned();
            return Err(ClientError::InvalidSubject { subject });
        }
        let (sender, receiver) = mpsc::channel(self.connection.options.buffer_messages.max(1));
        let pattern_owned = pattern.to_owned();
        let target = Target::Messages {
            pattern: pattern_owned,
            sender,
        };
        let number = self.state().subscribe(pattern, queue, target).await?;
        Ok(Messages {
            connection: Arc::clone(&self.connection),
            number,
            receiver,
            has_ended: false,
        })
    }

    /// Publishes to the members of a group. Waits while the network is full. The message leaves
    /// soon, even without [`flush`](Client::flush).
    ///
    /// # Errors
    /// If the subject is invalid, if the message is too long, or if the connection has ended.
    pub async fn publish(
        &self,
        subject: &str,
        payload: impl Into<Bytes>,
    ) -> Result<(), ClientError> {
        self.publish_message(&Message::new(subject, payload)?).await
    }

    /// Publishes a message that may have headers and a subject for answers.
    ///
    /// # Errors
    /// As [`publish`](Client::publish).
    pub async fn publish_message(&self, message: &Message) -> Result<(), ClientError> {
        let bytes = message.payload.len() + message.headers.as_ref().map_or(0, Bytes::len);
        let max = match message.is_in_layers() {
            true => FRAGMENT_BYTES.min(self.connection.message_bytes_max),
            false => self.connection.message_bytes_max,
        };
        if bytes > max {
            return Err(ClientError::TooLong {
                address: self.address().to_owned(),
                bytes,
                max,
            });
        }
        self.state().publish(message).await
    }

    /// Publishes a message and waits for the first answer.
    ///
    /// While a stream of this client is full, no answer can arrive. A program that sends requests
    /// while it handles messages needs a second client for them.
    ///
    /// # Errors
    /// If nobody has joined the group, if no answer arrives in time, and as
    /// [`publish`](Client::publish).
    pub async fn request(
        &self,
        subject: &str,
        payload: impl Into<Bytes>,
    ) -> Result<Message, ClientError> {
        self.request_message(Message::new(subject, payload)?).await
    }

    /// Publishes a message that may have headers, and waits for the first answer. Replaces the
    /// subject for answers.
    ///
    /// # Errors
    /// As [`request`](Client::request).
    pub async fn request_message(&self, message: Message) -> Result<Message, ClientError> {
        let inbox = self
            .connection
            .inbox
            .get_or_try_init(|| self.join_inbox())
            .await?;
        let number = self.connection.next_request.fetch_add(1, Ordering::Relaxed);
        let inbox = format!("{inbox}.{number}");
        let answer = self.state().expect_answer(&inbox);
        let forget = ForgetRequest {
            state: self.state(),
            inbox: &inbox,
        };
        let message = message.with_reply(&inbox)?;
        self.publish_message(&message).await?;
        let limit = self.connection.options.request_timeout;
        let answer = timeout(limit, answer).await;
        drop(forget);
        match answer {
            Ok(Ok(answer)) if answer.status() == Some(NO_RESPONDERS) => {
                Err(ClientError::NoResponders {
                    address: self.address().to_owned(),
                    subject: message.subject().to_owned(),
                })
            }
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(self.state().ended()),
            Err(_) => Err(ClientError::Unanswered {
                address: self.address().to_owned(),
                subject: message.subject().to_owned(),
                seconds: limit.as_secs_f64(),
            }),
        }
    }

    async fn join_inbox(&self) -> Result<String, ClientError> {
        // Nobody else should guess the subject and read the answers.
        let random: u128 = rand::make_rng::<StdRng>().random();
        let inbox = format!("_INBOX.{random:032x}");
        let pattern = format!("{inbox}.*");
        self.state()
            .subscribe(&pattern, None, Target::Requests)
            .await?;
        Ok(inbox)
    }

    /// Returns when the daemon has taken everything that was published before, or after 15 s if a
    /// slow member holds these messages back: the daemon then has them, and they enter later.
    ///
    /// # Errors
    /// If the connection has ended.
    pub async fn flush(&self) -> Result<(), ClientError> {
        self.state().flush().await
    }

    /// Leaves all groups, and returns when the daemon has taken everything that was published
    /// before. The streams yield what has arrived and then end without an error. Afterwards the
    /// client cannot be used any longer. The streams have to be read meanwhile.
    ///
    /// # Errors
    /// If the connection has ended before.
    pub async fn drain(&self) -> Result<(), ClientError> {
        for number in self.state().subscriptions() {
            self.unsubscribe(number).await?;
        }
        self.flush().await?;
        self.state().fail(ClientError::Drained {
            address: self.address().to_owned(),
        });
        self.state().close();
        Ok(())
    }

    async fn unsubscribe(&self, number: u64) -> Result<(), ClientError> {
        let line = format!("UNSUB {number}\r\n");
        self.state()
            .write(|output| output.extend_from_slice(line.as_bytes()))
            .await
    }

    fn state(&self) -> &State {
        &self.connection.state
    }
}

/// Forgets a request, even if its caller no longer waits.
struct ForgetRequest<'a> {
    state: &'a State,
    inbox: &'a str,
}

impl Drop for ForgetRequest<'_> {
    fn drop(&mut self) {
        self.state.forget_request(self.inbox);
    }
}

/// The messages of the groups that a client has joined by one call, in the order of each sender.
///
/// If the connection ends, or the daemon removes the client from the groups because it read too
/// slowly, the last item is an error: later messages were missed. Dropping the stream leaves the
/// groups.
#[derive(Debug)]
pub struct Messages {
    connection: Arc<Connection>,
    number: u64,
    receiver: mpsc::Receiver<Message>,
    has_ended: bool,
}

impl Messages {
    /// Waits for the next message; `None` after the end.
    pub async fn next(&mut self) -> Option<Result<Message, ClientError>> {
        std::future::poll_fn(|context| self.poll(context)).await
    }

    /// Leaves the groups, and returns when the daemon knows. Messages that have arrived are lost:
    /// see [`Client::drain`].
    ///
    /// # Errors
    /// If the connection has ended.
    pub async fn leave(self) -> Result<(), ClientError> {
        let client = Client {
            connection: Arc::clone(&self.connection),
        };
        client.connection.state.forget(self.number);
        client.unsubscribe(self.number).await?;
        client.flush().await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Message, ClientError>>> {
        self.receiver
            .poll_recv(context)
            .map(|message| match message {
                Some(message) => Some(Ok(message)),
                None if self.has_ended => None,
                None => {
                    self.has_ended = true;
                    let state = &self.connection.state;
                    let failure = state.take_refusal(self.number);
                    let failure = failure.or_else(|| state.failure());
                    let failure =
                        failure.filter(|failure| !matches!(failure, ClientError::Drained { .. }));
                    failure.map(Err)
                }
            })
    }
}

impl Stream for Messages {
    type Item = Result<Message, ClientError>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Message, ClientError>>> {
        self.poll(context)
    }
}

impl Drop for Messages {
    fn drop(&mut self) {
        // A daemon that has not been asked yet is asked in the background.
        if self.connection.state.forget(self.number)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let client = Client {
                connection: Arc::clone(&self.connection),
            };
            let number = self.number;
            runtime.spawn(async move { client.unsubscribe(number).await });
        }
    }
}
