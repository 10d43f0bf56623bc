//! The file of `manyflow daemon`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use manyflow_core::units::{Bytes, parse_duration};
use manyflow_messages::{
    Access, Account, CLIENT_PORT, CLIENT_SPREAD_PORT, CLIENT_WS_PORT, ControllerConfig,
    Credentials, DAEMON_PORT, DaemonConfig, EVICT_AFTER, LinkConfig, LinkSecurity, LinkTls, Nkey,
    Proof, User, group_number,
};
use manyflow_net::tls::Identity;
use manyflow_overlay::cost_benefit::Benefits;
use manyflow_overlay::tfrc::TfrcConfig;
use manyflow_overlay::{DaemonId, OverlayConfig, SlowPolicy};
use manyflow_scenario::protocols::{
    BenefitEntry, ControllerName, CostBenefitTable, LawName, SlowName, TfrcTable,
};
use manyflow_scenario::read_tables;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::address;
use crate::cli::DaemonArgs;
use manyflow_terminal::usage;

/// The key of tables of patterns that stands for all others.
const DEFAULT: &str = "default";

/// The ways of a table of users to name users.
const USER_KINDS: &str = "a user has either a name and a password-file, or a token-file, or an nkey, \
                          or the name in a certificate, or an account, or an account-jwt and its \
                          operator";

/// The file of a daemon.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct DaemonFile {
    /// The name of the overlay.
    #[serde(default = "overlay_name")]
    overlay: String,
    /// The daemon's name.
    pub(super) name: String,
    /// The daemon's number, if another daemon has that of its name.
    id: Option<u16>,
    listen: Option<String>,
    clients: Option<String>,
    /// The address for clients over WebSocket.
    clients_ws: Option<String>,
    /// The address for clients that speak Spread's protocol.
    clients_spread: Option<String>,
    /// The address of `clients` as clients of other daemons reach it.
    advertise: Option<String>,
    /// The same for `clients_ws`.
    advertise_ws: Option<String>,
    /// The origins of further pages that may connect to `clients_ws`.
    #[serde(default)]
    origins: Vec<String>,
    metrics: Option<String>,
    /// Neither TLS nor passwords.
    #[serde(default)]
    insecure: bool,
    /// The certificates of daemons.
    tls: Option<LinkTlsTable>,
    /// The certificate for clients.
    client_tls: Option<ClientTlsTable>,
    /// The daemons that may connect besides those of `links`; every daemon if missing.
    accept: Option<Vec<String>>,
    pub(super) connections_max: Option<usize>,
    /// The memory of all groups with members.
    #[serde(default, deserialize_with = "bytes")]
    group_memory: Option<usize>,
    /// The time for which messages are kept for members that cannot be reached.
    #[serde(default, deserialize_with = "duration")]
    hold: Option<Duration>,
    /// The time between two PINGs to a client.
    #[serde(default, deserialize_with = "duration")]
    ping_interval: Option<Duration>,
    /// The length of the longest message.
    #[serde(default, deserialize_with = "bytes")]
    max_payload: Option<usize>,
    #[serde(default = "cost_benefit")]
    controller: ControllerName,
    #[serde(default)]
    links: BTreeMap<String, LinkEntry>,
    #[serde(default)]
    slow: BTreeMap<String, SlowName>,
    #[serde(default)]
    benefit: BTreeMap<String, BenefitEntry>,
    #[serde(default)]
    cost_benefit: CostBenefitTable,
    #[serde(default)]
    tfrc: TfrcTable,
    #[serde(default)]
    users: Vec<UserTable>,
    /// The folder of the file, in which relative paths begin.
    #[serde(skip)]
    folder: PathBuf,
}

