//! `manyflow switch`: a switch between peers and the members of a service.

mod file;

use std::time::Duration;

use anyhow::{Context as _, Result};
use manyflow_ensembles::anypoint::switch::{
    ServiceConfig, ServiceError, StartError, SwitchHandle, SwitchOptions, start,
};
use manyflow_net::metrics::MetricsServer;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::address::cannot_listen;
use crate::cli::SwitchArgs;
use file::ServiceFile;
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
    let mut service = file.service().await?;
    let switch = start(listen, service.clone(), options);
    let switch = switch.map_err(|error| match error {
        StartError::Address(address, cause) => cannot_listen("--listen", address, cause),
        error => error.into(),
    })?;
    let pages = crate::metrics::switch_pages(switch.status());
    let pages = pages.serve(metrics, &display).await?;
    let mut ends = [SignalKind::interrupt(), SignalKind::terminate()].map(signal);
    let [interrupt, terminate] = &mut ends;
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
            let reloaded = reload(&args, &switch, &mut service, is_asked, &display).await;
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
    known: &mut ServiceConfig,
    is_asked: bool,
    display: &Display,
) -> Result<()> {
    let service = ServiceFile::of(args)?.service().await?;
    if service == *known && !is_asked {
        return Ok(());
    }
    let members = service.members.len();
    let set = switch.set_service(service.clone());
    set.map_err(|error: ServiceError| usage(error.to_string()))?;
    *known = service;
    display.print_line(&format!("switch: {members} members"))?;
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
