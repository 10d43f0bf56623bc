//! Images: standard input to commands, and block devices to block devices.
//!
//! Devices are loop devices, which need root; without them, files take their places behind the same
//! code, and the tests say so. MANYFLOW_IMAGE_BYTES is the length of the device, and
//! MANYFLOW_IMAGE_RATE the rate of its session: `make image` takes 2 GiB.

use crate::common;

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{LIMIT, Manyflow, PATIENT, manyflow, run, text, wait_until, write_random};
use nix::fcntl::OFlag;
use nix::sys::signal::Signal;
use serde_json::Value;

/// The bytes before and behind a device in the file that is behind it.
const GUARD: u64 = 1 << 20;
const GUARD_BYTE: u8 = 0xee;

/// Starts to send standard input or a device. Returns the URL of the description, too.
fn send(path: &str, options: &[&str]) -> (Manyflow, String) {
    let arguments = ["send", path, "--listen", "127.0.0.1:0"];
    let mut command = manyflow(&[&arguments[..], &["--publish", "127.0.0.1:0"], options].concat());
    command.stdin(Stdio::piped());
    let mut sender = Manyflow::start(command);
    let url = sender.url();
    (sender, url)
}

fn receive(url: &str, output: &Path, options: &[&str]) -> Manyflow {
    let arguments = ["recv", url, "--json", "--output", text(output)];
    Manyflow::start(manyflow(&[&arguments[..], &PATIENT, options].concat()))
}

/// Returns the value of a line of `--json`, if it is this event.
fn event(line: &str, name: &str) -> Option<Value> {
    let value: Value = serde_json::from_str(line).ok()?;
    (value["event"] == name).then_some(value)
}

#[test]
fn a_command_gets_standard_input_while_it_is_sent() {
    let home = tempfile::tempdir().unwrap();
    let (mut sender, url) = send("-", &["--name", "an image"]);
    let mut input = sender.stdin();
    let copy = home.path().join("copy");
    let command = format!("cat > '{}'", text(&copy));
    let to_command = receive(&url, &home.path().join("spool"), &["--pipe", &command]);
    let to_folder = receive(&url, home.path(), &[]);
    write_random(&home.path().join("sent"), 700_000, 1);
    let sent = fs::read(home.path().join("sent")).unwrap();
    // Each part arrives before the next one is written.
    for (end, zeros) in [(1, 0), (300_000, 2_000_000), (700_000, 0)] {
        let before = fs::read(&copy).unwrap_or_default().len();
        let start = [0, 1, 300_000]
            .into_iter()
            .rfind(|start| *start < end)
            .unwrap();
        input.write_all(&sent[start..end]).unwrap();
        input.write_all(&vec![0; zeros]).unwrap();
        let expected = before + (end - start) + zeros;
        wait_until("the part arrives", || {
            fs::metadata(&copy).is_ok_and(|copy| copy.len() == expected as u64)
        });
    }
    assert!(!home.path().join("an image").exists(), "it is not complete");
    drop(input);
    to_command.finish().succeeded("command");
    to_folder.finish().succeeded("folder");
    let expected = [&sent[..300_000], &vec![0; 2_000_000], &sent[300_000..]].concat();
    for path in [copy, home.path().join("an image")] {
        assert!(fs::read(&path).unwrap() == expected, "{}", path.display());
    }
    let left = common::listing(home.path());
    assert_eq!(left, ["an image", "copy", "sent"], "no spool is left");
}

#[test]
fn a_command_that_fails_or_ends_early_makes_the_receiver_fail() {
    let home = tempfile::tempdir().unwrap();
    let (mut sender, url) = send("-", &[]);
    let mut input = sender.stdin();
    let writing = std::thread::spawn(move || input.write_all(&vec![7; 1_000_000]));
    for (command, message) in [
        (
            "cat > /dev/null; exit 7",
            "`cat > /dev/null; exit 7` failed (exit status: 7)",
        ),
        ("exec head -c 10 > /dev/null", "takes no more of it"),
    ] {
        let ended = receive(&url, home.path(), &["--pipe", command]).finish();
        assert_eq!(ended.code(), 1, "{ended:?}");
        assert!(ended.stderr.contains(message), "{ended:?}");
    }
    writing.join().unwrap().unwrap();
}

