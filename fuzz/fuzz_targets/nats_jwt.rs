//! The JWT of an account has any header and claims, with a valid signature of the operator or with
//! any bytes in its place. Reading it does not panic, and one that is accepted names an account.
#![cfg_attr(fuzzing, no_main)]

use std::sync::LazyLock;

use arbitrary::Arbitrary;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use manyflow_messages::Account;
use nkeys::{KeyPair, KeyPairType};
use ring::signature::Ed25519KeyPair;

/// The seed of all keys. A fuzzer does not find the operator's signatures.
const SEED: [u8; 32] = [7; 32];
static OPERATOR: LazyLock<String> = LazyLock::new(|| public_key(KeyPairType::Operator));
static ACCOUNT: LazyLock<String> = LazyLock::new(|| public_key(KeyPairType::Account));
static SIGNER: LazyLock<Ed25519KeyPair> =
    LazyLock::new(|| Ed25519KeyPair::from_seed_unchecked(&SEED).expect("it has 32 bytes"));

fn public_key(kind: KeyPairType) -> String {
    let pair = KeyPair::new_from_raw(kind, SEED).expect("it has 32 bytes");
    pair.public_key()
}

#[derive(Arbitrary, Debug)]
struct Jwt<'a> {
    header: Header<'a>,
    claims: Claims<'a>,
    /// The signature; that of the operator if there is none.
    signature: Option<&'a [u8]>,
}

#[derive(Arbitrary, Debug)]
enum Header<'a> {
    Version1,
    Version2,
    Any(&'a str),
}

#[derive(Arbitrary, Debug)]
enum Claims<'a> {
    /// Claims of an account, with the text before its type.
    OfAccount {
        exp: u64,
        more: &'a str,
    },
    Any(&'a str),
}

impl Jwt<'_> {
    fn text(&self) -> String {
        let header = match self.header {
            Header::Version1 => r#"{"alg":"ed25519"}"#,
            Header::Version2 => r#"{"alg":"ed25519-nkey"}"#,
            Header::Any(text) => text,
        };
        let operator = &*OPERATOR;
        let claims = match self.claims {
            Claims::OfAccount { exp, more } => format!(
                r#"{{"iss":"{operator}","sub":"{}","exp":{exp},"nats":{{{more}"type":"account"}}}}"#,
                *ACCOUNT
            ),
            Claims::Any(text) => text.to_owned(),
        };
        let [header, claims] = [header, &claims].map(|part| URL_SAFE_NO_PAD.encode(part));
        let signed = match self.header {
            Header::Version1 => claims.clone(),
            _ => format!("{header}.{claims}"),
        };
        let own = || SIGNER.sign(signed.as_bytes()).as_ref().to_vec();
        let signature = self.signature.map_or_else(own, <[u8]>::to_vec);
        format!("{header}.{claims}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

manyflow_fuzz::target!(|jwt: Jwt<'_>| {
    if let Ok(account) = Account::of_jwt(&jwt.text(), &OPERATOR) {
        assert!(account.key().starts_with('A'), "{}", account.key());
    }
});
