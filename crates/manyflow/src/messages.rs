//! `manyflow pub` and `manyflow sub`: publish messages to groups, and print those of groups.
//! `ordered.rs` is the part for ordered groups.

pub(crate) mod ordered;

use std::io;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use indicatif::ProgressBar;
use manyflow_messages::{Client, ClientOptions, Credentials, Message, Service};
use manyflow_net::tls::Authorities;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::cli::{ClientArgs, PubArgs, PublishRate, SubArgs};
use manyflow_terminal::Display;
use manyflow_terminal::failure::Interrupted;
use manyflow_terminal::shown::shown;
use manyflow_terminal::signals::interrupted;
use manyflow_terminal::usage;

/// Time after which publishing shows its progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

async fn connect(args: &ClientArgs) -> Result<Client> {
    let secret = |path: &Path| -> Result<String> {
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|error| {
            let path = path.display();
            usage(format!(
                "cannot read {path}: {error}; check the path and its mode"
            ))
        })?;
        Ok(text.trim_end_matches(['\r', '\n']).to_owned())
    };
    let credentials = match (&args.user, &args.password_file, &args.token_file) {
        (Some(name), Some(path), _) => Some(Credentials::Password {
            name: name.clone(),
            password: secret(path)?,
        }),
        (_, _, Some(path)) => Some(Credentials::Token(secret(path)?)),
        _ => None,
    };
    let authorities = || Authorities::read(args.ca.as_deref());
    let options = ClientOptions {
        name: Some("manyflow".to_owned()),
        credentials,
        tls: (args.tls || args.ca.is_some())
            .then(authorities)
            .transpose()?,
        ..ClientOptions::default()
    };
    Ok(Client::connect(&args.server, &options).await?)
}

/// Publishes all messages.
///
/// # Errors
/// If the daemon cannot be reached or refuses the client, or if a request is not answered.
pub(crate) async fn publish(args: &PubArgs, display: &Display) -> Result<()> {
    let target = Target::new(args)?;
    let client = connect(&args.server).await?;
    let mut publisher = Publisher {
        client,
        target,
        payloads: Payloads::new(args),
        published: 0,
        bytes: 0,
        start: Instant::now(),
        display,
    };
    tokio::select! {
        result = publisher.run(args) => result?,
        () = interrupted() => return Err(Interrupted.into()),
    }
    publisher.finish().await
}

/// The payloads of messages: one again and again, or the lines of standard input.
enum Payloads {
    Same(Bytes),
    Lines(mpsc::Receiver<io::Result<String>>),
}

impl Payloads {
    fn new(args: &PubArgs) -> Payloads {
        match (&args.payload, args.size) {
            (Some(payload), _) => Payloads::Same(payload.clone().into()),
            (None, Some(size)) => Payloads::Same(vec![b'x'; size.0 as usize].into()),
            (None, None) => Payloads::Lines(read_lines()),
        }
    }

    async fn next(&mut self) -> Result<Option<Bytes>> {
        match self {
            Payloads::Same(payload) => Ok(Some(payload.clone())),
            Payloads::Lines(lines) => {
                let line = lines.recv().await.transpose();
                Ok(line.context("cannot read standard input")?.map(Bytes::from))
            }
        }
    }

    /// The number of messages without `--count`.
    fn count(&self) -> u64 {
        match self {
            Payloads::Same(_) => 1,
            Payloads::Lines(_) => u64::MAX,
        }
    }
}

/// Reads the lines of standard input in a thread.
fn read_lines() -> mpsc::Receiver<io::Result<String>> {
    let (sender, lines) = mpsc::channel(64);
    tokio::task::spawn_blocking(move || {
        let send = |line| sender.blocking_send(line);
        // The publisher has ended if nobody receives.
        let _ = io::stdin().lines().try_for_each(send);
    });
    lines
}

/// The place that messages go to.
enum Target {
    /// Subject, reply subject and headers of all messages.
    Subject(Message),
    /// The service, and the ordered groups.
    Ordered(Service, Vec<String>),
}

impl Target {
    fn new(args: &PubArgs) -> Result<Target> {
        if let Some(service) = args.service {
            let groups = std::iter::once(&args.subject).chain(&args.also);
            return Ok(Target::Ordered(service, groups.cloned().collect()));
        }
        let mut message = Message::new(&args.subject, "")?;
        for subject in &args.also {
            message = message.also_to(subject)?;
        }
        for header in &args.header {
            message = message.with_header(&header.name, &header.value)?;
        }
        if let Some(reply) = &args.reply {
            message = message.with_reply(reply)?;
        }
        Ok(Target::Subject(message))
    }
}

struct Publisher<'a> {
    client: Client,
    target: Target,
    payloads: Payloads,
    published: u64,
    bytes: u64,
    start: Instant,
    display: &'a Display,
}

