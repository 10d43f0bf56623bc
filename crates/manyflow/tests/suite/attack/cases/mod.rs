//! The attacks, by what they forge, or by the role that they attack.

mod announcements;
mod daemons;
mod floods;
mod gateway;
mod images;
mod messages;
mod outputs;
mod packets;
mod rates;
mod reports;
mod restart;
mod streams;
mod symbols;
mod tables;
mod tunnels;
