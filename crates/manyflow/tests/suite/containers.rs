//! The files of contrib/containers: what they run is a command of this program, and does what they
//! say. The programs run as processes on loopback: no container is made.

use crate::common;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use common::{Manyflow, assert_same, manyflow, run, text, write_random};
use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;
use yaml_rust2::{Yaml, YamlLoader};

const SERVICES: [&str; 5] = ["sender", "one", "two", "three", "slow"];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/containers")
}

/// Returns the documents of a file.
fn documents(name: &str) -> Vec<Yaml> {
    let text = fs::read_to_string(folder().join(name)).unwrap();
    YamlLoader::load_from_str(&text).unwrap()
}

fn list(node: &Yaml) -> Vec<&str> {
    let entries = node.as_vec().unwrap_or_else(|| panic!("no list: {node:?}"));
    entries
        .iter()
        .map(|entry| entry.as_str().unwrap())
        .collect()
}

/// Returns the value of an option.
fn value<'a>(words: &[&'a str], option: &str) -> &'a str {
    let place = words.iter().position(|word| *word == option);
    words[place.unwrap_or_else(|| panic!("no {option}: {words:?}")) + 1]
}

/// Returns an argument with the paths of a container replaced by those of this machine.
fn on_this_machine(word: &str, mounts: &[(&str, PathBuf)]) -> String {
    let found = mounts.iter().find_map(|(mount, path)| {
        let rest = word.strip_prefix(mount)?;
        (rest.is_empty() || rest.starts_with('/')).then(|| format!("{}{rest}", path.display()))
    });
    found.unwrap_or_else(|| word.to_owned())
}

/// A folder with a model.
fn model() -> TempDir {
    let home = tempfile::tempdir().unwrap();
    write_random(&home.path().join("model/weights"), 60_000, 1);
    write_random(&home.path().join("model/layers/0"), 20_000, 2);
    home
}

#[test]
fn the_services_of_the_compose_file_are_built_from_this_repository_and_name_each_other() {
    let compose = documents("compose.yaml").remove(0);
    let services = &compose["services"];
    assert_eq!(services.as_hash().unwrap().len(), SERVICES.len());
    let hosts = fs::read_to_string(folder().join("hosts.txt")).unwrap();
    let hosts: Vec<_> = hosts
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect();
    assert_eq!(hosts, SERVICES[1..]);
    let sent = list(&services["sender"]["command"]);
    let port = value(&sent, "--publish").rsplit_once(':').unwrap().1;
    for name in SERVICES {
        let service = &services[name];
        let context = folder().join(service["build"]["context"].as_str().unwrap());
        let recipe = context.join(service["build"]["dockerfile"].as_str().unwrap());
        assert!(context.join("Cargo.lock").exists() && recipe.exists());
        assert_eq!(service["image"], services["sender"]["image"], "{name}");
        if name == "sender" {
            continue;
        }
        let command = list(&service["command"]);
        assert_eq!(command[1], format!("http://sender:{port}/session.sdp"));
        assert_eq!(value(&command, "--name"), name);
        assert_eq!(list(&service["depends_on"]), ["sender"]);
        let output = format!("./received/{name}:{}", value(&command, "--output"));
        assert_eq!(list(&service["volumes"]), [output.as_str()]);
    }
}

