//! HTTP over one Anypoint connection: a gateway takes requests of HTTP clients, and members pass
//! them to servers that know nothing of Anypoint.
//!
//! ```text
//!   curl --HTTP--> gateway --one connection--> switch --+--> member --HTTP--> server
//!                  serve_gateway                        +--> member --HTTP--> server
//!                                                              serve_members
//! ```
//!
//! | file | what it holds |
//! |---|---|
//! | `wire.rs`, `wire/` | the messages between gateway and member, and their encoding |
//! | `headers.rs` | the headers that a proxy removes and adds (RFC 9110 section 7.6) |
//! | `gateway.rs`, `gateway/` | the gateway: its HTTP server, its connection, one exchange, its counters |
//! | `member.rs`, `member/` | the member: requests in progress, the body of a request, the answer |
//!
//! # Messages
//!
//! Each message is one frame of the connection. Integers are in network order.
//!
//! ```text
//!   byte 0       1      2       3     4       12        20
//!   from gateway | 1 | type | flags | 0 | id    | fields ...
//!   from member  | 1 | type | flags | 0 | id    | member  | fields ...
//!
//!   1 Request    | window, 4 | alive, 4 | head's length, 4 | method, target, headers | body ...
//!   2 Part       | offset, 8 | bytes of the request's body ...
//!   3 Credit     | until, 8 |
//!   4 Cancel     |
//!   5 Response   | status, 2 | head's length, 4 | headers | body ...
//!   6 Part       | offset, 8 | bytes of the response's body ...
//!   7 Credit     | until, 8 |
//!   8 Alive      | id, 8 | id, 8 ...
//!   9 Failed     | reason, UTF-8 ...         the flags are the kind of failure
//! ```
//!
//! # One request
//!
//! The gateway chooses the id. The low 32 bits of the id are the key of each message about the
//! request, and its low 12 bits are a place among the requests in progress, which no other request
//! in progress has. The policy `affinity` of a switch needs no more to give all messages of a
//! request to one member. A request whose body fits its first message needs no such policy, unless
//! its response is longer than the window.
//!
//! `member` is a random number that each member draws when it starts. The gateway takes the parts
//! of a response only from the member that sent its beginning, and each part states its offset. So
//! a response is never put together from two members, and never has a gap.
//!
//! The receiver of a body grants credit: the number of bytes, from the body's beginning, up to
//! which the sender may send. Therefore a slow client takes at most a window of memory in the
//! gateway, and other requests do not wait for it.
//!
//! # Failures
//!
//! A member sends Alive for each request in progress at the interval that the request states. The
//! gateway gives a request up that has no sign of life for a longer time. It sends a GET or HEAD
//! once more, under another id, unless the client has a part of the response. It answers other
//! requests with 502 and the reason, and aborts a response that the client has begun to receive. A
//! member that is given a message of a request that it does not know answers Failed at once.

pub mod framing;
mod gateway;
mod headers;
mod member;
pub mod wire;

pub use gateway::{
    Gateway, GatewayCounters, GatewayError, GatewayOptions, GatewayStatus, serve_gateway,
};
pub use member::{HttpMember, MemberCounters, MemberOptions, Origin, OriginError, serve_members};
