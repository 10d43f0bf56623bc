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
//! | `send.rs` | [`StreamSender`]: paces groups and fills packets with pieces |
//! | `receive.rs` | [`receive`]: joins groups, puts units together and reports |
//! | `source.rs` | [`Source`]: units from a folder, a pipe, a program or the test picture |
//! | `sink.rs` | [`Sink`]: units to a folder, a pipe or a program, without blocking the receiver |
//! | `framing.rs` | units in a pipe: a length of 4 bytes in network order, and the bytes |
//! | `config.rs` | the parameters of live sessions |
//! | `parent.rs` | the way of reports: the tunnel's relay, or the sender |
//!
//! Relays between both are [forwarders](manyflow_net::forwarder) with
//! [layered sessions](manyflow_net::amt::StreamsConfig).

mod config;
mod description;
mod framing;
mod parent;
mod receive;
mod send;
mod sink;
mod source;

pub use config::{
    LIVE_PACKET_BYTES, live_hop_config, live_multicast_receiver_config,
    live_multicast_sender_config, live_receiver_config, live_rlm_receiver_config,
    live_rlm_sender_config, live_sender_config,
};
pub use description::{StreamDescription, StreamProtocol};
pub use parent::{report_address, report_key};
pub use receive::{StreamReceiveConfig, StreamReceiveError, StreamReceiveProgress, receive};
pub use send::{SendControl, SourceUnit, StreamSendProgress, StreamSender};
pub use sink::{Output, Sink, SinkError, SinkStats};
pub use source::{Input, Source, SourceConfig, SourceError};
