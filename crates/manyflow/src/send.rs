//! `manyflow send`: sends files and folders.

mod session;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use manyflow_amt::RelayConfig;
use manyflow_core::units::{Bytes, Rate};
use manyflow_live::filecast::completion::{CompletionKey, CompletionServer, window};
use manyflow_live::filecast::files::{Scratch, Selection, SourceOptions, Sources, find_sources};
use manyflow_live::filecast::keys::SigningKey;
use manyflow_live::filecast::load::{Trust, load};
use manyflow_live::filecast::publish::{DESCRIPTION_PATH, Publisher};
use manyflow_live::filecast::sdp::{Completion, HostPort, SessionDescription, ntp_seconds};
use manyflow_live::filecast::sending::{tunnel_group, tunnel_source};
use manyflow_live::filecast::session::{
    GroupKey, Sealer, SendProgress, describe, flows, memory_for_table,
};
use manyflow_live::net::amt::RelayServer;
use manyflow_live::net::multicast::{MulticastSender, SenderConfig};
use manyflow_live::net::tls::Identity;
use manyflow_object::ext_auth;
use manyflow_object::fec::{BOOKKEEPING_BYTES, FecScheme};
use manyflow_object::sender::{self as object, ObjectSender, SourceFile, symbol_length};
use manyflow_webrc::{ReceiverConfig, Session, SessionConfig};
use rand::RngExt as _;
use serde_json::json;
use tokio::sync::watch::Receiver;

use crate::cli::{Fec, Profile, SendArgs, ServerArgs};
use crate::display::{Display, OutputError, watch};
use crate::group_range::GroupRange;
use crate::signals::interrupted;
use crate::{metrics, parameters, usage};
pub(crate) use session::{Opened, Prepared};

/// The first symbols of blocks in a session that is continued: repair symbols that the sender has
/// probably not sent yet, far from the last number, 2^24 - 1.
const FIRST_SYMBOLS: std::ops::Range<u32> = 1 << 17..1 << 23;
/// The portions of files with --in-order: some seconds at the default rate.
const WINDOW_BYTES: u64 = 16_000_000;
/// The default of `recv --memory`.
const RECEIVER_MEMORY: u64 = 256 << 20;

pub(crate) async fn run(args: SendArgs, display: &Display) -> Result<()> {
    let identity = args.servers.identity()?;
    let prepared = Opened::open(args, display).await?.prepare(display).await?;
    let args = &prepared.args;
    prepared.write_description()?;
    let descriptions = [(DESCRIPTION_PATH.to_owned(), prepared.text.clone())];
    let publisher = publish(&args.servers, descriptions.into(), identity).await?;
    // If the description goes to standard output, nothing else does.
    let prints_description = publisher.is_none() && !args.keeps_description();
    let lines = match prints_description {
        true => display.on_standard_error(),
        false => display.clone(),
    };

    let url = publisher.as_ref();
    let url = url.map(|publisher| prepared.url(publisher, DESCRIPTION_PATH));
    prepared.announce(url, &lines)?;
    if prints_description {
        display.print_line(prepared.text.trim_end())?;
    }
    let sessions = vec![(None, prepared.sender.progress())];
    let _metrics = metrics::serve(args.servers.metrics, sessions, &lines).await?;
    send(prepared, interrupted(), &lines).await
}

impl SendArgs {
    /// Whether the description is in a file after the start.
    pub(crate) fn keeps_description(&self) -> bool {
        self.session.is_some() || self.resume.is_some()
    }
}

/// Prints what was sent, and the number of receivers if it was counted.
///
/// # Errors
/// If the time was over before all expected receivers had reported.
fn print_end(sent: &SendProgress, end: End, expected: Option<u32>, lines: &Display) -> Result<()> {
    let bytes = Bytes(sent.bytes);
    lines.print_line(&format!("sent {} packets, {bytes}", sent.packets))?;
    let Some(expected) = expected else {
        return Ok(());
    };
    let done = sent.receivers_done;
    let line = format!("{done} of {expected} receivers have reported that they have all files");
    match end {
        End::TimeOver => Err(anyhow::Error::msg(line)),
        _ => Ok(lines.print_line(&line)?),
    }
}

