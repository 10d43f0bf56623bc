//! The status page of commands that send and receive files: the line that receivers type, and who
//! has what.

pub mod tables;

use std::fmt;

use manyflow_files::completion::{ReceiverState, ReceiverTable, Tally, Transfer};
use manyflow_files::session::{Progress, SendProgress};
use manyflow_net::metrics::Page;
use qrcode::QrCode;
use qrcode::render::svg;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::receivers::{receiver_json, row};

/// Receivers of a session that the page shows: those of the list first.
const SHOWN_MAX: usize = 2_000;

/// Returns the present state of a session.
type Read = Box<dyn Fn() -> Value + Send + Sync>;

/// A session on the page.
pub struct Session {
    name: String,
    /// The URL of the description, if it is served.
    url: Option<String>,
    read: Read,
}

impl fmt::Debug for Session {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Session({})", self.name)
    }
}

impl Session {
    /// Returns a session that is sent. `url` is that of its description, if there is one.
    pub fn sent(
        name: String,
        url: Option<String>,
        progress: watch::Receiver<SendProgress>,
        tally: Option<watch::Receiver<Tally>>,
    ) -> Session {
        let read = Box::new(move || read_sender(&progress, tally.as_ref()));
        Session { name, url, read }
    }

    /// Returns a session that this host receives under the name `receiver`.
    pub fn received(
        name: String,
        url: Option<String>,
        receiver: String,
        progress: watch::Receiver<Progress>,
    ) -> Session {
        let read = Box::new(move || read_receiver(&receiver, &progress.borrow()));
        Session { name, url, read }
    }
}

/// Returns the page of these sessions, at the path /, and its data. `role` is the command.
pub fn pages(role: &'static str, sessions: Vec<Session>) -> [Page; 2] {
    let heads: Vec<_> = sessions.iter().map(head).collect();
    let render = move || {
        let sessions = heads.iter().zip(&sessions).map(|(head, session)| {
            let mut shown = (session.read)();
            for (key, value) in head {
                shown[key] = value.clone();
            }
            shown
        });
        json!({"role": role, "sessions": sessions.collect::<Vec<_>>()}).to_string()
    };
    let page = include_str!("status.html");
    [
        Page::new("/", "text/html; charset=utf-8", || page.to_owned()),
        Page::new("/status.json", "application/json", render),
    ]
}

/// Returns what does not change of a session.
fn head(session: &Session) -> [(&'static str, Value); 3] {
    let url = session.url.as_ref();
    let line = url.map(|url| format!("manyflow recv {url}"));
    let code = line.as_ref().and_then(|line| QrCode::new(line).ok());
    let picture = code.map(|code| {
        code.render::<svg::Color<'_>>()
            .min_dimensions(200, 200)
            .build()
    });
    [
        ("name", session.name.as_str().into()),
        ("line", line.into()),
        ("qr_svg", picture.into()),
    ]
}

fn read_sender(
    progress: &watch::Receiver<SendProgress>,
    tally: Option<&watch::Receiver<Tally>>,
) -> Value {
    let progress = *progress.borrow();
    let tally = tally.map(|tally| tally.borrow());
    let table = tally.as_ref().map(|tally| tally.table());
    let receivers = table.map_or(&[][..], ReceiverTable::receivers);
    let shown = receivers.iter().take(SHOWN_MAX);
    let shown = table.map(|table| shown.map(|one| receiver_json(table, one)).collect());
    let counts = table.map(ReceiverTable::counts).unwrap_or_default();
    let by_name = counts.by_name();
    let by_name = by_name.map(|(name, count)| (name.to_owned(), count.into()));
    json!({
        "sent_bytes": progress.bytes,
        "gateways": progress.relay.gateways,
        "ends_after": tally.as_ref().and_then(|tally| tally.audience().ends_after()),
        "counts": table.map(|_| Value::Object(by_name.collect())),
        "unexpected": counts.unexpected,
        "receivers": shown.map(Value::Array),
        "left_out": receivers.len().saturating_sub(SHOWN_MAX),
    })
}

fn read_receiver(name: &str, progress: &Progress) -> Value {
    let objects = &progress.objects;
    let is_done = objects.files > 0 && objects.files_complete == objects.files;
    let state = match is_done {
        true => ReceiverState::Done,
        false => ReceiverState::Receiving,
    };
    json!({
        "files": objects.files,
        "files_complete": objects.files_complete,
        "loss": progress.packets.loss(),
        "receivers": [row(name, state, &Transfer::from(progress))],
    })
}
