//! `manyflow stream send`: sends the units of a source in layers.

use anyhow::Result;
use manyflow_core::units::{Bytes, Rate};
use manyflow_files::sending::place::relay_address;
use manyflow_layered::{GROUPS_MAX, rlm, sim};
use manyflow_net::publish::DESCRIPTION_PATH;
use manyflow_streams::{
    LIVE_PACKET_BYTES, OpenedStream, SendControl, SourceError, StreamDescription, StreamOpenError,
    StreamSendConfig, StreamSendProgress, live_multicast_sender_config, live_sender_config,
};
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::{feed, read_key};
use crate::address::cannot_listen;
use crate::cli::{StreamProtocolArg, StreamSendArgs};
use crate::send::{Publication, announce_multicast, announce_urls, groups, publish, signing_key};
use manyflow_terminal::display::{self, Display, OutputError};
use manyflow_terminal::signals::{elapsed, interrupted};
use manyflow_terminal::{streams, usage};

/// Units that wait for the sender.
const UNITS_MAX: usize = 2;

pub(crate) async fn run(args: StreamSendArgs, display: &Display) -> Result<()> {
    let identity = args.servers.identity()?;
    let control = control(&args)?;
    let source = feed::open(&args)?;
    let OpenedStream {
        description,
        sender,
    } = OpenedStream::open(config(&args, control)?).map_err(explain)?;
    let signing = signing_key(args.sign.as_deref())?;
    let text = description.to_sdp(signing.as_ref());
    let text = text.map_err(|error| usage(error.to_string()))?;
    if let Some(path) = &args.session {
        crate::send::description::write(path, &text)?;
    }
    let descriptions = [(DESCRIPTION_PATH.to_owned(), text.clone())];
    let publication = Publication::of(args.servers.publish, args.leaves_way_open());
    let publisher = publish(publication, descriptions.into(), identity).await?;
    let urls = publisher
        .as_ref()
        .map(|publisher| publisher.urls(description.source, DESCRIPTION_PATH));
    let is_text_printed = urls.is_none() && args.session.is_none();
    let lines = match is_text_printed {
        true => display.on_standard_error(),
        false => display.clone(),
    };
    let sender = sender.with_first_number(args.first_number);
    let progress = sender.progress();
    let pages = streams::pages("stream send", progress.clone(), streams::sent);
    let _metrics = pages.serve(args.servers.metrics, &lines).await?;
    let interruption = interrupted();
    if args.multicast.is_some() {
        let is_named = args.interface.is_some();
        announce_multicast(description.source, is_named, args.ttl, &lines)?;
    }
    announce(&description, &text, &urls.unwrap_or_default(), &lines)?;
    if is_text_printed {
        display.print_line(text.trim_end())?;
    }
    let (units, received) = mpsc::channel(UNITS_MAX);
    let feeding = tokio::spawn(feed::feed(source, units));
    let (watching, unheard) = display::watch(watch_progress(progress, lines.clone()));
    let mut is_asked = false;
    let stop = async {
        tokio::select! {
            () = interruption => {}
            () = unheard => {}
            () = elapsed(args.duration) => {}
        }
        is_asked = true;
    };
    let sent = sender.run(received, stop).await;
    watching.abort();
    watching.await.unwrap_or(Ok(()))?;
    end_feeding(feeding, is_asked).await?;
    lines.print_json(&streams::sent("done", &sent))?;
    lines.print_line(&format!(
        "sent {} units in {} packets, {}",
        sent.cutter.units,
        sent.packets,
        Bytes(sent.bytes)
    ))?;
    Ok(())
}

impl StreamSendArgs {
    /// Whether the user leaves the way to receivers open: packets then go through a relay, and the
    /// description is published.
    fn leaves_way_open(&self) -> bool {
        self.multicast.is_none() && self.listen.is_none()
    }
}

/// Ends the source, and its program if there is one. Returns the error of a source that has ended.
/// A stream that was not asked to end has seen the end of the units, a moment before the task ends.
async fn end_feeding(feeding: JoinHandle<Result<(), SourceError>>, is_asked: bool) -> Result<()> {
    if !is_asked || feeding.is_finished() {
        return Ok(feeding.await??);
    }
    feeding.abort();
    let _ = feeding.await;
    Ok(())
}

