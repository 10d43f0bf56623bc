//! Keys and signed descriptions: verification fails after any change of the text, and OpenSSL reads
//! and writes the same key files.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use manyflow_files::load::load;
use manyflow_files::sdp::SessionDescription;
use manyflow_net::description::DescriptionError;
use manyflow_net::description::load::{LoadError, Trust};
use manyflow_net::keys::{KeyError, PublicKey, SigningKey};
use proptest::prelude::*;
use tempfile::TempDir;

const DESCRIPTION: &str = "v=0\r
o=- 7 3976214400 IN IP4 192.0.2.1\r
s=nightly build\r
t=0 0\r
a=source-filter: incl IN IP4 * 192.0.2.1\r
a=flute-tsi:7\r
a=flute-ch:46\r
a=FEC-declaration:0 encoding-id=6\r
a=webrc:N=15;Q=30;TSD=10;BCR=1;P=0.75;LENP=1400;SR=2000000;constant=1;CCI=short;EL=0.5\r
a=fdt-digest:sha-256 a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5\r
m=application 5000 FLUTE/UDP *\r
c=IN IP4 232.1.2.0/1/46\r
a=FEC:0\r
";

fn key() -> SigningKey {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    SigningKey::generate(&path).unwrap();
    SigningKey::read(&path).unwrap()
}

fn description() -> SessionDescription {
    SessionDescription::parse(DESCRIPTION).unwrap()
}

fn signed(key: &SigningKey) -> String {
    description().to_signed_sdp(key).unwrap()
}

fn error(text: &str) -> String {
    let error = SessionDescription::parse(text).unwrap_err().to_string();
    assert!(!error.contains('\n') && error.len() < 400, "{error}");
    error
}

#[test]
fn a_signed_description_names_its_signer() {
    let key = key();
    let text = signed(&key);
    let line = text.strip_prefix(DESCRIPTION).unwrap();
    assert!(line.starts_with(&format!("a=signature:{} ", key.public())));
    let (parsed, signer) = SessionDescription::parse_signed(&text).unwrap();
    assert_eq!((parsed, signer), (description(), Some(key.public())));
    let (_, nobody) = SessionDescription::parse_signed(DESCRIPTION).unwrap();
    assert_eq!(nobody, None);
}

#[test]
fn the_ends_of_lines_may_be_encoded_in_another_way() {
    let key = key();
    let text = signed(&key).replace('\r', "");
    for text in [text.as_str(), text.trim_end()] {
        let (_, signer) = SessionDescription::parse_signed(text).unwrap();
        assert_eq!(signer, Some(key.public()), "{text:?}");
    }
}

#[test]
fn every_changed_added_removed_or_moved_line_is_noticed() {
    let text = signed(&key());
    let lines: Vec<&str> = text.lines().collect();
    let forged = |lines: &[&str]| {
        let error = error(&lines.join("\n"));
        assert!(error.contains("is not what ed25519:"), "{error}");
    };
    // The first line has to be `v=0`, and the signature the last one.
    for place in 1..lines.len() - 1 {
        let (before, rest) = lines.split_at(place);
        forged(&[before, &rest[1..]].concat());
        forged(&[before, &["a=x:1"], rest].concat());
        forged(&[before, &[""], rest].concat());
        forged(&[before, &rest[..1], rest].concat());
        let changed = format!("{} ", rest[0]);
        forged(&[before, &[changed.as_str()], &rest[1..]].concat());
    }
    let mut swapped = lines.clone();
    swapped.swap(5, 6);
    forged(&swapped);
}

#[test]
fn a_line_after_the_signature_and_a_second_signature_are_refused() {
    let text = signed(&key());
    let signature = text.lines().last().unwrap();
    let appended = ["a=x:1\r\n", "\r\n", "m=audio 9 RTP/AVP 0\r\n", signature];
    for line in appended {
        let error = error(&format!("{text}{line}"));
        assert!(error.contains("in the last line"), "{line:?}: {error}");
    }
}

