//! The framing of requests, checked byte by byte before the HTTP server sees them.
//!
//! Two hosts that find different ends of one message can be made to see different requests (request
//! smuggling). So a gateway takes only requests whose end every reader finds at the same place, and
//! answers all others with 400 (RFC 9112 sections 2.2, 3.2, 5, 6 and 7.1).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::http::uri::Authority;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The longest line that is kept for checking. The server refuses longer heads.
const LINE_BYTES_MAX: usize = 64 << 10;
/// The longest line with the size of a chunk, its extensions included.
const CHUNK_LINE_BYTES_MAX: usize = 4 << 10;
/// Maximum number of digits of a length in bytes: it fits 64 bits.
const DIGITS_MAX: usize = 18;
const HEX_DIGITS_MAX: usize = 15;
/// A byte that no head and no chunk may have: the server refuses it.
const INVALID: u8 = 0;

/// The reason why bytes are not the framing of a request.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Refusal(pub &'static str);

/// Finds the parts of the requests on one connection.
#[derive(Debug)]
pub struct Scanner {
    state: FramingState,
    /// The bytes of the present line, without its end.
    line: Vec<u8>,
    head: Head,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum FramingState {
    /// Before a request: empty lines may come (RFC 9112 section 2.2).
    RequestLine,
    HeaderLine,
    /// The server refuses the head because it is too long.
    TooLong,
    /// This number of bytes follow of a body with a known length.
    Body(u64),
    ChunkLine,
    Chunk(u64),
    /// The end of the line behind a chunk.
    ChunkEnd,
    Trailer,
}

/// The facts of a head that decide where its request ends and for whom it is.
#[derive(Debug, Default)]
struct Head {
    is_1_0: bool,
    length: Option<u64>,
    is_chunked: bool,
    hosts: usize,
}

impl Default for Scanner {
    fn default() -> Scanner {
        Scanner {
            state: FramingState::RequestLine,
            line: Vec::new(),
            head: Head::default(),
        }
    }
}

impl Scanner {
    /// Handles further bytes.
    ///
    /// # Errors
    /// The reason why a byte is refused, and its place in `bytes`.
    pub fn handle_bytes(&mut self, bytes: &[u8]) -> Result<(), (usize, Refusal)> {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            let passed = match self.state {
                FramingState::TooLong => return Ok(()),
                FramingState::Body(left) => self.skip(
                    left,
                    rest.len(),
                    FramingState::RequestLine,
                    FramingState::Body,
                ),
                FramingState::Chunk(left) => self.skip(
                    left,
                    rest.len(),
                    FramingState::ChunkEnd,
                    FramingState::Chunk,
                ),
                _ => {
                    self.handle_byte(rest[0]).map_err(|refusal| (at, refusal))?;
                    1
                }
            };
            at += passed;
        }
        Ok(())
    }

    /// Passes bytes of a body, of which `left` are to come. Returns their number.
    fn skip(
        &mut self,
        left: u64,
        here: usize,
        behind: FramingState,
        within: impl Fn(u64) -> FramingState,
    ) -> usize {
        let passed = left.min(here as u64);
        self.state = match left - passed {
            0 => behind,
            left => within(left),
        };
        passed as usize
    }

    fn handle_byte(&mut self, byte: u8) -> Result<(), Refusal> {
        let is_behind_cr = self.line.last() == Some(&b'\r');
        match byte {
            b'\n' if is_behind_cr => {
                self.line.pop();
                let handled = self.handle_line();
                self.line.clear();
                handled
            }
            b'\n' => Err(Refusal("a line ends without CR")),
            _ if is_behind_cr => Err(Refusal("a CR is not the end of a line")),
            _ => self.append(byte),
        }
    }

    fn append(&mut self, byte: u8) -> Result<(), Refusal> {
        self.line.push(byte);
        let is_head = matches!(
            self.state,
            FramingState::RequestLine | FramingState::HeaderLine
        );
        if is_head && self.line.len() > LINE_BYTES_MAX {
            self.state = FramingState::TooLong;
            self.line = Vec::new();
        } else if !is_head && self.line.len() > CHUNK_LINE_BYTES_MAX {
            return Err(Refusal("a line of a chunk or a trailer is too long"));
        }
        Ok(())
    }

    fn handle_line(&mut self) -> Result<(), Refusal> {
        let line = &self.line[..];
        self.state = match self.state {
            FramingState::RequestLine if line.is_empty() => FramingState::RequestLine,
            FramingState::RequestLine => {
                self.head = Head {
                    is_1_0: line.ends_with(b" HTTP/1.0"),
                    ..Head::default()
                };
                // A fragment is not part of a target (RFC 9112 section 3.2).
                if line.contains(&b'#') {
                    return Err(Refusal("the target has a fragment"));
                }
                FramingState::HeaderLine
            }
            FramingState::HeaderLine if line.is_empty() => self.head.body()?,
            FramingState::HeaderLine => {
                self.head.handle_field(line)?;
                FramingState::HeaderLine
            }
            FramingState::ChunkLine => match chunk_bytes(line)? {
                0 => FramingState::Trailer,
                bytes => FramingState::Chunk(bytes),
            },
            FramingState::ChunkEnd if line.is_empty() => FramingState::ChunkLine,
            FramingState::ChunkEnd => return Err(Refusal("a chunk is longer than its size")),
            FramingState::Trailer if line.is_empty() => FramingState::RequestLine,
            other => other,
        };
        // Idle connections keep no memory.
        if self.line.capacity() > CHUNK_LINE_BYTES_MAX && self.state != FramingState::HeaderLine {
            self.line = Vec::new();
        }
        Ok(())
    }
}

