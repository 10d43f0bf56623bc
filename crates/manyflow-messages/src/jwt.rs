//! JWTs of NATS: users whom an account has signed, and accounts that an operator has signed.
//!
//! A JWT is three texts in base 64 (RFC 7515), with dots between them: a header, claims as JSON,
//! and a signature of Ed25519 by the key in the claim `iss`. Version 1 (`"alg":"ed25519"`) signs
//! the claims, version 2 (`"alg":"ed25519-nkey"`) the header, too. A client sends the JWT of its
//! user in CONNECT, and signs the nonce of INFO with the user's seed.
//!
//! A JWT that restricts its user in a way that a daemon does not check is refused as a whole.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::access::{Shown, Subjects};
use super::nats::ConnectOptions;
use super::nats::subject::is_pattern;
use super::nkey::{Nkey, decode_key, is_signature};

/// The first bytes of the keys of accounts and operators, whose texts begin with `A` and `O`.
const ACCOUNT: u8 = 0;
const OPERATOR: u8 = 14 << 3;
/// The words for the keys that sign users.
pub(super) const SIGNERS: &str = "an account of the daemon";
/// The name for all users in the revocations of an account.
const ALL_USERS: &str = "*";

/// The reason why a JWT, or a key for one, is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JwtError {
    /// The text is not the public key of an account.
    #[error(
        "it is not the public key of an account, which has 56 letters and digits and begins with A"
    )]
    AccountKey,
    /// The text is not the public key of an operator.
    #[error(
        "it is not the public key of an operator, which has 56 letters and digits and begins with O"
    )]
    OperatorKey,
    /// The text is not a JWT of this kind.
    #[error("it is not the JWT of {0}")]
    Format(&'static str),
    /// Another key than those that are trusted has signed the JWT, or the signature is wrong.
    #[error("the JWT is not signed by {0}")]
    Signature(&'static str),
    /// The JWT was valid once.
    #[error("the JWT of {0} has expired")]
    Expired(&'static str),
    /// The JWT becomes valid later.
    #[error("the JWT of {0} is not valid yet")]
    Early(&'static str),
    /// The account has revoked the JWT.
    #[error("the account has revoked the JWT")]
    Revoked,
    /// The client has not signed the nonce with the seed of the JWT's user.
    #[error("the nonce is not signed by the user of the JWT")]
    Nonce,
    /// The JWT restricts its user in this way.
    #[error("the JWT has the claim {0}, which a daemon does not check")]
    Unsupported(&'static str),
    /// The JWT allows other kinds of connections only.
    #[error("the JWT does not allow connections of this kind")]
    ConnectionType,
}

/// An account, whose users may connect.
#[derive(Clone, Debug)]
pub struct Account(Arc<Trust>);

#[derive(Debug)]
struct Trust {
    /// The account's key, as text.
    key: String,
    /// The keys that sign users: the account's own, and its signing keys.
    signers: Vec<String>,
    /// The time at which the account's own JWT expires, in seconds since 1970.
    expires: Option<u64>,
    /// The last second whose JWTs are revoked, by user.
    revocations: BTreeMap<String, u64>,
    /// The permissions of users whose JWT has none.
    defaults: Option<PermissionClaims>,
}

/// A user, as its JWT describes it.
#[derive(Debug)]
pub(super) struct JwtUser {
    pub(super) key: Nkey,
    pub(super) publish: Subjects,
    pub(super) subscribe: Subjects,
    /// The time at which the user's connections end, in seconds since 1970.
    pub(super) expires: Option<u64>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
}

/// The claims of a JWT.
#[derive(Deserialize)]
struct Claims<T> {
    iss: String,
    sub: String,
    #[serde(default)]
    iat: u64,
    #[serde(default)]
    nbf: u64,
    /// 0 stands for never.
    #[serde(default)]
    exp: u64,
    /// The kind of the JWT in version 1.
    #[serde(default, rename = "type")]
    kind: String,
    nats: T,
}

/// The claims about a user. Times, lists and texts that are empty restrict nothing.
#[derive(Deserialize)]
struct UserClaims {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(flatten)]
    permissions: PermissionClaims,
    #[serde(default)]
    issuer_account: String,
    #[serde(default)]
    bearer_token: bool,
    #[serde(default)]
    allowed_connection_types: Option<Vec<String>>,
    #[serde(default)]
    src: Value,
    #[serde(default)]
    times: Value,
    #[serde(default)]
    subs: Option<i64>,
    #[serde(default)]
    data: Option<i64>,
    #[serde(default)]
    payload: Option<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
struct PermissionClaims {
    #[serde(default, rename = "pub")]
    publish: SubjectClaims,
    #[serde(default, rename = "sub")]
    subscribe: SubjectClaims,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
struct SubjectClaims {
    #[serde(default)]
    allow: Option<Vec<String>>,
    #[serde(default)]
    deny: Option<Vec<String>>,
}

/// The claims about an account. Its limits, imports and exports are about functions that a daemon
/// does not have.
#[derive(Deserialize)]
struct AccountClaims {
    #[serde(default, rename = "type")]
    kind: String,
    /// Texts, or objects for keys whose users have the permissions of a template.
    #[serde(default)]
    signing_keys: Option<Vec<Value>>,
    #[serde(default)]
    revocations: Option<BTreeMap<String, u64>>,
    #[serde(default)]
    default_permissions: Option<PermissionClaims>,
}

impl Account {
    /// Returns the account with this public key, whose users it signs itself.
    ///
    /// # Errors
    /// If the text is not the public key of an account.
    pub fn of_key(text: &str) -> Result<Account, JwtError> {
        decode_key(text, ACCOUNT).ok_or(JwtError::AccountKey)?;
        Ok(Account(Arc::new(Trust {
            key: text.to_owned(),
            signers: vec![text.to_owned()],
            expires: None,
            revocations: BTreeMap::new(),
            defaults: None,
        })))
    }

    /// Returns the account of a JWT that the operator with this public key has signed. Lines around
    /// the JWT do not matter. Users of signing keys with templates (`scopes`) are refused.
    ///
    /// # Errors
    /// If there is no JWT of an account, or another key has signed it.
    pub fn of_jwt(text: &str, operator: &str) -> Result<Account, JwtError> {
        const ACCOUNTS: &str = "an account";
        decode_key(operator, OPERATOR).ok_or(JwtError::OperatorKey)?;
        let jwt = text.split_whitespace().find(|word| word.starts_with("eyJ"));
        let jwt = jwt.ok_or(JwtError::Format(ACCOUNTS))?;
        let signers = [operator.to_owned()];
        let is_signer = |claims: &Claims<AccountClaims>| signers.contains(&claims.iss);
        let claims = verify(jwt, ACCOUNTS, OPERATOR, "the operator", is_signer)?;
        let is_account = claims.kind == "account" || claims.nats.kind == "account";
        if !is_account || decode_key(&claims.sub, ACCOUNT).is_none() {
            return Err(JwtError::Format(ACCOUNTS));
        }
        let keys = claims.nats.signing_keys.into_iter().flatten();
        let keys = keys.filter_map(|key| key.as_str().map(str::to_owned));
        Ok(Account(Arc::new(Trust {
            signers: keys.chain([claims.sub.clone()]).collect(),
            key: claims.sub,
            expires: (claims.exp > 0).then_some(claims.exp),
            revocations: claims.nats.revocations.unwrap_or_default(),
            defaults: claims.nats.default_permissions,
        })))
    }

    /// Returns the account's public key, as text.
    pub fn key(&self) -> &str {
        &self.0.key
    }

    /// Returns the user of a client with these options at this second since 1970.
    pub(super) fn admit(
        &self,
        options: &ConnectOptions,
        shown: &Shown,
        now_s: u64,
    ) -> Result<JwtUser, JwtError> {
        const USERS: &str = "a user";
        let trust = &*self.0;
        let is_signer = |claims: &Claims<UserClaims>| {
            let account = &claims.nats.issuer_account;
            trust.signers.contains(&claims.iss) && (account.is_empty() || *account == trust.key)
        };
        let jwt = options.jwt.as_deref().unwrap_or_default();
        let claims = verify(jwt, USERS, ACCOUNT, SIGNERS, is_signer)?;
        let key = claims.sub.parse::<Nkey>();
        let is_user = claims.kind == "user" || claims.nats.kind == "user";
        let key = key.ok().filter(|_| is_user);
        let key = key.ok_or(JwtError::Format(USERS))?;
        trust.check_times(&claims, now_s)?;
        claims.nats.check(shown)?;
        let signature = options.sig.as_deref().zip(shown.nonce);
        let has_signed = signature.is_some_and(|(sig, nonce)| key.has_signed(nonce, sig));
        if !has_signed && !claims.nats.bearer_token {
            return Err(JwtError::Nonce);
        }
        let own = Some(&claims.nats.permissions);
        let own = own.filter(|own| **own != PermissionClaims::default());
        let permissions = own.or(trust.defaults.as_ref());
        let permissions = permissions.cloned().unwrap_or_default();
        let exp = (claims.exp > 0).then_some(claims.exp);
        Ok(JwtUser {
            key,
            publish: permissions.publish.subjects("pub")?,
            subscribe: permissions.subscribe.subjects("sub")?,
            expires: exp.into_iter().chain(trust.expires).min(),
        })
    }
}

impl Trust {
    /// Checks that a user's JWT and the account's own are valid now.
    fn check_times(&self, claims: &Claims<UserClaims>, now_s: u64) -> Result<(), JwtError> {
        if self.expires.is_some_and(|at| at <= now_s) {
            return Err(JwtError::Expired("the account"));
        }
        if claims.exp > 0 && claims.exp <= now_s {
            return Err(JwtError::Expired("the user"));
        }
        if claims.nbf > now_s {
            return Err(JwtError::Early("the user"));
        }
        let revoked = [claims.sub.as_str(), ALL_USERS].map(|user| self.revocations.get(user));
        match revoked.into_iter().flatten().any(|at| claims.iat <= *at) {
            true => Err(JwtError::Revoked),
            false => Ok(()),
        }
    }
}

impl UserClaims {
    /// Checks what the JWT says about the connection, and that it says nothing else.
    fn check(&self, shown: &Shown) -> Result<(), JwtError> {
        let limits = |number: Option<i64>| number.is_some_and(|number| number > 0);
        for (name, is_set) in [
            ("src", is_set(&self.src)),
            ("times", is_set(&self.times)),
            ("subs", limits(self.subs)),
            ("data", limits(self.data)),
            ("payload", limits(self.payload)),
        ] {
            if is_set {
                return Err(JwtError::Unsupported(name));
            }
        }
        let types = self.allowed_connection_types.as_deref().unwrap_or_default();
        let own = if shown.is_websocket {
            "WEBSOCKET"
        } else {
            "STANDARD"
        };
        match types.is_empty() || types.iter().any(|kind| kind.eq_ignore_ascii_case(own)) {
            true => Ok(()),
            false => Err(JwtError::ConnectionType),
        }
    }
}

impl SubjectClaims {
    /// Returns the patterns. Those for one queue group, such as `a.* workers`, are refused.
    fn subjects(self, name: &'static str) -> Result<Subjects, JwtError> {
        let (allow, deny) = (
            self.allow.unwrap_or_default(),
            self.deny.unwrap_or_default(),
        );
        let mut all = allow.iter().chain(&deny);
        if !all.all(|pattern| is_pattern(pattern.as_bytes())) {
            return Err(JwtError::Unsupported(name));
        }
        let allow = Some(allow).filter(|allow| !allow.is_empty());
        Ok(Subjects { allow, deny })
    }
}

/// Returns whether a claim is there and not empty.
fn is_set(claim: &Value) -> bool {
    match claim {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => true,
    }
}

/// Returns the claims of a JWT if one of the keys that `is_signer` accepts has signed it. `kind` is
/// the words for its subject, and `prefix` and `by` the kind of these keys.
fn verify<T: DeserializeOwned>(
    jwt: &str,
    kind: &'static str,
    prefix: u8,
    by: &'static str,
    is_signer: impl Fn(&Claims<T>) -> bool,
) -> Result<Claims<T>, JwtError> {
    let parts: Vec<_> = jwt.split('.').collect();
    let [header, body, signature] = parts[..] else {
        return Err(JwtError::Format(kind));
    };
    let parsed: Option<(Header, Claims<T>)> = parse(header).zip(parse(body));
    let (header, claims) = parsed.ok_or(JwtError::Format(kind))?;
    let signed = match header.alg.as_str() {
        "ed25519" => body.to_owned(),
        "ed25519-nkey" => format!("{header}.{body}", header = parts[0]),
        _ => return Err(JwtError::Format(kind)),
    };
    let signer = Some(&claims.iss).filter(|_| is_signer(&claims));
    let signer = signer.and_then(|text| decode_key(text, prefix));
    let signature = URL_SAFE_NO_PAD.decode(signature);
    match (signer, signature) {
        (Some(key), Ok(signature)) if is_signature(&key, signed.as_bytes(), &signature) => {
            Ok(claims)
        }
        _ => Err(JwtError::Signature(by)),
    }
}

fn parse<T: DeserializeOwned>(part: &str) -> Option<T> {
    let text = URL_SAFE_NO_PAD.decode(part).ok()?;
    serde_json::from_slice(&text).ok()
}

#[cfg(test)]
mod tests;
