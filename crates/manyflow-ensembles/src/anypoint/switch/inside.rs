//! A switch inside of the process of the clients that use it.

use super::config::{MemberConfig, PolicyName, ServiceConfig, ServiceError, SwitchOptions};
use super::server::{StartError, SwitchHandle, start_inside};
use super::status::{MemberStatus, SwitchStatus};
use crate::anypoint::{Connection, ConnectionError, Endpoint, Options};
use tokio::sync::watch;

/// A switch for the connections of this process, as a task of the current tokio runtime. It stops
/// when this is dropped.
///
/// Datagrams between the connections and the switch are copied in memory: no system call and no
/// other thread stands between them.
#[derive(Debug)]
pub struct InsideSwitch {
    switch: SwitchHandle,
    endpoint: Endpoint,
    policy: PolicyName,
}

impl InsideSwitch {
    /// Starts a switch before these members. `connection`: the parameters of all connections.
    ///
    /// # Errors
    /// If the members or the options cannot be used, or there is no socket.
    pub fn start(
        members: Vec<MemberConfig>,
        policy: PolicyName,
        connection: Options,
    ) -> Result<InsideSwitch, StartError> {
        let service = ServiceConfig { members, policy };
        let (switch, endpoint) = start_inside(service, SwitchOptions::default(), connection)?;
        Ok(InsideSwitch {
            switch,
            endpoint,
            policy,
        })
    }

    /// Opens a connection to the members.
    ///
    /// # Errors
    /// If no member accepts it.
    pub async fn connect(&self) -> Result<Connection, ConnectionError> {
        self.endpoint.connect(self.switch.local_address()).await
    }

    /// Replaces the members. They join and leave open connections, and finish what they have.
    ///
    /// # Errors
    /// If they cannot be used; the former ones remain then.
    pub fn set_members(&self, members: Vec<MemberConfig>) -> Result<(), ServiceError> {
        let policy = self.policy;
        self.switch.set_service(ServiceConfig { members, policy })
    }

    /// Returns the status, which changes twice a second.
    pub fn status(&self) -> watch::Receiver<SwitchStatus> {
        self.switch.status()
    }

    /// Says why there is no connection: from which members nothing comes.
    pub fn unreached(&self) -> String {
        let status = self.status();
        let members = &status.borrow().members;
        let members = members.iter().filter(|member| member.is_present);
        let named: Vec<_> = members.map(MemberStatus::label).collect();
        format!("nothing comes from {}", named.join(" or "))
    }

    /// Ends all connections, so that members need not wait for their time-outs, and stops.
    pub async fn end(&self) {
        self.switch.stop();
        let mut status = self.status();
        // The sender lives as long as the switch.
        while status.changed().await.is_ok() {}
    }
}
