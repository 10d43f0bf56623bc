//! The members of a service on the command line: `--member`, as all roles with a switch read it.

use std::convert::Infallible;
use std::fmt::Display as Text;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use manyflow_ensembles::anypoint::switch::{
    MemberConfig, MemberSource, ServiceConfig, ServiceError,
};
use manyflow_net::dns::Nameservers;
use serde_json::json;

use crate::address::explain;
use crate::{Display, usage};

/// The time between two looks at the names of members.
const REFRESH: Duration = Duration::from_secs(5);

/// A value of a member, such as `a=2`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named<T> {
    /// The member's name.
    pub name: String,
    /// The value.
    pub value: T,
}

impl<T: FromStr<Err: Text>> FromStr for Named<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Named<T>, String> {
        let (name, value) = text
            .split_once('=')
            .ok_or_else(|| format!("`{text}` has no `=` between a member's name and its value"))?;
        Ok(Named {
            name: name.to_owned(),
            value: value.parse().map_err(|error| format!("{error}"))?,
        })
    }
}

/// The option for members. Commands have another one for a switch instead, and require one of the
/// two.
#[derive(Clone, Debug, Args)]
pub struct MembersArgs {
    /// A member of the service; can be repeated. dns:HOST:PORT stands for one at each address of a
    /// host, and srv:NAME for one at each host of a service; names are looked up every 5 s
    #[arg(long, value_name = "[NAME=]HOST:PORT", value_parser = member)]
    pub member: Vec<Named<String>>,
}

/// Reads a member. Without a name, it is called by its address.
fn member(text: &str) -> Result<Named<String>, String> {
    let (name, value) = text.split_once('=').unwrap_or((text, text));
    let source: Result<MemberSource, _> = value.parse();
    source.map_err(|error| error.to_string())?;
    Ok(Named {
        name: name.to_owned(),
        value: value.to_owned(),
    })
}

impl MembersArgs {
    /// Returns whether the command line names no members.
    pub fn is_empty(&self) -> bool {
        self.member.is_empty()
    }

    /// Fails if a name is given twice.
    ///
    /// # Errors
    /// An error of the command line.
    pub fn check(&self) -> Result<()> {
        for (place, member) in self.member.iter().enumerate() {
            let mut before = self.member[..place].iter();
            if before.any(|other| other.name == member.name) {
                return Err(usage(format!("--member {}: given twice", member.name)));
            }
        }
        Ok(())
    }

    /// Returns the members. Names of hosts are looked up. A member whose name is not found counts
    /// as one that is down, with a warning: in many networks, the name of a host lasts as long as
    /// the host runs.
    ///
    /// # Errors
    /// If no name is found, or two members are the same.
    pub async fn look_up(&self) -> Result<Found> {
        let found = self.find(&[]).await?;
        found.warn(None);
        Ok(found)
    }

    /// Looks the members up again every 5 s, and gives them to `set` if they are others than those
    /// that were found before. Says so, and warns of names that are not found: their members remain
    /// as they are.
    ///
    /// # Errors
    /// If standard output cannot be written.
    pub async fn follow(
        &self,
        mut before: Found,
        set: impl Fn(Vec<MemberConfig>) -> Result<(), ServiceError>,
        display: &Display,
    ) -> Result<Infallible> {
        if self.is_empty() {
            return std::future::pending().await;
        }
        loop {
            tokio::time::sleep(REFRESH).await;
            let known = &before.members;
            let found = self.find(known).await;
            let taken = found.and_then(|found| {
                if found.members != *known {
                    set(found.members.clone())?;
                }
                Ok(found)
            });
            let found = taken.unwrap_or_else(|error| Found {
                members: known.clone(),
                complaint: Some(format!("the members remain as they are: {error:#}")),
            });
            found.warn(before.complaint.as_ref());
            if found.members != before.members {
                report(found.members.len(), display)?;
            }
            before = found;
        }
    }

