//! The credentials of clients, and their permissions.

use std::net::IpAddr;
use std::rc::Rc;

use std::time::{SystemTime, UNIX_EPOCH};

use subtle::ConstantTimeEq;

use super::jwt::{Account, JwtError, JwtUser, SIGNERS};
use super::nats::ConnectOptions;
use super::nats::subject::{matches, overlap};
use super::nkey::{Nkey, Nonce};

/// The priority of a client whose user has none, in percent.
const PRIORITY: u16 = 100;

/// The clients that may connect.
#[derive(Clone, Debug)]
pub enum Access {
    /// Every client may connect, publish and subscribe. Only for networks without strangers.
    Open,
    /// Clients with the credentials of one of these users may connect.
    Users(Vec<User>),
}

/// How a user proves who it is.
#[derive(Clone)]
pub enum Credentials {
    /// A name and a password.
    Password {
        /// The user's name.
        name: String,
        /// The password.
        password: String,
    },
    /// A token.
    Token(String),
}

impl core::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Credentials::Password { name, .. } => write!(f, "the password of {name}"),
            Credentials::Token(_) => write!(f, "a token"),
        }
    }
}

/// How clients prove that they are a user.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Proof {
    /// By a secret, which they send.
    Credentials(Credentials),
    /// By a signature of the daemon's nonce with the seed of this key.
    Nkey(Nkey),
    /// By a JWT that this account has signed, and a signature of the daemon's nonce with the seed
    /// of the JWT's user. One entry admits all users of the account.
    Account(Account),
    /// By a name in their certificate, if they send neither a secret nor a signature: an address of
    /// mail, a name of DNS, or the subject as RFC 4514 writes it. Clients show a certificate only
    /// to a daemon whose [`client_tls`](super::DaemonConfig::client_tls) verifies them.
    Certificate(String),
}

impl From<Credentials> for Proof {
    fn from(credentials: Credentials) -> Proof {
        Proof::Credentials(credentials)
    }
}

impl From<Account> for Proof {
    fn from(account: Account) -> Proof {
        Proof::Account(account)
    }
}

impl From<Nkey> for Proof {
    fn from(key: Nkey) -> Proof {
        Proof::Nkey(key)
    }
}

/// A user, and what its clients may do.
#[derive(Clone, Debug)]
pub struct User {
    /// How clients prove that they are this user.
    pub proof: Proof,
    /// The share of each of the user's clients under the controller, in percent of the share of a
    /// client with priority 100; at least 1.
    pub priority: u16,
    /// Patterns of subjects that the user may publish to; all if `None`.
    pub publish: Option<Vec<String>>,
    /// Patterns that the user may subscribe to, and all patterns that these contain; all if
    /// `None`.
    pub subscribe: Option<Vec<String>>,
}

impl User {
    /// Returns a user that may publish and subscribe to everything.
    pub fn new(proof: impl Into<Proof>) -> User {
        User {
            proof: proof.into(),
            priority: PRIORITY,
            publish: None,
            subscribe: None,
        }
    }
}

impl Access {
    /// Returns whether clients need credentials.
    pub(super) fn is_restricted(&self) -> bool {
        matches!(self, Access::Users(_))
    }

    /// Returns whether a user is known by a certificate.
    pub(super) fn has_certificates(&self) -> bool {
        let is_name = |user: &User| matches!(user.proof, Proof::Certificate(_));
        matches!(self, Access::Users(users) if users.iter().any(is_name))
    }

    /// Returns whether clients may have to sign a nonce.
    pub(super) fn needs_nonce(&self) -> bool {
        let is_key = |user: &User| matches!(user.proof, Proof::Nkey(_) | Proof::Account(_));
        matches!(self, Access::Users(users) if users.iter().any(is_key))
    }

    /// Returns what a client with these options, which connects from an address, may do. If it may
    /// not connect, returns what is wrong with its JWT, if that may help its user.
    pub(super) fn admit(
        &self,
        options: &ConnectOptions,
        from: IpAddr,
        shown: &Shown,
        now: SystemTime,
    ) -> Result<Permissions, Option<JwtError>> {
        let users = match self {
            Access::Open => {
                let user = format!("the clients at {}", from.to_canonical());
                return Ok(Permissions {
                    user: Rc::from(user),
                    ..Permissions::default()
                });
            }
            Access::Users(users) => users,
        };
        let now_s = now
            .duration_since(UNIX_EPOCH)
            .map_or(0, |now| now.as_secs());
        let (place, jwt) = match options.jwt.as_deref() {
            None | Some("") => (find(users, options, shown).ok_or(None)?, None),
            Some(_) => match find_account(users, options, shown, now_s) {
                Ok((place, user)) => (place, Some(user)),
                // A library can send a JWT and what the daemon knows the user by.
                Err(error) => (find(users, options, shown).ok_or(Some(error))?, None),
            },
        };
        Ok(users[place].permissions(place, jwt))
    }
}