#[test]
fn a_command_is_killed_if_the_image_does_not_arrive_whole() {
    let home = tempfile::tempdir().unwrap();
    let (mut sender, url) = send("-", &[]);
    let mut input = sender.stdin();
    let (copy, whole) = (home.path().join("copy"), home.path().join("whole"));
    let command = format!("cat > '{}'; touch '{}'", text(&copy), text(&whole));
    let receiver = receive(&url, &home.path().join("spool"), &["--pipe", &command]);
    let stopped = receive(
        &url,
        &home.path().join("other"),
        &["--pipe", "cat > /dev/null"],
    );
    input.write_all(&[7; 10_000]).unwrap();
    wait_until("the beginning arrives", || {
        fs::metadata(&copy).is_ok_and(|copy| copy.len() == 10_000)
    });
    stopped.signal(Signal::SIGTERM);
    let ended = stopped.finish();
    assert_eq!(ended.code(), 130, "{ended:?}");
    assert!(
        ended.stderr.contains("cannot continue in the middle"),
        "{ended:?}"
    );
    sender.signal(Signal::SIGTERM);
    let ended = receiver.finish();
    assert_eq!(ended.code(), 3, "{ended:?}");
    assert!(
        ended.stderr.contains("ended the session before"),
        "{ended:?}"
    );
    assert!(!whole.exists(), "the command took a part for the whole");
}

/// A block device, or a file in its place, with guards before and behind it.
struct Device {
    path: PathBuf,
    backing: PathBuf,
    /// The position of the device in the file.
    start: u64,
    length: u64,
    is_loop: bool,
}

impl Device {
    /// Makes a device whose content is that of `fill`.
    fn new(backing: PathBuf, length: u64, fill: impl Fn(&File, u64)) -> Device {
        let file = File::create(&backing).unwrap();
        file.set_len(length + 2 * GUARD).unwrap();
        fill(&file, GUARD);
        for guard in [0, GUARD + length] {
            file.write_all_at(&vec![GUARD_BYTE; GUARD as usize], guard)
                .unwrap();
        }
        file.sync_all().unwrap();
        match attach(&backing, length) {
            Some(path) => Device {
                path,
                backing,
                start: GUARD,
                length,
                is_loop: true,
            },
            None => {
                println!("without root and loop devices, a file takes the place of a device");
                // Only the guard behind the device can be there.
                let moved = backing.with_extension("moved");
                let file = File::create(&moved).unwrap();
                file.set_len(length + GUARD).unwrap();
                fill(&file, 0);
                file.write_all_at(&vec![GUARD_BYTE; GUARD as usize], length)
                    .unwrap();
                Device {
                    path: moved.clone(),
                    backing: moved,
                    start: 0,
                    length,
                    is_loop: false,
                }
            }
        }
    }

    /// The bytes on disk of the file behind the device, without the guards.
    fn bytes_on_disk(&self) -> u64 {
        File::open(&self.backing).unwrap().sync_all().unwrap();
        let guards = if self.is_loop { 2 * GUARD } else { GUARD };
        (fs::metadata(&self.backing).unwrap().blocks() * 512).saturating_sub(guards)
    }

