//! A connection with its subscriptions, and the two tasks that serve it.
//!
//! One task reads. It waits while the buffer of a subscription is full, so that the daemon notices
//! a slow member. The other task writes the bytes that publishers have left in the buffer, and
//! PONGs. The reader never waits for the writer: a daemon may read nothing from this client until
//! the client has read its messages.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{Mutex as AsyncMutex, Notify, mpsc, oneshot};

use super::connect::{ReadHalf, WriteHalf, malformed};
use super::wire::{self, Operation, parse};
use super::{ClientError, Message};
use crate::nats::errors::is_about_subscription;

/// Bytes of published messages from which on publishers write to the socket themselves.
const OUTPUT_BYTES: usize = 32 << 10;
const READ_BYTES: usize = 64 << 10;

/// The receiver of a subscription's messages.
#[derive(Debug)]
pub(super) enum Target {
    /// A stream of messages, joined with this pattern.
    Messages {
        pattern: String,
        sender: mpsc::Sender<Message>,
    },
    /// The requests of this client.
    Requests,
}

#[derive(Debug, Default)]
struct Inner {
    subscriptions: BTreeMap<u64, Target>,
    subscription_last: u64,
    /// Flushes that wait for a PONG, in the order of their PINGs.
    flushes: VecDeque<oneshot::Sender<()>>,
    /// Requests that wait for an answer, by the subject of the answer.
    requests: BTreeMap<Bytes, oneshot::Sender<Message>>,
    /// The daemon's reasons for subscriptions that it has refused or ended.
    refusals: BTreeMap<u64, String>,
    failure: Option<ClientError>,
}

struct Output {
    writer: WriteHalf,
    buffer: BytesMut,
}

/// The state of a connection, which its tasks share with the client.
pub(super) struct State {
    pub(super) address: String,
    inner: Mutex<Inner>,
    output: AsyncMutex<Output>,
    has_output: Notify,
    /// PONGs that are due.
    pongs: AtomicU32,
    is_closing: AtomicBool,
}

