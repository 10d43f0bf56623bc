//! Limits: open files, socket buffers, groups of a socket, and the folder for temporary files.

use std::fs;
use std::io::Write as _;
use std::net::{Ipv4Addr, UdpSocket};

use manyflow_core::units::Bytes;
use manyflow_net::udp::SOCKET_BUFFER_BYTES;
use nix::sys::resource::{Resource, getrlimit};
use socket2::SockRef;

use super::{Check, Status};

/// The open files that a transfer needs: sockets, the files of a session, and the runtime's own.
const FILES_NEEDED: u64 = 256;
/// The open files from which on no usual number of clients meets the limit.
const FILES_ENOUGH: u64 = 65_536;
/// The groups that one socket joins.
const GROUPS_PER_SOCKET: u8 = 20;

pub(super) fn checks() -> Vec<Check> {
    vec![
        open_files(),
        buffer(Direction::Receive),
        buffer(Direction::Send),
        groups(),
        scratch(),
    ]
}

fn open_files() -> Check {
    match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok((soft, hard)) => judge_open_files(soft, hard),
        Err(error) => Check::unmet(
            "open-files",
            Status::Limited,
            format!("the limit is unknown: {error}"),
            "daemons may refuse clients",
        ),
    }
}

fn judge_open_files(soft: u64, hard: u64) -> Check {
    let found = format!("at most {soft}, which a process may raise to {hard}");
    let status = match soft {
        FILES_ENOUGH.. => return Check::ok("open-files", found),
        FILES_NEEDED.. => Status::Limited,
        _ => Status::Failed,
    };
    let effect =
        format!("a daemon serves fewer than {soft} clients; each client and link takes a file");
    // In a unit: LimitNOFILE=131072. A shell can raise its own limit only up to the second one.
    let command = match hard {
        FILES_ENOUGH.. => format!("ulimit -n {}", hard.min(131_072)),
        _ => "sudo prlimit --pid $$ --nofile=131072".to_owned(),
    };
    Check::unmet("open-files", status, found, effect).fix(command)
}

/// A direction of a socket.
#[derive(Copy, Clone)]
enum Direction {
    Receive,
    Send,
}

/// Asks for the buffer that manyflow's sockets ask for, and reads back what the kernel granted.
fn buffer(direction: Direction) -> Check {
    let (name, parameter) = match direction {
        Direction::Receive => ("receive-buffer", "net.core.rmem_max"),
        Direction::Send => ("send-buffer", "net.core.wmem_max"),
    };
    let granted = granted(direction);
    let found = match &granted {
        Ok(bytes) => format!(
            "{} of {}",
            Bytes(*bytes as u64),
            Bytes(SOCKET_BUFFER_BYTES as u64)
        ),
        Err(error) => error.to_string(),
    };
    if granted.is_ok_and(|bytes| bytes >= SOCKET_BUFFER_BYTES) {
        return Check::ok(name, found);
    }
    let effect =
        "sockets drop packets in bursts, above some 100 Mbit/s or with many receivers on this host";
    Check::unmet(name, Status::Limited, found, effect)
        .fix(format!("sudo sysctl -w {parameter}={SOCKET_BUFFER_BYTES}"))
}

fn granted(direction: Direction) -> std::io::Result<usize> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let socket = SockRef::from(&socket);
    // Linux doubles the size that it is asked for, to account for its own bookkeeping.
    match direction {
        Direction::Receive => {
            socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES)?;
            socket.recv_buffer_size().map(|bytes| bytes / 2)
        }
        Direction::Send => {
            socket.set_send_buffer_size(SOCKET_BUFFER_BYTES)?;
            socket.send_buffer_size().map(|bytes| bytes / 2)
        }
    }
}

/// Joins as many groups on loopback as each of manyflow's sockets does.
fn groups() -> Check {
    let joined = || -> std::io::Result<()> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        for group in 1..=GROUPS_PER_SOCKET {
            socket.join_multicast_v4(&Ipv4Addr::new(239, 255, 77, group), &Ipv4Addr::LOCALHOST)?;
        }
        Ok(())
    };
    match joined() {
        Ok(()) => Check::ok(
            "multicast-groups",
            format!("a socket joins {GROUPS_PER_SOCKET} groups"),
        ),
        Err(error) => Check::unmet(
            "multicast-groups",
            Status::Missing,
            format!("a socket cannot join {GROUPS_PER_SOCKET} groups: {error}"),
            "receivers of multicast sessions fail",
        )
        .fix("sudo sysctl -w net.ipv4.igmp_max_memberships=20"),
    }
}

/// Writes a temporary file where `send` keeps encoded symbols.
fn scratch() -> Check {
    let folder =
        std::env::var_os("TMPDIR").map_or_else(|| "/var/tmp".into(), std::path::PathBuf::from);
    let shown = folder.display();
    let written = tempfile::tempfile_in(&folder).and_then(|mut file| file.write_all(&[0; 4096]));
    match written {
        Ok(()) => Check::ok("temporary-files", format!("{shown} takes files")),
        Err(error) => Check::unmet(
            "temporary-files",
            Status::Limited,
            format!("{shown}: {error}"),
            "send needs --scratch FOLDER for sessions above --memory",
        )
        .fix(match fs::exists(&folder) {
            Ok(true) => format!("sudo chmod 1777 {shown}"),
            _ => format!("sudo install -d -m 1777 {shown}"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_open_files_is_judged_by_what_needs_them() {
        assert_eq!(judge_open_files(131_072, 131_072).status, Status::Ok);
        let check = judge_open_files(1_024, 524_288);
        assert_eq!(check.status, Status::Limited);
        assert_eq!(check.command.as_deref(), Some("ulimit -n 131072"));
        let check = judge_open_files(64, 64);
        assert_eq!(check.status, Status::Failed);
        assert!(check.command.unwrap().starts_with("sudo "));
    }

    #[test]
    fn every_limit_has_its_check() {
        let names: Vec<_> = checks().iter().map(|check| check.name).collect();
        let expected = [
            "open-files",
            "receive-buffer",
            "send-buffer",
            "multicast-groups",
            "temporary-files",
        ];
        assert_eq!(names, expected);
    }
}
