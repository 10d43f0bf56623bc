//! Names from the network with characters that change a terminal or are invisible.

use serde_json::Value;

use crate::common::{Manyflow, PATIENT, manyflow, run, send, write_random};

/// A name whose second character reverses the rest: terminals show `gpj.exe` as `exe.jpg`.
const REVERSED: &str = "a\u{202e}gpj.exe";
const ESCAPED: &str = "a\\u{202e}gpj.exe";

#[test]
fn the_name_of_a_received_file_is_printed_escaped() {
    let folder = tempfile::tempdir().unwrap();
    write_random(&folder.path().join(REVERSED), 1_000, 1);
    let (_sender, url) = send(folder.path(), &[]);
    for json in [false, true] {
        let output = tempfile::tempdir().unwrap();
        let mut command = manyflow(&["recv", &url, "--output"]);
        command.arg(output.path()).args(PATIENT);
        if json {
            command.arg("--json");
        }
        let ended = Manyflow::start(command).finish().succeeded("recv");
        assert!(!ended.stdout.contains('\u{202e}'), "{ended:?}");
        match json {
            false => assert!(ended.stdout.contains(ESCAPED), "{ended:?}"),
            true => {
                let lines = ended.stdout.lines();
                let mut events = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
                let file = events.find(|event| event["event"] == "file").unwrap();
                assert!(file["name"].as_str().unwrap().ends_with(REVERSED), "{file}");
            }
        }
        assert!(std::fs::exists(output.path().join(REVERSED)).unwrap());
    }
}

#[test]
fn a_warning_about_a_name_is_one_line_without_hidden_characters() {
    let folder = tempfile::tempdir().unwrap();
    write_random(&folder.path().join("file"), 1_000, 1);
    let pipe = folder.path().join("p\u{202e}\nipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let (mut sender, _url) = send(folder.path(), &[]);
    sender.wait_for_message("p\\u{202e}\\nipe");
    let messages = sender.messages();
    assert!(!messages.concat().contains('\u{202e}'), "{messages:?}");
    assert!(!messages.concat().contains("FileError"), "{messages:?}");
}

#[test]
fn the_subject_of_a_message_and_an_error_of_a_server_are_printed_escaped() {
    let mut command = manyflow(&["daemon", "--insecure", "--name", "a", "--json"]);
    command.args(["--clients", "127.0.0.1:0"]);
    let mut daemon = Manyflow::start(command);
    let address = daemon.wait_for(|line| {
        let event: Value = serde_json::from_str(line).unwrap();
        Some(event["clients"].as_str()?.to_owned())
    });
    let words = ["sub", ">", "--count", "1", "-v", "--server", &address];
    let mut sub = Manyflow::start(manyflow(&words));
    let ended = loop {
        run(&["pub", REVERSED, "text", "--server", &address]).succeeded("pub");
        match sub.finish_within(std::time::Duration::from_millis(100)) {
            Ok(ended) => break ended.succeeded("sub"),
            Err(running) => sub = running,
        }
    };
    assert_eq!(ended.stdout, format!("{ESCAPED}: text\n"));
}
