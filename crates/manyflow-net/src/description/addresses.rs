//! Names and addresses of sessions, and the checks for them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::error::{DescriptionError, require};
use crate::multicast::is_source_specific;

const NAME_BYTES_MAX: usize = 255;

/// Returns the group `number` addresses after `first`; `None` after the last address.
pub fn group_after(first: IpAddr, number: u32) -> Option<IpAddr> {
    Some(match first {
        IpAddr::V4(first) => Ipv4Addr::from_bits(first.to_bits().checked_add(number)?).into(),
        IpAddr::V6(first) => {
            Ipv6Addr::from_bits(first.to_bits().checked_add(number.into())?).into()
        }
    })
}

/// Checks the name of a session.
///
/// # Errors
/// If it is empty, too long, or not one line.
pub fn check_name(name: &str) -> Result<(), DescriptionError> {
    let is_line = !name.is_empty() && !name.contains(char::is_control);
    let expected = "1 to 255 bytes without control characters";
    require(
        is_line && name.len() <= NAME_BYTES_MAX,
        "s=",
        name,
        expected,
    )
}

/// Checks the addresses of a session with this number of groups.
///
/// # Errors
/// If the source is not unicast, the IP versions differ, or the groups are not in one range of
/// multicast addresses.
pub fn check_addresses(
    source: IpAddr,
    first_group: IpAddr,
    ttl: Option<u8>,
    groups: u32,
) -> Result<(), DescriptionError> {
    let unicast = !source.is_multicast() && !source.is_unspecified();
    require(
        unicast,
        "a=source-filter",
        source,
        "the sender's unicast address",
    )?;
    let same_version = source.is_ipv4() == first_group.is_ipv4();
    let expected = format!("the IP version of the source {source}");
    require(same_version, "c=", first_group, &expected)?;
    let ttl_text = ttl.map_or("none".to_owned(), |ttl| ttl.to_string());
    let ttl_fits = ttl.is_some() == source.is_ipv4();
    require(
        ttl_fits,
        "the TTL in c=",
        ttl_text,
        "one with IPv4, none with IPv6",
    )?;
    let range = |group: IpAddr| (group.is_multicast(), is_source_specific(group));
    let last = group_after(first_group, groups.saturating_sub(1)).map(range);
    let inside = first_group.is_multicast() && last == Some(range(first_group));
    let expected = format!("the first of {groups} groups in one multicast range");
    require(inside, "c=", first_group, &expected)
}
