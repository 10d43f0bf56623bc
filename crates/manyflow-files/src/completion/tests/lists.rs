//! Lists of receivers.

use super::*;

fn read(text: &str) -> Result<Vec<Expected>, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hosts.txt");
    std::fs::write(&path, text).unwrap();
    SigningKey::generate(&folder.path().join("a.key")).unwrap();
    read_expected(&path).map_err(|error| error.to_string())
}

#[test]
fn a_list_has_names_and_keys() {
    let key = signing_key().public();
    let text = format!(
        "# room 5\n\n lab-1 \nlab-2 {key} # door\nlab-3\ta.key.pub\n{}\n",
        signing_key().public()
    );
    let list = read(&text).unwrap();
    let names: Vec<_> = list[..3].iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["lab-1", "lab-2", "lab-3"]);
    assert_eq!((list[0].key, list[1].key), (None, Some(key)));
    assert!(list[2].key.is_some());
    // A key is its own name.
    assert_eq!(list[3].key.unwrap().to_string(), list[3].name.as_str());
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_first_name() {
    let list = read("\u{feff}lab-1\r\nlab-2\r\n").unwrap();
    let names: Vec<_> = list.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["lab-1", "lab-2"]);
}

#[test]
fn errors_of_lists_name_the_file_and_the_line() {
    let key = signing_key().public();
    for (text, line, part) in [
        ("a\nb\na", ":3:", "a is in an earlier line"),
        (&format!("a {key}\nb {key}"), ":2:", "earlier line"),
        ("a b.key.pub", ":1:", "b.key.pub"),
        ("a ed25519:short", ":1:", "ed25519:short"),
        ("a a.key.pub more", ":1:", "nothing else"),
        ("käse", ":1:", "ASCII"),
        (&"x".repeat(65), ":1:", "64"),
        ("# nobody\n", "hosts.txt:", "no receiver"),
    ] {
        let error = read(text).unwrap_err();
        assert!(
            error.contains(line) && error.contains(part),
            "{text:?}: {error}"
        );
        assert!(error.contains("hosts.txt"), "{error}");
    }
    let error = read_expected("/nowhere/hosts.txt".as_ref()).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("/nowhere/hosts.txt: cannot be read")
    );
}
