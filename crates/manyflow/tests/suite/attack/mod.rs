//! An attacker against `manyflow recv` and `manyflow send`, and their streams, each in a network
//! namespace of its own. The tests need root, and are skipped without it.
//!
//! The attacker knows the session description, joins the multicast session as anyone can, and sends
//! packets under the sender's address: to the session's groups, or to the receiver's end of an AMT
//! tunnel. It does not see what the sender and the receiver send to each other by unicast.
//!
//! | file | contents |
//! |---|---|
//! | `world.rs` | the namespaces |
//! | `attacker.rs` | the attacker's sockets, and what it has learnt from the session |
//! | `forge.rs` | the packets that it makes |
//! | `overlay.rs` | daemons on loopback, NATS clients, and bystanders |
//! | `trial.rs` | a transfer under attack, and the conditions that every transfer has to meet |
//! | `cases/` | the attacks |

mod attacker;
mod cases;
mod forge;
pub(crate) mod overlay;
mod trial;
mod world;
