//! Namespaces that a killed process has left behind.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::error::EmulateError;

/// The beginning of the names of all namespaces.
const PREFIX: &str = "manyflow-emulate-";

/// Returns the folder in which `ip netns` keeps its namespaces.
pub(super) fn folder() -> &'static Path {
    Path::new("/run/netns")
}

/// The process that has made a namespace. Its start tells it from a later process with the same
/// number.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pid: u32,
    /// The start of the process, in clock ticks since boot (proc_pid_stat(5), field 22).
    start: u64,
}

impl Owner {
    /// Returns the current process.
    pub(super) fn this_process() -> Result<Owner, EmulateError> {
        let pid = std::process::id();
        let start = start_of(pid).ok_or(EmulateError::NoProc)?;
        Ok(Owner { pid, start })
    }

    /// Returns the name of a namespace.
    pub(super) fn name(self, number: u32) -> String {
        format!("{PREFIX}{}-{}-{number}", self.pid, self.start)
    }

    /// Returns the owner that a namespace's name says; `None` for other names.
    fn of(name: &str) -> Option<Owner> {
        let mut parts = name.strip_prefix(PREFIX)?.split('-');
        let owner = Owner {
            pid: parts.next()?.parse().ok()?,
            start: parts.next()?.parse().ok()?,
        };
        let _number: u32 = parts.next()?.parse().ok()?;
        parts.next().is_none().then_some(owner)
    }

    fn is_alive(self) -> bool {
        start_of(self.pid) == Some(self.start)
    }
}

/// Returns the start of a process; `None` if the process does not exist, or has ended and waits for
/// its parent.
fn start_of(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(PathBuf::from(format!("/proc/{pid}/stat"))).ok()?;
    // The second field is the program's name in parentheses, which can contain spaces.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    let is_over = fields.next()? == "Z";
    let start = fields.nth(18)?.parse().ok()?;
    (!is_over).then_some(start)
}

/// Removes the namespaces of emulators that no longer exist, and kills the processes in them.
/// Returns the number of namespaces.
///
/// # Errors
/// Returns an error if a namespace cannot be removed.
pub fn remove_stale() -> Result<usize, EmulateError> {
    let Ok(entries) = fs::read_dir(folder()) else {
        // There is no folder before the first namespace.
        return Ok(0);
    };
    let mut removed = 0;
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if Owner::of(&name).is_some_and(|owner| !owner.is_alive()) {
            remove(&name).map_err(|error| EmulateError::Namespace(name, error))?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// Kills the processes in a namespace, and removes it, unless another emulator has removed it
/// meanwhile.
pub(super) fn remove(name: &str) -> io::Result<()> {
    let inside = Command::new("ip").args(["netns", "pids", name]).output()?;
    for pid in String::from_utf8_lossy(&inside.stdout).split_whitespace() {
        // This process enters namespaces only with short-lived threads, which `pids` does not list.
        if let Ok(pid) = pid.parse()
            && pid != std::process::id() as i32
        {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
    let deleted = Command::new("ip")
        .args(["netns", "delete", name])
        .output()?;
    match deleted.status.success() || !folder().join(name).exists() {
        true => Ok(()),
        false => Err(io::Error::other(
            String::from_utf8_lossy(&deleted.stderr).trim().to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_belongs_to_the_process_in_its_name() {
        let owner = Owner::this_process().unwrap();
        assert_eq!(Owner::of(&owner.name(3)), Some(owner));
        assert!(owner.is_alive());
        let earlier = Owner {
            start: owner.start - 1,
            ..owner
        };
        assert!(!earlier.is_alive());
        let other = [
            "manyflow-1-2-3",
            "manyflow-emulate-1-2",
            "manyflow-emulate-1-2-3-4",
        ];
        assert_eq!(other.map(Owner::of), [None; 3]);
    }
}
