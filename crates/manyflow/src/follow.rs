//! `manyflow recv --follow`: receives each session that a trusted signer announces.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use manyflow_core::units::Bytes;
use manyflow_files::follow::{
    self, After, FollowConfig, FollowError, News, Notice, Report, Rules, Stored,
};
use manyflow_files::session::Progress;
use manyflow_net::description::load::Trust;
use manyflow_net::keys::PublicKey;
use manyflow_terminal::display::{self, Display, OutputError};
use manyflow_terminal::received::part_that_was_new;
use manyflow_terminal::shown::shown;
use manyflow_terminal::signals::interrupted;
use manyflow_terminal::status::{Session, Sessions};
use manyflow_terminal::usage;
use serde_json::json;
use tokio::sync::{mpsc, watch};

use crate::cli::RecvArgs;
use crate::metrics::Pages;
use crate::post_receive;
use crate::recv::reports::{self, Reports};
use crate::recv::{Configure, receiver_name, watch_progress, way};

pub(crate) async fn run(
    args: RecvArgs,
    trust: Trust,
    configure: Configure,
    display: &Display,
) -> Result<()> {
    let interruption = interrupted();
    let options = &args.follow;
    let rules = Rules::new(&options.only, options.max_size.map(|size| size.0));
    let (told, news) = mpsc::unbounded_channel();
    let mut config = FollowConfig::new(options.follow.clone(), trust, args.output.clone());
    config.allow_unsigned = args.allow_unverified;
    config.rules = rules.map_err(|error| usage(error.to_string()))?;
    config.way = way(&args.relay, args.interface.as_deref());
    config.state.clone_from(&options.state);
    config.at_once = options.at_once;
    config.configure = configure;
    let sources: Vec<_> = config.sources.iter().map(ToString::to_string).collect();
    display.print_line(&format!("following {}", sources.join(", ")))?;
    display.print_json(&json!({"event": "following", "sources": sources}))?;
    let args = Arc::new(args);
    config.report = Some(report(Arc::clone(&args))?);
    config.after = Some(after(Arc::clone(&args), display.clone()));
    let sessions = Progresses::default();
    let _metrics = pages(&args, &sessions).serve(args.metrics, display).await?;
    let (watching, unheard) = display::watch(print_all(news, sessions, display.clone()));
    let stop = async {
        tokio::select! {
            () = interruption => {}
            () = unheard => {}
        }
    };
    let followed = follow::follow(config, told, stop).await;
    // The channel is closed now, so the task that prints ends.
    watching.await??;
    followed.map_err(|error| match error {
        FollowError::NoTrust => usage(error.to_string()),
        FollowError::Source(ref source) if !source.may_pass() => usage(error.to_string()),
        error => error.into(),
    })
}

/// The progress of the sessions of this run, by their names.
type Progresses = Arc<Mutex<BTreeMap<String, watch::Receiver<Progress>>>>;

/// Returns the status page and the metrics of all sessions.
fn pages(args: &RecvArgs, sessions: &Progresses) -> Pages {
    let (measured, shown) = (Arc::clone(sessions), Arc::clone(sessions));
    let name = receiver_name(args);
    let measured = move || {
        let sessions = measured.lock().unwrap_or_else(PoisonError::into_inner);
        let sessions = sessions.iter();
        let sessions = sessions.map(|(name, progress)| (Some(name.clone()), *progress.borrow()));
        sessions.collect()
    };
    let shown = move || {
        let sessions = shown.lock().unwrap_or_else(PoisonError::into_inner);
        let sessions = sessions.iter().map(|(session, progress)| {
            Session::received(session.clone(), None, name.clone(), progress.clone())
        });
        Sessions::new(sessions.collect())
    };
    Pages::of_changing(measured).with_sessions("recv", shown)
}

/// Returns the start of reports to the senders of sessions.
fn report(args: Arc<RecvArgs>) -> Result<Report> {
    let key = crate::recv::group_key(&args)?;
    Ok(Box::new(move |announcement, folder, sinks| {
        let (base, description) = (announcement.base(), &announcement.description);
        match Reports::new(&args, &base, folder, description, key.as_ref()) {
            Ok(reports) => Some(reports?.start(sinks)),
            Err(error) => {
                tracing::warn!("{}: {error:#}", description.name);
                None
            }
        }
    }))
}

