//! The sending driver: paces the packets of a session onto its outlets.

use std::pin::Pin;
use std::time::Duration;

use manyflow_core::{Action, Endpoint, Time};
use manyflow_net::amt::RelayStats;
use manyflow_net::clock::Clock;
use manyflow_net::outlets::Outlets;
use manyflow_object::error::ReadError;
use manyflow_object::fec::Encoded;
use manyflow_webrc::{Cci, Sender, Session};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::content::Content;
use super::focus::Focus;
use super::group::GroupSealer;
use super::overload::{Overload, Step};
use crate::completion::{ReceiverCounts, Tally};

/// Time between two reports of progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);
/// Number of copies of the packet that ends the session, since some are lost.
const CLOSE_COPIES: u32 = 5;
const CLOSE_INTERVAL: Duration = Duration::from_millis(50);

/// A sender's progress so far.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct SendProgress {
    /// Packets passed to an outlet.
    pub packets: u64,
    /// UDP payload of these packets, in bytes.
    pub bytes: u64,
    /// Packets that were not encoded, because nobody had joined their channel.
    pub unwanted: u64,
    /// Packets that were skipped, because the machine was busy or suspended when they were due.
    pub skipped: u64,
    /// Datagrams that an outlet dropped, because of a full socket or a gateway's maximum rate.
    pub unsent: u64,
    /// Files, or bundles of files, that could no longer be read and are not sent further.
    pub withdrawn: u32,
    /// Whether only symbols are sent that receivers have reported to need.
    pub is_focused: bool,
    /// Numbers of receivers by the state that they have reported; all 0 if they are not asked to.
    pub receivers: ReceiverCounts,
    /// Load and counts of the AMT relay; all 0 without a relay.
    pub relay: RelayStats,
}

/// The sending end of a session on the network.
pub struct SessionSender {
    clock: Clock,
    endpoint: Sender,
    overload: Overload,
    objects: Content,
    /// The encodings of repair symbols in other threads.
    encodings: JoinSet<Result<Encoded, ReadError>>,
    encodings_max: usize,
    outlets: Outlets,
    datagram: Vec<u8>,
    progress: SendProgress,
    reports: watch::Sender<SendProgress>,
    last_base: Option<Cci>,
    sealer: Option<GroupSealer>,
    tally: Option<watch::Receiver<Tally>>,
    focus: Focus,
}

impl SessionSender {
    /// Makes a sender, whose first time slot starts when it runs.
    pub fn new(session: Session, objects: impl Into<Content>, outlets: Outlets) -> SessionSender {
        let objects = objects.into();
        SessionSender {
            clock: Clock::start(),
            overload: Overload::new(session.config().time_slot, session.active_slots()),
            endpoint: Sender::new(session, 0, Time::ZERO),
            datagram: Vec::with_capacity(objects.datagram_length()),
            objects,
            encodings: JoinSet::new(),
            encodings_max: 1,
            outlets,
            progress: SendProgress::default(),
            reports: watch::Sender::new(SendProgress::default()),
            last_base: None,
            sealer: None,
            tally: None,
            focus: Focus::default(),
        }
    }

    /// With a sealer, seals each packet, which lengthens it by
    /// [`EXTENSION_BYTES`](manyflow_object::ext_auth::EXTENSION_BYTES).
    pub fn with_sealer(mut self, sealer: Option<GroupSealer>) -> SessionSender {
        self.sealer = sealer;
        self
    }

    /// Encodes up to this number of blocks at a time, each in a thread; by default one.
    pub fn with_threads(mut self, threads: usize) -> SessionSender {
        self.encodings_max = threads.max(1);
        self
    }

    /// Includes the numbers of receivers by state in the progress.
    pub fn with_tally(mut self, tally: Option<watch::Receiver<Tally>>) -> SessionSender {
        self.tally = tally;
        self
    }

    /// Returns a channel that reports the progress several times per second.
    pub fn progress(&self) -> watch::Receiver<SendProgress> {
        self.reports.subscribe()
    }

    /// Sends until `stop` is ready, then announces the end of the session.
    ///
    /// A file that can no longer be read, or has changed, is withdrawn: the log names it, and the
    /// session goes on with the others.
    ///
    /// # Errors
    /// If no file is left. The end of the session is announced then, too.
    pub async fn run(mut self, stop: impl Future<Output = ()>) -> Result<SendProgress, ReadError> {
        tokio::pin!(stop);
        self.clock = Clock::start();
        let result = self.send_until(stop).await;
        self.close().await;
        self.report();
        result.map(|()| self.progress)
    }

