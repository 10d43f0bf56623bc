//! A real nats-server with JetStream, if it is installed.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::LIMIT;

/// The name of the server's file.
const FILE: &str = "server.conf";

/// A running nats-server on loopback with JetStream in a folder of its own. It is killed when
/// dropped.
pub struct NatsServer {
    child: Child,
    address: SocketAddr,
    folder: TempDir,
}

impl NatsServer {
    /// Starts a server at a free port. Prints a message and returns `None` if there is no
    /// nats-server.
    ///
    /// # Panics
    /// If it does not listen in time.
    pub fn start() -> Option<NatsServer> {
        NatsServer::start_with("")
    }

    /// Starts a server at a free port with these lines in its file, as [`start`](NatsServer::start)
    /// does without.
    ///
    /// # Panics
    /// If it does not listen in time.
    pub fn start_with(lines: &str) -> Option<NatsServer> {
        if Command::new("nats-server")
            .arg("--version")
            .output()
            .is_err()
        {
            println!("skipped: nats-server is not installed; scripts/setup tests installs it");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILE), lines).unwrap();
        let child = spawn(&folder, "-1");
        let address = wait_for_address(&folder);
        Some(NatsServer {
            child,
            address,
            folder,
        })
    }

    /// Returns the address for clients.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Kills the server (SIGKILL). Its streams remain on the disk.
    pub fn kill(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }

    /// Starts a server that was killed again, at the same port and with the same streams.
    pub fn start_again(&mut self) {
        for (path, _) in ports_files(&self.folder) {
            std::fs::remove_file(path).unwrap();
        }
        self.child = spawn(&self.folder, &self.address.port().to_string());
        wait_for_address(&self.folder);
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(folder: &TempDir, port: &str) -> Child {
    let mut command = Command::new("nats-server");
    command.args(["-a", "127.0.0.1", "-p", port, "-js", "-sd"]);
    command
        .arg(folder.path())
        .arg("-c")
        .arg(folder.path().join(FILE))
        .arg("--ports_file_dir")
        .arg(folder.path());
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().unwrap()
}

/// Returns the files in which servers have written their ports, and the texts.
fn ports_files(folder: &TempDir) -> Vec<(std::path::PathBuf, String)> {
    let files = std::fs::read_dir(folder.path()).unwrap();
    let paths = files.map(|file| file.unwrap().path());
    let ports = paths.filter(|path| path.extension().is_some_and(|end| end == "ports"));
    ports
        .map(|path| {
            let text = std::fs::read_to_string(&path).unwrap();
            (path, text)
        })
        .collect()
}

/// Waits until the server has written its address to a file, which it does when it listens.
fn wait_for_address(folder: &TempDir) -> SocketAddr {
    let start = Instant::now();
    loop {
        let address = ports_files(folder).into_iter().find_map(|(_, text)| {
            let ports: serde_json::Value = serde_json::from_str(&text).ok()?;
            let url = ports["nats"][0].as_str()?;
            url.strip_prefix("nats://")?.parse().ok()
        });
        if let Some(address) = address {
            return address;
        }
        assert!(start.elapsed() < LIMIT, "nats-server does not listen");
        thread::sleep(Duration::from_millis(5));
    }
}
