//! The parent's end of a hop.

use core::time::Duration;

use manyflow_core::link::{Carried, Dropped};
use manyflow_core::time::seconds;
use manyflow_core::{ConfigError, Rate, Time};

use super::config::HopConfig;
use super::control::Control;
use super::queue::Queue;
use super::soundings::Soundings;
use super::state::HopState;
use super::wire::{Echo, SOUNDING_WIRE_BYTES, Sounding};

/// The time between soundings while no RTT is known.
const FIRST_INTERVAL: Duration = Duration::from_millis(50);
/// The shortest and the longest time between soundings, unless data is rarer.
const INTERVAL_MIN: Duration = Duration::from_millis(10);
const INTERVAL_MAX: Duration = Duration::from_millis(100);
/// The number of typical packets between two soundings, which cost about 2 % of the rate.
const PACKETS_PER_SOUNDING: f64 = 4.0;
/// The time between soundings while there is no data.
const IDLE_INTERVAL: Duration = Duration::from_secs(1);
/// The shortest time without an echo that counts as silence.
const SILENCE_MIN: Duration = Duration::from_millis(500);
/// The idle time from which a found rate decays.
const IDLE_MIN: Duration = Duration::from_secs(1);
/// The time in which a new child joins the groups that it had from its former parent.
const FRESH: Duration = Duration::from_secs(1);

/// A packet or a sounding that a hop sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transmit<T> {
    /// A data packet, with its length in bytes.
    Item(T, u32),
    /// A sounding.
    Sounding(Sounding),
}

/// The counts of a hop.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HopCounters {
    /// Packets handed to the hop.
    pub pushed: u64,
    /// Packets sent.
    pub sent: u64,
    /// Bytes of the packets sent.
    pub sent_bytes: u64,
    /// Packets that were dropped as they arrived, because the queue was full or by RED.
    pub dropped: u64,
    /// Packets that gave way in a full queue to a packet of a lower group.
    pub displaced: u64,
    /// Packets that were marked.
    pub marked: u64,
    /// Packets handed to the hop to be sent again, which `pushed` counts, too.
    pub repairs: u64,
    /// Packets that were sent and did not arrive, as far as echoes show it.
    pub lost: u64,
    /// Echoes that arrived.
    pub echoes: u64,
}

/// The parent's end of a hop. It is generic over its packets, and has neither clock nor sockets.
#[derive(Debug)]
pub struct Hop<T> {
    config: HopConfig,
    queue: Queue<T>,
    soundings: Soundings,
    control: Option<Control>,
    given: Rate,
    /// When the next packet may be sent.
    due: Time,
    sounded_at: Option<Time>,
    /// How long the queue has been empty since the last sounding, before `due`.
    idle: Duration,
    /// The time up to which `idle` is counted.
    idle_until: Time,
    /// When the last packet was sent.
    used_at: Time,
    /// When the last silence was acted on, or the last echo came.
    heard_at: Time,
    /// The time until which a rate can be expected of the child.
    fresh_until: Time,
}

impl<T: Carried> Hop<T> {
    /// Creates a hop. `nonce` is random and not 0; `seed` seeds the choice of marks.
    ///
    /// # Errors
    /// If a parameter is outside its range.
    pub fn new(config: HopConfig, nonce: u64, seed: u64, now: Time) -> Result<Hop<T>, ConfigError> {
        config.check()?;
        Ok(Hop {
            queue: Queue::new(&config, seed),
            soundings: Soundings::new(nonce.max(1), now),
            control: Control::new(config.rate, config.packet_bytes),
            given: config.rate.initial(),
            due: now,
            sounded_at: None,
            idle: Duration::ZERO,
            idle_until: now,
            used_at: now,
            heard_at: now,
            fresh_until: now + FRESH,
            config,
        })
    }

    /// Sets the top subscribed group of a session; `None` if the child has left the session.
    pub fn set_top(&mut self, session: u32, top: Option<u8>) {
        self.queue.set_top(session, top);
    }

    /// Begins with this rate instead of a lower one, in the hop's first second, and until a queue
    /// builds, packets are lost, or the child is silent. A child that joins several groups at once
    /// had another parent, over whose hop they came. A relay has its children again one after the
    /// other.
    pub fn expect(&mut self, now: Time, rate: Rate) {
        if let Some(control) = self.control.as_mut().filter(|_| now < self.fresh_until) {
            control.expect(rate);
        }
    }

