//! Services, daemons, views and clients.

use core::fmt;
use core::str::FromStr;

use manyflow_overlay::DaemonId;

/// The guarantees of a message, chosen by its sender. Within a view, each service gives the
/// guarantees of all services above it in this list. The names are Spread's.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Service {
    /// May get lost. Here, it is as reliable as the others.
    Unreliable,
    /// Arrives once at each member, in any order.
    Reliable,
    /// Follows its sender's earlier messages of this and the services below.
    Fifo,
    /// Follows all messages of this and the services below that its sender had received before.
    /// Delivered like [`Service::Agreed`].
    Causal,
    /// All members of all groups deliver such messages in one order.
    Agreed,
    /// As agreed, and delivered only if all daemons of the view have the message.
    Safe,
}

impl Service {
    /// All services, the weakest first.
    pub const ALL: [Service; 6] = [
        Service::Unreliable,
        Service::Reliable,
        Service::Fifo,
        Service::Causal,
        Service::Agreed,
        Service::Safe,
    ];

    /// Returns whether messages of this service wait for their place in the one order.
    pub(crate) fn is_ordered(self) -> bool {
        self >= Service::Causal
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Service::Unreliable => "unreliable",
            Service::Reliable => "reliable",
            Service::Fifo => "fifo",
            Service::Causal => "causal",
            Service::Agreed => "agreed",
            Service::Safe => "safe",
        })
    }
}

impl FromStr for Service {
    type Err = NameError;

    /// Parses the name that [`Display`](fmt::Display) writes.
    ///
    /// # Errors
    /// Returns an error that lists the names.
    fn from_str(text: &str) -> Result<Service, NameError> {
        let mut all = Service::ALL.into_iter();
        let service = all.find(|service| service.to_string() == text);
        service.ok_or_else(|| NameError::Service(text.to_owned()))
    }
}

/// A text that is no name of a service or number of a view.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// It is no service.
    #[error("{0:?} is no service: use unreliable, reliable, fifo, causal, agreed or safe")]
    Service(String),
    /// It is no number of a view.
    #[error("{0:?} is no number of a view, such as 3-00f1a2b3c4d5e6f7.0")]
    View(String),
}

/// A client of one daemon that takes part in ordered groups. A daemon uses no number twice.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u32);

/// A daemon that takes part. A daemon that restarts has a higher incarnation.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer {
    /// The daemon.
    pub daemon: DaemonId,
    /// The daemon's incarnation.
    pub incarnation: u32,
}

/// A view of the daemons: which of them order messages together. Views that a daemon installs have
/// ascending numbers.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ViewId {
    /// The highest attempt of the exchange that led to the view.
    pub counter: u32,
    /// A hash of the daemons and their attempts.
    pub hash: u64,
}

impl fmt::Display for ViewId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:016x}", self.counter, self.hash)
    }
}

/// A view of a group's members. All members that install a view of a group have the same number for
/// it, and a later view has a higher one.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupViewId {
    /// The view of the daemons.
    pub view: ViewId,
    /// Where the members come from if the view of the daemons has not begun yet: the hash of their
    /// last view, in whose end this one was delivered. `u64::MAX` in the view itself.
    pub stage: u64,
    /// How many changes of the members of any group were delivered before at this stage.
    pub change: u32,
}

impl GroupViewId {
    /// The [stage](GroupViewId::stage) of a view that has begun.
    pub const BEGUN: u64 = u64::MAX;
}

impl fmt::Display for GroupViewId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.stage {
            GroupViewId::BEGUN => write!(f, "{}.{}", self.view, self.change),
            stage => write!(f, "{}-after-{stage:016x}.{}", self.view, self.change),
        }
    }
}

impl FromStr for GroupViewId {
    type Err = NameError;

    /// Parses the text that [`Display`](fmt::Display) writes.
    ///
    /// # Errors
    /// Returns an error that shows the form.
    fn from_str(text: &str) -> Result<GroupViewId, NameError> {
        let parsed = || {
            let (rest, change) = text.rsplit_once('.')?;
            let (view, stage) = match rest.split_once("-after-") {
                Some((view, stage)) => (view, u64::from_str_radix(stage, 16).ok()?),
                None => (rest, GroupViewId::BEGUN),
            };
            let (counter, hash) = view.split_once('-')?;
            Some(GroupViewId {
                view: ViewId {
                    counter: counter.parse().ok()?,
                    hash: u64::from_str_radix(hash, 16).ok()?,
                },
                stage,
                change: change.parse().ok()?,
            })
        };
        parsed().ok_or_else(|| NameError::View(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_number_of_a_view_is_parsed_as_it_is_written(
            counter: u32, hash: u64, change: u32, stage in prop_oneof![Just(GroupViewId::BEGUN), any::<u64>()],
        ) {
            let view = ViewId { counter, hash };
            let id = GroupViewId { view, stage, change };
            prop_assert_eq!(id.to_string().parse(), Ok(id));
        }
    }

    #[test]
    fn other_texts_are_no_names() {
        for text in ["", "3-7", "3.0", "x-7.0", "3-7-after-.0", "3-7.", "3-g.0"] {
            let expected = Err(NameError::View(text.to_owned()));
            assert_eq!(text.parse::<GroupViewId>(), expected);
        }
        for service in Service::ALL {
            assert_eq!(service.to_string().parse(), Ok(service));
        }
        assert!("Safe".parse::<Service>().is_err());
    }
}
