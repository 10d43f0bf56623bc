//! Runs a network in real time: moves packets between the devices of its hosts and its links.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use manyflow_core::Time;
use manyflow_netsim::{NodeId, Observer};
use manyflow_scenario::{AnyEvent, AnyHeader};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::prctl::set_timerslack;
use nix::sys::time::TimeSpec;

use crate::bell::Bell;
use crate::error::EmulateError;
use crate::fabric::{Fabric, MTU, Outlet, Outside};
use crate::ports::tun::Tun;
use crate::priority;
use crate::spin::{Budget, SPIN};

/// The lateness above which a packet counts as late.
pub const LATE: Duration = Duration::from_millis(5);
/// The share of late packets, as one in this number, above which a run has not kept time.
const LATE_SHARE: u64 = 100;
/// The maximum number of packets that are read from a device before due packets are delivered.
const BATCH: usize = 32;
/// The longest wait. A wait ends earlier if a packet is due or comes.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// The lateness of deliveries: the time from the instant at which the links would have delivered a
/// packet to the instant at which the kernel was given it.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    /// The number of packets.
    pub packets: u64,
    /// The packets that were late by more than [`LATE`].
    pub late: u64,
    /// The sum over all packets.
    pub total: Duration,
    /// The maximum.
    pub max: Duration,
    /// Packets that the kernel refused. The links do not count them as lost.
    pub refused: u64,
}

impl Lateness {
    /// Returns whether the run has kept time: at most 1 % of the packets were late, and the kernel
    /// refused none. The results of other runs mean nothing.
    pub fn has_kept_time(&self) -> bool {
        self.late * LATE_SHARE <= self.packets && self.refused == 0
    }

    /// Checks that the run [has kept time](Lateness::has_kept_time).
    ///
    /// # Errors
    /// Returns an error with the numbers.
    pub fn check(&self) -> Result<(), String> {
        if self.has_kept_time() {
            return Ok(());
        }
        let Lateness {
            packets,
            late,
            refused,
            ..
        } = self;
        let late_ms = LATE.as_millis();
        Err(format!(
            "the emulator could not keep time: {late} of {packets} packets were late by more than {late_ms} ms, and the kernel refused {refused}; lower the rates, or end other programs"
        ))
    }

    /// Returns the mean.
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.total.as_nanos() as u64 / self.packets.max(1))
    }

    fn note(&mut self, lateness: Duration) {
        self.packets += 1;
        self.late += u64::from(lateness > LATE);
        self.total += lateness;
        self.max = self.max.max(lateness);
    }
}

/// The reason for which [`Drive::run_until`] returned.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The time has come.
    Time,
    /// The bell was rung.
    Rung,
}

/// A network with the devices of its hosts, and the clock by which it runs.
pub struct Drive {
    fabric: Fabric,
    devices: Devices,
    budget: Budget,
    packet: Vec<u8>,
}

/// The devices of hosts, and the clock.
struct Devices {
    ports: Vec<(NodeId, Tun)>,
    /// For each node, the index of its device.
    by_node: Vec<Option<u32>>,
    start: Instant,
    lateness: Lateness,
}

impl Devices {
    fn now(&self) -> Time {
        Time::ZERO + self.start.elapsed()
    }

    /// Waits for packets or the bell. Returns whether there are any of
    /// them, and whether the bell was rung.
    fn poll(&self, wait: Duration, bell: &mut Bell) -> Result<(bool, bool), EmulateError> {
        let devices = self.ports.iter();
        let mut files: Vec<PollFd> = devices
            .map(|(_, tun)| PollFd::new(tun.as_fd(), PollFlags::POLLIN))
            .collect();
        files.push(PollFd::new(bell.as_fd(), PollFlags::POLLIN));
        let ready = match ppoll(&mut files, Some(TimeSpec::from_duration(wait)), None) {
            Ok(ready) => ready > 0,
            Err(nix::Error::EINTR) => false,
            Err(error) => return Err(EmulateError::System("ppoll", error)),
        };
        let is_rung = files.last().and_then(PollFd::any).unwrap_or(false);
        drop(files);
        if is_rung {
            bell.take();
        }
        Ok((ready, is_rung))
    }
}

impl Outlet for Devices {
    fn deliver(&mut self, due: Time, node: NodeId, packet: &[u8]) {
        let port = self.by_node.get(node.0 as usize).copied().flatten();
        let Some(port) = port else { return };
        match self.ports[port as usize].1.write(packet) {
            Ok(()) => self.lateness.note(self.now() - due),
            Err(_) => self.lateness.refused += 1,
        }
    }