    /// Queues a packet of `bytes`, including the headers of IP and UDP. Returns whether it was
    /// marked.
    ///
    /// # Errors
    /// If the queue dropped the packet. It is counted.
    pub fn push(&mut self, now: Time, item: T, bytes: u32) -> Result<bool, Dropped> {
        let mut idle = None;
        if self.queue.is_empty() {
            if now > self.due {
                idle = Some(now - self.due);
                self.on_idle(now - self.used_at);
            }
            self.count_idle(now);
        }
        let is_starting = self.control.as_ref().is_some_and(Control::is_starting);
        self.queue
            .push(item, bytes, idle, self.rate(), !is_starting)
    }

    /// Queues a packet that the path has lost, before those that wait: repairs of the lowest group
    /// are sent first. The hop paces and counts it as any packet.
    ///
    /// # Errors
    /// If the queue dropped the packet. It is counted.
    pub fn push_repair(&mut self, now: Time, item: T, bytes: u32) -> Result<(), Dropped> {
        if self.queue.is_empty() {
            self.count_idle(now);
        }
        self.queue.push_repair(item, bytes, self.rate())
    }

    fn on_idle(&mut self, idle: Duration) {
        if let Some(control) = self.control.as_mut().filter(|_| idle >= IDLE_MIN) {
            control.on_idle(idle);
        }
    }

    /// Adds the time since the last packet was sent to the idle time.
    fn count_idle(&mut self, now: Time) {
        let since = self.due.max(self.idle_until);
        self.idle += now - since;
        self.idle_until = self.idle_until.max(now);
    }