#[test]
fn the_services_of_the_compose_file_transfer_a_model_to_all_receivers() {
    let compose = documents("compose.yaml").remove(0);
    let (services, home) = (&compose["services"], model());
    let mounts = [
        ("/model", home.path().join("model")),
        ("/hosts.txt", folder().join("hosts.txt")),
    ];
    // Any free ports, and loopback instead of the containers' network.
    let local = |word: &str| match word.starts_with("0.0.0.0:") {
        true => "127.0.0.1:0".to_owned(),
        false => on_this_machine(word, &mounts),
    };
    let words: Vec<_> = list(&services["sender"]["command"])
        .into_iter()
        .map(local)
        .collect();
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let mut command = manyflow(&words);
    command.args(["--reports", "127.0.0.1:0"]);
    let mut sender = Manyflow::start(command);
    let url = sender.url();
    let receivers = SERVICES[1..].iter().map(|name| {
        let output = home.path().join("received").join(name);
        let mounts = [("/received", output)];
        let words = list(&services[*name]["command"]).into_iter();
        let words: Vec<_> = words.map(|word| on_this_machine(word, &mounts)).collect();
        let mut words: Vec<_> = words.iter().map(String::as_str).collect();
        words[1] = &url;
        (name, Manyflow::start(manyflow(&words)))
    });
    for (name, receiver) in receivers.collect::<Vec<_>>() {
        receiver.finish().succeeded(name);
        let received = home.path().join("received").join(name).join("model");
        assert_same(&home.path().join("model"), &received, name);
    }
    sender
        .finish()
        .succeeded("all receivers of hosts.txt are done");
}

/// The daemon set, and the script of its configuration.
fn daemon_set() -> (Yaml, String) {
    let [config, set]: [Yaml; 2] = documents("daemonset.yaml").try_into().unwrap();
    assert_eq!(config["kind"].as_str(), Some("ConfigMap"));
    assert_eq!(set["kind"].as_str(), Some("DaemonSet"));
    let script = config["data"]["import"].as_str().unwrap().to_owned();
    let volumes = set["spec"]["template"]["spec"]["volumes"].as_vec().unwrap();
    let scripts = volumes
        .iter()
        .find(|volume| volume["name"].as_str() == Some("scripts"));
    let mounted = &scripts.unwrap()["configMap"]["name"];
    assert_eq!(*mounted, config["metadata"]["name"]);
    (set, script)
}

/// Checks that a pod mounts its volumes and all paths of its command. Returns the command's
/// arguments.
fn check_mounts(set: &Yaml) -> Vec<String> {
    let spec = &set["spec"];
    let pod = &spec["template"];
    assert_eq!(spec["selector"]["matchLabels"], pod["metadata"]["labels"]);
    let container = &pod["spec"]["containers"][0];
    let volumes = pod["spec"]["volumes"].as_vec().unwrap();
    let mounts = container["volumeMounts"].as_vec().unwrap();
    assert_eq!(mounts.len(), volumes.len());
    for mount in mounts {
        assert!(
            volumes.iter().any(|volume| volume["name"] == mount["name"]),
            "{mount:?}"
        );
    }
    let arguments = list(&container["args"]);
    for path in arguments.iter().filter(|word| word.starts_with('/')) {
        let is_mounted = |mount: &Yaml| path.starts_with(mount["mountPath"].as_str().unwrap());
        assert!(mounts.iter().any(is_mounted), "{path}");
    }
    arguments.into_iter().map(str::to_owned).collect()
}

#[test]
fn the_daemon_set_mounts_all_paths_of_its_command() {
    let (set, _) = daemon_set();
    let arguments = check_mounts(&set);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    // With `--help` added, the command line is only checked for unknown options.
    run(&[&arguments[..], &["--help"]].concat()).succeeded("the daemon set's command");
}

