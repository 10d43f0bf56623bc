//! A chunk store of processes: members, a switch, and clients that put and get.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::common::{Ended, LIMIT, Manyflow, manyflow, own_address, text, write_random};

/// A service on loopback.
pub(crate) struct Lab {
    pub(crate) home: TempDir,
    /// The addresses of the members, and behind them that of the switch.
    addresses: Vec<SocketAddr>,
    switch: Option<Manyflow>,
    /// The switch of the clients and its address, if they share a connection.
    initiators: Option<(Manyflow, SocketAddr)>,
    members: Vec<Option<Manyflow>>,
    /// Further options of members and clients.
    options: Vec<String>,
}

impl Lab {
    /// Starts this number of members, and a switch in front of them.
    pub(crate) fn start(members: usize) -> Lab {
        Lab::with_options(members, |_| vec![])
    }

    /// Starts a service whose members and clients have further options.
    pub(crate) fn with_options(members: usize, options: impl Fn(&Path) -> Vec<String>) -> Lab {
        let home = tempfile::tempdir().unwrap();
        // The switch and the members have to come back at their addresses.
        let mut lab = Lab {
            addresses: (0..=members).map(|_| own_address()).collect(),
            switch: None,
            initiators: None,
            members: (0..members).map(|_| None).collect(),
            options: options(home.path()),
            home,
        };
        (0..members).for_each(|member| lab.start_member(member));
        lab.start_switch();
        lab
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// The folder of a member.
    pub(crate) fn folder(&self, member: usize) -> PathBuf {
        self.path(&format!("m{member}"))
    }

    fn member_address(&self, member: usize) -> SocketAddr {
        self.addresses[member]
    }

    pub(crate) fn switch_address(&self) -> SocketAddr {
        self.addresses[self.members.len()]
    }

    /// Starts a member that does not run, and waits until it accepts connections.
    pub(crate) fn start_member(&mut self, member: usize) {
        assert!(self.members[member].is_none());
        let (name, listen) = (format!("m{member}"), self.member_address(member));
        let mut command = manyflow(&["store", "--json", "--name", &name]);
        command.args(["--dir", text(&self.folder(member))]);
        command.args(["--listen", &listen.to_string()]);
        command.args(&self.options);
        self.members[member] = Some(start(command));
    }

    pub(crate) fn start_switch(&mut self) {
        assert!(self.switch.is_none());
        let listen = self.switch_address().to_string();
        let mut command = manyflow(&["switch", "--json", "--policy", "replicas"]);
        command.args(["--listen", &listen]);
        for member in 0..self.members.len() {
            let address = self.member_address(member);
            command.args(["--member", &format!("m{member}={address}")]);
        }
        self.switch = Some(start(command));
    }

    /// Starts a switch to which clients connect from now on, and which has one connection to the
    /// store for all of them.
    pub(crate) fn start_initiators(&mut self) {
        let (listen, to) = (own_address(), self.switch_address().to_string());
        let mut command = manyflow(&["switch", "--json", "--to", &to]);
        command.args(["--listen", &listen.to_string()]);
        self.initiators = Some((start(command), listen));
    }

    /// Returns the address to which clients connect.
    fn entrance(&self) -> SocketAddr {
        let initiators = self.initiators.as_ref();
        initiators.map_or(self.switch_address(), |(_, address)| *address)
    }

    /// Kills a member (SIGKILL). Its folder remains.
    pub(crate) fn kill_member(&mut self, member: usize) {
        self.members[member].take().unwrap().kill();
    }

    /// Ends a member (SIGTERM).
    pub(crate) fn end_member(&mut self, member: usize) -> Ended {
        let member = self.members[member].take().unwrap();
        member.signal(Signal::SIGTERM);
        member.finish()
    }

    /// Kills a member (SIGKILL), and removes its folder.
    pub(crate) fn lose_member(&mut self, member: usize) {
        self.kill_member(member);
        std::fs::remove_dir_all(self.folder(member)).unwrap();
    }

    /// Kills the switch (SIGKILL).
    pub(crate) fn kill_switch(&mut self) {
        self.switch.take().unwrap().kill();
    }

    /// The process of a member that runs.
    pub(crate) fn member(&mut self, member: usize) -> &mut Manyflow {
        self.members[member].as_mut().unwrap()
    }

    /// Takes a member's process, to wait for its end.
    pub(crate) fn take_member(&mut self, member: usize) -> Manyflow {
        self.members[member].take().unwrap()
    }

    /// Writes a file of random bytes.
    pub(crate) fn file(&self, name: &str, bytes: usize, seed: u64) -> PathBuf {
        let path = self.path(name);
        write_random(&path, bytes, seed);
        path
    }

    /// Starts `put` with these arguments.
    pub(crate) fn start_put(&self, arguments: &[&str]) -> Manyflow {
        let switch = self.entrance().to_string();
        let mut command = manyflow(&["put", "--json", "--to", &switch]);
        command.args(&self.options).args(arguments);
        Manyflow::start(command)
    }

    /// Starts `get` with these arguments.
    pub(crate) fn start_get(&self, arguments: &[&str]) -> Manyflow {
        let switch = self.entrance().to_string();
        let mut command = manyflow(&["get", "--json", "--from", &switch]);
        command.args(&self.options).args(arguments);
        command.current_dir(self.home.path());
        Manyflow::start(command)
    }

    /// Starts another command for files with these arguments: `ls` or `rm`.
    pub(crate) fn start_files(&self, command: &str, arguments: &[&str]) -> Manyflow {
        let switch = self.entrance().to_string();
        let mut command = manyflow(&[command, "--json", "--from", &switch]);
        command.args(&self.options).args(arguments);
        Manyflow::start(command)
    }

    /// Starts a task of operators with these arguments.
    pub(crate) fn start_task(&self, task: &str, arguments: &[&str]) -> Manyflow {
        let switch = self.entrance().to_string();
        let mut command = manyflow(&["store", task, "--json", "--at", &switch]);
        command.args(&self.options).args(arguments);
        Manyflow::start(command)
    }

    pub(crate) fn task(&self, task: &str, arguments: &[&str]) -> Ended {
        self.start_task(task, arguments).finish()
    }

    /// Waits until the switch has found out that this number of members runs.
    pub(crate) fn wait_for_members(&self, members: usize) {
        let deadline = Instant::now() + LIMIT;
        loop {
            let usage = self.task("usage", &["--patience", "10s"]);
            if usage.code() == 0 && event(&usage, "done")["members"] == members {
                return;
            }
            assert!(Instant::now() < deadline, "{usage:?}");
        }
    }

    pub(crate) fn put(&self, arguments: &[&str]) -> Ended {
        self.start_put(arguments).finish()
    }

    pub(crate) fn get(&self, arguments: &[&str]) -> Ended {
        self.start_get(arguments).finish()
    }

    /// Asserts that two files have the same bytes.
    pub(crate) fn assert_same(&self, one: &str, two: &str) {
        let [one, two] = [one, two].map(|name| std::fs::read(self.path(name)).unwrap());
        assert_eq!(one.len(), two.len());
        assert!(one == two, "the bytes differ");
    }
}

/// Starts a command, and waits until it has started.
fn start(command: std::process::Command) -> Manyflow {
    let mut process = Manyflow::start(command);
    process.wait_for(|line| line.contains("\"started\"").then_some(()));
    process
}

/// Returns the object of this event.
pub(crate) fn event(ended: &Ended, name: &str) -> Value {
    let objects = ended.stdout.lines().map(|line| {
        let object: Value = serde_json::from_str(line).unwrap();
        object
    });
    let found = objects.into_iter().find(|object| object["event"] == name);
    found.unwrap_or_else(|| panic!("no event {name}: {ended:?}"))
}
