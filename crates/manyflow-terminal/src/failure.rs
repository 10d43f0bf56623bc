//! Errors of the command line, and the exit codes of errors.

use std::error::Error as _;
use std::io;
use std::path::Path;

use anyhow::Error;
use manyflow_files::session::{DecoderError, ReceiveError};
use manyflow_messages::ClientError;
use manyflow_net::address::AddressError;
use manyflow_net::description::DescriptionError;
use manyflow_net::description::load::LoadError;
use manyflow_net::inlet::TransportError;
use manyflow_net::tls::TlsError;
use manyflow_streams::{SinkError, StreamReceiveError};
use nix::errno::Errno;

use crate::output::OutputError;

/// The exit code for what may succeed at a later attempt.
pub const FAILURE: u8 = 1;
/// The exit code for an invalid command line.
pub const USAGE: u8 = 2;
/// The exit code of a command that Ctrl-C has ended: 128 and the number of SIGINT.
pub const INTERRUPTED: u8 = 130;
/// The exit code that a shell reports for a program ended by SIGPIPE: 128 + 13.
pub const CLOSED_OUTPUT: u8 = 141;

/// The command line or the session description is invalid.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(String);

/// Returns a [`Usage`] error with this message.
pub fn usage(message: impl Into<String>) -> Error {
    Usage(message.into()).into()
}

/// A command that a signal ended before it was done.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

/// A program that the command has started has failed, or was interrupted. Its exit code is passed
/// on without a message.
#[derive(Debug, thiserror::Error)]
#[error("the command ended with exit code {0}")]
pub struct CommandFailed(pub u8);

/// Reads a file that describes what to do: a scenario, a daemon, a service.
///
/// # Errors
/// Returns a [`Usage`] error that names the file.
pub fn read_description(path: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(path);
    text.map_err(|error| {
        let path = path.display();
        usage(format!(
            "cannot read {path}: {error}; check the path and its mode"
        ))
    })
}

/// Whether the reader of standard output has closed it, so that the command has nothing left to do.
pub(crate) fn is_closed_output(error: &Error) -> bool {
    let output = error.downcast_ref::<OutputError>();
    let units = error.downcast_ref::<SinkError>();
    output.is_some_and(OutputError::is_closed) || units.is_some_and(SinkError::is_closed_output)
}

/// Returns the advice to append to an error if the process may not open another file. Any command
/// can meet this error, in any library, and most of them keep only its text.
pub(crate) fn files_advice(message: &str) -> &'static str {
    let too_many = io::Error::from(Errno::EMFILE).to_string();
    match message.contains(&too_many) {
        true => "; let the process open more files: `ulimit -n 4096`, or LimitNOFILE= of systemd",
        false => "",
    }
}

/// Whether the error of the command line may be another one later: a name that cannot be looked up
/// at the moment.
pub fn may_pass(error: &clap::Error) -> bool {
    let cause = error.source();
    let cause = cause.and_then(|cause| cause.downcast_ref::<AddressError>());
    cause.is_some_and(AddressError::may_pass)
}

/// Returns the exit code that `--help` lists for an error of this crate or of the roles.
pub fn exit_code(error: &Error) -> u8 {
    use ReceiveError::{
        Config, Decoder, NoGroupKey, NoMac, PipeStopped, Session, Silent, Stopped, Transport,
        Unverified,
    };
    if error.is::<Usage>() || error.is::<TlsError>() {
        return USAGE;
    }
    if error.is::<Interrupted>() {
        return INTERRUPTED;
    }
    if let Some(CommandFailed(code)) = error.downcast_ref() {
        return *code;
    }
    if let Some(error) = error.downcast_ref::<ClientError>() {
        return match error {
            ClientError::InvalidSubject { .. }
            | ClientError::InvalidHeader { .. }
            | ClientError::InvalidGroup { .. }
            | ClientError::Groups { .. } => 2,
            ClientError::NoResponders { .. } | ClientError::Unanswered { .. } => 3,
            _ => 1,
        };
    }
    if let Some(error) = error.downcast_ref::<LoadError>() {
        return if error.may_pass() { 1 } else { 2 };
    }
    if let Some(error) = error.downcast_ref::<DescriptionError>() {
        return if error.may_pass() { 1 } else { 2 };
    }
    if let Some(error) = error.downcast_ref::<StreamReceiveError>() {
        return match error {
            StreamReceiveError::Silent { .. } => 3,
            StreamReceiveError::NoKey | StreamReceiveError::Config(_) => 2,
            StreamReceiveError::Transport(TransportError::Multicast(error))
                if !error.may_pass() =>
            {
                2
            }
            _ => 1,
        };
    }
    match error.downcast_ref::<ReceiveError>() {
        Some(Stopped | PipeStopped) => INTERRUPTED,
        Some(
            Silent { .. } | Transport(TransportError::Silent(_)) | Decoder(DecoderError::Closed),
        ) => 3,
        Some(Transport(TransportError::Multicast(error))) if !error.may_pass() => 2,
        Some(Session(_) | Config(_) | Unverified | NoMac | NoGroupKey) => 2,
        _ => FAILURE,
    }
}
