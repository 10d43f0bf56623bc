//! The file of `manyflow serve`. Each table becomes an argument vector that clap reads, so that
//! options, defaults and checks are those of `manyflow send`.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Error, Result};
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgAction, Args, Command};
use toml::de::{DeTable, DeValue};

use crate::cli::{SendArgs, ServerArgs};
use manyflow_terminal::usage;

/// The maximum length of a session's name in bytes.
const NAME_BYTES_MAX: usize = 64;

/// A file of `serve`.
#[derive(Debug)]
pub(super) struct Config {
    pub(super) servers: ServerArgs,
    /// The sessions in the order of the file; at least one.
    pub(super) sessions: Vec<SessionConfig>,
}

/// A session of the file.
#[derive(Debug)]
pub(super) struct SessionConfig {
    /// The name: letters, digits, `-` and `_`.
    pub(super) name: String,
    /// The place in the file and the name, for errors: `FILE:LINE: session NAME`.
    pub(super) place: String,
    pub(super) args: SendArgs,
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// If the file cannot be read or is invalid. Messages have the line, the session and the key.
    pub(super) fn read(path: &Path) -> Result<Config> {
        let file = path.display().to_string();
        let text = manyflow_terminal::failure::read_description(path)?;
        Source { file, text: &text }.read_config()
    }
}

impl SessionConfig {
    /// Checks that receivers can get the description.
    fn check_publication(&self, servers: &ServerArgs) -> Result<()> {
        if servers.publish.is_some() || self.args.keeps_description() {
            return Ok(());
        }
        Err(usage(format!(
            "{}: no way to give receivers the description: add publish = \"0.0.0.0:8080\" above \
             the first table, or session = \"FILE\" to this one",
            self.place
        )))
    }

    /// Checks that the two sessions share neither the UDP port of their relays, nor that of their
    /// receivers' reports, nor the file of their descriptions.
    fn check_apart(&self, other: &SessionConfig) -> Result<()> {
        let (place, other_name) = (&self.place, &other.name);
        if let (Some(one), Some(two)) = (self.args.listen, other.args.listen)
            && share_port(one, two)
        {
            let port = one.port();
            return Err(usage(format!(
                "{place}: listens on UDP port {port}, as session `{other_name}` does: give each relay a port of its own"
            )));
        }
        let audiences = (&self.args.audience, &other.args.audience);
        let (one, two) = (audiences.0.reports, audiences.1.reports);
        let take_reports = audiences.0.takes_reports() && audiences.1.takes_reports();
        if take_reports && share_port(one, two) {
            return Err(usage(format!(
                "{place}: takes reports on UDP port {}, as session `{other_name}` does: give each a port of its own with reports = \"ADDRESS:PORT\"",
                one.port()
            )));
        }
        if let Some(file) = &self.args.session
            && self.args.session == other.args.session
        {
            return Err(usage(format!(
                "{place}: writes its description to {}, as session `{other_name}` does: give each a file of its own",
                file.display()
            )));
        }
        Ok(())
    }
}

/// Whether two sockets cannot have these addresses at the same time. Port 0 is any free port.
fn share_port(one: SocketAddr, two: SocketAddr) -> bool {
    let is_same_ip = one.ip() == two.ip() || one.ip().is_unspecified() || two.ip().is_unspecified();
    one.port() == two.port() && one.port() != 0 && one.is_ipv4() == two.is_ipv4() && is_same_ip
}

/// The file's name and text.
struct Source<'a> {
    file: String,
    text: &'a str,
}

/// A key with its value.
#[derive(Clone)]
struct Entry<'a> {
    key: String,
    /// The place of the key: `FILE:LINE`.
    line: String,
    value: DeValue<'a>,
}

