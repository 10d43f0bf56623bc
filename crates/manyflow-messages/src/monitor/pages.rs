//! The pages as JSON, with the keys and types of nats-server's `monitor.go`.
//!
//! Keys that are missing here belong to functions that a daemon does not have. Go's programs read
//! them as zero.

use serde::Serialize;

/// `/varz`: the daemon.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Varz {
    pub(crate) server_id: String,
    pub(crate) server_name: String,
    pub(crate) version: &'static str,
    pub(crate) proto: u32,
    /// The version of Go: empty, as in INFO.
    pub(crate) go: &'static str,
    /// The address for clients; empty without one.
    pub(crate) host: String,
    pub(crate) port: u16,
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub(crate) auth_required: bool,
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub(crate) tls_required: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) connect_urls: Vec<String>,
    pub(crate) max_connections: usize,
    /// Nanoseconds.
    pub(crate) ping_interval: u64,
    pub(crate) ping_max: u32,
    /// Seconds.
    pub(crate) auth_timeout: f64,
    pub(crate) max_control_line: usize,
    pub(crate) max_payload: usize,
    /// Seconds.
    pub(crate) tls_timeout: f64,
    pub(crate) start: String,
    pub(crate) now: String,
    pub(crate) uptime: String,
    /// Bytes in memory; 0 on systems without `/proc`.
    pub(crate) mem: u64,
    pub(crate) cores: usize,
    /// Percent of one processor.
    pub(crate) cpu: f64,
    pub(crate) connections: usize,
    pub(crate) total_connections: u64,
    /// Links to daemons that have a connection.
    pub(crate) routes: usize,
    /// Links of the daemon's file.
    pub(crate) remotes: usize,
    pub(crate) leafnodes: usize,
    /// Messages of clients: those that come over links are not counted, other than by nats-server.
    pub(crate) in_msgs: u64,
    pub(crate) in_bytes: u64,
    pub(crate) in_client_msgs: u64,
    pub(crate) in_client_bytes: u64,
    pub(crate) out_msgs: u64,
    pub(crate) out_bytes: u64,
    pub(crate) out_client_msgs: u64,
    pub(crate) out_client_bytes: u64,
    /// Members that were removed from a group because they read too slowly.
    pub(crate) slow_consumers: u64,
    pub(crate) subscriptions: usize,
    pub(crate) config_load_time: String,
}

/// `/connz`: the connections of clients.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Connz {
    pub(crate) server_id: String,
    pub(crate) now: String,
    /// The number of `connections`.
    pub(crate) num_connections: usize,
    /// The number of connections of which these are a part.
    pub(crate) total: usize,
    pub(crate) offset: usize,
    pub(crate) limit: usize,
    pub(crate) connections: Vec<ConnInfo>,
}

/// A connection.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ConnInfo {
    pub(crate) cid: u64,
    pub(crate) kind: &'static str,
    pub(crate) r#type: &'static str,
    pub(crate) ip: String,
    pub(crate) port: u16,
    pub(crate) start: String,
    /// When the client sent last.
    pub(crate) last_activity: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rtt: Option<String>,
    pub(crate) uptime: String,
    pub(crate) idle: String,
    pub(crate) pending_bytes: usize,
    pub(crate) in_msgs: u64,
    pub(crate) out_msgs: u64,
    pub(crate) in_bytes: u64,
    pub(crate) out_bytes: u64,
    pub(crate) subscriptions: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lang: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) authorized_user: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) subscriptions_list: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) subscriptions_list_detail: Vec<SubDetail>,
}

/// `/subsz`: the subscriptions of clients.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Subsz {
    pub(crate) server_id: String,
    pub(crate) now: String,
    pub(crate) num_subscriptions: usize,
    /// The number of subscriptions of which those listed are a part; 0 without a list.
    pub(crate) total: usize,
    pub(crate) offset: usize,
    pub(crate) limit: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) subscriptions_list: Vec<SubDetail>,
}

/// A subscription.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct SubDetail {
    pub(crate) subject: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) qgroup: Option<String>,
    pub(crate) sid: String,
    pub(crate) msgs: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max: Option<u64>,
    pub(crate) cid: u64,
}

/// `/healthz`: whether the daemon serves clients.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Health {
    pub(crate) status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status_code: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<&'static str>,
}

impl Health {
    pub(super) fn ok() -> Health {
        Health {
            status: "ok",
            status_code: None,
            error: None,
        }
    }

    pub(super) fn unavailable(status_code: u16, error: &'static str) -> Health {
        Health {
            status: "unavailable",
            status_code: Some(status_code),
            error: Some(error),
        }
    }
}

/// The reason why there is no page.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Refused<'a> {
    pub(crate) error: &'a str,
}