/// A neighbour: its address, or a table.
#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "a link is an address such as \"b.example.net:4747\", or a table with the key `address`"
)]
enum LinkEntry {
    Address(String),
    Table(LinkTable),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct LinkTable {
    address: String,
    weight: Option<u32>,
    id: Option<u16>,
}

/// `tls`
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct LinkTlsTable {
    ca: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
}

/// `client-tls`
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct ClientTlsTable {
    certificate: PathBuf,
    key: PathBuf,
    /// The authorities of clients' certificates, which clients have to show then.
    ca: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct UserTable {
    name: Option<String>,
    password_file: Option<PathBuf>,
    token_file: Option<PathBuf>,
    nkey: Option<String>,
    certificate: Option<String>,
    /// The public key of an account, which signs JWTs of users.
    account: Option<String>,
    /// The JWT of an account that `operator` has signed.
    account_jwt: Option<PathBuf>,
    operator: Option<String>,
    priority: Option<u16>,
    publish: Option<Vec<String>>,
    subscribe: Option<Vec<String>>,
}

/// Reads a time such as `"5 s"`.
fn duration<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(value)?;
    parse_duration(&text).map(Some).map_err(D::Error::custom)
}

/// Reads a size such as `"1 MiB"`.
fn bytes<'de, D: Deserializer<'de>>(value: D) -> Result<Option<usize>, D::Error> {
    let text = String::deserialize(value)?;
    let bytes: Bytes = text.parse().map_err(D::Error::custom)?;
    usize::try_from(bytes.0).map(Some).map_err(D::Error::custom)
}

fn overlay_name() -> String {
    "manyflow".to_owned()
}

fn cost_benefit() -> ControllerName {
    ControllerName::CostBenefit
}

impl DaemonFile {
    /// Reads a file.
    ///
    /// # Errors
    /// If the file cannot be read or is invalid. Messages have the line and the key.
    pub(super) fn read(path: &Path) -> Result<DaemonFile> {
        let shown = path.display();
        let text = manyflow_terminal::failure::read_description(path)?;
        let file = read_tables(&shown.to_string(), &text);
        let file: DaemonFile = file.map_err(|error| usage(error.to_string()))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        Ok(DaemonFile {
            folder: folder.to_owned(),
            ..file
        })
    }

    /// Returns the file that the options of the small case stand for.
    pub(super) fn of_arguments(args: &DaemonArgs) -> Result<DaemonFile> {
        let mut table = toml::Table::new();
        let texts = [
            ("name", &args.name),
            ("listen", &args.listen),
            ("clients", &args.clients),
            ("clients-ws", &args.clients_ws),
            ("clients-spread", &args.clients_spread),
            ("controller", &args.controller),
        ];
        for (key, value) in texts {
            if let Some(value) = value {
                table.insert(key.to_owned(), value.clone().into());
            }
        }
        table.insert("insecure".to_owned(), args.insecure.into());
        let links = args
            .link
            .iter()
            .map(|link| (link.name.clone(), link.address.clone().into()));
        table.insert("links".to_owned(), toml::Value::Table(links.collect()));
        table.try_into().map_err(|error: toml::de::Error| {
            usage(format!("{}: see manyflow daemon --help", error.message()))
        })
    }

    /// Returns the address for metrics.
    pub(super) fn metrics(&self) -> Result<Option<SocketAddr>> {
        let metrics = self.metrics.as_deref();
        metrics
            .map(|text| address::listen_of_key::<9464>("metrics", text))
            .transpose()
    }

    /// Checks that all addresses are ones. Names are looked up later.
    fn check_addresses(&self) -> Result<()> {
        if let Some(text) = &self.listen {
            address::listen_of_key::<DAEMON_PORT>("listen", text)?;
        }
        if let Some(text) = &self.clients_ws {
            address::listen_of_key::<CLIENT_WS_PORT>("clients-ws", text)?;
        }
        if let Some(text) = &self.clients {
            let checked = address::check_clients::<CLIENT_PORT>(text);
            checked.map_err(|error| address::explain("clients", error))?;
        }
        if let Some(text) = &self.clients_spread {
            let checked = address::check_clients::<CLIENT_SPREAD_PORT>(text);
            checked.map_err(|error| address::explain("clients-spread", error))?;
        }
        for (name, link) in &self.links {
            let (LinkEntry::Address(text) | LinkEntry::Table(LinkTable { address: text, .. })) =
                link;
            let wrong = |error| address::explain(&format!("the link to {name}"), error);
            address::connect::<DAEMON_PORT>(text).map_err(wrong)?;
        }
        Ok(())
    }

