//! A session on its way to the network: [`Opened`], then [`Prepared`].

use std::net::IpAddr;

use anyhow::Result;
use manyflow_core::units::{Bytes, Rate};
use manyflow_files::sending::{self, Conflict, ReceiverMemory};
use manyflow_net::interfaces::own_addresses;
use manyflow_net::multicast::Choice;
use manyflow_net::publish::Publisher;
use manyflow_net::sap;
use serde_json::json;

use super::description;
use crate::cli::SendArgs;
use manyflow_terminal::display::{Display, count_files};
use manyflow_terminal::status;

/// Prints the URLs of a description, for receivers with this command.
pub(crate) fn announce_urls(command: &str, urls: &[String], display: &Display) -> Result<()> {
    let Some(first) = urls.first() else {
        return Ok(());
    };
    if urls.len() > 1 {
        display.print_line(
            "no default route shows which address of this machine receivers reach: take one that they do",
        )?;
    }
    for at in urls {
        display.print_line(&format!("receivers type: manyflow {command} {at}"))?;
        if at.contains('%') {
            display.print_line(
                "receivers write the name of their own interface after %, since the address is a link-local one",
            )?;
        }
    }
    Ok(display.print_json(&json!({"event": "published", "url": first}))?)
}

/// Prints on which interface multicast leaves, and how far: the interface is that of `source`.
pub(crate) fn announce_multicast(
    source: IpAddr,
    is_named: bool,
    ttl: u8,
    display: &Display,
) -> Result<()> {
    let own = own_addresses().unwrap_or_default();
    let interface = own.iter().find(|own| own.ip == source);
    let interface = interface.map_or("an unknown interface", |own| &own.interface);
    let others = match is_named {
        true => Vec::new(),
        false => Choice::towards(source).map_or(Vec::new(), |choice| choice.others),
    };
    let others = match others.is_empty() {
        true => String::new(),
        false => format!(" (--interface names another: {})", others.join(", ")),
    };
    let reach = match ttl {
        0 => "with TTL 0, so that it does not leave this machine".to_owned(),
        1 => "with TTL 1, which no router forwards: receivers behind routers need a higher --ttl"
            .to_owned(),
        ttl => format!(
            "with TTL {ttl}, for receivers behind at most {} routers",
            ttl - 1
        ),
    };
    Ok(display.print_line(&format!(
        "multicast leaves from {source} on {interface}{others}, {reach}"
    ))?)
}

/// The default of `recv --memory`.
const RECEIVER_MEMORY: u64 = 256 << 20;

/// A session whose sockets are open, and whose files are found.
pub(crate) struct Opened {
    args: SendArgs,
    session: sending::Opened,
}

impl Opened {
    /// Opens the sockets first, so that their errors show before the long encoding.
    pub(crate) async fn open(args: SendArgs, display: &Display) -> Result<Opened> {
        let config = args.config().await?;
        let opened = sending::Opened::open(config).await;
        let session = opened.map_err(|error| args.explain(error))?;
        if session.skipped() > 0 {
            let count = session.skipped();
            display.print_note(&format!(
                "{count} entries of folders are left out, as the log above says"
            ));
        }
        Ok(Opened { args, session })
    }

    /// Reads the files, and completes the description.
    pub(crate) async fn prepare(self, display: &Display) -> Result<Prepared> {
        let args = self.args;
        let spinner = display.spinner("reading files".to_owned());
        let prepared = self.session.prepare().await;
        spinner.finish_and_clear();
        let session = prepared.map_err(|error| args.explain(error))?;
        warn_of_memory(session.receiver_memory);
        Ok(Prepared { args, session })
    }

    /// Returns the reason why these sessions cannot be sent at the same time, if there is one.
    pub(crate) fn conflict(&self, other: &Opened) -> Option<String> {
        Some(match self.session.conflict(&other.session)? {
            Conflict::Tsi(tsi) => format!("have the same TSI {tsi}: give each its own --tsi"),
            Conflict::Group { group, source } => format!(
                "both send to the group {group} from {source}: choose another range for --multicast, or another --port"
            ),
        })
    }
}

/// Warns of a session that receivers refuse with their default memory, or receive slowly.
fn warn_of_memory(memory: ReceiverMemory) {
    let ReceiverMemory { table, symbols } = memory;
    if table > RECEIVER_MEMORY {
        let needed = Bytes(table);
        tracing::warn!("receivers refuse so many files, unless they have --memory {needed}");
    } else if symbols > RECEIVER_MEMORY {
        let needed = Bytes(symbols);
        tracing::warn!(
            "receivers need --memory {needed} to keep symbols of all files at once, and receive parts of them \
             again with less"
        );
    }
}

/// A session that can start.
pub(crate) struct Prepared {
    pub(super) args: SendArgs,
    pub(crate) session: sending::Prepared,
}

impl Prepared {
    /// Returns the text of the description.
    pub(crate) fn text(&self) -> &str {
        &self.session.text
    }

    /// Writes the description to the file of `--session`.
    pub(crate) fn write_description(&self) -> Result<()> {
        let Some(path) = &self.args.session else {
            return Ok(());
        };
        description::write(path, self.text())
    }

    /// Returns the URLs of the description that `publisher` serves at `path`. Their host is the
    /// session's source, which is an address of this machine, or each of its addresses.
    pub(crate) fn urls(&self, publisher: &Publisher, path: &str) -> Vec<String> {
        publisher.urls(self.session.description.source, path)
    }

    /// Returns the session as the status page shows it under `name`.
    pub(crate) fn on_page(&self, name: String, urls: &[String]) -> status::Session {
        let (progress, tally) = (self.session.progress(), self.session.tally());
        status::Session::sent(name, urls.first().cloned(), progress, tally)
    }

    /// Prints what is about to be sent, and the URLs of the description.
    pub(crate) fn announce(&self, urls: &[String], display: &Display) -> Result<()> {
        let (count, total) = (self.session.files, Bytes(self.session.bytes));
        let what = match self.session.description.table_key {
            None => format!("{}, {total}", count_files(count as usize)),
            Some(_) if total.0 == 0 => "standard input".to_owned(),
            Some(_) => format!("an image, {total}"),
        };
        display.print_line(&format!(
            "sending {what}, at up to {} on {} channels",
            Rate::from_bits_per_s(self.session.description.webrc.session_rate_bits_per_s),
            self.session.description.channels()
        ))?;
        if self.args.multicast.is_some() {
            let source = self.session.description.source;
            let is_named = self.args.interface.is_some();
            announce_multicast(source, is_named, self.args.ttl, display)?;
            if self.args.sign.is_some() {
                let group = sap::group_for(self.session.description.first_group);
                display.print_line(&format!(
                    "announced by SAP on {group}, for receivers with --follow sap"
                ))?;
            }
        }
        announce_urls("recv", urls, display)?;
        display.print_json(
            &json!({"event": "started", "session": self.text(), "files": count, "bytes": total.0}),
        )?;
        Ok(())
    }
}