impl Head {
    fn handle_field(&mut self, line: &[u8]) -> Result<(), Refusal> {
        // RFC 9112 section 5.2.
        if line[0] == b' ' || line[0] == b'\t' {
            return Err(Refusal("a header continues on the next line"));
        }
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            return Err(Refusal("a header has no colon"));
        };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        // RFC 9112 section 5.1.
        if name.is_empty() || name.last().is_some_and(u8::is_ascii_whitespace) {
            return Err(Refusal("a header has white space before its colon"));
        }
        if name.eq_ignore_ascii_case(b"content-length") {
            let length = decimal(value).ok_or(Refusal("Content-Length is not a number"))?;
            if self.length.replace(length).is_some() {
                return Err(Refusal("Content-Length comes twice"));
            }
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            // RFC 9112 sections 6.1 and 7: chunked is the only coding that must be known.
            let is_known = value.eq_ignore_ascii_case(b"chunked") && !self.is_chunked;
            if !is_known || self.is_1_0 {
                return Err(Refusal(
                    "Transfer-Encoding is not one `chunked` of HTTP/1.1",
                ));
            }
            self.is_chunked = true;
        } else if name.eq_ignore_ascii_case(b"host") {
            self.hosts += 1;
            if !is_host(value) {
                return Err(Refusal("Host is not a host"));
            }
        }
        Ok(())
    }

    /// Returns the state behind the head.
    fn body(&self) -> Result<FramingState, Refusal> {
        // RFC 9112 section 3.2.
        if self.hosts > 1 || (self.hosts == 0 && !self.is_1_0) {
            return Err(Refusal("a request of HTTP/1.1 has one Host"));
        }
        match (self.is_chunked, self.length) {
            (true, Some(_)) => Err(Refusal("Transfer-Encoding and Content-Length contradict")),
            (true, None) => Ok(FramingState::ChunkLine),
            (false, None | Some(0)) => Ok(FramingState::RequestLine),
            (false, Some(length)) => Ok(FramingState::Body(length)),
        }
    }
}

/// Returns whether a value of Host is empty, or a host with at most a port (RFC 9110 section 7.2).
pub(super) fn is_host(value: &[u8]) -> bool {
    let authority = || Authority::try_from(value).ok();
    let is_authority = |authority: Authority| {
        let port = authority.as_str().strip_prefix(authority.host());
        let port = port.filter(|_| !authority.host().is_empty());
        let digits = port.map(|port| port.strip_prefix(':').unwrap_or(port));
        digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
    };
    value.is_empty() || authority().is_some_and(is_authority)
}

fn decimal(text: &[u8]) -> Option<u64> {
    let is_valid = (1..=DIGITS_MAX).contains(&text.len()) && text.iter().all(u8::is_ascii_digit);
    let digits = std::str::from_utf8(text).ok().filter(|_| is_valid)?;
    digits.parse().ok()
}

/// Returns the size of a chunk. Extensions are ignored (RFC 9112 section 7.1.1).
fn chunk_bytes(line: &[u8]) -> Result<u64, Refusal> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit());
    let (digits, rest) = line.split_at(digits.count());
    let is_valid = (1..=HEX_DIGITS_MAX).contains(&digits.len())
        && matches!(rest.trim_ascii_start(), [] | [b';', ..]);
    let text = std::str::from_utf8(digits).ok().filter(|_| is_valid);
    text.and_then(|text| u64::from_str_radix(text, 16).ok())
        .ok_or(Refusal("the size of a chunk is not valid"))
}

/// A client's connection whose framing is checked. After a refusal the server reads a byte that it
/// refuses as well, and then the end.
#[derive(Debug)]
pub(super) struct Checked<S> {
    stream: S,
    scanner: Scanner,
    is_refused: bool,
}

