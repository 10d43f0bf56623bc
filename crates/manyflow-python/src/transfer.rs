//! Sending and receiving files. `manyflow.live` wraps these classes.
//!
//! Roles run as tasks of tokio's runtime, so a cancelled awaitable stops only the wait. The
//! Python side then calls `stop`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use manyflow_core::units::Rate;
use manyflow_files::completion::{
    self, Audience, ReceiverName, ReceiverStatus, ReportPlan, Reporting,
};
use manyflow_files::files::{Existing, Selection, SourceOptions};
use manyflow_files::sdp::SessionDescription;
use manyflow_files::sending::{Opened, RelayAddress, SendConfig, place};
use manyflow_files::session::{
    Progress, ProgressSinks, ReceiveConfig, Received, SendProgress, receive,
};
use manyflow_net::description::load::{Trust, load_text, reachable, verify_signer};
use manyflow_net::group_key::GroupKey;
use manyflow_net::inlet::Route;
use manyflow_net::keys::{KeyError, PublicKey, SigningKey};
use manyflow_net::multicast::Groups;
use manyflow_net::publish::{DESCRIPTION_PATH, Publisher};
use manyflow_net::tls::Identity;
use manyflow_webrc::{ReceiverConfig, SessionConfig};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tokio::sync::{Mutex, watch};

use crate::errors::{in_python, transfer_error};
use crate::runtime::{future_into_py, runtime};

/// The packet length in bytes.
const PACKET_BYTES: u32 = 1400;

/// The end of a role: its result, or a problem with the file or address that it concerns.
type End<T> = Option<Result<T, (String, String)>>;

fn parse<T: std::str::FromStr<Err: std::fmt::Display>>(name: &str, text: &str) -> PyResult<T> {
    text.parse()
        .map_err(|error| PyValueError::new_err(format!("{name}: `{text}`: {error}")))
}

fn raise(subject: &str, problem: &str) -> PyErr {
    Python::attach(|py| transfer_error(py, subject, &in_python(problem)))
}

/// A role that runs as a task.
struct Role<T> {
    end: watch::Receiver<End<T>>,
    /// The role stops when this is dropped.
    stop: std::sync::Mutex<Option<watch::Sender<()>>>,
}

impl<T: Clone + Send + Sync + 'static> Role<T> {
    /// Starts a role, which gets a future that is ready when the role has to stop.
    ///
    /// # Errors
    /// Returns the error of [`runtime`].
    fn start<F>(run: impl FnOnce(Stop) -> F) -> PyResult<Role<T>>
    where
        F: Future<Output = Result<T, (String, String)>> + Send + 'static,
    {
        let runtime = runtime()?;
        let (stop, stopped) = watch::channel(());
        let (ended, end) = watch::channel(None);
        let running = run(Stop(stopped));
        runtime.spawn(async move {
            // A role whose object was dropped has nobody to report to.
            let _ = ended.send(Some(running.await));
        });
        Ok(Role {
            end,
            stop: std::sync::Mutex::new(Some(stop)),
        })
    }

    fn stop(&self) {
        if let Ok(mut stop) = self.stop.lock() {
            stop.take();
        }
    }

    /// Waits for the end of the role.
    fn wait(&self) -> impl Future<Output = PyResult<T>> + Send + use<T> {
        let mut end = self.end.clone();
        async move {
            let ended = end.wait_for(Option::is_some).await;
            match ended.map(|end| end.clone()) {
                Ok(Some(Ok(value))) => Ok(value),
                Ok(Some(Err((subject, problem)))) => Err(raise(&subject, &problem)),
                Ok(None) | Err(_) => Err(raise("the transfer", "it has panicked")),
            }
        }
    }
}

/// The wish that a role stops.
#[derive(Clone)]
struct Stop(watch::Receiver<()>);

impl Stop {
    /// Waits until the role has to stop. No value is ever sent, so this waits for the closed
    /// channel.
    async fn wait(mut self) {
        while self.0.changed().await.is_ok() {}
    }
}

