//! Streams of layered data: each receiver gets the longest prefix of each unit that its path
//! carries.
//!
//! ```text
//!   source --units--> Cutter --pieces--> packets of groups --> multicast socket, hops to gateways
//!                                            ^ rates               | reports
//!                       sim::Sender, rlm::Sender <-----------------+
//!
//!   sink <--prefixes-- Assembler <--pieces-- packets of joined groups <-- multicast, tunnel
//!                       sim::Receiver, rlm::Receiver --joins, reports--> parent
//! ```
//!
//! | file | what it holds |
//! |---|---|
//! | `description.rs` | [`StreamDescription`]: the session as an SDP file |
//! | `open.rs` | [`OpenedStream`]: a stream to send, with its sockets and its description |
//! | `send.rs` | [`StreamSender`]: paces groups and fills packets with pieces |
//! | `receive.rs` | [`receive`]: joins groups, puts units together and reports |
//! | `source.rs` | [`Source`]: units from a folder, a pipe, a program or the test picture |
//! | `sink.rs` | [`Sink`]: units to a folder, a pipe or a program, without blocking the receiver |
//! | `video_source.rs`, `video_sink.rs` | units of [`manyflow_video`] from and to video |
//! | `framing.rs` | units in a pipe: a length of 4 bytes in network order, and the bytes |
//! | `rows/` | rows of telemetry as units: CSV and JSON lines |
//! | `formats/` | valid ends for prefixes of known formats: JPEG 2000, JPEG |
//! | `config.rs` | the parameters of live sessions |
//! | `parent.rs` | the way of reports: the tunnel's relay, or the sender |
//!
//! Relays between both are [forwarders](manyflow_net::forwarder) with
//! [layered sessions](manyflow_net::amt::StreamsConfig).
//!
//! # Example
//!
//! ```
//! use std::future::pending;
//!
//! use manyflow_net::inlet::Route;
//! use manyflow_streams::{
//!     OpenedStream, SourceUnit, StreamReceiveConfig, StreamReceiveProgress, StreamSendConfig,
//!     receive,
//! };
//! use tokio::sync::{mpsc, watch};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut config = StreamSendConfig::new("numbers", None);
//! config.listen = Some("127.0.0.1:0".parse()?);
//! let OpenedStream { description, sender } = OpenedStream::open(config)?;
//! let (source, units) = mpsc::channel(2);
//! let sending = tokio::spawn(sender.run(units, pending()));
//! let numbers = tokio::spawn(async move {
//!     for number in 0_u64.. {
//!         let bytes = number.to_string().into();
//!         let unit = SourceUnit { bytes, interval: None };
//!         if source.send(unit).await.is_err() {
//!             break;
//!         }
//!         tokio::time::sleep(std::time::Duration::from_millis(20)).await;
//!     }
//! });
//!
//! let relay = description.amt_relay.as_ref().expect("the stream has a relay");
//! let route = Route::Relays(vec![relay.authority()]);
//! let (into, mut received) = mpsc::channel(16);
//! let progress = watch::Sender::new(StreamReceiveProgress::default());
//! let config = StreamReceiveConfig::new(description, route);
//! let receiving = tokio::spawn(receive(config, into, progress, pending()));
//! let unit = received.recv().await.expect("a unit arrives");
//! assert!(unit.complete);
//! # sending.abort();
//! # numbers.abort();
//! # receiving.abort();
//! # Ok(())
//! # }
//! ```

mod config;
mod description;
mod formats;
mod framing;
mod open;
mod parent;
mod receive;
mod rows;
mod send;
mod sequences;
mod sink;
mod source;
mod video_sink;
mod video_source;

pub use config::{
    LIVE_PACKET_BYTES, live_hop_config, live_multicast_receiver_config,
    live_multicast_sender_config, live_receiver_config, live_rlm_receiver_config,
    live_rlm_sender_config, live_sender_config,
};
pub use description::{StreamDescription, StreamProtocol};
pub use open::{GROUP_PORT, OpenedStream, StreamOpenError, StreamSendConfig};
pub use parent::{report_address, report_key};
pub use receive::{
    LATENCY_AUTO, StreamReceiveConfig, StreamReceiveError, StreamReceiveProgress, receive,
};
pub use send::{SendControl, SourceUnit, StreamSendProgress, StreamSender};
pub use sink::{Output, Sink, SinkError, SinkStats};
pub use source::{FILE_ROWS, Input, Source, SourceConfig, SourceError};
