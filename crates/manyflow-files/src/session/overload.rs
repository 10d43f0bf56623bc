//! Decides when a sender that cannot keep its schedule lowers the top of its session, and when it
//! raises the top again.
//!
//! A sender that was suspended, or waited for its processor, skips the packets of that time once. A
//! machine that is too slow for the session skips packets again and again, on all channels: every
//! receiver then loses packets, also a slow one. Without the highest layers, the lower ones are
//! whole again.
//!
//! The machine may have been busy with something else. So the top rises again by a step after as
//! many slots without skipped packets as a wave lasts, when all waves have begun since the last
//! step. If the next overload comes as soon, the machine is too slow for that step, and the
//! sender tries it half as often from then on. The steps below it are not affected: a sender that
//! has lowered its top too far has the right one again soon.

use std::time::Duration;

use manyflow_core::Time;

/// Time slots in a row that have to skip packets. A pause is over in one, or in two if it lasts
/// beyond the end of the first.
const SLOTS: u32 = 3;
/// The longest time before the top is raised, in durations of a wave.
const WAIT_WAVES_MAX: u32 = 16;

/// A change of the top of a session.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Lower,
    Raise,
}

/// The packets that a sender has skipped, slot by slot.
#[derive(Debug)]
pub(super) struct Overload {
    time_slot: Duration,
    slot_end: Time,
    skipped: u64,
    /// The number of slots in a row that skipped packets.
    slots: u32,
    /// The number of slots that are not counted: waves that began before the last step still send.
    grace_slots: u32,
    /// The number of slots since the last step that skipped nothing.
    calm_slots: u32,
    /// The step that the machine was too slow for: the number of slots in which new waves were
    /// silent.
    failed: Option<u32>,
    /// The number of calm slots after which that step is tried again.
    wait_slots: u32,
    /// The number of slots in which a wave is active.
    wave_slots: u32,
    /// The number of slots since the top was raised last; `None` if it was lowered since.
    raised_slots: Option<u32>,
}

impl Overload {
    /// Begins to observe a session with time slots of this length, and waves of this number of
    /// slots.
    pub(super) fn new(time_slot: Duration, wave_slots: u32) -> Overload {
        Overload {
            time_slot,
            slot_end: Time::ZERO + time_slot,
            skipped: 0,
            slots: 0,
            grace_slots: 0,
            calm_slots: 0,
            failed: None,
            wait_slots: wave_slots,
            wave_slots,
            raised_slots: None,
        }
    }

    /// Registers that the sender has skipped this number of packets so far, and that new waves are
    /// silent in this number of slots. Returns the change that it should make. A change has its
    /// effect from the next slot on, and as many slots to show it.
    pub(super) fn step(&mut self, now: Time, skipped: u64, silent_slots: u32) -> Option<Step> {
        if now < self.slot_end {
            return None;
        }
        self.slot_end = now + self.time_slot;
        self.raised_slots = self.raised_slots.map(|slots| slots.saturating_add(1));
        if skipped > self.skipped {
            self.slots += u32::from(self.grace_slots == 0);
        } else {
            self.slots = 0;
            self.calm_slots = self.calm_slots.saturating_add(1);
        }
        self.grace_slots = self.grace_slots.saturating_sub(1);
        self.skipped = skipped;
        if self.slots == SLOTS {
            return Some(self.lower(silent_slots));
        }
        let tries_failed = self.failed.is_some_and(|failed| silent_slots <= failed + 1);
        let wait_slots = match tries_failed {
            true => self.wait_slots,
            false => self.wave_slots,
        };
        if silent_slots > 0 && self.calm_slots >= wait_slots {
            return Some(self.raise(silent_slots));
        }
        None
    }

    fn lower(&mut self, silent_slots: u32) -> Step {
        (self.slots, self.calm_slots) = (0, 0);
        let raised = self.raised_slots.take();
        if raised.is_some_and(|slots| slots <= self.wait_slots) {
            self.failed = Some(silent_slots);
            // The step below was not too high.
            self.grace_slots = silent_slots + 1;
            let longest = self.wave_slots * WAIT_WAVES_MAX;
            self.wait_slots = (self.wait_slots * 2).min(longest);
        }
        Step::Lower
    }

    fn raise(&mut self, silent_slots: u32) -> Step {
        // The step that had failed has stood for as long as it was waited for.
        if self.failed.is_some_and(|failed| silent_slots <= failed) {
            (self.failed, self.wait_slots) = (None, self.wave_slots);
        }
        self.calm_slots = 0;
        self.raised_slots = Some(0);
        Step::Raise
    }
}

#[cfg(test)]
mod tests {
    use manyflow_core::{Action, Endpoint as _};
    use manyflow_webrc::{Sender, Session, SessionConfig};

    use super::*;

