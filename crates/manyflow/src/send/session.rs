//! A session on its way to the network: [`Opened`], then [`Prepared`].

use anyhow::{Context, Result};
use manyflow_core::units::Bytes;
use manyflow_live::filecast::completion::{CompletionKey, CompletionServer};
use manyflow_live::filecast::files::Sources;
use manyflow_live::filecast::publish::Publisher;
use manyflow_live::filecast::sdp::SessionDescription;
use manyflow_live::filecast::session::{Outlets, Sealer, SessionSender, flows};
use manyflow_live::net::amt::RelayServer;
use manyflow_live::net::multicast::MulticastSender;
use manyflow_webrc::Session;
use rand::Rng as _;
use serde_json::json;

use super::{
    Keys, check_continues, check_outlets, describe_session, earlier_session, find_files,
    make_session, open_multicast, open_relay, open_reports, prepare,
};
use crate::cli::{SendArgs, threads};
use crate::display::{Display, count_files};
use crate::usage;

/// A session whose sockets are open, and whose files are found.
pub(crate) struct Opened {
    args: SendArgs,
    session: Session,
    /// The description of the session to continue.
    earlier: Option<SessionDescription>,
    keys: Keys,
    sources: Sources,
    multicast: Option<MulticastSender>,
    relay: Option<RelayServer>,
    reports: Option<CompletionServer>,
    description: SessionDescription,
}

impl Opened {
    /// Opens the sockets first, so that their errors show before the long encoding.
    pub(crate) async fn open(args: SendArgs, display: &Display) -> Result<Opened> {
        check_outlets(&args)?;
        let session = make_session(&args)?;
        let earlier = earlier_session(&args).await?;
        let tsi = match &earlier {
            Some(earlier) => earlier.tsi as u32,
            None => args.tsi.unwrap_or_else(|| rand::rng().next_u32()),
        };
        let keys = Keys::read(&args)?;
        let sources = find_files(&args, display)?;
        let interface = args.interface.as_deref();
        let multicast = open_multicast(args.multicast, args.port, interface, args.ttl)?;
        let mut description = describe_session(&args, &session, tsi, multicast.as_ref())?;
        description.protection = keys.sealer.as_ref().map(Sealer::protection);
        let relay = open_relay(&args, &mut description)?;
        let reports = open_reports(&args, &mut description).await?;
        Ok(Opened {
            args,
            session,
            earlier,
            keys,
            sources,
            multicast,
            relay,
            reports,
            description,
        })
    }

    /// Reads the files, and completes the description.
    pub(crate) async fn prepare(mut self, display: &Display) -> Result<Prepared> {
        let files = std::mem::take(&mut self.sources.files);
        let tsi = self.description.tsi as u32;
        let objects = prepare(&self.args, &self.session, tsi, files, display).await?;
        self.description.table_sha256 = Some(objects.table_sha256());
        if let Some(earlier) = &self.earlier {
            check_continues(earlier, &self.description)?;
        }
        let text = match &self.keys.signing {
            Some(key) => self.description.to_signed_sdp(key),
            None => self.description.to_sdp(),
        };
        let text = text.map_err(|error| usage(error.to_string()))?;
        let outlets = Outlets::new(&flows(&self.description), self.multicast, self.relay);
        let sender = SessionSender::new(self.session, objects, outlets)
            .with_threads(threads(self.args.threads))
            .with_sealer(self.keys.sealer)
            .with_receivers_done(self.reports.as_ref().map(CompletionServer::count));
        Ok(Prepared {
            completion_key: CompletionKey::new(&self.description, self.keys.group.as_ref()),
            reports: self.reports,
            args: self.args,
            sources: self.sources,
            description: self.description,
            text,
            sender,
        })
    }

    /// Returns the reason why these sessions cannot be sent at the same time, if there is one.
    pub(crate) fn conflict(&self, other: &Opened) -> Option<String> {
        let (one, two) = (&self.description, &other.description);
        // The TSI identifies a session among all of this host (RFC 5651 section 5.1).
        if one.tsi == two.tsi {
            let tsi = one.tsi;
            return Some(format!("have the same TSI {tsi}: give each its own --tsi"));
        }
        if self.multicast.is_none() || other.multicast.is_none() {
            return None;
        }
        let groups = flows(one);
        let group = flows(two).into_iter().find(|flow| groups.contains(flow))?;
        Some(format!(
            "both send to the group {} from {}: choose another range for --multicast, or another --port",
            group.group,
            group.source.ip()
        ))
    }
}

/// A session that can start.
pub(crate) struct Prepared {
    pub(super) args: SendArgs,
    /// The number and length of the files; the files are with the sender.
    sources: Sources,
    description: SessionDescription,
    /// The text of the description.
    pub(crate) text: String,
    pub(crate) sender: SessionSender,
    /// The server of receivers' reports, with the key that they need.
    pub(super) reports: Option<CompletionServer>,
    pub(super) completion_key: Option<CompletionKey>,
}

impl Prepared {
    /// Writes the description to the file of `--session`.
    pub(crate) fn write_description(&self) -> Result<()> {
        let Some(path) = &self.args.session else {
            return Ok(());
        };
        std::fs::write(path, &self.text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Returns the URL of the description that `publisher` serves at `path`. Its host is the
    /// session's source, which is an address of this machine.
    pub(crate) fn url(&self, publisher: &Publisher, path: &str) -> String {
        publisher.url(self.description.source, path)
    }

    /// Prints what is about to be sent, and the URL of the description.
    pub(crate) fn announce(&self, url: Option<String>, display: &Display) -> Result<()> {
        let (count, total) = (self.sources.count, Bytes(self.sources.bytes));
        display.print_line(&format!(
            "sending {}, {total}, at up to {} on {} channels",
            count_files(count as usize),
            self.args.rate,
            self.description.channels()
        ))?;
        if let Some(at) = url {
            display.print_line(&format!("receivers type: manyflow recv {at}"))?;
            display.print_json(&json!({"event": "published", "url": at}))?;
        }
        display.print_json(
            &json!({"event": "started", "session": self.text, "files": count, "bytes": total.0}),
        )?;
        Ok(())
    }
}
