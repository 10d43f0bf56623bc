//! `manyflow-rig bench downloads`: a file for many receivers behind one link, beside one download
//! by HTTP for each of them.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Result;
use manyflow_core::units::{Bytes, Rate};
use serde_json::json;

use super::process::{Running, wait_for_all};
use super::transfer::{LinkCounts, Measured, Ours, into_folders};
use super::{fail_if_missed, median};
use crate::bench::lan::{INTERFACE, Lan, Layout, in_namespace};
use crate::bench::write_random;
use crate::cli::DownloadsArgs;
use manyflow_terminal::Display;

/// The port of the HTTP server.
const HTTP_PORT: u16 = 8000;
/// Maximum time of the last receiver, as a multiple of that of the downloads.
const TIME_BOUND: f64 = 0.25;
/// Maximum number of bytes on the sender's link, as a multiple of the file.
const CARRIED_BOUND: f64 = 1.15;

/// A way from the sender to all receivers.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Way {
    /// Each receiver downloads the file.
    Http,
    /// The session goes to multicast groups.
    Multicast,
    /// The session goes from the sender's relay to each receiver.
    SenderRelay,
    /// The session goes from the sender's relay to one behind the link, and from there to each
    /// receiver.
    SiteRelay,
}

impl Way {
    const ALL: [Way; 4] = [Way::Http, Way::Multicast, Way::SenderRelay, Way::SiteRelay];

    fn name(self) -> &'static str {
        match self {
            Way::Http => "HTTP, a download each",
            Way::Multicast => "manyflow, multicast",
            Way::SenderRelay => "manyflow, sender's relay",
            Way::SiteRelay => "manyflow, relay behind link",
        }
    }

    /// Whether the link has to carry the file about once.
    fn is_bounded(self) -> bool {
        matches!(self, Way::Multicast | Way::SiteRelay)
    }
}

/// Compares all ways.
pub(crate) fn run(args: &DownloadsArgs, display: &Display) -> Result<()> {
    let lan = Lan::new(args.receivers.into(), Layout::SiteRelay)?;
    lan.limit_sender(args.link)?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("file");
    write_random(&file, args.size.0)?;
    let (size, receivers, link) = (args.size, args.receivers, args.link);
    display.print_line(&format!("{size} to {receivers} receivers behind {link}"))?;
    display.print_line(&row([
        "way",
        "first, s",
        "last, s",
        "link, x file",
        "of HTTP",
    ]))?;
    let mut results = vec![Vec::new(); Way::ALL.len()];
    for _ in 0..args.runs {
        for (way, results) in Way::ALL.iter().zip(&mut results) {
            let transfer = |outputs: &[PathBuf]| way.transfer(&lan, link, &file, outputs);
            let measured = into_folders(&lan, way.name(), &file, folder.path(), transfer)?;
            results.push(measured);
        }
    }
    let summaries: Vec<_> = results.iter().map(|runs| Summary::of(runs, size)).collect();
    let mut missed = Vec::new();
    for (way, summary) in Way::ALL.into_iter().zip(&summaries) {
        let of_downloads = summary.last_s / summaries[0].last_s;
        summary.print(way, of_downloads, display)?;
        if way.is_bounded() {
            missed.extend(summary.missed(way, of_downloads));
        }
    }
    fail_if_missed(&missed)
}

impl Way {
    fn transfer(self, lan: &Lan, link: Rate, file: &Path, outputs: &[PathBuf]) -> Result<Measured> {
        if self == Way::Http {
            return download(lan, file, outputs);
        }
        // The values that `send` takes on an interface whose speed is that of the link. Those of
        // namespaces always show 10 Gbit/s.
        let part = |hundredths| link.bits_per_s() / 100 * hundredths;
        let mut arguments = vec![
            format!("--rate={}bit/s", part(90)),
            format!("--relay-rate-max={}bit/s", part(95)),
        ];
        if self == Way::Multicast {
            arguments.push("--multicast=232.1.2.0/24".to_owned());
            arguments.push(format!("--interface={INTERFACE}"));
            arguments.push(format!("--publish={}:0", lan.sender_address));
        }
        let relays = match self {
            Way::SiteRelay => &lan.relays[..],
            _ => &[],
        };
        let ours = Ours {
            lan,
            relays,
            arguments,
            profiles: None,
        };
        ours.transfer(file, outputs)
    }
}

