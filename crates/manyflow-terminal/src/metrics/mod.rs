//! The pages that roles serve: metrics in OpenMetrics text, for Prometheus and programs like it,
//! and a status as JSON.
//!
//! [`Reported`] is implemented for the state that the metrics of a role show. `progress.rs` has the
//! roles whose state is the progress of sessions; `daemon.rs`, `switch.rs` and `http.rs` have those
//! after which they are named. Roles whose state is private implement it themselves.

mod daemon;
mod http;
mod progress;
mod switch;

pub(crate) use daemon::daemon_counts;
pub use daemon::daemon_pages;
pub(crate) use switch::switch_counts;
pub use switch::switch_pages;

use std::fmt;
use std::net::SocketAddr;

use anyhow::Result;
use manyflow_messages::STATUS_PATH;
use manyflow_net::metrics::{METRICS_PATH, METRICS_TYPE, MetricsServer, Page};
use manyflow_net::process::resident_bytes;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use serde::Serialize;
use serde_json::json;
use tokio::sync::watch;

use crate::Display;
use crate::address::cannot_listen;
use crate::status::{self, Described, Sampling, Sessions};

/// The media type of JSON.
pub const JSON: &str = "application/json";

/// The pages of a role.
pub struct Pages {
    metrics: Registry,
    /// The pages beside that of the metrics.
    pages: Vec<Page>,
    /// Keeps the history that the status page draws; not started before the pages are served.
    sampling: Option<Sampling>,
}

impl Pages {
    /// Returns the page of a role's metrics, for which `read` is asked at each request.
    pub fn new<P: Reported>(read: impl Fn() -> P + Send + Sync + 'static) -> Pages {
        Pages::of_changing(move || vec![(None, read())])
    }

    /// Returns the page of the metrics of `sessions`. Samples of a session with a name have it as
    /// the label `session`.
    pub fn of<P: Reported>(sessions: Vec<(Option<String>, watch::Receiver<P>)>) -> Pages {
        Pages::of_changing(move || {
            let sessions = sessions.iter();
            let sessions = sessions.map(|(name, state)| (name.clone(), state.borrow().clone()));
            sessions.collect()
        })
    }

    /// Returns the page of the metrics of sessions that come and go, as [`Pages::of`] does: those
    /// that `read` returns.
    pub fn of_changing<P: Reported>(
        read: impl Fn() -> Vec<(Option<String>, P)> + Send + Sync + 'static,
    ) -> Pages {
        let mut metrics = Registry::default();
        metrics.register_collector(Box::new(Process));
        let none = Pages {
            metrics,
            pages: Vec::new(),
            sampling: None,
        };
        none.register(read)
    }

    /// Adds the metrics of a second role of this process.
    pub fn with_metrics<P: Reported>(self, read: impl Fn() -> P + Send + Sync + 'static) -> Pages {
        self.register(move || vec![(None, read())])
    }

    fn register<P: Reported>(
        mut self,
        read: impl Fn() -> Vec<(Option<String>, P)> + Send + Sync + 'static,
    ) -> Pages {
        self.metrics
            .sub_registry_with_prefix(P::PREFIX)
            .register_collector(Box::new(Read(read)));
        self
    }

    /// Adds a page with the latest status as JSON.
    pub fn with_status<S: Serialize + Clone + Send + Sync + 'static>(
        self,
        path: &'static str,
        status: watch::Receiver<S>,
    ) -> Pages {
        self.with(Page::new(path, JSON, move || {
            let status = status.borrow().clone();
            serde_json::to_string(&status).expect("all keys are texts")
        }))
    }

    /// Adds the status page, at `/`, of `role`, a command. `read` is asked at each request, and for
    /// the history that the page draws.
    pub fn with_page<D: Described>(
        mut self,
        role: &'static str,
        read: impl Fn() -> D + Send + Sync + 'static,
    ) -> Pages {
        let (pages, sampling) = status::pages(role, read);
        self.pages.extend(pages);
        self.sampling = Some(sampling);
        self
    }

    /// Adds the status page of the latest state.
    pub fn with_page_of<D: Described + Clone + Send + Sync + 'static>(
        self,
        role: &'static str,
        state: watch::Receiver<D>,
    ) -> Pages {
        self.with_page(role, move || state.borrow().clone())
    }

    /// Adds the status page of commands that send or receive files, and the same for programs at
    /// `/status.json`. `read` is asked as for [`Pages::with_page`].
    pub fn with_sessions(
        self,
        role: &'static str,
        read: impl Fn() -> Sessions + Clone + Send + Sync + 'static,
    ) -> Pages {
        let sessions = read.clone();
        let status = move || sessions().status(role).to_string();
        self.with(Page::new(STATUS_PATH, JSON, status))
            .with_page(role, read)
    }

    /// Adds a page.
    pub fn with(mut self, page: Page) -> Pages {
        self.pages.push(page);
        self
    }

    /// Serves the pages on `address`, if there is one, until the returned value is dropped, and
    /// prints where they are.
    pub async fn serve(
        mut self,
        address: Option<SocketAddr>,
        display: &Display,
    ) -> Result<Option<MetricsServer>> {
        let Some(address) = address else {
            return Ok(None);
        };
        let metrics = self.metrics;
        let page = Page::new(METRICS_PATH, METRICS_TYPE, move || render(&metrics));
        self.pages.insert(0, page);
        let server = MetricsServer::serve_pages(address, self.pages).await;
        let server = server.map_err(|cause| cannot_listen("--metrics", address, cause))?;
        let at = server.local_address();
        if let Some(sampling) = self.sampling {
            tokio::spawn(sampling);
            display.print_line(&format!("status is at http://{at}/"))?;
        }
        let url = format!("http://{at}{METRICS_PATH}");
        display.print_line(&format!("metrics are at {url}"))?;
        display.print_json(&json!({"event": "metrics", "url": url}))?;
        Ok(Some(server))
    }
}

