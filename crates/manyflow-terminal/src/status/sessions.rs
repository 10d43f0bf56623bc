//! The page of commands that send and receive files: the line that receivers type, and who has
//! what.

use std::iter;
use std::sync::Arc;

use manyflow_files::completion::{Receiver, ReceiverState, ReceiverTable, Tally, Transfer};
use manyflow_files::session::{Progress, SendProgress};
use qrcode::QrCode;
use qrcode::render::svg;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{Cell, Described, Fact, Line, Series, Table, Unit, View};
use crate::receivers::{done_at, known, receiver_json, row};

/// Receivers of a session that the page shows: those of the list first.
const SHOWN_MAX: usize = 2_000;

const RECEIVERS: &[&str] = &[
    "receiver",
    "state",
    "received",
    "of",
    "rate",
    "last heard",
    "done at",
    "address",
];

/// A session on the page.
#[derive(Debug)]
pub struct Session {
    name: String,
    /// The line that receivers type, if the description is served.
    line: Option<Line>,
    side: Side,
}

#[derive(Debug)]
enum Side {
    Sent {
        progress: watch::Receiver<SendProgress>,
        tally: Option<watch::Receiver<Tally>>,
    },
    Received {
        receiver: String,
        progress: watch::Receiver<Progress>,
    },
}

impl Session {
    /// Returns a session that is sent. `url` is that of its description, if there is one.
    pub fn sent(
        name: String,
        url: Option<String>,
        progress: watch::Receiver<SendProgress>,
        tally: Option<watch::Receiver<Tally>>,
    ) -> Session {
        let (line, side) = (url.map(line_of), Side::Sent { progress, tally });
        Session { name, line, side }
    }

    /// Returns a session that this host receives under the name `receiver`.
    pub fn received(
        name: String,
        url: Option<String>,
        receiver: String,
        progress: watch::Receiver<Progress>,
    ) -> Session {
        let (line, side) = (url.map(line_of), Side::Received { receiver, progress });
        Session { name, line, side }
    }

    /// Returns the state for programs.
    fn status(&self) -> Value {
        let mut shown = match &self.side {
            Side::Sent { progress, tally } => sender_json(progress, tally.as_ref()),
            Side::Received { receiver, progress } => receiver_status(receiver, &progress.borrow()),
        };
        let line = self.line.as_ref();
        shown["name"] = self.name.as_str().into();
        shown["line"] = line.map(|line| line.command.as_str()).into();
        shown["qr_svg"] = line.and_then(|line| line.qr_svg.as_deref()).into();
        shown
    }

    /// Returns the page of a process that has only this session.
    fn view(&self) -> View {
        let (facts, mut tables) = match &self.side {
            Side::Sent { progress, tally } => {
                let now = progress.borrow();
                let tally = tally.as_ref().map(|tally| tally.borrow());
                (sender_facts(&now, tally.as_deref()), sender_tables(&now))
            }
            Side::Received { receiver, progress } => {
                let now = progress.borrow();
                (receiver_facts(receiver, &now), receiver_tables(&now))
            }
        };
        tables.splice(0..0, self.receivers("Receivers".to_owned()));
        View {
            title: self.name.clone(),
            facts,
            lines: Vec::from_iter(self.line.clone()),
            tables,
        }
    }

    /// Returns the table of the receivers, if they are counted.
    fn receivers(&self, title: String) -> Option<Table> {
        match &self.side {
            Side::Sent { tally, .. } => Some(receivers(title, tally.as_ref()?.borrow().table())),
            Side::Received { .. } => None,
        }
    }

    fn series(&self) -> Vec<Series> {
        match &self.side {
            Side::Sent { progress, .. } => {
                let now = progress.borrow();
                let done = f64::from(now.receivers.done());
                vec![
                    Series::growth("sending rate", Unit::BitsPerS, now.bytes),
                    Series::now("receivers done", Unit::Count, done),
                    Series::now("gateways", Unit::Count, now.relay.gateways as f64),
                ]
            }
            Side::Received { progress, .. } => receiver_series(&progress.borrow()),
        }
    }

    /// Returns the columns of a table of sessions like this one.
    fn columns(&self) -> &'static [&'static str] {
        match &self.side {
            Side::Sent { .. } => &["session", "sent", "gateways", "receivers done"],
            Side::Received { .. } => &["session", "files complete", "received", "of", "rate"],
        }
    }

    /// Returns the row in such a table.
    fn row(&self) -> Vec<Cell> {
        let name = Cell::text(&self.name);
        match &self.side {
            Side::Sent { progress, .. } => {
                let now = progress.borrow();
                vec![
                    name,
                    Cell::Bytes(now.bytes as f64),
                    Cell::count(now.relay.gateways),
                    Cell::Count(f64::from(now.receivers.done())),
                ]
            }
            Side::Received { progress, .. } => {
                let now = progress.borrow();
                let transfer = Transfer::from(&*now);
                vec![
                    name,
                    files(&now),
                    Cell::Share(transfer.share()),
                    Cell::Bytes(transfer.total_bytes as f64),
                    Cell::BitsPerS(transfer.rate.bits_per_s() as f64),
                ]
            }
        }
    }
}