impl Publisher<'_> {
    async fn run(&mut self, args: &PubArgs) -> Result<()> {
        let count = args.count.unwrap_or(self.payloads.count());
        let mut progress: Option<ProgressBar> = None;
        let mut next_look = self.start + PROGRESS_INTERVAL;
        while self.published < count {
            let Some(payload) = self.payloads.next().await? else {
                break;
            };
            if let Some(rate) = args.rate {
                sleep_until(self.due(rate)).await;
            }
            self.bytes += payload.len() as u64;
            self.published += 1;
            self.publish(payload, args.request).await?;
            // The clock is read once in a while: it takes as long as a message.
            if self.published.is_multiple_of(64) && Instant::now() > next_look {
                next_look += PROGRESS_INTERVAL;
                let bar = progress.get_or_insert_with(|| self.display.spinner(String::new()));
                bar.set_message(format!("{} messages published", self.published));
            }
        }
        if let Some(bar) = progress {
            bar.finish_and_clear();
        }
        Ok(())
    }

    /// The time at which the next message may leave.
    fn due(&self, rate: PublishRate) -> Instant {
        let seconds = match rate {
            PublishRate::MessagesPerS(rate) => self.published as f64 / rate,
            PublishRate::Payload(rate) => self.bytes as f64 * 8.0 / rate.bits_per_s() as f64,
        };
        self.start + Duration::from_secs_f64(seconds)
    }

    /// Publishes a message, and prints the answer if one is requested.
    async fn publish(&self, payload: Bytes, is_request: bool) -> Result<()> {
        let message = match &self.target {
            Target::Subject(message) => message.clone().with_payload(payload),
            Target::Ordered(service, groups) => {
                let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
                let sent = self.client.multicast(*service, &groups, payload);
                return Ok(sent.await?);
            }
        };
        if !is_request {
            return Ok(self.client.publish_message(&message).await?);
        }
        let answer = self.client.request_message(message).await?;
        print_message(self.display, "answer", &answer)
    }

    /// Waits until the daemon has all messages, and prints how many they are.
    async fn finish(self) -> Result<()> {
        self.client.flush().await?;
        let seconds = self.start.elapsed().as_secs_f64();
        if self.published > 1 {
            let rate = self.published as f64 / seconds;
            self.display.print_note(&format!(
                "{} messages published, {rate:.0} per second",
                self.published
            ));
        }
        self.display.print_json(&json!({
            "event": "done", "messages": self.published, "bytes": self.bytes, "seconds": seconds,
        }))?;
        Ok(())
    }
}

/// Prints the messages of groups until Ctrl-C, or until there are `--count` messages.
///
/// # Errors
/// If the daemon cannot be reached or refuses the client, if the connection ends, or if Ctrl-C
/// comes before the last of `--count` messages.
pub(crate) async fn subscribe(args: &SubArgs, display: &Display) -> Result<()> {
    let client = connect(&args.server).await?;
    if args.views {
        return ordered::subscribe(&client, args, display).await;
    }
    // A single message in the channel, so that the daemon notices when the output is slow.
    let (sender, mut messages) = mpsc::channel(1);
    for subject in &args.subjects {
        let mut joined = match &args.queue {
            None => client.join(subject).await?,
            Some(queue) => client.join_queue(subject, queue).await?,
        };
        let sender = sender.clone();
        tokio::spawn(async move {
            while let Some(message) = joined.next().await {
                if sender.send(message).await.is_err() {
                    return;
                }
            }
        });
    }
    let interruption = interrupted();
    display.print_json(&json!({ "event": "joined", "subjects": args.subjects }))?;
    let mut left = args.count.unwrap_or(u64::MAX);
    let ended = async {
        while left > 0 {
            let message = messages.recv().await.context("all groups are left")??;
            print_message(display, "message", &message)?;
            left -= 1;
        }
        Ok(())
    };
    tokio::select! {
        result = ended => result,
        () = interruption => end_by_interruption(args),
    }
}

/// The end of `manyflow sub` by Ctrl-C.
fn end_by_interruption(args: &SubArgs) -> Result<()> {
    match args.count {
        Some(_) => Err(Interrupted.into()),
        None => Ok(()),
    }
}

fn print_message(display: &Display, event: &str, message: &Message) -> Result<()> {
    let payload = String::from_utf8_lossy(message.payload());
    let subject = shown(message.subject());
    display.print_line(&format!("{subject}: {payload}"))?;
    if display.is_json() {
        display.print_json(&object(event, message))?;
    }
    Ok(())
}

/// A message as JSON. A payload that is not UTF-8 is in Base64, under another key.
fn object(event: &str, message: &Message) -> Value {
    let mut object = json!({ "event": event, "subject": message.subject() });
    if let Some(reply) = message.reply() {
        object["reply"] = reply.into();
    }
    let mut headers: Map<String, Value> = Map::new();
    for (name, value) in message.headers() {
        let values = headers.entry(name).or_insert_with(|| json!([]));
        if let Value::Array(values) = values {
            values.push(value.into());
        }
    }
    if !headers.is_empty() {
        object["headers"] = headers.into();
    }
    add_payload(&mut object, message.payload());
    object
}

fn add_payload(object: &mut Value, payload: &[u8]) {
    match std::str::from_utf8(payload) {
        Ok(text) => object["payload"] = text.into(),
        Err(_) => object["payload_base64"] = BASE64_STANDARD.encode(payload).into(),
    }
}