fn render(registry: &Registry) -> String {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry)
        .expect("a String takes all text");
    text
}

/// The state of a session or a role, which has metrics.
pub trait Reported: Clone + Send + Sync + 'static {
    /// The beginning of the metrics' names.
    const PREFIX: &str;

    /// Writes the metrics of all sessions.
    fn report(out: &mut Metrics<'_, Self>) -> fmt::Result;
}

/// Returns the present state of each session, by its name.
struct Read<F>(F);

impl<F> fmt::Debug for Read<F> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Read")
    }
}

impl<P, F> Collector for Read<F>
where
    P: Reported,
    F: Fn() -> Vec<(Option<String>, P)> + Send + Sync + 'static,
{
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let sessions = (self.0)();
        P::report(&mut Metrics { encoder, sessions })
    }
}

/// This process, with the name that Prometheus's libraries use.
#[derive(Debug)]
struct Process;

impl Collector for Process {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let sessions = vec![(None, resident_bytes())];
        Metrics { encoder, sessions }.gauge(
            "process_resident_memory_bytes",
            "Resident memory.",
            |bytes| *bytes,
        )
    }
}

/// Writes metrics, each with its help and with samples of all sessions: OpenMetrics wants them
/// together.
#[derive(Debug)]
pub struct Metrics<'a, P> {
    encoder: DescriptorEncoder<'a>,
    /// The progress of each session, with the session's name if it has one.
    sessions: Vec<(Option<String>, P)>,
}

impl<P> Metrics<'_, P> {
    /// Writes a counter.
    pub fn counter(&mut self, name: &str, help: &str, value: impl Fn(&P) -> u64) -> fmt::Result {
        self.family(name, help, MetricType::Counter, |progress, write| {
            write(None, &|sample| encode_counter(sample, value(progress)))
        })
    }

    /// Writes a counter for each value of the label `label`.
    pub fn counters<L: AsRef<str>, I: IntoIterator<Item = (L, u64)>>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: impl Fn(&P) -> I,
    ) -> fmt::Result {
        self.family(name, help, MetricType::Counter, |progress, write| {
            values(progress).into_iter().try_for_each(|(of, value)| {
                let label = Some((label, of.as_ref()));
                write(label, &|sample| encode_counter(sample, value))
            })
        })
    }

    /// Writes a gauge for each value of the label `label`.
    pub fn gauges<L: AsRef<str>, I: IntoIterator<Item = (L, f64)>>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: impl Fn(&P) -> I,
    ) -> fmt::Result {
        self.family(name, help, MetricType::Gauge, |progress, write| {
            values(progress).into_iter().try_for_each(|(of, value)| {
                let label = Some((label, of.as_ref()));
                write(label, &|sample| sample.encode_gauge(&value))
            })
        })
    }

    /// Writes a metric. `report` passes the samples of a session to its second argument, each with
    /// the label that tells it from the session's others.
    fn family(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        report: impl Fn(&P, &mut WriteSample<'_>) -> fmt::Result,
    ) -> fmt::Result {
        let mut family = self.encoder.encode_descriptor(name, help, None, kind)?;
        self.sessions.iter().try_for_each(|(session, progress)| {
            report(progress, &mut |label, encode| {
                encode_sample(&mut family, session.as_deref(), label, encode)
            })
        })
    }

    /// Writes a gauge; without a value, nothing.
    pub fn gauge<V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        value: impl Fn(&P) -> Option<V>,
    ) -> fmt::Result {
        let mut sessions = self.sessions.iter();
        if !sessions.any(|(_, progress)| value(progress).is_some()) {
            return Ok(());
        }
        self.family(
            name,
            help,
            MetricType::Gauge,
            |progress, write| match value(progress) {
                Some(value) => write(None, &|sample| sample.encode_gauge(&value)),
                None => Ok(()),
            },
        )
    }
}

/// Writes one sample with a label.
type WriteSample<'a> = dyn FnMut(Option<(&str, &str)>, &Encode<'_>) -> fmt::Result + 'a;

type Encode<'a> = dyn Fn(&mut MetricEncoder<'_>) -> fmt::Result + 'a;

fn encode_counter(sample: &mut MetricEncoder<'_>, value: u64) -> fmt::Result {
    sample.encode_counter::<NoLabelSet, _, u64>(&value, None)
}

/// Encodes one sample with the labels that have a value. An empty set of labels would be written as
/// an empty pair of braces.
fn encode_sample(
    family: &mut MetricEncoder<'_>,
    session: Option<&str>,
    label: Option<(&str, &str)>,
    encode: &Encode<'_>,
) -> fmt::Result {
    let session = session.map(|session| ("session", session));
    let labels: Vec<_> = session.into_iter().chain(label).collect();
    match labels.is_empty() {
        true => encode(family),
        false => encode(&mut family.encode_family(&labels)?),
    }
}