    /// Returns the daemon's configuration.
    ///
    /// # Errors
    /// If keys contradict each other, or a file with a secret cannot be read.
    pub(super) fn config(self) -> Result<DaemonConfig> {
        self.check_addresses()?;
        let defaults = DaemonConfig::new(&self.name, self.security()?);
        Ok(DaemonConfig {
            access: self.access()?,
            client_tls: self.client_tls()?,
            overlay: self.overlay_config(OverlayConfig {
                hold: self.hold.unwrap_or(defaults.overlay.hold),
                state_bytes: self.group_memory.unwrap_or(defaults.overlay.state_bytes),
                ..defaults.overlay
            }),
            controller: match self.controller {
                ControllerName::CostBenefit => {
                    let law = self.cost_benefit.law(LawName::Live);
                    let benefits = self.benefits()?;
                    ControllerConfig::CostBenefit(law.map_err(anyhow::Error::msg)?, benefits)
                }
                _ if !self.benefit.is_empty() => {
                    let message =
                        "[benefit] needs controller = \"cost-benefit\": no other pays clients";
                    return Err(usage(message.to_owned()));
                }
                ControllerName::Tfrc => {
                    ControllerConfig::Tfrc(self.tfrc.config(TfrcConfig::live()))
                }
                ControllerName::None => ControllerConfig::Open,
            },
            overlay_name: self.overlay,
            id: self.id.map(DaemonId),
            listen: self.listen,
            clients: self.clients,
            clients_ws: self.clients_ws,
            clients_spread: self.clients_spread,
            advertise: self.advertise,
            advertise_ws: self.advertise_ws,
            origins: self.origins,
            links: self.links.into_iter().map(link).collect(),
            accepts: self.accept,
            connections_max: self.connections_max.unwrap_or(defaults.connections_max),
            ping_interval: self.ping_interval.unwrap_or(defaults.ping_interval),
            payload_bytes_max: self.max_payload.unwrap_or(defaults.payload_bytes_max),
            ..defaults
        })
    }

    fn security(&self) -> Result<LinkSecurity> {
        match &self.tls {
            Some(tls) => {
                let [ca, certificate, key] =
                    [&tls.ca, &tls.certificate, &tls.key].map(|path| self.folder.join(path));
                let tls = LinkTls::read(&ca, &certificate, &key);
                let tls = tls.map_err(|error| usage(format!("tls: {error}")))?;
                Ok(LinkSecurity::Tls(tls))
            }
            None if self.insecure || (self.links.is_empty() && self.listen.is_none()) => {
                Ok(LinkSecurity::Insecure)
            }
            None => Err(usage(
                "links have no certificates: make them with manyflow keygen --certificates and \
                 name them in [tls], or write insecure = true (--insecure) for a network without strangers",
            )),
        }
    }

    fn client_tls(&self) -> Result<Option<Identity>> {
        let Some(tls) = &self.client_tls else {
            return Ok(None);
        };
        let [certificate, key] = [&tls.certificate, &tls.key].map(|path| self.folder.join(path));
        let identity = match &tls.ca {
            None => Identity::read(&certificate, &key),
            Some(ca) => Identity::read_verifying(&certificate, &key, &self.folder.join(ca)),
        };
        identity
            .map(Some)
            .map_err(|error| usage(format!("client-tls: {error}")))
    }

    fn access(&self) -> Result<Access> {
        if self.users.is_empty() {
            let addresses = [&self.clients, &self.clients_ws, &self.clients_spread];
            if addresses.iter().any(|address| address.is_some()) && !self.insecure {
                return Err(usage(
                    "clients have no users: add [[users]] to its file, or insecure = true (--insecure) for a network without strangers",
                ));
            }
            return Ok(Access::Open);
        }
        let users = self.users.iter().map(|table| self.user(table));
        Ok(Access::Users(users.collect::<Result<_>>()?))
    }

