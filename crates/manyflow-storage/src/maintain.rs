//! `manyflow store verify`, `repair`, `rebalance`, `gc` and `usage`: the tasks of a store's
//! operators.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Result, bail};
use manyflow_core::units::Bytes;
use manyflow_ensembles::store::{
    GcOptions, LiveService, RepairMode, RepairOptions, RepairProgress, RepairReport, StoreClient,
    StoreError,
};
use manyflow_terminal::display::{Display, OutputError, count_files};
use serde_json::json;

use crate::args::{GcArgs, RepairArgs, StoreClientArgs, UsageArgs, VerifyArgs};

/// The most names of damaged files that people are shown.
const NAMES_SHOWN: usize = 20;

/// Does a task's work with a client of its service.
async fn with_client<T>(
    args: &StoreClientArgs,
    display: &Display,
    work: impl AsyncFnOnce(StoreClient<LiveService>) -> Result<T, StoreError>,
) -> Result<T> {
    let work = async |service: &LiveService| Ok(work(crate::client(service, args, 1)).await?);
    crate::with_service(args, display, work).await
}

/// Checks that every chunk has its copies.
pub(crate) async fn verify(args: VerifyArgs, display: &Display) -> Result<()> {
    let options = RepairOptions {
        mode: RepairMode::Verify,
        is_deep: args.read,
        rate: None,
    };
    run_repair(&args.client, options, display).await
}

/// Restores missing copies.
pub(crate) async fn repair(args: RepairArgs, display: &Display) -> Result<()> {
    run_mode(&args, RepairMode::Repair, display).await
}

/// Moves copies to the members that the switch chooses now.
pub(crate) async fn rebalance(args: RepairArgs, display: &Display) -> Result<()> {
    run_mode(&args, RepairMode::Rebalance, display).await
}

async fn run_mode(args: &RepairArgs, mode: RepairMode, display: &Display) -> Result<()> {
    let options = RepairOptions {
        mode,
        is_deep: args.read,
        rate: args.rate,
    };
    run_repair(&args.client, options, display).await
}

async fn run_repair(
    args: &StoreClientArgs,
    options: RepairOptions,
    display: &Display,
) -> Result<()> {
    let started = Instant::now();
    let mode = options.mode;
    let bar = display.transfer("chunks".to_owned());
    let show = |progress: RepairProgress| {
        bar.set_length(progress.total_chunks);
        bar.set_position(progress.chunks);
    };
    let repair = async |client: StoreClient<LiveService>| client.repair(options, show).await;
    let report = with_client(args, display, repair).await;
    bar.finish_and_clear();
    let report = report?;
    print_report(&report, mode, started.elapsed().as_secs_f64(), display)?;
    match (report.is_sound(), mode) {
        (true, _) => Ok(()),
        (false, RepairMode::Verify) => bail!(
            "{} chunks and manifests lack copies; repair the store",
            report.still_short
        ),
        (false, _) => bail!(
            "{} chunks and manifests still lack copies; start further members, and put files again whose chunks \
             have none",
            report.still_short
        ),
    }
}

fn print_lines(
    report: &RepairReport,
    mode: RepairMode,
    seconds: f64,
    display: &Display,
) -> Result<(), OutputError> {
    let files = count_files(report.files as usize);
    display.print_line(&format!(
        "{files}, {} in {} chunks on {} members",
        Bytes(report.bytes),
        report.chunks,
        report.members.len(),
    ))?;
    for (copies, chunks) in &report.short {
        display.print_line(&format!(
            "{chunks} chunks had only {copies} of their copies"
        ))?;
    }
    if report.short_manifests > 0 {
        let short = report.short_manifests;
        display.print_line(&format!("{short} manifests had too few copies"))?;
    }
    for name in report.lost_files.iter().take(NAMES_SHOWN) {
        display.print_line(&format!(
            "{name}: a chunk has no copy left; put the file again"
        ))?;
    }
    for (name, version) in report.lost_versions.iter().take(NAMES_SHOWN) {
        display.print_line(&format!("{name}: version {version} can no longer be read"))?;
    }
    let hidden = report.lost_files.len().saturating_sub(NAMES_SHOWN);
    if hidden > 0 {
        display.print_line(&format!("and {hidden} further files; --json names all"))?;
    }
    if mode != RepairMode::Verify {
        display.print_line(&format!(
            "copied {} in {} chunks, removed {} copies that were moved, wrote {} manifests, {seconds:.1} s",
            Bytes(report.copied_bytes),
            report.copied,
            report.moved,
            report.manifests,
        ))?;
    }
    if report.is_sound() {
        display.print_line("every chunk has all its copies")?;
    }
    Ok(())
}

