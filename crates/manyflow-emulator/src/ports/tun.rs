//! TUN devices, through which the kernel hands over IP packets and takes them.
//!
//! The crates for TUN devices bring asynchronous runtimes and configure addresses by netlink; a
//! device needs one system call, and `ip` configures it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use nix::libc;

/// The device of a network namespace. The kernel removes it when its owner drops it or dies.
#[derive(Debug)]
pub struct Tun {
    file: File,
}

impl Tun {
    /// Creates a device in the network namespace of the current thread. Packets are handed over one
    /// by one, without offloading, so that links see them in the size that they have on a wire.
    ///
    /// # Errors
    /// Returns an error if `/dev/net/tun` is missing, if the process may not use it, or if the
    /// namespace has a device of that name.
    pub fn create(name: &str) -> io::Result<Tun> {
        let mut options = File::options();
        options.read(true).write(true);
        let file = options
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/net/tun")?;
        attach(&file, name)?;
        Ok(Tun { file })
    }

    /// Reads a packet that the kernel has sent, and returns its length; `None` if no packet waits.
    ///
    /// # Errors
    /// Returns the errors of the device.
    pub fn read(&self, packet: &mut [u8]) -> io::Result<Option<usize>> {
        match (&self.file).read(packet) {
            Ok(length) => Ok(Some(length)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Hands a packet to the kernel.
    ///
    /// # Errors
    /// Returns an error if the kernel has no room for the packet or refuses it.
    pub fn write(&self, packet: &[u8]) -> io::Result<()> {
        (&self.file).write(packet).map(|_| ())
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Makes a device for an open `/dev/net/tun`.
fn attach(file: &File, name: &str) -> io::Result<()> {
    let mut request_name = [0; libc::IFNAMSIZ];
    if name.is_empty() || name.len() >= libc::IFNAMSIZ {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    let request = libc::ifreq {
        ifr_name: request_name,
        ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags: flags },
    };
    // SAFETY: TUNSETIFF takes a pointer to an `ifreq`. This one is valid during the call, after
    // which the kernel keeps no reference to it.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw const request) };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
