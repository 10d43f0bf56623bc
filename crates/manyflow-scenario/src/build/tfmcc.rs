//! Sessions of TFMCC: a sender, and an endpoint for each stay of each receiver.

use manyflow_tfmcc::{Receiver, ReceiverId, Sender};

use super::{Builder, Member};
use crate::error::Fault;

impl Builder<'_> {
    pub(super) fn add_tfmcc(&mut self) -> Result<Vec<Member>, Fault> {
        let table = &self.table.tfmcc;
        let (session, start, stop) = self.open();
        let sender = Sender::new(table.sender(), session, start, stop).map_err(Fault::value)?;
        let sender = self.add_sender(sender);
        self.add_guests(session, 1, |builder, guest| {
            let id = ReceiverId(builder.network.next_endpoint().0);
            let seed = builder.seed(&format!("feedback of {}", guest.name));
            let (start, stop) = (guest.start, guest.stop);
            let config = table.receiver();
            let receiver = Receiver::new(config, session, id, sender, seed, start, stop);
            builder.add_endpoint(guest.node, receiver.map_err(Fault::value)?);
            Ok(())
        })
    }
}
