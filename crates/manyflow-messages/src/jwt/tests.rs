//! Tests of JWTs that the crate `nkeys` has signed.

use nkeys::KeyPair;
use serde_json::json;

use super::*;
use crate::nkey::Nonce;

const NOW_S: u64 = 2_000_000_000;

fn sign(by: &KeyPair, mut claims: Value) -> String {
    claims["iss"] = by.public_key().into();
    let encode = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
    let header = encode(&json!({"typ": "JWT", "alg": "ed25519-nkey"}));
    let signed = format!("{header}.{}", encode(&claims));
    let signature = by.sign(signed.as_bytes()).unwrap();
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// A user, and what it shows.
struct Client {
    pair: KeyPair,
    nonce: Nonce,
    is_websocket: bool,
}

impl Client {
    fn new() -> Client {
        Client {
            pair: KeyPair::new_user(),
            nonce: Nonce::random(),
            is_websocket: false,
        }
    }

    /// Returns the user's JWT with further claims of NATS.
    fn jwt(&self, by: &KeyPair, more: Value) -> String {
        let mut nats = json!({"type": "user", "version": 2, "subs": -1, "data": -1});
        for (key, value) in more.as_object().unwrap() {
            nats[key] = value.clone();
        }
        let claims = json!({"sub": self.pair.public_key(), "iat": 1000, "nats": nats});
        sign(by, claims)
    }

    fn admit(&self, account: &Account, jwt: String) -> Result<JwtUser, JwtError> {
        let signature = self.pair.sign(self.nonce.text().as_bytes()).unwrap();
        let options = ConnectOptions {
            jwt: Some(jwt),
            sig: Some(URL_SAFE_NO_PAD.encode(signature)),
            ..ConnectOptions::default()
        };
        let shown = Shown {
            nonce: Some(self.nonce),
            is_websocket: self.is_websocket,
            ..Shown::default()
        };
        account.admit(&options, &shown, NOW_S)
    }
}

fn account_of(pair: &KeyPair) -> Account {
    Account::of_key(&pair.public_key()).unwrap()
}

#[test]
fn an_account_admits_the_users_that_it_has_signed() {
    let (pair, other, client) = (
        KeyPair::new_account(),
        KeyPair::new_account(),
        Client::new(),
    );
    let account = account_of(&pair);
    let jwt = client.jwt(&pair, json!({}));
    let user = client.admit(&account, jwt.clone()).unwrap();
    assert_eq!(user.key.to_string(), client.pair.public_key());
    let unknown = JwtError::Signature(SIGNERS);
    let refused = |jwt: String| client.admit(&account, jwt).unwrap_err();
    assert_eq!(refused(client.jwt(&other, json!({}))), unknown);
    // A user cannot sign others, nor itself.
    assert_eq!(refused(client.jwt(&client.pair, json!({}))), unknown);
    let stolen = Client::new();
    assert_eq!(
        stolen.admit(&account, jwt.clone()).unwrap_err(),
        JwtError::Nonce
    );
    let bearer = client.jwt(&pair, json!({"bearer_token": true}));
    assert!(stolen.admit(&account, bearer).is_ok());
    let (begin, signature) = jwt.rsplit_once('.').unwrap();
    let claims = begin.split_once('.').unwrap().1;
    // The header of version 1, which signs other bytes.
    let header = URL_SAFE_NO_PAD.encode(r#"{"typ":"JWT","alg":"ed25519"}"#);
    assert_eq!(refused(format!("{header}.{claims}.{signature}")), unknown);
    let header = URL_SAFE_NO_PAD.encode(r#"{"typ":"JWT","alg":"none"}"#);
    let wrong = [
        format!("{header}.{claims}.{signature}"),
        String::new(),
        "a.b.c".to_owned(),
        begin.to_owned(),
    ];
    for jwt in wrong {
        assert_eq!(refused(jwt), JwtError::Format("a user"));
    }
}

#[test]
fn times_and_revocations_end_what_a_jwt_permits() {
    let (operator, pair, client) = (
        KeyPair::new_operator(),
        KeyPair::new_account(),
        Client::new(),
    );
    let account = |more: Value| {
        let mut claims = json!({"sub": pair.public_key(), "nats": {"type": "account"}});
        for (key, value) in more.as_object().unwrap() {
            claims[key] = value.clone();
        }
        Account::of_jwt(&sign(&operator, claims), &operator.public_key()).unwrap()
    };
    let plain = account(json!({}));
    let user = |more: Value| {
        let mut claims = json!({
            "sub": client.pair.public_key(), "iat": 1000, "nats": {"type": "user"},
        });
        for (key, value) in more.as_object().unwrap() {
            claims[key] = value.clone();
        }
        sign(&pair, claims)
    };
    let admitted = client
        .admit(&plain, user(json!({"exp": NOW_S + 1})))
        .unwrap();
    assert_eq!(admitted.expires, Some(NOW_S + 1));
    let refused = |account: &Account, more| client.admit(account, user(more)).unwrap_err();
    let expired = JwtError::Expired("the user");
    assert_eq!(refused(&plain, json!({"exp": NOW_S})), expired);
    let early = JwtError::Early("the user");
    assert_eq!(refused(&plain, json!({"nbf": NOW_S + 1})), early);
    let old = account(json!({"exp": NOW_S}));
    assert_eq!(refused(&old, json!({})), JwtError::Expired("the account"));
    let ends = account(json!({"exp": NOW_S + 9}));
    assert_eq!(
        client.admit(&ends, user(json!({}))).unwrap().expires,
        Some(NOW_S + 9)
    );
    for who in [client.pair.public_key(), ALL_USERS.to_owned()] {
        let nats = json!({"type": "account", "revocations": {who: 1000}});
        let account = account(json!({ "nats": nats }));
        assert_eq!(refused(&account, json!({})), JwtError::Revoked);
        assert!(client.admit(&account, user(json!({"iat": 1001}))).is_ok());
    }
}

#[test]
fn an_operator_signs_accounts_with_their_signing_keys_and_defaults() {
    let (operator, pair, client) = (
        KeyPair::new_operator(),
        KeyPair::new_account(),
        Client::new(),
    );
    let signing = KeyPair::new_account();
    let nats = json!({
        "type": "account", "signing_keys": [signing.public_key(), {"key": "scoped"}],
        "default_permissions": {"pub": {"deny": ["secret.>"]}, "sub": {}},
    });
    let jwt = sign(&operator, json!({"sub": pair.public_key(), "nats": nats}));
    let text = format!("-----BEGIN NATS ACCOUNT JWT-----\n{jwt}\n------END");
    let account = Account::of_jwt(&text, &operator.public_key()).unwrap();
    assert_eq!(account.key(), pair.public_key());
    let of_account = json!({"issuer_account": pair.public_key()});
    let user = client
        .admit(&account, client.jwt(&signing, of_account))
        .unwrap();
    assert_eq!(user.publish.deny, ["secret.>"]);
    let own = json!({"issuer_account": pair.public_key(), "pub": {"allow": ["a"]}});
    let user = client.admit(&account, client.jwt(&signing, own)).unwrap();
    assert_eq!(
        (user.publish.allow.unwrap(), user.publish.deny.len()),
        (vec!["a".to_owned()], 0)
    );
    let foreign = json!({"issuer_account": signing.public_key()});
    let refused = client
        .admit(&account, client.jwt(&signing, foreign))
        .unwrap_err();
    assert_eq!(refused, JwtError::Signature(SIGNERS));
    let other = KeyPair::new_operator().public_key();
    let refused = Account::of_jwt(&text, &other).unwrap_err();
    assert_eq!(refused, JwtError::Signature("the operator"));
    let refused = Account::of_jwt("nothing", &other).unwrap_err();
    assert_eq!(refused, JwtError::Format("an account"));
    let key = pair.public_key();
    assert_eq!(
        Account::of_jwt(&text, &key).unwrap_err(),
        JwtError::OperatorKey
    );
    assert_eq!(Account::of_key(&other).unwrap_err(), JwtError::AccountKey);
}

#[test]
fn restrictions_are_checked_or_refused() {
    let (pair, mut client) = (KeyPair::new_account(), Client::new());
    let account = account_of(&pair);
    for (claims, name) in [
        (json!({"src": ["192.0.2.0/24"]}), "src"),
        (json!({"src": "192.0.2.0/24"}), "src"),
        (
            json!({"times": [{"start": "09:00:00", "end": "10:00:00"}]}),
            "times",
        ),
        (json!({"payload": 100}), "payload"),
        (json!({"subs": 10}), "subs"),
        (json!({"sub": {"allow": ["a.* workers"]}}), "sub"),
    ] {
        let refused = client
            .admit(&account, client.jwt(&pair, claims))
            .unwrap_err();
        assert_eq!(refused, JwtError::Unsupported(name));
    }
    let empty = json!({"src": [], "times": null, "payload": -1, "sub": {"allow": null}});
    let user = client.admit(&account, client.jwt(&pair, empty)).unwrap();
    assert_eq!(user.subscribe.allow, None);
    let browsers = || json!({"allowed_connection_types": ["WEBSOCKET"]});
    let refused = client
        .admit(&account, client.jwt(&pair, browsers()))
        .unwrap_err();
    assert_eq!(refused, JwtError::ConnectionType);
    client.is_websocket = true;
    assert!(
        client
            .admit(&account, client.jwt(&pair, browsers()))
            .is_ok()
    );
}

proptest::proptest! {
    // Each case makes keys, which takes some time without optimisation.
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(32))]
    #[test]
    fn texts_that_nobody_has_signed_are_refused(
        header in r#"\{"alg":"(ed25519|ed25519-nkey|none)"\}|\PC{0,20}"#,
        claims in r#"\{"iss":"A","sub":"U","nats":\{("type":"user")?\}\}|\PC{0,40}"#,
        end in "[A-Za-z0-9_.-]{0,90}",
    ) {
        let [header, claims] = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part));
        let jwt = format!("{header}.{claims}.{end}");
        let account = account_of(&KeyPair::new_account());
        proptest::prop_assert!(Client::new().admit(&account, jwt.clone()).is_err());
        let operator = KeyPair::new_operator().public_key();
        proptest::prop_assert!(Account::of_jwt(&jwt, &operator).is_err());
    }
}
