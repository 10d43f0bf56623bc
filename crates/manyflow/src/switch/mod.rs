//! `manyflow switch`: a switch between peers and the members of a service.

mod file;

use std::time::Duration;

use anyhow::{Context as _, Result};
use manyflow_ensembles::anypoint::switch::{
    ServiceError, StartError, SwitchHandle, SwitchOptions, start, start_initiators,
};
use manyflow_net::metrics::MetricsServer;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::address::cannot_listen;
use crate::cli::SwitchArgs;
use file::{Ends, ServiceFile};
use manyflow_terminal::Display;
use manyflow_terminal::usage;

pub(crate) async fn run(args: SwitchArgs, display: &Display) -> Result<()> {
    let display = display.on_standard_error();
    let file = ServiceFile::of(&args)?;
    let options = SwitchOptions {
        connections_max: args.connections_max as usize,
    };
    // The handlers exist before anybody learns that the switch is ready.
    let mut hangups = signal(SignalKind::hangup()).context("cannot handle SIGHUP")?;
    let listen = file.listen(&args)?;
    let metrics = file.metrics(&args)?;
    let mut ends = file.ends().await?;
    let switch = match &ends {
        Ends::Members(service) => start(listen, service.clone(), options),
        Ends::Peer(peer) => start_initiators(listen, *peer, options),
    };
    let switch = switch.map_err(|error| match error {
        StartError::Address(address, cause) => cannot_listen("--listen", address, cause),
        error => error.into(),
    })?;
    let pages = crate::metrics::switch_pages(switch.status());
    let pages = pages.serve(metrics, &display).await?;
    let mut signals = [SignalKind::interrupt(), SignalKind::terminate()].map(signal);
    let [interrupt, terminate] = &mut signals;
    let (interrupt, terminate) = (interrupt.as_mut(), terminate.as_mut());
    let (Ok(interrupt), Ok(terminate)) = (interrupt, terminate) else {
        anyhow::bail!("cannot handle SIGINT and SIGTERM");
    };
    announce(&switch, pages.as_ref(), &display)?;
    // A name server that does not answer delays a reload, but not the end.
    let reloads = async {
        let mut complaint = None;
        loop {
            let is_asked = tokio::time::timeout(args.refresh, hangups.recv())
                .await
                .is_ok();
            let reloaded = reload(&args, &switch, &mut ends, is_asked, &display).await;
            let failed = reloaded.err().map(|error| format!("{error:#}"));
            if let Some(reason) = failed.as_ref().filter(|_| is_asked || failed != complaint) {
                display.fail(&format!("the members remain as they are: {reason}"));
            }
            complaint = failed;
        }
    };
    let grace = tokio::select! {
        _ = interrupt.recv() => Duration::ZERO,
        _ = terminate.recv() => args.grace,
        () = reloads => Duration::ZERO,
    };
    tokio::select! {
        () = switch.drain(grace) => {}
        // A second signal does not wait.
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}

/// Reads the file again, and looks names up. Takes the service over if it has changed, or if the
/// user has asked for that.
async fn reload(
    args: &SwitchArgs,
    switch: &SwitchHandle,
    known: &mut Ends,
    is_asked: bool,
    display: &Display,
) -> Result<()> {
    let ends = ServiceFile::of(args)?.ends().await?;
    if ends == *known && !is_asked {
        return Ok(());
    }
    let set = match &ends {
        Ends::Members(service) => switch.set_service(service.clone()),
        Ends::Peer(peer) => switch.set_peer(*peer),
    };
    set.map_err(|error: ServiceError| usage(error.to_string()))?;
    let (line, members) = match &ends {
        Ends::Members(service) => {
            let members = service.members.len();
            (format!("switch: {members} members"), members)
        }
        Ends::Peer(peer) => (format!("switch: the service is at {peer}"), 1),
    };
    *known = ends;
    display.print_line(&line)?;
    Ok(display.print_json(&json!({"event": "reloaded", "members": members}))?)
}

fn announce(switch: &SwitchHandle, pages: Option<&MetricsServer>, display: &Display) -> Result<()> {
    let at = switch.local_address();
    display.print_line(&format!("switch: peers connect at {at}"))?;
    display.print_json(&json!({
        "event": "started",
        "listen": at.to_string(),
        "metrics": pages.map(|pages| pages.local_address().to_string()),
    }))?;
    Ok(())
}
