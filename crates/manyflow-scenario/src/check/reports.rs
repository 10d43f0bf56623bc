//! The observables that each protocol reports. A scenario that asks for one that is never
//! reported is refused, because its values would silently be 0 or missing.

use crate::plan::overlays::Overlays;
use crate::plan::sessions::{PlannedSession, Sessions};
use crate::plan::topology::Topology;
use crate::protocols::kind;
use crate::protocols::session::{COUNTED, MEMBERSHIP, Reporter, TOGETHER};
use crate::schema::protocols::ControllerName;
use crate::schema::{ReceiverTable, Schema, SessionTable};
use manyflow_model::error::Fault;
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
                let is_sender = node == sessions.0[index].sender;
                let staff = kind(table(index).protocol).staff(is_sender);
                return staff.map_or(Ok(()), |staff| staff.check(what, of));
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
