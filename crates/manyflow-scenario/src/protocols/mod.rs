//! The protocols: for each a folder with its parameters (the papers' values are the defaults), with
//! what its events say of observables, and with its packets in captures and traces. `list.rs` is
//! the one list of them.

mod acp;
mod cbr;
mod layered;
mod list;
pub(crate) mod overlay;
mod report;
pub(crate) mod session;
mod tcp;
mod tfmcc;
mod webrc;

use serde::Deserialize;

pub use acp::{AcpTable, RuleTable, SoftTable, SquareTable, SwitchTable};
pub(crate) use acp::{Direction, PolicyName};
pub use cbr::{CbrPattern, CbrTable};
pub use layered::{OutageTable, RlmTable, SimTable};
pub use list::{AnyEvent, AnyHeader, IntoBoxed, Network, Packet};
pub use overlay::{
    ControllerName, CostBenefitTable, OverlayLinkEntry, OverlayLinkTable, OverlaySessionTable,
    OverlayTable, TfrcTable,
};
pub(crate) use report::{Observed, Reported, Wire};
pub use tcp::{TcpTable, TcpVariant};
pub use tfmcc::TfmccTable;
#[cfg(test)]
pub(crate) use webrc::TOI;
pub use webrc::{Cci, RttRuleName, Rule, WebrcTable, WeightsTable};

use session::SessionProtocol;

use crate::record::Topic;

macro_rules! session_protocols {
    ($($(#[$doc:meta])* $name:ident: $kind:expr;)*) => {
        /// The protocol of a session.
        #[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Protocol {
            $($(#[$doc])* $name,)*
        }

        impl Protocol {
            /// Returns what scenarios need of the protocol.
            pub(crate) fn kind(self) -> &'static dyn SessionProtocol {
                match self {
                    $(Protocol::$name => &$kind,)*
                }
            }
        }
    };
}

session_protocols! {
    /// Wave and equation based rate control, RFC 3738.
    Webrc: webrc::Webrc;
    /// TCP, one connection to each receiver.
    Tcp: tcp::Tcp;
    /// A constant bit rate to each receiver, without congestion control.
    Cbr: cbr::Cbr;
    /// Layered multicast with marks, feedback and a menu (Gorinsky, Ramakrishnan and Vin).
    Sim: layered::Sim;
    /// Receiver-driven layered multicast (McCanne, Jacobson and Vetterli).
    Rlm: layered::Rlm;
    /// Single-rate multicast, equation-based: TFMCC, RFC 4654.
    Tfmcc: tfmcc::Tfmcc;
    /// Anypoint's transport of frames, point to point or between a peer and an ensemble (Yocum and
    /// Chase).
    Acp: acp::Acp;
    /// Messages to a group of an overlay.
    Overlay: overlay::Overlays;
}

/// Puts a value that is given in the place of a default.
fn set<T>(target: &mut T, given: Option<T>) {
    if let Some(value) = given {
        *target = value;
    }
}
