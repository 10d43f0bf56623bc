//! The protocols of sessions. Each has a folder with its parameters (whose defaults are the papers'
//! values), the observables that its events report, and its packets in captures and traces.
//! `list.rs` lists all protocols.

mod acp;
mod cbr;
mod command;
mod common;
mod ip;
mod layered;
mod list;
pub(crate) mod overlay;
mod report;
pub(crate) mod session;
mod tcp;
mod tfmcc;
mod webrc;

use manyflow_core::estimate::tcp_equation::{ResponseFunction, TcpEquation};
use serde::Deserialize;

pub use acp::{AcpTable, RuleTable, SoftTable, SquareTable, SwitchTable};
pub(crate) use acp::{Direction, PolicyName};
pub use cbr::{CbrPattern, CbrTable};
pub use command::CommandTable;
pub use ip::{HostEvent, IpArrived, IpPacket};
pub use layered::{OutageTable, RlmTable, SimTable};
pub use list::{AnyEvent, AnyHeader, IntoBoxed, Network, Packet};
pub use overlay::{
    ControllerName, CostBenefitTable, OverlayLinkEntry, OverlayLinkTable, OverlaySessionTable,
    OverlayTable, SlowName, TfrcTable,
};
pub(crate) use report::{Observed, Reported, Topic, Wire};
pub use tcp::{TcpTable, TcpVariant};
pub use tfmcc::TfmccTable;
pub use webrc::{
    Cci, LossFilterName, ReceiverName, RttRuleName, Rule, TOI, WebrcTable, WeightsTable,
};

use session::SessionProtocol;

use manyflow_model::quantity::Seconds;

macro_rules! session_protocols {
    ($($(#[$doc:meta])* $name:ident: $kind:expr;)*) => {
        /// The protocol of a session.
        #[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Protocol {
            $($(#[$doc])* $name,)*
        }

        impl Protocol {
            /// Returns the name in scenarios, which is also that of the protocol's table.
            pub(crate) fn name(self) -> String {
                match self {
                    $(Protocol::$name => stringify!($name).to_ascii_lowercase(),)*
                }
            }

            /// Returns the protocol's interface to scenarios.
            pub(crate) fn kind(self) -> &'static dyn SessionProtocol {
                match self {
                    $(Protocol::$name => &$kind,)*
                }
            }
        }
    };
}

session_protocols! {
    /// Wave and Equation Based Rate Control (RFC 3738).
    Webrc: webrc::Webrc;
    /// TCP, with one connection to each receiver.
    Tcp: tcp::Tcp;
    /// A source of constant bit rate for each receiver, without congestion control.
    Cbr: cbr::Cbr;
    /// SIM, layered multicast with marks, feedback and a menu (Gorinsky, Ramakrishnan and Vin).
    Sim: layered::Sim;
    /// RLM, receiver-driven layered multicast (McCanne, Jacobson and Vetterli).
    Rlm: layered::Rlm;
    /// TFMCC, equation-based single-rate multicast (RFC 4654).
    Tfmcc: tfmcc::Tfmcc;
    /// ACP, Anypoint's transport of frames, either point to point or between a peer and the members
    /// of a service (Yocum and Chase).
    Acp: acp::Acp;
    /// Messages to a group of an overlay.
    Overlay: overlay::Overlays;
    /// A command at a node, in emulated runs only.
    Command: command::Commands;
}

/// The TCP that the equation of a protocol describes.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ResponseName {
    /// Reno, as in the papers.
    Reno,
    /// CUBIC, where its window is larger than Reno's.
    Cubic,
}

impl ResponseName {
    fn function(self) -> ResponseFunction {
        match self {
            ResponseName::Reno => ResponseFunction::Reno,
            ResponseName::Cubic => ResponseFunction::Cubic,
        }
    }
}

/// Sets the keys of an equation that are given.
fn set_equation(
    equation: &mut TcpEquation,
    response: Option<ResponseName>,
    minimum_rto: Option<Seconds>,
) {
    set(&mut equation.response, response.map(ResponseName::function));
    set(
        &mut equation.minimum_rto_s,
        minimum_rto.map(|seconds| seconds.0),
    );
}

/// Replaces a default if a value is given.
fn set<T>(target: &mut T, given: Option<T>) {
    if let Some(value) = given {
        *target = value;
    }
}
