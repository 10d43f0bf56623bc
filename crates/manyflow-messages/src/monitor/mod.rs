//! The pages of nats-server's monitoring, by which `nats-top` and Prometheus' NATS exporter watch a
//! daemon.
//!
//! | file | what it holds |
//! |---|---|
//! | `pages.rs` | the pages as JSON, with the keys of nats-server |
//! | `query.rs` | the queries of their URLs |
//! | `times.rs` | times and durations as Go writes them |
//! | `usage.rs` | the processor time of this process |
//!
//! `core/monitor.rs` fills the pages. A page has only values that a daemon has. The others are left
//! out, as nats-server leaves out those of functions that are not configured.

pub(crate) mod pages;
pub(crate) mod query;
pub(crate) mod times;
mod usage;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use manyflow_net::process::resident_bytes;
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};

use crate::config::DaemonConfig;
use crate::core::{DaemonCore, Phase};
use crate::nats::serve::Front;
use pages::{Health, Refused};
use query::{ConnzQuery, SubszQuery};
use usage::Usage;

/// The paths of the pages in their URLs.
pub const MONITOR_PATHS: [&str; 5] = ["/varz", "/connz", "/subsz", "/subscriptionsz", "/healthz"];

/// The number of requests that may wait for the daemon's thread.
const QUESTIONS_MAX: usize = 16;

/// The values of a daemon that do not change.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    /// A name that no other process has.
    pub(crate) server_id: String,
    pub(crate) connections_max: usize,
    /// The number of links in the daemon's file.
    pub(crate) links: usize,
}

impl Facts {
    pub(crate) fn of(config: &DaemonConfig, incarnation: u32) -> Facts {
        Facts {
            server_id: format!("{}-{incarnation:08x}", config.name),
            connections_max: config.connections_max,
            links: config.links.len(),
        }
    }
}

/// The parts of a daemon that its pages show.
pub(crate) struct Watched {
    pub(crate) core: Rc<RefCell<DaemonCore>>,
    /// Is there if the daemon serves clients.
    pub(crate) front: Option<Rc<Front>>,
    pub(crate) facts: Facts,
}

/// Reads a page on the daemon's thread.
pub(crate) type Question = Box<dyn FnOnce(&Watched) + Send>;

/// A page of the monitoring.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MonitorPage {
    /// The status of HTTP: 200; 400 for a query that cannot be answered, 404 for a path that does
    /// not exist, and 503 for a daemon that does not serve clients.
    pub status: u16,
    /// The page, or an object with the key `error`.
    pub json: String,
}

impl MonitorPage {
    fn of(status: u16, page: &impl Serialize) -> MonitorPage {
        let json = serde_json::to_string(page).expect("all keys are texts");
        MonitorPage { status, json }
    }

    fn refused(status: u16, error: &str) -> MonitorPage {
        MonitorPage::of(status, &Refused { error })
    }
}

/// The monitoring of a daemon. Each page has the state at its request.
#[derive(Clone, Debug)]
pub struct Monitor {
    questions: mpsc::Sender<Question>,
    usage: Arc<Mutex<Usage>>,
}

impl Monitor {
    /// Returns the monitoring of a daemon, and the end for [`answer_questions`].
    pub(crate) fn new() -> (Monitor, mpsc::Receiver<Question>) {
        let (questions, asked) = mpsc::channel(QUESTIONS_MAX);
        let monitor = Monitor {
            questions,
            usage: Arc::default(),
        };
        (monitor, asked)
    }

    /// Returns the page at one of [`MONITOR_PATHS`], for the query of a URL without its question
    /// mark. The parameters are those of nats-server; a parameter for something that a daemon does
    /// not have, such as `acc`, is refused with status 400.
    pub async fn page(&self, path: &str, query: &str) -> MonitorPage {
        let answer = match path {
            "/varz" => self.varz().await,
            "/connz" => match ConnzQuery::parse(query) {
                Ok(query) => self.ask(move |watched| watched.connz(&query)).await,
                Err(error) => return MonitorPage::refused(400, &error),
            },
            "/subsz" | "/subscriptionsz" => match SubszQuery::parse(query) {
                Ok(query) => self.ask(move |watched| watched.subsz(&query)).await,
                Err(error) => return MonitorPage::refused(400, &error),
            },
            "/healthz" => return self.health().await,
            _ => return MonitorPage::refused(404, "there is no such page"),
        };
        answer.unwrap_or_else(|| MonitorPage::refused(503, "the daemon has ended"))
    }

    /// Asks the daemon's thread for a page. `None` if the thread has ended.
    async fn ask<T: Serialize + Send + 'static>(
        &self,
        read: impl FnOnce(&Watched) -> T + Send + 'static,
    ) -> Option<MonitorPage> {
        let page = self.read(read).await?;
        Some(MonitorPage::of(200, &page))
    }

    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Watched) -> T + Send + 'static,
    ) -> Option<T> {
        let (sender, answer) = oneshot::channel();
        let question: Question = Box::new(move |watched| {
            // The asker may have gone.
            let _ = sender.send(read(watched));
        });
        self.questions.send(question).await.ok()?;
        answer.await.ok()
    }

    async fn varz(&self) -> Option<MonitorPage> {
        let mut varz = self.read(Watched::varz).await?;
        varz.mem = resident_bytes().unwrap_or_default();
        varz.cpu = self
            .usage
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .percent();
        Some(MonitorPage::of(200, &varz))
    }

    async fn health(&self) -> MonitorPage {
        let serves = |watched: &Watched| watched.core.borrow().phase() == Phase::Serves;
        match self.read(serves).await {
            Some(true) => MonitorPage::of(200, &Health::ok()),
            _ => MonitorPage::of(503, &Health::unavailable(503, "the daemon stops")),
        }
    }
}

/// Answers questions until nobody can ask.
pub(crate) async fn answer_questions(watched: Watched, mut asked: mpsc::Receiver<Question>) {
    while let Some(question) = asked.recv().await {
        question(&watched);
    }
}