/// Returns the work after a session: the user's command, and the last report to the sender, which
/// does not delay other sessions.
fn after(args: Arc<RecvArgs>, display: Display) -> After {
    Arc::new(move |stored: Stored, reporting| {
        let (args, display) = (Arc::clone(&args), display.clone());
        Box::pin(async move {
            if let Some(command) = &args.post_receive {
                let ran =
                    post_receive::run(command, &stored.folder, &stored.received, interrupted());
                ran.await.map_err(|error| error.to_string())?;
            }
            if let Some(reporting) = reporting {
                let display = display.of_session(&stored.announcement.description.name);
                // A standard output that cannot be written to ends the command elsewhere.
                tokio::spawn(async move {
                    reports::end(reporting, &Ok(()), &display, interrupted()).await
                });
            }
            Ok(())
        })
    })
}

/// Prints what happens, until the follower ends or a line cannot be printed.
async fn print_all(
    mut news: mpsc::UnboundedReceiver<News>,
    sessions: Progresses,
    display: Display,
) -> Result<(), OutputError> {
    while let Some(news) = news.recv().await {
        match news {
            News::Notice(notice) => print_notice(&notice, &display)?,
            News::Done(stored) => print_done(&stored, &display)?,
            News::Started {
                name,
                folder,
                progress,
                files,
            } => {
                let display = display.of_session(&name);
                print_started(&name, &folder, &display)?;
                let mut sessions = sessions.lock().unwrap_or_else(PoisonError::into_inner);
                sessions.insert(name, progress.clone());
                tokio::spawn(watch_progress(progress, files, display));
            }
        }
    }
    Ok(())
}

fn print_started(name: &str, folder: &Path, display: &Display) -> Result<(), OutputError> {
    let folder = folder.display().to_string();
    display.print_line(&format!("{}: receiving into {folder}", shown(name)))?;
    display.print_json(&json!({"event": "receiving", "folder": folder}))
}

fn print_done(stored: &Stored, display: &Display) -> Result<(), OutputError> {
    let name = &stored.announcement.description.name;
    let objects = &stored.received.progress.objects;
    let (files, bytes) = (objects.files_complete, objects.needed_bytes);
    let seconds = stored.received.elapsed.as_secs_f64();
    let (here, new) = (objects.earlier_bytes, objects.received_bytes());
    display.print_line(&format!(
        "{}: complete, {}{} in {seconds:.1} s",
        shown(name),
        Bytes(bytes),
        part_that_was_new(&stored.received.progress, bytes)
    ))?;
    display.of_session(name).print_json(&json!({
        "event": "received",
        "folder": stored.folder.display().to_string(),
        "files": files,
        "bytes": bytes,
        "received_bytes": new,
        "earlier_bytes": here,
        "seconds": seconds,
    }))
}

fn print_notice(notice: &Notice, display: &Display) -> Result<(), OutputError> {
    let text = |signer: &Option<PublicKey>| signer.map(|signer| signer.to_string());
    let (name, line, event) = match notice {
        Notice::Found(found) => {
            let signer = text(&found.signer);
            let by = signer.as_deref().unwrap_or("nobody");
            let line = format!("announced, signed by {by}");
            let event = json!({"event": "announced", "signer": signer});
            (&found.description.name, line, event)
        }
        Notice::Refused {
            name,
            signer,
            refusal,
        } => {
            let line = format!("not received: {refusal}");
            let reason = refusal.to_string();
            let event = json!({"event": "refused", "signer": text(signer), "reason": reason});
            (name, line, event)
        }
        Notice::Failed {
            name,
            reason,
            pause,
        } => {
            let pause_s = pause.as_secs();
            let line = format!("{reason}; it is tried again in {pause_s} s");
            let event = json!({"event": "retry", "reason": reason, "pause_s": pause_s});
            (name, line, event)
        }
        Notice::Ended { name } => {
            let line = "no longer announced".to_owned();
            let event = json!({"event": "ended", "reason": line});
            (name, line, event)
        }
    };
    display.print_line(&format!("{}: {}", shown(name), shown(&line)))?;
    display.of_session(name).print_json(&event)
}
