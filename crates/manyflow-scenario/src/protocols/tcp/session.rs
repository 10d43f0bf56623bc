//! TCP sessions: a connection for each membership interval of each receiver.

use manyflow_netsim::NodeId;
use manyflow_tcp::{Receiver, Sender, TcpConfig};

use crate::error::{Fault, Problem};
use crate::plan::endpoints::Allotment;
use crate::plan::sessions::Session;
use crate::protocols::TcpVariant;
use crate::protocols::session::{COUNTED, LOST, Reporter, SessionProtocol, TOGETHER, WINDOW};
use crate::scene::Builder;
use crate::schema::SessionTable;
use crate::world::Connection;

/// TCP, with one connection to each receiver.
pub(crate) struct Tcp;

impl SessionProtocol for Tcp {
    fn check(&self, table: &SessionTable) -> Result<(), Fault> {
        table.tcp.check().map_err(|fault| fault.within("tcp"))
    }

    fn allot(&self, session: &mut Session, allotment: &mut Allotment) {
        allotment.pairs(session);
    }

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
            if builder.network.add_connection(&connection) {
                return Ok(());
            }
            if connection.variant == TcpVariant::Bbr {
                let message = "`bbr` is the kernel's: run this scenario with `manyflow emulate`";
                let path = ["sessions", &builder.table.name, "tcp", "variant"];
                return Err(Fault::at(&path, Problem::Value(message.to_owned())));
            }
            let sender = Sender::new(config.clone(), pair.receiving, pair.seed);
            let receiver = Receiver::new(config, pair.sending);
            builder.add_endpoint(pair.sending, source, sender.map_err(Fault::value)?);
            builder.add_endpoint(pair.receiving, pair.node, receiver.map_err(Fault::value)?);
            Ok(())
        })
    }
}
