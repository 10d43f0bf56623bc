//! HTTP and TCP streams over one Anypoint connection: a gateway takes requests of HTTP clients, or
//! streams of TCP clients, and members pass them to servers that know nothing of Anypoint.
//!
//! ```text
//!   curl --HTTP--> gateway --one connection--> switch --+--> member --HTTP--> server
//!                  serve_gateway                        +--> member --HTTP--> server
//!                                                              serve_members
//! ```
//!
//! The switch is a program of its own, or one inside of the gateway ([`Service`]).
//!
//! | file | what it holds |
//! |---|---|
//! | `wire.rs`, `wire/` | the messages between gateway and member, and their encoding |
//! | `headers.rs` | the headers that a proxy removes and adds (RFC 9110 section 7.6) |
//! | `gateway.rs`, `gateway/` | the gateway: its servers, its connections and routes, the members that it knows, the attempts to answer a request, streams, counters |
//! | `member.rs`, `member/` | the member: requests in progress, the body of a request, the answer, streams, the health of its servers |
//!
//! # Messages
//!
//! Each message is one frame of the connection. Integers are in network order.
//!
//! ```text
//!   byte 0       1      2       3     4       12        20
//!   from gateway | 2 | type | flags | 0 | id    | fields ...
//!   from member  | 2 | type | flags | 0 | id    | member  | fields ...
//!
//!   1 Request    | window, 4 | alive, 4 | to, 8 | head's length, 4 | method, target, headers | body ...
//!   2 Part       | offset, 8 | bytes of the request's body ...
//!   3 Credit     | until, 8 |
//!   4 Cancel     |
//!   5 Response   | status, 2 | head's length, 4 | headers | body ...
//!   6 Part       | offset, 8 | bytes of the response's body ...
//!   7 Credit     | until, 8 |
//!   8 Alive      | id, 8 | id, 8 ...
//!   9 Failed     | reason, UTF-8 ...         the flags are the kind of failure
//!  10 Probe      |
//!  11 Open       | window, 4 | alive, 4 | to, 8 | client, 18 | local, 18 | server ...
//!  12 Pulse      |                           the flags: 1 the server answers, 2 draining
//! ```
//!
//! # One request
//!
//! The gateway chooses the id. The low 12 bits of the id are a place among the requests in
//! progress, which no other request in progress has. `member` is a random number that each member
//! draws when it starts.
//!
//! The policies `affinity` and `hash` of a switch give the messages of one key to one member. A
//! gateway finds a key for each member: it sends a Probe with a new key, and the Pulse that answers
//! names the member. All messages about a request have the key of the member that the gateway has
//! chosen for it, and `to` is the number of this member: after a failure, the switch may hand them
//! to another one, which answers Failed. With other policies, `to` is 0, and the highest 10 and the
//! lowest 22 bits of the id are the key. A request whose body fits its first message then works as
//! long as its response is no longer than the window. A member's messages about a request have this
//! key in any case. Its highest bits are the prefix of the gateway, if several share the
//! connection.
//!
//! The gateway takes the parts of a response only from the member that sent its beginning, and each
//! part states its offset. So a response is never put together from two members, and never has a
//! gap.
//!
//! A stream is opened by Open, and accepted by a Response with status 200 and no headers. The bytes
//! of the client are the body of the request, and those of the server the body of the response. The
//! last part of a body is the end of its direction.
//!
//! The receiver of a body grants credit: the number of bytes, from the body's beginning, up to
//! which the sender may send. Therefore a slow client takes at most a window of memory in the
//! gateway, and other requests do not wait for it.
//!
//! A request begins before its body has arrived. The client of one with `Expect: 100-continue`
//! sends its body when the gateway has received credit, which a member repeats for the 100 of its
//! server, or after 1 s.
//!
//! # Failures
//!
//! A member sends Alive for each request in progress at the interval that the request states. The
//! gateway gives a request up that has no sign of life for a longer time, or whose member has died.
//! It sends a GET or HEAD to another member, under another id, unless the client has a part of the
//! response, and does so earlier if the member does not answer probes while others do. It answers
//! other requests with 502 and the reason, and aborts a response that the client has begun to
//! receive. A member that is given a message of a request that it does not know answers Failed at
//! once. The kind of a failure says whether a server has seen the request.

pub mod framing;
mod gateway;
mod headers;
mod member;
pub mod wire;

pub use gateway::{
    GATEWAY_COUNTERS, Gateway, GatewayCounters, GatewayError, GatewayOptions, GatewayStatus,
    Service, TunnelPort, serve_gateway, serve_tunnel,
};
pub use member::{
    HttpMember, MEMBER_COUNTERS, MemberCounters, MemberOptions, Origin, OriginError, serve_members,
};

/// A counter of a gateway or member: its name, its help, and its value.
pub type NamedCounter<T> = (&'static str, &'static str, fn(&T) -> u64);
