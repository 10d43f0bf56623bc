//! The dashboards and alerts of contrib/, and the metrics that the guides name: all of them exist,
//! and each metric of each role has a panel.
use crate::common;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Manyflow, PATIENT, folder_with_file, get, manyflow, text, wait_until};
use serde_json::{Value, json};
use tempfile::TempDir;

const ANY: &str = "127.0.0.1:0";

/// Roles that work with one another, each with its metrics.
struct Roles {
    running: Vec<Manyflow>,
    /// The URLs of their metrics.
    pages: Vec<String>,
    home: TempDir,
}

impl Roles {
    fn start() -> Roles {
        let home = folder_with_file(5_000_000);
        let mut roles = Roles {
            running: Vec::new(),
            pages: Vec::new(),
            home,
        };
        roles.start_files();
        roles.start_streams();
        roles.start_daemons();
        roles.start_services();
        roles
    }

    /// Starts a role, and returns its place.
    fn add(&mut self, arguments: &[&str]) -> usize {
        let mut command = manyflow(arguments);
        command.args(["--json", "--metrics", ANY]);
        let mut role = Manyflow::start(command);
        let metrics = role.wait_for_event("metrics");
        self.pages.push(metrics["url"].as_str().unwrap().to_owned());
        self.running.push(role);
        self.running.len() - 1
    }

    /// Returns a key of an event of the role at a place.
    fn event(&mut self, place: usize, event: &str, key: &str) -> String {
        let event = self.running[place].wait_for_event(event);
        event[key].as_str().unwrap().to_owned()
    }

    fn path(&self, name: &str) -> String {
        text(&self.home.path().join(name)).to_owned()
    }

    fn start_files(&mut self) {
        let (file, hosts, output) = (self.path("file"), self.path("hosts"), self.path("output"));
        fs::write(&hosts, "lab-1\nlab-2\n").unwrap();
        let reports = ["--expect", &hosts, "--reports", ANY];
        let send = ["send", &file, "--rate", "2Mbit/s", "--listen", ANY];
        let sender = self.add(&[&send[..], &["--publish", ANY], &reports].concat());
        let url = self.event(sender, "published", "url");
        let relay = self.add(&["relay", "--session", &url, "--listen", ANY]);
        let at = self.event(relay, "started", "listen");
        let recv = ["recv", &url, "--relay", &at, "--output", &output];
        self.add(&[&recv[..], &PATIENT].concat());
    }

    fn start_streams(&mut self) {
        let send = ["stream", "send", "--pattern", "--listen", ANY];
        let sender = self.add(&[&send[..], &["--publish", ANY]].concat());
        let url = self.event(sender, "published", "url");
        self.add(&["stream", "recv", &url, "--pattern"]);
    }

    fn start_daemons(&mut self) {
        let daemon = ["daemon", "--insecure", "--listen", ANY, "--clients", ANY];
        let first = self.add(&[&daemon[..], &["--name", "a"]].concat());
        let link = format!("a={}", self.event(first, "started", "daemons"));
        let second = self.add(&[&daemon[..], &["--name", "b", "--link", &link]].concat());
        assert_eq!(self.event(second, "linked", "neighbour"), "a");
        assert_eq!(self.event(first, "linked", "neighbour"), "b");
    }

    fn start_services(&mut self) {
        let chunks = self.path("chunks");
        fs::create_dir(&chunks).unwrap();
        let store = self.add(&["store", "--dir", &chunks, "--listen", ANY]);
        let member = format!("one={}", self.event(store, "started", "listen"));
        let switch = ["switch", "--listen", ANY, "--policy", "replicas"];
        self.add(&[&switch[..], &["--member", &member]].concat());
        let member = self.add(&["member", "--listen", ANY, "--http", "http://127.0.0.1:1"]);
        let to = self.event(member, "started", "listen");
        self.add(&["gateway", "--listen", ANY, "--to", &to]);
        let router = ["router", "--listen", ANY, "--to", "127.0.0.1:1"];
        self.add(&[&router[..], &["--rate", "1Mbit/s"]].concat());
    }

    /// Returns the names of all metrics of all roles.
    fn served(&self) -> BTreeSet<String> {
        let pages = self.pages.iter().map(|page| get(page).1);
        let names = pages.map(|page| {
            let samples = page.lines().filter(|line| !line.starts_with('#'));
            samples.flat_map(metric_names).collect::<BTreeSet<_>>()
        });
        names.flatten().collect()
    }
}