#[test]
fn a_signature_that_cannot_be_read_is_refused() {
    let text = signed(&key());
    let at = text.find("a=signature").unwrap();
    let (_, signature) = text[at..].trim_end().rsplit_once(' ').unwrap();
    let key = key().public();
    for line in [
        "a=signature".to_owned(),
        "a=signature:".to_owned(),
        format!("a=signature:{key}"),
        format!("a=signature:{key} AAAA"),
        format!("a=signature:rsa:AAAA {signature}"),
        format!("a=signature:ed25519:AAAA {signature}"),
        format!("a=signature:{key}  {signature}"),
    ] {
        let error = error(&format!("{DESCRIPTION}{line}\r\n"));
        assert!(error.contains("ed25519:KEY SIGNATURE"), "{line}: {error}");
    }
}

#[test]
fn another_key_cannot_claim_a_signature() {
    let (signer, claimant) = (key().public().to_string(), key().public().to_string());
    let text = signed(&key());
    let at = text.find("ed25519:").unwrap();
    let own = &text[at..at + signer.len()];
    let error = error(&text.replace(own, &claimant));
    assert!(error.contains(&claimant), "{error}");
}

#[tokio::test]
async fn only_descriptions_of_trusted_keys_are_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let (signer, other) = (key(), key());
    let signed_path = folder.path().join("signed.sdp");
    let plain_path = folder.path().join("plain.sdp");
    std::fs::write(&signed_path, signed(&signer)).unwrap();
    std::fs::write(&plain_path, DESCRIPTION).unwrap();
    let load = async |path: &Path, signers: &[PublicKey]| {
        let trust = Trust {
            signers: signers.to_vec(),
            ..Trust::default()
        };
        load(path.to_str().unwrap(), &trust).await
    };

    for trusted in [
        &[][..],
        &[signer.public()],
        &[other.public(), signer.public()],
    ] {
        let loaded = load(&signed_path, trusted).await.unwrap();
        assert_eq!(loaded.signer, Some(signer.public()));
        assert_eq!(loaded.description, description());
    }
    assert_eq!(load(&plain_path, &[]).await.unwrap().signer, None);

    let error = load(&signed_path, &[other.public()]).await.unwrap_err();
    assert!(matches!(error, LoadError::Untrusted { .. }), "{error}");
    for key in [signer.public(), other.public()] {
        assert!(error.to_string().contains(&key.to_string()), "{error}");
    }
    let error = load(&plain_path, &[signer.public()]).await.unwrap_err();
    assert!(error.to_string().contains("has no signature"), "{error}");

    // Without trusted keys, too, a wrong signature is an error.
    std::fs::write(&signed_path, signed(&signer).replace("nightly", "weekly")).unwrap();
    let error = load(&signed_path, &[]).await.unwrap_err();
    let forged = matches!(error, LoadError::Description(DescriptionError::Forged(_)));
    assert!(forged, "{error}");
}

#[test]
fn a_new_key_is_private_and_replaces_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.key");
    let public = SigningKey::generate(&path).unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(SigningKey::read(&path).unwrap().public(), public);
    let public_path = folder.path().join("a.key.pub");
    assert_eq!(PublicKey::read(&public_path).unwrap(), public);
    assert_eq!(public.to_string().parse::<PublicKey>().unwrap(), public);

    let before = std::fs::read(&path).unwrap();
    let error = SigningKey::generate(&path).unwrap_err();
    assert!(matches!(error, KeyError::Exists(_)), "{error}");
    std::fs::rename(&path, folder.path().join("b.key")).unwrap();
    let error = SigningKey::generate(&path).unwrap_err();
    assert!(error.to_string().contains("a.key.pub"), "{error}");
    assert!(!path.exists(), "half a pair of keys is left");
    assert_eq!(std::fs::read(folder.path().join("b.key")).unwrap(), before);
}

