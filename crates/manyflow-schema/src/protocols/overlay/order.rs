//! The order of an overlay's messages, and their services.

use manyflow_order::Service;
use serde::Deserialize;

use super::{OverlaySessionTable, OverlayTable};
use manyflow_model::error::{Fault, Problem};

/// The order in which members deliver messages.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OrderName {
    /// Marks in the streams of all daemons, as in `manyflow daemon`.
    Marks,
    /// One daemon decides.
    Sequencer,
    /// One daemon decides, and hands over to where most messages come from.
    MovingSequencer,
    /// A token ring (Totem).
    Ring,
}

/// The guarantees of a session's messages.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServiceName {
    /// Each sender's messages in their order.
    Fifo,
    /// A message follows those that its sender had received.
    Causal,
    /// All members deliver the messages in one order.
    #[default]
    Agreed,
    /// Agreed, and all daemons have the message.
    Safe,
}

impl ServiceName {
    /// Returns the service.
    pub fn service(self) -> Service {
        match self {
            ServiceName::Fifo => Service::Fifo,
            ServiceName::Causal => Service::Causal,
            ServiceName::Agreed => Service::Agreed,
            ServiceName::Safe => Service::Safe,
        }
    }
}

impl OverlayTable {
    /// Checks the service of one of this overlay's sessions. `has_slow_members`: some members work
    /// on messages for a time.
    pub fn check_service(
        &self,
        session: &OverlaySessionTable,
        has_slow_members: bool,
    ) -> Result<(), Fault> {
        let refuse = |key: &str, message: &str| {
            let problem = Problem::Value(message.to_owned());
            Err(Fault::at(&[key], problem))
        };
        let service = session.service.unwrap_or_default().service();
        match self.order {
            None if session.service.is_some() => {
                refuse("service", "only an overlay with an `order` has services")
            }
            Some(_) if has_slow_members => refuse(
                "service",
                "the members of an overlay with an `order` read at once: receivers have no `service`",
            ),
            Some(order) if order != OrderName::Marks && service < Service::Agreed => refuse(
                "service",
                "only the order `marks` has services other than `agreed` and `safe`",
            ),
            _ => Ok(()),
        }
    }
}