impl User {
    /// Returns the permissions of a client of this entry, the one at `place`. An account's user has
    /// those of its JWT as far as the entry has them, too.
    fn permissions(&self, place: usize, jwt: Option<JwtUser>) -> Permissions {
        let name = match &jwt {
            Some(user) => user.key.to_string(),
            None => self.proof.shown_name(),
        };
        let own = |allow: &Option<Vec<String>>| Subjects {
            allow: allow.clone(),
            deny: Vec::new(),
        };
        let mut permissions = Permissions {
            user: Rc::from(match &self.proof {
                Proof::Credentials(Credentials::Token(_)) => {
                    format!("the user with the token of entry {}", place + 1)
                }
                _ => format!("the user {name}"),
            }),
            name: Some(Rc::from(name)),
            priority: self.priority,
            publish: vec![own(&self.publish)],
            subscribe: vec![own(&self.subscribe)],
            expires: None,
        };
        if let Some(user) = jwt {
            permissions.publish.push(user.publish);
            permissions.subscribe.push(user.subscribe);
            permissions.expires = user.expires;
        }
        permissions
    }
}

/// The part of a client's proof that is not in CONNECT.
#[derive(Clone, Debug, Default)]
pub(super) struct Shown {
    /// The nonce in the client's INFO.
    pub(super) nonce: Option<Nonce>,
    /// The names in the client's certificate.
    pub(super) names: Vec<String>,
    /// Whether the client has connected over WebSocket.
    pub(super) is_websocket: bool,
}

/// Returns the place of the account that has signed the client's JWT, and the user. If there is no
/// such account, returns what is wrong with the JWT.
fn find_account(
    users: &[User],
    options: &ConnectOptions,
    shown: &Shown,
    now_s: u64,
) -> Result<(usize, JwtUser), JwtError> {
    let mut wrong = JwtError::Signature(SIGNERS);
    for (place, user) in users.iter().enumerate() {
        let Proof::Account(account) = &user.proof else {
            continue;
        };
        match account.admit(options, shown, now_s) {
            Ok(user) => return Ok((place, user)),
            Err(JwtError::Signature(_)) => {}
            Err(error) => wrong = error,
        }
    }
    Err(wrong)
}

/// Returns the place of the first user that a client is. Names in its certificate count only
/// without other credentials, in the order of the certificate.
fn find(users: &[User], options: &ConnectOptions, shown: &Shown) -> Option<usize> {
    let position =
        |holds: &dyn Fn(&Proof) -> bool| users.iter().position(|user| holds(&user.proof));
    if !options.have_credentials() {
        let mut names = shown.names.iter();
        return names.find_map(|name| position(&|proof| proof.is_certificate_of(name)));
    }
    position(&|proof| match proof {
        Proof::Credentials(credentials) => credentials.fit(options),
        Proof::Nkey(key) => options.are_signed_by(key, shown.nonce),
        Proof::Certificate(_) | Proof::Account(_) => false,
    })
}

impl Proof {
    fn is_certificate_of(&self, name: &str) -> bool {
        matches!(self, Proof::Certificate(own) if own == name)
    }

    /// Returns the user's name as nats-server's monitoring shows it: tokens are secrets.
    fn shown_name(&self) -> String {
        match self {
            Proof::Credentials(Credentials::Password { name, .. }) => name.clone(),
            Proof::Credentials(Credentials::Token(_)) => "[REDACTED]".to_owned(),
            Proof::Nkey(key) => key.to_string(),
            Proof::Account(account) => account.key().to_owned(),
            Proof::Certificate(name) => name.clone(),
        }
    }
}

impl ConnectOptions {
    fn have_credentials(&self) -> bool {
        let texts = [
            &self.user,
            &self.pass,
            &self.auth_token,
            &self.nkey,
            &self.jwt,
        ];
        let mut given = texts.into_iter().flatten();
        given.any(|text| !text.is_empty())
    }

