//! The WEBRC sessions of a scenario, as programs in the namespaces of their nodes: `manyflow send`
//! and `manyflow recv`, over emulated source-specific multicast.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;

use manyflow_core::{Action, Ecn, EndpointId, Rate, Time};
use manyflow_scenario::protocols::{HostEvent, IpPacket};
use manyflow_scenario::{Observable, WebrcSession};
use manyflow_webrc::{CciFormat, Parameter, ReceiverConfig, SessionConfig};
use serde_json::Value;

use super::command::last_line;
use crate::error::EmulateError;
use crate::fabric::{Groups, Joiner};
use crate::kernel::program::{Program, Report, Running};
use crate::netns::DEVICE;
use crate::stage::Stage;

/// The observables of receivers that are known: from their progress reports, and from their joins.
pub(super) const REPORTED: [Observable; 5] = [
    Observable::ReportedRate,
    Observable::Rtt,
    Observable::LossProbability,
    Observable::Joins,
    Observable::Channels,
];

/// The UDP port of session 0. The other sessions follow.
const FIRST_PORT: u16 = 5445;
/// The bytes of the IP and UDP headers. A scenario's packets include them, and those of `send`
/// do not.
const HEADERS: u32 = 28;
/// The exit code of `recv` if the session has ended.
const SESSION_OVER: i32 = 3;
/// The bytes of a sender's file beyond those that a receiver can receive in the run.
const MARGIN: u64 = 1 << 20;

/// A sender or a receiver.
pub(super) struct WebrcProgram {
    endpoint: EndpointId,
    /// The session and the program, for errors.
    name: String,
    is_receiver: bool,
    /// The size of a packet over that of its UDP payload.
    headers: f64,
    errors: PathBuf,
    /// A folder or a file that is removed in the end.
    scratch: PathBuf,
    running: Running,
}

/// The programs of one session while they begin.
pub(super) struct Beginning<'a> {
    pub(super) session: &'a WebrcSession,
    /// The place of the session among those of this kind.
    pub(super) place: u8,
    /// The path of `manyflow`.
    pub(super) manyflow: &'a Path,
    /// The folder for files.
    pub(super) folder: &'a Path,
    /// The rate of the slowest link to the fastest receiver, if links limit it during the whole
    /// run.
    pub(super) rate_max: Option<Rate>,
    /// The ways into the endpoints of the receivers.
    pub(super) inlets: Vec<Sender<Action<IpPacket>>>,
}

