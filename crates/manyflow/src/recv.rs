//! `manyflow recv`: receives the files of a session.

pub(crate) mod reports;

use std::net::IpAddr;
use std::pin::pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use httpdate::fmt_http_date;
use manyflow_core::units::Bytes;
use manyflow_files::completion::ReceiverName;
use manyflow_files::files::Existing;
use manyflow_files::load::{self, Loaded};
use manyflow_files::sdp::{Protection, SessionDescription};
use manyflow_files::session::{
    self, FileDone, Progress, ProgressSinks, ReceiveConfig, ReceiveError, Received, flows,
};
use manyflow_net::description::load::Trust;
use manyflow_net::group_key::GroupKey;
use manyflow_net::inlet::Route;
use manyflow_net::multicast::Choice;
use manyflow_net::way::Way;
use manyflow_webrc::ReceiverConfig;
use serde_json::json;
use tokio::sync::{mpsc, watch};

use crate::cli::{RecvArgs, threads};
use crate::keygen::trusted_keys;
use crate::metrics::Pages;
use crate::{follow, imaging, parameters, post_receive};
use manyflow_terminal::display::{self, Display, OutputError, show};
use manyflow_terminal::received::{print_progress, report};
use manyflow_terminal::shown::shown;
use manyflow_terminal::signals::{END_GRACE, interrupted};
use manyflow_terminal::status::{Session, Sessions};
use manyflow_terminal::usage;

use reports::Reports;

/// How often progress is reported with `--json`.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) async fn run(args: RecvArgs, display: &Display) -> Result<()> {
    let configure = configure(&args)?;
    let trust = Trust {
        signers: trusted_keys(&args.trust)?,
        ca: args.ca.clone(),
    };
    let Some(session) = args.session.clone() else {
        return follow::run(args, trust, configure, display).await;
    };
    let loaded = load::load(&session, &trust).await?;
    // A signal between two of the following steps counts for the next one.
    let (stopped, mut interruption) = (interrupted(), pin!(interrupted()));
    print_session(display, &loaded)?;
    let description = loaded.description;
    let session_name = description.name.clone();
    let group_key = group_key(&args)?;
    warn_of_forgers(&description, group_key.as_ref());
    let output = &args.output;
    let reports = Reports::new(&args, &session, output, &description, group_key.as_ref())?;
    let way = way(&args.relay, args.interface.as_deref());
    let flow = flows(&description).last().copied();
    let route = way.route(&session, description.amt_relay.as_ref(), flow);
    let route = route.await.map_err(|error| usage(error.to_string()))?;
    announce_route(&route, description.source, display)?;
    let (image, command) = imaging::output(&args.image)?;
    let mut config = ReceiveConfig::new(description, route, args.output.clone());
    configure(&mut config);
    config.image = image;
    if args.overwrite {
        config.existing = Existing::Replace;
    }
    let (sinks, progress, files) = ProgressSinks::channels();
    let pages = pages(&args, session_name, &progress);
    let _metrics = pages.serve(args.metrics, display).await?;
    let reporting = reports.map(|reports| reports.start(&sinks));
    let (watching, unheard) = display::watch(watch_progress(progress, files, display.clone()));
    let stop = async {
        tokio::select! {
            () = stopped => {}
            () = unheard => {}
        }
    };
    let result = tokio::select! {
        result = session::receive(config, sinks, stop) => result,
        () = overdue() => Err(ReceiveError::Stopped),
    };
    // The channel is closed now, so the task that watches it ends.
    watching.await??;
    let piped = match command {
        Some(command) => {
            let succeeded = result.is_ok();
            command.finish(succeeded, interruption.as_mut()).await
        }
        None => Ok(()),
    };
    let ended = match (piped, result) {
        (Ok(()), Ok(received)) => finish(&args, &received, display, interruption.as_mut()).await,
        (Ok(()), Err(error)) => Err(error.into()),
        (Err(error), _) => Err(error.into()),
    };
    if let Some(reporting) = reporting {
        reports::end(reporting, &ended, display, interruption).await?;
    }
    ended
}

/// Returns the status page and the metrics.
fn pages(args: &RecvArgs, session_name: String, progress: &watch::Receiver<Progress>) -> Pages {
    let name = receiver_name(args);
    let url = args.session.clone();
    let url = url.filter(|session| session.contains("://"));
    let shown = Session::received(session_name, url, name, progress.clone());
    let shown = Sessions::new(vec![shown]);
    Pages::of(vec![(None, progress.clone())]).with_sessions("recv", move || shown.clone())
}

/// Returns the name under which this receiver reports.
pub(crate) fn receiver_name(args: &RecvArgs) -> String {
    let name = args.identity.name.clone();
    name.unwrap_or_else(ReceiverName::of_host).to_string()
}