    async fn send_until(
        &mut self,
        mut stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<(), ReadError> {
        let mut next_report = Time::ZERO;
        loop {
            let now = self.clock.now();
            self.send_due(now)?;
            if self.sealer.as_ref().is_some_and(GroupSealer::is_exhausted) {
                tracing::error!(
                    "2^40 packets are sent, and the group key has no more numbers: send again"
                );
                return Ok(());
            }
            if now >= next_report {
                next_report = now + PROGRESS_INTERVAL;
                self.change_top(now);
                self.focus(now);
                self.report();
            }
            while self.encodings.len() < self.encodings_max
                && let Some(job) = self.objects.next_job()
            {
                self.encodings.spawn_blocking(move || job.run());
            }
            tokio::select! {
                biased;
                () = &mut stop => return Ok(()),
                () = self.clock.sleep_until(self.endpoint.poll_timeout()) => {}
                Some(encoded) = self.encodings.join_next() => {
                    let encoded = encoded.expect("an encoding does not panic");
                    let finished = encoded.and_then(|encoded| self.objects.finish_job(&encoded));
                    finished.or_else(|error| self.withdraw(error))?;
                }
            }
        }
    }

    /// Sends only what receivers need, if they have reported that.
    fn focus(&mut self, now: Time) {
        let Some(tally) = &self.tally else { return };
        let tally = tally.borrow();
        let is_focused = match tally.wanted() {
            Some(wanted) => {
                let is_alone = self.focus.is_alone(now, &wanted, tally.audience().window());
                self.objects.focus(&wanted.needs, is_alone)
            }
            None => {
                self.objects.unfocus();
                false
            }
        };
        self.progress.is_focused = is_focused;
    }

    fn send_due(&mut self, now: Time) -> Result<(), ReadError> {
        self.objects.take_sections()?;
        self.endpoint.handle_timeout(now);
        while let Some(action) = self.endpoint.poll_action(now) {
            if let Action::Send(packet) = action {
                self.send(packet.header)?;
            }
        }
        self.outlets.flush();
        Ok(())
    }

    fn send(&mut self, cci: Cci) -> Result<(), ReadError> {
        if !self.outlets.wants(cci.channel) {
            self.progress.unwanted += 1;
            return Ok(());
        }
        let (field, length) = cci.encode();
        self.datagram.clear();
        let session = self.endpoint.session();
        let base = u32::from(cci.channel) == session.wave_channels();
        // Every receiver gets the first packet of each slot, so it carries the table of files.
        if base && cci.psn.is_multiple_of(session.base_packets_per_slot()) {
            self.objects
                .next_fdt_datagram(&field[..length], &mut self.datagram)?;
        } else {
            let (layer, field) = (layer(session, cci), &field[..length]);
            while let Err(error) = self.objects.next_datagram(layer, field, &mut self.datagram) {
                self.datagram.clear();
                self.withdraw(error)?;
            }
        }
        if base {
            self.last_base = Some(cci);
        }
        self.emit(cci.channel);
        Ok(())
    }

    /// Goes on without a file that cannot be read.
    fn withdraw(&mut self, error: ReadError) -> Result<(), ReadError> {
        if !self.objects.withdraw(&error) {
            return Err(error);
        }
        self.progress.withdrawn += 1;
        tracing::error!("{error}. The other files are still sent");
        Ok(())
    }

    fn emit(&mut self, channel: u16) {
        if let Some(sealer) = &mut self.sealer {
            if sealer.is_exhausted() {
                return;
            }
            sealer.seal(&mut self.datagram);
        }
        self.progress.packets += 1;
        self.progress.bytes += self.datagram.len() as u64;
        self.outlets.push(channel, &self.datagram);
    }

    /// Lowers the top of the session if this machine is too slow for it, and raises the top again
    /// when the machine keeps pace.
    fn change_top(&mut self, now: Time) {
        let (skipped, silent_slots) = (self.endpoint.skipped(), self.endpoint.silent_slots());
        match self.overload.step(now, skipped, silent_slots) {
            Some(Step::Lower) => self.lower_top(),
            Some(Step::Raise) => {
                if let Some(top) = self.endpoint.raise_top() {
                    tracing::info!("this machine keeps pace, and sends at most {top} from now on");
                }
            }
            None => {}
        }
    }

    fn lower_top(&mut self) {
        let session_rate = self.endpoint.session().config().session_rate;
        match self.endpoint.lower_top() {
            Some(top) => tracing::warn!(
                "this machine is too slow for a session of {session_rate}, and sends at most {top} until it keeps \
                 pace: if that goes on, take --rate {top} next time"
            ),
            None => tracing::warn!(
                "this machine is too slow even for the two lowest waves of this session: end other programs, or send \
                 again with a lower --rate"
            ),
        }
    }

    fn report(&mut self) {
        let skipped = self.endpoint.skipped();
        if skipped > 0 && self.progress.skipped == 0 {
            tracing::warn!(
                "the sender is behind its schedule, and leaves out packets that are too late: receivers slow down as \
                 on a full path (logged once; more are counted). If that goes on, it lowers the session's rate"
            );
        }
        self.progress.skipped = skipped;
        self.progress.unsent = self.outlets.unsent();
        self.progress.relay = self.outlets.relay_stats();
        if let Some(tally) = &self.tally {
            self.progress.receivers = tally.borrow().table().counts();
        }
        self.reports.send_replace(self.progress);
    }

    /// Sends the close-session flag on the base channel, which every receiver has joined (RFC 5651
    /// section 5.1).
    async fn close(&mut self) {
        let Some(cci) = self.last_base else { return };
        let (field, length) = cci.encode();
        for _ in 0..CLOSE_COPIES {
            self.datagram.clear();
            self.objects
                .close_datagram(&field[..length], &mut self.datagram);
            self.emit(cci.channel);
            self.outlets.flush();
            tokio::time::sleep(CLOSE_INTERVAL).await;
        }
    }
}

/// Returns the cumulative layer of a packet. The base channel is layer 0. A wave with n time slots
/// left, including the current one, is layer n. A receiver of n waves has joined those that end
/// first.
fn layer(session: &Session, cci: Cci) -> u16 {
    let channels = session.wave_channels() as u16;
    if cci.channel == channels {
        return 0;
    }
    (cci.channel + channels - cci.ctsi) % channels + 1
}
