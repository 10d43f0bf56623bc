//! Bridges that are users of their nats-server.

use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use manyflow_bridge::{BridgeConfig, BridgeState, NatsOptions, start};
use manyflow_testing::nats::NatsServer;
use nkeys::KeyPair;
use serde_json::{Value, json};

use crate::stage::{daemon, start_active, wait_for};

/// Returns a JWT of NATS for a key with these claims, which an issuer has signed.
fn jwt(issuer: &KeyPair, subject: &KeyPair, claims: &Value) -> String {
    let header = json!({"typ": "JWT", "alg": "ed25519-nkey"});
    let body = json!({
        "jti": "1", "iat": 1, "iss": issuer.public_key(), "sub": subject.public_key(),
        "nats": claims,
    });
    let parts = [header, body].map(|part| BASE64.encode(part.to_string()));
    let signed = parts.join(".");
    let signature = issuer.sign(signed.as_bytes()).unwrap();
    format!("{signed}.{}", BASE64.encode(signature))
}

/// Starts a nats-server that knows its accounts by their operator. Returns the text of the
/// credentials of a user, and of one whose key does not belong to the JWT.
fn server_with_an_operator() -> Option<(NatsServer, [String; 2])> {
    let operator = KeyPair::new_operator();
    let of_operator = jwt(
        &operator,
        &operator,
        &json!({"type": "operator", "version": 2}),
    );
    let limits = json!({"subs": -1, "conn": -1, "leaf": -1, "imports": -1, "exports": -1,
        "data": -1, "payload": -1, "wildcards": true});
    let claims = json!({"type": "account", "version": 2, "limits": limits});
    let [account, system] = [(); 2].map(|()| KeyPair::new_account());
    let accounts = [&account, &system].map(|account| {
        format!(
            "{}: {}",
            account.public_key(),
            jwt(&operator, account, &claims)
        )
    });
    // JetStream needs an account of the system.
    let lines = format!(
        "operator: {of_operator}\nsystem_account: {}\nresolver: MEMORY\n\
         resolver_preload: {{\n{}\n}}\n",
        system.public_key(),
        accounts.join("\n")
    );
    let user = KeyPair::new_user();
    let claims = json!({"type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1});
    let of_user = jwt(&account, &user, &claims);
    let credentials = [user, KeyPair::new_user()].map(|key| {
        let seed = key.seed().unwrap();
        format!(
            "-----BEGIN NATS USER JWT-----\n{of_user}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        )
    });
    Some((NatsServer::start_with(&lines)?, credentials))
}

/// Returns a bridge that proves its user so.
fn config(server: &NatsServer, daemon: &str, options: NatsOptions) -> BridgeConfig {
    BridgeConfig {
        subjects: vec!["news".to_owned()],
        nats_options: options,
        ..BridgeConfig::new("a", &server.address(), daemon)
    }
}

fn credentials(path: &Path) -> NatsOptions {
    let mut options = NatsOptions::default();
    options.credentials = Some(path.to_owned());
    options
}

async fn assert_refused(config: BridgeConfig, reason: &str) {
    let bridge = start(config).unwrap();
    wait_for(
        &bridge,
        |state| matches!(state, BridgeState::Failing(shown) if shown.contains(reason)),
    )
    .await;
}

#[tokio::test]
async fn a_user_with_a_key_is_accepted_and_a_stranger_is_not() {
    let key = KeyPair::new_user();
    let user = key.public_key();
    let lines = format!("authorization {{ users: [ {{ nkey: {user} }} ] }}\n");
    let Some(server) = NatsServer::start_with(&lines) else {
        return;
    };
    let daemon = daemon("a", "127.0.0.1:0", None).await;
    let at = daemon.addresses().clients.unwrap().to_string();
    for (key, is_known) in [(key, true), (KeyPair::new_user(), false)] {
        let mut options = NatsOptions::default();
        options.nkey = Some(key.seed().unwrap());
        let config = config(&server, &at, options);
        match is_known {
            true => drop(start_active(config).await),
            false => assert_refused(config, "it refuses the user").await,
        }
    }
}

#[tokio::test]
async fn a_user_with_credentials_is_accepted_and_files_may_be_replaced() {
    let Some((server, [right, wrong])) = server_with_an_operator() else {
        return;
    };
    let daemon = daemon("a", "127.0.0.1:0", None).await;
    let at = daemon.addresses().clients.unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bridge.creds");
    let config = || config(&server, &at, credentials(&path));
    assert_refused(config(), "bridge.creds").await;
    std::fs::write(&path, wrong).unwrap();
    let bridge = start(config()).unwrap();
    wait_for(
        &bridge,
        |state| matches!(state, BridgeState::Failing(shown) if shown.contains("it refuses the user")),
    )
    .await;
    std::fs::write(&path, right).unwrap();
    wait_for(&bridge, |state| *state == BridgeState::Active).await;
}
