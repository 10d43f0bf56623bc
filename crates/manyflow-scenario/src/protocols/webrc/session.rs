//! WEBRC sessions: a sender, and an endpoint for each membership interval of each receiver.

use std::sync::Arc;

use manyflow_netsim::NodeId;
use manyflow_netsim::models::Until;
use manyflow_webrc::{Receiver, Sender};

use crate::error::Fault;
use crate::plan::endpoints::Allotment;
use crate::plan::sessions::Session;
use crate::protocols::session::{
    COUNTED, MEMBERSHIP, Reporter, SessionProtocol, TOGETHER, required,
};
use crate::scene::Builder;
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

    fn allot(&self, session: &mut Session, allotment: &mut Allotment) {
        allotment.staff(session, session.sender);
        allotment.memberships(session);
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

    fn add(&self, builder: &mut Builder) -> Result<(), Fault> {
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
        let channels = session.wave_channels() + 1;
        builder.add_memberships(id, channels, |builder, membership| {
            let made = Receiver::new(session.clone(), config.clone(), id, membership.start);
            let made = made.map_err(Fault::value)?;
            match membership.stop {
                Some(stop) => {
                    let until = Until::new(made, stop, Receiver::leave);
                    builder.add_member(membership, until);
                }
                None => builder.add_member(membership, made),
            }
            Ok(())
        })
    }
}
