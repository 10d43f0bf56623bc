//! Objects over packets: files in, datagrams out, and back.
//!
//! The formats are FLUTE's (RFC 6726): ALC packets (RFC 5775) with an LCT header (RFC 5651), a File Delivery Table that
//! names the objects, and symbols of RaptorQ (RFC 6330) or of no code (RFC 5445). Other FLUTE implementations agree with
//! us; the tests hold that against one.
//!
//! ```text
//! files -> ObjectSender::next_datagram(layer, cci) -> datagram -> Packet::decode -> ObjectReceiver -> ObjectEvent
//!                              ^                                       |
//!                        rate control says when, and what the CCI is <-+ and reads the CCI
//! ```
//!
//! No socket, file or clock is in here: when to send is the rate control's, where bytes come from and go to the driver's.
//! What the sender does is a pure function of configuration, files and calls.
//!
//! Every byte that a receiver reads may come from an enemy. No length is trusted, memory grows only with bytes that did
//! arrive and up to a bound, names are safe or refused, and nothing panics; `fuzz/` holds that.
//!
//! Deviations: EXT_CENC and `Content-Encoding` are refused with a clear error, not decoded. An FDT Instance ID is not
//! used twice, however long a session lasts. EXT_AUTH and unknown header extensions are skipped.
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
