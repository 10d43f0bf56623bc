//! A group message over an overlay of three daemons in a line, with real contents. The "network" is
//! a queue of frames; a live driver would put sockets in its place.

#![allow(clippy::print_stdout, reason = "a program for the terminal")]

use std::collections::VecDeque;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use manyflow_core::{Ecn, Time};
use manyflow_overlay::controller::Open;
use manyflow_overlay::hop::{DatagramHop, Hop};
use manyflow_overlay::{
    ClientFrame, Daemon, DaemonId, Frame, GroupId, OverlayConfig, Topology, Transmit,
};

type Bytes = Vec<u8>;

fn main() -> Result<(), Box<dyn Error>> {
    let links = [(0, 1), (1, 2)].map(|(a, b)| (DaemonId(a), DaemonId(b), 1));
    let topology = Arc::new(Topology::new((0..3).map(DaemonId), &links)?);
    let mut daemons = Vec::new();
    for here in (0..3).map(DaemonId) {
        let neighbours = topology.neighbours(here).iter();
        let hops = neighbours.map(|_| Box::new(DatagramHop::new()) as Box<dyn Hop<Bytes>>);
        let (config, hops) = (OverlayConfig::default(), hops.collect());
        daemons.push(Daemon::fixed(
            config,
            Box::new(Open),
            here,
            Arc::clone(&topology),
            hops,
        )?);
    }

    let mut now = Time::ZERO;
    let group = GroupId(1);
    let reader = daemons[2].connect(now, 100);
    daemons[2].handle_client(now, reader, &ClientFrame::Join(group), Bytes::new());
    let writer = daemons[0].connect(now, 100);

    // Frames that arrive at the next step: from, to, frame, payload.
    let mut wire: VecDeque<(DaemonId, DaemonId, Frame, Bytes)> = VecDeque::new();
    for step in 0..50 {
        if step == 10 {
            let send = ClientFrame::Send {
                groups: group.into(),
                sent_us: 0,
                layered: false,
            };
            daemons[0].handle_client(now, writer, &send, b"hello, group".to_vec());
        }
        for (place, daemon) in daemons.iter_mut().enumerate() {
            let here = DaemonId(place as u16);
            while let Some(transmit) = daemon.poll_transmit() {
                match transmit {
                    Transmit::Daemon(to, frame, payload) => {
                        wire.push_back((here, to, frame, payload));
                    }
                    Transmit::Client(client, ClientFrame::Deliver { origin, .. }, payload) => {
                        let text = String::from_utf8_lossy(&payload);
                        println!("client {client:?} at {here:?} reads from {origin:?}: {text}");
                        let took = ClientFrame::Took { messages: 1 };
                        daemon.handle_client(now, client, &took, Bytes::new());
                    }
                    Transmit::Client(..) => {}
                }
            }
            while daemon.poll_event().is_some() {}
        }
        now += Duration::from_millis(1);
        for (from, to, frame, payload) in std::mem::take(&mut wire) {
            let to = &mut daemons[usize::from(to.0)];
            to.handle_frame(now, from, &frame, Ecn::NotCapable, payload);
        }
        for daemon in &mut daemons {
            daemon.handle_timeout(now);
        }
    }
    Ok(())
}