fn check_outlets(args: &SendArgs) -> Result<()> {
    if args.multicast.is_some() || args.listen.is_some() {
        return Ok(());
    }
    Err(usage(
        "no way to reach receivers: use --multicast 232.1.2.0/24 --interface NAME, or without multicast \
         --listen 0.0.0.0:2268",
    ))
}

/// Reads the description of the session to continue.
async fn earlier_session(args: &SendArgs) -> Result<Option<SessionDescription>> {
    let Some(session) = &args.resume else {
        return Ok(None);
    };
    let earlier = load(session, &Trust::default()).await?.description;
    if u32::try_from(earlier.tsi).is_err() {
        return Err(usage(format!(
            "{session}: not a session of `manyflow send`, which never has so long a TSI"
        )));
    }
    if earlier.protection.is_some() {
        return Err(usage(format!(
            "{session}: a session with a group key cannot be continued, because its receivers refuse packet numbers \
             that they have seen; start a new session without --resume"
        )));
    }
    Ok(Some(earlier))
}

/// Checks that receivers with the `earlier` description understand the session that `now`
/// describes.
fn check_continues(earlier: &SessionDescription, now: &SessionDescription) -> Result<()> {
    let differs = |what: &str| {
        Err(usage(format!(
            "the session cannot be continued with other {what}: repeat what was sent, or start a new session without --resume"
        )))
    };
    if earlier.table_sha256 != now.table_sha256 {
        return differs("files");
    }
    if (earlier.source, earlier.first_group, earlier.port)
        != (now.source, now.first_group, now.port)
    {
        return differs("addresses or ports");
    }
    if earlier.amt_relay != now.amt_relay {
        return differs("relay addresses (--listen)");
    }
    if earlier.completion != now.completion {
        return differs("reports (--until-done, --reports)");
    }
    if (&earlier.webrc, earlier.fec_encoding_id) != (&now.webrc, now.fec_encoding_id) {
        return differs("rates, profiles or parameters");
    }
    Ok(())
}

fn find_files(args: &SendArgs, display: &Display) -> Result<Sources> {
    let selection = Selection::new(&args.include, &args.exclude);
    let options = SourceOptions {
        bundle_max: args.bundle.0,
        scratch: scratch_folder(args),
        selection: selection.map_err(|error| usage(error.to_string()))?,
        archive: args.archive,
    };
    let sources = find_sources(&args.paths, &options)?;
    if sources.skipped > 0 {
        let count = sources.skipped;
        display.print_note(&format!(
            "{count} entries of folders are left out, as the log above says"
        ));
    }
    Ok(sources)
}

/// The keys in the files that the command line names.
struct Keys {
    signing: Option<SigningKey>,
    group: Option<GroupKey>,
    /// The sealer with the group key.
    sealer: Option<Sealer>,
}

impl Keys {
    fn read(args: &SendArgs) -> Result<Keys> {
        let group = args.group_key.as_deref().map(GroupKey::read).transpose()?;
        let seal = match args.encrypt {
            true => Sealer::encrypting,
            false => Sealer::authenticating,
        };
        Ok(Keys {
            signing: args.sign.as_deref().map(SigningKey::read).transpose()?,
            sealer: group.as_ref().map(seal),
            group,
        })
    }
}

impl ServerArgs {
    /// Reads the certificate of the server of descriptions.
    pub(crate) fn identity(&self) -> Result<Option<Identity>> {
        let tls = self.tls_cert.as_deref().zip(self.tls_key.as_deref());
        let identity = tls.map(|(certificates, key)| Identity::read(certificates, key));
        Ok(identity.transpose()?)
    }
}

/// The reason why a session ends.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum End {
    /// The user, or a service manager.
    Interrupted,
    /// The duration of the session.
    TimeOver,
    /// All expected receivers have all files.
    AllDone,
    /// Progress could not be printed.
    Unheard,
}