fn line_of(url: String) -> Line {
    let command = format!("manyflow recv {url}");
    let code = QrCode::new(&command).ok();
    let picture = |code: QrCode| {
        let mut picture = code.render::<svg::Color<'_>>();
        picture.min_dimensions(200, 200).build()
    };
    Line {
        qr_svg: code.map(picture),
        command,
    }
}

/// The sessions of a process.
#[derive(Clone, Debug)]
pub struct Sessions(Arc<Vec<Session>>);

impl Sessions {
    /// Returns these sessions.
    pub fn new(sessions: Vec<Session>) -> Sessions {
        Sessions(Arc::new(sessions))
    }

    /// Returns the state for programs. `role` is the command.
    pub(crate) fn status(&self, role: &'static str) -> Value {
        let sessions: Vec<_> = self.0.iter().map(Session::status).collect();
        json!({"role": role, "sessions": sessions})
    }
}

impl Described for Sessions {
    fn view(&self) -> View {
        if let [session] = &self.0[..] {
            return session.view();
        }
        let columns = self.0.first().map_or(&["session"][..], Session::columns);
        let rows = self.0.iter().take(SHOWN_MAX).map(Session::row);
        let sessions = Table {
            left_out: self.0.len().saturating_sub(SHOWN_MAX),
            ..Table::new("Sessions", columns, rows)
        };
        let named = |session: &Session| format!("Receivers of {}", session.name);
        let receivers = self.0.iter();
        let receivers = receivers.filter_map(|session| session.receivers(named(session)));
        View {
            lines: self
                .0
                .iter()
                .filter_map(|session| session.line.clone())
                .collect(),
            tables: iter::once(sessions).chain(receivers).collect(),
            ..View::default()
        }
    }

    fn series(&self) -> Vec<Series> {
        if let [session] = &self.0[..] {
            return session.series();
        }
        // The first number of each, its rate, tells sessions that work from others.
        let rate = |session: &Session| {
            let rate = session.series().into_iter().next()?;
            let name = format!("{}, {}", rate.name, session.name);
            Some(Series { name, ..rate })
        };
        self.0.iter().filter_map(rate).collect()
    }
}

fn receiver_series(now: &Progress) -> Vec<Series> {
    let status = now.webrc.as_ref();
    let rate = status.map_or(0, |status| status.received.bits_per_s());
    let waves = status.map_or(0, |status| status.waves);
    let useful = now.objects.received_bytes();
    let mut series = vec![
        Series::now("reception rate", Unit::BitsPerS, rate as f64),
        Series::growth("useful for files", Unit::BitsPerS, useful),
        Series::now("waves joined", Unit::Count, f64::from(waves)),
        Series::growth("packets lost", Unit::PerS, now.packets.lost),
    ];
    series.extend(status.map(|status| Series::now("multicast RTT", Unit::Seconds, status.rtt_s)));
    series
}

fn sender_facts(now: &SendProgress, tally: Option<&Tally>) -> Vec<Fact> {
    let counts = tally.map(|tally| tally.table().counts());
    let mut facts = vec![
        ("sent", Cell::Bytes(now.bytes as f64)),
        ("gateways", Cell::count(now.relay.gateways)),
    ];
    for (name, count) in counts.iter().flat_map(|counts| counts.by_name()) {
        if count > 0 || name == "done" {
            let count = count.to_string();
            let cell = match name {
                "done" => Cell::Good(count),
                "failed" | "silent" | "left" => Cell::Bad(count),
                _ => Cell::text(count),
            };
            let name = match name {
                "never-heard" => "never heard",
                name => name,
            };
            facts.push((name, cell));
        }
    }
    let unexpected = counts.map_or(0, |counts| counts.unexpected);
    if unexpected > 0 {
        facts.push(("not in the list", Cell::Count(f64::from(unexpected))));
    }
    if let Some(ends) = tally.and_then(|tally| tally.audience().ends_after()) {
        facts.push(("ends when", Cell::text(format!("{ends} are done"))));
    }
    let sends = match now.is_focused {
        true => "only data that receivers have reported to need",
        false => "all files",
    };
    facts.push(("sends", Cell::text(sends)));
    facts
}

fn sender_tables(now: &SendProgress) -> Vec<Table> {
    let packets = [
        ("sent", now.packets),
        ("not encoded: nobody has joined their wave", now.unwanted),
        ("skipped: this machine was busy", now.skipped),
        (
            "dropped: a full socket, or a gateway's maximum rate",
            now.unsent,
        ),
    ];
    vec![Table::of_counts("Packets", packets)]
}

