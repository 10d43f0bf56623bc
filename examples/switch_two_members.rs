//! One connection to two servers behind an Anypoint switch: frames of the client are spread over
//! the servers, and each server's answers come back on the same connection.

#![allow(clippy::print_stdout, reason = "a program for the terminal")]

use std::collections::VecDeque;
use std::error::Error;
use std::time::Duration;

use manyflow_anypoint::switch::{Leg, MemberId, RoundRobin, Switch, SwitchConfig};
use manyflow_anypoint::{AcpConfig, Connection, Segment};
use manyflow_core::Time;

type Bytes = Vec<u8>;

/// Where a segment goes next.
#[derive(Copy, Clone)]
enum To {
    Client,
    Server(usize),
    Switch(Leg),
}

fn main() -> Result<(), Box<dyn Error>> {
    let config = AcpConfig::default();
    let (mut answers, mut now) = (0, Time::ZERO);
    let mut client: Connection<Bytes> = Connection::connect(config.clone(), 1, now)?;
    let mut servers = [(); 2].map(|()| Connection::<Bytes>::listen(config.clone()));
    let policy = RoundRobin::default();
    let mut switch: Switch<Bytes, _> = Switch::new(SwitchConfig::default(), policy, servers.len())?;
    let mut to_send: VecDeque<u32> = (0..6).collect();
    // Segments that arrive a millisecond later.
    let mut wire: Vec<(To, Segment, Bytes)> = Vec::new();

    while answers < 6 && now < Time::from_secs_f64(10.0) {
        while let Some(key) = to_send.pop_front() {
            if client
                .send(key, format!("request {key}").into_bytes())
                .is_err()
            {
                to_send.push_front(key);
                break;
            }
        }
        while let Some(frame) = client.receive(now) {
            answers += 1;
            println!("client reads: {}", String::from_utf8_lossy(&frame.payload));
        }
        while let Some((segment, payload)) = client.poll_transmit(now) {
            wire.push((To::Switch(Leg::Peer), segment, payload.unwrap_or_default()));
        }
        for (number, server) in servers.iter_mut().enumerate() {
            let server = server.as_mut().map_err(|error| error.clone())?;
            while let Some(frame) = server.receive(now) {
                let request = String::from_utf8_lossy(&frame.payload).into_owned();
                let answer = format!("answer of server {number} to {request}");
                if server.send(frame.key, answer.into_bytes()).is_err() {
                    return Err("a server's send buffer is full".into());
                }
            }
            while let Some((segment, payload)) = server.poll_transmit(now) {
                let leg = Leg::Member(MemberId(number as u16));
                wire.push((To::Switch(leg), segment, payload.unwrap_or_default()));
            }
        }
        while let Some((leg, segment, payload)) = switch.poll_transmit() {
            let to = match leg {
                Leg::Peer => To::Client,
                Leg::Member(MemberId(number)) => To::Server(number.into()),
            };
            wire.push((to, segment, payload));
        }

        now += Duration::from_millis(1);
        for (to, segment, payload) in wire.drain(..) {
            match to {
                To::Client => client.handle_segment(now, &segment, payload),
                To::Switch(leg) => switch.handle_segment(now, leg, &segment, payload),
                To::Server(number) => {
                    if let Ok(server) = &mut servers[number] {
                        server.handle_segment(now, &segment, payload);
                    }
                }
            }
        }
        client.handle_timeout(now);
        switch.handle_timeout(now);
        for server in servers.iter_mut().flatten() {
            server.handle_timeout(now);
        }
    }
    Ok(())
}
