//! The messages between a gateway and the members, and their encoding. The page of
//! [`anypoint_http`](super) draws the format.

mod head;
mod open;
mod reader;

use bytes::{BufMut, Bytes, BytesMut};
use hyper::{HeaderMap, Method, StatusCode};
use manyflow_anypoint::switch::Prefix;

pub use head::RequestHead;
pub(super) use head::check_headers;
use head::{put_headers, take_headers};
pub use open::Open;
use reader::Reader;

/// The longest head of a request or response in bytes, as it is encoded.
pub const HEAD_BYTES_MAX: usize = 64 << 10;
/// The most headers of one request or response.
pub const HEADERS_MAX: usize = 128;
/// The most bytes of a body in one message.
pub const PART_BYTES_MAX: usize = 256 << 10;
/// The bytes of a request's body that a gateway may send after the first message without a
/// [`MemberEvent::Credit`].
pub const UPLOAD_WINDOW: u64 = 256 << 10;
/// The longest reason of a failure in bytes. A longer one is cut.
pub const REASON_BYTES_MAX: usize = 1000;
/// The number of places among the requests in progress of one connection.
pub const PLACES: usize = 1 << 12;

const VERSION: u8 = 2;
const REQUEST: u8 = 1;
const REQUEST_PART: u8 = 2;
const RESPONSE_CREDIT: u8 = 3;
const CANCEL: u8 = 4;
const RESPONSE: u8 = 5;
const RESPONSE_PART: u8 = 6;
const REQUEST_CREDIT: u8 = 7;
const ALIVE: u8 = 8;
const FAILED: u8 = 9;
const PROBE: u8 = 10;
const OPEN: u8 = 11;
const PULSE: u8 = 12;
const IS_LAST: u8 = 1;
/// The flags of a Pulse.
const IS_SERVING: u8 = 1;
const IS_DRAINING: u8 = 2;

/// The number of a request in progress, which the gateway chooses. The highest bits are its
/// [`Prefix`] among the gateways of the connection.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

impl RequestId {
    /// Returns the key of a member's messages about the request, and of the gateway's if the
    /// request is for no member in particular. The key names the gateway, if several share the
    /// connection.
    pub fn key(self) -> u32 {
        Prefix::of_id(self.0).key(self.0 as u32)
    }

    /// Returns the place among the requests in progress: below [`PLACES`].
    pub fn place(self) -> usize {
        self.0 as usize % PLACES
    }
}

/// A message from a gateway to a member.
#[derive(Clone, Debug, PartialEq)]
pub enum ToMember {
    /// Asks for the answer to an HTTP request.
    Request(Box<Request>),
    /// Opens a stream to a TCP server. The parts of the request's and the response's bodies are
    /// the bytes of the stream.
    Open(Box<Open>),
    /// Asks the member for a [`MemberEvent::Pulse`]. The number is one of the probe.
    Probe(RequestId),
    /// Continues the body of a request.
    Part(RequestId, Part),
    /// Permits the member to send the response's body up to `until` bytes from its beginning. Also
    /// a sign that the gateway still wants the response.
    Credit(RequestId, u64),
    /// Ends a request whose response is no longer wanted.
    Cancel(RequestId),
}

/// The first message of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The number of the request.
    pub id: RequestId,
    /// The bytes of the response's body that the member may send before it needs more credit.
    pub window: u32,
    /// The longest time between two signs of life of the request, in milliseconds; not 0.
    pub alive_ms: u32,
    /// The number of the member that the request is for; 0 for any member. Others refuse it: a
    /// switch gives them the messages of a member that has failed.
    pub to: u64,
    /// Method, target and headers.
    pub head: RequestHead,
    /// The beginning of the body: at most [`PART_BYTES_MAX`] bytes.
    pub body: Bytes,
    /// Whether `body` is the whole body.
    pub is_last: bool,
}

/// Bytes of a body after the first message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The number of bytes of the body before these.
    pub offset: u64,
    /// At most [`PART_BYTES_MAX`] bytes; empty only if `is_last`.
    pub bytes: Bytes,
    /// Whether the body ends here.
    pub is_last: bool,
}

