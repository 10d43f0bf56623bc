//! CBR sessions: a source and a sink for each membership interval of each receiver.

use manyflow_core::{Destination, Time};
use manyflow_netsim::NodeId;
use manyflow_tcp::cbr::{Sink, Source};

use crate::builder::Builder;
use crate::protocols::session::{COUNTED, LOST, Reporter, SessionProtocol, TOGETHER};
use crate::schema::protocols::required;
use manyflow_model::error::Fault;

/// Sources without congestion control.
pub(crate) struct Cbr;

impl SessionProtocol for Cbr {
    fn receiver(&self) -> Reporter {
        Reporter::new("CBR", &[COUNTED, LOST, TOGETHER])
    }

    fn sender(&self) -> Reporter {
        Reporter::new("CBR", &[])
    }

    fn add(&self, builder: &mut Builder) -> Result<(), Fault> {
        let table = required(builder.table.cbr.as_ref(), "cbr")?;
        builder.add_pairs(|builder, pair| {
            let mut config = table.config(Destination::Endpoint(pair.receiving));
            (config.start, config.stop) = (pair.start, pair.stop);
            let source = Source::new(config, pair.seed).map_err(Fault::value)?;
            builder.add_endpoint(pair.sending, NodeId(builder.session.sender), source);
            let sink = Sink::new(None, Time::ZERO, None);
            builder.add_endpoint(pair.receiving, pair.node, sink);
            Ok(())
        })
    }
}
