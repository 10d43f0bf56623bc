//! WEBRC sessions: a sender, and an endpoint for each membership interval of each receiver.

use std::sync::Arc;

use manyflow_netsim::NodeId;
use manyflow_netsim::models::{Listener, Until};
use manyflow_webrc::{Receiver, Sender};

use crate::error::Fault;
use crate::plan::sessions::Session;
use crate::protocols::session::{
    COUNTED, MEMBERSHIP, Reporter, SessionProtocol, TOGETHER, required,
};
use crate::scene::{Builder, Member};
use crate::schema::SessionTable;
use crate::schema::observables::Observable;

/// WEBRC, Wave and Equation Based Rate Control.
pub(crate) struct Webrc;

/// The observables of receivers.
const RECEIVER: &[Observable] = &[
    Observable::TargetRate,
    Observable::ReportedRate,
    Observable::Rtt,
    Observable::RttSample,
    Observable::LossProbability,
    Observable::LossEvents,
];

impl SessionProtocol for Webrc {
    fn check(&self, table: &SessionTable) -> Result<(), Fault> {
        let webrc = required(table.webrc.as_ref(), "webrc")?;
        webrc.check().map_err(|fault| fault.within("webrc"))
    }

    fn endpoints(&self, _session: &Session, intervals: usize) -> usize {
        1 + intervals
    }

    fn is_multicast(&self) -> bool {
        true
    }

    fn receivers_send(&self) -> bool {
        false
    }

    fn receiver(&self) -> Reporter {
        Reporter::new("WEBRC", &[COUNTED, MEMBERSHIP, RECEIVER, TOGETHER])
    }

    fn sender(&self) -> Reporter {
        Reporter::new("WEBRC's sender", &[])
    }

    fn add(&self, builder: &mut Builder) -> Result<Vec<Member>, Fault> {
        let table = required(builder.table.webrc.as_ref(), "webrc")?;
        let session = Arc::new(table.session()?);
        let config = Arc::new(table.receiver());
        let source = NodeId(builder.session.sender);
        let id = builder.network.open_session(source);
        let start = builder.draw(builder.table.start, "sender");
        let sender = Sender::new((*session).clone(), id, start);
        match builder.table.stop {
            Some(stop) => builder.add_sender(Until::new(sender, stop.time(), |_| {})),
            None => builder.add_sender(sender),
        };
        let mut members = Vec::with_capacity(builder.session.receivers.len());
        for receiver in &builder.session.receivers {
            members.push(builder.member(receiver, false));
            let node = NodeId(receiver.node);
            for (index, interval) in receiver.intervals.iter().enumerate() {
                let start = builder.draw(interval.start, &builder.interval_name(receiver, index));
                if builder.entry(receiver).whole_session {
                    let channels = session.wave_channels() + 1;
                    builder.add_endpoint(node, Listener::new(id, channels, start));
                    continue;
                }
                let made = Receiver::new(session.clone(), config.clone(), id, start);
                let made = made.map_err(Fault::value)?;
                match interval.stop {
                    Some(stop) => {
                        let until = Until::new(made, stop.time(), Receiver::leave);
                        builder.add_endpoint(node, until)
                    }
                    None => builder.add_endpoint(node, made),
                };
            }
        }
        Ok(members)
    }
}