/// Opens a session and starts to send it.
#[pyfunction]
#[pyo3(signature = (paths, listen, multicast, interface, hop_limit, port, publish, tls, rate, profile, until_done, reports, duration_s, include, exclude, archive, group_key, encrypt, sign))]
#[allow(
    clippy::too_many_arguments,
    reason = "manyflow.live.send names each of them"
)]
pub(crate) fn send(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    listen: Option<String>,
    multicast: Option<String>,
    interface: Option<String>,
    hop_limit: u8,
    port: u16,
    publish: Option<String>,
    tls: Option<(PathBuf, PathBuf)>,
    rate: Option<String>,
    profile: String,
    until_done: Option<u32>,
    reports: String,
    duration_s: Option<f64>,
    include: Vec<String>,
    exclude: Vec<String>,
    archive: bool,
    group_key: Option<PathBuf>,
    encrypt: bool,
    sign: Option<PathBuf>,
) -> PyResult<Bound<'_, PyAny>> {
    let subject = paths
        .first()
        .map(|path| path.display().to_string())
        .unwrap_or_default();
    let wrong = |error: String| transfer_error(py, &subject, &in_python(&error));
    let reports: SocketAddr = parse("reports", &reports)?;
    let listen = listen.map(|text| parse("listen", &text)).transpose()?;
    let multicast = multicast.map(|range| groups(&range, interface, hop_limit));
    let multicast = multicast.transpose()?;
    let relay = relay_address(listen, multicast.as_ref());
    let webrc = rate_control(rate, &profile, multicast.as_ref(), relay.as_ref())?;
    let group = group_key.as_deref().map(GroupKey::read).transpose();
    let group = group.map_err(|error| wrong(error.to_string()))?;
    let signing = sign.as_deref().map(SigningKey::read).transpose();
    let selection = Selection::new(&include, &exclude);
    let defaults = SendConfig::new(paths, webrc);
    let config = SendConfig {
        sources: SourceOptions {
            selection: selection.map_err(|error| wrong(error.to_string()))?,
            archive,
            ..defaults.sources
        },
        multicast,
        port,
        relay,
        reports: until_done.map(|number| (reports, Audience::Number(number))),
        signing: signing.map_err(|error| wrong(error.to_string()))?,
        group: group.map(|key| (key, encrypt)),
        ..defaults
    };
    let identity = tls.map(|(certificates, key)| Identity::read(&certificates, &key));
    let publication = Publication {
        address: publish.map(|text| parse("publish", &text)).transpose()?,
        identity: identity
            .transpose()
            .map_err(|error| wrong(error.to_string()))?,
    };
    let duration = duration_s
        .map(|seconds| duration("duration_s", seconds))
        .transpose()?;
    future_into_py(py, async move {
        start_sending(config, publication, duration, subject).await
    })
}

/// Returns the address of a session's relay. Without one, and without groups, it is on all
/// addresses.
fn relay_address(listen: Option<SocketAddr>, groups: Option<&Groups>) -> Option<RelayAddress> {
    match (listen, groups) {
        (Some(address), _) => Some(RelayAddress::new(address)),
        (None, Some(_)) => None,
        (None, None) => Some(RelayAddress::anywhere()),
    }
}

/// Returns the parameters of a session, whose rate follows from its place if none is given.
fn rate_control(
    rate: Option<String>,
    profile: &str,
    groups: Option<&Groups>,
    relay: Option<&RelayAddress>,
) -> PyResult<SessionConfig> {
    let rate = rate.map(|text| parse("rate", &text)).transpose()?;
    let relay = relay.map(|relay| relay.listen.ip());
    let rate = rate.unwrap_or_else(|| place::session_rate(groups, relay));
    let config = match profile {
        "lan" => place::lan(rate),
        "wan" => SessionConfig::wan(rate),
        _ => {
            let message = format!("profile: `{profile}`: use lan or wan");
            return Err(PyValueError::new_err(message));
        }
    };
    Ok(SessionConfig {
        packet_bytes: PACKET_BYTES,
        ..config
    })
}

fn groups(range: &str, interface: Option<String>, hop_limit: u8) -> PyResult<Groups> {
    let parsed = |name: String| name.parse().unwrap_or_else(|never| match never {});
    Ok(Groups {
        range: parse("multicast", range)?,
        interface: interface.map(parsed),
        hop_limit,
    })
}

fn duration(name: &str, seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|error| PyValueError::new_err(format!("{name}: {error}")))
}

