//! A chunk store of processes: members, perhaps a switch, and clients that put and get.

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
    /// The switch before the members, if it is a process of its own.
    switch: Option<Manyflow>,
    /// The switch of the clients and its address, if they share a connection.
    initiators: Option<(Manyflow, SocketAddr)>,
    members: Vec<Option<Manyflow>>,
    /// Further options of members and clients.
    options: Vec<String>,
}

impl Lab {
    /// Starts this number of members, which clients name.
    pub(crate) fn start(members: usize) -> Lab {
        Lab::with_options(members, |_| vec![])
    }

    /// Starts this number of members, and a switch before them, which clients name.
    pub(crate) fn start_with_switch(members: usize) -> Lab {
        let mut lab = Lab::start(members);
        lab.start_switch();
        lab
    }

    /// Starts members which clients name. Both have further options.
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

    fn switch_address(&self) -> SocketAddr {
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
        command.args(self.named_members());
        self.switch = Some(start(command));
    }

    /// Starts a switch before the members, and one to which clients connect from now on, and which
    /// has one connection to the store for all of them.
    pub(crate) fn start_initiators(&mut self) {
        self.start_switch();
        let (listen, to) = (own_address(), self.switch_address().to_string());
        let mut command = manyflow(&["switch", "--json", "--to", &to]);
        command.args(["--listen", &listen.to_string()]);
        self.initiators = Some((start(command), listen));
    }

    /// Returns the options that name all members.
    pub(crate) fn named_members(&self) -> Vec<String> {
        let member = |member| format!("--member=m{member}={}", self.member_address(member));
        (0..self.members.len()).map(member).collect()
    }

    /// Starts a command with these words. `option` names the switch, if clients have one.
    fn start_client(&self, words: &[&str], option: &str, arguments: &[&str]) -> Manyflow {
        let mut command = manyflow(words);
        match (&self.initiators, &self.switch) {
            (Some((_, address)), _) => command.args([option, &address.to_string()]),
            (None, Some(_)) => command.args([option, &self.switch_address().to_string()]),
            (None, None) => command.args(self.named_members()),
        };
        command.args(["--json"]).args(&self.options).args(arguments);
        command.current_dir(self.home.path());
        Manyflow::start(command)
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
        self.start_client(&["put"], "--to", arguments)
    }

    /// Starts `get` with these arguments.
    pub(crate) fn start_get(&self, arguments: &[&str]) -> Manyflow {
        self.start_client(&["get"], "--from", arguments)
    }

    /// Starts another command for files with these arguments: `ls` or `rm`.
    pub(crate) fn start_files(&self, command: &str, arguments: &[&str]) -> Manyflow {
        self.start_client(&[command], "--from", arguments)
    }

    /// Starts a task of operators with these arguments.
    pub(crate) fn start_task(&self, task: &str, arguments: &[&str]) -> Manyflow {
        self.start_client(&["store", task], "--at", arguments)
    }

    pub(crate) fn task(&self, task: &str, arguments: &[&str]) -> Ended {
        self.start_task(task, arguments).finish()
    }

    /// Waits until clients find out that this number of members runs.
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