    /// The slots of a wave in tests without a session.
    const WAVE: u32 = 10;

    /// Returns the reports, five in a slot of a second, after which the top is changed. `skipped`
    /// gives the packets that were skipped before each report.
    fn steps(reports: u64, mut skipped: impl FnMut(u64) -> u64) -> Vec<(u64, Step)> {
        let mut overload = Overload::new(Duration::from_secs(1), WAVE);
        let (mut total, mut lowered, mut steps) = (0, 0_u32, Vec::new());
        for report in 1..=reports {
            total += skipped(report);
            let now = Time::ZERO + Duration::from_millis(200) * report as u32;
            let Some(step) = overload.step(now, total, lowered) else {
                continue;
            };
            match step {
                Step::Lower => lowered += 1,
                Step::Raise => lowered -= 1,
            }
            steps.push((report, step));
        }
        steps
    }

    #[test]
    fn a_machine_that_is_too_slow_lowers_the_top_until_it_keeps_pace() {
        use Step::{Lower, Raise};
        assert_eq!(steps(40, |_| 9), [(15, Lower), (30, Lower)]);
        let recovers = steps(200, |report| u64::from(report < 17));
        assert_eq!(recovers, [(15, Lower), (70, Raise)]);
    }

    #[test]
    fn single_pauses_do_not_lower_the_top() {
        // One on either side of a slot's end, again and again.
        let pauses = |report: u64| u64::from(report % 15 < 2) * 5_000;
        assert_eq!(steps(600, pauses), []);
    }

    /// A run of a session on a machine that sends at most some packets in a second.
    struct Machine {
        sender: Sender,
        overload: Overload,
        now: Time,
        /// The packets that the machine may send now, in thousandths.
        budget: u64,
        raises: u32,
    }

    impl Machine {
        fn new() -> Machine {
            let rate = "40 Mbit/s".parse().unwrap();
            let session = Session::new(SessionConfig::lan(rate)).unwrap();
            let slot = session.config().time_slot;
            Machine {
                overload: Overload::new(slot, session.active_slots()),
                sender: Sender::new(session, 0, Time::ZERO),
                now: Time::ZERO,
                budget: 0,
                raises: 0,
            }
        }

        /// Runs for this time. Returns the rates at which the sender sent and skipped, in packets
        /// per second.
        fn run(&mut self, seconds: u64, packets_per_s: u64) -> (f64, f64) {
            let (skipped, mut sent) = (self.sender.skipped(), 0);
            for millisecond in 0..seconds * 1_000 {
                self.now += Duration::from_millis(1);
                self.budget = self.budget.min(1_000) + packets_per_s;
                self.sender.handle_timeout(self.now);
                while self.budget >= 1_000
                    && let Some(Action::Send(_)) = self.sender.poll_action(self.now)
                {
                    self.budget -= 1_000;
                    sent += 1;
                }
                if millisecond % 200 == 0 {
                    self.change_top();
                }
            }
            let skipped = self.sender.skipped() - skipped;
            (
                sent as f64 / seconds as f64,
                skipped as f64 / seconds as f64,
            )
        }

        fn change_top(&mut self) {
            let skipped = self.sender.skipped();
            let silent_slots = self.sender.silent_slots();
            match self.overload.step(self.now, skipped, silent_slots) {
                Some(Step::Lower) => {
                    self.sender.lower_top().expect("waves are left");
                }
                Some(Step::Raise) => {
                    self.raises += 1;
                    self.sender.raise_top().expect("the top is lowered");
                }
                None => {}
            }
        }
    }

    #[test]
    fn a_sender_has_its_whole_rate_again_when_its_machine_has() {
        let mut machine = Machine::new();
        let rate = machine.sender.session().session_rate();
        let slow = (rate * 0.6) as u64;
        machine.run(60, slow);
        assert!(machine.sender.silent_slots() > 0);
        machine.run(600, 2 * rate as u64);
        assert_eq!(machine.sender.silent_slots(), 0);
        let (sent, skipped) = machine.run(60, 2 * rate as u64);
        println!("{sent} of {rate} packets/s");
        assert!(sent > 0.99 * rate && skipped == 0.0, "{sent} of {rate}");
    }

    #[test]
    fn a_machine_that_remains_too_slow_is_seldom_tried() {
        let mut machine = Machine::new();
        let rate = machine.sender.session().session_rate();
        let slow = (rate * 0.6) as u64;
        machine.run(60, slow);
        let raises = machine.raises;
        let (sent, skipped) = machine.run(3_600, slow);
        let raises = machine.raises - raises;
        println!("{raises} raises in an hour, {sent} packets/s sent, {skipped} skipped");
        assert!((1..=15).contains(&raises), "{raises}");
        assert!(skipped < 0.01 * sent, "{skipped} of {sent}");
    }
}
