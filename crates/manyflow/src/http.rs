//! `manyflow member` and `manyflow gateway`: HTTP and TCP servers behind one Anypoint connection.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use manyflow_ensembles::anypoint::{Options, serve};
use manyflow_ensembles::http::{
    GatewayError, GatewayOptions, MemberOptions, Service, serve_gateway, serve_members,
    serve_tunnel,
};
use manyflow_net::group_key::GroupKey;
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::address::{cannot_listen, resolve};
use crate::cli::{GatewayArgs, MemberArgs};
use crate::metrics::Pages;
use manyflow_terminal::Display;
use manyflow_terminal::members::Found;
use manyflow_terminal::usage;

/// The shortest `--timeout`: signs of life are sent at a third of it.
const TIMEOUT_MIN: Duration = Duration::from_millis(300);
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// The range of `--window` in bytes.
const WINDOW_MIN: u64 = 16 << 10;
const WINDOW_MAX: u64 = 64 << 20;

pub(crate) async fn run_member(args: MemberArgs, display: &Display) -> Result<()> {
    let display = display.on_standard_error();
    let mut ends = End::handlers()?;
    let connection = with_key(MemberOptions::connection(), args.key.as_deref())?;
    let listen = args.listen;
    let socket = serve(listen, connection);
    let socket = socket.map_err(|cause| cannot_listen("--listen", listen, cause))?;
    let at = socket.local_address();
    if args.answer_within.is_zero() {
        return Err(usage("--answer-within: choose more than 0s"));
    }
    let options = MemberOptions {
        origin: args.http,
        tcp_servers: args.tcp,
        proxy_protocol: args.proxy_protocol,
        requests_max: args.requests_max as usize,
        answer_timeout: args.answer_within,
        check: args.check,
    };
    let member = serve_members(socket, options);
    let pages = Pages::new(member.counters()).with_page("member", member.counters());
    let pages = pages.serve(args.metrics, &display).await?;
    display.print_line(&format!("member: gateways and switches connect at {at}"))?;
    display.print_json(&json!({
        "event": "started",
        "listen": at.to_string(),
        "metrics": pages.as_ref().map(|pages| pages.local_address().to_string()),
    }))?;
    let grace = ends.next(args.grace).await;
    ends.unless_repeated(member.drain(grace)).await;
    Ok(())
}

pub(crate) async fn run_gateway(args: GatewayArgs, display: &Display) -> Result<()> {
    let display = display.on_standard_error();
    let mut ends = End::handlers()?;
    let (service, members) = tokio::select! {
        found = look_up(&args) => found?,
        _ = ends.next(Duration::ZERO) => return Ok(()),
    };
    let options = gateway_options(&args, service)?;
    let gateway = match args.tcp {
        None => serve_gateway(args.listen, options).await,
        Some(port) => serve_tunnel(args.listen, options, port.into()).await,
    };
    let gateway = gateway.map_err(|error| match error {
        GatewayError::Listen(address, cause) => cannot_listen("--listen", address, cause),
        error => error.into(),
    })?;
    let mut pages = Pages::new(gateway.status()).with_page("gateway", gateway.status());
    if let Some(switch) = gateway.switch() {
        pages = pages.with_metrics(move || switch.borrow().clone());
    }
    let pages = pages.serve(args.metrics, &display).await?;
    let at = gateway.local_address();
    display.print_line(&match args.tcp {
        None => format!("gateway: HTTP clients connect at http://{at}/"),
        Some(_) => format!("gateway: TCP clients connect at {at}"),
    })?;
    display.print_json(&json!({
        "event": "started",
        "listen": at.to_string(),
        "metrics": pages.as_ref().map(|pages| pages.local_address().to_string()),
    }))?;
    let connected = async {
        gateway.connected().await;
        let members = args.members.member.iter();
        let to: Vec<_> = match args.to.is_empty() {
            true => members.map(|member| member.name.clone()).collect(),
            false => args.to.clone(),
        };
        display.print_line(&format!("gateway: connected to {}", to.join(" or ")))?;
        anyhow::Ok(display.print_json(&json!({"event": "connected", "to": to}))?)
    };
    let set = |members| gateway.set_members(members);
    let follow = args.members.follow(members, set, &display);
    let grace = tokio::select! {
        grace = ends.next(args.grace) => grace,
        ended = async { tokio::try_join!(connected, follow) } => match ended?.1 {},
    };
    ends.unless_repeated(gateway.drain(grace)).await;
    Ok(())
}

/// Checks the options of a gateway.
fn gateway_options(args: &GatewayArgs, service: Service) -> Result<GatewayOptions> {
    let mut options = GatewayOptions::new(service);
    options.accept_proxy = args.accept_proxy;
    options.server = args
        .server
        .as_ref()
        .map(|server| server.to_string())
        .unwrap_or_default();
    options.hedge_after = Some(args.hedge_after).filter(|after| !after.is_zero());
    options.connection = with_key(options.connection, args.key.as_deref())?;
    if !(TIMEOUT_MIN..=TIMEOUT_MAX).contains(&args.timeout) {
        return Err(usage("--timeout: choose between 300ms and 24h"));
    }
    options.timeout = args.timeout;
    if !(WINDOW_MIN..=WINDOW_MAX).contains(&args.window.0) {
        return Err(usage("--window: choose between 16KiB and 64MiB"));
    }
    options.window = args.window.0 as u32;
    options.requests_max = args.requests_max as usize;
    options.clients_max = args.clients_max as usize;
    Ok(options)
}

/// Looks up the addresses of the switches, or of the members.
async fn look_up(args: &GatewayArgs) -> Result<(Service, Found)> {
    if !args.members.is_empty() {
        let found = args.members.look_up().await?;
        return Ok((Service::Members(found.members.clone()), found));
    }
    let mut found = Vec::new();
    for switch in &args.to {
        found.push(resolve(switch).await.context("--to")?);
    }
    Ok((Service::Switches(found), Found::default()))
}

/// The signals that end a command.
struct End {
    interrupt: Signal,
    terminate: Signal,
}

impl End {
    /// Installs the handlers, before anybody learns that the command is ready.
    fn handlers() -> Result<End> {
        let handler = |kind| signal(kind).context("cannot handle SIGINT and SIGTERM");
        Ok(End {
            interrupt: handler(SignalKind::interrupt())?,
            terminate: handler(SignalKind::terminate())?,
        })
    }

    /// Finishes the work, unless a second signal comes.
    async fn unless_repeated(&mut self, work: impl Future<Output = ()>) {
        tokio::select! {
            () = work => {}
            _ = self.next(Duration::ZERO) => {}
        }
    }

    /// Waits for a signal. Returns the time that requests in progress have: none after Ctrl-C.
    async fn next(&mut self, grace: Duration) -> Duration {
        tokio::select! {
            _ = self.interrupt.recv() => Duration::ZERO,
            _ = self.terminate.recv() => grace,
        }
    }
}

fn with_key(options: Options, key: Option<&Path>) -> Result<Options> {
    let key = key.map(GroupKey::read).transpose();
    let key = key.map_err(|error| usage(format!("--key: {error}")))?;
    Ok(Options { key, ..options })
}