/// Runs the session until it is complete, its time is over, `interrupted` is ready, or its progress
/// cannot be printed. Prints what it has sent.
///
/// # Errors
/// If a file cannot be sent, if the time is over before all expected receivers have reported, or if
/// standard output cannot be written to.
pub(crate) async fn send(
    session: Prepared,
    interrupted: impl Future<Output = ()>,
    display: &Display,
) -> Result<()> {
    let Prepared {
        args,
        sender,
        reports,
        completion_key,
        ..
    } = session;
    let expected = args.until_done;
    let watched = watch_progress(sender.progress(), expected, display.clone());
    let (watching, unheard) = watch(watched);
    let all_done = count_receivers(&args, reports, completion_key);
    let mut end = End::Unheard;
    let stop = async {
        tokio::select! {
            reason = stop(args.duration, interrupted, all_done) => end = reason,
            () = unheard => {}
        }
    };
    let sent = sender.run(stop).await;
    watching.abort();
    // An aborted watcher has printed all that it could.
    watching.await.unwrap_or(Ok(()))?;
    let sent = sent?;
    display.print_json(&to_json("done", &sent))?;
    print_end(&sent, end, expected, display)
}

async fn stop(
    after: Option<Duration>,
    interrupted: impl Future<Output = ()>,
    all_done: impl Future<Output = ()>,
) -> End {
    let time_over = async {
        match after {
            Some(after) => tokio::time::sleep(after).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = time_over => End::TimeOver,
        () = interrupted => End::Interrupted,
        () = all_done => End::AllDone,
    }
}

/// Opens the socket for the reports of receivers.
async fn open_reports(
    args: &SendArgs,
    description: &mut SessionDescription,
) -> Result<Option<CompletionServer>> {
    let Some(expected) = args.until_done else {
        return Ok(None);
    };
    let address = args.reports;
    let server = CompletionServer::bind(address).await.with_context(|| {
        format!(
            "cannot listen for reports on {address}: choose another address or port with --reports"
        )
    })?;
    let local = server.local_address();
    description.completion = Some(Completion {
        server: HostPort {
            host: local.ip().to_string(),
            port: local.port(),
        },
        window: window(expected),
    });
    Ok(Some(server))
}

/// Takes the reports of receivers; completes when all have all files.
async fn count_receivers(
    args: &SendArgs,
    reports: Option<CompletionServer>,
    key: Option<CompletionKey>,
) {
    let (Some(reports), Some(key), Some(expected)) = (reports, key, args.until_done) else {
        return std::future::pending().await;
    };
    let mut count = reports.count();
    tokio::select! {
        () = reports.run(key, expected) => {}
        // An error means that the server has ended, which the other branch has noticed.
        _ = count.wait_for(|count| *count >= expected) => {}
    }
}

fn make_session(args: &SendArgs) -> Result<Session> {
    let mut config = match args.profile {
        Profile::Lan => SessionConfig::lan(args.rate),
        Profile::Wan => SessionConfig::wan(args.rate),
    };
    config.packet_bytes = args.packet.into();
    if let Some(packets) = args.packet_trains {
        config = config.with_packet_trains(packets);
    }
    parameters::set_session(&mut config, &args.parameters)
        .map_err(|error| usage(format!("{error:#}")))?;
    // Symbols are multiples of four bytes, so packets may be slightly shorter than requested.
    let session = Session::new(config.clone()).map_err(|error| usage(error.to_string()))?;
    let cci_length = session.cci_format().wire_bytes();
    let packet = usize::from(args.packet) - extension_bytes(args);
    let symbol = symbol_length(packet, cci_length).ok_or_else(|| {
        usage(format!(
            "--packet {} leaves no room for data: use 200 or more",
            args.packet
        ))
    })?;
    let overhead = object::overhead(cci_length) + extension_bytes(args);
    config.packet_bytes = u32::from(symbol) + overhead as u32;
    config.cci_format = Some(session.cci_format());
    Session::new(config).map_err(|error| usage(error.to_string()))
}

/// The length of the extension that each packet has, in bytes.
fn extension_bytes(args: &SendArgs) -> usize {
    match args.group_key {
        Some(_) => ext_auth::EXTENSION_BYTES,
        None => 0,
    }
}

/// Reads all files to compute their digests.
async fn prepare(
    args: &SendArgs,
    session: &Session,
    tsi: u32,
    files: Vec<SourceFile>,
    display: &Display,
) -> Result<ObjectSender<Scratch>> {
    let cci_length = session.cci_format().wire_bytes();
    let mut config = object::SenderConfig::new(tsi, session.active_slots() as u16 + 1, tsi.into());
    config.cci_length = cci_length;
    let overhead = object::overhead(cci_length) + extension_bytes(args);
    config.symbol_length = (session.config().packet_bytes as usize - overhead) as u16;
    config.scheme = match args.fec {
        Fec::Raptorq => FecScheme::RaptorQ,
        Fec::None => FecScheme::NoCode,
    };
    config.content_md5 = args.content_md5;
    config.window_symbols = args
        .in_order
        .then(|| WINDOW_BYTES / u64::from(config.symbol_length));
    if args.resume.is_some() {
        // Receivers that have source symbols already need others.
        config.first_symbol = rand::rng().random_range(FIRST_SYMBOLS);
    }
    let files_count = files.len();
    let length: u64 = files.iter().map(|file| file.content.length()).sum();
    let repair = object::repair_bytes(&config, length);
    let storage = Scratch::create(repair, args.memory.0, &scratch_folder(args))?;
    let spinner = display.spinner("reading files".to_owned());
    let prepare = move || ObjectSender::with_storage(config, files, storage);
    let objects = tokio::task::spawn_blocking(prepare).await?;
    spinner.finish_and_clear();
    let objects = objects?;
    warn_of_memory(&objects, files_count, args.in_order);
    Ok(objects)
}

/// Warns of a session that receivers refuse with their default memory, or receive slowly.
fn warn_of_memory(objects: &ObjectSender<Scratch>, files: usize, in_order: bool) {
    let table = memory_for_table(files, objects.table_bytes());
    let symbols = objects.symbols() * BOOKKEEPING_BYTES;
    if table > RECEIVER_MEMORY {
        let needed = Bytes(table);
        tracing::warn!("receivers refuse so many files, unless they have --memory {needed}");
    } else if symbols > RECEIVER_MEMORY && !in_order {
        let needed = Bytes(symbols);
        tracing::warn!(
            "receivers need --memory {needed} to keep symbols of all files at once, and receive parts of them \
             again with less; --in-order needs less memory"
        );
    }
}

/// The folder for large temporary files: `/tmp` is often in memory.
fn scratch_folder(args: &SendArgs) -> PathBuf {
    let persistent = Path::new("/var/tmp");
    match (&args.scratch, std::env::var_os("TMPDIR")) {
        (Some(folder), _) => folder.clone(),
        (None, None) if persistent.is_dir() => persistent.to_owned(),
        (None, _) => std::env::temp_dir(),
    }
}

/// Opens the socket for multicast to the groups of `range`, if there is one.
pub(crate) fn open_multicast(
    range: Option<GroupRange>,
    port: u16,
    interface: Option<&str>,
    hop_limit: u8,
) -> Result<Option<MulticastSender>> {
    let Some(range) = range else {
        return Ok(None);
    };
    let mut config = SenderConfig::new(range.first, port);
    config.hop_limit = hop_limit;
    config.interface = interface.map(|name| {
        let Ok(interface) = name.parse();
        interface
    });
    Ok(Some(MulticastSender::open(&config)?))
}

fn describe_session(
    args: &SendArgs,
    session: &Session,
    tsi: u32,
    multicast: Option<&MulticastSender>,
) -> Result<SessionDescription> {
    let source = multicast.map_or_else(
        || tunnel_source(args.listen, args.port),
        MulticastSender::source,
    );
    let first_group = args
        .multicast
        .map_or_else(|| tunnel_group(source), |range| range.first);
    let channels = session.wave_channels() + 1;
    if let Some(range) = args.multicast
        && range.size().is_some_and(|size| size < channels.into())
    {
        return Err(usage(format!(
            "the session has {channels} channels, more than the range has groups"
        )));
    }
    // An encrypted session does not publish the name of a file.
    let name = args.paths[0]
        .file_name()
        .filter(|_| !args.encrypt)
        .map_or_else(|| "files".into(), |name| name.to_string_lossy());
    Ok(SessionDescription {
        name: name.chars().filter(|c| !c.is_control()).take(60).collect(),
        tsi: tsi.into(),
        version: ntp_seconds(SystemTime::now()),
        source,
        first_group,
        port: args.port,
        ttl: first_group.is_ipv4().then_some(args.ttl),
        fec_encoding_id: if args.fec == Fec::Raptorq { 6 } else { 0 },
        table_sha256: None,
        protection: None,
        amt_relay: None,
        completion: None,
        webrc: describe(session, ReceiverConfig::default().epoch(session)),
    })
}

fn open_relay(
    args: &SendArgs,
    description: &mut SessionDescription,
) -> Result<Option<RelayServer>> {
    let Some(listen) = args.listen else {
        return Ok(None);
    };
    // Each gateway may receive the whole session; the tunnel adds up to 20 %.
    let whole = Rate::from_bits_per_s(args.rate.bits_per_s() / 10 * 12);
    let config = RelayConfig {
        gateway_rate_max: whole,
        rate_max: args.relay_rate_max,
        gateways_per_address_max: args.relay_gateways_per_address,
        ..RelayConfig::default()
    };
    let server = RelayServer::bind(listen, config, flows(description));
    let server = server
        .with_context(|| format!("cannot listen on {listen}: choose another address or port"))?;
    let local = server.local_addr();
    description.amt_relay = Some(HostPort {
        host: local.ip().to_string(),
        port: local.port(),
    });
    Ok(Some(server))
}

/// Serves the descriptions, by their paths, if there is an address for that.
pub(crate) async fn publish(
    servers: &ServerArgs,
    descriptions: BTreeMap<String, String>,
    identity: Option<Identity>,
) -> Result<Option<Publisher>> {
    let Some(address) = servers.publish else {
        return Ok(None);
    };
    let publisher = Publisher::serve(address, descriptions, identity).await;
    Ok(Some(publisher.with_context(|| {
        format!("cannot publish on {address}: choose another address or port")
    })?))
}

/// Reports the sender's progress, until it is aborted or standard output cannot be written to.
async fn watch_progress(
    mut progress: Receiver<SendProgress>,
    expected: Option<u32>,
    display: Display,
) -> Result<(), OutputError> {
    let spinner = display.spinner("sending".to_owned());
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    let mut last = SendProgress::default();
    loop {
        tick.tick().await;
        let now = *progress.borrow_and_update();
        let rate = Rate::from_bits_per_s((now.bytes - last.bytes) * 8);
        last = now;
        let done = match expected {
            Some(expected) => format!(", {} of {expected} receivers done", now.receivers_done),
            None => String::new(),
        };
        spinner.set_message(format!(
            "{rate}, {} sent, {} gateways{done}",
            Bytes(now.bytes),
            now.relay.gateways
        ));
        display.print_json(&to_json("progress", &now))?;
    }
}

fn to_json(event: &str, progress: &SendProgress) -> serde_json::Value {
    json!({
        "event": event,
        "packets": progress.packets,
        "bytes": progress.bytes,
        "packets_unwanted": progress.unwanted,
        "packets_skipped": progress.skipped,
        "datagrams_unsent": progress.unsent,
        "gateways": progress.relay.gateways,
        "receivers_done": progress.receivers_done,
    })
}
