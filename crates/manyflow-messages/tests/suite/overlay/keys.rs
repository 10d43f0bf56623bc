//! Users who sign a nonce, and users by their certificates.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use manyflow_messages::{
    Access, Account, Credentials, DaemonConfig, DaemonError, DaemonHandle, Nkey, Proof, User, start,
};
use manyflow_net::tls::Identity;
use nkeys::KeyPair;
use rcgen::{CertificateParams, DnType, Issuer, SanType};
use serde_json::Value;

use crate::overlay::stage::{Nats, config, within};

/// Returns a user who may do what is below its subject only.
fn user_below(subject: &str, proof: impl Into<Proof>) -> User {
    let all = Some(vec![format!("{subject}.>")]);
    User {
        publish: all.clone(),
        subscribe: all,
        ..User::new(proof)
    }
}

async fn start_for(users: Vec<User>) -> DaemonHandle {
    let config = DaemonConfig {
        access: Access::Users(users),
        ..config("a")
    };
    start(config).await.unwrap()
}

fn key_of(pair: &KeyPair) -> Nkey {
    pair.public_key().parse().unwrap()
}

#[tokio::test]
async fn async_nats_connects_with_a_seed_and_has_the_rights_of_its_user() {
    let [ann, bob, stranger] = [(); 3].map(|()| KeyPair::new_user());
    let users = [("a", &ann), ("b", &bob)];
    let users = users.map(|(subject, pair)| user_below(subject, key_of(pair)));
    let daemon = start_for(users.into()).await;
    let address = daemon.addresses().clients.unwrap().to_string();
    let connect = async |pair: &KeyPair| {
        let options = async_nats::ConnectOptions::with_nkey(pair.seed().unwrap());
        within(options.connect(&address)).await
    };
    let client = connect(&ann).await.unwrap();
    let mut own = client.subscribe("a.>").await.unwrap();
    client.publish("b.x", "no".into()).await.unwrap();
    client.publish("a.x", "yes".into()).await.unwrap();
    let next = std::future::poll_fn(|context| {
        futures_core::Stream::poll_next(std::pin::Pin::new(&mut own), context)
    });
    assert_eq!(within(next).await.unwrap().payload, "yes");
    let connz = daemon.monitor().page("/connz", "auth=1").await.json;
    assert!(connz.contains(&ann.public_key()), "{connz}");
    assert!(connect(&bob).await.is_ok());
    let error = connect(&stranger).await.unwrap_err();
    assert!(error.to_string().contains("authorization"), "{error}");
}

/// Reads INFO of a new connection.
async fn info(daemon: &DaemonHandle) -> Value {
    let address = daemon.addresses().clients.unwrap();
    let socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let mut line = String::new();
    let mut reader = tokio::io::BufReader::new(socket);
    let read = tokio::io::AsyncBufReadExt::read_line(&mut reader, &mut line);
    within(read).await.unwrap();
    serde_json::from_str(line.strip_prefix("INFO ").unwrap()).unwrap()
}

#[tokio::test]
async fn each_connection_has_a_nonce_if_there_are_users_with_keys() {
    let daemon = start_for(vec![User::new(key_of(&KeyPair::new_user()))]).await;
    let nonces = [info(&daemon).await, info(&daemon).await];
    let nonces = nonces.map(|info| info["nonce"].as_str().unwrap().to_owned());
    assert!(
        nonces[0] != nonces[1] && nonces[0].len() >= 15,
        "{nonces:?}"
    );
    let without = start(config("b")).await.unwrap();
    assert!(info(&without).await.get("nonce").is_none());
}

#[tokio::test]
async fn a_client_with_a_jwt_learns_why_it_is_refused() {
    let daemon = start_for(vec![User::new(key_of(&KeyPair::new_user()))]).await;
    let mut client = Nats::open(&daemon).await;
    let connect = r#"CONNECT {"jwt":"eyJ0eXAiOiJKV1QifQ.e30.AA","sig":"AA"}"#;
    client.send(&format!("{connect}\r\n")).await;
    let error = "-ERR 'Authorization Violation: the JWT is not signed by an account of the daemon'";
    assert_eq!(client.line().await, error);
    client.closed().await;
}

