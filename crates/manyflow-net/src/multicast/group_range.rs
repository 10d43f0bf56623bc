//! Ranges of multicast groups.

use std::net::IpAddr;
use std::str::FromStr;

use super::MulticastError;

/// A range of multicast groups such as `232.1.2.0/24`, or only its first group.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct GroupRange {
    /// The first group.
    pub first: IpAddr,
    /// The length of the prefix that the groups of the range share, in bits.
    pub prefix: Option<u8>,
}

impl GroupRange {
    /// The number of groups in the range; `None` if no prefix limits it.
    pub fn size(&self) -> Option<u128> {
        let bits = if self.first.is_ipv4() { 32 } else { 128 };
        self.prefix.map(|prefix| {
            1u128
                .checked_shl(bits - u32::from(prefix))
                .unwrap_or(u128::MAX)
        })
    }
}

impl FromStr for GroupRange {
    type Err = MulticastError;

    fn from_str(text: &str) -> Result<GroupRange, MulticastError> {
        let wrong = || MulticastError::NotRange(text.to_owned());
        let (address, prefix) = text
            .split_once('/')
            .map_or((text, None), |(a, p)| (a, Some(p)));
        let first: IpAddr = address.parse().map_err(|_| wrong())?;
        let bits = if first.is_ipv4() { 32 } else { 128 };
        let prefix: Option<u8> = prefix.map(str::parse).transpose().map_err(|_| wrong())?;
        if !first.is_multicast() || prefix.is_some_and(|prefix| prefix > bits) {
            return Err(wrong());
        }
        Ok(GroupRange { first, prefix })
    }
}
