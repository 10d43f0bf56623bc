//! Every packet that WEBRC's sender sends on its channels (RFC 3738 section 3.1.2).

use std::time::Duration;

use manyflow_core::{Action, Endpoint, Rate, Time};
use manyflow_webrc::{Cci, CciFormat, Sender, Session, SessionConfig};

fn rate(text: &str) -> Rate {
    text.parse().expect("a rate")
}

/// Returns all packets of the first `seconds`, with their times in seconds.
fn packets(session: &Session, seconds: u64) -> Vec<(f64, Cci)> {
    let mut sender = Sender::new(session.clone(), 1, Time::ZERO);
    let end = Time::ZERO + Duration::from_secs(seconds);
    let mut sent = Vec::new();
    while let Some(now) = sender.poll_timeout().filter(|now| *now < end) {
        sender.handle_timeout(now);
        while let Some(Action::Send(packet)) = sender.poll_action(now) {
            assert_eq!(packet.wire_bytes(), session.config().packet_bytes);
            sent.push((now.as_secs_f64(), packet.header));
        }
    }
    sent
}

#[test]
fn the_rate_over_all_channels_is_constant_within_one_percent() {
    for (speed, profile) in [
        ("2 Mbit/s", SessionConfig::wan as fn(Rate) -> SessionConfig),
        ("10 Mbit/s", SessionConfig::wan),
        ("73.1 Mbit/s", SessionConfig::wan),
        ("50 Mbit/s", SessionConfig::lan),
        ("200 Mbit/s", SessionConfig::lan),
    ] {
        let session = Session::new(profile(rate(speed))).unwrap();
        // Windows of 5,000 packets: rounding adds at most one packet per channel, far less than a
        // percent.
        let window_s = 5_000.0 / session.session_rate();
        let seconds = (60.0 * window_s).max(3.0 * session.time_slot_s()).ceil();
        let mut counts = vec![0u32; (seconds / window_s) as usize];
        for (time_s, _) in packets(&session, seconds as u64) {
            if let Some(count) = counts.get_mut((time_s / window_s) as usize) {
                *count += 1;
            }
        }
        let worst = counts
            .iter()
            .map(|count| (f64::from(*count) / 5_000.0 - 1.0).abs())
            .fold(0.0, f64::max);
        assert!(
            worst < 0.01,
            "{speed}: off by {:.2} % in one of {} windows",
            worst * 100.0,
            counts.len()
        );
    }
}

#[test]
fn waves_end_with_the_highest_number_and_are_quiescent_then() {
    let session = Session::new(SessionConfig::lan(rate("5 Mbit/s"))).unwrap();
    let t = session.wave_channels() as u16;
    let sent = packets(&session, 3 * u64::from(t));
    for channel in 0..t {
        let wave: Vec<_> = sent
            .iter()
            .filter(|(_, cci)| cci.channel == channel)
            .collect();
        for pair in wave.windows(2) {
            let ((before_s, before), (after_s, after)) = (pair[0], pair[1]);
            if before.psn == 65_535 {
                // The wave of channel i ends with a time slot of index i.
                assert_eq!(before.ctsi, channel);
                assert!(
                    after_s - before_s >= f64::from(session.quiescent_slots()),
                    "{channel}: {before_s} {after_s}"
                );
            } else {
                assert_eq!(after.psn, before.psn + 1);
            }
        }
        let ends = wave.iter().filter(|(_, cci)| cci.psn == 65_535).count();
        assert!((2..=3).contains(&ends), "{ends} waves");
    }
}

#[test]
fn each_wave_has_the_same_numbers() {
    let session = Session::new(SessionConfig::lan(rate("5 Mbit/s"))).unwrap();
    let t = u64::from(session.wave_channels());
    let sent = packets(&session, 3 * t);
    let cycle = |n: u64| -> Vec<(u16, u32)> {
        let (from, to) = ((n * t) as f64, ((n + 1) * t) as f64);
        let numbers = sent
            .iter()
            .filter(|(s, cci)| (from..to).contains(s) && cci.channel < t as u16);
        numbers.map(|(_, cci)| (cci.channel, cci.psn)).collect()
    };
    assert!(cycle(1).len() > 10_000);
    assert_eq!(cycle(1), cycle(2));
}

#[test]
fn the_base_channel_counts_on_and_starts_each_slot_at_a_multiple_of_l() {
    for format in [CciFormat::Short, CciFormat::Long] {
        let config = SessionConfig {
            cci_format: Some(format),
            ..SessionConfig::lan(rate("1 Mbit/s"))
        };
        let session = Session::new(config).unwrap();
        let (t, l) = (session.wave_channels(), session.base_packets_per_slot());
        let sent = packets(&session, 20_000);
        let base: Vec<_> = sent
            .iter()
            .filter(|(_, cci)| u32::from(cci.channel) == t)
            .collect();
        assert_eq!(base.len() as u64, 20_000 * u64::from(l));
        for (i, (time_s, cci)) in base.iter().enumerate() {
            assert_eq!(
                u64::from(cci.psn),
                i as u64 % session.base_sequence_numbers()
            );
            let slot = i / l as usize;
            assert_eq!(u32::from(cci.ctsi), slot as u32 % t);
            assert_eq!(*time_s as usize, slot);
            assert!(!i.is_multiple_of(l as usize) || time_s.fract() == 0.0);
        }
    }
}