/// Downloads `file` to all receivers at the same time.
fn download(lan: &Lan, file: &Path, outputs: &[PathBuf]) -> Result<Measured> {
    let (Some(folder), Some(name)) = (file.parent(), file.file_name()) else {
        anyhow::bail!("{}: the file has no folder", file.display());
    };
    let mut command = in_namespace(&lan.sender, Path::new("python3"));
    command.args(["-u", "-m", "http.server", "--bind"]);
    command.arg(lan.sender_address.to_string());
    command.arg("--directory").arg(folder);
    command.arg(HTTP_PORT.to_string());
    let mut server = Running::start(command)?;
    server.line("Serving HTTP")?;
    let name_shown = name.to_string_lossy();
    let url = format!("http://{}:{HTTP_PORT}/{name_shown}", lan.sender_address);
    let mut links = LinkCounts::new(lan)?;
    let start = Instant::now();
    let mut receivers = Vec::new();
    for (namespace, output) in lan.receivers.iter().zip(outputs) {
        let mut command = in_namespace(namespace, Path::new("curl"));
        command.args(["--silent", "--fail", "--output"]);
        command.arg(output.join(name)).arg(&url);
        receivers.push(Running::start(command)?);
    }
    let seconds = wait_for_all(&mut receivers, start, |number| links.read(number))?;
    Ok(Measured {
        seconds,
        carried: links.carried,
        sent: links.sent,
        sender_us: 0.0,
        receiver_us: 0.0,
    })
}

/// The medians of a way.
#[derive(Clone, Debug, PartialEq)]
struct Summary {
    /// Time of the first receiver that was done, in seconds.
    first_s: f64,
    /// Time of the last one, in seconds.
    last_s: f64,
    /// Bytes on the sender's link, as a multiple of the file.
    link_files: f64,
}

impl Summary {
    fn of(runs: &[Measured], size: Bytes) -> Summary {
        let first_s = |run: &Measured| run.seconds.iter().copied().fold(f64::INFINITY, f64::min);
        Summary {
            first_s: median(runs.iter().map(first_s)),
            last_s: median(runs.iter().map(Measured::slowest_s)),
            link_files: median(runs.iter().map(|run| run.sent as f64 / size.0 as f64)),
        }
    }

    fn print(&self, way: Way, of_downloads: f64, display: &Display) -> Result<()> {
        let (first, last) = (
            format!("{:.2}", self.first_s),
            format!("{:.2}", self.last_s),
        );
        let (files, part) = (
            format!("{:.3}", self.link_files),
            format!("{of_downloads:.2}"),
        );
        display.print_line(&row([way.name(), &first, &last, &files, &part]))?;
        display.print_json(&json!({
            "event": "way", "way": way.name(), "first_seconds": self.first_s, "last_seconds": self.last_s,
            "link_files": self.link_files, "of_downloads": of_downloads,
        }))?;
        Ok(())
    }

    /// Returns a message for each bound that is missed.
    fn missed(&self, way: Way, of_downloads: f64) -> Vec<String> {
        let mut missed = Vec::new();
        if of_downloads > TIME_BOUND {
            missed.push(format!(
                "{}: the last receiver takes more than {TIME_BOUND} of the downloads' time",
                way.name()
            ));
        }
        if self.link_files > CARRIED_BOUND {
            missed.push(format!(
                "{}: the link carries more than {CARRIED_BOUND} times the file",
                way.name()
            ));
        }
        missed
    }
}

fn row([way, first, last, link, part]: [&str; 5]) -> String {
    format!("{way:<28} {first:>10} {last:>10} {link:>14} {part:>9}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(seconds: [f64; 3], sent_mb: u64) -> Measured {
        Measured {
            seconds: seconds.to_vec(),
            carried: Vec::new(),
            sent: sent_mb * 1_000_000,
            sender_us: 0.0,
            receiver_us: 0.0,
        }
    }

    #[test]
    fn a_way_counts_with_its_first_and_last_receiver_and_the_bytes_on_the_link() {
        let runs = [
            measured([4.0, 2.0, 3.0], 300),
            measured([1.0, 1.0, 9.0], 100),
            measured([3.0, 3.0, 5.0], 110),
        ];
        let summary = Summary::of(&runs, Bytes(100_000_000));
        let expected = Summary {
            first_s: 2.0,
            last_s: 5.0,
            link_files: 1.1,
        };
        assert_eq!(summary, expected);
    }

    #[test]
    fn each_missed_bound_is_named_with_its_way() {
        let summary = Summary {
            first_s: 1.0,
            last_s: 2.0,
            link_files: 1.16,
        };
        assert_eq!(summary.missed(Way::Multicast, 0.25).len(), 1);
        let missed = summary.missed(Way::SiteRelay, 0.26).join("; ");
        for part in ["relay behind link", "0.25 of the downloads", "1.15 times"] {
            assert!(missed.contains(part), "{missed}");
        }
    }
}
