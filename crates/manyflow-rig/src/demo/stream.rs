//! `manyflow demo stream`: one stream of pictures to four receivers behind links of 0.3, 1, 3 and
//! 10 Mbit/s.
//!
//! ```text
//!   pictures -- sender -- relay --+-- 0.3 Mbit/s -- receiver
//!                                 +-- 1 Mbit/s   -- receiver
//!                                 +-- 3 Mbit/s   -- receiver
//!                                 +-- 10 Mbit/s  -- receiver
//! ```
//!
//! The links have 20 ms of delay in each direction, and drop packets when 100 ms of them wait. At
//! the end, the same picture as the four receivers got it becomes a PNG file.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use manyflow_core::units::Rate;
use manyflow_files::session::ReceiveError;
use manyflow_layered::unit::pattern::Picture;
use manyflow_streams::{SendControl, live_sender_config};
use serde_json::json;

use super::options::StreamDemoArgs;
use crate::stream_lab::{LINKS_KBIT, Pictures, Place, Reception, Span, Stage};
use manyflow_terminal::Display;
use manyflow_terminal::signals::interrupted;

const SECOND: Duration = Duration::from_secs(1);

/// Runs the demo.
///
/// # Errors
/// If a receiver gets no unit or a wrong one, or the picture cannot be written.
pub(super) async fn run(args: &StreamDemoArgs, display: &Display) -> Result<()> {
    ensure!(
        args.duration >= 4 * SECOND,
        manyflow_terminal::usage("--for must be at least 4 s")
    );
    tokio::select! {
        ended = watch(args, display) => ended,
        () = interrupted() => Err(ReceiveError::Stopped.into()),
    }
}

async fn watch(args: &StreamDemoArgs, display: &Display) -> Result<()> {
    let pictures = Arc::new(tokio::task::spawn_blocking(Pictures::encode).await??);
    display.print_line(&format!(
        "One sender of pictures, {:.1} Mbit/s in all, a relay, and four receivers, each behind a link of its own. A\n\
         picture is useful from its first byte on, and each further byte makes it better.\n",
        pictures.bits_per_s() / 1e6
    ))?;
    let control = SendControl::Sim(live_sender_config());
    let mut stage = Stage::start(&control, pictures, 1).await?;
    let mut receivers = Vec::new();
    for kbit in LINKS_KBIT {
        let rate = Rate::from_bits_per_s(1_000 * kbit);
        let relays = stage.relays();
        receivers.push(stage.receive(&Place::behind(rate, relays)).await?);
    }
    let table = display.spinner(String::new());
    let mut rows = String::new();
    while stage.now() < args.duration {
        stage
            .wait_until(args.duration.min(stage.now() + SECOND))
            .await;
        rows = show_second(&stage, &receivers, display).await?;
        let seconds = stage.now().as_secs();
        table.set_message(format!("{seconds} s: {}\n{rows}", group_rates(&stage)));
    }
    table.finish_and_clear();
    display.print_line(&format!("{}\n{rows}", group_rates(&stage)))?;
    for receiver in &receivers {
        let units = receiver.span(Duration::ZERO, stage.now()).counts.units;
        ensure!(
            units > 0,
            "the receiver behind {} got no unit",
            receiver.rate
        );
        ensure!(
            receiver.wrong() == 0,
            "the receiver behind {} got bytes that were not sent",
            receiver.rate
        );
    }
    let path = picture_path(args)?;
    write_pictures(&path, &receivers)?;
    display.print_line(&format!(
        "The same picture at the four receivers, in the order of the table: {}",
        path.display()
    ))?;
    display.print_json(&json!({ "event": "done", "picture": path }))?;
    Ok(())
}

/// Returns the cumulative rates of the groups as a line.
fn group_rates(stage: &Stage) -> String {
    let sender = *stage.progress.borrow();
    let rates = sender.rates[..sender.groups.into()].iter();
    let rates: Vec<_> = rates
        .map(|rate| format!("{:.2}", rate.bits_per_s() as f64 / 1e6))
        .collect();
    format!("groups up to {} Mbit/s", rates.join(", "))
}

