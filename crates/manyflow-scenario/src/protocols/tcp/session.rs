//! TCP sessions: a connection for each membership interval of each receiver.

use manyflow_netsim::NodeId;
use manyflow_tcp::{ConfigError, Receiver, Sender, TcpConfig, Variant};

use crate::builder::{Builder, Pair};
use crate::protocols::TcpVariant;
use crate::protocols::session::{COUNTED, LOST, Reporter, SessionProtocol, TOGETHER, WINDOW};
use crate::world::Connection;
use manyflow_model::error::Fault;

/// TCP, with one connection to each receiver.
pub(crate) struct Tcp;

impl SessionProtocol for Tcp {
    fn receiver(&self) -> Reporter {
        Reporter::new("TCP", &[COUNTED, LOST, WINDOW, TOGETHER])
    }

    fn sender(&self) -> Reporter {
        Reporter::new("TCP", &[])
    }

    fn add(&self, builder: &mut Builder) -> Result<(), Fault> {
        builder.add_pairs(|builder, pair| {
            let config = TcpConfig {
                start: pair.start,
                stop: pair.stop,
                ..builder.table.tcp.config()
            };
            let source = NodeId(builder.session.sender);
            let connection = Connection {
                sending: (pair.sending, source),
                receiving: (pair.receiving, pair.node),
                variant: builder.table.tcp.variant.unwrap_or(TcpVariant::Sack),
                config: config.clone(),
            };
            if let Some(name) = &builder.table.tcp.control {
                let within = |fault: Fault| {
                    let path = ["control", "tcp", &builder.table.name, "sessions"];
                    path.iter().fold(fault, |fault, key| fault.within(key))
                };
                let control = builder.plan.controls.make(name).map_err(within)?;
                let sender =
                    Sender::with_control(config.clone(), control, pair.receiving, pair.seed);
                return add_ends(builder, pair, sender, config);
            }
            if builder.network.add_connection(&connection) {
                return Ok(());
            }
            let sender = Sender::new(config.clone(), pair.receiving, pair.seed);
            add_ends(builder, pair, sender, config)
        })
    }
}

/// Adds both ends of a connection.
fn add_ends(
    builder: &mut Builder,
    pair: &Pair,
    sender: Result<Sender, ConfigError>,
    config: TcpConfig,
) -> Result<(), Fault> {
    // A sender with a control of the program detects losses by selective acknowledgements.
    let variant = match builder.table.tcp.control {
        Some(_) => Variant::Sack,
        None => config.variant,
    };
    let receiver = Receiver::new(TcpConfig { variant, ..config }, pair.sending);
    let source = NodeId(builder.session.sender);
    builder.add_endpoint(pair.sending, source, sender.map_err(Fault::value)?);
    builder.add_endpoint(pair.receiving, pair.node, receiver.map_err(Fault::value)?);
    Ok(())
}
