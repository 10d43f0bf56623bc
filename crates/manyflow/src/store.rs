//! `manyflow store`: a member that keeps chunks on disk.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use manyflow_ensembles::anypoint::{self, Connection, serve};
use manyflow_ensembles::store::{DiskShelf, serve_member};
use manyflow_store::{Member, MemberCounters, MemberName};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::address::cannot_listen;
use crate::cli::{StoreArgs, StoreMemberArgs};
use crate::metrics::{Metrics, Pages, Reported};
use manyflow_terminal::Display;
use manyflow_terminal::signals::interrupted;
use manyflow_terminal::status::{Cell, Described, Series, Table, Unit, View};
use manyflow_terminal::usage;

/// The time between two updates of the metrics.
const STATUS_INTERVAL: Duration = Duration::from_millis(500);

type SharedMember = Arc<Member<DiskShelf>>;

/// The state of a member, for its metrics.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
struct Status {
    connections: u64,
    counters: MemberCounters,
    free_bytes: Option<u64>,
    disk_bytes: Option<u64>,
}

/// Does a task of operators, or serves a folder until Ctrl-C or SIGTERM.
pub(crate) async fn run(args: StoreArgs, display: &Display) -> Result<()> {
    match (args.task, args.member) {
        (Some(task), _) => manyflow_storage::run_task(task, display).await,
        (None, Some(args)) => serve_member_of(args, display).await,
        (None, None) => Err(usage("store: --dir and --listen are missing")),
    }
}

/// Serves a folder until Ctrl-C or SIGTERM.
async fn serve_member_of(args: StoreMemberArgs, display: &Display) -> Result<()> {
    let display = display.on_standard_error();
    let name = args.name.as_deref().map(MemberName::new).transpose();
    let name = name.map_err(|error| usage(format!("--name: {error}")))?;
    let options = manyflow_storage::options(args.key.as_deref())?;
    let shelf = DiskShelf::open(&args.dir, name)?;
    let name = shelf.name().clone();
    let listener = serve(args.listen, options);
    let listener = listener.map_err(|cause| cannot_listen("--listen", args.listen, cause))?;
    let at = listener.local_address();
    let (statuses, status) = watch::channel(Status {
        free_bytes: shelf.free_bytes(),
        disk_bytes: shelf.disk_bytes(),
        ..Status::default()
    });
    let pages = Pages::of(vec![(None, status.clone())]).with_page_of("store", status);
    let _metrics = pages.serve(args.metrics, &display).await?;
    let interrupted = interrupted();
    let folder = args.dir.display();
    display.print_line(&format!("store: member {name} keeps {folder}, at {at}"))?;
    display.print_json(&json!({
        "event": "started", "member": name.as_str(), "dir": args.dir, "listen": at.to_string(),
    }))?;
    let member = Arc::new(Member::new(name, shelf));
    tokio::select! {
        result = serve_connections(listener, member, statuses) => result,
        () = interrupted => Ok(()),
    }
}

async fn serve_connections(
    mut listener: anypoint::Member,
    member: SharedMember,
    statuses: watch::Sender<Status>,
) -> Result<()> {
    let mut connections = JoinSet::new();
    let mut tick = tokio::time::interval(STATUS_INTERVAL);
    loop {
        tokio::select! {
            connection = listener.accept() => {
                let connection = connection.context("cannot accept connections")?;
                connections.spawn(serve_connection(connection, Arc::clone(&member)));
            }
            Some(_) = connections.join_next() => {}
            _ = tick.tick() => {
                let status = status(&member, connections.len() as u64).await?;
                statuses.send_if_modified(|old| std::mem::replace(old, status) != status);
            }
        }
    }
}

async fn serve_connection(connection: Connection, member: SharedMember) {
    let remote = connection.remote_address();
    if let Err(error) = serve_member(&connection, &member).await {
        tracing::debug!("the connection from {remote} is over: {error}");
    }
}

/// Returns the status. The disk may be stuck, so another thread waits for it.
async fn status(member: &SharedMember, connections: u64) -> Result<Status> {
    let member = Arc::clone(member);
    let read = tokio::task::spawn_blocking(move || Status {
        connections,
        counters: member.counters(),
        free_bytes: member.shelf().free_bytes(),
        disk_bytes: member.shelf().disk_bytes(),
    });
    Ok(read.await?)
}

type Count = (&'static str, &'static str, fn(&MemberCounters) -> u64);

const COUNTERS: [Count; 8] = [
    ("puts", "Chunks and manifests that were put.", |c| c.puts),
    (
        "put_bytes",
        "Bytes of the chunks and manifests that were put.",
        |c| c.put_bytes,
    ),
    ("gets", "Chunks and manifests that were read.", |c| c.gets),
    (
        "get_bytes",
        "Bytes of the chunks and manifests that were read.",
        |c| c.get_bytes,
    ),
    (
        "missing",
        "Requests for bytes that the member does not have.",
        |c| c.missing,
    ),
    ("failed", "Requests that failed.", |c| c.failed),
    ("removed", "Chunks and manifests that were removed.", |c| {
        c.removed
    }),
    (
        "removed_bytes",
        "Bytes of the chunks and manifests that were removed.",
        |c| c.removed_bytes,
    ),
];

impl Reported for Status {
    const PREFIX: &str = "manyflow_store";

    fn report(out: &mut Metrics<'_, Self>) -> fmt::Result {
        for (name, help, value) in COUNTERS {
            out.counter(name, help, |status| value(&status.counters))?;
        }
        out.gauge("connections", "Open connections.", |status| {
            Some(status.connections)
        })?;
        out.gauge("free_bytes", "Free room of the disk.", |status| {
            status.free_bytes
        })?;
        out.gauge("disk_bytes", "Size of the disk.", |status| {
            status.disk_bytes
        })
    }
}

impl Described for Status {
    fn view(&self) -> View {
        let bytes =
            |bytes: Option<u64>| bytes.map_or(Cell::Empty, |bytes| Cell::Bytes(bytes as f64));
        let counts = COUNTERS.map(|(_, help, value)| (help, value(&self.counters)));
        View {
            facts: vec![
                ("connections", Cell::Count(self.connections as f64)),
                ("free room of the disk", bytes(self.free_bytes)),
                ("size of the disk", bytes(self.disk_bytes)),
            ],
            tables: vec![Table::of_events(counts)],
            ..View::default()
        }
    }

    fn series(&self) -> Vec<Series> {
        let counters = &self.counters;
        let free = self.free_bytes;
        let mut series = vec![
            Series::growth("write rate", Unit::BitsPerS, counters.put_bytes),
            Series::growth("read rate", Unit::BitsPerS, counters.get_bytes),
            Series::growth("requests that failed", Unit::PerS, counters.failed),
        ];
        series.extend(
            free.map(|free| Series::now("free room of the disk", Unit::Bytes, free as f64)),
        );
        series
    }
}
