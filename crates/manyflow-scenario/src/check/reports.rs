//! The observables that each protocol reports. A scenario that asks for one that is never
//! reported is refused, because its values would silently be 0 or missing.

use crate::plan::overlays::Overlays;
use crate::plan::sessions::{PlannedSession, Sessions};
use crate::plan::topology::Topology;
use crate::protocols::kind;
use crate::protocols::session::{COUNTED, MEMBERSHIP, Reporter, TOGETHER};
use crate::schema::protocols::{ControllerName, Direction};
use crate::schema::{ReceiverTable, Schema, SessionTable};
use manyflow_model::error::{Fault, Problem};
use manyflow_model::observables::{Observable, Subject};

/// The observables that a daemon reports if its controller is TFRC.
const TFRC: &[Observable] = &[
    Observable::TargetRate,
    Observable::ReportedRate,
    Observable::LossProbability,
    Observable::LossEvents,
    Observable::Rtt,
    Observable::RttSample,
];

/// Checks that everything that `of` names reports `what`. The caller has checked that `of`
/// names something.
pub(super) fn check(
    what: Observable,
    of: &str,
    (schema, topology): (&Schema, &Topology),
    overlays: &Overlays,
    sessions: &Sessions,
) -> Result<(), Fault> {
    let table = |index: usize| &schema.sessions[sessions.0[index].table];
    let by_tfrc = |overlay: usize| schema.overlays[overlay].controller == ControllerName::Tfrc;
    match sessions.subject_named(what, of, topology) {
        Subject::Link | Subject::LinkOrEndpoint | Subject::OverlayLink | Subject::Clients => Ok(()),
        Subject::Sender => {
            let index = sessions.named(of);
            let index = index.map_err(|problem| Fault::at(&["of"], problem))?;
            kind(table(index).protocol).sender().check(what, of)
        }
        Subject::Group | Subject::Reporter => {
            let session = of.split_once('/').map_or(of, |(session, _)| session);
            let own = sessions.affiliated(session);
            let (_, own) = own.map_err(|problem| Fault::at(&["of"], problem))?;
            of_group(what.subject(), by_tfrc(own.overlay)).check(what, of)
        }
        Subject::Endpoint | Subject::Audience => {
            if let Ok(receivers) = sessions.receivers_named(of, topology) {
                let entry = |&(index, receiver): &(usize, usize)| {
                    let session: &PlannedSession = &sessions.0[index];
                    (session.table, session.receivers[receiver].entry as usize)
                };
                // There may be a million receivers, but there are few entries.
                let mut entries: Vec<_> = receivers.iter().map(entry).collect();
                entries.dedup();
                return entries.into_iter().try_for_each(|(table, entry)| {
                    let table = &schema.sessions[table];
                    of_receiver(table, &table.receivers()[entry].0).check(what, of)
                });
            }
            if let Some((index, node)) = sessions.staff_named(of, topology) {
                let is_end = sessions.0[index].has_initiator_at(node);
                let staff = kind(table(index).protocol).staff(is_end);
                return staff.map_or(Ok(()), |staff| staff.check(what, of));
            }
            if let Some(Ok(pairs)) = sessions.pairs_named(of, topology) {
                let mut tables = pairs.iter().map(|pair| table(pair.session));
                return tables.try_for_each(|table| of_pair(table, what, of));
            }
            match overlays.daemon_named(of, topology) {
                Some((overlay, _)) => of_daemon(by_tfrc(overlay)).check(what, of),
                None => Ok(()),
            }
        }
    }
}

fn of_receiver(table: &SessionTable, entry: &ReceiverTable) -> Reporter {
    match entry.whole_session && table.protocol.is_multicast() {
        true => Reporter::new(
            "a receiver of the whole session",
            &[COUNTED, MEMBERSHIP, TOGETHER],
        ),
        false => kind(table.protocol).receiver(),
    }
}

/// Checks that a receiver reports `what` of an initiator's frames.
fn of_pair(table: &SessionTable, what: Observable, of: &str) -> Result<(), Fault> {
    let refuse = |message: &str| Err(Fault::at(&["of"], Problem::Value(message.to_owned())));
    if table.acp.direction == Direction::Outbound {
        return refuse(
            "a pair counts the frames of an initiator, but with `acp.direction = \"outbound\"` only \
             receivers send; use `inbound` or `both`",
        );
    }
    if table.acp.keys.get() > 0 {
        return refuse(
            "with `acp.keys`, frames of several initiators have the same keys, and receivers \
             cannot tell them apart",
        );
    }
    let reported = &[Observable::Goodput, Observable::DeliveredFrames];
    Reporter::new("a pair of an initiator and a receiver", &[reported]).check(what, of)
}

/// Returns the observables that daemons report about a group, either once or each daemon for
/// itself.
fn of_group(subject: Subject, by_tfrc: bool) -> Reporter {
    let (always, with_tfrc) = match subject {
        Subject::Group => (Observable::SlowMembers, Observable::AllowedRate),
        _ => (Observable::Members, Observable::AcceptableRate),
    };
    match by_tfrc {
        true => Reporter::new("a daemon with TFRC", &[&[always, with_tfrc]]),
        false => Reporter::new("a daemon whose controller is not TFRC", &[&[always]]),
    }
}

fn of_daemon(by_tfrc: bool) -> Reporter {
    match by_tfrc {
        true => Reporter::new("a daemon with TFRC", &[COUNTED, TFRC]),
        false => Reporter::new("a daemon whose controller is not TFRC", &[COUNTED]),
    }
}