#[test]
fn a_node_of_the_daemon_set_receives_a_model_and_imports_an_image() {
    let (set, script) = daemon_set();
    let home = model();
    let at = |name: &str| home.path().join(name);
    write_random(&at("image/layer.oci.tar"), 30_000, 3);
    run(&["keygen", text(&at("builds.key"))]).succeeded("keygen");
    fs::create_dir(at("bin")).unwrap();
    for (name, content) in [
        ("import", script),
        (
            "bin/ctr",
            format!("#!/bin/sh\necho \"$@\" >> {}\n", at("imported").display()),
        ),
    ] {
        fs::write(at(name), content).unwrap();
        fs::set_permissions(at(name), fs::Permissions::from_mode(0o555)).unwrap();
    }
    let config = "publish = \"127.0.0.1:0\"\n[defaults]\nlisten = \"127.0.0.1:0\"\nsign = \"builds.key\"\n\
                  [session.model]\npaths = [\"model\"]\n[session.image]\npaths = [\"image\"]\n";
    fs::write(at("sessions.toml"), config).unwrap();
    let mut service = Manyflow::start(manyflow(&["serve", text(&at("sessions.toml")), "--json"]));
    let url = service.wait_for(|line| {
        let event: Value = serde_json::from_str(line).unwrap();
        let url = event["url"]
            .as_str()
            .filter(|_| event["event"] == "published")?;
        Some(url.rsplit_once('/').unwrap().0.to_owned())
    });
    let mounts = [
        ("/models", at("models")),
        ("/trust", home.path().to_owned()),
        ("/scripts", home.path().to_owned()),
    ];
    let arguments = &set["spec"]["template"]["spec"]["containers"][0]["args"];
    let arguments = list(arguments).into_iter();
    let words: Vec<_> = arguments
        .map(|word| on_this_machine(word, &mounts))
        .collect();
    let mut words: Vec<_> = words.iter().map(String::as_str).collect();
    let source = words.iter().position(|word| *word == "--follow").unwrap() + 1;
    words[source] = &url;
    let mut command = manyflow(&words);
    let programs = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{programs}", at("bin").display()));
    let mut node = {
        command.arg("--json");
        Manyflow::start(command)
    };
    for name in ["model", "image"] {
        node.wait_for(|line| {
            let event: Value = serde_json::from_str(line).unwrap();
            (event["event"] == "received" && event["session_name"] == name).then_some(())
        });
        assert_same(&at(name), &at("models").join(name).join(name), name);
    }
    let archive = at("models/image/image/layer.oci.tar")
        .canonicalize()
        .unwrap();
    let imported = fs::read_to_string(at("imported")).unwrap();
    let expected = format!("--namespace k8s.io images import {}\n", archive.display());
    assert_eq!(imported, expected);
    node.signal(Signal::SIGTERM);
    node.finish().succeeded("node");
}

#[test]
fn the_sender_of_a_cluster_mounts_all_paths_and_signs_its_sessions() {
    let [config, deployment]: [Yaml; 2] = documents("sender.yaml").try_into().unwrap();
    let arguments = check_mounts(&deployment);
    assert_eq!(arguments[..2], ["serve", "/config/sessions.toml"]);
    // The same file with paths of this machine, and any free ports.
    let home = model();
    let at = |name: &str| text(&home.path().join(name)).to_owned();
    run(&["keygen", &at("builds.key")]).succeeded("keygen");
    let sessions = config["data"]["sessions.toml"].as_str().unwrap();
    let sessions = sessions
        .replace("/srv/models", &at("model"))
        .replace("/sign/builds.key", &at("builds.key"));
    fs::write(at("sessions.toml"), on_free_ports(&sessions)).unwrap();
    let mut sender = Manyflow::start(manyflow(&["serve", &at("sessions.toml"), "--json"]));
    sender.wait_for(|line| line.contains("\"started\"").then_some(()));
    sender.signal(Signal::SIGTERM);
    sender.finish().succeeded("sender");
}

