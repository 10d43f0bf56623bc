//! Spread's client protocol, by which programs that are linked with its libraries take part in
//! ordered groups.
//!
//! Spread (Amir, Danilov, Miskin-Amir, Schultz and Stanton: The Spread Toolkit) has daemons that
//! order the messages of their clients. A client connects to one of them over TCP, at port 4803, or
//! over a Unix socket. This is the format as its documentation and public client libraries have it.
//!
//! # Handshake
//!
//! | from | bytes |
//! |---|---|
//! | client | version: major, minor, and since 3.15 patch; one byte with bit 0 if the client wants messages about members, and its priority in the upper half; the length of its name, 0 to 10; the name |
//! | daemon | since 3.16: the length of a list, and the list of authentication methods, each followed by a space: `NULL IP `. If the client is refused: one byte with a negative code |
//! | client | since 3.16: three methods of 30 bytes, padded with zeros; those that it does not need are empty |
//! | daemon | 1; its version (patch since 3.15); the length of the name of the client's private group, and this name. If the client is refused: one byte with a negative code |
//!
//! The private group is `#`, the client's name, `#`, and the daemon's name, and has at most 31
//! bytes. Names have the characters `$` to `~`. The daemon chooses a name for a client that has
//! none. The methods NULL and IP have no exchange of their own. Codes: -3 too many connections, -5
//! illegal name, -6 name not unique, -7 version too old, -9 authentication.
//!
//! # Messages
//!
//! A message has a header of 48 bytes, names of 32 bytes each, padded with zeros, and a payload:
//!
//! | bytes | field |
//! |---|---|
//! | 0 | type. The bits 0x80000080 are set if the sender's numbers are in little-endian order |
//! | 4 | a name of 32 bytes: the sender's private group; for messages about members, the group |
//! | 36 | the number of names behind the header |
//! | 40 | hint: 16 bits for the application from bit 8, and the bits for the order of bytes of the first sender, which daemons do not change |
//! | 44 | bytes of the payload |
//!
//! | bits of the type | meaning |
//! |---|---|
//! | 0x01, 0x02, 0x04, 0x08, 0x10, 0x20 | unreliable, reliable, FIFO, causal, agreed, safe |
//! | 0x40 | the sender does not want the message itself |
//! | 0x10000, 0x20000, 0x40000 | from clients: join or leave the group that is the first name; disconnect |
//! | 0x1000 with 0x100, 0x200, 0x400 or 0x800 | to clients: a view, because of a join, a leave, a disconnect or the network. The names are its members, in the same order at all of them |
//! | 0x2000 | to clients: the transitional signal. The payload is the number of the last view |
//! | 0x200 alone | to clients: the client has left the group. No names, no payload |
//! | 0x400000 | to clients: a message that was rejected. The type that it had follows the header in 4 bytes that do not count for the payload. A join has 0x100 there, and a leave 0x200 |
//!
//! The payload of a view has numbers of 4 bytes in the order of the header: three that are the
//! number of the view; the number of sets; the offset of this member's set behind this number; then
//! each set: the number of its members, and their names. After a join, a leave or a disconnect,
//! there is one set with the member that has come or gone. After a change of the network, each set
//! has members that have come together from the same view.
//!
//! A message has at most 100 groups, and 144,000 bytes with their names. A message to a private
//! group reaches this client alone.
//!
//! # Differences from Spread's daemon
//!
//! - Numbers are in little-endian order, on every machine. The hint's order of bytes is that of the
//!   daemon too, so that a client cannot see which order the sender's machine has.
//! - After a change of the network, the first set is that of this member, and each other member is
//!   alone in a set: it is not known here who of them have come together.
//! - Names that are longer than 31 bytes, which NATS clients can have, end with `~` and a hash.
//! - A message to a name with other characters is rejected; Spread delivers it to nobody.
//! - Priorities mean nothing, as in Spread.
//!
//! | file | what it holds |
//! |---|---|
//! | `wire.rs` | the format |
//! | `handshake.rs` | the beginning of a connection |
//! | `session.rs` | a connected client |
//! | `serve.rs` | its connection |

mod handshake;
pub(super) mod serve;
pub(super) mod session;
pub mod wire;
