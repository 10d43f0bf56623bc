//! `manyflow check-order`: traces that keep what the order promises, and traces that do not.

use std::fs;
use std::path::PathBuf;

use crate::common::{Ended, run, text};
use tempfile::TempDir;

/// Two members in one view: each sees the messages of both in the same order. The views are as
/// daemons publish them, with the key `event`.
pub(crate) const ADA: &str = r##"{"event":"view","self":"#ada#a","group":"g","view":"4-00c0ffee00c0ffee.0","members":["#ada#a","#eve#b"],"cause":"network","who":null,"stayed":["#ada#a"]}
{"event":"sent","member":"#ada#a","message":1,"service":"agreed","groups":["g"]}
{"event":"delivered","member":"#ada#a","message":1}
{"event":"delivered","member":"#ada#a","message":2}
{"event":"transitional","self":"#ada#a","group":"g","transitional":true}
{"event":"view","self":"#ada#a","group":"g","view":"6-00c0ffee00c0ffee.0","members":["#ada#a"],"cause":"network","who":null,"stayed":["#ada#a"]}
{"event":"left","member":"#ada#a","group":"g"}
{"event":"end","member":"#ada#a","how":"quiet"}
"##;
const EVE: &str = r##"{"event":"view","self":"#eve#b","group":"g","view":"4-00c0ffee00c0ffee.0","members":["#ada#a","#eve#b"],"cause":"join","who":"#eve#b","stayed":["#ada#a"]}

{"event":"sent","member":"#eve#b","message":2,"service":"agreed","groups":["g"],"self_discard":false}
{"event":"delivered","member":"#eve#b","message":1}
{"event":"delivered","member":"#eve#b","message":2}
"##;

struct Traces(TempDir);

impl Traces {
    fn new(ada: &str, eve: &str) -> Traces {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("ada.jsonl"), ada).unwrap();
        fs::write(folder.path().join("eve.jsonl"), eve).unwrap();
        Traces(folder)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn check(&self) -> Ended {
        let (ada, eve) = (self.file("ada.jsonl"), self.file("eve.jsonl"));
        run(&["check-order", text(&ada), text(&eve)])
    }
}

#[test]
fn traces_that_keep_every_promise_pass() {
    let ended = Traces::new(ADA, EVE).check().succeeded("check");
    let expected = "2 members, 2 messages, 11 events: 0 violations\n";
    assert_eq!(ended.stdout, expected);
}

#[test]
fn all_members_can_be_in_one_file() {
    let both = Traces::new(&format!("{EVE}{ADA}"), "");
    let ended = both.check().succeeded("check");
    assert!(
        ended.stdout.starts_with("2 members, 2 messages"),
        "{ended:?}"
    );
}

#[test]
fn a_broken_promise_names_the_lines_that_show_it() {
    let swapped: Vec<&str> = EVE.lines().collect();
    let swapped = [swapped[0], swapped[2], swapped[4], swapped[3]].join("\n");
    let ended = Traces::new(ADA, &swapped).check();
    assert_eq!(ended.code(), 1, "{ended:?}");
    let order = ended
        .stdout
        .lines()
        .find(|line| line.starts_with("order: "));
    let order = order.unwrap_or_else(|| panic!("{ended:?}"));
    for place in [
        "ada.jsonl:3 (#ada#a)",
        "ada.jsonl:4 (#ada#a)",
        "eve.jsonl:3 (#eve#b)",
        "eve.jsonl:4 (#eve#b)",
    ] {
        assert!(order.contains(place), "{place}: {order}");
    }
    assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
    assert!(ended.stderr.contains("of what the order promises"));
}

#[test]
fn violations_are_objects_too() {
    let traces = Traces::new(ADA, "");
    let ended = run(&["check-order", text(&traces.file("ada.jsonl")), "--json"]);
    assert_eq!(ended.code(), 1, "{ended:?}");
    let objects = manyflow_testing::command_lines::objects(&ended.stdout);
    assert_eq!(objects[0]["event"], "violation", "{ended:?}");
    assert_eq!(objects[0]["property"], "integrity");
    assert_eq!(objects[0]["events"][0]["line"], 4);
}

#[test]
fn only_a_member_that_remained_has_to_have_seen_everything() {
    let ada: Vec<&str> = ADA.lines().collect();
    let missing = ada[..2].join("\n");
    Traces::new(&missing, "").check().succeeded("gone");
    let quiet = format!("{missing}\n{}\n", ada[7]);
    let ended = Traces::new(&quiet, "").check();
    assert_eq!(ended.code(), 1, "{ended:?}");
    assert!(ended.stdout.starts_with("self delivery: message 1"));
}

#[test]
fn a_line_that_is_no_event_is_named() {
    let view = ADA.lines().next().unwrap();
    let sent = EVE.lines().nth(2).unwrap();
    for (eve, parts) in [
        ("{}", &["eve.jsonl:1: ", "event"][..]),
        ("\n[", &["eve.jsonl:2: "]),
        (
            &sent.replace("agreed", "best"),
            &[":1: ", "\"best\" is no service", "safe"],
        ),
        (&sent.replace("message", "number"), &[":1: ", "number"]),
        (&view.replace("4-", ""), &[":1: ", "no number of a view"]),
        (
            &format!("{sent}\n{sent}"),
            &["eve.jsonl:2: ", "message 2", "eve.jsonl:1"],
        ),
        (
            ADA.lines().nth(2).unwrap(),
            &["eve.jsonl:1: ", "#ada#a has ended", "ada.jsonl:8"],
        ),
    ] {
        let ended = Traces::new(ADA, eve).check();
        assert_eq!(ended.code(), 2, "{eve}: {ended:?}");
        assert_eq!(ended.stderr.lines().count(), 1, "{eve}: {ended:?}");
        for part in parts {
            assert!(ended.stderr.contains(part), "{eve}: {part}: {ended:?}");
        }
    }
}