/// A file of nats-py's tests (`nats/tests/nkeys/foo-user.creds`), with a JWT of version 1.
const CREDENTIALS: &str = "-----BEGIN NATS USER JWT-----
eyJ0eXAiOiJqd3QiLCJhbGciOiJlZDI1NTE5In0.eyJqdGkiOiJXTURGT1dHV1JGWkRGRFVSM0dPUkdESEtUTTdDUlZBVDQ1RkRFMllNRUY1N0VOQ0JBVFFRIiwiaWF0IjoxNTUzODQwOTQ0LCJpc3MiOiJBRDdTRUFOUzZCQ0JGNkZISUI3U1EzVUdKVlBXNTNCWE9BTFA3NVlYSkJCWFFMN0VBRkI2TkpOQSIsIm5hbWUiOiJmb28tdXNlciIsInN1YiI6IlVDSzVON042Nk9CT0lORlhBWUMyQUNKUVlGU09ENFZZTlU2QVBFSlRBVkZaQjJTVkhMS0dFVzdMIiwidHlwZSI6InVzZXIiLCJuYXRzIjp7InB1YiI6e30sInN1YiI6e319fQ.Vri09BN561m37GvuSWoGN9L9TSkwQbjC_jIv1BCJcoxZqNc_Pa7WbR12b3SAS4_Ip2D9-2HCwyYib1JUEIO8Bg
------END NATS USER JWT------

-----BEGIN USER NKEY SEED-----
SUAMLK2ZNL35WSMW37E7UD4VZ7ELPKW7DHC3BWBSD2GCZ7IUQQXZIORRBU
------END USER NKEY SEED------
";
/// The account that has signed it.
const ACCOUNT: &str = "AD7SEANS6BCBF6FHIB7SQ3UGJVPW53BXOALP75YXJBBXQL7EAFB6NJNA";

async fn connect_with_credentials(daemon: &DaemonHandle) -> Result<async_nats::Client, String> {
    let options = async_nats::ConnectOptions::with_credentials(CREDENTIALS).unwrap();
    let address = daemon.addresses().clients.unwrap().to_string();
    let connected = within(options.connect(address)).await;
    connected.map_err(|error| error.to_string())
}

#[tokio::test]
async fn the_credentials_of_nats_py_are_those_of_a_user_of_its_account() {
    let account = Account::of_key(ACCOUNT).unwrap();
    let user = User {
        publish: Some(vec!["a.>".to_owned()]),
        ..User::new(account)
    };
    let daemon = start_for(vec![user]).await;
    let client = connect_with_credentials(&daemon).await.unwrap();
    let mut own = client.subscribe("a.b").await.unwrap();
    client.publish("a.b", "signed".into()).await.unwrap();
    let next = std::future::poll_fn(|context| {
        futures_core::Stream::poll_next(std::pin::Pin::new(&mut own), context)
    });
    assert_eq!(within(next).await.unwrap().payload, "signed");
    let other = Account::of_key(&KeyPair::new_account().public_key()).unwrap();
    let daemon = start_for(vec![User::new(other)]).await;
    let error = connect_with_credentials(&daemon).await.unwrap_err();
    assert!(error.contains("not signed by an account"), "{error}");
}

