//! Network namespaces with one device each.
//!
//! A namespace's name holds its owner's process and that process's start, so that the next run can
//! recognise namespaces whose owner was killed, and [remove](remove_stale) them.

mod stale;

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use nix::sched::{CloneFlags, setns};

use crate::error::EmulateError;
use crate::fabric::{MTU, NodeAddresses};
use crate::ports::tun::Tun;
pub use stale::remove_stale;
use stale::{Owner, remove};

/// The name of the device in a namespace.
pub const DEVICE: &str = "emulated";
/// The length of a device's queue, in packets. The program that reads them may be delayed by some
/// tens of milliseconds, in which the device must not drop anything.
const DEVICE_QUEUE: u32 = 10_000;

/// The folder of the kernel's parameters.
const PARAMETERS: &str = "/proc/sys";
/// The parameters of devices with IPv6: it is on, also where the host's default is off, addresses
/// can be used at once, without duplicate address detection, and no router is solicited.
const IPV6_PARAMETERS: [(&str, &str); 3] = [
    ("disable_ipv6", "0"),
    ("accept_dad", "0"),
    ("accept_ra", "0"),
];

/// A network namespace. It is removed on drop, and the processes in it are killed.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    file: File,
}

impl Namespace {
    /// Creates a namespace.
    ///
    /// # Errors
    /// Returns an error if `ip` is missing or fails.
    pub fn create() -> Result<Namespace, EmulateError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = Owner::this_process()?.name(number);
        ip(&["netns", "add", &name], "")?;
        let path = stale::folder().join(&name);
        let file = File::open(path).map_err(|error| {
            let _ = remove(&name);
            EmulateError::Namespace(name.clone(), error)
        })?;
        let namespace = Namespace { name, file };
        namespace.configure("link set lo up\n")?;
        if has_ipv6() {
            let parameter = |name| format!("net/ipv6/conf/default/{name}");
            for (name, value) in IPV6_PARAMETERS {
                namespace.set(&parameter(name), value)?;
            }
        }
        Ok(namespace)
    }

    /// Returns the name by which `ip netns exec` finds the namespace.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `work` in the namespace, on a thread of its own, because a namespace belongs to a
    /// thread. Sockets and processes that it makes remain there.
    ///
    /// # Errors
    /// Returns an error if the namespace cannot be entered.
    ///
    /// # Panics
    /// Panics if `work` does.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, EmulateError> {
        let inside = || -> io::Result<T> {
            setns(&self.file, CloneFlags::CLONE_NEWNET)?;
            Ok(work())
        };
        thread::scope(|scope| scope.spawn(inside).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            .map_err(|error| EmulateError::Namespace(self.name.clone(), error))
    }

    /// Sets a parameter of the namespace's network stack, such as `net/ipv4/tcp_ecn`.
    ///
    /// # Errors
    /// Returns an error if the kernel has no such parameter or refuses the value.
    pub fn set(&self, parameter: &str, value: &str) -> Result<(), EmulateError> {
        let path = Path::new(PARAMETERS).join(parameter);
        let written = self.enter(|| std::fs::write(path, value))?;
        written
            .map_err(|error| EmulateError::Namespace(format!("{}, {parameter}", self.name), error))
    }

    /// Makes the device of the namespace, which has these addresses and through which all packets
    /// leave. It has no IPv6 address if the kernel has no IPv6.
    ///
    /// # Errors
    /// Returns an error if the device cannot be made or configured.
    pub fn add_device(&self, addresses: NodeAddresses) -> Result<Tun, EmulateError> {
        let tun = self.enter(|| Tun::create(DEVICE))?;
        let tun = tun.map_err(|error| EmulateError::Device(DEVICE.to_owned(), error))?;
        let NodeAddresses { v4, v6 } = addresses;
        self.configure(&format!(
            "address add {v4}/32 dev {DEVICE}\n\
             link set {DEVICE} mtu {MTU} txqueuelen {DEVICE_QUEUE} up\n\
             route add default dev {DEVICE} src {v4}\n",
        ))?;
        if has_ipv6() {
            self.configure(&format!(
                "address add {v6}/128 dev {DEVICE} nodad\n\
                 route add ::/0 dev {DEVICE} src {v6}\n",
            ))?;
        }
        Ok(tun)
    }

    /// Runs commands of `ip` in the namespace.
    fn configure(&self, commands: &str) -> Result<(), EmulateError> {
        ip(&["-n", &self.name, "-batch", "-"], commands)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Nothing more can be done about a failure; the next run tries again.
        let _ = remove(&self.name);
    }
}

/// Returns whether the kernel has IPv6.
fn has_ipv6() -> bool {
    Path::new(PARAMETERS).join("net/ipv6").exists()
}

/// Makes a device in the namespace of this process, which has these addresses and leads to `peer`
/// only. It has no IPv6 address if the kernel has no IPv6.
///
/// # Errors
/// Returns an error if the device cannot be made or configured.
pub fn add_outer_device(
    name: &str,
    addresses: NodeAddresses,
    peer: NodeAddresses,
) -> Result<Tun, EmulateError> {
    let failed = |error| EmulateError::Device(name.to_owned(), error);
    let tun = Tun::create(name).map_err(failed)?;
    let mut commands = format!(
        "address add {} peer {} dev {name}\n\
         link set {name} mtu {MTU} txqueuelen {DEVICE_QUEUE} up\n",
        addresses.v4, peer.v4
    );
    if has_ipv6() {
        let folder = Path::new(PARAMETERS).join("net/ipv6/conf").join(name);
        for (parameter, value) in IPV6_PARAMETERS {
            std::fs::write(folder.join(parameter), value).map_err(failed)?;
        }
        let NodeAddresses { v6, .. } = addresses;
        commands += &format!("address add {v6} peer {} dev {name} nodad\n", peer.v6);
    }
    ip(&["-batch", "-"], &commands)?;
    Ok(tun)
}

/// Runs `ip` with these arguments and this standard input.
fn ip(arguments: &[&str], input: &str) -> Result<(), EmulateError> {
    let run = || -> io::Result<std::process::Output> {
        let mut command = Command::new("ip");
        command.args(arguments).stdin(Stdio::piped());
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(input.as_bytes())?;
        }
        child.wait_with_output()
    };
    let output = run().map_err(EmulateError::NoIp)?;
    if output.status.success() {
        return Ok(());
    }
    let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(EmulateError::Ip(arguments.join(" "), reason))
}