/// A message from a member to a gateway.
#[derive(Clone, Debug, PartialEq)]
pub struct FromMember {
    /// The number that the member drew when it started.
    pub member: u64,
    /// The contents.
    pub event: MemberEvent,
}

/// The contents of a message from a member.
#[derive(Clone, Debug, PartialEq)]
pub enum MemberEvent {
    /// The beginning of the response.
    Response(RequestId, Box<Response>),
    /// Continues the body of the response.
    Part(RequestId, Part),
    /// Permits the gateway to send the request's body up to this number of bytes from its
    /// beginning.
    Credit(RequestId, u64),
    /// These requests, at least one, are in progress.
    Alive(Vec<RequestId>),
    /// The request has no response, or its response ends here incomplete.
    Failed(RequestId, Failure),
    /// Answers a [`ToMember::Probe`].
    Pulse(RequestId, Pulse),
}

impl MemberEvent {
    /// Returns the number of the request, stream or probe; 0 for [`Alive`](MemberEvent::Alive).
    pub fn id(&self) -> RequestId {
        match self {
            MemberEvent::Response(id, _)
            | MemberEvent::Part(id, _)
            | MemberEvent::Credit(id, _)
            | MemberEvent::Failed(id, _)
            | MemberEvent::Pulse(id, _) => *id,
            MemberEvent::Alive(_) => RequestId(0),
        }
    }
}

/// The state of a member.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Pulse {
    /// Whether the server behind the member answered when it was last asked or checked.
    pub is_serving: bool,
    /// Whether the member refuses further requests because it is shutting down.
    pub is_draining: bool,
}

/// The beginning of a response.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    /// The status code.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The beginning of the body: at most [`PART_BYTES_MAX`] bytes.
    pub body: Bytes,
    /// Whether `body` is the whole body.
    pub is_last: bool,
}

/// The reason why a member does not answer a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The kind, by which the gateway decides whether to send the request again.
    pub kind: FailureKind,
    /// The reason for people: 1 to [`REASON_BYTES_MAX`] bytes.
    pub reason: String,
}

/// Kinds of failures.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FailureKind {
    /// The member is full or shutting down. Its server has not seen the request.
    Refused = 1,
    /// The member has no request of this number: it has restarted, or a switch gave the messages
    /// of one request to several members.
    Unknown = 2,
    /// The server behind the member may have handled the request, and its answer is not complete.
    Origin = 3,
    /// The server behind the member cannot be reached, so it has not seen the request.
    Unreachable = 4,
    /// The server behind the member has got the request, and has not answered in time.
    Late = 5,
    /// The request is for another member, which may have got it as well.
    Elsewhere = 6,
}

impl FailureKind {
    fn decode(kind: u8) -> Option<FailureKind> {
        Some(match kind {
            1 => FailureKind::Refused,
            2 => FailureKind::Unknown,
            3 => FailureKind::Origin,
            4 => FailureKind::Unreachable,
            5 => FailureKind::Late,
            6 => FailureKind::Elsewhere,
            _ => return None,
        })
    }
}

impl Failure {
    /// Creates a failure with this reason, cut to [`REASON_BYTES_MAX`] bytes.
    pub fn new(kind: FailureKind, reason: &str) -> Failure {
        let reason = if reason.is_empty() { "unknown" } else { reason };
        let most = REASON_BYTES_MAX.min(reason.len());
        let cut = (0..=most).rev().find(|end| reason.is_char_boundary(*end));
        let reason = reason[..cut.unwrap_or(0)].to_owned();
        Failure { kind, reason }
    }
}