impl<'a> Source<'a> {
    fn read_config(&self) -> Result<Config> {
        let document = DeTable::parse(self.text).map_err(|error| self.syntax_error(&error))?;
        let (mut service, mut defaults, mut sessions) = (Vec::new(), Vec::new(), Vec::new());
        for entry in self.entries(document.into_inner()) {
            match entry.key.as_str() {
                "defaults" => defaults = self.table(entry, "[defaults]")?,
                "session" => sessions = self.table(entry, "[session.NAME]")?,
                _ => service.push(entry),
            }
        }
        let servers: ServerArgs = parse(None, &self.file, &service)?;
        let sessions = sessions.into_iter();
        let sessions: Vec<_> = sessions
            .map(|table| self.session(table, &defaults))
            .collect::<Result<_>>()?;
        if sessions.is_empty() {
            let file = &self.file;
            return Err(usage(format!(
                "{file}: no session: add a table [session.NAME]"
            )));
        }
        for (number, session) in sessions.iter().enumerate() {
            session.check_publication(&servers)?;
            let earlier = &sessions[..number];
            earlier
                .iter()
                .try_for_each(|other| session.check_apart(other))?;
        }
        Ok(Config { servers, sessions })
    }

    /// Reads the table of a session, which has the defaults for keys that it does not have.
    fn session(&self, table: Entry<'a>, defaults: &[Entry<'a>]) -> Result<SessionConfig> {
        let name = table.key.clone();
        let place = format!("{}: session {name}", table.line);
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if !(1..=NAME_BYTES_MAX).contains(&name.len()) || !name.bytes().all(is_plain) {
            return Err(usage(format!(
                "{place}: the name is part of a URL: take letters, digits, - and _, at most {NAME_BYTES_MAX}"
            )));
        }
        let mut options = self.table(table, "[session.NAME]")?;
        for default in defaults {
            if !options.iter().any(|own| own.key == default.key) {
                options.push(default.clone());
            }
        }
        if !options.iter().any(|entry| entry.key == "paths") {
            return Err(usage(format!(
                "{place}: nothing to send: add paths = [\"/srv/files\"]"
            )));
        }
        Ok(SessionConfig {
            args: parse(Some(&name), &place, &options)?,
            name,
            place,
        })
    }

    /// Returns the entries of a table, which is written as `header`.
    fn table(&self, entry: Entry<'a>, header: &str) -> Result<Vec<Entry<'a>>> {
        match entry.value {
            DeValue::Table(table) => Ok(self.entries(table)),
            _ => Err(usage(format!(
                "{}: `{}` is a table: write {header}",
                entry.line, entry.key
            ))),
        }
    }

    /// Returns the entries in the order of the file.
    fn entries(&self, table: DeTable<'a>) -> Vec<Entry<'a>> {
        let mut entries: Vec<_> = table.into_iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        let entries = entries.into_iter().map(|(key, value)| Entry {
            line: self.place(key.span().start),
            key: key.into_inner().into_owned(),
            value: value.into_inner(),
        });
        entries.collect()
    }

    fn syntax_error(&self, error: &toml::de::Error) -> Error {
        let span = error.span().unwrap_or_default();
        let place = self.place(span.start);
        match (error.message(), self.text.get(span)) {
            ("duplicate key", Some(key)) => {
                usage(format!("{place}: the key `{key}` appears twice: keep one"))
            }
            (message, _) => usage(format!("{place}: {message}")),
        }
    }

    /// `FILE:LINE` of the byte at `offset`.
    fn place(&self, offset: usize) -> String {
        let before = self.text.as_bytes().iter().take(offset);
        let line = before.filter(|byte| **byte == b'\n').count() + 1;
        format!("{}:{line}", self.file)
    }
}

/// Reads options as the command line would: those of the session with this name, or of the whole
/// service. Errors that are not about one key name `place`.
fn parse<T: Args>(session: Option<&str>, place: &str, entries: &[Entry<'_>]) -> Result<T> {
    let command = command::<T>();
    let at = |entry: &Entry<'_>| match session {
        Some(name) => format!("{}: session {name}", entry.line),
        None => entry.line.clone(),
    };
    let (mut options, mut positionals) = (Vec::new(), Vec::new());
    for entry in entries {
        let key = entry.key.as_str();
        let known = |arg: &&Arg| key_of(arg) == key;
        let arg = command.get_arguments().find(known);
        let belongs = session.is_none() || !has_key::<ServerArgs>(key);
        let Some(arg) = arg.filter(|_| belongs) else {
            let unknown = describe_unknown::<T>(key);
            return Err(usage(format!("{}: {unknown}", at(entry))));
        };
        let values = values(arg, &entry.value);
        let values = values.map_err(|wanted| usage(format!("{}: `{key}` {wanted}", at(entry))))?;
        match (arg.is_positional(), arg.get_action()) {
            (true, _) => positionals.extend(values),
            (false, ArgAction::SetTrue) => options.extend(values),
            (false, _) => options.extend(values.iter().map(|value| format!("--{key}={value}"))),
        }
    }
    options.push("--".to_owned());
    let read = command.try_get_matches_from(options.into_iter().chain(positionals));
    let read = read.and_then(|matches| T::from_arg_matches(&matches));
    read.map_err(|error| {
        let entry = entries.iter().find(|entry| is_about(&error, &entry.key));
        let place = entry.map_or_else(|| place.to_owned(), at);
        let message = format!("{place}: {}", one_line(&error));
        match manyflow_terminal::failure::may_pass(&error) {
            true => Error::msg(message),
            false => usage(message),
        }
    })
}

fn command<T: Args>() -> Command {
    T::augment_args(Command::new("options"))
        .no_binary_name(true)
        .disable_help_flag(true)
}

/// The key of an argument: its long option, or the name of a positional argument.
fn key_of(arg: &Arg) -> &str {
    arg.get_long().unwrap_or(arg.get_id().as_str())
}

fn has_key<T: Args>(key: &str) -> bool {
    command::<T>().get_arguments().any(|arg| key_of(arg) == key)
}

/// Describes a key that is not one of `T` here.
fn describe_unknown<T: Args>(key: &str) -> String {
    if has_key::<ServerArgs>(key) {
        return format!("`{key}` is an option of the whole service: move it above the first table");
    }
    if has_key::<SendArgs>(key) {
        return format!(
            "`{key}` is an option of sessions: move it to [defaults] or to [session.NAME]"
        );
    }
    let command = command::<T>();
    let known = command.get_arguments().map(key_of);
    let near = known
        .map(|known| (strsim::damerau_levenshtein(key, known), known))
        .min();
    match near {
        Some((distance, near)) if distance <= 1 + key.len() / 4 => {
            format!("unknown key `{key}`: did you mean `{near}`?")
        }
        _ => format!("unknown key `{key}`: `manyflow help serve` describes the file"),
    }
}

/// Returns the values of an argument, or the description of the values that it takes. A flag that
/// is set has itself as value.
fn values(arg: &Arg, value: &DeValue<'_>) -> Result<Vec<String>, &'static str> {
    match (arg.get_action(), value) {
        (ArgAction::SetTrue, DeValue::Boolean(true)) => Ok(vec![format!("--{}", key_of(arg))]),
        (ArgAction::SetTrue, DeValue::Boolean(false)) => Ok(Vec::new()),
        (ArgAction::SetTrue, _) => Err("is a flag: write true or false"),
        (ArgAction::Append, DeValue::Array(items)) => {
            let texts = items.iter().map(|item| text(item.get_ref()));
            let texts: Option<_> = texts.collect();
            texts.ok_or("takes a list of texts: write [\"one\", \"two\"]")
        }
        (ArgAction::Append, value) => {
            let text = text(value).map(|text| vec![text]);
            text.ok_or("takes a text or a list of texts: write [\"one\", \"two\"]")
        }
        (_, value) => {
            let text = text(value).map(|text| vec![text]);
            text.ok_or("takes one value: write a number, or a text in quotation marks")
        }
    }
}

/// Returns a text or number as the command line has it.
fn text(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(digits) => {
            let number = i64::from_str_radix(digits.as_str(), digits.radix());
            number.ok().map(|number| number.to_string())
        }
        DeValue::Float(digits) => Some(digits.as_str().to_owned()),
        _ => None,
    }
}

/// Whether the error is about the option with this key.
fn is_about(error: &clap::Error, key: &str) -> bool {
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else {
        return false;
    };
    let option = option.split([' ', '=']).next();
    option.and_then(|option| option.strip_prefix("--")) == Some(key)
}

/// Returns clap's message without usage and advice about the command line.
fn one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let lines = text.lines().map(str::trim);
    let lines = lines
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join(" ")
}
