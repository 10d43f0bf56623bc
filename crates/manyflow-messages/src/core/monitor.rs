//! The pages of the monitoring, filled with the state of a daemon.

use std::cmp::Reverse;
use std::time::SystemTime;

use manyflow_core::Time;

use super::status::shortened;
use super::{DaemonCore, SessionKey};
use crate::monitor::Watched;
use crate::monitor::pages::{ConnInfo, Connz, SubDetail, Subsz, Varz};
use crate::monitor::query::{ConnzQuery, Sort, Subscriptions, SubszQuery};
use crate::monitor::times::{date, milliseconds, uptime};
use crate::nats::parse::LINE_BYTES_MAX;
use crate::nats::serve::{CONNECT_TIMEOUT, PINGS_MAX};
use crate::nats::session::{NatsSession, Subscription, Traffic};
use crate::server::TLS_TIMEOUT;

/// The maximum number of subscriptions in a page of connections. The number of all subscriptions of
/// each connection is always there.
const SUBSCRIPTIONS_SHOWN: usize = 10_000;

impl Watched {
    /// Returns the page of the daemon, without the memory and the processor time of the process.
    pub(crate) fn varz(&self) -> Varz {
        let core = self.core.borrow();
        let traffic = core.traffic();
        let (now, since) = (SystemTime::now(), core.clock.now() - Time::ZERO);
        let start = date(now - since);
        let front = self.front.as_deref();
        let limits = front.map(|front| &front.limits);
        let tls = front.is_some_and(|front| front.tls.is_some());
        Varz {
            server_id: self.facts.server_id.clone(),
            server_name: core.hello.name.clone(),
            version: env!("CARGO_PKG_VERSION"),
            proto: 1,
            go: "",
            host: front.map_or(String::new(), |front| front.local.0.clone()),
            port: front.map_or(0, |front| front.local.1),
            auth_required: front.is_some_and(|front| front.access.is_restricted()),
            tls_required: tls,
            connect_urls: front.map_or(Vec::new(), |front| front.advertised[0].clone()),
            max_connections: self.facts.connections_max,
            ping_interval: limits.map_or(0, |limits| limits.ping_interval.as_nanos() as u64),
            ping_max: PINGS_MAX,
            auth_timeout: CONNECT_TIMEOUT.as_secs_f64(),
            max_control_line: LINE_BYTES_MAX,
            max_payload: limits.map_or(0, |limits| limits.payload_bytes_max),
            tls_timeout: if tls { TLS_TIMEOUT.as_secs_f64() } else { 0.0 },
            config_load_time: start.clone(),
            start,
            now: date(now),
            uptime: uptime(since),
            mem: 0,
            cores: std::thread::available_parallelism().map_or(1, |count| count.get()),
            cpu: 0.0,
            connections: core.sessions.len(),
            total_connections: core.counters.connections,
            routes: core.links_up(),
            remotes: self.facts.links,
            leafnodes: 0,
            in_msgs: traffic.in_messages,
            in_bytes: traffic.in_bytes,
            in_client_msgs: traffic.in_messages,
            in_client_bytes: traffic.in_bytes,
            out_msgs: traffic.out_messages,
            out_bytes: traffic.out_bytes,
            out_client_msgs: traffic.out_messages,
            out_client_bytes: traffic.out_bytes,
            slow_consumers: core.counters.evicted,
            subscriptions: core.subscription_count(),
        }
    }

    /// Returns the page of the clients.
    pub(crate) fn connz(&self, query: &ConnzQuery) -> Connz {
        let core = self.core.borrow();
        let (keys, total) = core.selected(query);
        let (wall, now) = (SystemTime::now(), core.clock.now());
        let mut room = SUBSCRIPTIONS_SHOWN;
        let connection = |key: &SessionKey| {
            let session = &core.sessions[*key];
            let mut info = session.describe(wall, now);
            if query.auth {
                info.authorized_user = session.authorized_user.as_deref().map(str::to_owned);
            }
            if query.subscriptions == Subscriptions::Number {
                return info;
            }
            let details = session.subscription_details(0, room);
            room -= details.len();
            if query.subscriptions == Subscriptions::Details {
                info.subscriptions_list_detail = details;
            } else {
                let subjects = details.into_iter().map(|detail| detail.subject);
                info.subscriptions_list = subjects.collect();
            }
            info
        };
        let connections: Vec<_> = keys.iter().map(connection).collect();
        Connz {
            server_id: self.facts.server_id.clone(),
            now: date(wall),
            num_connections: connections.len(),
            total,
            offset: query.page.offset,
            limit: query.page.limit,
            connections,
        }
    }

    /// Returns the page of the subscriptions.
    pub(crate) fn subsz(&self, query: &SubszQuery) -> Subsz {
        let core = self.core.borrow();
        let num_subscriptions = core.subscription_count();
        let (total, subscriptions_list) = match query.subscriptions {
            true => {
                let list = core.subscriptions_from(query.page.offset, query.page.limit);
                (num_subscriptions, list)
            }
            false => (0, Vec::new()),
        };
        Subsz {
            server_id: self.facts.server_id.clone(),
            now: date(SystemTime::now()),
            num_subscriptions,
            total,
            offset: query.page.offset,
            limit: query.page.limit,
            subscriptions_list,
        }
    }
}

