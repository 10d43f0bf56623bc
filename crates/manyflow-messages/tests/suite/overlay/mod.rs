//! Live daemons of an overlay on loopback, and the clients that they serve.

mod access;
mod addresses;
mod attackers;
mod datagrams;
mod lies;
mod links;
mod messages;
mod nats_lines;
mod queues;
mod several_groups;
mod stage;
mod stopping;
mod unix;
mod waiting;
mod watch;
