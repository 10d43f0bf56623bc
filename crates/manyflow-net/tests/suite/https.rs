//! Session descriptions over HTTPS, on loopback, with certificates that the tests make.

use std::path::PathBuf;
use std::process::Command;

use manyflow_net::description::load::{LoadError, fetch};
use manyflow_net::publish::{DESCRIPTION_PATH, Publisher};
use manyflow_net::tls::{Identity, TlsError};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const DESCRIPTION: &str = "v=0\r\n";

/// An authority, whose certificate is in the file `ca.crt` of its folder.
struct Authority {
    folder: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let issuer = CertifiedIssuer::self_signed(params, key).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.crt"), issuer.pem()).unwrap();
        Authority { folder, issuer }
    }

    fn ca(&self) -> PathBuf {
        self.folder.path().join("ca.crt")
    }

    /// Issues a certificate for `name`, with the changes that `change` makes.
    fn issue(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Identity {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let path = |name| self.folder.path().join(name);
        std::fs::write(path("server.crt"), certificate.pem()).unwrap();
        std::fs::write(path("server.key"), key.serialize_pem()).unwrap();
        Identity::read(&path("server.crt"), &path("server.key")).unwrap()
    }
}

async fn serve(identity: Option<Identity>) -> Publisher {
    let descriptions = [(DESCRIPTION_PATH.to_owned(), DESCRIPTION.to_owned())];
    Publisher::serve("127.0.0.1:0", descriptions.into(), identity)
        .await
        .unwrap()
}

fn url(publisher: &Publisher, host: &str) -> String {
    let port = publisher.local_address().port();
    format!("https://{host}:{port}/session.sdp")
}

/// Asserts that the connection to a server with this identity fails, with an error that names the
/// URL and has all of `parts`.
async fn refused(identity: Identity, ca: &Authority, parts: &[&str]) {
    let publisher = serve(Some(identity)).await;
    let url = url(&publisher, "127.0.0.1");
    let error = fetch(&url, Some(&ca.ca())).await.unwrap_err();
    assert!(matches!(error, LoadError::Tls { .. }), "{error}");
    let error = error.to_string();
    assert!(error.contains(&url) && !error.contains('\n'), "{error}");
    for part in parts {
        assert!(error.contains(part), "no {part:?} in {error}");
    }
}

#[tokio::test]
async fn a_description_is_loaded_over_https_by_address_and_by_name() {
    let authority = Authority::new("one");
    for host in ["127.0.0.1", "localhost"] {
        let publisher = serve(Some(authority.issue(host, |_| ()))).await;
        let text = fetch(&url(&publisher, host), Some(&authority.ca())).await;
        assert_eq!(text.unwrap(), DESCRIPTION);
    }
}

#[tokio::test]
async fn a_server_of_another_authority_is_refused() {
    let authority = Authority::new("one");
    let identity = authority.issue("127.0.0.1", |_| ());
    for (name, flaw) in [("two", "UnknownIssuer"), ("one", "BadSignature")] {
        let other = Authority::new(name);
        refused(identity.clone(), &other, &[flaw, "--ca FILE"]).await;
    }

    // The platform does not know the authority, either, if it knows any.
    let publisher = serve(Some(identity)).await;
    let error = fetch(&url(&publisher, "127.0.0.1"), None).await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("--ca FILE"), "{error}");
}

#[tokio::test]
async fn an_expired_certificate_is_refused() {
    let authority = Authority::new("one");
    let identity = authority.issue("127.0.0.1", |params| {
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2020, 1, 2);
    });
    refused(identity, &authority, &["expired", "renew"]).await;
}

#[tokio::test]
async fn a_certificate_of_the_future_is_refused() {
    let authority = Authority::new("one");
    let identity = authority.issue("127.0.0.1", |params| {
        params.not_before = date_time_ymd(4000, 1, 1);
        params.not_after = date_time_ymd(4000, 1, 2);
    });
    refused(identity, &authority, &["not valid yet", "clock"]).await;
}