    /// Asserts that the device has the content of `source`, and its guards.
    fn assert_same(&self, source: &Device, label: &str) {
        let (own, other) = (
            File::open(&self.backing).unwrap(),
            File::open(&source.backing).unwrap(),
        );
        let (mut one, mut two) = (vec![0; 1 << 20], vec![0; 1 << 20]);
        for offset in (0..self.length).step_by(1 << 20) {
            let length = (self.length - offset).min(1 << 20) as usize;
            own.read_exact_at(&mut one[..length], self.start + offset)
                .unwrap();
            other
                .read_exact_at(&mut two[..length], source.start + offset)
                .unwrap();
            assert!(
                one[..length] == two[..length],
                "{label}: differs behind {offset}"
            );
        }
        let guards = [
            (self.start > 0).then_some(0),
            Some(self.start + self.length),
        ];
        for guard in guards.into_iter().flatten() {
            own.read_exact_at(&mut one, guard).unwrap();
            let is_untouched = one.iter().all(|byte| *byte == GUARD_BYTE);
            assert!(is_untouched, "{label}: bytes outside of the device");
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if self.is_loop {
            let detached = Command::new("losetup").arg("-d").arg(&self.path).status();
            assert!(detached.is_ok_and(|status| status.success()));
        }
    }
}

/// Makes a loop device of a part of a file.
fn attach(backing: &Path, length: u64) -> Option<PathBuf> {
    let attached = Command::new("losetup")
        .args(["--find", "--show", "--offset", &GUARD.to_string()])
        .args(["--sizelimit", &length.to_string()])
        .arg(backing)
        .output()
        .ok()?;
    let path = String::from_utf8(attached.stdout).ok()?;
    attached.status.success().then(|| path.trim().into())
}

fn image_bytes() -> u64 {
    let bytes = std::env::var("MANYFLOW_IMAGE_BYTES");
    bytes.map_or(16 << 20, |bytes| bytes.parse().expect("a number of bytes"))
}

/// Writes random bytes to an eighth of a device: a part of each sixteenth of it, and the last ones.
/// Returns their number.
fn fill_partly(file: &File, start: u64, length: u64, seed: u64) -> u64 {
    let part = length / 16;
    let folder = tempfile::tempdir().unwrap();
    let random = folder.path().join("random");
    write_random(&random, (part / 8) as usize, seed);
    let random = fs::read(random).unwrap();
    for number in 0..15 {
        let offset = start + number * part + number * 4_096;
        file.write_all_at(&random, offset).unwrap();
    }
    file.write_all_at(&random, start + length - random.len() as u64)
        .unwrap();
    16 * random.len() as u64
}

/// Starts to send a device, or what takes its place.
fn send_device(source: &Device) -> (Manyflow, String) {
    let length = source.length;
    let rate = std::env::var("MANYFLOW_IMAGE_RATE").unwrap_or_else(|_| "8Mbit/s".to_owned());
    match source.is_loop {
        true => send(text(&source.path), &["--rate", &rate]),
        false => {
            let (mut sender, url) = send("-", &["--rate", &rate]);
            let (mut input, from) = (sender.stdin(), source.path.clone());
            let image = move || {
                let image = std::io::Read::take(File::open(from).unwrap(), length);
                std::io::copy(&mut { image }, &mut input).unwrap();
            };
            std::thread::spawn(image);
            (sender, url)
        }
    }
}

#[test]
fn three_devices_get_the_image_of_a_device_although_a_receiver_is_killed() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    let length = image_bytes();
    let source = Device::new(at("source"), length, |file, start| {
        fill_partly(file, start, length, 1);
    });
    let content = fill_partly(&tempfile::tempfile().unwrap(), 0, length, 1);
    let empty = Device::new(at("empty"), length, |_, _| {});
    let used = Device::new(at("used"), length, |file, start| {
        fill_partly(file, start, length, 2);
    });
    let killed = Device::new(at("killed"), length, |_, _| {});
    let (_sender, url) = send_device(&source);
    let start = |device: &Device, name: &str| {
        receive(
            &url,
            &at(&format!("{name}-spool")),
            &["--to", text(&device.path)],
        )
    };
    let (to_empty, to_used) = (start(&empty, "empty"), start(&used, "used"));
    let mut to_killed = start(&killed, "killed");
    to_killed.wait_for(|line| {
        let progress = event(line, "progress")?;
        (progress["bytes"].as_u64()? > content / 8).then_some(())
    });
    to_killed.kill();
    drop(to_killed);
    let to_killed = start(&killed, "killed");
    for (device, receiver, label) in [
        (&empty, to_empty, "empty"),
        (&used, to_used, "used"),
        (&killed, to_killed, "killed"),
    ] {
        // 2 GiB take longer than a test in `make test` may.
        let limit = LIMIT * (1 + (length >> 28) as u32);
        let Ok(ended) = receiver.finish_within(limit) else {
            panic!("{label}: not complete after {limit:?}");
        };
        let ended = ended.succeeded(label);
        device.assert_same(&source, label);
        let done = ended
            .stdout
            .lines()
            .find_map(|line| event(line, "done"))
            .unwrap();
        println!("{label}: {done}");
        assert_eq!(done["bytes"], length, "{label}");
        let earlier = done["earlier_bytes"].as_u64().unwrap();
        // The receiver had handled at least the sections that it had reported, but the last.
        assert_eq!(earlier > 0, label == "killed", "{label}: {earlier}");
        assert_eq!(common::listing(&at(&format!("{label}-spool"))), [""; 0]);
    }
    // Zeros were not written: the devices that had holes have no more than the content.
    for device in [&empty, &killed] {
        let (written, content) = (device.bytes_on_disk(), content + content / 4);
        assert!(written <= content, "{written} bytes on disk for {content}");
    }
}