#[test]
fn the_wrong_file_is_named_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.key");
    SigningKey::generate(&path).unwrap();
    let error = PublicKey::read(&path).unwrap_err().to_string();
    assert!(error.contains("a.key") && error.contains(".pub"), "{error}");
    let error = SigningKey::read(&folder.path().join("a.key.pub")).unwrap_err();
    assert!(error.to_string().contains("manyflow keygen"), "{error}");
    let error = PublicKey::read(&folder.path().join("none")).unwrap_err();
    assert!(matches!(error, KeyError::Unreadable { .. }), "{error}");
    for text in ["", "ed25519:", "ed25519:AAAA", "AAAA"] {
        let error = text.parse::<PublicKey>().unwrap_err();
        assert!(error.to_string().contains("keygen"), "{error}");
    }
}

/// Runs `openssl` in `folder`; returns its output, or `None` if it is not installed.
fn openssl(folder: &TempDir, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("openssl");
    let Ok(output) = command.args(arguments).current_dir(folder.path()).output() else {
        println!("skipped: openssl is not installed");
        return None;
    };
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn openssl_reads_our_keys_and_verifies_our_signatures() {
    let folder = tempfile::tempdir().unwrap();
    SigningKey::generate(&folder.path().join("our.key")).unwrap();
    let Some(text) = openssl(&folder, &["pkey", "-in", "our.key", "-text", "-noout"]) else {
        return;
    };
    assert!(text.contains("ED25519 Private-Key"), "{text}");
    let public = openssl(&folder, &["pkey", "-in", "our.key", "-pubout"]).unwrap();
    let written = std::fs::read_to_string(folder.path().join("our.key.pub")).unwrap();
    assert_eq!(public, written);

    let key = SigningKey::read(&folder.path().join("our.key")).unwrap();
    std::fs::write(folder.path().join("signed"), "text").unwrap();
    std::fs::write(folder.path().join("signature"), key.sign(b"text")).unwrap();
    let verify = "pkeyutl -verify -pubin -inkey our.key.pub -rawin -in signed -sigfile signature";
    let arguments: Vec<&str> = verify.split(' ').collect();
    let answer = openssl(&folder, &arguments).unwrap();
    assert!(answer.contains("Verified Successfully"), "{answer}");
}

#[test]
fn keys_of_openssl_sign() {
    let folder = tempfile::tempdir().unwrap();
    let make = "genpkey -algorithm ed25519 -out their.key";
    if openssl(&folder, &make.split(' ').collect::<Vec<_>>()).is_none() {
        return;
    }
    let export = "pkey -in their.key -pubout -out their.pub";
    openssl(&folder, &export.split(' ').collect::<Vec<_>>()).unwrap();
    let key = SigningKey::read(&folder.path().join("their.key")).unwrap();
    let public = PublicKey::read(&folder.path().join("their.pub")).unwrap();
    assert_eq!(key.public(), public);
    let (_, signer) = SessionDescription::parse_signed(&signed(&key)).unwrap();
    assert_eq!(signer, Some(public));

    for make in [
        "genpkey -algorithm ed25519 -aes256 -pass pass:secret -out other.key",
        "genpkey -algorithm ed448 -out other.key",
    ] {
        openssl(&folder, &make.split(' ').collect::<Vec<_>>()).unwrap();
        let error = SigningKey::read(&folder.path().join("other.key")).unwrap_err();
        assert!(error.to_string().contains("without a password"), "{error}");
    }
}

proptest! {
    #[test]
    fn damage_to_a_signed_description_is_noticed(
        place in 0..DESCRIPTION.len(),
        length in 0..20usize,
        new in "[ -~\r\n]{0,20}",
    ) {
        let text = signed(&key());
        let end = (place + length).min(DESCRIPTION.len());
        let damaged = [&text[..place], &new, &text[end..]].concat();
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        if lines(&damaged) != lines(&text) {
            prop_assert!(SessionDescription::parse(&damaged).is_err());
        }
    }
}
