//! The attacker's sockets, and what it has learnt from the session.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use manyflow_amt::wire::Message;
use manyflow_amt::{Flow, ip};
use manyflow_files::sdp::SessionDescription;
use manyflow_files::session::flows;
use manyflow_webrc::{Cci, CciFormat};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};

use crate::attack::forge::Real;
use crate::attack::world::{ATTACKER, Host, INTERFACE, RECEIVER, SENDER, World};

/// Number of the session's latest packets that the attacker remembers.
const REMEMBERED: usize = 256;
/// The time for which an attacker that could not run makes up. A longer burst would be another
/// attack.
const BURST: Duration = Duration::from_millis(50);
/// Number of the latest packets whose channels receivers have probably joined.
const RECENT: usize = 32;
/// IPPROTO_RAW: the kernel expects a complete IP header (raw(7)).
const COMPLETE_HEADER: i32 = 255;

/// The way of the attacker's packets to the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// To the session's groups.
    Multicast,
    /// As messages of the relay, to the receiver's UDP port.
    Tunnel(u16),
}

pub(crate) struct Attacker {
    pub(crate) description: SessionDescription,
    pub(crate) way: Way,
    pub(crate) random: Pcg64Mcg,
    flows: Vec<Flow>,
    raw: Socket,
    session: Socket,
    /// The session's latest packets, the newest at the back.
    heard: VecDeque<Vec<u8>>,
    /// Number of packets of the base channel that the attacker has heard.
    pub(crate) base_packets: u64,
}

impl Attacker {
    /// Opens the attacker's sockets, and joins all groups of the session.
    pub(crate) fn new(world: &World, description: SessionDescription, way: Way) -> Attacker {
        let flows = flows(&description);
        let (raw, session) = world.on(Host::Attacker, || {
            let groups_max = flows.len().to_string();
            std::fs::write("/proc/sys/net/ipv4/igmp_max_memberships", groups_max).unwrap();
            (open_raw(), join(&flows))
        });
        Attacker {
            description,
            way,
            random: Pcg64Mcg::seed_from_u64(7),
            flows,
            raw,
            session,
            heard: VecDeque::new(),
            base_packets: 0,
        }
    }

    /// Repeats `forge` at no more than this rate in a thread of its own, with the number of the
    /// repetition.
    pub(crate) fn start(
        mut self,
        per_s: u32,
        mut forge: impl FnMut(&mut Attacker, u64) + Send + 'static,
    ) -> Attack {
        Attack::start(per_s, move |number| {
            self.listen();
            if let Some(number) = number {
                forge(&mut self, number);
            }
        })
    }

