//! Live daemons of an overlay on loopback, and the clients that they serve.

mod access;
mod addresses;
mod attackers;
mod datagrams;
mod keys;
mod layers;
mod lies;
mod links;
mod members;
mod messages;
mod monitor;
mod nats_lines;
mod ordered;
mod queues;
mod several_groups;
mod spread;
mod stage;
mod stopping;
mod unix;
mod waiting;
mod watch;
mod websockets;
