//! `manyflow stream recv`: receives a stream, and passes its units to a folder, pipe or program.

use std::time::Duration;

use anyhow::Result;
use manyflow_core::units::{Bytes, Rate, parse_duration};
use manyflow_layered::unit::Latency;
use manyflow_net::description::load::{Trust, load_text};
use manyflow_net::keys::PublicKey;
use manyflow_streams::{
    LATENCY_AUTO, StreamDescription, StreamReceiveConfig, StreamReceiveProgress, receive,
};
use serde_json::json;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::consume::Consumer;
use super::read_key;
use crate::cli::StreamRecvArgs;
use crate::keygen::trusted_keys;
use crate::recv::{announce_route, way};
use manyflow_terminal::display::{self, Display, OutputError};
use manyflow_terminal::signals::{END_GRACE, elapsed, interrupted};
use manyflow_terminal::{streams, usage};

/// Units that wait for the consumer. More are dropped.
const UNITS_MAX: usize = 1_024;

pub(crate) async fn run(args: StreamRecvArgs, display: &Display) -> Result<()> {
    let trust = Trust {
        signers: trusted_keys(&args.trust)?,
        ca: args.ca.clone(),
    };
    let (description, signer) = load_stream(&args.session, &trust).await?;
    // If units go to standard output, nothing else does.
    let pipe = args.pipe.as_deref().and_then(|path| path.to_str());
    let lines = match [pipe, args.video.as_deref()].contains(&Some("-")) {
        true => display.on_standard_error(),
        false => display.clone(),
    };
    let interruption = interrupted();
    print_session(&description, signer, &lines)?;
    let consumer = Consumer::open(&args, &lines)?;
    let source = description.source;
    let config = config(&args, description).await?;
    announce_route(&config.route, source, &lines)?;
    let (watched, progress) = watch::channel(StreamReceiveProgress::default());
    let pages = streams::pages("stream recv", progress.clone(), streams::received);
    let _metrics = pages.serve(args.metrics, &lines).await?;
    let (units, received) = mpsc::channel(UNITS_MAX);
    // The consumer ends before the stream only if its output fails.
    let (ended, failed) = oneshot::channel::<()>();
    let consuming = tokio::spawn(async move {
        let _ended = ended;
        consumer.consume(received).await
    });
    let failed = async move {
        let _ = failed.await;
    };
    let (watching, unheard) = display::watch(watch_progress(progress, lines.clone()));
    let mut is_asked = false;
    let stop = async {
        tokio::select! {
            () = interruption => {}
            () = unheard => {}
            () = elapsed(args.duration) => {}
            () = failed => {}
        }
        is_asked = true;
    };
    let result = receive(config, units, watched, stop).await;
    watching.abort();
    let watched = watching.await.unwrap_or(Ok(()));
    let consumed = end_consumer(consuming, is_asked).await;
    watched?;
    let progress = result?;
    consumed?;
    lines.print_json(&streams::received("done", &progress))?;
    lines.print_line(&format!(
        "{} units, {} in prefixes; {} packets lost of {}",
        progress.units.units,
        Bytes(progress.units.bytes),
        progress.lost,
        progress.packets + progress.lost
    ))?;
    Ok(())
}

/// Waits until the consumer has taken the last units. After this process was asked to end, a pipe
/// without a reader or a program that does not end holds it up for a short time only.
async fn end_consumer(mut consuming: JoinHandle<Result<()>>, is_asked: bool) -> Result<()> {
    let overdue = async {
        if !is_asked {
            interrupted().await;
        }
        sleep(END_GRACE).await;
    };
    tokio::select! {
        ended = &mut consuming => ended?,
        () = overdue => {
            tracing::warn!(
                "the last units are lost: the output has not taken them within {:.1} s",
                END_GRACE.as_secs_f64()
            );
            // Ends the program of the output, if there is one.
            consuming.abort();
            let _ = consuming.await;
            Ok(())
        }
    }
}

/// Loads the description of a stream, with the key that signed it.
async fn load_stream(
    session: &str,
    trust: &Trust,
) -> Result<(StreamDescription, Option<PublicKey>)> {
    let (text, _) = load_text(session, trust).await?;
    StreamDescription::parse(&text).map_err(|error| usage(error.to_string()))
}

fn print_session(
    description: &StreamDescription,
    signer: Option<PublicKey>,
    lines: &Display,
) -> Result<(), OutputError> {
    lines.print_json(&json!({
        "event": "session",
        "name": description.name,
        "protocol": description.protocol.to_string(),
        "groups": description.groups,
        "signer": signer.map(|signer| signer.to_string()),
    }))
}

async fn config(
    args: &StreamRecvArgs,
    description: StreamDescription,
) -> Result<StreamReceiveConfig> {
    let way = way(&args.relay, args.interface.as_deref());
    let flow = description.flows().first().copied();
    let route = way.route(&args.session, description.amt_relay.as_ref(), flow);
    let route = route.await.map_err(|error| usage(error.to_string()))?;
    Ok(StreamReceiveConfig {
        groups_max: args.groups_max,
        key: read_key(args.key.as_deref())?,
        latency: latency(&args.latency)?,
        patience: args.patience,
        ..StreamReceiveConfig::new(description, route)
    })
}

/// Parses the value of --latency.
fn latency(text: &str) -> Result<Latency> {
    match text {
        "auto" => Ok(LATENCY_AUTO),
        time => parse_duration(time)
            .map(Latency::Fixed)
            .map_err(|error| usage(format!("--latency: {error}; or give \"auto\""))),
    }
}

/// Reports the receiver's progress, until it is aborted or standard output cannot be written to.
async fn watch_progress(
    progress: watch::Receiver<StreamReceiveProgress>,
    display: Display,
) -> Result<(), OutputError> {
    let spinner = display.spinner("waiting for the stream".to_owned());
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    let mut last = StreamReceiveProgress::default();
    loop {
        tick.tick().await;
        let now = *progress.borrow();
        let rate = Rate::from_bits_per_s((now.bytes - last.bytes) * 8);
        let lost = now.lost - last.lost;
        last = now;
        spinner.set_message(format!(
            "{rate} in {} groups; {} units, {} missed; {lost} packets lost in the last second; latency {} ms",
            now.groups,
            now.units.units,
            now.units.units_missing,
            now.latency.as_millis(),
        ));
        display.print_json(&streams::received("progress", &now))?;
    }
}
