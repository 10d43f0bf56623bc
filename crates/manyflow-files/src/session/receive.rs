//! The receiving driver: joins and leaves the channels that WEBRC names, and passes datagrams to
//! the decoder.

use std::mem::{Discriminant, discriminant};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use manyflow_core::{Action, Channel, Destination, Ecn, Endpoint, Packet, Time};
use manyflow_net::clock::Clock;
use manyflow_net::inlet::{Route, TransportError};
use manyflow_net::multicast;
use manyflow_object::alc;
use manyflow_object::error::PacketError;
use manyflow_webrc::{
    self as webrc, Cci, ConfigError, EndReason, Event, Receiver, Session, SessionError,
};

use super::config::ReceiveConfig;
use super::decoder::{Decoder, DecoderError, DecoderEvent, FileDone};
use super::group::GroupOpener;
use super::limits::{limits, opener};
use super::patience::Patience;
use super::progress::{PacketCounts, Progress, ProgressSinks, Received};
use super::queue::Batch;
use super::session_of;
use super::transport::SessionInlet;
use crate::image::{ImageOutput, Pace};

/// Time between two reports of progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// Time after which a decoder that is behind may have room again.
const DECODER_PAUSE: Duration = Duration::from_millis(1);
/// Silence after the sender's announcement that ends the session: longer than two packets of a base
/// channel of 1 packet/s. Without it, anyone could end the session with one forged packet.
const CLOSE_GRACE: Duration = Duration::from_secs(3);

/// The reason why a session was not received.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// The description's parameters contradict each other.
    #[error("the session description is not that of a valid session: {0}")]
    Session(#[from] SessionError),
    /// The description does not give the digest of the table of files.
    #[error(
        "the session description does not give the digest of the table of files (a=fdt-digest), so anyone who can send packets could choose names and contents of files: get the description that `manyflow send` writes, or accept this with --allow-unverified"
    )]
    Unverified,
    /// The session has files, and its output is one for an image.
    #[error(
        "the session has files, not an image, so it cannot go to a command or device: send it with `manyflow send - < FILE`, or receive it into a folder"
    )]
    NoImage,
    /// There is a group key, but the sender does not use one.
    #[error(
        "the session's packets have no MAC (a=ext-auth), so none would be accepted: receive it without --group-key, or send it with one"
    )]
    NoMac,
    /// The session is encrypted, and there is no group key.
    #[error(
        "the session's packets are encrypted (a=ext-auth): get the group's key from its sender, and give it with --group-key"
    )]
    NoGroupKey,
    /// A parameter of the rate control is out of range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The way to the sender does not work.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// Files cannot be decoded or stored.
    #[error(transparent)]
    Decoder(#[from] DecoderError),
    /// No packet of the session arrived.
    #[error("nothing was heard of the session for {} s: is the sender running, and does {via} lead to it?{hint}", .after.as_secs())]
    Silent {
        /// Duration of the silence.
        after: Duration,
        /// The way that packets should take.
        via: String,
        /// A reason that the description shows, to be appended; often empty.
        hint: String,
    },
    /// The sender sends another table of files than the description's.
    #[error(
        "the sender's table of files is not the one that the session description describes: it was probably started again with other files, so get its new description"
    )]
    OtherTable,
    /// Packets of the session arrive, but none can be used.
    #[error(
        "packets of the session arrive, but none was of use for {} s: {reason}", .after.as_secs()
    )]
    Useless {
        /// Time since the last useful packet.
        after: Duration,
        /// The most frequent reason for which packets were not used, and what to do.
        reason: &'static str,
    },
    /// The sender has withdrawn all files that are missing.
    #[error(
        "the sender sends no more of {0} incomplete files, which have probably changed there: get the session that is sent next"
    )]
    Withdrawn(usize),
    /// Packets arrive, but the session cannot go on.
    #[error("the session cannot go on: {0}")]
    Ended(&'static str),
    /// The caller stopped the receiver.
    #[error("stopped before all files were complete; run the same command again to continue")]
    Stopped,
    /// The caller stopped the receiver of an image that a command reads.
    #[error(
        "stopped before the command of --pipe had the whole image, and it cannot continue in the middle: run the same command again to begin again"
    )]
    PipeStopped,
}

