//! The memory and the processor time of this process, as the system counts them.

use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

/// Returns the first word of a line of `/proc/self/status` (proc_pid_status(5)); `None` where there
/// is no such file.
pub fn process_status(key: &str) -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let value = status.lines().find_map(|line| line.strip_prefix(key))?;
    value.split_whitespace().next().map(str::to_owned)
}

/// Returns the bytes of this process that are in memory; `None` where there is no
/// `/proc/self/status`.
pub fn resident_bytes() -> Option<u64> {
    let kibibytes: u64 = process_status("VmRSS:")?.parse().ok()?;
    Some(kibibytes << 10)
}

/// Returns the processor time that this process has taken, in user and kernel mode.
pub fn processor_time() -> Duration {
    // It cannot fail for the own process.
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else {
        return Duration::ZERO;
    };
    let micros = (usage.user_time() + usage.system_time()).num_microseconds();
    Duration::from_micros(micros.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_processor_time() {
        let before = processor_time();
        while processor_time() == before {
            std::hint::spin_loop();
        }
        #[cfg(target_os = "linux")]
        assert!(resident_bytes().unwrap() > 100_000);
    }
}