impl DaemonCore {
    /// Returns the traffic of all clients since the daemon began.
    fn traffic(&self) -> Traffic {
        let mut sum = self.ended_traffic;
        for (_, session) in &self.sessions {
            sum.add(&session.traffic);
        }
        sum
    }

    fn links_up(&self) -> usize {
        let links = self.neighbours.values();
        links.filter(|known| known.out.is_some()).count()
    }

    fn subscription_count(&self) -> usize {
        let sessions = self.sessions.iter();
        sessions
            .map(|(_, session)| session.subscription_count())
            .sum()
    }

    /// Returns the sessions of a page in their order, and the number of sessions on all pages.
    fn selected(&self, query: &ConnzQuery) -> (Vec<SessionKey>, usize) {
        let is_wanted = |session: &NatsSession| {
            let user = query.user.as_deref();
            query.cid.is_none_or(|cid| cid == session.peer.number)
                && (user.is_none() || user == session.authorized_user.as_deref())
        };
        let mut places: Vec<_> = self
            .sessions
            .iter()
            .filter(|(_, session)| is_wanted(session))
            .map(|(key, session)| (session.place(query.sort), key))
            .collect();
        places.sort_unstable();
        let page = places.iter().skip(query.page.offset).take(query.page.limit);
        (page.map(|(_, key)| *key).collect(), places.len())
    }

    /// Returns a part of the list of all subscriptions.
    fn subscriptions_from(&self, mut offset: usize, limit: usize) -> Vec<SubDetail> {
        let mut details = Vec::new();
        for (_, session) in &self.sessions {
            let count = session.subscription_count();
            if offset >= count {
                offset -= count;
                continue;
            }
            let room = limit - details.len();
            details.extend(session.subscription_details(offset, room));
            offset = 0;
            if details.len() == limit {
                break;
            }
        }
        details
    }
}

impl NatsSession {
    /// Returns the place of the session in an order, from small to large.
    fn place(&self, sort: Sort) -> (Reverse<u64>, u64) {
        let traffic = &self.traffic;
        let last = (self.read_at - Time::ZERO).as_micros() as u64;
        let rtt = self.rtt.unwrap_or_default().as_micros() as u64;
        let first = match sort {
            Sort::Cid => 0,
            Sort::Subscriptions => self.subscription_count() as u64,
            Sort::Pending => self.out.bytes() as u64,
            Sort::MessagesTo => traffic.out_messages,
            Sort::MessagesFrom => traffic.in_messages,
            Sort::BytesTo => traffic.out_bytes,
            Sort::BytesFrom => traffic.in_bytes,
            Sort::Last => last,
            Sort::Idle => u64::MAX - last,
            Sort::Rtt => rtt,
        };
        (Reverse(first), self.peer.number)
    }

    fn describe(&self, wall: SystemTime, now: Time) -> ConnInfo {
        let (age, idle) = (now - self.since, now - self.read_at);
        let options = &self.options;
        ConnInfo {
            cid: self.peer.number,
            kind: "Client",
            r#type: match self.peer.is_websocket {
                true => "websocket",
                false => "nats",
            },
            ip: self.peer.address.ip().to_canonical().to_string(),
            port: self.peer.address.port(),
            start: date(wall - age),
            last_activity: date(wall - idle),
            rtt: self.rtt.map(milliseconds),
            uptime: uptime(age),
            idle: uptime(idle),
            pending_bytes: self.out.bytes(),
            in_msgs: self.traffic.in_messages,
            out_msgs: self.traffic.out_messages,
            in_bytes: self.traffic.in_bytes,
            out_bytes: self.traffic.out_bytes,
            subscriptions: self.subscription_count(),
            name: options.name.as_deref().map(shortened),
            lang: options.lang.as_deref().map(shortened),
            version: options.version.as_deref().map(shortened),
            authorized_user: None,
            subscriptions_list: Vec::new(),
            subscriptions_list_detail: Vec::new(),
        }
    }

    /// Returns a part of the session's subscriptions, by their identifiers.
    fn subscription_details(&self, offset: usize, limit: usize) -> Vec<SubDetail> {
        if limit == 0 {
            return Vec::new();
        }
        let mut all: Vec<_> = self.subscriptions().collect();
        all.sort_unstable_by_key(|(sid, _)| *sid);
        let part = all.into_iter().skip(offset).take(limit);
        part.map(|(sid, subscription)| subscription.describe(sid, self.peer.number))
            .collect()
    }
}

impl Subscription {
    fn describe(&self, sid: &[u8], cid: u64) -> SubDetail {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        SubDetail {
            subject: text(&self.pattern),
            qgroup: self.queue_name().map(text),
            sid: text(sid),
            msgs: self.delivered,
            max: self.max,
            cid,
        }
    }
}