/// Returns the JWT of a user that an account has signed, with further claims.
fn jwt_of(user: &KeyPair, account: &KeyPair, mut claims: Value) -> String {
    let encode = |text: &[u8]| URL_SAFE_NO_PAD.encode(text);
    claims["iss"] = account.public_key().into();
    claims["sub"] = user.public_key().into();
    claims["nats"]["type"] = "user".into();
    let header = encode(br#"{"typ":"JWT","alg":"ed25519-nkey"}"#);
    let signed = format!("{header}.{}", encode(claims.to_string().as_bytes()));
    let signature = encode(&account.sign(signed.as_bytes()).unwrap());
    format!("{signed}.{signature}")
}

/// Connects with a JWT, by hand.
async fn connect_with_jwt(daemon: &DaemonHandle, user: &KeyPair, jwt: &str) -> Nats {
    let (mut client, info) = Nats::open_with_info(daemon).await;
    let info: Value = serde_json::from_str(&info).unwrap();
    let nonce = info["nonce"].as_str().unwrap();
    let signature = URL_SAFE_NO_PAD.encode(user.sign(nonce.as_bytes()).unwrap());
    let options = serde_json::json!({"jwt": jwt, "sig": signature, "verbose": false});
    client.send(&format!("CONNECT {options}\r\n")).await;
    client
}

#[tokio::test]
async fn a_jwt_gives_permissions_until_it_expires() {
    let (user, account) = (KeyPair::new_user(), KeyPair::new_account());
    let own = Account::of_key(&account.public_key()).unwrap();
    let daemon = start_for(vec![User::new(own)]).await;
    let now = std::time::SystemTime::now();
    let now_s = now.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let nats = serde_json::json!({
        "pub": {"allow": ["a.>"], "deny": ["a.secret"]},
        "sub": {"deny": ["a.secret"]},
    });
    let claims = serde_json::json!({"exp": now_s + 2, "nats": nats});
    let jwt = jwt_of(&user, &account, claims);
    let mut client = connect_with_jwt(&daemon, &user, &jwt).await;
    client.send("SUB a.* 1\r\nSUB a.b 2\r\n").await;
    let error = "-ERR 'Permissions Violation for Subscription to \"a.*\"'";
    assert_eq!(client.line().await, error);
    client
        .send("PUB a.secret 1\r\nx\r\nPUB b 1\r\nx\r\nPUB a.b 1\r\nx\r\n")
        .await;
    for subject in ["a.secret", "b"] {
        let error = format!("-ERR 'Permissions Violation for Publish to \"{subject}\"'");
        assert_eq!(client.line().await, error);
    }
    assert_eq!(client.message().await.0, "MSG a.b 2 1");
    assert_eq!(client.line().await, "-ERR 'User Authentication Expired'");
    client.closed().await;
    let mut again = connect_with_jwt(&daemon, &user, &jwt).await;
    let error = "-ERR 'Authorization Violation: the JWT of the user has expired'";
    assert_eq!(again.line().await, error);
}

/// An authority, and a daemon whose clients show its certificates.
struct Verified {
    folder: tempfile::TempDir,
    authority: CertificateParams,
    key: rcgen::KeyPair,
}

impl Verified {
    fn new() -> Verified {
        let mut authority = CertificateParams::default();
        authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let verified = Verified {
            folder: tempfile::tempdir().unwrap(),
            authority,
            key: rcgen::KeyPair::generate().unwrap(),
        };
        let own = verified.authority.self_signed(&verified.key).unwrap();
        std::fs::write(verified.path("ca.crt"), own.pem()).unwrap();
        let server = CertificateParams::new(["localhost".to_owned()]).unwrap();
        verified.write("server", server);
        verified
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a certificate of the authority and its key. Returns their paths.
    fn write(&self, name: &str, parameters: CertificateParams) -> [PathBuf; 2] {
        let issuer = Issuer::from_params(&self.authority, &self.key);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = parameters.signed_by(&key, &issuer).unwrap();
        let paths = ["crt", "key"].map(|end| self.path(&format!("{name}.{end}")));
        std::fs::write(&paths[0], certificate.pem()).unwrap();
        std::fs::write(&paths[1], key.serialize_pem()).unwrap();
        paths
    }

    /// Writes the certificate of a client with an address of mail and a common name.
    fn write_client(&self, mail: &str, common_name: &str) -> [PathBuf; 2] {
        let mut parameters = CertificateParams::default();
        let mail = SanType::Rfc822Name(mail.try_into().unwrap());
        parameters.subject_alt_names.push(mail);
        parameters.distinguished_name = rcgen::DistinguishedName::new();
        let subject = &mut parameters.distinguished_name;
        subject.push(DnType::CommonName, common_name);
        self.write(common_name, parameters)
    }

    fn identity(&self) -> Identity {
        let [certificate, key, ca] =
            ["server.crt", "server.key", "ca.crt"].map(|name| self.path(name));
        Identity::read_verifying(&certificate, &key, &ca).unwrap()
    }

    async fn start(&self, users: Vec<User>) -> DaemonHandle {
        let config = DaemonConfig {
            access: Access::Users(users),
            client_tls: Some(self.identity()),
            clients_ws: Some("127.0.0.1:0".to_owned()),
            ..config("a")
        };
        start(config).await.unwrap()
    }

    async fn connect(
        &self,
        url: &str,
        options: async_nats::ConnectOptions,
        certificate: Option<&[PathBuf; 2]>,
    ) -> Result<async_nats::Client, async_nats::ConnectError> {
        let mut options = options.add_root_certificates(self.path("ca.crt"));
        if let Some([certificate, key]) = certificate {
            options = options.add_client_certificate(certificate.clone(), key.clone());
        }
        within(options.connect(url)).await
    }
}

/// Reads the names of the users that are connected.
async fn users_at(daemon: &DaemonHandle) -> Vec<String> {
    let connz = daemon.monitor().page("/connz", "auth=1").await.json;
    let connz: Value = serde_json::from_str(&connz).unwrap();
    let connections = connz["connections"].as_array().unwrap().iter();
    let users = connections.filter_map(|one| one["authorized_user"].as_str());
    users.map(str::to_owned).collect()
}

#[tokio::test]
async fn a_certificate_makes_its_client_a_user() {
    let verified = Verified::new();
    let password = Credentials::Password {
        name: "cara".to_owned(),
        password: "secret".to_owned(),
    };
    let users = vec![
        user_below("a", Proof::Certificate("ann@example.net".to_owned())),
        user_below("b", Proof::Certificate("CN=Bob".to_owned())),
        user_below("c", password),
    ];
    let daemon = verified.start(users).await;
    let port = daemon.addresses().clients.unwrap().port();
    let url = format!("tls://localhost:{port}");
    let plain = async_nats::ConnectOptions::new;
    let ann = verified.write_client("ann@example.net", "Ann");
    let bob = verified.write_client("bob@example.net", "Bob");
    let stranger = verified.write_client("eve@example.net", "Eve");

    let client = verified.connect(&url, plain(), Some(&ann)).await.unwrap();
    assert!(client.server_info().tls_required && client.server_info().auth_required);
    let mut own = client.subscribe("a.>").await.unwrap();
    client.publish("b.x", "no".into()).await.unwrap();
    client.publish("a.x", "yes".into()).await.unwrap();
    let next = std::future::poll_fn(|context| {
        futures_core::Stream::poll_next(std::pin::Pin::new(&mut own), context)
    });
    assert_eq!(within(next).await.unwrap().payload, "yes");
    let ws = daemon.addresses().clients_ws.unwrap().port();
    let ws = format!("wss://localhost:{ws}");
    let second = verified.connect(&ws, plain(), Some(&bob)).await.unwrap();
    let cara = async_nats::ConnectOptions::with_user_and_password("cara".into(), "secret".into());
    let third = verified.connect(&url, cara, Some(&stranger)).await.unwrap();
    assert_eq!(
        users_at(&daemon).await,
        ["ann@example.net", "CN=Bob", "cara"]
    );
    drop((client, second, third));

    let error = verified
        .connect(&url, plain(), Some(&stranger))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("authorization"), "{error}");
    assert!(verified.connect(&url, plain(), None).await.is_err());
    let other = Verified::new().write_client("ann@example.net", "Ann");
    assert!(verified.connect(&url, plain(), Some(&other)).await.is_err());
}

#[tokio::test]
async fn a_user_with_a_certificate_needs_a_daemon_that_verifies() {
    let user = User::new(Proof::Certificate("ann@example.net".to_owned()));
    let config = DaemonConfig {
        access: Access::Users(vec![user]),
        ..config("a")
    };
    let error = start(config).await.unwrap_err();
    assert!(matches!(error, DaemonError::Config(_)), "{error}");
    let verified = Verified::new();
    let [certificate, key] = ["server.crt", "server.key"].map(|name| verified.path(name));
    let ca = Path::new("missing.crt");
    let error = Identity::read_verifying(&certificate, &key, ca)
        .err()
        .unwrap();
    assert!(error.to_string().starts_with("missing.crt: "), "{error}");
}
