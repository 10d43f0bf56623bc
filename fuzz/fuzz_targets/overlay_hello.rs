//! Any bytes from the other end of a connection are refused, or are the encoding of a handshake of
//! a daemon.
#![cfg_attr(fuzzing, no_main)]

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use manyflow_messages::{Hello, HelloError, Resume};

/// The first bytes of a handshake.
const MAGIC: &[u8; 8] = b"manyflo\x06";

manyflow_fuzz::target!(|bytes: &[u8]| {
    check(bytes);
    let [overlay, name, rest @ ..] = bytes else {
        return;
    };
    // Few inputs begin with the magic bytes, have a valid flag, and names of a valid length.
    let known = [MAGIC, rest].concat();
    check(&known);
    let mut known = known;
    if let Some(flags) = known.get_mut(14) {
        *flags %= 2;
    }
    check(&known);
    let names = [*overlay, *name].map(|length| 1 + usize::from(length % 160));
    let Some(fixed) = known.first_chunk::<15>() else {
        return;
    };
    for byte in [b'n', *overlay] {
        let mut whole = fixed.to_vec();
        for length in names {
            whole.push(length as u8);
            whole.resize(whole.len() + length, byte);
        }
        check(&[&whole, rest].concat());
    }
});

fn check(bytes: &[u8]) {
    let mut rest = bytes;
    if let Ok(hello) = hello(&mut rest) {
        let read = bytes.len() - rest.len();
        assert_eq!(hello.encode(), &bytes[..read]);
        let cut = hello_of(&bytes[..read - 1]);
        assert!(matches!(cut, Err(HelloError::Io(_))), "{cut:?}");
    }
    if let Some(bytes) = bytes.first_chunk() {
        let resume = Resume::decode(*bytes);
        assert_eq!(resume.encode(), *bytes);
        let mut rest = &bytes[..];
        let read = ready(Resume::read(&mut rest)).expect("there are enough bytes");
        assert_eq!(read, resume);
    }
}

fn hello_of(mut bytes: &[u8]) -> Result<Hello, HelloError> {
    hello(&mut bytes)
}

fn hello(bytes: &mut &[u8]) -> Result<Hello, HelloError> {
    ready(Hello::read(bytes))
}

/// Returns the output of a future that reads from memory, and therefore never waits.
fn ready<T>(future: impl Future<Output = T>) -> T {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut context) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("a read from memory waits"),
    }
}
