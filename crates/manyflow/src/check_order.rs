//! `manyflow check-order`: reads the traces of members of ordered groups, and checks what the order
//! promises.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, bail};
use manyflow_order::check::{End, Sent, Trace, TraceEvent, Viewed, Violation, check};
use manyflow_order::{GroupViewId, Service};
use manyflow_terminal::failure::read_description;
use manyflow_terminal::{Display, usage};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use serde_json::json;

use crate::cli::CheckOrderArgs;

pub(crate) fn run(args: &CheckOrderArgs, display: &Display) -> Result<()> {
    let mut reader = Reader::default();
    for file in &args.files {
        reader.read(file)?;
    }
    let (messages, events) = (reader.messages.len(), reader.events());
    let members = reader.into_members();
    let traces: Vec<Trace> = members.iter().map(|member| member.trace.clone()).collect();
    let places: BTreeMap<&str, &Member> = members.iter().map(|m| (&*m.trace.member, m)).collect();
    let violations = check(&traces);
    for violation in &violations {
        print_violation(violation, &places, display)?;
    }
    let members = traces.len();
    display.print_line(&format!(
        "{members} members, {messages} messages, {events} events: {} violations",
        violations.len()
    ))?;
    display.print_json(&json!({
        "event": "done",
        "members": members,
        "messages": messages,
        "events": events,
        "violations": violations.len(),
    }))?;
    match violations.len() {
        0 => Ok(()),
        count => bail!("{count} violations of what the order promises; see above"),
    }
}

fn print_violation(
    violation: &Violation,
    members: &BTreeMap<&str, &Member>,
    display: &Display,
) -> Result<()> {
    let place = |(name, at): &(String, usize)| {
        let place = members.get(name.as_str())?.places.get(*at);
        place.map(|place| (name.clone(), place))
    };
    let events: Vec<_> = violation.events.iter().filter_map(place).collect();
    let mut line = format!("{}: {}", violation.property, violation.reason);
    for (member, place) in &events {
        line += &format!("; {place} ({member})");
    }
    display.print_line(&line)?;
    let events = events.iter().map(|(member, place)| {
        json!({"member": member, "file": place.file.display().to_string(), "line": place.line})
    });
    display.print_json(&json!({
        "event": "violation",
        "property": violation.property.to_string(),
        "reason": violation.reason,
        "events": events.collect::<Vec<_>>(),
    }))?;
    Ok(())
}

/// A line of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    file: Arc<PathBuf>,
    /// From 1.
    line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line)
    }
}

/// A line as it is written. Views have the keys of the objects that daemons publish.
#[derive(Debug, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase", deny_unknown_fields)]
enum Line {
    Sent {
        #[serde(alias = "self")]
        member: String,
        message: u64,
        #[serde(deserialize_with = "parse")]
        service: Service,
        groups: Vec<String>,
        #[serde(default)]
        self_discard: bool,
    },
    Delivered {
        #[serde(alias = "self")]
        member: String,
        message: u64,
    },
    View {
        #[serde(alias = "self")]
        member: String,
        group: String,
        #[serde(deserialize_with = "parse")]
        view: GroupViewId,
        members: Vec<String>,
        cause: LineCause,
        #[serde(default, rename = "who")]
        _who: Option<String>,
        stayed: Vec<String>,
    },
    Transitional {
        #[serde(alias = "self")]
        member: String,
        group: String,
        #[serde(default, rename = "transitional")]
        _transitional: Option<bool>,
    },
    Left {
        #[serde(alias = "self")]
        member: String,
        group: String,
    },
    End {
        #[serde(alias = "self")]
        member: String,
        how: LineEnd,
    },
}

/// Why a view came.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum LineCause {
    Join,
    Leave,
    Disconnect,
    Network,
}

/// How a trace ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum LineEnd {
    Gone,
    Quiet,
}

/// Parses a text by `FromStr`.
fn parse<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: std::str::FromStr<Err: fmt::Display>,
{
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(D::Error::custom)
}

/// A member: its trace, and the places of its events.
#[derive(Debug)]
struct Member {
    trace: Trace,
    places: Vec<Place>,
    /// The place of the line that ends the trace.
    end: Option<Place>,
}

/// Traces, as far as they have been read.
#[derive(Debug, Default)]
struct Reader {
    members: BTreeMap<String, Member>,
    /// Where each message was sent.
    messages: BTreeMap<u64, Place>,
}

impl Reader {
    fn read(&mut self, path: &Path) -> Result<()> {
        let text = read_description(path)?;
        let file = Arc::new(path.to_owned());
        for (index, line) in text.lines().enumerate() {
            let place = Place {
                file: Arc::clone(&file),
                line: index + 1,
            };
            if line.trim().is_empty() {
                continue;
            }
            self.add(line, &place)
                .map_err(|problem| usage(format!("{place}: {problem}")))?;
        }
        Ok(())
    }

    fn add(&mut self, line: &str, place: &Place) -> Result<(), String> {
        let line: Line = serde_json::from_str(line).map_err(|error| error.to_string())?;
        let (member, event) = match line {
            Line::End { member, how } => {
                let member = self.member(member)?;
                member.trace.end = match how {
                    LineEnd::Gone => End::Gone,
                    LineEnd::Quiet => End::Quiet,
                };
                member.end = Some(place.clone());
                return Ok(());
            }
            line => line.into_event(),
        };
        if let TraceEvent::Sent(sent) = &event
            && let Some(before) = self.messages.insert(sent.message, place.clone())
        {
            let number = sent.message;
            return Err(format!(
                "message {number} was sent at {before}, too: give each message a number of its own"
            ));
        }
        let member = self.member(member)?;
        member.trace.events.push(event);
        member.places.push(place.clone());
        Ok(())
    }

    /// Returns a member whose trace has not ended.
    fn member(&mut self, name: String) -> Result<&mut Member, String> {
        let new = || Member {
            trace: Trace {
                member: name.as_str().into(),
                events: Vec::new(),
                end: End::Gone,
            },
            places: Vec::new(),
            end: None,
        };
        let member = self.members.entry(name.clone()).or_insert_with(new);
        match &member.end {
            None => Ok(member),
            Some(end) => Err(format!("the trace of {name} has ended at {end}")),
        }
    }

    fn events(&self) -> usize {
        self.members.values().map(|m| m.places.len()).sum()
    }

    fn into_members(self) -> Vec<Member> {
        self.members.into_values().collect()
    }
}

impl Line {
    /// Returns the member and its event.
    fn into_event(self) -> (String, TraceEvent) {
        let names = |names: Vec<String>| names.iter().map(|name| name.as_str().into()).collect();
        match self {
            Line::Sent {
                member,
                message,
                service,
                groups,
                self_discard,
            } => {
                let sent = Sent {
                    message,
                    service,
                    groups: groups.iter().map(|group| group.as_str().into()).collect(),
                    self_discard,
                };
                (member, TraceEvent::Sent(sent))
            }
            Line::Delivered { member, message } => (member, TraceEvent::Delivered(message)),
            Line::View {
                member,
                group,
                view,
                members,
                cause,
                stayed,
                ..
            } => {
                let viewed = Viewed {
                    group: group.into(),
                    id: view,
                    members: names(members),
                    by_network: cause == LineCause::Network,
                    stayed: names(stayed),
                };
                (member, TraceEvent::View(viewed))
            }
            Line::Transitional { member, group, .. } => {
                (member, TraceEvent::Transitional(group.into()))
            }
            Line::Left { member, group } => (member, TraceEvent::Left(group.into())),
            Line::End { .. } => unreachable!("an end is no event"),
        }
    }
}