    fn user(&self, table: &UserTable) -> Result<User> {
        let secret = |path: &PathBuf| {
            let path = self.folder.join(path);
            let text = manyflow_terminal::failure::read_description(&path)?;
            let secret = text.trim_end_matches(['\r', '\n']).to_owned();
            match secret.is_empty() {
                true => Err(usage(format!(
                    "{} is empty: write a secret to it",
                    path.display()
                ))),
                false => Ok(secret),
            }
        };
        let (password, token) = (&table.password_file, &table.token_file);
        let keys = (&table.nkey, &table.certificate);
        if let Some(account) = self.account(table)? {
            return Ok(with_rights(User::new(account), table));
        }
        let user = match (&table.name, password, token, keys) {
            (Some(name), Some(path), None, (None, None)) => User::new(Credentials::Password {
                name: name.clone(),
                password: secret(path)?,
            }),
            (_, None, Some(path), (None, None)) => User::new(Credentials::Token(secret(path)?)),
            (None, None, None, (Some(text), None)) => {
                let key: Result<Nkey, _> = text.parse();
                User::new(key.map_err(|error| usage(format!("nkey: {error}")))?)
            }
            (None, None, None, (None, Some(name))) => User::new(Proof::Certificate(name.clone())),
            _ => {
                return Err(usage(USER_KINDS));
            }
        };
        Ok(with_rights(user, table))
    }

    /// Returns the account of a table, if it has one.
    fn account(&self, table: &UserTable) -> Result<Option<Account>> {
        let (files, texts) = (
            [&table.password_file, &table.token_file],
            [&table.name, &table.nkey, &table.certificate],
        );
        let has_others =
            files.iter().any(|file| file.is_some()) || texts.iter().any(|text| text.is_some());
        let account = match (&table.account, &table.account_jwt, &table.operator) {
            (None, None, None) => return Ok(None),
            (Some(key), None, None) if !has_others => {
                Account::of_key(key).map_err(|error| usage(format!("account: {error}")))?
            }
            (None, Some(path), Some(operator)) if !has_others => {
                let path = self.folder.join(path);
                let text = manyflow_terminal::failure::read_description(&path)?;
                let account = Account::of_jwt(&text, operator);
                account.map_err(|error| usage(format!("{}: {error}", path.display())))?
            }
            _ => return Err(usage(USER_KINDS)),
        };
        Ok(Some(account))
    }

    /// Returns the benefits of messages.
    fn benefits(&self) -> Result<Benefits> {
        let mut benefits = Benefits::default();
        for (pattern, BenefitEntry(benefit)) in &self.benefit {
            let check = benefit.check();
            check.map_err(|error| usage(format!("the benefit of {pattern:?}: {error}")))?;
            if pattern == DEFAULT {
                benefits.others = benefit.clone();
            } else {
                let group = group_number(pattern);
                benefits.groups.insert(group, benefit.clone());
            }
        }
        Ok(benefits)
    }

