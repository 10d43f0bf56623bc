//! Block devices: which are in use, and how they are opened.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Seek as _, SeekFrom};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::fcntl::OFlag;
use nix::sys::stat::{major, minor};

use crate::files::FileError;

/// Refuses a device that, or a part of which, is mounted for writing: its content changes while it
/// is sent.
pub(super) fn check_unmounted(path: &Path, device: &File) -> Result<(), FileError> {
    let Ok(metadata) = device.metadata() else {
        return Ok(());
    };
    let devices = with_partitions(metadata.rdev());
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    match mounts
        .lines()
        .find_map(|line| writable_mount(line, &devices))
    {
        None => Ok(()),
        Some(mount) => Err(FileError::Mounted {
            device: path.to_owned(),
            mount,
        }),
    }
}

/// Returns the device and its partitions.
fn with_partitions(device: u64) -> BTreeSet<u64> {
    let mut devices = BTreeSet::from([device]);
    let folder = format!("/sys/dev/block/{}:{}", major(device), minor(device));
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let number = fs::read_to_string(entry.path().join("dev"));
        let number = number.ok().and_then(|text| number_of(text.trim()));
        if entry.path().join("partition").exists() {
            devices.extend(number);
        }
    }
    devices
}

/// Returns the place of a mount for writing of one of the `devices`, from a line of
/// `/proc/self/mountinfo` (proc_pid_mountinfo(5)).
fn writable_mount(line: &str, devices: &BTreeSet<u64>) -> Option<String> {
    let (mount, file_system) = line.split_once(" - ")?;
    let mut fields = mount.split(' ');
    let device = number_of(fields.nth(2)?);
    let place = fields.nth(1)?.to_owned();
    let mut options = file_system.split(' ').skip(1);
    let source = options.next()?;
    let is_writable = options.next()?.split(',').any(|option| option == "rw");
    // Some file systems, such as btrfs, have numbers of their own, but name the device.
    let source = fs::metadata(source).ok();
    let source = source
        .filter(|metadata| metadata.file_type().is_block_device())
        .map(|metadata| metadata.rdev());
    let is_one = device
        .into_iter()
        .chain(source)
        .any(|one| devices.contains(&one));
    (is_writable && is_one).then_some(place)
}

/// Returns the number of a device that is written as `MAJOR:MINOR`.
fn number_of(text: &str) -> Option<u64> {
    let (major, minor) = text.split_once(':')?;
    Some(nix::sys::stat::makedev(
        major.parse().ok()?,
        minor.parse().ok()?,
    ))
}

/// Opens a device or file that an image replaces, for this process alone. Returns its length, too.
pub(super) fn open_target(path: &Path) -> Result<(File, u64), FileError> {
    let failed = |error| FileError::Target {
        path: path.to_owned(),
        error,
    };
    let metadata = fs::metadata(path).map_err(failed)?;
    let kind = metadata.file_type();
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    if kind.is_block_device() {
        // The kernel refuses devices that are mounted, or held by others.
        options.custom_flags(OFlag::O_EXCL.bits());
    } else if !kind.is_file() {
        return Err(FileError::NoTarget(path.to_owned()));
    }
    let opened = options.open(path).and_then(|mut file| {
        let length = file.seek(SeekFrom::End(0))?;
        Ok((file, length))
    });
    opened.map_err(|error| match error.kind() {
        ErrorKind::ResourceBusy => FileError::InUse(path.to_owned()),
        _ => failed(error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_for_writing_are_found_by_their_number() {
        let line = |options: &str, number: &str| {
            format!(
                "36 35 {number} / /mnt/two rw,noatime shared:1 - ext4 /nowhere {options},errors=continue"
            )
        };
        let devices = BTreeSet::from([number_of("98:1").unwrap()]);
        let found = writable_mount(&line("rw", "98:1"), &devices);
        assert_eq!(found.as_deref(), Some("/mnt/two"));
        assert_eq!(writable_mount(&line("ro", "98:1"), &devices), None);
        assert_eq!(writable_mount(&line("rw", "98:2"), &devices), None);
        assert_eq!(writable_mount("nonsense", &devices), None);
    }

    #[test]
    fn only_devices_and_existing_files_are_targets() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing");
        assert!(matches!(
            open_target(&missing),
            Err(FileError::Target { .. })
        ));
        for other in [folder.path(), Path::new("/dev/null")] {
            let refused = open_target(other);
            assert!(
                matches!(refused, Err(FileError::NoTarget(_))),
                "{refused:?}"
            );
        }
        let file = folder.path().join("file");
        fs::write(&file, [1; 100]).unwrap();
        assert_eq!(open_target(&file).unwrap().1, 100);
    }
}