    /// Returns the next packet or sounding, if one is due at `now`.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Transmit<T>> {
        if self.sounding_due().is_some_and(|due| due <= now) {
            return Some(Transmit::Sounding(self.sound(now)));
        }
        if self.due > now {
            return None;
        }
        let (item, bytes) = self.queue.pop()?;
        self.soundings.count(bytes);
        self.used_at = now;
        self.pace(now, bytes);
        Some(Transmit::Item(item, bytes))
    }

    /// Returns the length of the packet that [`poll_transmit`](Hop::poll_transmit) would return at
    /// `now`; `None` if it would return a sounding or nothing.
    pub fn next_bytes(&self, now: Time) -> Option<u32> {
        let is_sounding = self.sounding_due().is_some_and(|due| due <= now);
        let is_due = !is_sounding && self.due <= now;
        is_due.then(|| self.queue.next_bytes()).flatten()
    }

    fn pace(&mut self, now: Time, bytes: u32) {
        let rate = self.rate().bits_per_s().max(1000) as f64;
        let earliest = Time::from_nanos(
            now.as_nanos()
                .saturating_sub(self.config.burst.as_nanos() as u64),
        );
        self.due = self.due.max(earliest) + seconds(f64::from(bytes) * 8.0 / rate);
    }

    fn sound(&mut self, now: Time) -> Sounding {
        if self.queue.is_empty() {
            self.count_idle(now);
        }
        let span = self.sounded_at.map_or(Duration::MAX, |last| now - last);
        let is_busy = self.idle <= span / 8;
        self.idle = Duration::ZERO;
        self.sounded_at = Some(now);
        if self.soundings.waiting_since().is_none() {
            self.heard_at = now;
        }
        self.pace(now, SOUNDING_WIRE_BYTES);
        self.soundings.sound(now, is_busy)
    }

    /// Returns when the next sounding is due. Between data, it is sent before a packet, so that
    /// it does not wait for that packet on a slow link.
    fn sounding_due(&self) -> Option<Time> {
        let Some(last) = self.sounded_at else {
            return Some(Time::ZERO);
        };
        let due = last + self.interval();
        if !self.queue.is_empty() {
            Some(due.max(self.due))
        } else if self.soundings.is_behind() {
            Some((due + INTERVAL_MIN).max(self.due))
        } else {
            Some((last + IDLE_INTERVAL).max(self.due))
        }
    }

    fn interval(&self) -> Duration {
        let rtt = self.soundings.srtt().unwrap_or(FIRST_INTERVAL);
        // Soundings show the child that packets are lost behind the last one that arrived.
        let is_noisy = self.control.as_ref().is_some_and(Control::is_noisy);
        let rtt = if is_noisy { rtt / 2 } else { rtt };
        let packets = PACKETS_PER_SOUNDING / self.rate().packets_per_s(self.config.packet_bytes);
        rtt.clamp(INTERVAL_MIN, INTERVAL_MAX)
            .max(seconds(packets.min(1.0)))
    }

    /// Handles the child's answer to a sounding. Returns whether it was the answer to a sounding of
    /// this hop.
    pub fn handle_echo(&mut self, now: Time, echo: &Echo) -> bool {
        let before = self.soundings.echoes;
        let is_competing = self.control.as_ref().is_some_and(Control::is_competing);
        let seen = self.soundings.answer(now, echo, is_competing);
        if self.soundings.echoes == before {
            return false;
        }
        self.heard_at = now;
        let next = self.soundings.number().saturating_add(1);
        let rtt = self.soundings.srtt().unwrap_or(FIRST_INTERVAL);
        if let (Some(control), Some(seen)) = (&mut self.control, seen) {
            control.on_observation(now, &seen, next, rtt);
        }
        true
    }

    /// Returns when [`poll_transmit`](Hop::poll_transmit) or
    /// [`handle_timeout`](Hop::handle_timeout) is wanted next.
    pub fn poll_timeout(&self) -> Option<Time> {
        let data = (!self.queue.is_empty()).then_some(self.due);
        let times = [data, self.sounding_due(), self.silence_due()];
        times.into_iter().flatten().min()
    }

    /// Returns when the missing of echoes counts as silence.
    fn silence_due(&self) -> Option<Time> {
        let since = self.soundings.waiting_since()?.max(self.heard_at);
        let rtt = self.soundings.srtt().unwrap_or(FIRST_INTERVAL);
        let patience = (4 * rtt.max(self.interval())).max(SILENCE_MIN);
        self.control.is_some().then(|| since + patience)
    }

    /// Handles the timers that are due.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.silence_due().is_some_and(|due| due <= now) {
            (self.heard_at, self.fresh_until) = (now, now);
            let next = self.soundings.number().saturating_add(1);
            if let Some(control) = &mut self.control {
                control.on_silence(next);
            }
        }
    }

    /// Returns the present rate.
    pub fn rate(&self) -> Rate {
        self.control.as_ref().map_or(self.given, Control::rate)
    }

    /// Returns the present reason for the rate.
    pub fn state(&self) -> HopState {
        self.control
            .as_ref()
            .map_or(HopState::Given, Control::state)
    }

    /// Returns whether the rate is that of the path, as far as is known.
    pub(crate) fn is_rate_known(&self) -> bool {
        !matches!(self.state(), HopState::Starting | HopState::Silent)
    }

    /// Changes a given rate. A found rate does not change.
    pub fn set_rate(&mut self, rate: Rate) {
        self.given = rate.max(Rate::from_bits_per_s(1000));
    }

    /// Returns the smoothed RTT to the child and its minimum; `None` before the first echo.
    pub fn rtt(&self) -> Option<(Duration, Duration)> {
        self.soundings.srtt().zip(self.soundings.minimum_rtt())
    }

    /// Returns the number of the last sounding and the nonce, for stamps.
    pub fn sounded(&self) -> (u64, u32) {
        (self.soundings.nonce(), self.soundings.number())
    }

    /// Returns the packets that wait and their bytes.
    pub fn queued(&self) -> (usize, u64) {
        self.queue.len()
    }

    /// Returns the counts of the hop.
    pub fn counters(&self) -> HopCounters {
        let fates = self.queue.fates;
        let (sent, sent_bytes) = self.soundings.sent();
        debug_assert_eq!(
            fates.pushed,
            sent + fates.dropped + fates.displaced + self.queue.len().0 as u64
        );
        HopCounters {
            pushed: fates.pushed,
            sent,
            sent_bytes,
            dropped: fates.dropped,
            displaced: fates.displaced,
            marked: fates.marked,
            repairs: fates.repairs,
            lost: self.soundings.lost,
            echoes: self.soundings.echoes,
        }
    }
}