    /// Returns whether the client names this key and has signed the nonce with its seed.
    fn are_signed_by(&self, key: &Nkey, nonce: Option<Nonce>) -> bool {
        let named = self.nkey.as_deref().and_then(|text| text.parse().ok());
        match (nonce, &self.sig) {
            (Some(nonce), Some(sig)) => named == Some(*key) && key.has_signed(nonce, sig),
            _ => false,
        }
    }
}

impl Credentials {
    fn fit(&self, options: &ConnectOptions) -> bool {
        let is = |given: &Option<String>, own: &str| {
            let given = given.as_deref().unwrap_or_default();
            bool::from(given.as_bytes().ct_eq(own.as_bytes()))
        };
        match self {
            Credentials::Password { name, password } => {
                is(&options.user, name) & is(&options.pass, password)
            }
            Credentials::Token(token) => is(&options.auth_token, token),
        }
    }
}

/// The permissions of one client.
#[derive(Clone, Debug)]
pub(super) struct Permissions {
    /// The user, in words; without users, the clients of the address.
    pub(super) user: Rc<str>,
    /// The user's name, which the monitoring shows; `None` without users.
    pub(super) name: Option<Rc<str>>,
    pub(super) priority: u16,
    /// All of them have to permit a subject.
    publish: Vec<Subjects>,
    subscribe: Vec<Subjects>,
    /// The time at which the connection ends, in seconds since 1970.
    pub(super) expires: Option<u64>,
}

/// The subjects that a client may use.
#[derive(Clone, Debug, Default)]
pub(super) struct Subjects {
    /// All if `None`.
    pub(super) allow: Option<Vec<String>>,
    pub(super) deny: Vec<String>,
}

impl Subjects {
    fn allow(&self, pattern: &[u8]) -> bool {
        let Some(allow) = &self.allow else {
            return true;
        };
        allow.iter().any(|own| matches(own.as_bytes(), pattern))
    }
}

impl Default for Permissions {
    fn default() -> Permissions {
        Permissions {
            user: Rc::from(""),
            name: None,
            priority: PRIORITY,
            publish: Vec::new(),
            subscribe: Vec::new(),
            expires: None,
        }
    }
}

impl Permissions {
    pub(super) fn may_publish(&self, subject: &[u8]) -> bool {
        let denies = |pattern: &String| matches(pattern.as_bytes(), subject);
        let mut all = self.publish.iter();
        all.all(|own| own.allow(subject) && !own.deny.iter().any(denies))
    }

