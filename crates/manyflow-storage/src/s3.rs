//! `manyflow store s3`: the files of a store for clients of S3.

use anyhow::{Result, anyhow};
use manyflow_ensembles::store::{LiveService, StoreClient};
use manyflow_net::address::listen_advice;
use manyflow_s3::{Credentials, S3Surface, serve};
use manyflow_terminal::failure::{Interrupted, read_description};
use manyflow_terminal::{Display, usage};
use serde_json::json;
use tokio::net::TcpListener;

use crate::args::S3Args;

/// Serves the surface until Ctrl-C or SIGTERM.
pub(crate) async fn run(args: S3Args, display: &Display) -> Result<()> {
    let display = display.on_standard_error();
    let path = args.credentials.display();
    let credentials = Credentials::parse(&read_description(&args.credentials)?);
    let credentials = credentials.map_err(|error| usage(format!("{path}: {error}")))?;
    let serve = async |service: &LiveService| {
        let client = crate::client(service, &args.client, args.replicas);
        serve_clients(&args, client, credentials, &display).await
    };
    let served = crate::with_service(&args.client, &display, serve).await;
    match served {
        Err(error) if error.is::<Interrupted>() => Ok(()),
        served => served,
    }
}

async fn serve_clients(
    args: &S3Args,
    client: StoreClient<LiveService>,
    credentials: Credentials,
    display: &Display,
) -> Result<()> {
    let listener = TcpListener::bind(args.listen).await.map_err(|cause| {
        let (listen, advice) = (args.listen, listen_advice(&cause));
        anyhow!("cannot listen on {listen} (--listen): {cause}{advice}")
    })?;
    let url = format!("http://{}", listener.local_addr()?);
    display.print_line(&format!("store: S3 is at {url}"))?;
    display.print_json(&json!({"event": "started", "url": url}))?;
    Ok(serve(listener, S3Surface::new(client), credentials).await?)
}
