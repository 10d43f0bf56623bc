//! Many receivers without measurements.

use std::net::SocketAddr;
use std::time::Duration;

use manyflow_net::inlet::Route;
use manyflow_streams::{StreamDescription, StreamReceiveConfig, StreamReceiveProgress, receive};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// The time for which a receiver waits for a stream that is silent.
const PATIENCE: Duration = Duration::from_secs(3_600);

/// Returns the parameters of a receiver of a stage.
pub(super) fn receive_config(
    description: &StreamDescription,
    relays: Vec<String>,
) -> StreamReceiveConfig {
    StreamReceiveConfig {
        patience: PATIENCE,
        ..StreamReceiveConfig::new(description.clone(), Route::Relays(relays))
    }
}

/// Receivers whose units are dropped. They end when the crowd is dropped.
#[derive(Debug, Default)]
pub struct Crowd(Vec<JoinHandle<()>>);

impl Crowd {
    /// Adds a receiver that connects to `relay`.
    pub fn add(&mut self, description: &StreamDescription, relay: SocketAddr) {
        let config = receive_config(description, vec![relay.to_string()]);
        let (units, mut received) = mpsc::channel(16);
        let (watched, _) = watch::channel(StreamReceiveProgress::default());
        let receiving = async move {
            let never = std::future::pending::<()>();
            let dropping = async { while received.recv().await.is_some() {} };
            let (ended, ()) = tokio::join!(receive(config, units, watched, never), dropping);
            if let Err(error) = ended {
                tracing::warn!("a receiver has ended: {error}");
            }
        };
        self.0.push(tokio::spawn(receiving));
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}