/// The reason why bytes are not a message.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The message ends before its fields do.
    #[error("the message ends before its fields do")]
    Short,
    /// The first byte is not the version of this program.
    #[error("version {0} of the messages is not known: this is version {VERSION}; use one version")]
    Version(u8),
    /// The type is not one of those that this end accepts.
    #[error("type {0} is not one that this end accepts")]
    Type(u8),
    /// Flags or a reserved byte have a value without meaning.
    #[error("flags or a reserved byte of type {0} have no meaning")]
    Flags(u8),
    /// A field of the head is not valid in HTTP.
    #[error("the {0} is not valid in HTTP")]
    Head(&'static str),
    /// The head is longer than [`HEAD_BYTES_MAX`], or has more than [`HEADERS_MAX`] headers.
    #[error("the head has more than {HEAD_BYTES_MAX} bytes or {HEADERS_MAX} headers")]
    LongHead,
    /// The bytes of a body are more than [`PART_BYTES_MAX`], or there are none in the middle.
    #[error("{0} bytes of a body cannot be in a message of this type")]
    Body(usize),
    /// A number is outside its range.
    #[error("the {0} is outside its range")]
    Range(&'static str),
    /// The reason of a failure is empty, too long, or not UTF-8.
    #[error("the reason of a failure is not 1 to {REASON_BYTES_MAX} bytes of UTF-8")]
    Reason,
    /// Bytes follow a message that has none left.
    #[error("bytes follow the message")]
    Rest,
}

fn begin(kind: u8, flags: u8, id: u64, more: usize) -> BytesMut {
    let mut bytes = BytesMut::with_capacity(32 + more);
    bytes.put_slice(&[VERSION, kind, flags, 0]);
    bytes.put_u64(id);
    bytes
}

fn finish(mut bytes: BytesMut, body: &[u8]) -> Bytes {
    bytes.put_slice(body);
    bytes.freeze()
}

/// Fills in the length of a head that begins after the 4 bytes at `place`.
fn set_length(bytes: &mut BytesMut, place: usize) {
    let length = (bytes.len() - place - 4) as u32;
    bytes[place..place + 4].copy_from_slice(&length.to_be_bytes());
}

impl Request {
    /// Encodes the message.
    pub fn encode(&self) -> Bytes {
        let more = 512 + self.body.len();
        let mut bytes = begin(REQUEST, u8::from(self.is_last), self.id.0, more);
        bytes.put_u32(self.window);
        bytes.put_u32(self.alive_ms);
        bytes.put_u64(self.to);
        let place = bytes.len();
        bytes.put_u32(0);
        self.head.encode(&mut bytes);
        set_length(&mut bytes, place);
        finish(bytes, &self.body)
    }
}

impl ToMember {
    /// Returns the number of the request.
    pub fn id(&self) -> RequestId {
        match self {
            ToMember::Request(request) => request.id,
            ToMember::Open(open) => open.id,
            ToMember::Part(id, _)
            | ToMember::Credit(id, _)
            | ToMember::Cancel(id)
            | ToMember::Probe(id) => *id,
        }
    }

    /// Encodes the message.
    pub fn encode(&self) -> Bytes {
        match self {
            ToMember::Request(request) => request.encode(),
            ToMember::Open(open) => open.encode(),
            ToMember::Probe(id) => begin(PROBE, 0, id.0, 0).freeze(),
            ToMember::Part(id, part) => {
                let last = u8::from(part.is_last);
                part.encode(begin(REQUEST_PART, last, id.0, part.bytes.len()))
            }
            ToMember::Credit(id, until) => {
                finish(begin(RESPONSE_CREDIT, 0, id.0, 0), &until.to_be_bytes())
            }
            ToMember::Cancel(id) => begin(CANCEL, 0, id.0, 0).freeze(),
        }
    }

    /// Decodes a message. Bodies share its memory.
    ///
    /// # Errors
    /// If the bytes are not a message of a gateway.
    pub fn decode(message: &Bytes) -> Result<ToMember, WireError> {
        let (kind, flags, id, mut reader) = decode_fixed(message)?;
        let id = RequestId(id);
        let decoded = match kind {
            REQUEST => {
                let is_last = take_last(kind, flags)?;
                ToMember::Request(Box::new(decode_request(id, is_last, &mut reader)?))
            }
            REQUEST_PART => ToMember::Part(id, Part::decode(take_last(kind, flags)?, &mut reader)?),
            RESPONSE_CREDIT | CANCEL | PROBE | OPEN if flags != 0 => {
                return Err(WireError::Flags(kind));
            }
            PROBE => ToMember::Probe(id),
            OPEN => ToMember::Open(Box::new(Open::decode(id, &mut reader)?)),
            RESPONSE_CREDIT => ToMember::Credit(id, reader.take_u64()?),
            CANCEL => ToMember::Cancel(id),
            _ => return Err(WireError::Type(kind)),
        };
        reader.finish()?;
        Ok(decoded)
    }
}

fn decode_request(
    id: RequestId,
    is_last: bool,
    reader: &mut Reader<'_>,
) -> Result<Request, WireError> {
    let (window, alive_ms, to) = take_terms(reader)?;
    let mut head = take_head(reader)?;
    let decoded = RequestHead::decode(&mut head)?;
    head.finish()?;
    Ok(Request {
        id,
        window,
        alive_ms,
        to,
        head: decoded,
        body: take_body(reader)?,
        is_last,
    })
}

/// Takes the window, the interval of signs of life, and the member of a request or stream.
fn take_terms(reader: &mut Reader<'_>) -> Result<(u32, u32, u64), WireError> {
    let (window, alive_ms) = (reader.take_u32()?, reader.take_u32()?);
    match alive_ms {
        0 => Err(WireError::Range("interval of signs of life")),
        _ => Ok((window, alive_ms, reader.take_u64()?)),
    }
}

impl FromMember {
    /// Encodes the message.
    pub fn encode(&self) -> Bytes {
        let begin = |kind, flags, id: RequestId, more| {
            let mut bytes = begin(kind, flags, id.0, more);
            bytes.put_u64(self.member);
            bytes
        };
        match &self.event {
            MemberEvent::Response(id, response) => {
                let more = 512 + response.body.len();
                let mut bytes = begin(RESPONSE, u8::from(response.is_last), *id, more);
                bytes.put_u16(response.status.as_u16());
                let place = bytes.len();
                bytes.put_u32(0);
                put_headers(&mut bytes, &response.headers);
                set_length(&mut bytes, place);
                finish(bytes, &response.body)
            }
            MemberEvent::Part(id, part) => {
                let last = u8::from(part.is_last);
                part.encode(begin(RESPONSE_PART, last, *id, part.bytes.len()))
            }
            MemberEvent::Credit(id, until) => {
                finish(begin(REQUEST_CREDIT, 0, *id, 0), &until.to_be_bytes())
            }
            MemberEvent::Alive(ids) => {
                let mut bytes = begin(ALIVE, 0, RequestId(0), 8 * ids.len());
                ids.iter().for_each(|id| bytes.put_u64(id.0));
                bytes.freeze()
            }
            MemberEvent::Failed(id, failure) => {
                let reason = failure.reason.as_bytes();
                let bytes = begin(FAILED, failure.kind as u8, *id, reason.len());
                finish(bytes, reason)
            }
            MemberEvent::Pulse(id, pulse) => {
                let serving = IS_SERVING * u8::from(pulse.is_serving);
                let draining = IS_DRAINING * u8::from(pulse.is_draining);
                begin(PULSE, serving | draining, *id, 0).freeze()
            }
        }
    }

    /// Decodes a message. Bodies share its memory.
    ///
    /// # Errors
    /// If the bytes are not a message of a member.
    pub fn decode(message: &Bytes) -> Result<FromMember, WireError> {
        let (kind, flags, id, mut reader) = decode_fixed(message)?;
        let id = RequestId(id);
        let member = reader.take_u64()?;
        let event = match kind {
            RESPONSE => {
                let is_last = take_last(kind, flags)?;
                MemberEvent::Response(id, Box::new(decode_response(is_last, &mut reader)?))
            }
            RESPONSE_PART => {
                MemberEvent::Part(id, Part::decode(take_last(kind, flags)?, &mut reader)?)
            }
            REQUEST_CREDIT | ALIVE if flags != 0 => return Err(WireError::Flags(kind)),
            REQUEST_CREDIT => MemberEvent::Credit(id, reader.take_u64()?),
            ALIVE if id.0 != 0 => return Err(WireError::Range("number of the request")),
            ALIVE => MemberEvent::Alive(decode_alive(&mut reader)?),
            FAILED => MemberEvent::Failed(id, decode_failure(flags, &mut reader)?),
            PULSE if flags > IS_SERVING | IS_DRAINING => return Err(WireError::Flags(kind)),
            PULSE => {
                let (is_serving, is_draining) = (flags & IS_SERVING > 0, flags & IS_DRAINING > 0);
                let pulse = Pulse {
                    is_serving,
                    is_draining,
                };
                MemberEvent::Pulse(id, pulse)
            }
            _ => return Err(WireError::Type(kind)),
        };
        reader.finish()?;
        Ok(FromMember { member, event })
    }
}

fn decode_response(is_last: bool, reader: &mut Reader<'_>) -> Result<Response, WireError> {
    let status = StatusCode::from_u16(reader.take_u16()?);
    let status = status.map_err(|_| WireError::Head("status"))?;
    if status.is_informational() {
        return Err(WireError::Head("status"));
    }
    let mut head = take_head(reader)?;
    let headers = take_headers(&mut head)?;
    head.finish()?;
    Ok(Response {
        status,
        headers,
        body: take_body(reader)?,
        is_last,
    })
}

fn decode_alive(reader: &mut Reader<'_>) -> Result<Vec<RequestId>, WireError> {
    let bytes = reader.take_rest();
    if bytes.is_empty() || !bytes.len().is_multiple_of(8) || bytes.len() / 8 > PLACES {
        return Err(WireError::Range("number of requests in progress"));
    }
    let ids = bytes.chunks_exact(8).filter_map(|id| id.try_into().ok());
    Ok(ids.map(|id| RequestId(u64::from_be_bytes(id))).collect())
}

fn decode_failure(kind: u8, reader: &mut Reader<'_>) -> Result<Failure, WireError> {
    let kind = FailureKind::decode(kind).ok_or(WireError::Flags(FAILED))?;
    let bytes = reader.take_rest();
    let text = core::str::from_utf8(&bytes).map_err(|_| WireError::Reason)?;
    if !(1..=REASON_BYTES_MAX).contains(&text.len()) {
        return Err(WireError::Reason);
    }
    let reason = text.to_owned();
    Ok(Failure { kind, reason })
}

impl Part {
    fn encode(&self, mut bytes: BytesMut) -> Bytes {
        bytes.put_u64(self.offset);
        finish(bytes, &self.bytes)
    }

    fn decode(is_last: bool, reader: &mut Reader<'_>) -> Result<Part, WireError> {
        let offset = reader.take_u64()?;
        let bytes = take_body(reader)?;
        if bytes.is_empty() && !is_last {
            return Err(WireError::Body(0));
        }
        if offset.checked_add(bytes.len() as u64).is_none() {
            return Err(WireError::Range("offset"));
        }
        Ok(Part {
            offset,
            bytes,
            is_last,
        })
    }
}

/// Decodes what all messages share: type, flags and id.
fn decode_fixed(message: &Bytes) -> Result<(u8, u8, u64, Reader<'_>), WireError> {
    let mut reader = Reader::new(message);
    let [version, kind, flags, reserved] = reader.take_array()?;
    if version != VERSION {
        return Err(WireError::Version(version));
    }
    if reserved != 0 {
        return Err(WireError::Flags(kind));
    }
    let id = reader.take_u64()?;
    Ok((kind, flags, id, reader))
}

fn take_last(kind: u8, flags: u8) -> Result<bool, WireError> {
    match flags {
        0 => Ok(false),
        IS_LAST => Ok(true),
        _ => Err(WireError::Flags(kind)),
    }
}

/// Takes a head by its length.
fn take_head<'a>(reader: &mut Reader<'a>) -> Result<Reader<'a>, WireError> {
    let length = reader.take_u32()? as usize;
    if length > HEAD_BYTES_MAX {
        return Err(WireError::LongHead);
    }
    reader.take_part(length)
}

fn take_body(reader: &mut Reader<'_>) -> Result<Bytes, WireError> {
    let body = reader.take_rest();
    match body.len() {
        0..=PART_BYTES_MAX => Ok(body),
        length => Err(WireError::Body(length)),
    }
}

/// Returns whether a method can be sent again without a second effect: only GET and HEAD are, of
/// those that RFC 9110 section 9.2.1 calls safe, because the others are rare and not all servers
/// keep to it.
pub(super) fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

#[cfg(test)]
mod tests;
