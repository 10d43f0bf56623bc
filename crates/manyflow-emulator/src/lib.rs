//! Runs a network of emulated links in real time, between real programs and the kernel's own TCP.
//!
//! Each host is a network namespace with one TUN device. One thread reads the IP packets that
//! programs send, pushes them through the same links as the simulator, and hands them to the
//! kernel of the destination when they are due:
//!
//! ```text
//!   program - socket - kernel - TUN        in the namespace of a host
//!                                |
//!               Link, router, Link, ...    in the fabric: one thread, one clock
//!                                |
//!   program - socket - kernel - TUN        in the namespace of another host
//! ```
//!
//! The [fabric](fabric::Fabric) is a [`Network`](manyflow_netsim::Network) of the simulator whose
//! endpoints stand for the programs of hosts. Queues, losses, changes, routes, joins and leaves are
//! therefore those of a simulation; only the clock and the hosts are real.
//!
//! | module | contents |
//! |---|---|
//! | [`fabric`] | the network: addresses, TTLs, ICMP, memberships, queries; without clock and devices |
//! | [`ports`] | TUN devices |
//! | [`netns`] | network namespaces, also those that a killed process has left behind |
//! | [`drive`] | the main loop: devices, links and the clock; measures its own lateness |
//! | [`bell`] | wakes the main loop from other threads |
//! | [`stage`] | a network with a namespace for each host |
//! | [`kernel`] | TCP connections of the kernel, and programs |
//! | [`world`] | scenarios in real time |
//! | [`priority`] | real-time priority for threads that keep time |
//! | [`shell`] | a command behind one link |
//!
//! IPv4 and IPv6 are carried. Packets have at most 1,500 bytes and are handed over one by one,
//! without offloading.
#![deny(unsafe_op_in_unsafe_fn)]

pub mod bell;
pub mod drive;
mod error;
pub mod fabric;
pub mod kernel;
pub mod netns;
pub mod ports;
pub mod priority;
pub mod shell;
mod spin;
pub mod stage;
pub mod world;

pub use error::EmulateError;

/// Checks that this user may make network namespaces.
///
/// # Errors
/// Returns an error that says how to get the right.
pub fn check_rights() -> Result<(), EmulateError> {
    match nix::unistd::geteuid().is_root() {
        true => Ok(()),
        false => Err(EmulateError::NotRoot),
    }
}
