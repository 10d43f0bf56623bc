//! `manyflow send`: sends files and folders.

mod audience;
mod config;
pub(crate) mod description;
mod session;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use manyflow_core::units::{Bytes, Rate};
use manyflow_files::completion::Tally;
use manyflow_files::sending::place::any_address;
use manyflow_files::session::SendProgress;
use manyflow_net::publish::{DESCRIPTION_PATH, Publisher};
use manyflow_net::tls::Identity;
use serde_json::json;
use tokio::sync::watch::Receiver;

use crate::address::cannot_listen;
use crate::cli::{SendArgs, ServerArgs};
use crate::metrics::Pages;
pub(crate) use config::{groups, signing_key};
use manyflow_terminal::display::{Display, OutputError, count_files, watch};
use manyflow_terminal::receivers::{self, Watcher};
use manyflow_terminal::signals::{elapsed, interrupted};
use manyflow_terminal::status::Sessions;
pub(crate) use session::{Opened, Prepared, announce_multicast, announce_urls};

/// The usual port of an HTTP server without privileges.
const PUBLISHER_PORT: u16 = 8080;

pub(crate) async fn run(args: SendArgs, display: &Display) -> Result<()> {
    let identity = args.servers.identity()?;
    let prepared = Opened::open(args, display).await?.prepare(display).await?;
    let args = &prepared.args;
    prepared.write_description()?;
    let descriptions = [(DESCRIPTION_PATH.to_owned(), prepared.text().to_owned())];
    let publisher = publish(args.publication(), descriptions.into(), identity).await?;
    // If the description goes to standard output, nothing else does.
    let prints_description = publisher.is_none() && !args.keeps_description();
    let lines = match prints_description {
        true => display.on_standard_error(),
        false => display.clone(),
    };

    let urls = publisher.as_ref();
    let urls = urls.map(|publisher| prepared.urls(publisher, DESCRIPTION_PATH));
    let urls = urls.unwrap_or_default();
    let sessions = vec![(None, prepared.session.progress())];
    let name = prepared.session.description.name.clone();
    let shown = Sessions::new(vec![prepared.on_page(name, &urls)]);
    let pages = Pages::of(sessions).with_sessions("send", move || shown.clone());
    let _metrics = pages.serve(args.servers.metrics, &lines).await?;
    let interruption = interrupted();
    prepared.announce(&urls, &lines)?;
    if prints_description {
        display.print_line(prepared.text().trim_end())?;
    }
    send(prepared, interruption, &lines).await
}

impl SendArgs {
    /// Where to serve the description.
    fn publication(&self) -> Option<Publication> {
        Publication::of(self.servers.publish, self.leaves_way_open())
    }

    /// Whether the description is in a file after the start.
    pub(crate) fn keeps_description(&self) -> bool {
        self.session.is_some() || self.resume.is_some()
    }
}

/// Prints what was sent, and who has it, if receivers report.
///
/// # Errors
/// If files were withdrawn, or if expected receivers have not reported that they have all files.
fn print_end(
    sent: &SendProgress,
    is_time_over: bool,
    tally: Option<&Tally>,
    lines: &Display,
) -> Result<()> {
    let bytes = Bytes(sent.bytes);
    lines.print_line(&format!("sent {} packets, {bytes}", sent.packets))?;
    if sent.withdrawn > 0 {
        return Err(anyhow::Error::msg(format!(
            "{} were not sent to the end, because they could no longer be read; the log above names them",
            count_files(sent.withdrawn as usize)
        )));
    }
    match tally {
        Some(tally) => receivers::print_end(tally, is_time_over, lines),
        None => Ok(()),
    }
}

impl ServerArgs {
    /// Reads the certificate of the server of descriptions.
    pub(crate) fn identity(&self) -> Result<Option<Identity>> {
        let tls = self.tls_cert.as_deref().zip(self.tls_key.as_deref());
        let identity = tls.map(|(certificates, key)| Identity::read(certificates, key));
        Ok(identity.transpose()?)
    }
}

