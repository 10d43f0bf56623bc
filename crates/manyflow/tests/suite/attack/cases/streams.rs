//! Forged messages between a relay of a stream and its receivers: soundings, echoes, reports and
//! experiments.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use manyflow_amt::Flow;
use manyflow_layered::hop::{Direction, Echo, HopKey, Sounding, Stamp};
use manyflow_layered::{Experiment, Feedback};
use manyflow_streams::StreamDescription;
use nix::sys::signal::Signal;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use serde_json::Value;
use socket2::Socket;
use tempfile::TempDir;

use crate::attack::attacker::{Attack, open_raw, send_ip};
use crate::attack::trial::tunnel_port;
use crate::attack::world::{Host, RECEIVER, SENDER, World};
use crate::common::{Manyflow, PATIENT, manyflow, run, text, write_random};

/// 800 kbit/s: 20 units a second.
const UNIT_BYTES: usize = 5_000;
/// The units that have to arrive whole under attack. A stream that follows false reports has each
/// unit cut. How many are cut meanwhile depends on the host; the unit tests of `hop/end.rs` and
/// `relay/liars.rs` in `manyflow-layered` say what forged messages may change.
const WHOLE: u64 = 60;

/// A stream from one host to another, through the tunnel of the sender's relay.
struct Trial {
    // Processes end before their namespaces are removed.
    sender: Manyflow,
    receiver: Manyflow,
    /// The relay's end of the tunnel, and the receiver's.
    ends: [SocketAddr; 2],
    session: u32,
    _units: TempDir,
    world: World,
}

impl Trial {
    /// Starts the sender and a receiver. Returns `None` without the right to make namespaces.
    fn start(is_sealed: bool) -> Option<Trial> {
        let world = World::new()?;
        let units = tempfile::tempdir().unwrap();
        let folder = units.path().join("units");
        fs::create_dir(&folder).unwrap();
        write_random(&folder.join("unit"), UNIT_BYTES, 1);
        let key = units.path().join("key");
        let sealed = match is_sealed {
            true => {
                run(&["keygen", "--shared-key", text(&key)]).succeeded("keygen");
                vec!["--key", text(&key)]
            }
            false => Vec::new(),
        };
        let mut command = manyflow(&["stream", "send", "--json", "--fps", "20", "--repeat"]);
        command.args(["--folder", text(&folder)]).args(&sealed);
        command.args(["--listen", &format!("{SENDER}:0")]);
        command.args(["--publish", &format!("{SENDER}:0")]);
        let mut sender = world.on(Host::Sender, || Manyflow::start(command));
        let url = sender.wait_for(|line| Some(parsed(line)["url"].as_str()?.to_owned()));
        let description = sender.wait_for(|line| {
            let text = parsed(line)["session"].as_str()?.to_owned();
            Some(StreamDescription::parse(&text).unwrap().0)
        });
        let relay = description.amt_relay.as_ref().unwrap().port;
        let mut command = manyflow(&["stream", "recv", &url, "--json"]);
        command.args(&sealed).args(PATIENT);
        let receiver = world.on(Host::Receiver, || Manyflow::start(command));
        let port = tunnel_port(&receiver, relay);
        Some(Trial {
            sender,
            receiver,
            ends: [(SENDER, relay).into(), (RECEIVER, port).into()],
            session: description.session,
            _units: units,
            world,
        })
    }

    /// Calls `forge` 200 times a second from the start of the receiver on, until enough units have
    /// arrived whole.
    fn withstand(mut self, forge: impl Fn(&mut Forger) + Send + 'static) {
        let raw = self.world.on(Host::Attacker, open_raw);
        let mut forger = Forger {
            raw,
            ends: self.ends,
            session: self.session,
            random: Pcg64Mcg::seed_from_u64(7),
        };
        let attack = Attack::start(200, move |number| {
            if number.is_some() {
                forge(&mut forger);
            }
        });
        // Without echoes and reports, a receiver keeps the lowest rate.
        let (units, whole) = self
            .receiver
            .wait_for(|line| counts(line).filter(|(_, whole)| *whole >= WHOLE));
        assert!(attack.stop() > 0, "nothing was forged");
        println!("{whole} of {units} units were whole");
        for running in [self.receiver, self.sender] {
            running.signal(Signal::SIGTERM);
            running.finish().succeeded("stream");
        }
    }
}

