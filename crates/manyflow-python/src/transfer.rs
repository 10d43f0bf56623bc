//! Sending files, and the roles that send and receive. `manyflow.live` wraps [`Sender`].
//!
//! Roles run as tasks of tokio's runtime, so a cancelled awaitable stops only the wait. The
//! Python side then calls `stop`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use manyflow_files::completion::{Audience, Expected, Receiver, Tally, UntilDone, read_expected};
use manyflow_files::files::{Selection, SourceOptions};
use manyflow_files::sending::{Opened, RelayAddress, SendConfig, place};
use manyflow_files::session::SendProgress;
use manyflow_net::group_key::GroupKey;
use manyflow_net::keys::SigningKey;
use manyflow_net::multicast::Groups;
use manyflow_net::publish::{DESCRIPTION_PATH, Publisher};
use manyflow_net::tls::Identity;
use manyflow_webrc::SessionConfig;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tokio::sync::watch;

use crate::errors::{in_python, transfer_error};
use crate::runtime::{future_into_py, runtime};

/// The packet length in bytes.
const PACKET_BYTES: u32 = 1400;

/// The end of a role: its result, or a problem with the file or address that it concerns.
type End<T> = Option<Result<T, (String, String)>>;

pub(crate) fn parse<T: std::str::FromStr<Err: std::fmt::Display>>(
    name: &str,
    text: &str,
) -> PyResult<T> {
    text.parse()
        .map_err(|error| PyValueError::new_err(format!("{name}: `{text}`: {error}")))
}

fn raise(subject: &str, problem: &str) -> PyErr {
    Python::attach(|py| transfer_error(py, subject, &in_python(problem)))
}

/// A role that runs as a task.
pub(crate) struct Role<T> {
    end: watch::Receiver<End<T>>,
    /// The role stops when this is dropped.
    stop: std::sync::Mutex<Option<watch::Sender<()>>>,
}

impl<T: Clone + Send + Sync + 'static> Role<T> {
    /// Starts a role, which gets a future that is ready when the role has to stop.
    ///
    /// # Errors
    /// Returns the error of [`runtime`].
    pub(crate) fn start<F>(run: impl FnOnce(Stop) -> F) -> PyResult<Role<T>>
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

    pub(crate) fn stop(&self) {
        if let Ok(mut stop) = self.stop.lock() {
            stop.take();
        }
    }

    /// Waits for the end of the role.
    pub(crate) fn wait(&self) -> impl Future<Output = PyResult<T>> + Send + use<T> {
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
pub(crate) struct Stop(watch::Receiver<()>);

impl Stop {
    /// Waits until the role has to stop. No value is ever sent, so this waits for the closed
    /// channel.
    pub(crate) async fn wait(mut self) {
        while self.0.changed().await.is_ok() {}
    }
}

/// Opens a session and starts to send it.
#[pyfunction]
#[pyo3(signature = (paths, listen, multicast, interface, hop_limit, port, publish, tls, rate, profile, until_done, expect, reports, duration_s, include, exclude, archive, group_key, encrypt, sign))]
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
    until_done: Option<String>,
    expect: Option<PathBuf>,
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
    let listed = expect.as_deref().map(read_expected).transpose();
    let listed = listed.map_err(|error| wrong(format!("expect: {error}")))?;
    let audience = audience(listed, until_done)?;
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
        reports: audience.map(|audience| (reports, audience)),
        signing: signing.map_err(|error| wrong(error.to_string()))?,
        group: group.map(|key| (key, encrypt)),
        ..defaults
    };
    let publication = Publication::new(publish, tls, &subject)?;
    let duration = duration_s
        .map(|seconds| duration("duration_s", seconds))
        .transpose()?;
    future_into_py(py, async move {
        start_sending(config, publication, duration, subject).await
    })
}

/// Returns the receivers whose reports are taken.
fn audience(
    listed: Option<Vec<Expected>>,
    until_done: Option<String>,
) -> PyResult<Option<Audience>> {
    let until_done = until_done.map(|text| parse("until_done", &text));
    let until_done: Option<UntilDone> = until_done.transpose()?;
    let audience = Audience::new(listed, until_done);
    audience.map_err(|error| PyValueError::new_err(in_python(&error.to_string())))
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

pub(crate) fn duration(name: &str, seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|error| PyValueError::new_err(format!("{name}: {error}")))
}

/// Where to serve the description, and the certificate for HTTPS.
struct Publication {
    address: Option<SocketAddr>,
    identity: Option<Identity>,
}

impl Publication {
    /// Reads the certificate and its key from the files of `tls`. `subject` is that of errors.
    fn new(
        address: Option<String>,
        tls: Option<(PathBuf, PathBuf)>,
        subject: &str,
    ) -> PyResult<Publication> {
        let identity = tls.map(|(certificates, key)| Identity::read(&certificates, &key));
        let identity = identity.transpose();
        Ok(Publication {
            address: address.map(|text| parse("publish", &text)).transpose()?,
            identity: identity.map_err(|error| raise(subject, &error.to_string()))?,
        })
    }

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
    let (progress, tally) = (prepared.progress(), prepared.tally());
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
        tally,
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
    /// The receivers, if they report.
    tally: Option<watch::Receiver<Tally>>,
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

    /// Returns the receivers, those expected first: the name, whether it is expected, the name of
    /// its state, and the bytes that it has and needs.
    fn receivers(&self) -> Vec<(String, bool, &'static str, u64, u64)> {
        let Some(tally) = &self.tally else {
            return Vec::new();
        };
        let tally = tally.borrow();
        let rows = tally.table().receivers().iter();
        let row = |receiver: &Receiver| {
            let (name, state) = (receiver.name.to_string(), receiver.state.name());
            let transfer = &receiver.transfer;
            (
                name,
                receiver.is_expected,
                state,
                transfer.bytes,
                transfer.total_bytes,
            )
        };
        rows.map(row).collect()
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