/// Receives a session until all its files are on disk, and reports progress to `sinks`.
///
/// # Errors
/// See [`ReceiveError`]. Complete files are kept.
pub async fn receive(
    config: ReceiveConfig,
    sinks: ProgressSinks,
    stop: impl Future<Output = ()>,
) -> Result<Received, ReceiveError> {
    tokio::pin!(stop);
    let is_pipe = matches!(config.image, ImageOutput::Pipe(_));
    let mut driver = Driver::start(config, sinks, stop.as_mut()).await?;
    let result = driver.run(stop).await;
    let received = driver.leave().await;
    match result {
        Err(ReceiveError::Stopped) if is_pipe => Err(ReceiveError::PipeStopped),
        result => result.map(|()| received),
    }
}

/// Starts the decoder of a session whose table of files or of sections has this digest.
fn start_decoder(
    config: &mut ReceiveConfig,
    content_id: Option<[u8; 32]>,
) -> Result<Decoder, ReceiveError> {
    let image = std::mem::take(&mut config.image);
    let is_image = config.description.table_key.is_some();
    if !is_image && !matches!(image, ImageOutput::Folder) {
        return Err(ReceiveError::NoImage);
    }
    // A command that was stopped cannot continue in the middle of an image.
    let resumed_id = content_id.filter(|_| !matches!(image, ImageOutput::Pipe(_)));
    Ok(Decoder::start(
        limits(config),
        config.output.clone(),
        resumed_id,
        config.existing,
        image,
        config.threads,
    )?)
}

struct Driver {
    config: ReceiveConfig,
    session: Arc<Session>,
    webrc: Arc<webrc::ReceiverConfig>,
    clock: Clock,
    now: Time,
    endpoint: Receiver,
    inlet: SessionInlet,
    /// Memory for a datagram that is opened.
    datagram: Vec<u8>,
    decoder: Decoder,
    files: Vec<FileDone>,
    progress: Progress,
    /// Counts of the earlier joins of the session.
    before: PacketCounts,
    sinks: ProgressSinks,
    next_report: Time,
    last_packet: Time,
    patience: Patience,
    pace: Pace,
    /// Whether all symbols are there, and files are only being stored.
    has_enough: bool,
    /// Whether the decoder was once so far behind that datagrams waited.
    was_behind: bool,
    /// Time of the sender's announcement that the session ends; `None` if the sender went on.
    closed_at: Option<Time>,
    /// Datagrams that did not reach the rate control.
    malformed_packets: u64,
    /// The kinds of malformed packets that were already logged.
    malformed: Vec<Discriminant<PacketError>>,
    opener: Option<GroupOpener>,
}

