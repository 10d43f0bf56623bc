//! Objects over packets: turns files into datagrams, and datagrams into files.
//!
//! The formats are those of FLUTE (RFC 6726): ALC packets (RFC 5775) with an LCT header (RFC 5651),
//! a File Delivery Table that names the objects, and symbols of RaptorQ (RFC 6330) or of Compact
//! No-Code FEC (RFC 5445). The tests check that another FLUTE implementation, the crate `flute`,
//! understands our datagrams and that we understand its datagrams.
//!
//! ```text
//! files -> ObjectSender::next_datagram(layer, cci) -> datagram -> Packet::decode -> ObjectReceiver -> ObjectEvent
//!                              ^                                       |
//!               rate control calls it with its CCI              the CCI goes to rate control
//! ```
//!
//! This crate uses no socket, file or clock. Rate control decides when to send; the driver reads
//! and writes files and sockets. The sender's output is a pure function of its configuration, its
//! files and the calls.
//!
//! A receiver expects hostile input. It trusts no length, bounds its memory and allocates only for
//! bytes that have arrived, refuses unsafe names, and never panics. The fuzz targets check this.
//!
//! Deviations: EXT_CENC and `Content-Encoding` are refused with an error, not decoded. An FDT
//! Instance ID is never reused within a session. EXT_AUTH and unknown header extensions are
//! skipped.
#![forbid(unsafe_code)]

pub mod alc;
pub mod error;
pub mod fdt;
pub mod fec;
pub mod lct;
pub mod name;
pub mod receiver;
mod schedule;
pub mod sender;
