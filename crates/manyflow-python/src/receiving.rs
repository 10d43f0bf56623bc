//! Receiving files. `manyflow.live.receive` wraps [`FileReceiver`].

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use manyflow_core::units::Rate;
use manyflow_files::completion::{Identity, ReceiverName, ReceiverStatus, ReportPlan, Reporting};
use manyflow_files::files::Existing;
use manyflow_files::sdp::SessionDescription;
use manyflow_files::session::{Progress, ProgressSinks, ReceiveConfig, Received, receive};
use manyflow_net::description::load::{Trust, load_text, reachable, verify_signer};
use manyflow_net::group_key::GroupKey;
use manyflow_net::inlet::Route;
use manyflow_net::keys::{KeyError, PublicKey, SigningKey};
use manyflow_webrc::ReceiverConfig;
use pyo3::prelude::*;
use tokio::sync::{Mutex, watch};

use crate::errors::{in_python, transfer_error};
use crate::runtime::future_into_py;
use crate::transfer::{Role, Stop, duration, parse};

/// Starts to receive a session.
#[pyfunction]
#[pyo3(signature = (session, text, into, overwrite, relay, interface, max_rate, patience_s, group_key, trust, ca, report, name, identity))]
#[allow(
    clippy::too_many_arguments,
    reason = "manyflow.live.receive names each of them"
)]
pub(crate) fn start_receiving(
    py: Python<'_>,
    session: String,
    text: Option<String>,
    into: PathBuf,
    overwrite: bool,
    relay: Option<String>,
    interface: Option<String>,
    max_rate: Option<String>,
    patience_s: f64,
    group_key: Option<PathBuf>,
    trust: Vec<String>,
    ca: Option<PathBuf>,
    report: bool,
    name: Option<String>,
    identity: Option<PathBuf>,
) -> PyResult<FileReceiver> {
    let wrong = |error: KeyError| transfer_error(py, &session, &in_python(&error.to_string()));
    let name: Option<ReceiverName> = name.map(|name| parse("name", &name)).transpose()?;
    let identity = identity.as_deref().map(SigningKey::read).transpose();
    let identity = identity.map_err(wrong)?;
    let group = group_key.as_deref().map(GroupKey::read).transpose();
    let group = group.map_err(wrong)?;
    let signers = trust.iter().map(|name| PublicKey::named(name)).collect();
    let trust = Trust {
        signers: Result::map_err(signers, wrong)?,
        ca,
    };
    let max_rate: Option<Rate> = max_rate.map(|rate| parse("max_rate", &rate)).transpose()?;
    let wish = Wish {
        session,
        text,
        into,
        existing: if overwrite {
            Existing::Replace
        } else {
            Existing::Keep
        },
        relay,
        interface,
        max_rate,
        patience: duration("patience_s", patience_s)?,
        group,
        trust,
        report,
        name,
        identity,
    };
    let (sinks, progress, mut files) = ProgressSinks::channels();
    // Each file is in the result, too.
    files.close();
    let role = Role::start(|stop| async move {
        let session = wish.session.clone();
        let received = run_receiver(wish, sinks, stop).await;
        received.map(Arc::new).map_err(|problem| (session, problem))
    })?;
    Ok(FileReceiver {
        role,
        progress: Arc::new(Mutex::new(progress)),
    })
}

/// A session to receive.
struct Wish {
    session: String,
    text: Option<String>,
    into: PathBuf,
    existing: Existing,
    relay: Option<String>,
    interface: Option<String>,
    max_rate: Option<Rate>,
    patience: Duration,
    group: Option<GroupKey>,
    trust: Trust,
    report: bool,
    /// The name of the receiver; without it, that of the host.
    name: Option<ReceiverName>,
    /// The key that signs reports.
    identity: Option<SigningKey>,
}