impl Driver {
    async fn start(
        mut config: ReceiveConfig,
        sinks: ProgressSinks,
        stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<Driver, ReceiveError> {
        let content_id = config.description.content_id();
        if content_id.is_none() && !config.allow_unverified {
            return Err(ReceiveError::Unverified);
        }
        let opener = opener(&config)?;
        let session = Arc::new(session_of(&config.description.webrc)?);
        let mut webrc = config.webrc.clone();
        webrc
            .epoch
            .get_or_insert(Duration::from_secs_f64(config.description.webrc.epoch_s));
        if let Route::Multicast(_) = config.route {
            webrc.join_delay = multicast::join_delay();
        }
        let webrc = Arc::new(webrc);
        let endpoint = Receiver::new(Arc::clone(&session), Arc::clone(&webrc), 0, Time::ZERO)?;
        let decoder = start_decoder(&mut config, content_id)?;
        let pace = Pace::new(webrc.maximum_rate);
        let opening = SessionInlet::open(&config.description, &config.route, config.patience);
        let opened = tokio::select! {
            opened = opening => opened.map_err(ReceiveError::from),
            () = stop => Err(ReceiveError::Stopped),
        };
        let inlet = match opened {
            Ok(inlet) => inlet,
            Err(error) => {
                // The decoder's thread holds the lock of the spool, which the next receiver takes.
                decoder.stop().await;
                return Err(error);
            }
        };
        let patience = Patience::new(config.patience);
        Ok(Driver {
            config,
            session,
            webrc,
            clock: Clock::start(),
            now: Time::ZERO,
            endpoint,
            inlet,
            datagram: Vec::new(),
            decoder,
            files: Vec::new(),
            progress: Progress::default(),
            before: PacketCounts::default(),
            sinks,
            next_report: Time::ZERO,
            last_packet: Time::ZERO,
            patience,
            pace,
            has_enough: false,
            was_behind: false,
            closed_at: None,
            malformed_packets: 0,
            malformed: Vec::new(),
            opener,
        })
    }

    async fn run(
        &mut self,
        mut stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<(), ReceiveError> {
        loop {
            self.now = self.clock.now().max(self.now);
            if self
                .endpoint
                .poll_timeout()
                .is_some_and(|due| due <= self.now)
            {
                self.endpoint.handle_timeout(self.now);
            }
            self.drain_endpoint()?;
            self.report_if_due();
            if !self.has_enough && self.closed_at.is_none() {
                self.patience.check(self.now)?;
            }
            // A decoder or disk that does not keep up makes datagrams wait in the kernel, and then
            // get lost there, so that rate control sees it as any other narrow place of the path.
            let is_behind = !self.decoder.flush();
            if is_behind {
                self.note_behind();
            }
            let due = self.wait_until()?;
            let retry = is_behind.then(|| self.now + DECODER_PAUSE);
            let due = due.into_iter().chain(retry).min();
            tokio::select! {
                biased;
                () = &mut stop => return Err(ReceiveError::Stopped),
                event = self.decoder.events.recv() => match event {
                    Some(DecoderEvent::Done(file)) => {
                        // The listener may no longer exist.
                        let _ = self.sinks.files.send(file.clone());
                        self.files.push(file);
                    }
                    Some(DecoderEvent::Needs(needs)) => {
                        self.sinks.needs.send_replace(needs);
                    }
                    Some(DecoderEvent::Enough) => self.leave_channels()?,
                    Some(DecoderEvent::More) => {
                        self.last_packet = self.now;
                        self.join_again(Duration::ZERO)?;
                    }
                    Some(DecoderEvent::End(end)) => {
                        self.report();
                        return Ok(end?);
                    }
                    None => return Err(ReceiveError::Ended("the decoder failed; this is a bug of manyflow")),
                },
                waited = self.inlet.wait(), if !is_behind => {
                    waited?;
                    self.take_datagrams();
                }
                () = self.clock.sleep_until(due) => {}
            }
        }
    }

    fn note_behind(&mut self) {
        if !self.was_behind {
            self.was_behind = true;
            tracing::warn!(
                "this machine decodes or stores files more slowly than packets arrive, so the receiver slows down \
                 (logged once)"
            );
        }
        // The silence is this receiver's.
        self.last_packet = self.now;
    }

    /// Returns when to act next if no packet arrives. Ends a session that has been silent for too
    /// long.
    fn wait_until(&mut self) -> Result<Option<Time>, ReceiveError> {
        let endpoint = self.endpoint.poll_timeout();
        if self.has_enough {
            return Ok(None);
        }
        let over = match self.closed_at {
            Some(at) => at + CLOSE_GRACE,
            None => self.last_packet + self.config.patience,
        };
        if self.now < over {
            return Ok(endpoint.into_iter().chain([over]).min());
        }
        if self.closed_at.is_none() && self.progress.objects.refused.table > 0 {
            return Err(ReceiveError::OtherTable);
        }
        if self.closed_at.is_none() {
            return Err(ReceiveError::Silent {
                after: self.now - self.last_packet,
                via: self.inlet.to_string(),
                hint: self.silence_hint(),
            });
        }
        // The decoder's last event says whether all files were complete.
        self.decoder.finish();
        Ok(endpoint)
    }

    /// Leaves all channels: no more packets are needed.
    fn leave_channels(&mut self) -> Result<(), ReceiveError> {
        self.report();
        self.has_enough = true;
        self.endpoint.leave();
        self.drain_endpoint()
    }

    /// Handles the datagrams that were received together. Each is copied once, behind those that
    /// wait for the decoder, and removed from there if it is not used.
    fn take_datagrams(&mut self) {
        let mut batch = std::mem::take(self.decoder.batch());
        while let Some(delivery) = self.inlet.next_delivery() {
            let times = (delivery.received_at, delivery.arrived_at);
            let (channel, ecn) = (delivery.channel, delivery.ecn);
            batch.push(delivery.payload);
            if !self.on_datagram(&mut batch, channel, ecn, times) {
                batch.pop();
            }
        }
        *self.decoder.batch() = batch;
    }

    /// Passes the header of the last datagram in `batch` to the rate control, and opens the
    /// datagram. Returns whether the decoder may use it. The times are those at which the datagram
    /// was taken from the kernel, and at which the kernel got it.
    fn on_datagram(
        &mut self,
        batch: &mut Batch,
        channel: Option<u16>,
        ecn: Ecn,
        (received_at, arrived_at): (Instant, Instant),
    ) -> bool {
        let header = self.header_of(batch.last());
        let (Some((cci, closes)), Some(number)) = (header, channel) else {
            self.malformed_packets += 1;
            return false;
        };
        // Before rate control sees the packet (RFC 5651 section 5.2.2).
        if !self.open_last(batch) {
            self.count_unauthenticated();
            return false;
        }
        self.now = self.clock.time_of(received_at).max(self.now);
        let channel = Channel { session: 0, number };
        let payload_bytes = batch.last().len() as u32 - cci.wire_bytes();
        let packet = Packet::new(Destination::Channel(channel), cci, payload_bytes).with_ecn(ecn);
        let refused = self.endpoint.refused();
        let arrived_at = self.clock.time_of(arrived_at);
        self.endpoint.handle_arrival(self.now, arrived_at, &packet);
        if self.endpoint.refused() != refused {
            return false;
        }
        self.last_packet = self.now;
        self.closed_at = closes.then_some(self.now);
        true
    }

    /// Returns the congestion control information of a datagram, and whether the sender announces
    /// the end of the session; `None` if the datagram is not one of the session's packets.
    fn header_of(&mut self, datagram: &[u8]) -> Option<(Cci, bool)> {
        let fits = datagram.len() <= self.session.config().packet_bytes as usize;
        let decoded = alc::Packet::decode(datagram).inspect_err(|error| self.log_once(error));
        let packet = decoded.ok()?;
        let is_ours = fits && packet.tsi() == self.config.description.tsi;
        let cci = Cci::decode(packet.cci()).filter(|_| is_ours)?;
        (cci.format == self.session.cci_format()).then_some((cci, packet.closes_session()))
    }

    /// Replaces the last datagram in `batch` by the one that it seals, in a session with a group
    /// key. Returns false if no member of the group has sealed it.
    fn open_last(&mut self, batch: &mut Batch) -> bool {
        let Some(opener) = &mut self.opener else {
            return true;
        };
        self.datagram.clear();
        self.datagram.extend_from_slice(batch.last());
        let opened = alc::Packet::decode(&self.datagram)
            .ok()
            .and_then(|packet| opener.open(&self.datagram, &packet.header));
        let Some(opened) = opened else {
            return false;
        };
        batch.pop();
        batch.push(opened);
        true
    }

    fn count_unauthenticated(&mut self) {
        if self.progress.packets.unauthenticated == 0 {
            tracing::warn!(
                "a packet has no valid MAC of the group key, and is dropped (logged once; more are counted)"
            );
        }
        self.progress.packets.unauthenticated += 1;
    }

    fn log_once(&mut self, error: &PacketError) {
        let kind = discriminant(error);
        if !self.malformed.contains(&kind) {
            self.malformed.push(kind);
            tracing::warn!(
                "a datagram from the session's source is not one of its packets: {error} (logged once; more are counted)"
            );
        }
    }

    fn drain_endpoint(&mut self) -> Result<(), ReceiveError> {
        while let Some(action) = self.endpoint.poll_action(self.now) {
            match action {
                Action::Join(channel) => self.inlet.join(channel.number)?,
                Action::Leave(channel) => self.inlet.leave(channel.number)?,
                Action::Send(never) => match never.header {},
            }
        }
        while let Some(event) = self.endpoint.poll_event() {
            tracing::trace!("{} {event:?}", self.now);
            if event == Event::StartedOver {
                tracing::warn!(
                    "the sender was restarted, or its first packet was forged; starting over"
                );
            }
            if let Event::Ended(reason) = event {
                self.on_ended(reason)?;
            }
        }
        Ok(())
    }

    /// Joins a session again that fell silent, or that RFC 3738 requires to leave. Files continue
    /// with the symbols that they have, so a few forged packets cannot end a transfer.
    fn on_ended(&mut self, reason: EndReason) -> Result<(), ReceiveError> {
        // `wait_until` gives up a session that stays silent, with an error that says more.
        let is_silent = matches!(reason, EndReason::NoPackets(_));
        let (reason, pause) = match reason {
            EndReason::NoPackets(_) => ("the session is silent", self.inlet.rejoin_pause()),
            EndReason::NoTimeSlotChange(_) => ("its time slots stand still", Duration::ZERO),
            // The path has to recover before it carries the session again.
            EndReason::BaseChannelLoss => (
                "the path loses most packets even at the lowest rate",
                self.session.config().time_slot,
            ),
        };
        if !is_silent && self.patience.is_over(self.now) {
            return Err(ReceiveError::Ended(reason));
        }
        let hint = self.silence_hint();
        tracing::warn!("{reason}; joining the session again{hint}");
        if is_silent {
            self.inlet.check_way();
        }
        self.report();
        self.join_again(pause)
    }

    /// Joins the session that was left, after a pause.
    fn join_again(&mut self, pause: Duration) -> Result<(), ReceiveError> {
        self.has_enough = false;
        self.before = self.progress.packets;
        let (session, webrc) = (Arc::clone(&self.session), Arc::clone(&self.webrc));
        self.endpoint = Receiver::new(session, webrc, 0, self.now + pause)?;
        Ok(())
    }

    /// Returns a reason that the description shows, if nothing ever came.
    fn silence_hint(&self) -> String {
        let packets = self.progress.packets.received;
        self.inlet
            .silence_hint(packets, self.config.description.ttl)
    }

    fn report_if_due(&mut self) {
        if self.now >= self.next_report {
            self.next_report = self.now + PROGRESS_INTERVAL;
            self.report();
            self.keep_pace();
        }
    }

    /// Limits the rate while the output of an image is slower than the network.
    fn keep_pace(&mut self) {
        let waiting = self.decoder.waiting.as_ref();
        let limit = waiting.and_then(|waiting| self.pace.update(self.now, waiting));
        if let Some(rate) = limit {
            self.endpoint.set_maximum_rate(rate);
        }
    }

    fn report(&mut self) {
        self.progress.objects = *self.decoder.progress.borrow();
        self.patience.note(self.now, &self.progress.objects);
        self.progress.webrc = self.endpoint.status();
        self.progress.packets.forged = self.before.forged;
        self.progress.packets.forged += self.endpoint.refused();
        self.progress.packets.refused =
            self.malformed_packets + self.progress.packets.forged.total();
        if let Some(status) = self.progress.webrc {
            self.progress.packets.received = self.before.received + status.packets_received;
            self.progress.packets.lost = self.before.lost + status.packets_lost;
            self.progress.packets.marked = self.before.marked + status.packets_marked;
            self.progress.waves_max = self.progress.waves_max.max(status.waves);
        }
        self.sinks.progress.send_replace(self.progress);
    }

    async fn leave(mut self) -> Received {
        let elapsed = self.clock.now() - Time::ZERO;
        self.endpoint.leave();
        while let Some(action) = self.endpoint.poll_action(self.now) {
            if let Action::Leave(channel) = action {
                // The session is over: a socket that cannot leave is closed anyway.
                let _ = self.inlet.leave(channel.number);
            }
        }
        // A decoder that waits for a disk must not keep the tunnel open.
        tokio::join!(self.decoder.stop(), self.inlet.close());
        Received {
            files: self.files,
            elapsed,
            progress: self.progress,
        }
    }
}
