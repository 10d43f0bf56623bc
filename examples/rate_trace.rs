//! Writes the course of a wireless link as a rate trace in Mahimahi's format, or describes a trace.
//!
//! ```text
//! rate_trace lte 12Mbit/s 60s 1 > lte.trace    # a shape, its average rate, a duration, a seed
//! rate_trace lte.trace                         # its rate, and how the rate varies
//! ```

#![allow(clippy::print_stdout, reason = "a program for the terminal")]

use std::error::Error;

use manyflow_core::link::{RateTrace, Shape, ShapeKind};
use manyflow_core::units::{Rate, parse_duration};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [kind, mean, duration, seed] => {
            let shape = Shape::new(kind_named(kind)?, mean.parse()?);
            let duration_ms = parse_duration(duration)?.as_millis().try_into()?;
            print!("{}", shape.trace(seed.parse()?, duration_ms)?);
        }
        [file] => {
            let trace = std::fs::read_to_string(file)?.parse::<RateTrace>();
            describe(&trace.map_err(|error| error.in_file(file))?);
        }
        [] => {
            let shape = Shape::new(ShapeKind::Lte, Rate::from_bits_per_s(12_000_000));
            describe(&shape.trace(1, 60_000)?);
        }
        _ => return Err("usage: rate_trace SHAPE RATE DURATION SEED, or rate_trace FILE".into()),
    }
    Ok(())
}

fn kind_named(name: &str) -> Result<ShapeKind, String> {
    match name {
        "lte" => Ok(ShapeKind::Lte),
        "5g" => Ok(ShapeKind::MmWave),
        "wifi" => Ok(ShapeKind::Wifi),
        "starlink" => Ok(ShapeKind::Starlink),
        _ => Err(format!("`{name}` is none of lte, 5g, wifi and starlink")),
    }
}

/// Prints the average rate, the deviation of the rate over it, and the gaps above 100 ms.
fn describe(trace: &RateTrace) {
    let text = trace.to_string();
    let times: Vec<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
    println!("{} in {} s", trace.rate(), trace.duration_ms() / 1000);
    for window_ms in [1000, 100] {
        let mut counts = vec![0.0; (trace.duration_ms() / window_ms) as usize];
        for time in &times {
            if let Some(count) = counts.get_mut((time / window_ms) as usize) {
                *count += 1.0;
            }
        }
        let windows = counts.len().max(1) as f64;
        let mean = counts.iter().sum::<f64>() / windows;
        let squares = counts.iter().map(|count| (count - mean) * (count - mean));
        let deviation = (squares.sum::<f64>() / windows).sqrt() / mean;
        println!(
            "over {window_ms} ms, the rate deviates by {:.0} %",
            100.0 * deviation
        );
    }
    let gaps = times.windows(2).map(|pair| pair[1] - pair[0]);
    let long: Vec<u32> = gaps.filter(|gap| *gap > 100).collect();
    let (total, longest) = (long.iter().sum::<u32>(), long.iter().max().unwrap_or(&0));
    let share = 100.0 * f64::from(total) / f64::from(trace.duration_ms());
    let mean = f64::from(total) / long.len().max(1) as f64;
    println!(
        "gaps above 100 ms: {share:.1} % of the time, {mean:.0} ms on average, at most {longest} ms"
    );
}