    /// Takes the session's packets that have arrived.
    fn listen(&mut self) {
        let mut buffer = [0; 2_048];
        loop {
            match self.session.read(&mut buffer) {
                Ok(length) => {
                    let bytes = &buffer[..length];
                    let real = Real::decode(bytes);
                    let is_base = real.is_some_and(|real| real.cci.channel == self.base());
                    self.base_packets += u64::from(is_base);
                    self.heard.push_back(bytes.to_vec());
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("the attacker hears nothing: {error}"),
            }
        }
        let surplus = self.heard.len().saturating_sub(REMEMBERED);
        self.heard.drain(..surplus);
    }

    /// Returns the latest packet of the session for which `choose` returns true.
    pub(crate) fn latest(&self, choose: impl Fn(&Real<'_>) -> bool) -> Option<Real<'_>> {
        let real = self.heard.iter().rev();
        real.filter_map(|bytes| Real::decode(bytes)).find(choose)
    }

    /// Returns the latest packet that carries a symbol of a file.
    pub(crate) fn latest_data(&self) -> Option<Real<'_>> {
        self.latest(|real| real.toi.is_some_and(|toi| toi > 0))
    }

    /// Returns the number of the base channel.
    pub(crate) fn base(&self) -> u16 {
        self.description.webrc.wave_channels() as u16
    }

    /// Returns congestion control information that the base channel could have now.
    pub(crate) fn base_cci(&self) -> Cci {
        let base = self.base();
        self.latest(|real| real.cci.channel == base).map_or(
            Cci {
                ctsi: 0,
                channel: base,
                psn: 0,
                format: CciFormat::Short,
            },
            |real| real.cci,
        )
    }

    /// Returns congestion control information of a packet that the sender will soon send: one of
    /// its next 8 on a channel.
    pub(crate) fn next_cci(&mut self) -> Cci {
        let mut cci = self.recent_cci();
        let channel = cci.channel;
        if let Some(latest) = self.latest(|real| real.cci.channel == channel) {
            cci = latest.cci;
        }
        cci.psn = (cci.psn + self.random.random_range(1..=8)) & 0xffff;
        cci
    }

    /// Returns the congestion control information of one of the latest packets.
    fn recent_cci(&mut self) -> Cci {
        let recent = self.heard.len().min(RECENT);
        if recent == 0 {
            return self.base_cci();
        }
        let chosen = self.heard.len() - 1 - self.random.random_range(0..recent);
        Real::decode(&self.heard[chosen]).map_or(self.base_cci(), |real| real.cci)
    }

    /// Returns congestion control information of a packet that the sender has sent on a wave before
    /// the receiver joined it, as far as the attacker can guess. Such a number is neither a loss
    /// nor that of another packet.
    pub(crate) fn late_cci(&mut self) -> Cci {
        let mut cci = self.recent_cci();
        if cci.channel < self.base() {
            cci.psn = cci.psn.saturating_sub(self.random.random_range(0..1_000));
        }
        cci
    }

    /// Sends a datagram on the channel that its congestion control information names.
    pub(crate) fn send(&self, datagram: &[u8]) {
        let channel = Real::decode(datagram).map_or(self.base(), |forged| forged.cci.channel);
        self.send_on(channel, datagram);
    }

    /// Sends a datagram on a channel.
    pub(crate) fn send_on(&self, channel: u16, datagram: &[u8]) {
        let Some(flow) = self.flows.get(usize::from(channel)) else {
            return;
        };
        match self.way {
            Way::Multicast => self.send_ip(flow, datagram),
            Way::Tunnel(port) => self.send_through_tunnel(flow, datagram, port),
        }
    }

    /// Sends a datagram on the base channel as a message of the relay to a UDP port.
    pub(crate) fn send_to_port(&self, datagram: &[u8], port: u16) {
        let flow = self.flows[usize::from(self.base())];
        self.send_through_tunnel(&flow, datagram, port);
    }

    fn send_through_tunnel(&self, flow: &Flow, datagram: &[u8], port: u16) {
        let mut inner = Vec::new();
        // A datagram that is too long for the tunnel is not sent.
        if ip::encode_udp(flow, datagram, &mut inner).is_ok() {
            self.send_as_relay(&Message::MulticastData { datagram: &inner }, port);
        }
    }

    /// Sends an AMT message to the receiver under the relay's address.
    pub(crate) fn send_as_relay(&self, message: &Message<'_>, port: u16) {
        let source = self.relay();
        let group = (RECEIVER, port).into();
        self.send_message(&Flow { source, group }, message);
    }

    /// Sends an AMT message to the relay under any address.
    pub(crate) fn send_to_relay(&self, message: &Message<'_>, source: SocketAddr) {
        let group = self.relay();
        self.send_message(&Flow { source, group }, message);
    }

    fn send_message(&self, flow: &Flow, message: &Message<'_>) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        self.send_ip(flow, &bytes);
    }

    pub(crate) fn relay(&self) -> SocketAddr {
        let port = self.description.amt_relay.as_ref().unwrap().port;
        (SENDER, port).into()
    }

    fn send_ip(&self, flow: &Flow, payload: &[u8]) {
        send_ip(&self.raw, flow, payload);
    }
}

/// Sends a UDP datagram whose source is that of `flow`.
pub(crate) fn send_ip(raw: &Socket, flow: &Flow, payload: &[u8]) {
    let mut datagram = Vec::new();
    if ip::encode_udp(flow, payload, &mut datagram).is_err() {
        return;
    }
    // A full queue drops packets, as any network does.
    let _ = raw.send_to(&datagram, &flow.group.into());
}

/// An attack under way, which ends when it is dropped.
pub(crate) struct Attack {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Attack {
    /// Calls `turn` again and again in a thread of its own. No more often than this rate, it passes
    /// the number of the repetition.
    pub(crate) fn start(per_s: u32, mut turn: impl FnMut(Option<u64>) + Send + 'static) -> Attack {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut due = Instant::now();
            let mut repetitions = 0;
            while !stopped.load(Ordering::Relaxed) {
                let now = Instant::now();
                if now < due {
                    turn(None);
                    thread::sleep(Duration::from_millis(1));
                    continue;
                }
                turn(Some(repetitions));
                repetitions += 1;
                let earliest = now.checked_sub(BURST).unwrap_or(now);
                due = due.max(earliest) + Duration::from_secs(1) / per_s;
            }
            repetitions
        });
        Attack { stop, thread }
    }

    /// Ends the attack, and returns the number of its repetitions.
    pub(crate) fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// Opens a socket of the attacker for packets with any source.
pub(crate) fn open_raw() -> Socket {
    let protocol = Some(Protocol::from(COMPLETE_HEADER));
    let raw = Socket::new(Domain::IPV4, Type::RAW, protocol).unwrap();
    raw.set_multicast_if_v4(&ATTACKER).unwrap();
    // The attacker does not hear itself.
    raw.set_multicast_loop_v4(false).unwrap();
    raw.bind_device(Some(INTERFACE.as_bytes())).unwrap();
    raw
}

fn join(flows: &[Flow]) -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
    socket.set_recv_buffer_size(4 << 20).unwrap();
    let any: SocketAddr = (Ipv4Addr::UNSPECIFIED, flows[0].group.port()).into();
    socket.bind(&any.into()).unwrap();
    for flow in flows {
        let SocketAddr::V4(group) = flow.group else {
            panic!("{flow:?} is not IPv4");
        };
        let interface = InterfaceIndexOrAddress::Address(ATTACKER);
        socket.join_multicast_v4_n(group.ip(), &interface).unwrap();
    }
    socket.set_nonblocking(true).unwrap();
    socket
}
