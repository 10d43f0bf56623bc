//! A sender of layered pictures, relays, links in user space and receivers in one process: for
//! `manyflow-rig bench stream`, `manyflow demo stream` and `manyflow-rig soak stream`.
//!
//! ```text
//!   pictures --> StreamSender --> relay (Forwarder) --+--> LastMile --> receive --> History
//!                                                     +--> LastMile --> receive --> History
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `pictures.rs` | encoded pictures of the test pattern, made in advance |
//! | `stage.rs` | [`Stage`]: the sender, and the relays, which can be killed and started again |
//! | `reception.rs` | [`Reception`]: a receiver behind a link of its own for each relay |
//! | `crowd.rs` | many receivers without measurements |
//! | `history.rs` | the measurements of a receiver, four times per second |
//! | `liar.rs` | rewrites the messages of a receiver that lies |

mod crowd;
mod history;
mod liar;
mod pictures;
mod reception;
mod stage;

pub use crowd::Crowd;
pub use history::{Span, Tick};
pub use pictures::Pictures;
pub use reception::{LINKS_KBIT, Place, Reception, mile_config};
pub use stage::Stage;
