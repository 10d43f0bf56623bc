//! Live switches on loopback, with their members and peers.

mod attackers;
mod echo;
mod failures;
mod initiators;
mod inside;
mod large;
mod lying_member;
mod shares;
mod stage;