    /// Returns these parameters with the policies of the file.
    fn overlay_config(&self, mut config: OverlayConfig) -> OverlayConfig {
        for (pattern, name) in &self.slow {
            let policy = match name {
                SlowName::Block => SlowPolicy::Block,
                SlowName::Drop => SlowPolicy::Drop,
                SlowName::Evict => SlowPolicy::EvictStalled(EVICT_AFTER),
            };
            if pattern == DEFAULT {
                config.slow = policy;
            } else {
                config.slow_groups.insert(group_number(pattern), policy);
            }
        }
        config
    }
}

/// Returns a user with the priority and the permissions of its table.
fn with_rights(user: User, table: &UserTable) -> User {
    User {
        priority: table.priority.unwrap_or(user.priority),
        publish: table.publish.clone(),
        subscribe: table.subscribe.clone(),
        ..user
    }
}

fn link((name, entry): (String, LinkEntry)) -> LinkConfig {
    let table = match entry {
        LinkEntry::Address(address) => LinkTable {
            address,
            weight: None,
            id: None,
        },
        LinkEntry::Table(table) => table,
    };
    LinkConfig {
        name,
        id: table.id.map(DaemonId),
        address: table.address,
        weight: table.weight.unwrap_or(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &str) -> Result<DaemonFile> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("daemon.toml");
        std::fs::write(&path, format!("name = \"a\"\n{lines}\n")).unwrap();
        DaemonFile::read(&path)
    }

    #[test]
    fn times_and_sizes_have_units() {
        let lines = "hold = \"20 s\"\nping-interval = \"1 min\"\nmax-payload = \"2 MiB\"\n\
                     group-memory = \"3 GB\"";
        let config = read(lines).unwrap().config().unwrap();
        assert_eq!(config.overlay.hold, Duration::from_secs(20));
        assert_eq!(config.ping_interval, Duration::from_secs(60));
        assert_eq!(config.payload_bytes_max, 2 << 20);
        assert_eq!(config.overlay.state_bytes, 3_000_000_000);
        let defaults = read("").unwrap().config().unwrap();
        assert_eq!(defaults.overlay.hold, Duration::from_secs(10));
    }

    #[test]
    fn an_entry_of_users_can_be_an_account() {
        let key = "AD7SEANS6BCBF6FHIB7SQ3UGJVPW53BXOALP75YXJBBXQL7EAFB6NJNA";
        let entry = format!("clients = \"127.0.0.1:0\"\n[[users]]\naccount = \"{key}\"");
        let config = read(&entry).unwrap().config().unwrap();
        let Access::Users(users) = config.access else {
            panic!("{:?}", config.access);
        };
        assert!(matches!(&users[0].proof, Proof::Account(own) if own.key() == key));
        for (from, to, reason) in [
            ("account =", "name = \"ann\"\naccount =", "or an account"),
            ("account =", "operator = \"O\"\naccount =", "or an account"),
            ("account =", "operator =", "or an account"),
            ("AD7", "OD7", "account: it is not the public key"),
        ] {
            let error = read(&entry.replace(from, to)).unwrap().config();
            let error = error.err().unwrap().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn a_user_with_an_nkey_has_nothing_else() {
        let key = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4";
        let user = format!("clients = \"127.0.0.1:0\"\n[[users]]\nnkey = \"{key}\"");
        let config = read(&user).unwrap().config().unwrap();
        let Access::Users(users) = config.access else {
            panic!("{:?}", config.access);
        };
        assert!(matches!(users[0].proof, Proof::Nkey(own) if own.to_string() == key));
        for (more, reason) in [
            ("name = \"ann\"", "or an nkey"),
            ("token-file = \"t\"", "or an nkey"),
        ] {
            let error = read(&format!("{user}\n{more}")).unwrap().config();
            let error = error.err().unwrap().to_string();
            assert!(error.contains(reason), "{error}");
        }
        let wrong = read(&user.replace("NF4", "NF5")).unwrap().config();
        let error = wrong.err().unwrap().to_string();
        assert!(
            error.starts_with("nkey: it is not the public key"),
            "{error}"
        );
    }

    #[test]
    fn a_wrong_time_or_size_is_refused_with_its_line() {
        for (line, reason) in [
            ("hold = \"5\"", "`5` is not a time"),
            ("ping-interval = 5", "expected a string"),
            ("max-payload = \"1 s\"", "`1 s` is not a size"),
        ] {
            let error = read(line).unwrap_err().to_string();
            assert!(error.contains("daemon.toml:2: "), "{error}");
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn the_file_of_the_manual_is_read() {
        let manual = include_str!("../../../../docs/overlay-operations.md");
        let (_, file) = manual
            .split_once("This one has every key:\n\n```toml\n")
            .unwrap();
        let (file, _) = file.split_once("```").unwrap();
        let file: DaemonFile = read_tables("overlay.toml", file).unwrap();
        assert_eq!(file.benefits().unwrap().groups.len(), 3);
        let tfrc = file.tfrc.config(TfrcConfig::live());
        assert_eq!(tfrc.initial_rate.bits_per_s(), 320_000);
    }

    #[test]
    fn a_benefit_without_meaning_is_refused() {
        for (lines, reason) in [
            (
                "benefit.default = \"per-packet\"",
                "expected a benefit such as",
            ),
            (
                "benefit.\"a.>\" = { half-at = 0 }",
                "the benefit of \"a.>\": the rate",
            ),
            (
                "benefit.default = \"per-receiver\"\ncontroller = \"tfrc\"",
                "[benefit] needs controller = \"cost-benefit\"",
            ),
        ] {
            let lines = format!("insecure = true\n{lines}");
            let error = read(&lines).and_then(DaemonFile::config).err().unwrap();
            assert!(error.to_string().contains(reason), "{error}");
        }
    }
}
