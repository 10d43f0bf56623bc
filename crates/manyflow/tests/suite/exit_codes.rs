//! Exit codes of roles whose session description cannot be loaded. Services are started again after
//! code 1 and not after code 2, so code 2 is for what remains wrong.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener};
use std::thread;

use crate::common::{Ended, Manyflow, folder_with_file, manyflow, run, text};

/// The roles that load a description, which stands behind these words.
const ROLES: &[&str] = &[
    "recv",
    "stream recv",
    "relay --listen 127.0.0.1:0 --session",
    "send Cargo.toml --listen 127.0.0.1:0 --resume",
];

fn load(role: &str, session: &str) -> Ended {
    let words: Vec<_> = role.split(' ').chain([session]).collect();
    run(&words)
}

/// Starts a server that gives this answer to each client, and returns its URL. The thread ends with
/// the test's process.
fn serve(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/session.sdp", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 4096];
            // The client may be gone.
            let _ = stream.read(&mut request);
            let _ = stream.write_all(answer.as_bytes());
            let _ = stream.shutdown(Shutdown::Both);
        }
    });
    url
}

#[test]
fn a_server_that_fails_at_the_moment_has_exit_code_1() {
    for answer in [
        "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\nv=0\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Enco",
        "",
    ] {
        let url = serve(answer);
        for role in ROLES {
            let ended = load(role, &url);
            assert_eq!(ended.code(), 1, "{role}: {answer:?}: {ended:?}");
            assert!(ended.stderr.contains("127.0.0.1:"), "{role}: {ended:?}");
        }
    }
}

#[test]
fn a_server_that_nobody_finds_has_exit_code_1() {
    let closed = crate::common::own_address();
    for url in [
        format!("http://{closed}/session.sdp"),
        "http://no-such-host.invalid/session.sdp".to_owned(),
        "http://[fe80::1%nosuch0]/session.sdp".to_owned(),
    ] {
        for role in ROLES {
            let ended = load(role, &url);
            assert_eq!(ended.code(), 1, "{role} {url}: {ended:?}");
        }
    }
}

#[test]
fn an_answer_that_remains_wrong_has_exit_code_2() {
    for answer in [
        "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 301 Moved\r\nLocation: /\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n<html/>",
    ] {
        let url = serve(answer);
        for role in ROLES {
            let ended = load(role, &url);
            assert_eq!(ended.code(), 2, "{role}: {answer:?}: {ended:?}");
        }
    }
}

#[test]
fn a_url_or_a_file_that_is_wrong_has_exit_code_2() {
    let folder = folder_with_file(10);
    let wrong = folder.path().join("file");
    for session in [
        "http://127.1/session.sdp",
        "http://127.0.0.1:99999/session.sdp",
        "ftp://127.0.0.1/session.sdp",
        "no-such-file.sdp",
        text(&wrong),
        text(folder.path()),
    ] {
        for role in ROLES {
            let ended = load(role, session);
            assert_eq!(ended.code(), 2, "{role} {session}: {ended:?}");
        }
    }
}

#[test]
fn a_file_that_its_sender_has_not_filled_yet_has_exit_code_1() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("session.sdp");
    std::fs::write(&empty, "").unwrap();
    for role in ROLES {
        let ended = load(role, text(&empty));
        assert_eq!(ended.code(), 1, "{role}: {ended:?}");
        assert!(ended.stderr.contains("is empty"), "{role}: {ended:?}");
    }
}

#[test]
fn keys_and_secrets_that_cannot_be_read_have_exit_code_2() {
    let folder = folder_with_file(10);
    for words in [
        "send file --listen 127.0.0.1:0 --sign no.key",
        "send file --listen 127.0.0.1:0 --group-key no.key",
        "send file --listen 127.0.0.1:0 --publish 127.0.0.1:0 --tls-cert no.crt --tls-key no.key",
        "stream send --pattern --listen 127.0.0.1:0 --sign no.key",
        "stream send --pattern --listen 127.0.0.1:0 --key no.key",
        "pub a b --user u --password-file no.password",
        "sub a --token-file no.token",
        "pub a b --ca no.crt",
        "recv https://127.0.0.1/session.sdp --ca no.crt",
        "recv file --trust no.pub",
    ] {
        let words: Vec<_> = words.split(' ').collect();
        let mut command = manyflow(&words);
        command.current_dir(folder.path());
        let ended = Manyflow::start(command).finish();
        assert_eq!(ended.code(), 2, "{words:?}: {ended:?}");
        assert!(ended.stderr.contains("no."), "{words:?}: {ended:?}");
    }
}

#[test]
fn a_daemon_whose_certificate_is_not_its_own_has_exit_code_2() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let certificates = path("certificates");
    run(&[
        "keygen",
        "--certificates",
        text(&certificates),
        "--daemon",
        "a",
    ])
    .succeeded("keygen");
    for (identity, reason) in [
        ("name = \"b\"", "is not one of the daemon b"),
        (
            "name = \"a\"\nid = 17",
            "--daemon a=id-17.manyflow.internal",
        ),
    ] {
        let file = format!(
            "{identity}\nlisten = \"127.0.0.1:0\"\n[tls]\nca = \"certificates/ca.crt\"\n\
             certificate = \"certificates/a.crt\"\nkey = \"certificates/a.key\"\n"
        );
        std::fs::write(path("daemon.toml"), file).unwrap();
        let ended = run(&["daemon", text(&path("daemon.toml"))]);
        assert_eq!(ended.code(), 2, "{ended:?}");
        assert!(ended.stderr.contains(reason), "{ended:?}");
    }
}

#[test]
fn a_limit_of_the_length_of_files_fails_a_write_and_does_not_end_the_process_by_a_signal() {
    let folder = tempfile::tempdir().unwrap();
    let script = "ulimit -f 1; exec \"$0\" sim --new bottleneck mine.toml";
    let ended = std::process::Command::new("sh")
        .args(["-c", script])
        .arg(manyflow(&[]).get_program())
        .current_dir(folder.path())
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{error}");
    assert!(
        error.contains("cannot write mine.toml: make room"),
        "{error}"
    );
    // The same command works when there is room.
    assert!(!folder.path().join("mine.toml").exists());
}

#[test]
fn a_limit_of_open_files_is_named_with_its_remedy() {
    let script = "ulimit -n 8; exec \"$0\" figure --list";
    let ended = std::process::Command::new("sh")
        .args(["-c", script])
        .arg(manyflow(&[]).get_program())
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{error}");
    assert!(error.contains("Too many open files"), "{error}");
    assert!(error.contains("`ulimit -n 4096`"), "{error}");
}
