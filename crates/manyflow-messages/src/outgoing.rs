//! Bytes that wait for a socket.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::rc::Rc;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// Payloads of at most this many bytes are copied behind their headers. A slice of its own in a
/// system call costs more than such a copy.
const COPIED_BYTES_MAX: usize = 512;
/// The number of bytes that the buffer for headers and short payloads grows by: first the lower
/// one, so that thousands of clients that get little take little, then twice as many each time.
const HEADERS_BYTES: (usize, usize) = (512, 16 * 1024);
/// The maximum number of bytes of answers that wait.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// The maximum number of slices in a system call.
const SLICES_MAX: usize = 128;

/// The bytes that wait for one connection. Payloads are shared with other connections, not copied.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    queue: RefCell<Queue>,
    /// The bytes in the queue and in the system call under way.
    bytes: Cell<usize>,
    /// Bytes of answers that were pushed since the queue was last empty.
    answer_bytes: Cell<usize>,
    is_closed: Cell<bool>,
    changed: Notify,
    drained: Notify,
    aborted: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    slices: VecDeque<Bytes>,
    /// Headers and short payloads behind the slices.
    tail: BytesMut,
    /// The number of bytes that the tail last grew by.
    growth: usize,
}

impl Queue {
    fn push_slice(&mut self, slice: Bytes) {
        if !self.tail.is_empty() {
            let tail = self.tail.split().freeze();
            self.slices.push_back(tail);
        }
        self.slices.push_back(slice);
    }

    /// Appends bytes to the tail.
    fn push_bytes(&mut self, bytes: &[u8]) {
        if self.tail.capacity() - self.tail.len() < bytes.len() {
            let (least, most) = HEADERS_BYTES;
            self.growth = (2 * self.growth).clamp(least, most);
            self.tail.reserve(self.growth.max(bytes.len()));
        }
        self.tail.extend_from_slice(bytes);
    }
}

impl Outgoing {
    /// Appends a header and a payload.
    pub(super) fn push(&self, header: &[u8], payload: Bytes) {
        self.push_parts(&[header], payload);
    }

    /// Appends the parts of a header, and a payload.
    pub(super) fn push_parts(&self, header: &[&[u8]], payload: Bytes) {
        if self.is_closed.get() {
            return;
        }
        let mut queue = self.queue.borrow_mut();
        let mut bytes = payload.len();
        for part in header {
            bytes += part.len();
            queue.push_bytes(part);
        }
        if payload.len() <= COPIED_BYTES_MAX {
            queue.push_bytes(&payload);
        } else {
            queue.push_slice(payload);
        }
        self.bytes.set(self.bytes.get() + bytes);
        drop(queue);
        self.changed.notify_one();
    }

    /// Appends the parts of an answer to something that the other end has sent. An end that sends
    /// more than it reads must not fill the memory: the caller reads no more from it while answers
    /// [wait](Outgoing::wait_for_answers).
    pub(super) fn push_answer(&self, parts: &[&[u8]]) {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        self.answer_bytes.set(self.answer_bytes.get() + bytes);
        self.push_parts(parts, Bytes::new());
    }

    /// Waits while more than [`ANSWER_BYTES_MAX`] of answers have not been written.
    pub(super) async fn wait_for_answers(&self) {
        while self.answer_bytes.get() > ANSWER_BYTES_MAX && !self.is_closed.get() {
            self.drained.notified().await;
        }
    }

