//! What the protocols report. A quantity that is never reported would be 0 or missing in silence,
//! so a scenario that asks for it is refused.

use super::error::{Fault, Problem};
use super::observables::{Observable, Subject};
use super::overlays::Overlays;
use super::protocols::{ControllerName, Protocol};
use super::schema::{ReceiverTable, Schema, SessionTable};
use super::sessions::{Session, Sessions};
use super::topology::Topology;

/// The network counts these at every endpoint.
const COUNTED: &[Observable] = &[Observable::ReceivedRate, Observable::ReceivedPackets];

/// What every protocol whose receivers join channels reports of them.
const MEMBERSHIP: &[Observable] = &[Observable::Joins, Observable::Channels];

/// What WEBRC's receivers report besides [`MEMBERSHIP`].
const WEBRC: &[Observable] = &[
    Observable::TargetRate,
    Observable::ReportedRate,
    Observable::Rtt,
    Observable::RttSample,
    Observable::LossProbability,
    Observable::LossEvents,
];

/// What TFMCC's receivers report besides [`MEMBERSHIP`].
const TFMCC: &[Observable] = &[
    Observable::Rtt,
    Observable::RttSample,
    Observable::LossProbability,
    Observable::LossEvents,
];

/// What the sender of a window reports: TCP's, or an end of ACP.
const WINDOW: &[Observable] = &[
    Observable::Cwnd,
    Observable::Rtt,
    Observable::RttSample,
    Observable::LossEvents,
    Observable::Timeouts,
];

/// What an end of ACP reports of frames that it receives, and of its connection.
const FRAMES: &[Observable] = &[
    Observable::Goodput,
    Observable::DeliveredFrames,
    Observable::Overflows,
    Observable::Failures,
];

/// What a client reports that is a member of an overlay's group.
const MEMBER: &[Observable] = &[
    Observable::Goodput,
    Observable::DeliveredFrames,
    Observable::Latency,
];

/// What a daemon reports whose controller is TFRC.
const TFRC: &[Observable] = &[
    Observable::TargetRate,
    Observable::ReportedRate,
    Observable::LossProbability,
    Observable::LossEvents,
    Observable::Rtt,
    Observable::RttSample,
];

/// Who would have to report an observable, and what it does report.
struct Reporter {
    /// For messages: `TCP`.
    name: &'static str,
    reports: Vec<Observable>,
}

impl Reporter {
    fn new(name: &'static str, reports: &[&[Observable]]) -> Reporter {
        let reports = reports.concat();
        Reporter { name, reports }
    }

    fn check(&self, what: Observable, of: &str) -> Result<(), Fault> {
        if self.reports.contains(&what) {
            return Ok(());
        }
        let names = self.reports.iter();
        let names: Vec<String> = names.map(|known| format!("`{}`", known.name())).collect();
        let instead = match names.as_slice() {
            [] => String::new(),
            names => format!("; it reports {}", names.join(", ")),
        };
        let message = format!(
            "{} (`{of}`) does not report `{}`{instead}",
            self.name,
            what.name()
        );
        Err(Fault::at(&["what"], Problem::Value(message)))
    }
}

/// Checks that whoever `of` names reports `what`. The name has been found to name something.
pub(super) fn check(
    what: Observable,
    of: &str,
    (schema, topology): (&Schema, &Topology),
    overlays: &Overlays,
    sessions: &Sessions,
) -> Result<(), Fault> {
    let table = |index: usize| &schema.sessions[sessions.0[index].table];
    let by_tfrc = |overlay: usize| schema.overlays[overlay].controller == ControllerName::Tfrc;
    match what.subject() {
        Subject::Link | Subject::OverlayLink | Subject::Clients => Ok(()),
        Subject::Sender => {
            let index = sessions.named(of);
            let index = index.map_err(|problem| Fault::at(&["of"], problem))?;
            of_sender(table(index)).check(what, of)
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
                    let session: &Session = &sessions.0[index];
                    (session.table, session.receivers[receiver].entry as usize)
                };
                // There may be a million receivers, but there are few entries.
                let mut entries: Vec<_> = receivers.iter().map(entry).collect();
                entries.dedup();
                return entries.into_iter().try_for_each(|(table, entry)| {
                    let table = &schema.sessions[table];
                    of_receiver(table, &table.receivers[entry].0).check(what, of)
                });
            }
            if let Some((index, node)) = sessions.staff_named(of, topology) {
                return of_staff(table(index), &sessions.0[index], node).check(what, of);
            }
            match overlays.daemon_named(of, topology) {
                Some((overlay, _)) => of_daemon(by_tfrc(overlay)).check(what, of),
                None => Ok(()),
            }
        }
    }
}

fn of_receiver(table: &SessionTable, entry: &ReceiverTable) -> Reporter {
    let together = [Observable::Efficiency];
    let layered = [Observable::Efficiency, Observable::Instability];
    match table.protocol {
        protocol if protocol.is_multicast() && entry.whole_session => Reporter::new(
            "a receiver of the whole session",
            &[COUNTED, MEMBERSHIP, &layered],
        ),
        Protocol::Webrc => Reporter::new("WEBRC", &[COUNTED, MEMBERSHIP, WEBRC, &layered]),
        Protocol::Sim => Reporter::new("SIM", &[COUNTED, MEMBERSHIP, &layered]),
        Protocol::Rlm => Reporter::new(
            "RLM",
            &[COUNTED, MEMBERSHIP, &[Observable::LossEvents], &layered],
        ),
        Protocol::Tfmcc => Reporter::new("TFMCC", &[COUNTED, MEMBERSHIP, TFMCC, &layered]),
        Protocol::Tcp => Reporter::new("TCP", &[COUNTED, WINDOW, &together]),
        Protocol::Cbr => Reporter::new("CBR", &[COUNTED, &together]),
        Protocol::Acp => Reporter::new("ACP", &[COUNTED, FRAMES, WINDOW, &together]),
        Protocol::Overlay => Reporter::new(
            "a member of an overlay's group",
            &[COUNTED, MEMBER, &together],
        ),
    }
}

/// What a session has at a node besides its receivers.
fn of_staff(table: &SessionTable, session: &Session, node: u32) -> Reporter {
    if table.protocol != Protocol::Acp {
        return Reporter::new("a sending client of an overlay", &[COUNTED]);
    }
    if node != session.sender {
        return Reporter::new("a switch of ACP", &[COUNTED, &[Observable::Failures]]);
    }
    Reporter::new("ACP", &[COUNTED, FRAMES, WINDOW])
}

/// What a session has only one of.
fn of_sender(table: &SessionTable) -> Reporter {
    match table.protocol {
        Protocol::Sim => Reporter::new("SIM's sender", &[&[Observable::GroupRate]]),
        Protocol::Acp => Reporter::new("ACP", &[&[Observable::MemberFailures]]),
        Protocol::Webrc => Reporter::new("WEBRC's sender", &[]),
        Protocol::Rlm => Reporter::new("RLM's sender", &[]),
        Protocol::Tfmcc => Reporter::new("TFMCC's sender", &[&[Observable::Reports]]),
        Protocol::Tcp => Reporter::new("TCP", &[]),
        Protocol::Cbr => Reporter::new("CBR", &[]),
        Protocol::Overlay => Reporter::new("a session of an overlay", &[]),
    }
}

/// What daemons report of a group: of a session, or each of them.
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
