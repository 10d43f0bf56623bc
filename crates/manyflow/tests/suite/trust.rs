//! Keys, signatures and trusted keys on the command line. Everything runs on loopback.

use crate::common;

use std::path::Path;

use common::{Ended, Manyflow, assert_same, manyflow, run, write_random};
use serde_json::Value;
use tempfile::TempDir;

/// A folder with one file to send, `files/file`, and the keys `a.key` and `b.key`.
fn stage() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    write_random(&folder.path().join("files/file"), 20_000, 1);
    for key in ["a.key", "b.key"] {
        run(&["keygen", &path(&folder, key)]).succeeded(key);
    }
    folder
}

fn path(folder: &TempDir, name: &str) -> String {
    folder.path().join(name).to_str().unwrap().to_owned()
}

/// Starts a sender of `files` on loopback; returns it with its URL.
fn send(folder: &TempDir, arguments: &[&str]) -> (Manyflow, String) {
    // Without a rate, it sends at that of the loopback interface.
    let to = [
        ["--listen", "127.0.0.1:0"],
        ["--publish", "127.0.0.1:0"],
        ["--rate", "5Mbit/s"],
    ]
    .concat();
    let files = path(folder, "files");
    let mut sender = Manyflow::start(manyflow(
        &[&["send", files.as_str()][..], &to, arguments].concat(),
    ));
    let url = sender.url();
    (sender, url)
}

fn recv(folder: &TempDir, url: &str, arguments: &[&str]) -> Ended {
    let output = path(folder, "output");
    run(&[
        &["recv", url, "--output", &output, "--overwrite"],
        arguments,
    ]
    .concat())
}

#[track_caller]
fn assert_fails(ended: &Ended, code: i32, parts: &[&str]) {
    assert_eq!(ended.code(), code, "{ended:?}");
    assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
    for part in parts {
        assert!(ended.stderr.contains(part), "no {part:?} in {ended:?}");
    }
}

#[test]
fn keygen_prints_the_public_key_and_replaces_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let key = path(&folder, "builds.key");
    let made = run(&["keygen", &key]).succeeded("keygen");
    assert!(made.stdout.starts_with("ed25519:"), "{made:?}");
    assert_eq!(made.stdout.trim_end().len(), "ed25519:".len() + 44);
    assert!(Path::new(&format!("{key}.pub")).exists());
    let again = run(&["keygen", &key]);
    assert_fails(&again, 1, &["builds.key", "never replaced"]);
    let made = run(&["keygen", &path(&folder, "other.key"), "--json"]).succeeded("json");
    let event: Value = serde_json::from_str(&made.stdout).unwrap();
    assert!(
        event["public_key"]
            .as_str()
            .unwrap()
            .starts_with("ed25519:")
    );
}

#[test]
fn a_receiver_accepts_only_sessions_of_the_keys_that_it_trusts() {
    let folder = stage();
    let (a, b) = (path(&folder, "a.key.pub"), path(&folder, "b.key.pub"));
    let (_sender, url) = send(&folder, &["--sign", &path(&folder, "a.key")]);
    let output = folder.path().join("output/files");

    let received = recv(&folder, &url, &["--trust", &b, "--trust", &a]).succeeded("trusted");
    let signer = received.stdout.lines().next().unwrap();
    let (_, signer) = signer.split_once("signed by ").unwrap();
    let (key, date) = signer.split_once(", written on ").unwrap();
    assert!(
        key.starts_with("ed25519:") && date.ends_with(" GMT"),
        "{received:?}"
    );
    assert_same(&folder.path().join("files"), &output, "trusted");
    recv(&folder, &url, &["--trust", key]).succeeded("the key as text");
    recv(&folder, &url, &[]).succeeded("any key");

    assert_fails(
        &recv(&folder, &url, &["--trust", &b]),
        2,
        &[key, "only ed25519:"],
    );
}

#[test]
fn a_session_without_a_signature_is_not_trusted() {
    let folder = stage();
    let (_sender, url) = send(&folder, &[]);
    let trusted = path(&folder, "a.key.pub");
    let refused = recv(&folder, &url, &["--trust", &trusted]);
    assert_fails(&refused, 2, &["has no signature", "ed25519:"]);
    let received = recv(&folder, &url, &["--json"]).succeeded("no trust");
    let session: Value = serde_json::from_str(received.stdout.lines().next().unwrap()).unwrap();
    assert_eq!(session["event"], "session");
    assert!(session["signer"].is_null() && session["written"].as_u64() > Some(1_700_000_000));
}

#[test]
fn a_description_that_was_changed_is_refused_without_trusted_keys_too() {
    let folder = stage();
    let description = path(&folder, "session.sdp");
    let key = path(&folder, "a.key");
    let (_sender, _) = send(&folder, &["--sign", &key, "--session", &description]);
    let text = std::fs::read_to_string(&description).unwrap();
    std::fs::write(&description, text.replace("\ns=", "\ns=x")).unwrap();
    assert_fails(
        &recv(&folder, &description, &[]),
        2,
        &["is not what ed25519:", "changed"],
    );
}