/// Runs the command of the user, and prints what was received.
async fn finish(
    args: &RecvArgs,
    received: &Received,
    display: &Display,
    interruption: impl Future<Output = ()>,
) -> Result<()> {
    if let Some(command) = &args.post_receive {
        post_receive::run(command, &args.output, received, interruption).await?;
    }
    Ok(report(display, received)?)
}

/// Returns a function that sets the parameters of a receiver that do not depend on the session.
pub(crate) fn configure(args: &RecvArgs) -> Result<Configure> {
    let mut webrc = match args.strict_rfc3738 {
        true => ReceiverConfig::default(),
        false => ReceiverConfig::live(),
    };
    webrc.maximum_rate = args.max_rate;
    parameters::set_receiver(&mut webrc, &args.parameters)
        .map_err(|error| usage(format!("{error:#}")))?;
    let group_key = group_key(args)?;
    let (memory, threads) = (args.memory.0, threads(args.threads));
    let (allow_unverified, patience) = (args.allow_unverified, args.patience);
    Ok(Box::new(move |config| {
        config.webrc = webrc.clone();
        config.allow_unverified = allow_unverified;
        config.group_key.clone_from(&group_key);
        config.memory_max = memory;
        config.threads = threads;
        config.patience = patience;
    }))
}

/// Sets the parameters of a receiver.
pub(crate) type Configure = Box<dyn Fn(&mut ReceiveConfig) + Send + Sync>;

/// Reads the key of `--group-key`.
pub(crate) fn group_key(args: &RecvArgs) -> Result<Option<GroupKey>> {
    let key = args.group_key.as_deref().map(GroupKey::read).transpose();
    key.map_err(|error| usage(format!("--group-key: {error}")))
}

fn warn_of_forgers(description: &SessionDescription, key: Option<&GroupKey>) {
    if description.protection == Some(Protection::Mac) && key.is_none() {
        tracing::warn!(
            "the session has a group key; without --group-key, forged packets can disturb it"
        );
    }
}

/// Completes when an interrupted receiver has not ended in time. A disk or a silent relay can take
/// longer, but a file is complete under its name whenever the process ends, and the spool
/// continues.
async fn overdue() {
    interrupted().await;
    tokio::time::sleep(END_GRACE).await;
}

/// Returns the user's wishes for the way of packets.
pub(crate) fn way(relays: &[String], interface: Option<&str>) -> Way {
    Way {
        relays: relays.to_vec(),
        interface: interface.map(|name| {
            let Ok(interface) = name.parse();
            interface
        }),
    }
}

/// Prints the interface of multicast that the user has not named.
///
/// # Errors
/// If the interface cannot be chosen.
pub(crate) fn announce_route(route: &Route, source: IpAddr, display: &Display) -> Result<()> {
    if let Route::Multicast(None) = route {
        let choice = Choice::towards(source)?;
        display.print_note(&format!("multicast from {source} is received on {choice}"));
    }
    Ok(())
}

/// Prints who signed the session, and when: an old description may have been served again.
fn print_session(display: &Display, loaded: &Loaded) -> Result<(), OutputError> {
    let Loaded {
        description,
        signer,
    } = loaded;
    let name = &description.name;
    let written = description.written();
    if let Some(signer) = signer {
        let date = written.map_or("an unknown date".to_owned(), fmt_http_date);
        let name = shown(name);
        display.print_line(&format!("{name}: signed by {signer}, written on {date}"))?;
    }
    let since_1970 = |time: SystemTime| Some(time.duration_since(UNIX_EPOCH).ok()?.as_secs());
    display.print_json(&json!({
        "event": "session",
        "name": name,
        "signer": signer.map(|signer| signer.to_string()),
        "written": written.and_then(since_1970),
    }))
}

/// Prints how the receiver progresses, until the receiver ends or the line cannot be printed.
pub(crate) async fn watch_progress(
    mut progress: watch::Receiver<Progress>,
    mut files: mpsc::UnboundedReceiver<FileDone>,
    display: Display,
) -> Result<(), OutputError> {
    let bar = display.transfer(String::new());
    let mut tick = tokio::time::interval(PROGRESS_INTERVAL);
    loop {
        tokio::select! {
            changed = progress.changed() => {
                show(&bar, &progress.borrow_and_update());
                if changed.is_err() {
                    break;
                }
            }
            Some(file) = files.recv() => print_file(&display, &file)?,
            _ = tick.tick() => print_progress(&display, &progress.borrow())?,
        }
    }
    while let Ok(file) = files.try_recv() {
        print_file(&display, &file)?;
    }
    bar.finish_and_clear();
    Ok(())
}

fn print_file(display: &Display, file: &FileDone) -> Result<(), OutputError> {
    display.print_line(&format!("{}  {}", shown(&file.name), Bytes(file.bytes)))?;
    display.print_json(&json!({"event": "file", "name": file.name, "bytes": file.bytes}))
}
