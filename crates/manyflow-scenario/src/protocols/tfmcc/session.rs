//! TFMCC sessions: a sender, and an endpoint for each membership interval of each receiver.

use manyflow_tfmcc::{Receiver, ReceiverId, Sender};

use crate::builder::Builder;
use crate::protocols::session::{COUNTED, MEMBERSHIP, Reporter, SessionProtocol, TOGETHER};
use manyflow_model::error::Fault;
use manyflow_model::observables::Observable;

/// TFMCC, equation-based single-rate multicast.
pub(crate) struct Tfmcc;

/// The observables of receivers.
const RECEIVER: &[Observable] = &[
    Observable::Rtt,
    Observable::RttSample,
    Observable::LossProbability,
    Observable::LossEvents,
];

impl SessionProtocol for Tfmcc {
    fn receiver(&self) -> Reporter {
        Reporter::new("TFMCC", &[COUNTED, MEMBERSHIP, RECEIVER, TOGETHER])
    }

    fn sender(&self) -> Reporter {
        Reporter::new("TFMCC's sender", &[&[Observable::Reports]])
    }

    fn add(&self, builder: &mut Builder) -> Result<(), Fault> {
        let table = &builder.table.tfmcc;
        let (session, start, stop) = builder.open();
        let sender = Sender::new(table.sender(), session, start, stop).map_err(Fault::value)?;
        let sender = builder.add_sender(sender);
        builder.add_memberships(session, 1, |builder, membership| {
            let id = ReceiverId(membership.id.0);
            let seed = builder.seed(&format!("feedback of {}", membership.name));
            let (start, stop) = (membership.start, membership.stop);
            let config = table.receiver();
            let receiver = Receiver::new(config, session, id, sender, seed, start, stop);
            builder.add_member(membership, receiver.map_err(Fault::value)?);
            Ok(())
        })
    }
}