async fn run_receiver(wish: Wish, sinks: ProgressSinks, stop: Stop) -> Result<Received, String> {
    let text = tokio::select! {
        text = description_text(&wish) => text?,
        () = stop.clone().wait() => return Err("stopped before all files were complete".to_owned()),
    };
    let description = SessionDescription::parse(&text).map_err(|error| error.to_string())?;
    let mut wish = wish;
    let reporting = wish.reporting(&description, &sinks);
    let config = wish.config(description)?;
    let received = receive(config, sinks, stop.clone().wait()).await;
    let status = match &received {
        Ok(_) => Some(ReceiverStatus::Done),
        Err(error) => ReceiverStatus::of_error(error),
    };
    if let Some((reporting, status)) = reporting.zip(status) {
        // The files are here even if the sender does not answer.
        tokio::select! {
            _ = reporting.end(status) => {}
            () = stop.wait(), if status == ReceiverStatus::Done => {}
        }
    }
    received.map_err(|error| error.to_string())
}

async fn description_text(wish: &Wish) -> Result<String, String> {
    let loaded = match &wish.text {
        Some(text) => verify_signer(text, &wish.trust.signers).map(|_| text.clone()),
        None => {
            let loaded = load_text(&wish.session, &wish.trust).await;
            loaded.map(|(text, _)| text)
        }
    };
    loaded.map_err(|error| error.to_string())
}

impl Wish {
    /// Starts to report to the sender, if it asks for reports.
    fn reporting(
        &mut self,
        description: &SessionDescription,
        sinks: &ProgressSinks,
    ) -> Option<Reporting> {
        let plan = ReportPlan::new(description, self.group.as_ref(), &self.session);
        let plan = plan.filter(|_| self.report)?;
        let (name, key) = (self.name.take(), self.identity.take());
        let identity = Identity::new(name, key, &self.into, description);
        Some(Reporting::start(plan, identity, sinks))
    }

    fn config(self, description: SessionDescription) -> Result<ReceiveConfig, String> {
        let route = match (self.relay, self.interface, &description.amt_relay) {
            (Some(relay), _, _) => Route::Relays(vec![relay]),
            (None, Some(name), _) => {
                Route::Multicast(Some(name.parse().unwrap_or_else(|never| match never {})))
            }
            (None, None, None) => Route::Multicast(None),
            (None, None, Some(relay)) => {
                let relay = reachable(relay, &self.session);
                Route::Relays(vec![relay.ok_or(
                    "the description does not give the address of its relay: name it with --relay HOST:PORT",
                )?])
            }
        };
        Ok(ReceiveConfig {
            webrc: ReceiverConfig {
                maximum_rate: self.max_rate,
                ..ReceiverConfig::live()
            },
            existing: self.existing,
            group_key: self.group,
            patience: self.patience,
            ..ReceiveConfig::new(description, route, self.into)
        })
    }
}

/// A session that is being received.
#[pyclass(frozen, name = "FileReceiver", module = "manyflow._native")]
pub(crate) struct FileReceiver {
    role: Role<Arc<Received>>,
    progress: Arc<Mutex<watch::Receiver<Progress>>>,
}

/// Files with their bytes, seconds, bytes received now, the fraction of lost packets.
type Outcome = (Vec<(String, u64)>, f64, u64, f64);

fn outcome(received: &Received) -> Outcome {
    let files = received.files.iter();
    let files: Vec<_> = files.map(|file| (file.name.clone(), file.bytes)).collect();
    let bytes = files.iter().map(|(_, bytes)| bytes).sum();
    let objects = &received.progress.objects;
    let new = objects.received_bytes().min(bytes);
    (
        files,
        received.elapsed.as_secs_f64(),
        new,
        received.progress.packets.loss(),
    )
}

#[pymethods]
impl FileReceiver {
    /// Waits for a change, and returns useful bytes, needed bytes, complete files, files, and the
    /// rate in bit/s; `None` at the end.
    fn next_progress<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let progress = Arc::clone(&self.progress);
        future_into_py(py, async move {
            let mut progress = progress.lock().await;
            if progress.changed().await.is_err() {
                return Ok(None);
            }
            let now = *progress.borrow_and_update();
            let rate = now.webrc.map_or(0, |status| status.received.bits_per_s());
            let objects = now.objects;
            Ok(Some((
                objects.useful_bytes,
                objects.needed_bytes,
                objects.files_complete,
                objects.files,
                rate,
            )))
        })
    }

    /// Asks the role to stop.
    fn stop(&self) {
        self.role.stop();
    }

    /// Waits for the end of the session.
    fn wait<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let end = self.role.wait();
        future_into_py(
            py,
            async move { end.await.map(|received| outcome(&received)) },
        )
    }
}
