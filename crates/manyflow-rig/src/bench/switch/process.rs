//! The processes of a switch and of HAProxy.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tempfile::NamedTempFile;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use crate::bench::process_cpu_s;

/// Maximum time for a process to get ready.
const LIMIT: Duration = Duration::from_secs(30);

/// Returns whether HAProxy is installed.
pub(super) fn has_haproxy() -> bool {
    let version = std::process::Command::new("haproxy").arg("-v").output();
    version.is_ok()
}

/// A switch or HAProxy, killed when dropped.
pub(super) struct Proxy {
    pub(super) address: SocketAddr,
    child: Child,
    /// HAProxy reads it when it starts.
    _config: Option<NamedTempFile>,
}

impl Proxy {
    /// Starts a switch in front of these members.
    pub(super) async fn switch(members: &[SocketAddr], policy: &str) -> Result<Proxy> {
        let program = crate::program::manyflow()?;
        let mut command = Command::new(program);
        command.args(["switch", "--json", "--listen", "127.0.0.1:0"]);
        command.args(["--policy", policy]);
        for (place, member) in members.iter().enumerate() {
            command.args(["--member", &format!("m{place}={member}")]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn()?;
        let stdout = child.stdout.take().context("the switch has no output")?;
        let mut lines = BufReader::new(stdout).lines();
        let line = timeout(LIMIT, lines.next_line()).await;
        let line = line.context("the switch did not start")??;
        let started: serde_json::Value =
            serde_json::from_str(&line.context("the switch has ended")?)?;
        Ok(Proxy {
            address: started["listen"].as_str().unwrap_or_default().parse()?,
            child,
            _config: None,
        })
    }

    /// Starts HAProxy with one thread in TCP mode in front of these servers.
    pub(super) async fn haproxy(servers: &[SocketAddr]) -> Result<Proxy> {
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let mut config = NamedTempFile::new()?;
        writeln!(
            config,
            "global\n  nbthread 1\n  maxconn 4000\n\
             defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 60s\n  timeout server 60s\n\
             frontend f\n  bind {address}\n  default_backend b\n\
             backend b\n  balance roundrobin"
        )?;
        for (place, server) in servers.iter().enumerate() {
            writeln!(config, "  server s{place} {server}")?;
        }
        config.flush()?;
        let mut command = Command::new("haproxy");
        command.arg("-db").arg("-f").arg(config.path());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(Stdio::null());
        let child = command.kill_on_drop(true).spawn()?;
        let ready = async {
            while TcpStream::connect(address).await.is_err() {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(LIMIT, ready)
            .await
            .context("HAProxy did not start")?;
        Ok(Proxy {
            address,
            child,
            _config: Some(config),
        })
    }

    fn id(&self) -> Result<u32> {
        self.child.id().context("the process has ended")
    }

    /// Returns the processor time of the process in seconds, user and system.
    pub(super) fn cpu_s(&self) -> Result<f64> {
        process_cpu_s(self.id()?)
    }

    /// Returns the process's resident memory.
    pub(super) fn resident_bytes(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id()?))?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kibibytes = resident.and_then(|size| size.trim().strip_suffix(" kB"));
        let kibibytes = kibibytes.context("no VmRSS in /proc/PID/status")?;
        Ok(kibibytes.trim().parse::<u64>()? << 10)
    }
}
