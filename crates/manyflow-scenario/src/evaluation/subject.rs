//! The protocol that is evaluated, as keys of a session.

use manyflow_model::Problem;

/// The keys that every session of TCP has: segments of 1500 bytes with headers, the initial window
/// of RFC 6928, and a receive window so large that it never limits the rate.
const TCP: &str = "segment = \"1460 B\"\ninitial-window = 10\nmaximum-window = 100_000";

/// Keeps window-based flows from falling into step.
const JITTER: &str = "send-jitter = \"6000 bit / rate\"";

/// The further keys of window-based TCP in today's stacks.
const TODAY: &str = "slow-start = \"hystart++\"\nloss-detection = \"rack\"\nrecovery = \"prr\"\n\
                     send-jitter = \"6000 bit / rate\"";

/// A protocol by its name.
struct Known {
    name: &'static str,
    keys: Keys,
}

/// The line with which routers mark TCP's packets.
const ECN: Option<&str> = Some("tcp.ecn = true");

/// How a session gets a protocol's keys. The last field of the first two is the further line of a
/// session whose packets may be marked; `None` if the protocol has no answer to marks.
enum Keys {
    /// TCP's with this variant and these further keys.
    Tcp(&'static str, &'static str, Option<&'static str>),
    /// Lines of the session.
    Lines(&'static str, Option<&'static str>),
    /// A client of an overlay of two daemons with these keys, one for each session.
    Overlay(&'static str),
}

const fn tcp(
    name: &'static str,
    variant: &'static str,
    more: &'static str,
    marked: Option<&'static str>,
) -> Known {
    let keys = Keys::Tcp(variant, more, marked);
    Known { name, keys }
}

/// The protocols, in the order in which errors list them.
const KNOWN: &[Known] = &[
    tcp("reno", "sack", TODAY, ECN),
    tcp("new-reno", "new-reno", JITTER, ECN),
    tcp("cubic", "cubic", TODAY, ECN),
    // The draft of BBR has no answer to marks.
    tcp("bbr", "bbr", "", None),
    tcp("bbr3", "bbr3", "", None),
    // These always may be marked.
    tcp("dctcp", "dctcp", "", Some("")),
    tcp("prague", "prague", "", Some("")),
    Known {
        name: "webrc",
        keys: Keys::Lines(
            r#"protocol = "webrc"
webrc.session-rate = "2 * rate"
webrc.packet = "1500 B"
webrc.time-slot = "2 s"
webrc.quiescence = "20 s"
webrc.base-rate = "4 packets/s"
webrc.receiver = "live""#,
            Some("webrc.ecn = true"),
        ),
    },
    Known {
        name: "tfmcc",
        keys: Keys::Lines(
            "protocol = \"tfmcc\"\ntfmcc.packet = \"1500 B\"\ntfmcc.minimum-rto = \"200 ms\"",
            Some("tfmcc.ecn = true"),
        ),
    },
    Known {
        name: "tfrc",
        keys: Keys::Overlay("controller = \"tfrc\""),
    },
    Known {
        name: "cost-benefit",
        keys: Keys::Overlay("controller = \"cost-benefit\"\ncost-benefit.law = \"live\""),
    },
];

/// The protocol that is evaluated.
#[derive(Clone, Debug)]
pub struct Subject {
    name: String,
    /// The lines of a session, in which `{session}` is the session's name.
    session: String,
    /// The further line of a session whose packets may be marked; `None` if there is none such.
    marked: Option<&'static str>,
    /// The lines of an overlay for each session, if the protocol needs one.
    overlay: Option<&'static str>,
}

impl Subject {
    /// Returns the protocol of this name.
    ///
    /// # Errors
    /// Returns an error that lists the names, or suggests one, if there is no such protocol.
    pub fn named(name: &str) -> Result<Subject, Problem> {
        let Some(known) = KNOWN.iter().find(|known| known.name == name) else {
            let names = KNOWN.iter().map(|known| known.name);
            return Err(Problem::unknown("protocol", name, names));
        };
        let subject = Subject {
            name: name.to_owned(),
            session: String::new(),
            marked: None,
            overlay: None,
        };
        Ok(match known.keys {
            Keys::Tcp(variant, more, marked) => {
                subject.with_tcp(&format!("variant = \"{variant}\""), more, marked)
            }
            Keys::Lines(session, marked) => Subject {
                session: session.to_owned(),
                marked,
                ..subject
            },
            Keys::Overlay(keys) => Subject {
                session: OVERLAY_SESSION.to_owned(),
                overlay: Some(keys),
                ..subject
            },
        })
    }

    /// Returns TCP with a control of the calling program, which [`Controls`](crate::Controls) has
    /// under this name: letters, digits, `-` and `_`. Losses are detected by RACK-TLP.
    pub fn of_control(name: &str) -> Subject {
        let subject = Subject {
            name: name.to_owned(),
            session: String::new(),
            marked: None,
            overlay: None,
        };
        let more = "loss-detection = \"rack\"";
        subject.with_tcp(&format!("control = {name:?}"), more, ECN)
    }

    fn with_tcp(self, control: &str, more: &str, marked: Option<&'static str>) -> Subject {
        let keys = [control].into_iter().chain(TCP.lines()).chain(more.lines());
        // Dotted keys, so that a line can follow them.
        let lines: Vec<String> = keys.map(|key| format!("tcp.{key}")).collect();
        Subject {
            session: format!("protocol = \"tcp\"\n{}", lines.join("\n")),
            marked,
            ..self
        }
    }

    /// Returns the name of the protocol or control.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether the protocol has an answer to routers' marks (ECN).
    pub fn can_be_marked(&self) -> bool {
        self.marked.is_some()
    }

    /// Returns the text of a scenario with a session for each `[[tested]]`; `None` if one of them
    /// asks for marks that the protocol has not.
    pub(super) fn put_into(&self, text: &str) -> Option<String> {
        let mut whole = String::new();
        let mut overlays = String::new();
        for paragraph in text.split("\n\n") {
            match paragraph.strip_prefix("[[tested]]\n") {
                None => whole.push_str(paragraph.trim_end()),
                Some(table) => self.add_sessions(table, &mut whole, &mut overlays)?,
            }
            whole.push_str("\n\n");
        }
        Some(format!("{}\n{overlays}", whole.trim_end()))
    }

    /// Adds the sessions of one table.
    fn add_sessions(&self, table: &str, whole: &mut String, overlays: &mut String) -> Option<()> {
        let mut keys = Vec::new();
        let mut count = 1;
        let mut tail = "";
        for line in table.trim_end().lines() {
            match line.split_once(" = ") {
                Some(("count", number)) => count = number.parse().expect("a number"),
                Some(("ecn", _)) => tail = self.marked?,
                _ => keys.push(line),
            }
        }
        let keys = keys.join("\n");
        for number in 0..count {
            let keys = keys.replace("{i}", &format!("{number}"));
            let name = value(&keys, "name");
            let own = self.session.replace("{session}", &name);
            let session = format!("[[sessions]]\n{keys}\n{own}\n{tail}");
            if number > 0 {
                whole.push_str("\n\n");
            }
            whole.push_str(session.trim_end());
            if let Some(controller) = self.overlay {
                let (sender, receiver) = (value(&keys, "sender"), value(&keys, "receivers"));
                overlays.push_str(&format!(
                    "\n[[overlays]]\nname = \"under-{name}\"\ndaemons = [\"{sender}\", \"{receiver}\"]\n\
                     links = [[\"{sender}\", \"{receiver}\"]]\n{controller}\n"
                ));
            }
        }
        Some(())
    }
}

/// The session of an overlay's client. With its headers, a message has 1500 bytes.
const OVERLAY_SESSION: &str =
    "protocol = \"overlay\"\noverlay = { overlay = \"under-{session}\", message = \"1434 B\" }";

/// Returns the first text in quotation marks in the line of a key.
fn value(keys: &str, key: &str) -> String {
    let line = keys.lines().find(|line| line.starts_with(key));
    let text = line.and_then(|line| line.split('"').nth(1));
    text.expect("each `[[tested]]` has this key").to_owned()
}
