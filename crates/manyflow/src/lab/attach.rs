//! Watches live roles by the pages that they serve.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use manyflow_messages::{STATUS_PATH, StatusUrl, fetch_page};
use manyflow_net::metrics::METRICS_PATH;
use manyflow_terminal::openmetrics::{Family, parse};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval};

use super::log::Log;

/// The time between two looks at a role. Roles change their metrics twice a second.
const INTERVAL: Duration = Duration::from_secs(1);
/// The number of looks that a page gets when it opens: a quarter of an hour.
const KEPT: usize = 900;

/// The live roles that the lab watches, until it is dropped.
pub(super) struct Attached {
    urls: Vec<StatusUrl>,
    log: Arc<Log>,
    task: JoinHandle<()>,
}

/// A look at all roles.
#[derive(Serialize)]
struct Look {
    /// The time since the lab began.
    time_s: f64,
    roles: Vec<Role>,
}

/// A role, or the reason why it does not answer.
#[derive(Default, Serialize)]
struct Role {
    error: Option<String>,
    families: Vec<Family>,
    /// The status of a daemon.
    status: Option<Value>,
}

impl Attached {
    /// Starts to watch the roles at these addresses.
    pub(super) fn start(urls: Vec<StatusUrl>) -> Attached {
        let log = Arc::new(Log::keeping(KEPT));
        Attached {
            task: tokio::spawn(watch(urls.clone(), Arc::clone(&log))),
            urls,
            log,
        }
    }

    /// Returns the addresses of the roles, in the order of each look.
    pub(super) fn urls(&self) -> Vec<String> {
        self.urls.iter().map(ToString::to_string).collect()
    }

    /// Returns a channel that brings the latest looks and all that follow.
    pub(super) fn follow(&self) -> mpsc::Receiver<Bytes> {
        Arc::clone(&self.log).follow(0)
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn watch(urls: Vec<StatusUrl>, log: Arc<Log>) {
    let began = Instant::now();
    let mut tick = interval(INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let mut tasks = JoinSet::new();
        for (place, url) in urls.iter().cloned().enumerate() {
            tasks.spawn(async move { (place, look(&url).await) });
        }
        let mut roles = tasks.join_all().await;
        roles.sort_by_key(|(place, _)| *place);
        let look = Look {
            time_s: began.elapsed().as_secs_f64(),
            roles: roles.into_iter().map(|(_, role)| role).collect(),
        };
        log.push("look", &look);
    }
}

async fn look(url: &StatusUrl) -> Role {
    let (metrics, status) =
        tokio::join!(fetch_page(url, METRICS_PATH), fetch_page(url, STATUS_PATH));
    // Only daemons have a status.
    let status = status
        .ok()
        .and_then(|page| serde_json::from_slice(&page).ok());
    match metrics {
        Ok(page) => Role {
            error: None,
            families: parse(&String::from_utf8_lossy(&page)),
            status,
        },
        Err(error) => Role {
            error: Some(error.to_string()),
            status,
            ..Role::default()
        },
    }
}
