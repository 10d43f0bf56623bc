//! A time series as layered data: each unit holds coarse samples first, so every prefix decodes.
//! Its packets are sent in three groups, of which 3 % are lost. Prints the error of receivers that
//! have joined one, two or three groups.

#![allow(clippy::print_stdout, reason = "a program for the terminal")]

use std::error::Error;
use std::time::Duration;

use manyflow_core::Time;
use manyflow_layered::unit::{Assembler, AssemblerConfig, Cutter, Latency, Piece, Unit};

const SAMPLES: usize = 1_024;
const INTERVAL: Duration = Duration::from_millis(100);
/// The rates of the groups in bytes per second.
const RATES: [f64; 3] = [1_500.0, 3_000.0, 20_000.0];

/// The samples of one unit: a tone whose pitch depends on the number of the unit.
fn samples(number: u32) -> Vec<i16> {
    let step = 0.02 + f64::from(number) * 0.001;
    let sample = |at: usize| 10_000.0 * (at as f64 * step).sin();
    (0..SAMPLES).map(|at| sample(at) as i16).collect()
}

/// The places of the samples, coarse first: every 512th, then the ones halfway between, and so on.
fn order() -> impl Iterator<Item = usize> {
    let step = |level: u32| SAMPLES >> (level + 1);
    let finer = move |level| (step(level)..SAMPLES).step_by(2 * step(level));
    std::iter::once(0).chain((0..SAMPLES.ilog2()).flat_map(finer))
}

fn encode(samples: &[i16]) -> Vec<u8> {
    order().flat_map(|at| samples[at].to_be_bytes()).collect()
}

/// Decodes a prefix. A sample that has not come repeats the known sample before it.
fn decode(prefix: &[u8]) -> Vec<i16> {
    let mut known = vec![None; SAMPLES];
    for (at, bytes) in order().zip(prefix.chunks_exact(2)) {
        known[at] = Some(i16::from_be_bytes([bytes[0], bytes[1]]));
    }
    let repeat = |last: &mut i16, sample: Option<i16>| {
        *last = sample.unwrap_or(*last);
        Some(*last)
    };
    known.into_iter().scan(0, repeat).collect()
}

fn rms_error(unit: &Unit) -> f64 {
    let decoded = decode(&unit.prefix);
    let pairs = samples(unit.number).into_iter().zip(decoded);
    let squares = pairs.map(|(a, b)| (f64::from(a) - f64::from(b)).powi(2));
    (squares.sum::<f64>() / SAMPLES as f64).sqrt()
}

/// Sends 100 units to a receiver of the lowest `joined` groups.
fn receive(joined: u8) -> Result<Vec<Unit>, Box<dyn Error>> {
    let mut cutter = Cutter::new(3, INTERVAL);
    let latency = Latency::Fixed(2 * INTERVAL);
    let mut assembler = Assembler::new(AssemblerConfig {
        latency,
        ..AssemblerConfig::default()
    });
    let (mut now, mut packets, mut units) = (Time::ZERO, 0u32, Vec::new());
    for number in 0..100 {
        let unit = encode(&samples(number));
        cutter.push_unit(number * 100_000, unit.into(), INTERVAL, &RATES);
        for group in 0..3 {
            let mut payload = Vec::new();
            while cutter.next_payload(group, 216, &mut payload) {
                packets += 1;
                let is_lost = packets.wrapping_mul(2_654_435_761) >> 24 < 8;
                for decoded in Piece::decode_all(&payload).filter(|_| group < joined && !is_lost) {
                    let (piece, bytes) = decoded?;
                    assembler.handle_piece(now, piece, bytes);
                }
                payload.clear();
            }
        }
        now += INTERVAL;
        units.extend(std::iter::from_fn(|| assembler.poll_unit(now)));
    }
    Ok(units)
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("groups  units  bytes per unit  RMS error");
    for joined in 1..=3 {
        let units = receive(joined)?;
        let count = units.len() as f64;
        let bytes = units.iter().map(|unit| unit.prefix.len()).sum::<usize>() as f64;
        let error = units.iter().map(rms_error).sum::<f64>();
        println!(
            "{joined:6}  {:5}  {:14.0}  {:9.0}",
            units.len(),
            bytes / count,
            error / count
        );
    }
    Ok(())
}