impl<S> Checked<S> {
    pub(super) fn new(stream: S) -> Checked<S> {
        Checked {
            stream,
            scanner: Scanner::default(),
            is_refused: false,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Checked<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.is_refused {
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        if let Err((at, Refusal(reason))) = this.scanner.handle_bytes(&buffer.filled()[before..]) {
            tracing::debug!("a request is refused: {reason}");
            this.is_refused = true;
            buffer.set_filled(before + at);
            buffer.put_slice(&[INVALID]);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Checked<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the reason why this request is refused, if it is. The bytes come one by one, and at
    /// once.
    fn refusal(request: &str) -> Option<&'static str> {
        let bytes = request.as_bytes();
        let whole = Scanner::default().handle_bytes(bytes);
        let mut scanner = Scanner::default();
        let mut single = (0..).zip(bytes.chunks(1));
        let single = single.find_map(|(at, byte)| {
            let refused = scanner.handle_bytes(byte).err();
            refused.map(|(_, refusal)| (at, refusal))
        });
        assert_eq!(whole.err(), single, "{request:?}");
        single.map(|(_, Refusal(reason))| reason)
    }

    fn post(fields: &str, body: &str) -> String {
        format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n{body}")
    }

    #[test]
    fn usual_requests_pass_also_one_behind_another() {
        let get = "GET / HTTP/1.1\r\nHost: example.net:80\r\n\r\n";
        let length = post("content-length: 4", "\n\r\n\n");
        let chunked = post(
            "Transfer-Encoding: Chunked ",
            "3;a=b\r\nabc\r\n00A\r\n0123456789\r\n0\r\nX: 1\r\n\r\n",
        );
        let old = "GET / HTTP/1.0\r\n\r\n";
        let all = [get, &length, "\r\n", &chunked, old, get].concat();
        assert_eq!(refusal(&all), None);
        let mut scanner = Scanner::default();
        assert_eq!(scanner.handle_bytes(all.as_bytes()), Ok(()));
        assert_eq!(scanner.state, FramingState::RequestLine, "all have ended");
    }

    #[test]
    fn requests_whose_end_is_in_doubt_are_refused() {
        let chunked = "Transfer-Encoding: chunked";
        let refused = [
            ("Content-Length: 3\r\nTransfer-Encoding: chunked", ""),
            ("Transfer-Encoding: chunked\r\nContent-Length: 3", ""),
            ("Content-Length: 3\r\nContent-Length: 3", ""),
            ("Content-Length: 3\r\nContent-Length: 4", ""),
            ("Content-Length: 3, 3", ""),
            ("Content-Length: +3", ""),
            ("Content-Length: -3", ""),
            ("Content-Length: 0x3", ""),
            ("Content-Length:", ""),
            ("Content-Length: 99999999999999999999", ""),
            ("Transfer-Encoding: gzip, chunked", ""),
            ("Transfer-Encoding: chunked,", ""),
            ("Transfer-Encoding: identity", ""),
            ("Transfer-Encoding: \u{b}chunked", ""),
            (
                "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
                "",
            ),
            ("Transfer-Encoding : chunked", ""),
            ("X: a\r\n Transfer-Encoding: chunked", ""),
            ("X: a\nTransfer-Encoding: chunked", ""),
            ("X: a\rTransfer-Encoding: chunked", ""),
            ("no colon", ""),
            (chunked, "-3\r\n"),
            (chunked, "3\n"),
            (chunked, "\r\n"),
            (chunked, "g\r\n"),
            (chunked, "3 4\r\n"),
            (chunked, "10000000000000003\r\n"),
            (chunked, "3\r\nabcd\r\n"),
            (chunked, "3\r\nabc\n"),
            (chunked, "0\r\nX: 1\n\r\n"),
        ];
        for (fields, body) in refused {
            assert!(
                refusal(&post(fields, body)).is_some(),
                "{fields:?} {body:?}"
            );
        }
        let old = "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert!(refusal(old).is_some());
    }

    #[test]
    fn a_request_is_for_one_host() {
        let with = |fields: &str| refusal(&format!("GET / HTTP/1.1\r\n{fields}\r\n"));
        for good in ["a", "a:80", "[::1]:80", "192.0.2.1", ""] {
            assert_eq!(with(&format!("Host: {good}\r\n")), None, "{good}");
        }
        for bad in ["u@a", "a/b", "a?b", "a b", ":80", "a:b", "\u{1}"] {
            assert!(with(&format!("Host: {bad}\r\n")).is_some(), "{bad}");
        }
        assert!(with("").is_some());
        assert!(with("Host: a\r\nHost: a\r\n").is_some());
        assert!(refusal("GET /#a HTTP/1.1\r\nHost: a\r\n\r\n").is_some());
    }

    #[test]
    fn long_lines_take_bounded_memory() {
        let mut scanner = Scanner::default();
        assert_eq!(scanner.handle_bytes(&vec![b'a'; 1 << 20]), Ok(()));
        assert_eq!(
            (scanner.state, scanner.line.capacity()),
            (FramingState::TooLong, 0)
        );
        let long = post("Transfer-Encoding: chunked", &"0".repeat(10_000));
        assert!(refusal(&long).is_some());
    }

    proptest! {
        #[test]
        fn no_bytes_panic_and_cuts_change_nothing(
            parts in prop::collection::vec(prop_oneof![
                Just("GET / HTTP/1.1\r\n".to_owned()), Just("Host: a\r\n".to_owned()),
                Just("Transfer-Encoding: chunked\r\n".to_owned()), Just("\r\n".to_owned()),
                Just("Content-Length: 5\r\n".to_owned()), "[0-9a-f]{1,3}\r\n", ".{0,8}",
            ], 0..20),
        ) {
            refusal(&parts.concat());
        }
    }
}
