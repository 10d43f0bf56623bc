//! One client and an ensemble of servers over one connection.
//!
//! | module | what it holds |
//! |---|---|
//! | [`anypoint`] | connections of frames to a service of several members: the switch and its ends |
//! | [`http`] | HTTP and TCP streams through such a connection: the gateway for clients, and members before servers |
//! | [`store`] | a replicated chunk store: its disks, and files put into it and read from it |
//!
//! # Example
//!
//! ```
//! use manyflow_ensembles::anypoint::{Options, connect, serve};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut member = serve("127.0.0.1:0".parse()?, Options::default())?;
//! let client = connect(member.local_address(), Options::default()).await?;
//! client.send_frame(7, "hello".into()).await?;
//! let server = member.accept().await?;
//! let message = server.recv_frame().await?.expect("the client has not closed");
//! assert_eq!((message.key, &message.payload[..]), (7, &b"hello"[..]));
//! # Ok(())
//! # }
//! ```

pub mod anypoint;
pub mod http;
pub mod store;
