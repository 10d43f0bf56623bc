//! How a gateway reaches the members: by switches elsewhere, or by one of its own.

use std::fmt;
use std::net::SocketAddr;

use manyflow_net::reach::Reach;

use super::{GatewayOptions, Service};
use crate::anypoint::switch::{
    MemberConfig, PolicyName, ServiceConfig, StartError, SwitchHandle, SwitchOptions, start_inside,
};
use crate::anypoint::{Connection, ConnectionError, Endpoint, Options, connect};

/// The other end of a gateway's connection.
pub(super) enum Route {
    /// A switch, or a member, at this address.
    Switch(SocketAddr),
    /// The switch in the gateway.
    Inside(Endpoint, SocketAddr),
}

/// Returns the routes to the members, and the switch in the gateway if it has one.
pub(super) fn routes(
    options: &GatewayOptions,
) -> Result<(Option<SwitchHandle>, Vec<Route>), StartError> {
    let members = match &options.service {
        Service::Members(members) => members,
        Service::Switches(all) => {
            let routes = all.iter().copied().map(Route::Switch);
            return Ok((None, routes.collect()));
        }
    };
    let (switch, endpoint) = start_inside(
        by_affinity(members.clone()),
        SwitchOptions::default(),
        options.connection.clone(),
    )?;
    let route = Route::Inside(endpoint, switch.local_address());
    Ok((Some(switch), vec![route]))
}

/// Returns the service of these members, with the policy by which all messages about a request
/// reach the member that the gateway has chosen.
pub(super) fn by_affinity(members: Vec<MemberConfig>) -> ServiceConfig {
    let policy = PolicyName::Affinity;
    ServiceConfig { members, policy }
}

impl Route {
    pub(super) async fn connect(&self, options: &Options) -> Result<Connection, ConnectionError> {
        match self {
            Route::Switch(address) => connect(*address, options.clone()).await,
            Route::Inside(endpoint, address) => endpoint.connect(*address).await,
        }
    }

    /// Returns the source of warnings while there is no connection. The switch in the gateway warns
    /// by itself, of each of its members.
    pub(super) fn reach(&self) -> Option<Reach> {
        match self {
            Route::Inside(..) => None,
            Route::Switch(_) => Some(Reach::new(
                self.to_string(),
                "does it run at this address, and does a member of it run?",
            )),
        }
    }
}

impl fmt::Display for Route {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Route::Switch(address) => write!(formatter, "the switch at {address}"),
            Route::Inside(..) => formatter.write_str("a member"),
        }
    }
}