/// Replaces each address with a port by a free port on loopback.
fn on_free_ports(text: &str) -> String {
    let lines = text.lines().map(|line| match line.split_once(" = \"") {
        Some((key @ ("publish" | "metrics" | "listen"), _)) => format!("{key} = \"127.0.0.1:0\""),
        _ => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// A service of a Compose file that runs as a process.
struct Service {
    process: Manyflow,
    /// The object `started`.
    started: Value,
}

/// Starts a service of a Compose file on free ports of loopback, with folders of this machine.
/// `others` are the services that it names, each with the key of its object `started` that has the
/// address for this one.
fn start_service(
    compose: &Yaml,
    name: &str,
    mounts: &[(&str, PathBuf)],
    others: &[(&str, &Service, &str)],
) -> Service {
    let words = list(&compose["services"][name]["command"]).into_iter();
    let local = |word: &str| match word.strip_prefix("0.0.0.0:") {
        Some(_) => "127.0.0.1:0".to_owned(),
        None => on_this_machine(&named_by_address(word, others), mounts),
    };
    let words: Vec<String> = words.map(local).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut command = manyflow(&words);
    command.arg("--json");
    let mut process = Manyflow::start(command);
    let started = process.wait_for(|line| {
        let event: Value = serde_json::from_str(line).unwrap();
        (event["event"] == "started").then_some(event)
    });
    Service { process, started }
}

/// Replaces `a=a:4747` by `a=ADDRESS`.
fn named_by_address(word: &str, others: &[(&str, &Service, &str)]) -> String {
    let found = others.iter().find_map(|(name, service, key)| {
        let rest = word.strip_prefix(&format!("{name}={name}:"))?;
        assert!(rest.parse::<u16>().is_ok(), "{word}");
        Some(format!("{name}={}", service.started[key].as_str().unwrap()))
    });
    found.unwrap_or_else(|| word.to_owned())
}

#[test]
fn the_daemons_of_the_compose_file_carry_messages_from_end_to_end() {
    let compose = documents("daemons.yaml").remove(0);
    let a = start_service(&compose, "a", &[], &[]);
    let b = start_service(&compose, "b", &[], &[("a", &a, "daemons")]);
    let c = start_service(&compose, "c", &[], &[("b", &b, "daemons")]);
    let clients = |service: &Service| service.started["clients"].as_str().unwrap().to_owned();
    let (from, to) = (clients(&a), clients(&c));
    let sub = manyflow(&["sub", "news.>", "--count", "1", "--json", "--server", &to]);
    let mut sub = Manyflow::start(sub);
    sub.wait_for(|line| line.contains("\"joined\"").then_some(()));
    // Until the daemons know of the member, messages of the other end have no receiver.
    let words = [
        "pub",
        "news.sport",
        "three to one",
        "--rate",
        "20",
        "--count",
        "100000",
        "--server",
        &from,
    ];
    let publisher = Manyflow::start(manyflow(&words));
    sub.wait_for(|line| line.contains("three to one").then_some(()));
    publisher.signal(Signal::SIGKILL);
    sub.finish().succeeded("sub");
    for service in [c, b, a] {
        service.process.signal(Signal::SIGKILL);
    }
}

#[test]
fn the_store_of_the_compose_file_keeps_a_file_while_a_member_is_killed() {
    let compose = documents("store.yaml").remove(0);
    let home = model();
    let members = ["one", "two", "three"].map(|name| {
        let words = list(&compose["services"][name]["command"]);
        let folder = value(&words, "--dir");
        let volume = format!("{name}:{folder}");
        assert_eq!(
            list(&compose["services"][name]["volumes"]),
            [volume.as_str()]
        );
        let mounts = [(folder, home.path().join(name))];
        start_service(&compose, name, &mounts, &[])
    });
    let [one, two, three] = &members;
    let named = members.each_ref().map(|member| {
        let address = member.started["listen"].as_str().unwrap();
        format!("--member={address}")
    });
    let named = named.each_ref().map(String::as_str);
    let file = home.path().join("model/weights");
    let put = ["put", text(&file), "--chunk", "10kB"];
    run(&[&put[..], &named].concat()).succeeded("put");
    two.process.signal(Signal::SIGKILL);
    let copy = home.path().join("copy");
    let get = ["get", "weights", "--output", text(&copy)];
    run(&[&get[..], &named].concat()).succeeded("get");
    assert!(fs::read(&file).unwrap() == fs::read(&copy).unwrap());
    for service in [one, three] {
        service.process.signal(Signal::SIGKILL);
    }
}