fn parsed(line: &str) -> Value {
    serde_json::from_str(line).unwrap()
}

/// Returns the units of a line of progress, and those that are whole.
fn counts(line: &str) -> Option<(u64, u64)> {
    let event = parsed(line);
    Some((event["units"].as_u64()?, event["units_complete"].as_u64()?))
}

/// Makes messages that neither end has sent.
struct Forger {
    raw: Socket,
    ends: [SocketAddr; 2],
    session: u32,
    random: Pcg64Mcg,
}

impl Forger {
    fn stamp(&mut self) -> Stamp {
        Stamp {
            nonce: self.random.random(),
            number: self.random.random(),
            counter: self.random.random(),
        }
    }

    /// A key that nobody has, or none.
    fn key(&mut self) -> Option<HopKey> {
        let is_sealed = self.random.random();
        let key = HopKey::new(self.random.random());
        Some(key).filter(|_| is_sealed)
    }

    /// The report of a crowd of congested receivers, which receive next to nothing.
    fn feedback(&mut self) -> Feedback {
        Feedback {
            source: self.random.random(),
            session: self.session,
            group: self.random.random_range(0..5),
            more: false,
            request: self.random.random(),
            reports: u32::MAX,
            congested: u32::MAX,
            minimum: 1,
            maximum: 1,
            population: u32::MAX,
            hold_us: 0,
            rtt_us: u32::MAX,
        }
    }

    fn send(&self, source: SocketAddr, group: SocketAddr, message: &[u8]) {
        send_ip(&self.raw, &Flow { source, group }, message);
    }

    /// Soundings and experiments under the relay's address, to the receiver.
    fn as_relay(&mut self) {
        let [relay, receiver] = self.ends;
        let (key, stamp) = (self.key(), self.stamp());
        let mut message = Vec::new();
        Sounding {
            nonce: stamp.nonce,
            number: stamp.number,
            packets: self.random.random(),
            bytes: self.random.random(),
        }
        .encode(key.as_ref(), &mut message);
        self.send(relay, receiver, &message);
        // The receiver may have taken the nonce for that of its parent.
        message.clear();
        let experiment = Experiment {
            session: self.session,
            group: 1,
        };
        stamp.encode_experiment(experiment, Direction::Down, key.as_ref(), &mut message);
        self.send(relay, receiver, &message);
        let cut = self.random.random_range(0..message.len());
        self.send(relay, receiver, &message[..cut]);
    }

    /// Echoes and reports under an address, to the relay.
    fn as_child(&mut self, child: SocketAddr, stamp: Stamp) {
        let [relay, _] = self.ends;
        let key = self.key();
        let mut message = Vec::new();
        Echo {
            nonce: stamp.nonce,
            number: stamp.number,
            child: self.random.random(),
            packets: self.random.random(),
            bytes: self.random.random(),
        }
        .encode(key.as_ref(), &mut message);
        self.send(child, relay, &message);
        message.clear();
        let feedbacks = [self.feedback(), self.feedback()];
        stamp.encode_report(&feedbacks, key.as_ref(), &mut message);
        self.send(child, relay, &message);
        let cut = self.random.random_range(0..message.len());
        self.send(child, relay, &message[..cut]);
    }
}

/// An attacker that does not see what relay and receiver send to each other, and knows no key.
fn withstand_forged_messages(is_sealed: bool, are_strangers_refused: bool) {
    let Some(trial) = Trial::start(is_sealed) else {
        return;
    };
    trial.withstand(move |forger| {
        forger.as_relay();
        let (receiver, stamp) = (forger.ends[1], forger.stamp());
        forger.as_child(receiver, stamp);
        if are_strangers_refused {
            // Receivers of IP multicast have heard no sounding.
            let host = Ipv4Addr::new(10, 78, 0, forger.random.random_range(100..250));
            let stranger = (IpAddr::V4(host), forger.random.random()).into();
            forger.as_child(stranger, Stamp::default());
        }
    });
}

#[test]
fn units_arrive_whole_under_forged_soundings_echoes_and_reports() {
    withstand_forged_messages(false, false);
}

#[test]
fn units_arrive_whole_under_reports_of_strangers_without_the_key() {
    withstand_forged_messages(true, true);
}