impl Beginning<'_> {
    /// Begins all programs of the session, each of which starts when it is time.
    pub(super) fn begin(self, stage: &mut Stage) -> Result<Vec<WebrcProgram>, EmulateError> {
        let folder = || self.folder.to_owned();
        let made = self.make_files();
        made.map_err(|error| EmulateError::Folder(folder(), error))?;
        let session = self.session;
        let fabric = stage.drive.fabric_mut();
        fabric.claim_groups(&Groups {
            source: session.sender.1,
            session: session.number,
            first: self.group(),
            channels: session.channels,
        });
        for (receiver, inlet) in session.receivers.iter().zip(&self.inlets) {
            fabric.add_joiner(Joiner {
                node: receiver.at.1,
                session: session.number,
                start: receiver.start,
                endpoint: receiver.at.0,
                inlet: inlet.clone(),
            });
        }
        let mut programs = vec![self.sender(stage)?];
        for place in 0..session.receivers.len() {
            programs.push(self.receiver(place, stage)?);
        }
        Ok(programs)
    }

    fn group(&self) -> Ipv4Addr {
        Ipv4Addr::new(232, 1, self.place, 0)
    }

    fn file(&self, ending: &str) -> PathBuf {
        self.folder.join(format!("{}.{ending}", self.session.name))
    }

    /// Makes the file to send, which has no blocks on the disk. Removes an earlier run's
    /// description, without which receivers do not start.
    fn make_files(&self) -> io::Result<()> {
        let rate = self.session.config.session_rate;
        let rate = self.rate_max.map_or(rate, |max| max.min(rate));
        let bytes = rate.bits_per_s() as f64 / 8.0 * (self.session.end - Time::ZERO).as_secs_f64();
        fs::File::create(self.file("data"))?.set_len(bytes as u64 + MARGIN)?;
        match fs::remove_file(self.file("sdp")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn sender(&self, stage: &Stage) -> Result<WebrcProgram, EmulateError> {
        let session = self.session;
        let mut command: Vec<OsString> = vec![self.manyflow.into(), "send".into()];
        command.extend([self.file("data").into(), "--session".into()]);
        command.push(self.file("sdp").into());
        let group = format!("{}/24", self.group());
        let fixed = ["--multicast", &group, "--interface", DEVICE, "--ttl", "255"];
        command.extend(fixed.map(Into::into));
        let port = FIRST_PORT + u16::from(self.place);
        command.extend(["--port".into(), port.to_string().into()]);
        let content = ["--fec", "none", "--threads", "1"];
        command.extend(content.map(Into::into));
        let options = sender_options(&session.config);
        command.extend(options.into_iter().map(Into::into));
        let at = |time: Time| stage.drive.start() + (time - Time::ZERO);
        let errors = self.file("send.stderr");
        let program = Program {
            command,
            environment: Vec::new(),
            output: Some(self.file("send.stdout")),
            errors: errors.clone(),
            after: None,
            start: at(session.start),
            stop: session.stop.map(at),
        };
        let (endpoint, node) = session.sender;
        Ok(WebrcProgram {
            endpoint,
            name: format!("session `{}`: manyflow send", session.name),
            is_receiver: false,
            headers: headers(&session.config),
            errors,
            scratch: self.file("data"),
            running: program.begin(stage.namespace(node))?,
        })
    }

    fn receiver(&self, place: usize, stage: &Stage) -> Result<WebrcProgram, EmulateError> {
        let session = self.session;
        let receiver = &session.receivers[place];
        let at = |time: Time| stage.drive.start() + (time - Time::ZERO);
        let scratch = self.file(&format!("received-{place}"));
        let errors = self.file(&format!("recv-{place}.stderr"));
        let mut command: Vec<OsString> = vec![self.manyflow.into(), "recv".into()];
        command.extend([self.file("sdp").into(), "--output".into()]);
        command.push(scratch.clone().into());
        let patience = format!("{}s", (session.end - Time::ZERO).as_secs() + 1);
        let fixed = ["--json", "--interface", DEVICE, "--patience", &patience];
        command.extend(fixed.map(Into::into));
        command.extend(["--overwrite", "--threads", "1"].map(Into::into));
        let options = receiver_options(&session.config, &session.receiver);
        command.extend(options.into_iter().map(Into::into));
        let program = Program {
            command,
            environment: Vec::new(),
            output: None,
            errors: errors.clone(),
            after: Some(self.file("sdp")),
            start: at(receiver.start),
            stop: receiver.stop.map(at),
        };
        let (endpoint, node) = receiver.at;
        Ok(WebrcProgram {
            endpoint,
            name: format!(
                "session `{}`: manyflow recv at node {}",
                session.name, node.0
            ),
            is_receiver: true,
            headers: headers(&session.config),
            errors,
            scratch,
            running: program.begin(stage.namespace(node))?,
        })
    }
}

impl WebrcProgram {
    /// Reports the news of the program.
    pub(super) fn observe(
        &mut self,
        report: &mut dyn FnMut(EndpointId, HostEvent),
    ) -> Result<(), EmulateError> {
        while let Some(news) = self.running.poll() {
            match news {
                Report::NotStarted(error) => {
                    return Err(EmulateError::Program(self.name.clone(), error.to_string()));
                }
                Report::Line(line) => self.observe_line(&line, report),
                Report::Ended { is_stopped, code } => {
                    if !(is_stopped || self.is_receiver && code == SESSION_OVER) {
                        let said = last_line(&self.errors);
                        let said = said.unwrap_or(format!("exit code {code}"));
                        return Err(EmulateError::Program(self.name.clone(), said));
                    }
                    report(self.endpoint, HostEvent::Ended);
                }
            }
        }
        Ok(())
    }

    /// Reports the values of a line about a receiver's progress.
    fn observe_line(&self, line: &str, report: &mut dyn FnMut(EndpointId, HostEvent)) {
        let Ok(line) = serde_json::from_str::<Value>(line) else {
            return;
        };
        if line["event"] != "progress" {
            return;
        }
        for (key, what, factor) in [
            ("rate_bits_per_s", Observable::ReportedRate, self.headers),
            ("rtt_s", Observable::Rtt, 1.0),
            ("loss_probability", Observable::LossProbability, 1.0),
        ] {
            if let Some(value) = line[key].as_f64() {
                report(self.endpoint, HostEvent::Measured(what, value * factor));
            }
        }
    }

    /// Begins to end the program.
    pub(super) fn end(&self) {
        self.running.end();
    }
}

impl Drop for WebrcProgram {
    fn drop(&mut self) {
        self.running.end_and_wait();
        // Files that remain are in the folder of results, where the user sees them.
        let _ = match self.is_receiver {
            true => fs::remove_dir_all(&self.scratch),
            false => fs::remove_file(&self.scratch),
        };
    }
}

/// Returns the size of a packet over that of its UDP payload.
fn headers(config: &SessionConfig) -> f64 {
    let payload = config.packet_bytes.saturating_sub(HEADERS).max(1);
    f64::from(config.packet_bytes) / f64::from(payload)
}

/// Returns a scenario's rate as a program counts it, without IP and UDP headers.
fn payload_rate(rate: Rate, config: &SessionConfig) -> String {
    let bits = rate.bits_per_s() as f64 / headers(config);
    format!("{}bit/s", bits.round())
}

/// Returns the options of `send` for the parameters of a session, all of them.
fn sender_options(config: &SessionConfig) -> Vec<String> {
    let packet = config.packet_bytes.saturating_sub(HEADERS);
    let mut options = vec![
        "--profile=wan".to_owned(),
        format!("--rate={}", payload_rate(config.session_rate, config)),
        format!("--packet={packet}"),
    ];
    match config.ecn {
        Ecn::Capable => options.push("--ecn".to_owned()),
        Ecn::L4s => options.push("--l4s".to_owned()),
        Ecn::NotCapable | Ecn::Marked => {}
    }
    let mut set = |name: &str, value: String| options.push(format!("--set={name}={value}"));
    set("TSD", time(config.time_slot));
    set("QD", time(config.quiescence));
    set("trains", config.packet_trains.unwrap_or(0).to_string());
    set("BCR", config.base_rate_packets_per_s.to_string());
    set("P", config.decrease.to_string());
    set("constant", yes(config.constant_aggregate));
    if let Some(slots) = config.active_slots {
        set("N", slots.to_string());
    }
    if let Some(format) = config.cci_format {
        let name = match format {
            CciFormat::Short => "short",
            CciFormat::Long => "long",
        };
        set("CCI", name.to_owned());
    }
    options
}

/// Returns the options of `recv` for the parameters of a receiver, all of them.
fn receiver_options(session: &SessionConfig, config: &ReceiverConfig) -> Vec<String> {
    let mut options = vec!["--strict-rfc3738".to_owned()];
    let rate = config.maximum_rate;
    options.extend(rate.map(|rate| format!("--max-rate={}", payload_rate(rate, session))));
    options.extend(Parameter::all().iter().filter_map(|parameter| {
        let value = parameter.value(config)?;
        Some(format!("--set={}={value}", parameter.name()))
    }));
    options
}

fn time(time: std::time::Duration) -> String {
    format!("{}ns", time.as_nanos())
}

fn yes(is_on: bool) -> String {
    if is_on { "yes" } else { "no" }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_count_packets_and_rates_without_headers() {
        let config = SessionConfig {
            packet_bytes: 1400,
            packet_trains: Some(16),
            ecn: Ecn::Capable,
            ..SessionConfig::wan(Rate::from_bits_per_s(14_000_000))
        };
        let options = sender_options(&config);
        for option in [
            "--packet=1372",
            "--ecn",
            "--rate=13720000bit/s",
            "--set=trains=16",
            "--set=TSD=10000000000ns",
        ] {
            assert!(options.iter().any(|given| given == option), "{options:?}");
        }
        let receiver = ReceiverConfig {
            maximum_rate: Some(Rate::from_bits_per_s(1_400_000)),
            ..ReceiverConfig::live()
        };
        let options = receiver_options(&config, &receiver);
        for option in [
            "--max-rate=1372000bit/s",
            "--set=rtt=spacing",
            "--set=capacity-check=yes",
            "--set=loss-filter=measured",
            "--set=falling-rate-reset=no",
            "--set=equation-factor=mean",
        ] {
            assert!(options.iter().any(|given| given == option), "{options:?}");
        }
    }
}