/// Returns the rate control that the options describe.
fn control(args: &StreamSendArgs) -> Result<SendControl> {
    let packet_bytes = args.packet.map_or(LIVE_PACKET_BYTES, u32::from);
    let live = match args.multicast {
        Some(_) => live_multicast_sender_config(),
        None => live_sender_config(),
    };
    Ok(match args.protocol {
        StreamProtocolArg::Sim => SendControl::Sim(sim::SenderConfig {
            groups: args.groups,
            packet_bytes,
            maximum_rate: args.max_rate,
            ..live
        }),
        StreamProtocolArg::Rlm => {
            if args.group_rate.len() > GROUPS_MAX.into() {
                return Err(usage("--group-rate: a stream has at most 32 groups"));
            }
            SendControl::Rlm(rlm::SenderConfig {
                rates: args.group_rate.clone(),
                packet_bytes,
            })
        }
    })
}

/// Returns the stream that the options describe. Without an address for its relay, and without
/// groups, the relay is on all addresses, on its usual port or any free one.
fn config(args: &StreamSendArgs, control: SendControl) -> Result<StreamSendConfig> {
    let groups = groups(args.multicast, args.interface.as_deref(), args.ttl);
    let leaves_way_open = args.leaves_way_open();
    Ok(StreamSendConfig {
        control,
        fits_mtu: args.packet.is_none(),
        port: args.port,
        listen: args.listen.or_else(|| leaves_way_open.then(relay_address)),
        or_any_port: leaves_way_open,
        key: read_key(args.key.as_deref())?,
        ..StreamSendConfig::new(&args.name, groups)
    })
}

/// Names the options that an error is about.
fn explain(error: StreamOpenError) -> anyhow::Error {
    match error {
        StreamOpenError::Listen { address, cause } => cannot_listen("--listen", address, cause),
        StreamOpenError::Range { groups } => usage(format!(
            "the stream has {groups} groups, more than the range of --multicast has"
        )),
        StreamOpenError::Version => usage(
            "without --multicast, --listen needs an IPv4 address: give one, or groups of IPv6 with --multicast",
        ),
        StreamOpenError::Config(error) => usage(error.to_string()),
        other => other.into(),
    }
}

/// Prints what is about to be sent, and the URL of the description.
fn announce(
    description: &StreamDescription,
    text: &str,
    urls: &[String],
    display: &Display,
) -> Result<()> {
    let (name, protocol, groups) = (&description.name, description.protocol, description.groups);
    display.print_line(&format!("sending {name} by {protocol} in {groups} groups"))?;
    announce_urls("stream recv", urls, display)?;
    display.print_json(&json!({"event": "started", "session": text}))?;
    Ok(())
}

/// Reports the sender's progress, until it is aborted or standard output cannot be written to.
async fn watch_progress(
    progress: watch::Receiver<StreamSendProgress>,
    display: Display,
) -> Result<(), OutputError> {
    let spinner = display.spinner("waiting for receivers".to_owned());
    let mut tick = tokio::time::interval(std::time::Duration::from_secs(1));
    loop {
        tick.tick().await;
        let now = *progress.borrow();
        let rates: Vec<_> = streams::rates(&now).iter().map(Rate::to_string).collect();
        spinner.set_message(format!(
            "{} units to {} receivers; cumulative rates {}",
            now.cutter.units,
            now.receivers,
            rates.join(", ")
        ));
        display.print_json(&streams::sent("progress", &now))?;
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::yield_now;

    use super::*;

    #[tokio::test]
    async fn a_source_that_fails_behind_its_last_unit_is_an_error() {
        let (units, mut received) = mpsc::channel::<()>(1);
        let feeding = tokio::spawn(async move {
            drop(units);
            yield_now().await;
            Err(SourceError::Fps(0.0))
        });
        assert_eq!(received.recv().await, None);
        assert!(end_feeding(feeding, false).await.is_err());
    }

    #[tokio::test]
    async fn a_source_that_waits_does_not_hold_up_a_stream_that_was_asked_to_end() {
        let feeding = tokio::spawn(std::future::pending());
        assert!(end_feeding(feeding, true).await.is_ok());
    }
}
