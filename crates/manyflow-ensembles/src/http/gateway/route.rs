//! How a gateway reaches the members: by switches elsewhere, or by one of its own.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use manyflow_net::reach::Reach;

use super::{GatewayOptions, Service};
use crate::anypoint::switch::{InsideSwitch, PolicyName, StartError};
use crate::anypoint::{Connection, ConnectionError, Options, connect};

/// The other end of a gateway's connection.
pub(super) enum Route {
    /// A switch, or a member, at this address.
    Switch(SocketAddr),
    /// The switch in the gateway.
    Inside(Arc<InsideSwitch>),
}

/// Returns the routes to the members.
pub(super) fn routes(options: &GatewayOptions) -> Result<Vec<Route>, StartError> {
    match &options.service {
        Service::Switches(all) => Ok(all.iter().copied().map(Route::Switch).collect()),
        Service::Members(members) => {
            // All messages about a request reach the member that the gateway has chosen.
            let policy = PolicyName::Affinity;
            let connection = options.connection.clone();
            let switch = InsideSwitch::start(members.clone(), policy, connection)?;
            Ok(vec![Route::Inside(Arc::new(switch))])
        }
    }
}

impl Route {
    pub(super) async fn connect(&self, options: &Options) -> Result<Connection, ConnectionError> {
        match self {
            Route::Switch(address) => connect(*address, options.clone()).await,
            Route::Inside(switch) => switch.connect().await,
        }
    }

    /// Returns the switch in the gateway.
    pub(super) fn inside(&self) -> Option<Arc<InsideSwitch>> {
        match self {
            Route::Inside(switch) => Some(Arc::clone(switch)),
            Route::Switch(_) => None,
        }
    }

    /// Returns the source of warnings while there is no connection. The switch in the gateway warns
    /// by itself, of each of its members.
    pub(super) fn reach(&self) -> Reach {
        match self {
            Route::Inside(_) => Reach::silent(),
            Route::Switch(_) => Reach::new(
                self.to_string(),
                "does it run at this address, and does a member of it run?",
            ),
        }
    }
}

impl fmt::Display for Route {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Route::Switch(address) => write!(formatter, "the switch at {address}"),
            Route::Inside(_) => formatter.write_str("a member"),
        }
    }
}