/// Measures the last second, and returns the table.
async fn show_second(stage: &Stage, receivers: &[Reception], display: &Display) -> Result<String> {
    let now = stage.now();
    let mut rows = format!(
        "{:<12} {:>6} {:>12} {:>11} {:>13} {:>11} {:>11}\n",
        "link", "groups", "rate Mbit/s", "quality dB", "prefix bytes", "lost units", "latency ms"
    );
    let mut objects = Vec::new();
    for receiver in receivers {
        let span = receiver.span(now.saturating_sub(SECOND + SECOND / 8), now);
        let missing = receiver.span(Duration::ZERO, now).counts.missing;
        let quality = receiver.quality_db().await;
        write_row(&mut rows, receiver, &span, missing, quality)?;
        objects.push(json!({
            "link_bits_per_s": receiver.rate.bits_per_s(), "groups": span.counts.groups,
            "useful_bits_per_s": span.useful_bits_per_s(), "quality_db": quality,
            "prefix_bytes": prefix_bytes(&span), "lost_units": missing,
            "latency_ms": span.counts.latency.as_millis() as u64,
        }));
    }
    display.print_json(&json!({
        "event": "second", "seconds": now.as_secs_f64(), "receivers": objects,
    }))?;
    Ok(rows)
}

/// Returns the mean length of the prefixes.
fn prefix_bytes(span: &Span) -> u64 {
    span.counts.useful / span.counts.units.max(1)
}

fn write_row(
    rows: &mut String,
    receiver: &Reception,
    span: &Span,
    missing: u64,
    quality: f64,
) -> std::fmt::Result {
    writeln!(
        rows,
        "{:<12} {:>6} {:>12.2} {quality:>11.1} {:>13} {missing:>11} {:>11}",
        receiver.rate.to_string(),
        span.counts.groups,
        span.useful_bits_per_s() / 1e6,
        prefix_bytes(span),
        span.counts.latency.as_millis(),
    )
}

/// Returns the path that the options name, or a free one in the directory for temporary files.
fn picture_path(args: &StreamDemoArgs) -> Result<PathBuf> {
    if let Some(path) = &args.picture {
        return Ok(path.clone());
    }
    let file = tempfile::Builder::new()
        .prefix("manyflow-stream-")
        .suffix(".png")
        .tempfile()
        .context("cannot create a file for the picture")?;
    Ok(file.keep().context("cannot keep the picture")?.1)
}

/// Writes the last picture that all receivers have got, side by side.
fn write_pictures(path: &Path, receivers: &[Reception]) -> Result<()> {
    let recent: Vec<_> = receivers.iter().map(Reception::recent).collect();
    let (first, others) = recent.split_first().context("there are no receivers")?;
    let is_everywhere = |number: &u32| {
        let has = |units: &Vec<(u32, bytes::Bytes)>| units.iter().any(|(other, _)| other == number);
        others.iter().all(has)
    };
    let mut numbers = first.iter().rev().map(|(number, _)| *number);
    let number = numbers
        .find(is_everywhere)
        .context("no unit has reached all receivers")?;
    let of_number = |units: &Vec<(u32, bytes::Bytes)>| {
        let mut units = units.iter();
        let (_, prefix) = units.find(|(other, _)| *other == number)?;
        Pictures::decode(prefix)
    };
    let pictures: Option<Vec<_>> = recent.iter().map(of_number).collect();
    let pictures = pictures.context("a prefix does not contain the header of a picture")?;
    write_png(path, &pictures).with_context(|| format!("cannot write {}", path.display()))
}

/// Writes grey pictures of one size side by side.
fn write_png(path: &Path, pictures: &[Picture]) -> Result<()> {
    let size = pictures.first().context("there are no pictures")?.size;
    let width = size.width() * pictures.len();
    let mut points = Vec::with_capacity(width * size.height());
    for row in 0..size.height() {
        let range = row * size.width()..(row + 1) * size.width();
        pictures
            .iter()
            .for_each(|picture| points.extend_from_slice(&picture.points[range.clone()]));
    }
    let file = std::io::BufWriter::new(std::fs::File::create(path)?);
    let mut encoder = png::Encoder::new(file, width as u32, size.height() as u32);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&points)?;
    Ok(writer.finish()?)
}