#[test]
fn an_image_for_the_folder_continues_after_a_kill_and_keeps_its_holes() {
    let home = tempfile::tempdir().unwrap();
    let (mut sender, url) = send("-", &[]);
    let (mut input, length) = (sender.stdin(), 8 << 20);
    let sent = home.path().join("sent");
    let content = fill_partly(&File::create(&sent).unwrap(), 0, length, 3);
    let image = fs::read(&sent).unwrap();
    let (first, second) = image.split_at(image.len() / 2);
    let output = home.path().join("out");
    let mut receiver = receive(&url, &output, &[]);
    // Through a relay, nothing is sent, and little is read, before a receiver joins.
    input.write_all(first).unwrap();
    receiver.wait_for(|line| {
        let progress = event(line, "progress")?;
        (progress["bytes"].as_u64()? > content / 4).then_some(())
    });
    receiver.kill();
    drop(receiver);
    input.write_all(second).unwrap();
    drop(input);
    let ended = receive(&url, &output, &[]).finish().succeeded("resumed");
    let done = ended
        .stdout
        .lines()
        .find_map(|line| event(line, "done"))
        .unwrap();
    assert!(done["earlier_bytes"].as_u64().unwrap() > 0, "{done}");
    let received = output.join("stdin");
    assert!(fs::read(&received).unwrap() == fs::read(&sent).unwrap());
    let on_disk = fs::metadata(&received).unwrap().blocks() * 512;
    assert!(
        on_disk < content + content / 4,
        "{on_disk} bytes on disk for {content}"
    );
    assert_eq!(common::listing(&output), ["stdin"]);
}

#[test]
fn devices_that_cannot_take_the_image_are_refused_before_they_are_written() {
    let home = tempfile::tempdir().unwrap();
    let source = Device::new(home.path().join("source"), 1 << 20, |file, start| {
        fill_partly(file, start, 1 << 20, 1);
    });
    let old = vec![0x33; 500_000];
    let short = home.path().join("short");
    fs::write(&short, &old).unwrap();
    let (mut sender, url) = match source.is_loop {
        true => send(text(&source.path), &[]),
        false => send("-", &[]),
    };
    if !source.is_loop {
        let mut input = sender.stdin();
        let image = fs::read(&source.path).unwrap();
        std::thread::spawn(move || input.write_all(&image));
    }
    let refuse = |device: &Path, message: &str| {
        let ended = receive(&url, &home.path().join("spool"), &["--to", text(device)]).finish();
        assert_eq!(ended.code(), 1, "{ended:?}");
        let shown = text(device);
        assert!(
            ended.stderr.contains(shown) && ended.stderr.contains(message),
            "{ended:?}"
        );
    };
    refuse(&short, "has 500000 bytes, but the image has");
    if source.is_loop {
        assert!(
            fs::read(&short).unwrap() == old,
            "the length is known before"
        );
    }
    refuse(&home.path().join("missing"), "cannot be written to it");
    refuse(
        Path::new("/dev/null"),
        "neither a block device nor an existing file",
    );
    refuse(home.path(), "neither a block device nor an existing file");
    let target = Device::new(home.path().join("target"), 1 << 20, |_, _| {});
    if target.is_loop {
        let held = OpenOptions::new()
            .read(true)
            .custom_flags(OFlag::O_EXCL.bits())
            .open(&target.path);
        let held = held.unwrap();
        refuse(&target.path, "in use");
        drop(held);
    }
}

#[test]
fn images_and_files_are_not_mixed() {
    let folder = common::folder_with_file(1_000);
    let file = folder.path().join("file");
    for (arguments, message) in [
        (
            &["-", text(&file)][..],
            "- is sent as an image, so it has to be the only path",
        ),
        (
            &[text(&file), "--name", "x"],
            "--name is for standard input",
        ),
        (&["-", "--name", "../x"], "'..' component"),
    ] {
        let ended = run(&[&["send"], arguments, &["--listen", "127.0.0.1:0"]].concat());
        assert!(ended.stderr.contains(message), "{ended:?}");
        assert_ne!(ended.code(), 0);
    }
    let (_sender, url) = common::send(folder.path(), &[]);
    let spool = folder.path().join("spool");
    let before = fs::read(&file).unwrap();
    let ended = receive(&url, &spool, &["--to", text(&file)]).finish();
    assert_eq!(ended.code(), 1, "{ended:?}");
    assert!(
        ended.stderr.contains("the session has files, not an image"),
        "{ended:?}"
    );
    assert_eq!(fs::read(&file).unwrap(), before);
}
