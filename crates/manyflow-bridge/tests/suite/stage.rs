//! Sites with a nats-server, a daemon and a bridge each.

use std::time::Duration;

use async_nats::jetstream;
use futures_util::StreamExt as _;
use manyflow_bridge::{BridgeConfig, BridgeHandle, BridgeState, StreamConfig, Way, start};
use manyflow_messages::{
    Client, ClientOptions, DaemonConfig, DaemonHandle, LinkConfig, LinkSecurity,
};
use manyflow_testing::LIMIT;
use manyflow_testing::nats::NatsServer;
use tokio::time::timeout;

/// A site without its bridge.
pub(crate) struct Site {
    pub(crate) name: String,
    pub(crate) server: NatsServer,
    pub(crate) nats: async_nats::Client,
    pub(crate) daemon: DaemonHandle,
}

/// Starts sites whose daemons are in a line; `None` without nats-server.
pub(crate) async fn sites(names: &[&str]) -> Option<Vec<Site>> {
    let mut sites: Vec<Site> = Vec::new();
    for name in names {
        let server = NatsServer::start()?;
        let daemon = daemon(name, "127.0.0.1:0", sites.last()).await;
        sites.push(Site {
            name: (*name).to_owned(),
            nats: async_nats::connect(server.address()).await.unwrap(),
            server,
            daemon,
        });
    }
    for site in &sites {
        let mut status = site.daemon.status();
        let is_whole = status.wait_for(|status| status.daemons.len() == names.len());
        within(is_whole).await.unwrap();
    }
    Some(sites)
}

/// Starts a daemon that serves clients at an address, with a link to that of another site.
pub(crate) async fn daemon(name: &str, clients: &str, neighbour: Option<&Site>) -> DaemonHandle {
    let mut config = DaemonConfig::new(name, LinkSecurity::Insecure);
    config.listen = Some("127.0.0.1:0".to_owned());
    config.clients = Some(clients.to_owned());
    if let Some(neighbour) = neighbour {
        let address = neighbour.daemon.addresses().daemons.unwrap().to_string();
        config.links = vec![LinkConfig::new(&neighbour.name, &address)];
    }
    manyflow_messages::start(config).await.unwrap()
}

impl Site {
    pub(crate) fn daemon_address(&self) -> String {
        self.daemon.addresses().clients.unwrap().to_string()
    }

    /// Returns a bridge that carries nothing yet.
    pub(crate) fn config(&self) -> BridgeConfig {
        BridgeConfig::new(&self.name, &self.server.address(), &self.daemon_address())
    }

    /// Connects a client of the overlay.
    pub(crate) async fn client(&self) -> Client {
        let options = ClientOptions {
            connect_timeout: LIMIT,
            request_timeout: LIMIT,
            ..ClientOptions::default()
        };
        Client::connect(&self.daemon_address(), &options)
            .await
            .unwrap()
    }

    pub(crate) async fn subscribe(&self, subject: &str) -> async_nats::Subscriber {
        let subscriber = self.nats.subscribe(subject.to_owned()).await.unwrap();
        self.nats.flush().await.unwrap();
        subscriber
    }

    /// Makes a stream that stores messages to these subjects.
    pub(crate) async fn make_stream(&self, name: &str, subject: &str) -> jetstream::stream::Stream {
        let config = jetstream::stream::Config {
            name: name.to_owned(),
            subjects: vec![subject.to_owned()],
            ..jetstream::stream::Config::default()
        };
        let stream = jetstream::new(self.nats.clone())
            .create_stream(config)
            .await;
        stream.unwrap()
    }
}

/// Starts a bridge, and waits until it carries messages.
pub(crate) async fn start_active(config: BridgeConfig) -> BridgeHandle {
    let bridge = start(config).unwrap();
    wait_for(&bridge, |state| *state == BridgeState::Active).await;
    bridge
}

/// Waits until a bridge has such a state.
pub(crate) async fn wait_for(bridge: &BridgeHandle, holds: impl Fn(&BridgeState) -> bool) {
    let mut status = bridge.status();
    within(status.wait_for(|status| holds(&status.state)))
        .await
        .unwrap();
}

/// Returns a stream that leaves for these sites.
pub(crate) fn to(name: &str, sites: &[&str]) -> StreamConfig {
    let sites = sites.iter().map(|site| (*site).to_owned()).collect();
    StreamConfig {
        name: name.to_owned(),
        way: Way::To(sites),
    }
}

/// Returns a stream that comes from a site, where it has the same name.
pub(crate) fn from(name: &str, site: &str) -> StreamConfig {
    StreamConfig {
        name: name.to_owned(),
        way: Way::From {
            site: site.to_owned(),
            stream: name.to_owned(),
        },
    }
}

pub(crate) async fn within<T>(done: impl Future<Output = T>) -> T {
    timeout(LIMIT, done).await.expect("it ends in time")
}

/// Returns the next message as text.
pub(crate) async fn next(subscriber: &mut async_nats::Subscriber) -> String {
    let message = within(subscriber.next()).await.unwrap();
    String::from_utf8(message.payload.to_vec()).unwrap()
}

/// Publishes probes to `probe` at a site until one arrives at each of the others, where nothing
/// else arrives meanwhile.
pub(crate) async fn wait_for_path(from: &Site, to: &mut async_nats::Subscriber, subject: &str) {
    let probe = async {
        loop {
            from.nats
                .publish(subject.to_owned(), "probe".into())
                .await
                .unwrap();
            if timeout(Duration::from_millis(50), to.next()).await.is_ok() {
                break;
            }
        }
    };
    within(probe).await;
    from.nats
        .publish(subject.to_owned(), "end".into())
        .await
        .unwrap();
    while next(to).await != "end" {}
}
