//! The service of a switch: its members and its policy.

use std::net::SocketAddr;
use std::ops::RangeInclusive;

/// The policy by which the members of a service share the frames.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum PolicyName {
    /// In proportion to what the path and the server of each member carry, which the switch learns
    /// from the answers to all connections ([`RateAware`]).
    ///
    /// [`RateAware`]: manyflow_anypoint::switch::RateAware
    #[default]
    RateAware,
    /// The hash of a frame's key chooses the member. A member that joins or leaves changes only its
    /// own share of the keys.
    Hash,
    /// The hash of a key's high 28 bits and of the members' addresses orders the members, and the
    /// key's low 4 bits name a rank in this order
    /// ([`ReplicaHash`](manyflow_anypoint::switch::ReplicaHash)). For the chunk store.
    Replicas,
    /// Each member in turn.
    RoundRobin,
    /// The member with the fewest frames that it has not acknowledged.
    LeastOutstanding,
    /// In proportion to the members' weights.
    Weighted,
    /// By ranges of keys; frames with other keys go to each member in turn.
    KeyRange,
    /// The first frame of a key goes to the member with the fewest frames that it has not
    /// acknowledged, and the key's later frames follow it ([`Affinity`]).
    ///
    /// [`Affinity`]: manyflow_anypoint::switch::Affinity
    Affinity,
}

/// A member of a service.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberConfig {
    /// The name, which no other member has.
    pub name: String,
    /// The address at which the member, or a switch in front of others, listens.
    pub address: SocketAddr,
    /// The weight under [`PolicyName::Weighted`]; not negative.
    pub weight: f64,
    /// The keys under [`PolicyName::KeyRange`].
    pub keys: Vec<RangeInclusive<u32>>,
}

/// A service.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServiceConfig {
    /// The members. Their order counts for [`PolicyName::Hash`]: switches with the same list give
    /// a key to the same member.
    pub members: Vec<MemberConfig>,
    /// The policy.
    pub policy: PolicyName,
}

/// The reason why a service is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// Two members have the same name or the same address: their names, and what they share.
    #[error("the members {0} and {1} have the same {2}; remove one, or correct it")]
    Twice(String, String, String),
    /// The members have addresses of both IPv4 and IPv6.
    #[error("member {0} has not the IP version of the first member; use one version for all")]
    Family(String),
    /// The weight of a member cannot be used.
    #[error("the weight of member {0} must be 0 or more, and one weight above 0")]
    Weight(String),
    /// The switch has the other role: it serves members, or initiators.
    #[error("a switch has members or one peer; start another switch to change that")]
    Role,
}

/// The parameters of a switch.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SwitchOptions {
    /// Maximum number of connections, at most 131,071. Further ones are refused.
    pub connections_max: usize,
}

impl Default for SwitchOptions {
    /// Returns at most 100,000 connections.
    fn default() -> SwitchOptions {
        SwitchOptions {
            connections_max: 100_000,
        }
    }
}

impl ServiceConfig {
    /// Checks that members can be distinguished and reached from one socket.
    ///
    /// # Errors
    /// If two members have one name or address, if their IP versions differ, or if a weight is
    /// negative or not a number.
    pub fn check(&self) -> Result<(), ServiceError> {
        for (place, member) in self.members.iter().enumerate() {
            let mut before = self.members[..place].iter();
            let same =
                before.find(|other| other.name == member.name || other.address == member.address);
            if let Some(other) = same {
                let what = match other.name == member.name {
                    true => "name".to_owned(),
                    false => format!("address, {}", member.address),
                };
                let (other, member) = (other.name.clone(), member.name.clone());
                return Err(ServiceError::Twice(other, member, what));
            }
            if member.address.is_ipv4() != self.members[0].address.is_ipv4() {
                return Err(ServiceError::Family(member.name.clone()));
            }
            if !(member.weight.is_finite() && member.weight >= 0.0) {
                return Err(ServiceError::Weight(member.name.clone()));
            }
        }
        match self.members.first() {
            Some(first) if self.members.iter().all(|member| member.weight == 0.0) => {
                Err(ServiceError::Weight(first.name.clone()))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, port: u16, weight: f64) -> MemberConfig {
        MemberConfig {
            name: name.to_owned(),
            address: ([127, 0, 0, 1], port).into(),
            weight,
            keys: vec![],
        }
    }

    #[test]
    fn members_that_cannot_be_distinguished_or_chosen_are_refused() {
        let check = |members: &[MemberConfig]| {
            let config = ServiceConfig {
                members: members.to_vec(),
                policy: PolicyName::Hash,
            };
            config.check()
        };
        assert_eq!(check(&[member("a", 1, 1.0), member("b", 2, 0.0)]), Ok(()));
        let twice = check(&[member("a", 1, 1.0), member("b", 1, 1.0)]);
        let named = "the members a and b have the same address, 127.0.0.1:1; remove one";
        let twice = twice.unwrap_err().to_string();
        assert!(twice.starts_with(named), "{twice}");
        let twice = check(&[member("a", 1, 1.0), member("a", 2, 1.0)]).unwrap_err();
        assert!(twice.to_string().contains("same name"), "{twice}");
        let negative = check(&[member("a", 1, 1.0), member("b", 2, -1.0)]);
        assert_eq!(negative, Err(ServiceError::Weight("b".to_owned())));
        let zero = check(&[member("a", 1, 0.0)]);
        assert_eq!(zero, Err(ServiceError::Weight("a".to_owned())));
    }
}