    fn query(&mut self, node: NodeId, packet: &[u8]) {
        if let Some(Some(port)) = self.by_node.get(node.0 as usize) {
            // The next query makes up for one that the kernel refuses.
            let _ = self.ports[*port as usize].1.write(packet);
        }
    }
}

impl Drive {
    /// Returns a drive whose clock starts now, at the time of the network.
    pub fn new(fabric: Fabric, ports: Vec<(NodeId, Tun)>) -> Drive {
        let nodes = ports.iter().map(|(node, _)| node.0 as usize + 1).max();
        let mut by_node = vec![None; nodes.unwrap_or(0)];
        for (index, (node, _)) in ports.iter().enumerate() {
            by_node[node.0 as usize] = Some(index as u32);
        }
        let devices = Devices {
            ports,
            by_node,
            start: Instant::now(),
            lateness: Lateness::default(),
        };
        Drive {
            fabric,
            devices,
            budget: Budget::new(),
            packet: vec![0; MTU],
        }
    }

    /// Returns the network.
    pub fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    /// Returns the network, so that its links can be changed and read.
    pub fn fabric_mut(&mut self) -> &mut Fabric {
        &mut self.fabric
    }

    /// Returns the lateness of all deliveries so far.
    pub fn lateness(&self) -> Lateness {
        self.devices.lateness
    }

    /// Returns the instant at which the clock of the network was zero.
    pub fn start(&self) -> Instant {
        self.devices.start
    }

    /// Returns the present time of the network.
    pub fn now(&self) -> Time {
        self.devices.now()
    }

    /// Runs the network until `end`, or until the bell is rung. The calling thread sleeps while
    /// nothing is due.
    ///
    /// # Errors
    /// Returns an error if a device fails or the network cannot continue.
    pub fn run_until(
        &mut self,
        end: Time,
        bell: &mut Bell,
        observer: &mut dyn Observer<AnyHeader, AnyEvent>,
    ) -> Result<Ended, EmulateError> {
        priority::raise();
        // By default the kernel may prolong a sleep by 50 µs.
        set_timerslack(1).map_err(|error| EmulateError::System("prctl", error))?;
        loop {
            let now = self.devices.now();
            self.advance(now.min(end), observer)?;
            if now >= end {
                return Ok(Ended::Time);
            }
            if self.wait(end, bell)? {
                return Ok(Ended::Rung);
            }
            self.read_all(end, observer)?;
        }
    }

    fn advance(
        &mut self,
        now: Time,
        observer: &mut dyn Observer<AnyHeader, AnyEvent>,
    ) -> Result<(), EmulateError> {
        let mut outside = Outside {
            outlet: &mut self.devices,
            observer,
        };
        Ok(self.fabric.advance(now, &mut outside)?)
    }

    /// Waits for packets, for the next event of the network, or for the bell. May return earlier.
    /// Returns whether the bell was rung.
    fn wait(&mut self, end: Time, bell: &mut Bell) -> Result<bool, EmulateError> {
        let next = self.fabric.next_time().min(end);
        let now = self.devices.now();
        let wait = (next - now).min(WAIT_MAX);
        if wait > SPIN {
            return self.devices.poll(wait - SPIN, bell).map(|(_, rung)| rung);
        }
        if !self.budget.allows(now) {
            return self.devices.poll(wait, bell).map(|(_, rung)| rung);
        }
        let (mut is_ready, mut is_rung) = (false, false);
        while !is_ready && self.devices.now() < next {
            (is_ready, is_rung) = self.devices.poll(Duration::ZERO, bell)?;
        }
        self.budget.charge(self.devices.now() - now);
        Ok(is_rung)
    }

    /// Reads a batch of packets from each device.
    fn read_all(
        &mut self,
        end: Time,
        observer: &mut dyn Observer<AnyHeader, AnyEvent>,
    ) -> Result<(), EmulateError> {
        for index in 0..self.devices.ports.len() {
            self.advance(self.devices.now().min(end), observer)?;
            for _ in 0..BATCH {
                let (node, tun) = &self.devices.ports[index];
                let node = *node;
                let read = tun.read(&mut self.packet);
                let read = read
                    .map_err(|error| EmulateError::Device(format!("of node {}", node.0), error))?;
                let Some(length) = read else { break };
                let mut outside = Outside {
                    outlet: &mut self.devices,
                    observer,
                };
                self.fabric.push(node, &self.packet[..length], &mut outside);
            }
        }
        Ok(())
    }
}
