//! The errors of the emulator.

use std::io;

use manyflow_netsim::Halt;

/// The reason why an emulation cannot begin or continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmulateError {
    /// The user may not make network namespaces.
    #[error(
        "network namespaces need root: run this command with sudo, or in `unshare --user --map-root-user --net --mount` with an own /run"
    )]
    NotRoot,
    /// The program `ip` is missing.
    #[error("cannot run ip: {0} (Debian: apt-get install iproute2)")]
    NoIp(io::Error),
    /// The program `ip` reports an error.
    #[error("ip {0}: {1}")]
    Ip(String, String),
    /// `/proc` is not mounted.
    #[error("/proc has no entry for this process: mount it")]
    NoProc,
    /// A network namespace cannot be made, entered or removed.
    #[error("network namespace {0}: {1}")]
    Namespace(String, io::Error),
    /// A TUN device cannot be made or used.
    #[error("TUN device {0}: {1}; check that /dev/net/tun exists (modprobe tun)")]
    Device(String, io::Error),
    /// No network of 100.64.0.0/10 is free.
    #[error("all networks of 100.64.0.0/10 are in use: end another emulation")]
    NoAddress,
    /// The command cannot be started.
    #[error("cannot run {0}: {1}")]
    Command(String, io::Error),
    /// A program of a scenario cannot be run.
    #[error("{0}: {1}")]
    Program(String, String),
    /// The folder for the output of programs cannot be made.
    #[error("folder {0}: {1}")]
    Folder(std::path::PathBuf, io::Error),
    /// A socket of an emulated session failed.
    #[error("{0}: {1}")]
    Socket(String, io::Error),
    /// The network cannot continue.
    #[error(transparent)]
    Halt(#[from] Halt),
    /// The kernel refuses a system call.
    #[error("{0}: {1}")]
    System(&'static str, nix::Error),
}
