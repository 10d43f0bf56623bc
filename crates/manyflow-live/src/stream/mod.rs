//! Layered streams: units of an embedded bitstream from a source, and their prefixes to a sink.
//!
//! | module | contents |
//! |---|---|
//! | `source.rs` | [`Source`]: units from a folder, a pipe, a program or the test picture |
//! | `sink.rs` | [`Sink`]: units to a folder, a pipe or a program, without blocking the receiver |
//! | `framing.rs` | units in a pipe: a length of 4 bytes in network order, and the bytes |

mod framing;
mod sink;
mod source;

pub use sink::{Output, Sink, SinkError, SinkStats};
pub use source::{Input, Source, SourceConfig, SourceError};
