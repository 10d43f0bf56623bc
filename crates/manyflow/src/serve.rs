//! `manyflow serve`: sends several sessions from one process.

mod config;

use std::path::Path;
use std::pin::pin;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::Instrument as _;

use crate::cli::ServeArgs;
use crate::metrics::Pages;
use crate::send::{self, Opened, Prepared, Publication};
use config::Config;
use manyflow_terminal::display::{Display, OutputError};
use manyflow_terminal::signals::interrupted;
use manyflow_terminal::status::Sessions;
use manyflow_terminal::usage;

pub(crate) async fn run(args: ServeArgs, display: &Display) -> Result<()> {
    let file = args.file.display().to_string();
    let Config { servers, sessions } = Config::read(&args.file)?;
    enter_folder_of(&args.file)?;
    let identity = servers.identity().with_context(|| file.clone())?;
    let mut opened = Vec::new();
    for config in sessions {
        let session = Named {
            display: display.of_session(&config.name),
            name: config.name,
            place: config.place,
            session: (),
        };
        let open = async |(), display: &Display| Opened::open(config.args, display).await;
        opened.push(session.take_step(open).await?);
    }
    check_conflicts(&file, &opened)?;
    let mut prepared = Vec::new();
    for session in opened {
        let prepare = async |session: Opened, display: &Display| session.prepare(display).await;
        prepared.push(session.take_step(prepare).await?);
    }
    for Named { session, place, .. } in &prepared {
        session.write_description().with_context(|| place.clone())?;
    }

    let descriptions = prepared.iter();
    let descriptions = descriptions.map(|named| (named.path(), named.session.text().to_owned()));
    let publisher = send::publish(
        servers.publish.map(Publication::At),
        descriptions.collect(),
        identity,
    )
    .await?;
    let progress = prepared.iter();
    let progress =
        progress.map(|named| (Some(named.name.clone()), named.session.session.progress()));
    let urls_of = |named: &Named<Prepared>| {
        let publisher = publisher.as_ref();
        let urls = publisher.map(|publisher| named.session.urls(publisher, &named.path()));
        urls.unwrap_or_default()
    };
    let shown = prepared.iter().map(|named| {
        let urls = urls_of(named);
        named.session.on_page(named.name.clone(), &urls)
    });
    let shown = Sessions::new(shown.collect());
    let pages = Pages::of(progress.collect()).with_sessions("serve", move || shown.clone());
    let _metrics = pages.serve(servers.metrics, display).await?;
    let interruption = interrupted();
    for named in &prepared {
        named.session.announce(&urls_of(named), &named.display)?;
    }
    send_all(prepared, interruption).await
}

/// Makes relative paths relative to the folder of `file`, and not to that of the shell or the
/// service manager.
fn enter_folder_of(file: &Path) -> Result<()> {
    match file.parent() {
        Some(folder) if folder != Path::new("") => std::env::set_current_dir(folder)
            .with_context(|| format!("cannot enter the folder {}", folder.display())),
        _ => Ok(()),
    }
}

fn check_conflicts(file: &str, sessions: &[Named<Opened>]) -> Result<()> {
    for (number, other) in sessions.iter().enumerate() {
        for one in &sessions[..number] {
            if let Some(conflict) = one.session.conflict(&other.session) {
                let (one, other) = (&one.name, &other.name);
                return Err(usage(format!(
                    "{file}: sessions `{one}` and `{other}` {conflict}"
                )));
            }
        }
    }
    Ok(())
}

/// A session at some step on its way to the network, with its name.
struct Named<T> {
    name: String,
    /// The place in the file and the name, for errors.
    place: String,
    display: Display,
    session: T,
}

impl<T> Named<T> {
    /// Takes the next step. Log lines and errors name the session.
    async fn take_step<U>(
        self,
        step: impl AsyncFnOnce(T, &Display) -> Result<U>,
    ) -> Result<Named<U>> {
        let span = self.span();
        let done = step(self.session, &self.display).instrument(span).await;
        Ok(Named {
            session: done.with_context(|| self.place.clone())?,
            name: self.name,
            place: self.place,
            display: self.display,
        })
    }

    /// The span that names the session in log lines of every level.
    fn span(&self) -> tracing::Span {
        tracing::error_span!("serve", session = self.name)
    }

    /// The path of the session's description in its URL.
    fn path(&self) -> String {
        format!("/{}.sdp", self.name)
    }
}

impl Named<Prepared> {
    /// Sends until the session's time is over or `stopped` is closed. If the session fails, reports
    /// why, and returns its name.
    async fn send(self, mut stopped: watch::Receiver<()>) -> Result<Option<String>, OutputError> {
        let stop = async {
            // No value is ever sent, so this waits until the channel is closed.
            let _ = stopped.changed().await;
        };
        let Err(error) = send::send(self.session, stop, &self.display).await else {
            return Ok(None);
        };
        let error = error.downcast::<OutputError>().map_or_else(Ok, Err)?;
        let message = format!("{error:#}");
        tracing::error!("the session has failed, and the others go on: {message}");
        let event = json!({"event": "failed", "error": message});
        self.display.print_json(&event)?;
        Ok(Some(self.name))
    }
}

/// Sends all sessions, until each has ended or an interruption ends them all.
///
/// # Errors
/// If a session has failed; or at once, if standard output cannot be written to.
async fn send_all(
    sessions: Vec<Named<Prepared>>,
    interruption: impl Future<Output = ()>,
) -> Result<()> {
    let count = sessions.len();
    let (stop, stopped) = watch::channel(());
    let mut interruption = pin!(interruption);
    let mut tasks = JoinSet::new();
    for named in sessions {
        let span = named.span();
        tasks.spawn(named.send(stopped.clone()).instrument(span));
    }
    let mut stop = Some(stop);
    let (mut failed, mut written) = (Vec::new(), Ok(()));
    loop {
        tokio::select! {
            () = &mut interruption, if stop.is_some() => stop = None,
            ended = tasks.join_next() => match ended {
                None => break,
                Some(ended) => match ended? {
                    Ok(name) => failed.extend(name),
                    Err(error) => (written, stop) = (Err(error), None),
                }
            }
        }
    }
    written?;
    ensure!(
        failed.is_empty(),
        "{} of {count} sessions failed ({}): the log above says why",
        failed.len(),
        failed.join(", ")
    );
    Ok(())
}