    /// Looks the members up. Those of `known` stand for names that are not found.
    async fn find(&self, known: &[MemberConfig]) -> Result<Found> {
        self.check()?;
        let (mut members, mut failed) = (Vec::new(), Vec::new());
        for option in &self.member {
            match members_at(&option.name, &option.value).await {
                Ok(found) => members.extend(found),
                Err(error) => {
                    let known = known.iter().filter(|member| is_of(member, option));
                    members.extend(known.cloned());
                    failed.push(error);
                }
            }
        }
        if members.is_empty()
            && let Some(error) = failed.pop()
        {
            return Err(error);
        }
        let service = check_service(ServiceConfig {
            members,
            ..ServiceConfig::default()
        })?;
        let reasons: Vec<_> = failed.iter().map(|error| format!("{error:#}")).collect();
        let complaint = format!("{}; the others are used", reasons.join("; "));
        Ok(Found {
            members: service.members,
            complaint: (!reasons.is_empty()).then_some(complaint),
        })
    }
}

/// The members that were found.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The members.
    pub members: Vec<MemberConfig>,
    /// Why not all of them were found.
    complaint: Option<String>,
}

impl Found {
    /// Warns of names that were not found, unless that was said before.
    fn warn(&self, before: Option<&String>) {
        if let Some(complaint) = self.complaint.as_ref().filter(|now| Some(*now) != before) {
            tracing::warn!("{complaint}");
        }
    }
}

/// Returns whether an option stands for this member.
fn is_of(member: &MemberConfig, option: &Named<String>) -> bool {
    let rest = member.name.strip_prefix(&option.name);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('@'))
}

/// Says that the members have changed.
fn report(members: usize, display: &Display) -> Result<()> {
    display.print_line(&format!("{}: {members} members", display.command()))?;
    Ok(display.print_json(&json!({"event": "reloaded", "members": members}))?)
}

/// Returns the members that an address stands for, as an option or a file has it.
///
/// # Errors
/// If a name cannot be looked up.
pub async fn members_at(name: &str, address: &str) -> Result<Vec<MemberConfig>> {
    let source: MemberSource = address.parse().map_err(|error| explain(name, error))?;
    let found = source.look_up(name, &Nameservers::of_system()).await;
    let found = found.with_context(|| format!("member {name}"))?;
    let member = |(name, address)| MemberConfig {
        name,
        address,
        weight: 1.0,
        keys: Vec::new(),
    };
    Ok(found.into_iter().map(member).collect())
}

/// Returns a service that can be used.
///
/// # Errors
/// If it has no members, or two that cannot be distinguished: an error of the command line.
pub fn check_service(service: ServiceConfig) -> Result<ServiceConfig> {
    if service.members.is_empty() {
        return Err(usage("the service has no members: name at least one"));
    }
    service.check().map_err(|error| usage(error.to_string()))?;
    Ok(service)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(members: &[&str]) -> MembersArgs {
        let member = members.iter().map(|text| member(text).unwrap());
        MembersArgs {
            member: member.collect(),
        }
    }

    #[tokio::test]
    async fn a_name_that_is_not_found_leaves_its_former_members_and_all_others() {
        let two = args(&["127.0.0.1:1", "web=dns:no-such-host.invalid:1"]);
        let found = two.look_up().await.unwrap();
        let first = found.members[0].clone();
        assert_eq!(found.members.len(), 1);
        assert_eq!(first.name, "127.0.0.1:1");
        let complaint = found.complaint.unwrap();
        assert!(complaint.contains("no-such-host.invalid"), "{complaint}");

        let of_name = |name: &str, port| MemberConfig {
            name: name.to_owned(),
            address: ([192, 0, 2, 1], port).into(),
            ..first.clone()
        };
        let former = of_name("web@192.0.2.1:1", 1);
        let known = [former.clone(), of_name("website", 2)];
        let found = two.find(&known).await.unwrap();
        assert_eq!(found.members, [first, former]);

        let none = args(&["a=no-such-host.invalid:1", "b=no-such-host.invalid:2"]);
        let error = none.look_up().await.unwrap_err();
        assert!(format!("{error:#}").contains("no-such-host.invalid"));
    }

    #[tokio::test]
    async fn members_that_are_the_same_are_refused() {
        let twice = args(&["a=127.0.0.1:1", "a=127.0.0.1:2"]);
        let error = twice.look_up().await.unwrap_err();
        assert_eq!(error.to_string(), "--member a: given twice");
        let same = args(&["a=127.0.0.1:1", "b=127.0.0.1:1"]);
        let error = same.look_up().await.unwrap_err().to_string();
        assert!(error.contains("a and b have the same address"), "{error}");
        assert!(member("a=127.0.0.1").is_err(), "there is no port");
    }
}