#[tokio::test]
async fn a_certificate_of_another_name_is_refused() {
    let authority = Authority::new("one");
    let identity = authority.issue("builds.example.net", |_| ());
    let parts = ["127.0.0.1", "builds.example.net", "subjectAltName"];
    refused(identity, &authority, &parts).await;
}

#[tokio::test]
async fn a_certificate_of_an_authority_is_refused_as_that_of_a_server() {
    let authority = Authority::new("one");
    let identity = authority.issue("127.0.0.1", |params| {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    });
    refused(identity, &authority, &["not itself that of an authority"]).await;
}

#[tokio::test]
async fn a_server_without_tls_is_named() {
    let publisher = serve(None).await;
    let error = fetch(
        &url(&publisher, "127.0.0.1"),
        Some(&Authority::new("one").ca()),
    )
    .await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("use http://"), "{error}");
}

#[tokio::test]
async fn a_client_without_tls_is_refused() {
    let authority = Authority::new("one");
    let publisher = serve(Some(authority.issue("127.0.0.1", |_| ()))).await;
    let plain = url(&publisher, "127.0.0.1").replace("https", "http");
    let error = fetch(&plain, None).await.unwrap_err().to_string();
    assert!(error.contains("use https://"), "{error}");

    let mut stream = TcpStream::connect(publisher.local_address()).await.unwrap();
    let request = b"GET /session.sdp HTTP/1.1\r\nHost: a\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut response = Vec::new();
    // The server may reset the connection.
    let _ = stream.read_to_end(&mut response).await;
    assert!(!response.windows(3).any(|part| part == b"v=0"));
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let authority = Authority::new("one");
    let path = |name: &str| authority.folder.path().join(name);
    authority.issue("localhost", |_| ());
    std::fs::copy(path("server.key"), path("first.key")).unwrap();
    authority.issue("localhost", |_| ());
    let read = |certificate: &str, key: &str| {
        let identity = Identity::read(&path(certificate), &path(key));
        identity.map(drop).unwrap_err()
    };

    let error = read("none", "server.key");
    assert!(matches!(error, TlsError::Certificate { .. }), "{error}");
    let error = read("server.key", "server.key");
    assert!(error.to_string().contains("server.key"), "{error}");
    let error = read("server.crt", "server.crt");
    assert!(matches!(error, TlsError::Key { .. }), "{error}");
    let error = read("server.crt", "first.key").to_string();
    assert!(error.contains("its own private key"), "{error}");
}

#[tokio::test]
async fn a_file_without_authorities_is_named() {
    let authority = Authority::new("one");
    let publisher = serve(Some(authority.issue("127.0.0.1", |_| ()))).await;
    let key = authority.folder.path().join("server.key");
    let error = fetch(&url(&publisher, "127.0.0.1"), Some(&key)).await;
    let error = error.unwrap_err();
    assert!(matches!(error, LoadError::Authorities(_)), "{error}");
    assert!(error.to_string().contains("server.key"), "{error}");
}

/// The command in docs/operating.md makes a certificate that is its own authority.
#[tokio::test]
async fn the_documented_certificate_of_openssl_is_accepted() {
    let documentation = include_str!("../../../../docs/operating.md");
    let command = documentation
        .lines()
        .find(|line| line.starts_with("openssl req"));
    let command = command.unwrap().replace("builds.example.net", "localhost");
    let folder = tempfile::tempdir().unwrap();
    let mut words = command.split(' ');
    let mut openssl = Command::new(words.next().unwrap());
    let Ok(output) = openssl.args(words).current_dir(folder.path()).output() else {
        println!("skipped: openssl is not installed");
        return;
    };
    assert!(output.status.success(), "{output:?}");
    let path = |name| folder.path().join(name);
    let identity = Identity::read(&path("server.crt"), &path("server.key")).unwrap();
    let publisher = serve(Some(identity)).await;
    let text = fetch(&url(&publisher, "localhost"), Some(&path("server.crt"))).await;
    assert_eq!(text.unwrap(), DESCRIPTION);
}
