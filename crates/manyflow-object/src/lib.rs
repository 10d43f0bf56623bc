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
//! and writes files and sockets. It gives both ends a [`Storage`](storage::Storage) for symbols,
//! which can be on a disk, so that files may be larger than memory. The sender's output is a pure
//! function of its configuration, its files and the calls.
//!
//! A receiver expects hostile input. It trusts no length, bounds its memory and allocates only for
//! bytes that have arrived, refuses unsafe names, and never panics. The fuzz targets check this.
//!
//! Deviations: EXT_CENC and `Content-Encoding` are refused with an error, not decoded. An FDT
//! Instance ID is never reused within a session. EXT_AUTH and unknown header extensions are
//! skipped.
//!
//! # Example
//!
//! A file over one layer, of whose datagrams every tenth is lost:
//!
//! ```
//! use manyflow_object::alc::Packet;
//! use manyflow_object::receiver::{ObjectEvent, ObjectReceiver, ReceiverConfig};
//! use manyflow_object::sender::{ObjectSender, SenderConfig, SourceFile};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (tsi, layers, seed) = (7, 1, 1);
//! let file = SourceFile::new("notes.txt", vec![42; 100_000]);
//! let mut sender = ObjectSender::new(SenderConfig::new(tsi, layers, seed), vec![file])?;
//! let mut receiver = ObjectReceiver::new(ReceiverConfig::new(tsi.into()));
//! // The congestion control information, as rate control writes it.
//! let cci = [0; 8];
//! let mut datagram = Vec::new();
//! for number in 0.. {
//!     datagram.clear();
//!     sender.next_datagram(0, &cci, &mut datagram)?;
//!     if number % 10 == 0 {
//!         continue;
//!     }
//!     receiver.handle_packet(&Packet::decode(&datagram)?)?;
//!     let mut events = std::iter::from_fn(|| receiver.poll_event());
//!     let complete = events.find_map(|event| match event {
//!         ObjectEvent::ObjectComplete(object) => Some(object),
//!         _ => None,
//!     });
//!     if let Some(object) = complete {
//!         assert_eq!((object.name.as_str(), object.length), ("notes.txt", 100_000));
//!         assert_eq!(receiver.content(&object)?, [42; 100_000]);
//!         break;
//!     }
//! }
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

pub mod alc;
pub mod chunks;
pub mod error;
pub mod expiry;
pub mod ext_auth;
pub mod fdt;
pub mod fec;
pub mod image;
pub mod lct;
pub mod name;
pub mod needs;
pub mod receiver;
mod schedule;
pub mod sender;
mod source;
pub mod storage;