impl State {
    pub(super) fn new(address: String, writer: WriteHalf) -> State {
        State {
            address,
            inner: Mutex::default(),
            output: AsyncMutex::new(Output {
                writer,
                buffer: BytesMut::new(),
            }),
            has_output: Notify::new(),
            pongs: AtomicU32::new(0),
            is_closing: AtomicBool::new(false),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn failure(&self) -> Option<ClientError> {
        self.inner().failure.clone()
    }

    fn check(&self) -> Result<(), ClientError> {
        self.failure().map_or(Ok(()), Err)
    }

    /// Ends all streams, flushes and requests. The first failure counts.
    pub(super) fn fail(&self, failure: ClientError) {
        let mut inner = self.inner();
        inner.failure.get_or_insert(failure);
        inner.subscriptions.clear();
        inner.flushes.clear();
        inner.requests.clear();
    }

    fn lose(&self, cause: impl ToString) -> ClientError {
        self.fail(ClientError::Lost {
            address: self.address.clone(),
            cause: cause.to_string(),
        });
        self.failure().expect("it was set")
    }

    /// Adds bytes to those that wait for the socket. Waits while too many do.
    pub(super) async fn write(&self, write: impl FnOnce(&mut BytesMut)) -> Result<(), ClientError> {
        let mut output = self.output.lock().await;
        self.check()?;
        // A cancelled call may have left a full buffer.
        if output.buffer.len() >= OUTPUT_BYTES {
            output.send().await.map_err(|error| self.lose(error))?;
        }
        write(&mut output.buffer);
        if output.buffer.len() >= OUTPUT_BYTES {
            output.send().await.map_err(|error| self.lose(error))?;
        }
        self.has_output.notify_one();
        Ok(())
    }

    /// Returns when the daemon has handled everything that was written before.
    pub(super) async fn flush(&self) -> Result<(), ClientError> {
        let (sender, receiver) = oneshot::channel();
        // Flushes are in the order of their PINGs: both are added under the output's lock.
        self.write(|output| {
            self.inner().flushes.push_back(sender);
            output.extend_from_slice(b"PING\r\n");
        })
        .await?;
        receiver.await.map_err(|_| self.ended())
    }

    pub(super) fn ended(&self) -> ClientError {
        self.failure().unwrap_or_else(|| ClientError::Drained {
            address: self.address.clone(),
        })
    }

    /// Subscribes, and returns the number of the subscription when the daemon has accepted it.
    pub(super) async fn subscribe(
        &self,
        pattern: &str,
        queue: Option<&str>,
        target: Target,
    ) -> Result<u64, ClientError> {
        let number = self.add_subscription(target);
        self.ask_for_subscription(number, pattern, queue).await?;
        Ok(number)
    }

    /// Adds a subscription of which the daemon does not know, and returns its number.
    pub(super) fn add_subscription(&self, target: Target) -> u64 {
        let mut inner = self.inner();
        inner.subscription_last += 1;
        let number = inner.subscription_last;
        inner.subscriptions.insert(number, target);
        number
    }

    /// Returns when the daemon has accepted a subscription. Forgets it after an error.
    pub(super) async fn ask_for_subscription(
        &self,
        number: u64,
        pattern: &str,
        queue: Option<&str>,
    ) -> Result<(), ClientError> {
        let queue = queue.unwrap_or_default();
        let line = format!("SUB {pattern} {queue} {number}\r\n");
        let asked = async {
            self.write(|output| output.extend_from_slice(line.as_bytes()))
                .await?;
            self.flush().await
        };
        let asked = asked.await;
        let accepted = asked.and_then(|()| self.take_refusal(number).map_or(Ok(()), Err));
        accepted.inspect_err(|_| {
            self.forget(number);
        })
    }

    /// Returns the error of a subscription that the daemon has refused or ended, once.
    pub(super) fn take_refusal(&self, number: u64) -> Option<ClientError> {
        let reason = self.inner().refusals.remove(&number)?;
        Some(ClientError::Refused {
            address: self.address.clone(),
            reason,
        })
    }

    /// Forgets a subscription. The daemon learns of it with the next write.
    pub(super) fn forget(&self, number: u64) -> bool {
        self.inner().subscriptions.remove(&number).is_some()
    }

    pub(super) fn subscriptions(&self) -> Vec<u64> {
        self.inner().subscriptions.keys().copied().collect()
    }

    /// Registers a request whose answer will have the subject `inbox`.
    pub(super) fn expect_answer(&self, inbox: &str) -> oneshot::Receiver<Message> {
        let (sender, receiver) = oneshot::channel();
        let inbox = Bytes::copy_from_slice(inbox.as_bytes());
        self.inner().requests.insert(inbox, sender);
        receiver
    }

    pub(super) fn forget_request(&self, inbox: &str) {
        self.inner().requests.remove(inbox.as_bytes());
    }

    /// Lets the writing task end when everything is written.
    pub(super) fn close(&self) {
        self.is_closing.store(true, Ordering::Relaxed);
        self.has_output.notify_one();
    }

    /// Reads until the connection ends.
    pub(super) async fn read(&self, mut reader: ReadHalf, mut input: BytesMut) {
        loop {
            loop {
                match parse(&mut input) {
                    Ok(Some(operation)) => self.handle(operation).await,
                    Ok(None) => break,
                    Err(_) => return drop(self.lose(malformed())),
                }
            }
            input.reserve(READ_BYTES);
            match reader.read_buf(&mut input).await {
                Ok(0) => return drop(self.lose("the daemon closed it")),
                Ok(_) => {}
                Err(error) => return drop(self.lose(error)),
            }
        }
    }

    async fn handle(&self, operation: Operation) {
        match operation {
            Operation::Message {
                subscription,
                message,
            } => self.deliver(subscription, message).await,
            Operation::Ping => {
                self.pongs.fetch_add(1, Ordering::Relaxed);
                self.has_output.notify_one();
            }
            Operation::Pong => {
                if let Some(flush) = self.inner().flushes.pop_front() {
                    let _ = flush.send(());
                }
            }
            Operation::Error(reason) => self.handle_error(&reason),
            Operation::Info(_) | Operation::Ok => {}
        }
    }

    /// Waits while the buffer of the subscription is full.
    async fn deliver(&self, subscription: u64, message: Message) {
        let (sender, message) = {
            let mut inner = self.inner();
            match inner.subscriptions.get(&subscription) {
                None => return,
                Some(Target::Requests) => {
                    if let Some(request) = inner.requests.remove(&message.subject) {
                        let _ = request.send(message);
                    }
                    return;
                }
                Some(Target::Messages { sender, .. }) => match sender.try_send(message) {
                    Err(mpsc::error::TrySendError::Full(message)) => (sender.clone(), message),
                    _ => return,
                },
            }
        };
        // A stream that was dropped takes no message.
        let _ = sender.send(message).await;
    }

    /// Ends the subscription that the error is about, and logs the others: the daemon closes the
    /// connection if the error is fatal.
    fn handle_error(&self, reason: &str) {
        let mut inner = self.inner();
        let found = inner.subscriptions.iter().find(|(_, target)| match target {
            Target::Messages { pattern, .. } => is_about_subscription(reason, pattern),
            Target::Requests => false,
        });
        match found.map(|(&number, _)| number) {
            Some(number) => {
                inner.subscriptions.remove(&number);
                inner.refusals.insert(number, reason.to_owned());
            }
            None => tracing::warn!("the daemon at {} reports: {reason}", self.address),
        }
    }

    /// Writes what waits, until the client is dropped or the connection fails.
    pub(super) async fn write_waiting(&self) {
        while !self.is_closing.load(Ordering::Relaxed) {
            self.has_output.notified().await;
            let mut output = self.output.lock().await;
            for _ in 0..self.pongs.swap(0, Ordering::Relaxed) {
                output.buffer.extend_from_slice(b"PONG\r\n");
            }
            if let Err(error) = output.send().await {
                return drop(self.lose(error));
            }
        }
        let mut output = self.output.lock().await;
        let _ = output.send().await;
        let _ = output.writer.shutdown().await;
    }

    /// Writes a message.
    pub(super) async fn publish(&self, message: &Message) -> Result<(), ClientError> {
        self.write(|output| wire::write_message(message, output))
            .await
    }
}

impl Output {
    /// Writes everything to the socket. If the call is cancelled, the rest remains.
    async fn send(&mut self) -> std::io::Result<()> {
        self.writer.write_all_buf(&mut self.buffer).await?;
        self.writer.flush().await
    }
}
