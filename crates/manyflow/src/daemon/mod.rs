//! `manyflow daemon`: a daemon of an overlay for group messages, and the server of its clients.

mod file;
mod open_files;

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;

use anyhow::Result;
use manyflow_messages::{self, DaemonConfig, DaemonError, DaemonHandle, DaemonStatus};
use manyflow_net::address::listen_advice;
use manyflow_net::unix_socket::address_of;
use serde_json::json;
use tokio::sync::watch;

use crate::cli::DaemonArgs;
use file::DaemonFile;
use manyflow_terminal::Display;
use manyflow_terminal::signals::{interrupted, lame_duck_requested};
use manyflow_terminal::usage;

pub(crate) async fn run(args: DaemonArgs, display: &Display) -> Result<()> {
    let display = display.on_standard_error();
    let file = match &args.file {
        Some(path) => DaemonFile::read(path)?,
        None => DaemonFile::of_arguments(&args)?,
    };
    let (name, metrics) = (file.name.clone(), args.metrics.or(file.metrics()?));
    let is_asked = file.connections_max.is_some();
    let mut config = file.config()?;
    check_places(&config)?;
    config.connections_max = open_files::room_for(config.connections_max, is_asked);
    let has_tls = config.client_tls.is_some();
    let daemon = manyflow_messages::start(config)
        .await
        .map_err(|error| match error {
            DaemonError::Address {
                key,
                address,
                cause,
            } if args.file.is_none() => {
                let advice = listen_advice(&cause);
                anyhow::anyhow!("cannot listen on {address} (--{key}): {cause}{advice}")
            }
            DaemonError::Config(error) => usage(error.to_string()),
            DaemonError::Identity(error) => usage(error.to_string()),
            error => error.into(),
        })?;
    let pages = crate::metrics::daemon_pages(&daemon);
    let _pages = pages.serve(metrics, &display).await?;
    let (stop, lame_duck) = (interrupted(), lame_duck_requested());
    announce(&name, &daemon, has_tls, &display)?;
    tokio::select! {
        () = stop => {}
        () = lame_duck => {}
        failed = announce_links(&name, daemon.status(), &display) => match failed? {},
    }
    announce_stop(&name, args.grace, &display)?;
    tokio::select! {
        () = daemon.stop_after(args.grace) => {}
        () = interrupted() => display.print_line(&format!("daemon {name}: ends at once"))?,
    }
    Ok(())
}

/// Refuses a daemon that nobody can reach and that reaches nobody.
fn check_places(config: &DaemonConfig) -> Result<()> {
    let places = [
        &config.listen,
        &config.clients,
        &config.clients_ws,
        &config.clients_spread,
    ];
    match config.links.is_empty() && places.iter().all(|place| place.is_none()) {
        true => Err(usage(format!(
            "the daemon {} serves no clients and has no links: give it `clients` (--clients \
             127.0.0.1:4222), `listen` (--listen 0.0.0.0:4747) or a link (--link NAME=HOST)",
            config.name
        ))),
        false => Ok(()),
    }
}

/// Prints that the daemon stops.
fn announce_stop(name: &str, grace: Duration, display: &Display) -> Result<()> {
    let grace_s = grace.as_secs_f64();
    display.print_line(&format!(
        "daemon {name}: stops; clients have {grace_s} s to connect elsewhere"
    ))?;
    display.print_json(&json!({"event": "stopping", "name": name, "grace_s": grace_s}))?;
    Ok(())
}

/// Prints where the daemon listens.
fn announce(name: &str, daemon: &DaemonHandle, has_tls: bool, display: &Display) -> Result<()> {
    let addresses = daemon.addresses();
    if let Some(at) = addresses.daemons {
        display.print_line(&format!("daemon {name}: other daemons connect at {at}"))?;
    }
    let socket = addresses.client_socket.as_deref().map(address_of);
    let url = addresses.clients.map(|at| format!("nats://{at}"));
    if let Some(at) = url.or(socket.clone()) {
        display.print_line(&format!("daemon {name}: NATS clients connect at {at}"))?;
    }
    if let Some(at) = addresses.clients_ws {
        let scheme = if has_tls { "wss" } else { "ws" };
        display.print_line(&format!(
            "daemon {name}: NATS clients in browsers connect at {scheme}://{at}"
        ))?;
    }
    let spread = addresses.clients_spread.map(|at| at.to_string());
    let spread = spread.or(addresses.spread_socket.as_deref().map(address_of));
    if let Some(at) = &spread {
        display.print_line(&format!("daemon {name}: Spread clients connect at {at}"))?;
    }
    let clients = addresses.clients.map(|at| at.to_string()).or(socket);
    display.print_json(&json!({
        "event": "started",
        "name": name,
        "daemons": addresses.daemons.map(|at| at.to_string()),
        "clients": clients,
        "clients_ws": addresses.clients_ws.map(|at| at.to_string()),
        "clients_spread": spread,
    }))?;
    Ok(())
}

/// Prints the name of each neighbour when it is linked for the first time. The log has later
/// outages of links.
async fn announce_links(
    name: &str,
    mut status: watch::Receiver<DaemonStatus>,
    display: &Display,
) -> Result<Infallible> {
    let mut known = BTreeSet::new();
    loop {
        let new: Vec<_> = {
            let now = status.borrow_and_update();
            let links = now.links.iter().filter(|link| link.is_up);
            let names = links.map(|link| link.name.clone());
            names.filter(|name| !known.contains(name)).collect()
        };
        for neighbour in new {
            display.print_line(&format!("daemon {name}: linked with {neighbour}"))?;
            display
                .print_json(&json!({"event": "linked", "name": name, "neighbour": neighbour}))?;
            known.insert(neighbour);
        }
        if status.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};

    #[test]
    fn a_daemon_without_clients_and_links_is_refused() {
        let config = |words: &str| {
            let cli = Cli::try_parse_from(words.split(' ')).unwrap();
            let Command::Daemon(args) = cli.command else {
                panic!("{words}");
            };
            DaemonFile::of_arguments(&args).and_then(DaemonFile::config)
        };
        let alone = config("manyflow daemon --name a --insecure").unwrap();
        let error = check_places(&alone).unwrap_err().to_string();
        assert!(error.contains("the daemon a serves no clients"), "{error}");
        for place in [
            "--listen 127.0.0.1:0",
            "--clients unix:/tmp/a.sock",
            "--clients-ws 127.0.0.1:0",
            "--clients-spread 127.0.0.1:0",
            "--link b=127.0.0.1",
        ] {
            let words = format!("manyflow daemon --name a {place}");
            check_places(&config(&format!("{words} --insecure")).unwrap()).unwrap();
            let error = config(&words).err().unwrap().to_string();
            assert!(error.contains("(--insecure)"), "{error}");
        }
    }
}
