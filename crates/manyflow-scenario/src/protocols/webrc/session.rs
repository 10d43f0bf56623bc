//! WEBRC sessions: a sender, and an endpoint for each membership interval of each receiver.

use std::collections::BTreeSet;
use std::sync::Arc;

use manyflow_netsim::NodeId;
use manyflow_netsim::models::Until;
use manyflow_webrc::{Receiver, ReceiverConfig, Sender};

use crate::builder::Builder;
use crate::protocols::session::{COUNTED, MEMBERSHIP, Reporter, SessionProtocol, TOGETHER};
use crate::schema::protocols::required;
use crate::world::{WebrcReceiver, WebrcSession};
use manyflow_model::error::{Fault, Problem};
use manyflow_model::observables::Observable;
use manyflow_model::quantity::Seconds;

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
    Observable::Loss,
];

/// The maximum number of channels of a session whose ends are programs: its groups are a /24.
const PROGRAM_CHANNELS_MAX: u32 = 256;

/// Adds a session whose ends are programs.
///
/// # Errors
/// Returns an error, which names the key, if the programs cannot do what the table says.
fn add_programs(
    builder: &mut Builder,
    session: &manyflow_webrc::Session,
    receiver: &ReceiverConfig,
    number: u32,
) -> Result<(), Fault> {
    let refuse = |key: &str, message: &str| {
        let message = format!("{message}; `manyflow emulate --in-process` can");
        let path = ["sessions", &builder.table.name, key];
        Fault::at(&path, Problem::Value(message))
    };
    let channels = session.wave_channels() + 1;
    if channels > PROGRAM_CHANNELS_MAX {
        let message = "programs cannot have more than 256 channels";
        return Err(refuse("webrc", message));
    }
    let mut nodes = BTreeSet::from([builder.session.sender]);
    for receiver in &builder.session.receivers {
        if builder.entry(receiver).whole_session {
            let message = "`whole-session`: `manyflow recv` cannot join all channels";
            return Err(refuse("receivers", message));
        }
        if !nodes.insert(receiver.node) {
            let message = "two programs of a session cannot be at one node";
            return Err(refuse("receivers", message));
        }
    }
    let mut receivers = Vec::new();
    for receiver in &builder.session.receivers {
        for (index, interval) in receiver.intervals.iter().enumerate() {
            let name = builder.interval_name(receiver, index);
            receivers.push(WebrcReceiver {
                at: (receiver.ends.receiving_in(index), NodeId(receiver.node)),
                start: builder.draw(interval.start, &name),
                stop: interval.stop.map(Seconds::time),
            });
        }
    }
    builder.network.add_webrc(&WebrcSession {
        name: builder.session.name.clone(),
        number,
        channels: channels as u16,
        config: session.config().clone(),
        receiver: receiver.clone(),
        sender: builder.session.staff[0],
        start: builder.draw(builder.table.start, "sender"),
        stop: builder.table.stop.map(Seconds::time),
        receivers,
        end: builder.plan.cell.schema.run.duration.time(),
        has_changes: !builder.plan.cell.schema.at.is_empty(),
    });
    Ok(())
}

impl SessionProtocol for Webrc {
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
        if builder.network.runs_webrc() {
            return add_programs(builder, &session, &config, id);
        }
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