/// Returns all words of a text that begin as metrics of roles do.
fn metric_names(text: &str) -> BTreeSet<String> {
    let prefixes = [
        "daemon", "gateway", "member", "receiver", "relay", "router", "sender", "store", "stream",
        "switch",
    ];
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let is_metric = |word: &&str| {
        let own = word.strip_prefix("manyflow_");
        let role = own.and_then(|own| own.split_once('_'));
        role.is_some_and(|(role, name)| prefixes.contains(&role) && !name.is_empty())
            || word.starts_with("process_resident")
    };
    words.filter(is_metric).map(str::to_owned).collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the files of a folder of the project with an extension.
fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join(folder)).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let files: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect();
    assert!(!files.is_empty(), "{folder} has no .{extension}");
    files
}

/// Returns the dashboards by their files.
fn dashboards() -> Vec<(PathBuf, Value)> {
    let read = |path: PathBuf| {
        let board = serde_json::from_str(&fs::read_to_string(&path).unwrap());
        (path, board.unwrap())
    };
    files("contrib/grafana", "json")
        .into_iter()
        .map(read)
        .collect()
}

/// Returns the panels of a dashboard that show metrics; the others are titles of rows.
fn panels(board: &Value) -> impl Iterator<Item = &Value> {
    let panels = board["panels"].as_array().unwrap();
    panels.iter().filter(|panel| panel["type"] != "row")
}

#[test]
fn each_metric_has_a_panel_and_all_that_contrib_and_the_guides_name_exist() {
    let roles = Roles::start();
    // The round-trip time is the last one: a receiver has it after it has joined a wave.
    wait_until("a receiver has a round-trip time", || {
        roles.served().contains("manyflow_receiver_rtt_seconds")
    });
    let served = roles.served();
    let paths = [
        files("contrib/grafana", "json"),
        files("contrib/prometheus", "yml"),
        files("docs", "md"),
    ];
    for path in paths.concat() {
        let named = metric_names(&fs::read_to_string(&path).unwrap());
        let unknown: Vec<_> = named.difference(&served).collect();
        assert!(unknown.is_empty(), "{}: {unknown:?}", path.display());
    }
    let boards = dashboards();
    let shown: BTreeSet<_> = boards
        .iter()
        .flat_map(|(_, board)| panels(board))
        .flat_map(|panel| metric_names(&panel["targets"].to_string()))
        .collect();
    let hidden: Vec<_> = served.difference(&shown).collect();
    assert!(hidden.is_empty(), "no panel shows {hidden:?}");
}

/// Runs promtool in a folder, if the host has it.
fn promtool(folder: &Path, arguments: &[&str]) {
    let mut promtool = Command::new("promtool");
    match promtool.current_dir(folder).args(arguments).output() {
        Ok(ended) => {
            let printed = [ended.stdout, ended.stderr].concat();
            let printed = String::from_utf8_lossy(&printed);
            assert!(ended.status.success(), "{printed}");
        }
        Err(error) => eprintln!("skipped: promtool: {error}; scripts/setup tests installs it"),
    }
}

#[test]
fn alerts_fire_when_they_should_and_only_then() {
    let folder = root().join("contrib/prometheus");
    promtool(&folder, &["test", "rules", "manyflow-alerts.test.yml"]);
}

#[test]
fn prometheus_reads_the_expressions_of_all_dashboards() {
    let boards = dashboards();
    let targets = boards.iter().flat_map(|(path, board)| {
        panels(board).flat_map(move |panel| {
            let targets = panel["targets"].as_array().unwrap();
            assert!(!targets.is_empty(), "{}: {panel}", path.display());
            targets.iter()
        })
    });
    // Grafana puts values into its variables.
    let expressions = targets.map(|target| {
        let expression = target["expr"].as_str().unwrap();
        expression.replace("$__rate_interval", "1m")
    });
    let rules: Vec<_> = expressions
        .enumerate()
        .map(|(place, expr)| json!({ "record": format!("panel:{place}"), "expr": expr }))
        .collect();
    let folder = tempfile::tempdir().unwrap();
    // JSON is YAML as well.
    let groups = json!({ "groups": [{ "name": "panels", "rules": rules }] });
    fs::write(folder.path().join("panels.yml"), groups.to_string()).unwrap();
    promtool(folder.path(), &["check", "rules", "panels.yml"]);
}