#[test]
fn the_wrong_key_is_reported() {
    let folder = stage();
    let (private, public) = (path(&folder, "a.key"), path(&folder, "a.key.pub"));
    let file = path(&folder, "files/file");
    let ended = run(&["send", &file, "--listen", "127.0.0.1:0", "--sign", &public]);
    assert_fails(&ended, 2, &["a.key.pub", "manyflow keygen"]);
    for trusted in [private.as_str(), "no/such/file", "ed25519:AAAA"] {
        let ended = run(&["recv", "session.sdp", "--trust", trusted]);
        assert_fails(&ended, 2, &["--trust", trusted]);
    }
}

#[test]
fn a_session_is_published_over_https() {
    let folder = stage();
    let name = vec!["127.0.0.1".to_owned()];
    let made = rcgen::generate_simple_self_signed(name).unwrap();
    let (certificate, key) = (path(&folder, "server.crt"), path(&folder, "server.key"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let (_sender, url) = send(&folder, &["--tls-cert", &certificate, "--tls-key", &key]);
    assert!(url.starts_with("https://127.0.0.1:"), "{url}");
    recv(&folder, &url, &["--ca", &certificate]).succeeded("private authority");

    // Authorities that are installed are trusted without an option.
    let output = path(&folder, "output");
    let mut command = manyflow(&["recv", &url, "--output", &output, "--overwrite"]);
    command.env("SSL_CERT_FILE", &certificate);
    Manyflow::start(command).finish().succeeded("platform");

    assert_fails(&recv(&folder, &url, &[]), 1, &[&url, "--ca FILE"]);
    assert_fails(&recv(&folder, &url, &["--ca", &key]), 2, &[&key, "PEM"]);
    let plain = url.replace("https", "http");
    assert_fails(&recv(&folder, &plain, &[]), 1, &["use https://"]);

    let arguments = [
        "--publish",
        "127.0.0.1:0",
        "--tls-cert",
        &key,
        "--tls-key",
        &key,
    ];
    let ended = run(&[&["send", &key, "--listen", "127.0.0.1:0"], &arguments[..]].concat());
    assert_fails(&ended, 2, &[&key, "certificates in PEM"]);
}

#[test]
fn hidden_files_are_stored_only_if_the_table_of_files_is_authenticated() {
    let folder = stage();
    write_random(&folder.path().join("files/.profile"), 100, 2);
    let (with_digest, without) = (path(&folder, "with.sdp"), path(&folder, "without.sdp"));
    let (_sender, _) = send(&folder, &["--session", &with_digest]);
    let lines = std::fs::read_to_string(&with_digest).unwrap();
    let lines = lines.lines().filter(|line| !line.contains("a=fdt-digest:"));
    std::fs::write(&without, lines.collect::<Vec<_>>().join("\n")).unwrap();
    let hidden = folder.path().join("output/files/.profile");

    let received = recv(&folder, &without, &["--allow-unverified"]);
    assert_eq!(received.code(), 1, "{received:?}");
    let named = received.stderr.contains("files/.profile");
    assert!(
        named && received.stderr.contains("starts with a dot"),
        "{received:?}"
    );
    assert!(!hidden.exists());
    assert!(folder.path().join("output/files/file").exists());
    recv(&folder, &with_digest, &["--allow-unverified"]).succeeded("authenticated");
    assert!(hidden.exists());
}

/// Writes a group key, as `openssl rand -base64 32` does.
fn write_group_key(folder: &TempDir, name: &str, digit: &str) -> String {
    let key = path(folder, name);
    std::fs::write(&key, format!("{}=\n", digit.repeat(43))).unwrap();
    key
}

#[test]
fn members_of_a_group_receive_its_session() {
    let folder = stage();
    let own = write_group_key(&folder, "own.key", "A");
    let other = write_group_key(&folder, "other.key", "E");
    let (_sender, url) = send(&folder, &["--group-key", &own]);
    recv(&folder, &url, &["--group-key", &own]).succeeded("member");
    let received = recv(&folder, &url, &[]).succeeded("without the key");
    assert!(received.stderr.contains("--group-key"), "{received:?}");
    let received = recv(&folder, &url, &["--group-key", &other, "--patience", "5s"]);
    assert_eq!(received.code(), 3, "{received:?}");
    assert!(received.stderr.contains("no valid MAC"), "{received:?}");
}

#[test]
fn only_members_of_a_group_receive_its_encrypted_session() {
    let folder = stage();
    let own = write_group_key(&folder, "own.key", "A");
    let other = write_group_key(&folder, "other.key", "E");
    let description = path(&folder, "session.sdp");
    let encrypted = ["--group-key", &own, "--encrypt", "--session", &description];
    let (_sender, url) = send(&folder, &encrypted);
    let text = std::fs::read_to_string(&description).unwrap();
    assert!(text.contains("a=ext-auth:0 chacha20-poly1305 "), "{text}");

    let parts = ["packets are encrypted", "--group-key"];
    assert_fails(&recv(&folder, &url, &[]), 2, &parts);
    let received = recv(&folder, &url, &["--group-key", &other, "--patience", "5s"]);
    assert_eq!(received.code(), 3, "{received:?}");
    assert!(received.stderr.contains("no valid MAC"), "{received:?}");
    assert!(!folder.path().join("output/files").exists());

    let resume = ["send", &path(&folder, "files"), "--resume", &description];
    let resumed = run(&[&resume[..], &["--listen", "127.0.0.1:0"]].concat());
    assert_fails(
        &resumed,
        2,
        &["session.sdp", "group key", "without --resume"],
    );

    recv(&folder, &url, &["--group-key", &own]).succeeded("member");
    let output = folder.path().join("output/files");
    assert_same(&folder.path().join("files"), &output, "member");
}

#[test]
fn the_description_of_an_encrypted_session_has_no_name_of_a_file() {
    let folder = stage();
    let own = write_group_key(&folder, "own.key", "A");
    let (file, description) = (path(&folder, "distinctive"), path(&folder, "session.sdp"));
    write_random(Path::new(&file), 1_000, 1);
    let arguments = ["send", &file, "--listen", "127.0.0.1:0", "--for", "1s"];
    let group = ["--session", &description, "--group-key", &own, "--encrypt"];
    for (count, has_name) in [(group.len(), false), (group.len() - 1, true)] {
        run(&[&arguments[..], &group[..count]].concat()).succeeded("send");
        let text = std::fs::read_to_string(&description).unwrap();
        assert_eq!(text.contains("distinctive"), has_name, "{text}");
    }
}

/// Somebody may change a description that is not signed.
#[test]
fn a_changed_description_of_an_encrypted_session_stores_nothing() {
    let folder = stage();
    let own = write_group_key(&folder, "own.key", "A");
    let description = path(&folder, "session.sdp");
    let encrypted = ["--group-key", &own, "--encrypt", "--session", &description];
    let (_sender, _) = send(&folder, &encrypted);
    let text = std::fs::read_to_string(&description).unwrap();
    let is_kept = |line: &&str| !line.starts_with("a=ext-auth:");
    let stripped: Vec<_> = text.lines().filter(is_kept).collect();
    let (without, mac) = (path(&folder, "without.sdp"), path(&folder, "mac.sdp"));
    std::fs::write(&without, stripped.join("\n")).unwrap();
    let line = text.lines().find(|line| !is_kept(line)).unwrap();
    std::fs::write(&mac, text.replace(line, "a=ext-auth:0 hmac-sha-256-128")).unwrap();

    let parts = ["have no MAC", "without --group-key"];
    assert_fails(&recv(&folder, &without, &["--group-key", &own]), 2, &parts);
    let received = recv(&folder, &without, &["--patience", "5s"]);
    assert_eq!(received.code(), 1, "{received:?}");
    let received = recv(&folder, &mac, &["--group-key", &own, "--patience", "5s"]);
    assert_eq!(received.code(), 3, "{received:?}");
    assert!(received.stderr.contains("no valid MAC"), "{received:?}");
    let received = recv(&folder, &mac, &["--patience", "5s"]);
    assert_eq!(received.code(), 1, "{received:?}");
    assert!(!folder.path().join("output/files").exists());
}

#[test]
fn a_group_key_that_cannot_be_used_is_reported() {
    let folder = stage();
    let key = write_group_key(&folder, "group.key", "A");
    let (_sender, url) = send(&folder, &[]);
    let parts = ["have no MAC", "without --group-key"];
    assert_fails(&recv(&folder, &url, &["--group-key", &key]), 2, &parts);
    let short = path(&folder, "short.key");
    std::fs::write(&short, "AAAA").unwrap();
    let parts = ["short.key", "openssl rand -base64 32"];
    assert_fails(&recv(&folder, &url, &["--group-key", &short]), 2, &parts);
    let file = path(&folder, "files/file");
    let to = ["send", &file, "--listen", "127.0.0.1:0", "--group-key"];
    assert_fails(&run(&[&to[..], &[&short]].concat()), 2, &parts);
    let narrow = ["send", &file, "--packet", "128", "--group-key", &key];
    let ended = run(&[&narrow[..], &["--listen", "127.0.0.1:0", "--for", "1s"]].concat());
    ended.succeeded("the shortest packets");
    let ended = run(&["send", &file, "--listen", "127.0.0.1:0", "--encrypt"]);
    assert_eq!(ended.code(), 2, "{ended:?}");
    assert!(ended.stderr.contains("--group-key"), "{ended:?}");
}
