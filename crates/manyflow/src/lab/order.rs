//! Ordered groups at work: three daemons in this process, a member at each, and links that the page
//! cuts. They start when a page first asks for them, and listen on loopback only.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use manyflow_core::units::Rate;
use manyflow_messages::{
    Client, ClientOptions, DaemonConfig, DaemonHandle, LinkConfig, LinkSecurity, Member, start,
};
use manyflow_net::thin_link::{ThinLink, ThinLinkConfig};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::mpsc;

use super::log::Log;
use crate::messages::ordered;

const NAMES: [&str; 3] = ["north", "east", "south"];
/// The groups of each member.
const GROUPS: [&[&str]; 3] = [&["orders", "stock"], &["orders", "stock"], &["orders"]];
/// The ends of links. The second end opens the link.
const ENDS: [[usize; 2]; 3] = [[0, 1], [0, 2], [1, 2]];
/// The links, which are slow enough to see the order at work, and never full.
const WIRE: ThinLinkConfig = ThinLinkConfig {
    rate: Rate::from_bits_per_s(10_000_000),
    delay: Duration::from_millis(10),
    queue_packets: 100,
};
/// The number of events that a page gets when it opens.
const KEPT: usize = 500;
/// The maximum length of a message from the page in bytes.
const TEXT_BYTES_MAX: usize = 200;

/// Three daemons with members.
pub(super) struct OrderStage {
    log: Arc<Log>,
    clients: Vec<Client>,
    /// The links, in the order of [`ENDS`].
    wires: Vec<ThinLink>,
    /// Daemons run until these are dropped.
    _daemons: Vec<DaemonHandle>,
}

/// A daemon whose links the page cuts or heals.
#[derive(Deserialize)]
pub(super) struct Cut {
    daemon: usize,
    is_cut: bool,
}

/// A message that the page sends.
#[derive(Deserialize)]
pub(super) struct Message {
    member: usize,
    groups: Vec<String>,
    service: String,
    text: String,
}

impl OrderStage {
    /// Starts the daemons and their members.
    ///
    /// # Errors
    /// If a socket cannot be opened.
    pub(super) async fn start() -> Result<OrderStage> {
        let log = Arc::new(Log::keeping(KEPT));
        let mut daemons: Vec<DaemonHandle> = Vec::new();
        let mut wires = Vec::new();
        for (place, name) in NAMES.into_iter().enumerate() {
            let mut config = DaemonConfig::new(name, LinkSecurity::Insecure);
            config.listen = Some("127.0.0.1:0".to_owned());
            config.clients = Some("127.0.0.1:0".to_owned());
            for [to, _] in ENDS.into_iter().filter(|[_, from]| *from == place) {
                let address = daemons[to].addresses().daemons.context("no links")?;
                let wire = ThinLink::start(address, WIRE).await?;
                let link = LinkConfig::new(NAMES[to], &wire.address().to_string());
                config.links.push(link);
                wires.push(wire);
            }
            daemons.push(start(config).await?);
        }
        let mut clients = Vec::new();
        for (place, daemon) in daemons.iter().enumerate() {
            let address = daemon.addresses().clients.context("no clients")?;
            let options = ClientOptions::default();
            let client = Client::connect(&address.to_string(), &options).await?;
            let mut member = client.member()?;
            for group in GROUPS[place] {
                member.join(group).await?;
            }
            tokio::spawn(watch(place, member, Arc::clone(&log)));
            clients.push(client);
        }
        Ok(OrderStage {
            log,
            clients,
            wires,
            _daemons: daemons,
        })
    }

    /// Returns a channel that brings the latest events from this number on and all that follow.
    pub(super) fn follow(&self, first_event: usize) -> mpsc::Receiver<Bytes> {
        Arc::clone(&self.log).follow(first_event)
    }

    /// Cuts all links of a daemon, or heals them.
    ///
    /// # Errors
    /// If there is no such daemon.
    pub(super) fn cut(&self, wanted: &Cut) -> Result<()> {
        NAMES.get(wanted.daemon).context("no such daemon")?;
        for (wire, ends) in self.wires.iter().zip(ENDS) {
            if ends.contains(&wanted.daemon) {
                wire.set_up(!wanted.is_cut);
            }
        }
        let up: Vec<bool> = self.wires.iter().map(ThinLink::is_up).collect();
        self.log.push("links", &json!({ "ends": ENDS, "up": up }));
        Ok(())
    }

    /// Sends a message of a member.
    ///
    /// # Errors
    /// If there is no such member, service or group, or the text is too long.
    pub(super) async fn send(&self, wanted: &Message) -> Result<()> {
        let client = self.clients.get(wanted.member);
        let client = client.context("no such member")?;
        let service = wanted.service.parse()?;
        anyhow::ensure!(
            wanted.text.len() <= TEXT_BYTES_MAX,
            "a message of the page has at most {TEXT_BYTES_MAX} bytes"
        );
        let groups: Vec<&str> = wanted.groups.iter().map(String::as_str).collect();
        Ok(client
            .multicast(service, &groups, wanted.text.clone())
            .await?)
    }
}

/// Logs what a member gets, until its daemon ends.
async fn watch(place: usize, mut member: Member, log: Arc<Log>) {
    while let Some(event) = member.next().await {
        let mut object = match &event {
            Ok(event) => ordered::object(event),
            Err(error) => json!({ "event": "lost", "error": error.to_string() }),
        };
        object["at"] = place.into();
        object["daemon"] = NAMES[place].into();
        log.push("member", &object);
    }
}