    /// Returns the number of bytes that wait.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.get()
    }

    /// Ends the connection when all bytes have been written. Later bytes are dropped.
    pub(super) fn close(&self) {
        self.is_closed.set(true);
        self.changed.notify_one();
        self.drained.notify_one();
    }

    /// Ends the connection at once, with bytes that have not been written.
    pub(super) fn abort(&self) {
        self.close();
        self.aborted.notify_one();
    }

    /// Waits until the connection is [aborted](Outgoing::abort).
    pub(super) async fn aborted(&self) {
        self.aborted.notified().await;
    }

    /// Begins a task that [writes](Outgoing::write) the bytes, and closes the connection after an
    /// error.
    pub(super) fn begin_writing(
        outgoing: &Rc<Outgoing>,
        mut writer: impl AsyncWrite + Unpin + 'static,
        drained: impl FnMut() + 'static,
    ) -> JoinHandle<io::Result<()>> {
        let outgoing = Rc::clone(outgoing);
        tokio::task::spawn_local(async move {
            let result = outgoing.write(&mut writer, drained).await;
            outgoing.close();
            result
        })
    }

    /// Writes the bytes until the connection is closed. Calls `drained` whenever none are left.
    ///
    /// # Errors
    /// Returns an error if the socket does.
    pub(super) async fn write(
        &self,
        socket: &mut (dyn AsyncWrite + Unpin),
        mut drained: impl FnMut(),
    ) -> io::Result<()> {
        let mut slices = VecDeque::new();
        loop {
            if self.take(&mut slices) {
                self.write_slices(socket, &mut slices).await?;
                continue;
            }
            socket.flush().await?;
            self.answer_bytes.set(0);
            self.drained.notify_one();
            drained();
            if self.bytes.get() > 0 {
                continue;
            }
            if self.is_closed.get() {
                return socket.shutdown().await;
            }
            self.changed.notified().await;
        }
    }

    /// Moves the waiting bytes into `slices`. Returns whether there are any.
    fn take(&self, slices: &mut VecDeque<Bytes>) -> bool {
        let mut queue = self.queue.borrow_mut();
        slices.append(&mut queue.slices);
        if !queue.tail.is_empty() {
            slices.push_back(queue.tail.split().freeze());
        }
        !slices.is_empty()
    }

    async fn write_slices(
        &self,
        socket: &mut (dyn AsyncWrite + Unpin),
        slices: &mut VecDeque<Bytes>,
    ) -> io::Result<()> {
        while !slices.is_empty() {
            let mut written = {
                let mut batch = [IoSlice::new(&[]); SLICES_MAX];
                let count = slices.len().min(SLICES_MAX);
                for (place, slice) in batch.iter_mut().zip(slices.iter()) {
                    *place = IoSlice::new(slice);
                }
                socket.write_vectored(&batch[..count]).await?
            };
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.bytes.set(self.bytes.get() - written);
            while let Some(first) = slices.front_mut()
                && written > 0
            {
                let taken = first.len().min(written);
                first.advance(taken);
                written -= taken;
                if first.is_empty() {
                    slices.pop_front();
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn bytes_arrive_in_the_order_in_which_they_were_pushed() {
        let (mut near, mut far) = tokio::io::duplex(100);
        let outgoing = Rc::new(Outgoing::default());
        let mut expected = Vec::new();
        for number in 0..200u8 {
            let payload = vec![number; 10 * usize::from(number)];
            expected.extend_from_slice(&[number, 7]);
            expected.extend_from_slice(&payload);
            outgoing.push_parts(&[&[number], &[7]], Bytes::from(payload));
        }
        assert_eq!(outgoing.bytes(), expected.len());
        outgoing.close();
        let mut read = Vec::new();
        let (written, _) =
            tokio::join!(outgoing.write(&mut near, || {}), far.read_to_end(&mut read));
        written.unwrap();
        assert!(read == expected);
        assert_eq!(outgoing.bytes(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn an_end_that_reads_no_answers_must_wait() {
        let (mut near, mut far) = tokio::io::duplex(100);
        let outgoing = Rc::new(Outgoing::default());
        let long = Duration::from_secs(1);
        let asking = async {
            let mut answers = 0;
            while tokio::time::timeout(long, outgoing.wait_for_answers())
                .await
                .is_ok()
            {
                outgoing.push_answer(&[&[7; 1000], b"\r\n"]);
                answers += 1;
            }
            assert_eq!(answers, ANSWER_BYTES_MAX / 1002 + 1);
            let mut read = vec![0; answers * 1002];
            far.read_exact(&mut read).await.unwrap();
            outgoing.wait_for_answers().await;
            outgoing.close();
        };
        let (written, ()) = tokio::join!(outgoing.write(&mut near, || {}), asking);
        written.unwrap();
    }
}
