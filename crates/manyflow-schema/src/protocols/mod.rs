//! The tables of protocols: their keys, the papers' values as defaults, and their ranges.

mod acp;
mod cbr;
mod command;
mod layered;
mod overlay;
mod tcp;
mod tfmcc;
mod webrc;

use manyflow_core::estimate::tcp_equation::{ResponseFunction, TcpEquation};
use manyflow_model::error::{Fault, Problem};
use manyflow_model::quantity::Seconds;
use serde::Deserialize;

use super::{ReceiverEntry, SessionTable};

pub use acp::{
    AcpTable, ControlName, Direction, LieName, PolicyName, RuleTable, SoftTable, SquareTable,
    SwitchTable,
};
pub use cbr::{CbrPattern, CbrTable};
pub use command::CommandTable;
pub use layered::{FlidTable, OutageTable, RlcTable, RlmTable, SimTable};
pub use overlay::{
    BenefitEntry, BenefitTable, ControllerName, CostBenefitTable, LawName, LayerTable, OrderName,
    OverlayLinkEntry, OverlayLinkTable, OverlaySessionTable, OverlayTable, ServiceName, SlowName,
    TfrcTable, UnitLayerTable,
};
pub use tcp::{LossDetectionName, RecoveryName, SlowStartName, TcpTable, TcpVariant};
pub use tfmcc::TfmccTable;
pub use webrc::{Cci, LossFilterName, ReceiverName, RttRuleName, Rule, WebrcTable, WeightsTable};

/// The protocol of a session.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// Wave and Equation Based Rate Control (RFC 3738).
    Webrc,
    /// TCP, with one connection to each receiver.
    Tcp,
    /// A source of constant bit rate for each receiver, without congestion control.
    Cbr,
    /// SIM, layered multicast with marks, feedback and a menu (Gorinsky, Ramakrishnan and Vin).
    Sim,
    /// RLM, receiver-driven layered multicast (McCanne, Jacobson and Vetterli).
    Rlm,
    /// RLC, layered multicast with synchronisation points (Vicisano, Rizzo and Crowcroft).
    Rlc,
    /// FLID-DL, layered multicast over channels that lose rate by themselves (Byers and others).
    Flid,
    /// TFMCC, equation-based single-rate multicast (RFC 4654).
    Tfmcc,
    /// ACP, Anypoint's transport of frames, either point to point or between a peer and the members
    /// of a service (Yocum and Chase).
    Acp,
    /// Messages to a group of an overlay.
    Overlay,
    /// A command at a node, in emulated runs only.
    Command,
}

impl Protocol {
    /// Returns the name in scenarios, which is also that of the protocol's table.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Webrc => "webrc",
            Protocol::Tcp => "tcp",
            Protocol::Cbr => "cbr",
            Protocol::Sim => "sim",
            Protocol::Rlm => "rlm",
            Protocol::Rlc => "rlc",
            Protocol::Flid => "flid",
            Protocol::Tfmcc => "tfmcc",
            Protocol::Acp => "acp",
            Protocol::Overlay => "overlay",
            Protocol::Command => "command",
        }
    }

    /// Returns whether packets go to channels that receivers join.
    pub fn is_multicast(self) -> bool {
        match self {
            Protocol::Webrc | Protocol::Tfmcc => true,
            Protocol::Sim | Protocol::Rlm | Protocol::Rlc | Protocol::Flid => true,
            Protocol::Tcp | Protocol::Cbr | Protocol::Acp => false,
            Protocol::Overlay | Protocol::Command => false,
        }
    }
}

impl SessionTable {
    /// Checks the parameters of the session's protocol.
    ///
    /// # Errors
    /// Returns an error if a table is missing or a parameter is out of its range.
    pub fn check(&self) -> Result<(), Fault> {
        let checked = match self.protocol {
            Protocol::Webrc => required(self.webrc.as_ref(), "webrc")?.check(),
            Protocol::Tcp => self.tcp.check(),
            Protocol::Cbr => required(self.cbr.as_ref(), "cbr")?.check(),
            Protocol::Sim => self.sim.check(),
            Protocol::Rlm => required(self.rlm.as_ref(), "rlm")?.check(),
            Protocol::Rlc => self.rlc.check(),
            Protocol::Flid => self.flid.check(),
            Protocol::Tfmcc => self.tfmcc.check(),
            Protocol::Acp => {
                let receivers: Vec<_> = self.receivers().iter().map(|ReceiverEntry(r)| r).collect();
                self.acp.check(&receivers)
            }
            Protocol::Overlay => {
                self.check_stop()?;
                self.overlay.check()
            }
            Protocol::Command => return self.check_command(),
        };
        checked.map_err(|fault| fault.within(self.protocol.name()))
    }

    fn check_stop(&self) -> Result<(), Fault> {
        if self.stop.is_some_and(|stop| stop <= self.start.to) {
            let message = "the sender stops before it has started".to_owned();
            return Err(Fault::at(&["stop"], Problem::Value(message)));
        }
        Ok(())
    }

    fn check_command(&self) -> Result<(), Fault> {
        if self.name.contains('/') {
            let message = "the name of a command's session becomes a file name: leave out `/`";
            return Err(Fault::at(&["name"], Problem::Value(message.to_owned())));
        }
        required(self.command.as_ref(), "command").map(|_| ())
    }
}

/// Returns the parameters of a protocol that has no default parameters.
///
/// # Errors
/// Returns an error if the table is missing.
pub fn required<'a, T>(table: Option<&'a T>, key: &str) -> Result<&'a T, Fault> {
    table.ok_or_else(|| {
        Fault::value(format!(
            "the table `{key}` is missing: it holds the protocol's parameters"
        ))
    })
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
