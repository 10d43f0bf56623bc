//! The file of `manyflow switch`, or the options that stand for it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context as _, Result};
use manyflow_ensembles::anypoint::switch::{MemberConfig, ServiceConfig};
use serde::Deserialize;

use crate::address::{connect_with_port, explain, listen_of_key, resolve};
use crate::cli::{KeyRange, PolicyArg, SwitchArgs};
use manyflow_terminal::members::{MembersArgs, check_service, members_at};
use manyflow_terminal::usage;

/// The file of a switch.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct ServiceFile {
    listen: Option<String>,
    /// The service of a switch of initiators.
    to: Option<String>,
    policy: Option<PolicyArg>,
    metrics: Option<String>,
    #[serde(default)]
    members: BTreeMap<String, Entry>,
    /// The order of the members on the command line; in a file, that of their names.
    #[serde(skip)]
    order: Vec<String>,
}

/// The ends that accept the connections of a switch.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Ends {
    /// The members of a service.
    Members(ServiceConfig),
    /// A service, or its switch, to which the clients of the switch have one connection.
    Peer(SocketAddr),
}

/// A member: its address, or a table.
#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "a member is an address such as \"10.0.0.1:7000\", or a table with the key `address`"
)]
enum Entry {
    Address(String),
    Table(Table),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Table {
    address: String,
    weight: Option<f64>,
    #[serde(default)]
    keys: Vec<String>,
}

impl ServiceFile {
    /// Reads the file, or takes the options of the command line.
    pub(super) fn of(args: &SwitchArgs) -> Result<ServiceFile> {
        match &args.config {
            Some(path) => ServiceFile::read(path),
            None => ServiceFile::of_arguments(args),
        }
    }

    fn read(path: &Path) -> Result<ServiceFile> {
        let shown = path.display();
        let text = manyflow_terminal::failure::read_description(path)?;
        let file: Result<ServiceFile, toml::de::Error> = toml::from_str(&text);
        let mut file = file.map_err(|error| {
            let before = error.span().map_or("", |span| &text[..span.start]);
            let line = before.matches('\n').count() + 1;
            usage(format!("{shown}:{line}: {}", error.message()))
        })?;
        file.order = file.members.keys().cloned().collect();
        Ok(file)
    }

    fn of_arguments(args: &SwitchArgs) -> Result<ServiceFile> {
        let mut file = ServiceFile {
            to: args.to.clone(),
            policy: args.to.is_none().then_some(args.policy),
            ..ServiceFile::of_members(&args.members)?
        };
        for weight in &args.weight {
            file.table("--weight", &weight.name)?.weight = Some(weight.value);
        }
        for keys in &args.keys {
            let (first, last) = keys.value.0.clone().into_inner();
            let range = format!("{first}-{last}");
            file.table("--keys", &keys.name)?.keys.push(range);
        }
        Ok(file)
    }

    /// Takes the members of the command line.
    fn of_members(members: &MembersArgs) -> Result<ServiceFile> {
        members.check()?;
        let mut file = ServiceFile::default();
        for member in &members.member {
            let table = Table {
                address: member.value.clone(),
                weight: None,
                keys: vec![],
            };
            file.members
                .insert(member.name.clone(), Entry::Table(table));
            file.order.push(member.name.clone());
        }
        Ok(file)
    }

    fn table(&mut self, option: &str, name: &str) -> Result<&mut Table> {
        match self.members.get_mut(name) {
            Some(Entry::Table(table)) => Ok(table),
            _ => Err(usage(format!(
                "{option} {name}: there is no --member with this name"
            ))),
        }
    }

    /// Returns the address for peers.
    pub(super) fn listen(&self, args: &SwitchArgs) -> Result<SocketAddr> {
        let missing = || usage("the file has no `listen`: name the address for peers");
        let of_file = || {
            let text = self.listen.as_deref().ok_or_else(missing)?;
            listen_of_key::<7000>("listen", text)
        };
        args.listen.map_or_else(of_file, Ok)
    }

    /// Returns the address for metrics.
    pub(super) fn metrics(&self, args: &SwitchArgs) -> Result<Option<SocketAddr>> {
        let text = self.metrics.as_deref();
        let of_file = text.map(|text| listen_of_key::<9464>("metrics", text));
        Ok(args.metrics.or(of_file.transpose()?))
    }

    /// Returns the ends that accept the switch's connections. Names of hosts are looked up.
    pub(super) async fn ends(&self) -> Result<Ends> {
        let Some(to) = &self.to else {
            return self.service().await.map(Ends::Members);
        };
        if self.policy.is_some() || !self.members.is_empty() {
            let reason = "a switch with `to` has neither members nor a policy: its clients share \
                          one connection to that service";
            return Err(usage(reason));
        }
        connect_with_port(to).map_err(|error| explain("to", error))?;
        let found = resolve(to).await.context("to")?;
        Ok(Ends::Peer(found))
    }

    /// Returns the members and the policy. Names of hosts are looked up.
    async fn service(&self) -> Result<ServiceConfig> {
        let mut members = Vec::new();
        for name in &self.order {
            members.extend(self.members[name].members(name).await?);
        }
        let policy = self.policy.unwrap_or_default().into();
        check_service(ServiceConfig { members, policy })
    }
}

impl Entry {
    async fn members(&self, name: &str) -> Result<Vec<MemberConfig>> {
        let (address, weight, keys) = match self {
            Entry::Address(address) => (address, None, &[][..]),
            Entry::Table(table) => (&table.address, table.weight, &table.keys[..]),
        };
        let range = |text: &String| text.parse().map(|KeyRange(range)| range);
        let keys: Result<Vec<_>, String> = keys.iter().map(range).collect();
        let keys = keys.map_err(|error| usage(format!("member {name}: {error}")))?;
        let mut members = members_at(name, address).await?;
        for member in &mut members {
            member.weight = weight.unwrap_or(member.weight);
            member.keys.clone_from(&keys);
        }
        Ok(members)
    }
}