#[test]
fn a_late_sender_skips_instead_of_bursting() {
    let session = Session::new(SessionConfig::lan(rate("8 Mbit/s"))).unwrap();
    let mut sender = Sender::new(session, 1, Time::ZERO);
    let late = Time::from_secs_f64(60.0);
    sender.handle_timeout(late);
    let burst = std::iter::from_fn(|| sender.poll_action(late)).count();
    assert!(
        (400..600).contains(&burst),
        "half a second's worth, not {burst} packets"
    );
    assert!(sender.skipped() > 50_000);
}

/// Returns the packets of the first `seconds`, of a sender that lowers its top after each of
/// `steps` seconds, and the rates that it then announces.
fn packets_with_steps(
    session: &Session,
    steps: &[f64],
    seconds: u64,
) -> (Vec<(f64, Cci)>, Vec<Rate>) {
    let mut sender = Sender::new(session.clone(), 1, Time::ZERO);
    let end = Time::ZERO + Duration::from_secs(seconds);
    let (mut sent, mut tops) = (Vec::new(), Vec::new());
    while let Some(now) = sender.poll_timeout().filter(|now| *now < end) {
        let now_s = now.as_secs_f64();
        while steps.get(tops.len()).is_some_and(|step| *step <= now_s) {
            tops.push(sender.lower_top().expect("waves are left"));
        }
        while let Some(Action::Send(packet)) = sender.poll_action(now) {
            sent.push((now_s, packet.header));
        }
    }
    (sent, tops)
}

#[test]
fn a_lower_top_leaves_out_the_beginnings_of_new_waves() {
    for constant_aggregate in [true, false] {
        let config = SessionConfig::lan(rate("20 Mbit/s"));
        let session = Session::new(SessionConfig {
            constant_aggregate,
            ..config
        })
        .unwrap();
        let (t, n) = (session.wave_channels(), session.active_slots());
        let whole = packets(&session, 40);
        let (sent, tops) = packets_with_steps(&session, &[5.5, 20.5], 40);
        let first = if constant_aggregate { 2 } else { 1 };
        // The wave on this channel began in a slot after the step, and is in its first slots.
        let is_silent = |time_s: f64, cci: &Cci| {
            let left = (u32::from(cci.channel) + t - u32::from(cci.ctsi)) % t;
            let begin = time_s as u32 + left + 1 - n.min(time_s as u32 + left + 1);
            let silent = match begin {
                0..6 => 0,
                6..21 => first,
                _ => first + 1,
            };
            u32::from(cci.channel) < t && time_s < f64::from(begin + silent)
        };
        let expected: Vec<_> = whole
            .into_iter()
            .filter(|(time_s, cci)| !is_silent(*time_s, cci))
            .collect();
        assert_eq!(sent.len(), expected.len());
        assert_eq!(sent, expected);
        assert!(tops[1].bits_per_s() as f64 <= 0.76 * tops[0].bits_per_s() as f64);
        for (from, top) in [(9.0, tops[0]), (25.0, tops[1])] {
            // The rate falls within each slot, so it is highest in the first tenth of one.
            let in_tenth = sent
                .iter()
                .filter(|(time_s, _)| (from..from + 0.1).contains(time_s));
            let packet_bytes = session.config().packet_bytes;
            let highest = Rate::from_packets_per_s(in_tenth.count() as f64 * 10.0, packet_bytes);
            let ratio = highest.bits_per_s() as f64 / top.bits_per_s() as f64;
            assert!((0.93..1.01).contains(&ratio), "{highest} of {top}");
        }
    }
}

#[test]
fn the_two_lowest_waves_are_always_sent() {
    let session = Session::new(SessionConfig::lan(rate("20 Mbit/s"))).unwrap();
    let waves = session.active_slots();
    let mut sender = Sender::new(session, 1, Time::ZERO);
    let steps = std::iter::from_fn(|| sender.lower_top()).count();
    assert_eq!(steps as u32, waves - 3, "the first step is of two slots");
    assert_eq!(sender.lower_top(), None);
}

#[test]
fn a_top_that_was_raised_as_often_as_it_was_lowered_is_the_sessions() {
    for constant_aggregate in [true, false] {
        let session = Session::new(SessionConfig {
            constant_aggregate,
            ..SessionConfig::lan(rate("20 Mbit/s"))
        })
        .unwrap();
        let whole = packets(&session, 60);
        let mut sender = Sender::new(session.clone(), 1, Time::ZERO);
        assert_eq!((sender.raise_top(), sender.silent_slots()), (None, 0));
        let lowered: Vec<_> = (0..3).map(|_| sender.lower_top().unwrap()).collect();
        let end = Time::ZERO + Duration::from_secs(60);
        let (mut sent, mut raised) = (Vec::new(), Vec::new());
        while let Some(now) = sender.poll_timeout().filter(|now| *now < end) {
            if now.as_secs_f64() >= 20.0 && sender.silent_slots() > 0 {
                raised.extend(sender.raise_top());
            }
            while let Some(Action::Send(packet)) = sender.poll_action(now) {
                sent.push((now.as_secs_f64(), packet.header));
            }
        }
        assert_eq!(raised[..2], [lowered[1], lowered[0]]);
        assert!(raised.len() == 3 && raised[2] > lowered[0], "{raised:?}");
        // Waves that began before the raise have ended after N slots.
        let from_s = 20.0 + f64::from(session.active_slots());
        let late = |packets: &[(f64, Cci)]| -> Vec<(f64, Cci)> {
            let late = packets.iter().filter(|(time_s, _)| *time_s >= from_s);
            late.copied().collect()
        };
        assert!(sent.len() < whole.len() && !late(&sent).is_empty());
        assert_eq!(late(&sent), late(&whole));
    }
}
