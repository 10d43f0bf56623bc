//! Runs the workspace's programs as a user would: programs under test, files to send, and waiting
//! for conditions.

use std::io::{BufRead, BufReader, Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

pub use crate::LIMIT;

/// The option of a receiver that must not give up before the test does.
pub const PATIENT: [&str; 2] = ["--patience", "5min"];

/// A running `manyflow`, killed when dropped.
pub struct Manyflow {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    messages: Arc<Mutex<Vec<String>>>,
    readers: Vec<JoinHandle<String>>,
    command: String,
    /// Maximum of the process's resident memory in KiB, as far as it was seen.
    peak_memory_kib: u64,
}

/// The exit status and output of a process that has ended.
#[derive(Debug)]
pub struct Ended {
    /// The exit code or signal.
    pub status: ExitStatus,
    /// All that it has printed on standard output.
    pub stdout: String,
    /// All that it has printed on standard error.
    pub stderr: String,
    /// Maximum of the process's resident memory in KiB, as far as it was seen.
    pub peak_memory_kib: u64,
}

/// Returns the path of a program of the build that this test belongs to.
///
/// # Panics
/// If the program has not been built.
pub fn program(name: &str) -> PathBuf {
    // Cargo puts tests into the folder `deps` beside the programs.
    let test = std::env::current_exe().unwrap();
    let path = test.ancestors().nth(2).unwrap().join(name);
    let shown = path.display();
    assert!(
        path.is_file(),
        "{shown} does not exist: build it with `cargo build -p {name}`"
    );
    path
}

/// A command that runs `manyflow` with these arguments, without standard input.
pub fn manyflow(arguments: &[&str]) -> Command {
    command("manyflow", arguments)
}

/// A command that runs `manyflow-rig` with these arguments, without standard input.
pub fn rig(arguments: &[&str]) -> Command {
    command("manyflow-rig", arguments)
}

fn command(name: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program(name));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs `manyflow` to its end.
pub fn run(arguments: &[&str]) -> Ended {
    Manyflow::start(manyflow(arguments)).finish()
}

impl Manyflow {
    /// Starts a command, and keeps what it prints.
    pub fn start(mut command: Command) -> Manyflow {
        let command_line = format!("{command:?}");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let messages = Arc::new(Mutex::new(Vec::new()));
        let stdout = child.stdout.take().unwrap();
        let stderr = child.stderr.take().unwrap();
        let (out, err) = (Arc::clone(&lines), Arc::clone(&messages));
        let readers = vec![
            thread::spawn(move || collect_lines(stdout, &out)),
            thread::spawn(move || collect_lines(stderr, &err)),
        ];
        Manyflow {
            child,
            lines,
            messages,
            readers,
            command: command_line,
            peak_memory_kib: 0,
        }
    }

    /// Waits for a line on standard output for which `find` returns a value.
    pub fn wait_for<T>(&mut self, find: impl Fn(&str) -> Option<T>) -> T {
        let lines = Arc::clone(&self.lines);
        self.wait_for_in(&lines, find)
    }

    /// Waits for an event (`--json`) of this kind, and returns it.
    pub fn wait_for_event(&mut self, kind: &str) -> serde_json::Value {
        self.wait_for(|line| {
            let event: serde_json::Value = serde_json::from_str(line).ok()?;
            (event["event"] == kind).then_some(event)
        })
    }

    /// Waits for a line on standard error that contains `text`.
    pub fn wait_for_message(&mut self, text: &str) {
        let messages = Arc::clone(&self.messages);
        self.wait_for_in(&messages, |line| line.contains(text).then_some(()));
    }

    fn wait_for_in<T>(
        &mut self,
        lines: &Mutex<Vec<String>>,
        find: impl Fn(&str) -> Option<T>,
    ) -> T {
        let deadline = Instant::now() + LIMIT;
        loop {
            self.watch_memory();
            // A process that has ended may have printed the line just before.
            let has_ended = self.child.try_wait().unwrap().is_some()
                && self.readers.iter().all(JoinHandle::is_finished);
            if let Some(found) = lines.lock().unwrap().iter().find_map(|line| find(line)) {
                return found;
            }
            assert!(
                Instant::now() < deadline,
                "{} has not printed the expected line: {:?}",
                self.command,
                lines.lock().unwrap()
            );
            assert!(
                !has_ended,
                "{} ended: {:?}",
                self.command,
                lines.lock().unwrap()
            );
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// The process's standard input, which is closed when the value is dropped.
    pub fn stdin(&mut self) -> std::process::ChildStdin {
        self.child.stdin.take().unwrap()
    }

    /// Waits for the URL that `send --publish` prints.
    pub fn url(&mut self) -> String {
        self.wait_for(|line| Some(line.split_once("manyflow recv ")?.1.to_owned()))
    }

    /// Sends a signal to the process. After SIGSTOP, waits until all of its threads have stopped:
    /// one of them takes the signal, and on a busy computer others may go on with their work until
    /// then.
    ///
    /// # Panics
    /// If a thread has not stopped after [`LIMIT`].
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
        if signal != Signal::SIGSTOP {
            return;
        }
        let deadline = Instant::now() + LIMIT;
        while !self.has_stopped() {
            assert!(Instant::now() < deadline, "{} runs on", self.command);
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Returns whether no thread of the process runs: each is stopped, or has ended (proc(5)).
    fn has_stopped(&self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        threads.flatten().all(|thread| {
            let stat = std::fs::read_to_string(thread.path().join("stat"));
            // The name, in parentheses, may have any characters; the state follows it.
            let state = stat.as_deref().ok().and_then(|stat| stat.rsplit_once(") "));
            state.is_none_or(|(_, state)| state.starts_with(['T', 'Z', 'X']))
        })
    }

    /// Kills the process (SIGKILL), and waits until the system has closed its sockets.
    pub fn kill(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }

    /// The lines that the process has printed on standard output so far.
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    /// The lines that the process has printed on standard error so far.
    pub fn messages(&self) -> Vec<String> {
        self.messages.lock().unwrap().clone()
    }

    /// Returns the number of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the process to end.
    pub fn finish(self) -> Ended {
        self.finish_within(LIMIT).unwrap_or_else(|running| {
            let lines = running.lines();
            let last = lines.last().map_or("", String::as_str);
            let messages = running.messages();
            panic!("{} does not end: {last} {messages:?}", running.command)
        })
    }

    /// Waits for the process to end, for at most `limit`; returns the process if it does not.
    pub fn finish_within(mut self, limit: Duration) -> Result<Ended, Manyflow> {
        let deadline = Instant::now() + limit;
        let status = loop {
            self.watch_memory();
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if Instant::now() >= deadline {
                return Err(self);
            }
            thread::sleep(Duration::from_millis(10));
        };
        let mut texts = self.readers.drain(..).map(|reader| reader.join().unwrap());
        let (stdout, stderr) = (texts.next().unwrap(), texts.next().unwrap());
        drop(texts);
        Ok(Ended {
            status,
            stdout,
            stderr,
            peak_memory_kib: self.peak_memory_kib,
        })
    }

    /// Reads the maximum of the process's resident memory, unless the process has ended.
    fn watch_memory(&mut self) {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id()));
        let status = status.unwrap_or_default();
        let peak = status.lines().find_map(|line| {
            let value = line.strip_prefix("VmHWM:")?.trim();
            value.trim_end_matches(" kB").parse().ok()
        });
        self.peak_memory_kib = self.peak_memory_kib.max(peak.unwrap_or(0));
    }
}

impl Drop for Manyflow {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    /// Returns the exit code of a process that was not killed.
    pub fn code(&self) -> i32 {
        self.status
            .code()
            .unwrap_or_else(|| panic!("killed: {self:?}"))
    }

    /// Asserts that the process succeeded.
    pub fn succeeded(self, label: &str) -> Ended {
        assert_eq!(self.code(), 0, "{label}: {self:?}");
        self
    }
}

fn collect_lines(stream: impl Read, lines: &Mutex<Vec<String>>) -> String {
    let mut text = String::new();
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        text.push_str(&line);
        text.push('\n');
        lines.lock().unwrap().push(line);
    }
    text
}

/// Writes a file whose bytes depend on `seed` and do not repeat in a simple way.
pub fn write_random(path: &Path, bytes: usize, seed: u64) {
    use rand::{Rng as _, SeedableRng as _};
    let mut content = vec![0; bytes];
    rand_pcg::Pcg64Mcg::seed_from_u64(seed).fill_bytes(&mut content);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

/// A folder with one file to send, `file`.
pub fn folder_with_file(bytes: usize) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    write_random(&folder.path().join("file"), bytes, 1);
    folder
}

/// A path as an argument.
pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Returns an address for a server that others have to know before it starts, or that starts again.
pub fn own_address() -> SocketAddr {
    manyflow_net::reserved::own_address().unwrap()
}

/// Waits until a condition holds.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < deadline, "not after {LIMIT:?}: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until the process whose number is in a file has ended.
pub fn wait_for_end_of(number: &Path) {
    let number = std::fs::read_to_string(number).unwrap();
    let stat = format!("/proc/{}/stat", number.trim());
    wait_until("the process ends", || {
        // A zombie has ended.
        std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "))
    });
}

/// Starts a sender of `folder` on loopback; returns it with its URL.
pub fn send(folder: &Path, arguments: &[&str]) -> (Manyflow, String) {
    let mut command = manyflow(&[
        "send",
        ".",
        "--listen",
        "127.0.0.1:0",
        "--publish",
        "127.0.0.1:0",
    ]);
    command.args(arguments).current_dir(folder);
    let mut sender = Manyflow::start(command);
    let url = sender.url();
    (sender, url)
}

/// Returns the head and the body of the answer to a GET request.
pub fn get(url: &str) -> (String, String) {
    let (host, path) = url["http://".len()..].split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    write!(
        stream,
        "GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_ascii_lowercase(), body.to_owned())
}

/// Waits until a file exists.
pub fn wait_for_file(path: &Path) {
    let deadline = Instant::now() + LIMIT;
    while !path.exists() {
        assert!(Instant::now() < deadline, "no {}", path.display());
        thread::sleep(Duration::from_millis(10));
    }
}

/// Makes a pipe, a socket and, if this process may, a device in a folder. Returns their paths.
pub fn special_files(folder: &Path) -> Vec<std::path::PathBuf> {
    use nix::sys::stat::{Mode, SFlag, makedev, mknod};
    let [pipe, socket, device] = ["pipe", "socket", "device"].map(|name| folder.join(name));
    nix::unistd::mkfifo(&pipe, Mode::S_IRWXU).unwrap();
    // The socket's file remains when the listener is closed.
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let mut made = vec![pipe, socket];
    // As /dev/null. Only root may make a device.
    if mknod(&device, SFlag::S_IFCHR, Mode::S_IRWXU, makedev(1, 3)).is_ok() {
        made.push(device);
    }
    made
}

/// Asserts that these are still what [`special_files`] made.
pub fn assert_special(files: &[std::path::PathBuf]) {
    for file in files {
        let kind = std::fs::symlink_metadata(file).unwrap().file_type();
        assert!(!kind.is_file() && !kind.is_symlink(), "{}", file.display());
    }
}

/// All files below a folder, as paths relative to it.
pub fn listing(folder: &Path) -> Vec<String> {
    fn walk(folder: &Path, prefix: &str, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
            match entry.file_type().unwrap().is_dir() {
                true => walk(&entry.path(), &format!("{name}/"), found),
                false => found.push(name),
            }
        }
    }
    let mut found = Vec::new();
    walk(folder, "", &mut found);
    found.sort();
    found
}

/// Asserts that two folders hold the same files with the same bytes.
pub fn assert_same(sent: &Path, received: &Path, label: &str) {
    let names = listing(sent);
    assert_eq!(names, listing(received), "{label}");
    for name in names {
        let (one, two) = (sent.join(&name), received.join(&name));
        assert!(
            std::fs::read(one).unwrap() == std::fs::read(two).unwrap(),
            "{label}: {name} differs"
        );
    }
}