fn receiver_facts(name: &str, now: &Progress) -> Vec<Fact> {
    let transfer = Transfer::from(now);
    let mut facts = vec![
        ("receiver", Cell::text(name)),
        ("files complete", files(now)),
        ("received", Cell::Share(transfer.share())),
        ("of", Cell::Bytes(transfer.total_bytes as f64)),
        ("rate", Cell::BitsPerS(transfer.rate.bits_per_s() as f64)),
        ("packets lost", Cell::Ratio(now.packets.loss())),
    ];
    let refused = now.objects.files_refused;
    if refused > 0 {
        facts.push(("files refused", Cell::Bad(refused.to_string())));
    }
    facts
}

fn files(now: &Progress) -> Cell {
    let objects = &now.objects;
    Cell::text(format!("{} of {}", objects.files_complete, objects.files))
}

fn receiver_tables(now: &Progress) -> Vec<Table> {
    let objects = &now.objects;
    let unused = [
        ("arrived before", objects.duplicate_symbols),
        ("of a block that was complete", objects.surplus_symbols),
        ("withdrawn: probably false", objects.withdrawn_symbols),
        ("dropped for want of memory", objects.evicted_symbols),
        ("before their file was announced", objects.early_dropped),
    ];
    let packets = [
        ("received", now.packets.received),
        ("lost", now.packets.lost),
        ("marked by routers (ECN)", now.packets.marked),
        ("not of this session", now.packets.refused),
        ("without a valid MAC", now.packets.unauthenticated),
    ];
    vec![
        rate_table(now),
        Table::of_counts("Symbols that were not used", unused),
        Table::of_counts("Packets", packets),
    ]
}

/// The values from which WEBRC chooses the number of waves.
fn rate_table(now: &Progress) -> Table {
    let row = |name: &str, cell| vec![Cell::text(name), cell];
    let mut rows = Vec::new();
    let title = match now.webrc.as_ref().map(|status| status.equation) {
        None => "Rate: no packets come",
        Some(None) => "Rate: start-up, until the first loss or a queue",
        Some(Some(rate)) => {
            let rate = Cell::BitsPerS(rate.bits_per_s() as f64);
            rows.push(row("rate of the TCP equation", rate));
            "Rate: by the TCP equation"
        }
    };
    if let Some(status) = &now.webrc {
        let loss = Cell::Ratio(status.loss_probability);
        rows.extend([
            row("loss event probability", loss),
            row("multicast round-trip time", Cell::Seconds(status.rtt_s)),
            row("waves joined", Cell::Count(f64::from(status.waves))),
        ]);
    }
    let most = Cell::Count(f64::from(now.waves_max));
    rows.push(row("maximum number of waves joined so far", most));
    Table::new(title, &["quantity", "now"], rows)
}

fn receivers(title: String, table: &ReceiverTable) -> Table {
    let all = table.receivers();
    let rows = all.iter().take(SHOWN_MAX);
    let rows = rows.map(|receiver| receiver_row(table, receiver));
    Table {
        left_out: all.len().saturating_sub(SHOWN_MAX),
        ..Table::new(title, RECEIVERS, rows)
    }
}

fn receiver_row(table: &ReceiverTable, receiver: &Receiver) -> Vec<Cell> {
    let transfer = &receiver.transfer;
    let state = match receiver.state {
        ReceiverState::NeverHeard => Cell::Dim("never heard".to_owned()),
        ReceiverState::Receiving => Cell::text("receiving"),
        ReceiverState::Silent => Cell::Bad("silent".to_owned()),
        ReceiverState::Done => Cell::Good("done".to_owned()),
        ReceiverState::Failed(failure) => Cell::Bad(format!("failed: {failure}")),
        ReceiverState::Left => Cell::Bad("stopped by its user".to_owned()),
    };
    let is_known = transfer.total_bytes > 0;
    let known_only = |cell| if is_known { cell } else { Cell::Empty };
    let is_receiving = receiver.state == ReceiverState::Receiving;
    let rate = Cell::BitsPerS(transfer.rate.bits_per_s() as f64);
    let silence = table.silence(receiver);
    let silence = silence.map(|time| Cell::text(format!("{} s ago", time.as_secs())));
    let done_at = done_at(table, receiver).map(|at| Cell::Time(at as f64));
    let address = receiver.address.map(|address| address.to_string());
    vec![
        Cell::text(format!("{}{}", receiver.name, known(receiver))),
        state,
        known_only(Cell::Share(transfer.share())),
        known_only(Cell::Bytes(transfer.total_bytes as f64)),
        if is_receiving { rate } else { Cell::Empty },
        silence.unwrap_or(Cell::Empty),
        done_at.unwrap_or(Cell::Empty),
        Cell::text(address.unwrap_or_default()),
    ]
}

fn sender_json(
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

fn receiver_status(name: &str, progress: &Progress) -> Value {
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