    /// Returns whether the client may subscribe to a pattern. One that contains a subject that is
    /// denied is denied as a whole.
    pub(super) fn may_subscribe(&self, pattern: &[u8]) -> bool {
        let denies = |denied: &String| overlap(denied.as_bytes(), pattern);
        let mut all = self.subscribe.iter();
        all.all(|own| own.allow(pattern) && !own.deny.iter().any(denies))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn options(user: Option<&str>, pass: Option<&str>, token: Option<&str>) -> ConnectOptions {
        ConnectOptions {
            user: user.map(str::to_owned),
            pass: pass.map(str::to_owned),
            auth_token: token.map(str::to_owned),
            ..ConnectOptions::default()
        }
    }

    fn admit(access: &Access, options: &ConnectOptions) -> Option<Permissions> {
        let shown = Shown::default();
        access.admit(options, FROM, &shown, SystemTime::now()).ok()
    }

    #[test]
    fn a_signature_is_of_one_key_and_one_nonce() {
        let pairs = [(); 2].map(|()| nkeys::KeyPair::new_user());
        let key: Nkey = pairs[0].public_key().parse().unwrap();
        let access = Access::Users(vec![User::new(key)]);
        assert!(access.needs_nonce() && !Access::Open.needs_nonce());
        let nonces = [Nonce::random(), Nonce::random()];
        let admitted = |named: usize, signing: usize, signed: usize, shown: Option<Nonce>| {
            let signature = pairs[signing].sign(nonces[signed].text().as_bytes());
            let options = ConnectOptions {
                nkey: Some(pairs[named].public_key()),
                sig: Some(base64::Engine::encode(
                    &base64::engine::general_purpose::URL_SAFE_NO_PAD,
                    signature.unwrap(),
                )),
                ..ConnectOptions::default()
            };
            let shown = Shown {
                nonce: shown,
                ..Shown::default()
            };
            let admitted = access.admit(&options, FROM, &shown, SystemTime::now());
            admitted.ok().map(|permissions| permissions.name.unwrap())
        };
        let name = admitted(0, 0, 0, Some(nonces[0])).unwrap();
        assert_eq!(*name, pairs[0].public_key());
        assert!(admitted(0, 1, 0, Some(nonces[0])).is_none(), "another seed");
        assert!(admitted(1, 1, 0, Some(nonces[0])).is_none(), "another user");
        assert!(admitted(0, 0, 1, Some(nonces[0])).is_none(), "a repetition");
        assert!(admitted(0, 0, 0, None).is_none());
        let unsigned = ConnectOptions {
            nkey: Some(pairs[0].public_key()),
            ..ConnectOptions::default()
        };
        let shown = Shown {
            nonce: Some(nonces[0]),
            ..Shown::default()
        };
        let admitted = access.admit(&unsigned, FROM, &shown, SystemTime::now());
        assert!(admitted.is_err());
    }

    #[test]
    fn a_certificate_is_that_of_the_user_of_its_first_name() {
        let password = Credentials::Password {
            name: "ann".to_owned(),
            password: "secret".to_owned(),
        };
        let proofs = ["a.example.net", "ann@example.net"].map(str::to_owned);
        let proofs = proofs.map(|name| User::new(Proof::Certificate(name)));
        let users = proofs.into_iter().chain([User::new(password)]);
        let access = Access::Users(users.collect());
        let admitted = |options: &ConnectOptions, names: &[&str]| {
            let names = names.iter().map(|name| name.to_string()).collect();
            let shown = Shown {
                names,
                ..Shown::default()
            };
            let admitted = access.admit(options, FROM, &shown, SystemTime::now());
            let permissions = admitted.ok()?;
            Some(permissions.name.unwrap().to_string())
        };
        let none = options(None, None, None);
        let both = ["ann@example.net", "a.example.net"];
        assert_eq!(admitted(&none, &both).unwrap(), "ann@example.net");
        let second = ["CN=Ann", "a.example.net"];
        assert_eq!(admitted(&none, &second).unwrap(), "a.example.net");
        assert_eq!(admitted(&none, &["A.example.net"]), None);
        assert_eq!(admitted(&none, &[]), None);
        let right = options(Some("ann"), Some("secret"), None);
        assert_eq!(admitted(&right, &both).unwrap(), "ann");
        let wrong = options(Some("ann"), Some("guess"), None);
        assert_eq!(admitted(&wrong, &both), None, "wrong credentials");
    }

    #[test]
    fn only_the_right_credentials_are_admitted() {
        let password = Credentials::Password {
            name: "ann".to_owned(),
            password: "secret".to_owned(),
        };
        let access = Access::Users(vec![
            User::new(password),
            User::new(Credentials::Token("t0ken".to_owned())),
        ]);
        let admitted = |user, pass, token| admit(&access, &options(user, pass, token)).is_some();
        assert!(admitted(Some("ann"), Some("secret"), None));
        assert!(admitted(None, None, Some("t0ken")));
        for (user, pass, token) in [
            (None, None, None),
            (Some("ann"), None, None),
            (Some("ann"), Some("secre"), None),
            (Some("bob"), Some("secret"), None),
            (None, None, Some("")),
            (Some("ann"), None, Some("secret")),
        ] {
            assert!(!admitted(user, pass, token), "{user:?} {pass:?} {token:?}");
        }
        assert!(admit(&Access::Open, &options(None, None, None)).is_some());
    }

    #[test]
    fn permissions_name_patterns() {
        let user = User {
            publish: Some(vec!["a.*".to_owned()]),
            subscribe: Some(vec!["a.>".to_owned(), "b".to_owned()]),
            ..User::new(Credentials::Token("t".to_owned()))
        };
        let access = Access::Users(vec![user]);
        let permissions = admit(&access, &options(None, None, Some("t"))).unwrap();
        assert!(permissions.may_publish(b"a.b"));
        assert!(!permissions.may_publish(b"a.b.c"));
        assert!(permissions.may_subscribe(b"a.*.c"));
        assert!(permissions.may_subscribe(b"b"));
        assert!(!permissions.may_subscribe(b">"));
        assert!(!permissions.may_subscribe(b"*"));
    }
}
