//! The attacks, by what they forge.

mod floods;
mod packets;
mod rates;
mod restart;
mod streams;
mod symbols;
mod tables;
mod tunnels;