/// Where to serve the description, and the certificate for HTTPS.
struct Publication {
    address: Option<SocketAddr>,
    identity: Option<Identity>,
}

impl Publication {
    /// Serves a description, if there is an address for that.
    async fn serve(self, text: &str) -> PyResult<Option<Publisher>> {
        let Some(address) = self.address else {
            return Ok(None);
        };
        let descriptions = [(DESCRIPTION_PATH.to_owned(), text.to_owned())].into();
        let served = Publisher::serve(address, descriptions, self.identity).await;
        served.map(Some).map_err(|error| {
            let address = address.to_string();
            raise(&address, &format!("cannot publish on {address}: {error}"))
        })
    }
}

async fn start_sending(
    config: SendConfig,
    publication: Publication,
    duration: Option<Duration>,
    subject: String,
) -> PyResult<Sender> {
    let opened = Opened::open(config).await;
    let prepared = match opened {
        Ok(opened) => opened.prepare().await,
        Err(error) => Err(error),
    };
    let prepared = prepared.map_err(|error| raise(&subject, &error.to_string()))?;
    let text = prepared.text.clone();
    let publisher = publication.serve(&text).await?;
    let source = prepared.description.source;
    let url = publisher
        .as_ref()
        .map(|publisher| publisher.url(source, DESCRIPTION_PATH));
    let (files, bytes) = (prepared.files, prepared.bytes);
    let progress = prepared.progress();
    let role = Role::start(|stop| async move {
        let time = async {
            match duration {
                Some(duration) => tokio::time::sleep(duration).await,
                None => std::future::pending().await,
            }
        };
        let ends = async {
            tokio::select! { () = stop.wait() => {}, () = time => {} }
        };
        let sent = prepared.run(ends).await;
        drop(publisher);
        sent.map_err(|error| (error.name.clone(), error.to_string()))
    })?;
    Ok(Sender {
        role,
        progress,
        text,
        url,
        files,
        bytes,
    })
}

/// A session that is being sent.
#[pyclass(frozen, name = "FileSender", module = "manyflow._native")]
pub(crate) struct Sender {
    role: Role<SendProgress>,
    progress: watch::Receiver<SendProgress>,
    #[pyo3(get)]
    text: String,
    #[pyo3(get)]
    url: Option<String>,
    #[pyo3(get)]
    files: u64,
    #[pyo3(get)]
    bytes: u64,
}

fn sent(progress: &SendProgress) -> (u64, u64, usize, u32) {
    (
        progress.packets,
        progress.bytes,
        progress.relay.gateways,
        progress.receivers.done(),
    )
}

#[pymethods]
impl Sender {
    /// Returns packets, bytes, gateways and receivers that are done.
    fn progress(&self) -> (u64, u64, usize, u32) {
        sent(&self.progress.borrow())
    }

    /// Asks the role to stop.
    fn stop(&self) {
        self.role.stop();
    }

    /// Waits for the end of the session, and returns its last progress.
    fn wait<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let end = self.role.wait();
        future_into_py(py, async move { end.await.map(|progress| sent(&progress)) })
    }
}

/// Starts to receive a session.
#[pyfunction]
#[pyo3(signature = (session, text, into, overwrite, relay, interface, max_rate, patience_s, group_key, trust, ca, report))]
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
) -> PyResult<FileReceiver> {
    let wrong = |error: KeyError| transfer_error(py, &session, &in_python(&error.to_string()));
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
}

async fn run_receiver(wish: Wish, sinks: ProgressSinks, stop: Stop) -> Result<Received, String> {
    let text = tokio::select! {
        text = description_text(&wish) => text?,
        () = stop.clone().wait() => return Err("stopped before all files were complete".to_owned()),
    };
    let description = SessionDescription::parse(&text).map_err(|error| error.to_string())?;
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
        &self,
        description: &SessionDescription,
        sinks: &ProgressSinks,
    ) -> Option<Reporting> {
        let plan = ReportPlan::new(description, self.group.as_ref(), &self.session);
        let plan = plan.filter(|_| self.report)?;
        let identity = match &description.table_sha256 {
            Some(digest) => completion::Identity::of_folder(&self.into, digest),
            None => completion::Identity::named(ReceiverName::of_host()),
        };
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
