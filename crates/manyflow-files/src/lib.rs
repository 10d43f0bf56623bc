//! Files from one sender to many receivers, over a WEBRC session.
//!
//! | module | what it holds |
//! |---|---|
//! | [`sdp`], [`load`] | the description of a session, and how a receiver gets it |
//! | [`files`] | the files of a sender, bundles of small ones, and the folder of a receiver |
//! | [`image`] | pipes and block devices, as input and output |
//! | [`sending`] | a sender's session from its options to its end |
//! | [`session`] | packets: sending, sealing, receiving |
//! | [`completion`] | reports of receivers that have all files |
//! | [`follow`] | receivers that take each session that a trusted signer announces |
//!
//! # Example
//!
//! A file goes through a relay to one receiver; with multicast, and more relays, to any number.
//!
//! ```
//! use std::future::pending;
//!
//! use manyflow_core::units::Rate;
//! use manyflow_files::sending::{Opened, RelayAddress, SendConfig};
//! use manyflow_files::session::{ProgressSinks, ReceiveConfig, receive};
//! use manyflow_net::inlet::Route;
//! use manyflow_webrc::SessionConfig;
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let (file, into) = (folder.path().join("news.txt"), folder.path().join("received"));
//! # std::fs::create_dir(&into)?;
//! std::fs::write(&file, "all is well")?;
//! let rate = SessionConfig::lan(Rate::from_bits_per_s(50_000_000));
//! let mut config = SendConfig::new(vec![file], rate);
//! config.relay = Some(RelayAddress::new("127.0.0.1:0".parse()?));
//! let session = Opened::open(config).await?.prepare().await?;
//! let description = session.description.clone();
//! let sending = tokio::spawn(session.run(pending()));
//!
//! let relay = description.amt_relay.as_ref().expect("the session has a relay");
//! let route = Route::Relays(vec![relay.authority()]);
//! let receiver = ReceiveConfig::new(description, route, into.clone());
//! let (sinks, _progress, _files) = ProgressSinks::channels();
//! receive(receiver, sinks, pending()).await?;
//! assert_eq!(std::fs::read_to_string(into.join("news.txt"))?, "all is well");
//! sending.abort();
//! # Ok(())
//! # }
//! ```

pub mod completion;
pub mod files;
pub mod follow;
pub mod image;
pub mod load;
pub mod sdp;
pub mod sending;
pub mod session;