/// Runs the session until it is complete, its time is over, `interrupted` is ready, or its progress
/// cannot be printed. Prints what it has sent.
///
/// # Errors
/// If a file cannot be sent, if the time is over before all expected receivers have reported, or if
/// standard output cannot be written to.
pub(crate) async fn send(
    session: Prepared,
    interrupted: impl Future<Output = ()>,
    display: &Display,
) -> Result<()> {
    let Prepared { args, session } = session;
    let tally = session.tally();
    let watcher = tally.clone().map(Watcher::new);
    let watched = watch_progress(session.progress(), watcher, display.clone());
    let (watching, unheard) = watch(watched);
    let mut is_time_over = false;
    let stop = async {
        tokio::select! {
            () = elapsed(args.duration) => is_time_over = true,
            () = interrupted => {}
            () = unheard => {}
        }
    };
    let sent = session.run(stop).await;
    // The channel is closed now, so the task that watches it ends.
    watching.await??;
    let sent = sent?;
    display.print_json(&to_json("done", &sent))?;
    let tally = tally.as_ref().map(|tally| tally.borrow());
    print_end(&sent, is_time_over, tally.as_deref(), display)
}

/// Where descriptions are served.
pub(crate) enum Publication {
    /// On the address that the user gives.
    At(SocketAddr),
    /// On all addresses of this machine, on the usual port or any free one.
    Anywhere,
}

impl Publication {
    /// Returns the place that the user gives. Without one, a session whose way to receivers is left
    /// open is published everywhere.
    pub(crate) fn of(given: Option<SocketAddr>, leaves_way_open: bool) -> Option<Publication> {
        let given = given.map(Publication::At);
        given.or_else(|| leaves_way_open.then_some(Publication::Anywhere))
    }
}

/// Serves the descriptions, by their paths, if there is an address for that.
pub(crate) async fn publish(
    publication: Option<Publication>,
    descriptions: BTreeMap<String, String>,
    identity: Option<Identity>,
) -> Result<Option<Publisher>> {
    let addresses = match publication {
        None => return Ok(None),
        Some(Publication::At(address)) => vec![address],
        Some(Publication::Anywhere) => {
            let ports = [PUBLISHER_PORT, 0].into_iter();
            ports
                .map(|port| SocketAddr::new(any_address(), port))
                .collect()
        }
    };
    let address = addresses[0];
    let publisher = Publisher::serve(&addresses[..], descriptions, identity).await;
    let publisher = publisher.map_err(|cause| cannot_listen("--publish", address, cause));
    publisher.map(Some)
}

/// Reports the sender's progress, until the sender ends or standard output cannot be written to.
async fn watch_progress(
    mut progress: Receiver<SendProgress>,
    mut watcher: Option<Watcher>,
    display: Display,
) -> Result<(), OutputError> {
    let spinner = display.spinner("sending".to_owned());
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    let mut last = SendProgress::default();
    loop {
        let is_over = tokio::select! {
            _ = tick.tick() => false,
            () = closed(&mut progress) => true,
        };
        if let Some(watcher) = &mut watcher {
            watcher.print_changes(&display)?;
        }
        if is_over {
            spinner.finish_and_clear();
            return Ok(());
        }
        let now = *progress.borrow();
        let rate = Rate::from_bits_per_s((now.bytes - last.bytes) * 8);
        last = now;
        let receivers = watcher
            .as_ref()
            .map(|watcher| format!(", {}", watcher.summary()));
        spinner.set_message(format!(
            "{rate}, {} sent, {} gateways{}",
            Bytes(now.bytes),
            now.relay.gateways,
            receivers.unwrap_or_default()
        ));
        display.print_json(&to_json("progress", &now))?;
    }
}

/// Completes when the sender has ended.
async fn closed(progress: &mut Receiver<SendProgress>) {
    while progress.changed().await.is_ok() {}
}

fn to_json(event: &str, progress: &SendProgress) -> serde_json::Value {
    json!({
        "event": event,
        "packets": progress.packets,
        "bytes": progress.bytes,
        "packets_unwanted": progress.unwanted,
        "packets_skipped": progress.skipped,
        "datagrams_unsent": progress.unsent,
        "withdrawn": progress.withdrawn,
        "focused": progress.is_focused,
        "gateways": progress.relay.gateways,
        "receivers_done": progress.receivers.done(),
    })
}