fn print_report(
    report: &RepairReport,
    mode: RepairMode,
    seconds: f64,
    display: &Display,
) -> Result<(), OutputError> {
    print_lines(report, mode, seconds, display)?;
    let short = report.short.iter();
    let short: BTreeMap<_, _> = short.map(|(copies, n)| (copies.to_string(), *n)).collect();
    let members: Vec<_> = report
        .members
        .iter()
        .map(|member| member.as_str())
        .collect();
    display.print_json(&json!({
        "event": "done",
        "members": members,
        "files": report.files,
        "bytes": report.bytes,
        "chunks": report.chunks,
        "short": short,
        "short_manifests": report.short_manifests,
        "lost_files": report.lost_files,
        "lost_versions": report.lost_versions,
        "copied": report.copied,
        "copied_bytes": report.copied_bytes,
        "moved": report.moved,
        "manifests": report.manifests,
        "still_short": report.still_short,
        "sound": report.is_sound(),
        "seconds": seconds,
    }))
}

/// Removes what belongs to no file.
pub(crate) async fn collect_garbage(args: GcArgs, display: &Display) -> Result<()> {
    let options = GcOptions {
        age: args.age,
        is_dry: args.dry_run,
    };
    let collect = async |client: StoreClient<LiveService>| client.collect_garbage(&options).await;
    let report = with_client(&args.client, display, collect).await?;
    let verb = if args.dry_run { "found" } else { "removed" };
    display.print_line(&format!(
        "{verb} {} in {} copies of chunks that belong to no file, and {} manifests; {} copies are younger; {} \
         chunks belong to files",
        Bytes(report.chunk_bytes),
        report.chunks,
        report.manifests,
        report.young,
        report.live,
    ))?;
    display.print_json(&json!({
        "event": "done",
        "dry_run": args.dry_run,
        "live_chunks": report.live,
        "garbage_chunks": report.chunks,
        "garbage_bytes": report.chunk_bytes,
        "young_chunks": report.young,
        "garbage_manifests": report.manifests,
    }))?;
    Ok(())
}

/// Shows what each member holds.
pub(crate) async fn show_usage(args: UsageArgs, display: &Display) -> Result<()> {
    let usage = async |client: StoreClient<LiveService>| client.usage().await;
    let usage = with_client(&args.client, display, usage).await?;
    let mut sum = 0;
    for (member, held) in &usage {
        let bytes = held.chunk_bytes + held.name_bytes;
        sum += bytes;
        let damaged = match held.damaged {
            0 => String::new(),
            damaged => format!(", {damaged} damaged files set aside"),
        };
        display.print_line(&format!(
            "{member}: {} in {} chunks and {} manifests{damaged}; {} of {} are free",
            Bytes(bytes),
            held.chunks,
            held.names,
            Bytes(held.free_bytes),
            Bytes(held.disk_bytes),
        ))?;
        display.print_json(&json!({
            "event": "member",
            "name": member.as_str(),
            "chunks": held.chunks,
            "chunk_bytes": held.chunk_bytes,
            "manifests": held.names,
            "manifest_bytes": held.name_bytes,
            "damaged": held.damaged,
            "free_bytes": held.free_bytes,
            "disk_bytes": held.disk_bytes,
        }))?;
    }
    let members = usage.len();
    display.print_line(&format!("{members} members, {}", Bytes(sum)))?;
    display.print_json(&json!({"event": "done", "members": members, "bytes": sum}))?;
    Ok(())
}
