//! The pages of nats-server's monitoring, read with the keys that its programs read.

use manyflow_messages::{Access, Credentials, DaemonConfig, DaemonHandle, User, start};
use serde::Deserialize;
use serde_json::Value;

use crate::overlay::stage::{Nats, config, line, within};

/// The keys of `/varz` that nats-top reads, in the types of nats-server's `Varz`.
#[derive(Debug, Deserialize)]
struct Varz {
    server_id: String,
    server_name: String,
    version: String,
    now: String,
    uptime: String,
    cpu: f64,
    mem: i64,
    in_msgs: i64,
    out_msgs: i64,
    in_bytes: i64,
    out_bytes: i64,
    slow_consumers: i64,
    // The exporter and dashboards read these besides.
    connections: i64,
    total_connections: u64,
    subscriptions: u32,
    routes: i64,
    remotes: i64,
    max_connections: i64,
    max_payload: i64,
    start: String,
}

/// The keys of `/connz` that nats-top and the exporter read. The exporter refuses a connection
/// whose texts are no texts.
#[derive(Debug, Deserialize)]
struct Connz {
    num_connections: i64,
    total: i64,
    offset: i64,
    limit: i64,
    connections: Vec<ConnInfo>,
}

#[derive(Debug, Deserialize)]
struct ConnInfo {
    cid: u64,
    kind: String,
    r#type: String,
    ip: String,
    port: u16,
    start: String,
    last_activity: String,
    uptime: String,
    idle: String,
    pending_bytes: i64,
    in_msgs: i64,
    out_msgs: i64,
    in_bytes: i64,
    out_bytes: i64,
    subscriptions: u32,
    name: Option<String>,
    lang: Option<String>,
    version: Option<String>,
    authorized_user: Option<String>,
    #[serde(default)]
    subscriptions_list: Vec<String>,
}

async fn page(daemon: &DaemonHandle, path: &str, query: &str) -> (u16, String) {
    let page = within(async { daemon.monitor().page(path, query).await }).await;
    (page.status, page.json)
}

async fn read<T: for<'a> Deserialize<'a>>(daemon: &DaemonHandle, path: &str, query: &str) -> T {
    let (status, json) = page(daemon, path, query).await;
    assert_eq!(status, 200, "{json}");
    serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error}: {json}"))
}

/// Returns the time of a date as RFC 3339 writes it, in UTC.
fn is_date(text: &str) -> bool {
    let (day, time) = text.split_once('T').unwrap_or_default();
    day.len() == 10 && day.starts_with("20") && time.len() >= 9 && time.ends_with('Z')
}

/// A daemon with a reader of two subjects and a writer that has sent it three messages of 5 bytes
/// and one with headers of 12 bytes.
async fn watched() -> (DaemonHandle, Nats, Nats) {
    let daemon = start(config("a")).await.unwrap();
    let options =
        r#"{"verbose":false,"headers":true,"name":"reader","lang":"rust","version":"1.2.3"}"#;
    let mut reader = Nats::connect_with(&daemon, options).await;
    reader.send_and_wait("SUB a.* 1\r\nSUB b queue 2\r\n").await;
    let mut writer = Nats::connect(&daemon).await;
    writer
        .send_and_wait(
            "PUB a.b 5\r\nhello\r\nPUB a.c 5\r\nhello\r\nPUB b 5\r\nhello\r\n\
             HPUB a.d 12 17\r\nNATS/1.0\r\n\r\nhello\r\n",
        )
        .await;
    for _ in 0..4 {
        reader.message().await;
    }
    (daemon, reader, writer)
}

#[tokio::test]
async fn varz_has_the_keys_of_nats_top_and_true_values() {
    let (daemon, _reader, writer) = watched().await;
    let varz: Varz = read(&daemon, "/varz", "").await;
    println!("{varz:?}");
    assert!(varz.server_id.starts_with("a-"));
    assert_eq!(
        (varz.server_name.as_str(), varz.uptime.as_str()),
        ("a", "0s")
    );
    assert!(is_date(&varz.now) && is_date(&varz.start) && !varz.version.is_empty());
    assert_eq!((varz.in_msgs, varz.in_bytes), (4, 32));
    assert_eq!((varz.out_msgs, varz.out_bytes), (4, 32));
    assert_eq!((varz.connections, varz.total_connections), (2, 2));
    assert_eq!((varz.subscriptions, varz.slow_consumers), (2, 0));
    assert_eq!((varz.routes, varz.remotes), (0, 0));
    assert_eq!((varz.max_connections, varz.max_payload), (20_000, 1 << 20));
    assert!(varz.cpu >= 0.0 && (varz.mem > 0 || cfg!(not(target_os = "linux"))));

    drop(writer);
    let left = async {
        while read::<Varz>(&daemon, "/varz", "").await.connections > 1 {
            tokio::task::yield_now().await;
        }
    };
    within(left).await;
    let varz: Varz = read(&daemon, "/varz", "").await;
    assert_eq!(
        (varz.in_msgs, varz.total_connections),
        (4, 2),
        "of the past, too"
    );
}

#[tokio::test]
async fn connz_describes_each_connection() {
    let (daemon, _reader, _writer) = watched().await;
    let connz: Connz = read(&daemon, "/connz", "limit=1024&sort=cid&subs=1").await;
    println!("{connz:?}");
    assert_eq!((connz.num_connections, connz.total), (2, 2));
    assert_eq!((connz.offset, connz.limit), (0, 1024));
    let [reader, writer] = &connz.connections[..] else {
        panic!("{connz:?}");
    };
    assert_eq!((reader.cid, writer.cid), (1, 2));
    assert_eq!(
        (reader.kind.as_str(), reader.r#type.as_str()),
        ("Client", "nats")
    );
    assert_eq!(reader.ip, "127.0.0.1");
    assert!(reader.port > 0 && is_date(&reader.start) && is_date(&reader.last_activity));
    assert_eq!((reader.uptime.as_str(), reader.idle.as_str()), ("0s", "0s"));
    assert_eq!(reader.pending_bytes, 0);
    let own = (
        reader.name.as_deref(),
        reader.lang.as_deref(),
        reader.version.as_deref(),
    );
    assert_eq!(own, (Some("reader"), Some("rust"), Some("1.2.3")));
    assert_eq!((reader.in_msgs, reader.in_bytes), (0, 0));
    assert_eq!((reader.out_msgs, reader.out_bytes), (4, 32));
    assert_eq!(
        (writer.in_msgs, writer.in_bytes, writer.out_msgs),
        (4, 32, 0)
    );
    assert_eq!(writer.out_bytes, 0);
    assert_eq!((reader.subscriptions, writer.subscriptions), (2, 0));
    assert_eq!(reader.subscriptions_list, ["a.*", "b"]);

    let first =
        async |query: &str| read::<Connz>(&daemon, "/connz", query).await.connections[0].cid;
    assert_eq!(first("sort=msgs_from").await, 2);
    assert_eq!(first("sort=bytes_to").await, 1);
    assert_eq!(first("offset=1").await, 2);
    assert_eq!(first("cid=2").await, 2);
    let part: Connz = read(&daemon, "/connz", "limit=1").await;
    assert_eq!((part.num_connections, part.total, part.limit), (1, 2, 1));
    assert!(part.connections[0].subscriptions_list.is_empty());
}

#[tokio::test]
async fn connz_names_users_only_if_it_is_asked_and_no_token() {
    let ann = Credentials::Password {
        name: "ann".to_owned(),
        password: "secret".to_owned(),
    };
    let token = Credentials::Token("t0ken".to_owned());
    let access = Access::Users(vec![User::new(ann), User::new(token)]);
    let config = DaemonConfig {
        access,
        ..config("a")
    };
    let daemon = start(config).await.unwrap();
    let _ann = Nats::connect_with(&daemon, r#"{"user":"ann","pass":"secret"}"#).await;
    let _other = Nats::connect_with(&daemon, r#"{"auth_token":"t0ken"}"#).await;
    let users = async |query: &str| {
        let connz: Connz = read(&daemon, "/connz", query).await;
        let users = connz.connections.into_iter();
        users.map(|one| one.authorized_user).collect::<Vec<_>>()
    };
    assert_eq!(users("").await, [None, None]);
    let shown = [Some("ann".to_owned()), Some("[REDACTED]".to_owned())];
    assert_eq!(users("auth=true").await, shown);
    assert_eq!(users("auth=1&user=ann").await, shown[..1]);
    let (_, json) = page(&daemon, "/connz", "auth=1&subs=detail").await;
    assert!(
        !json.contains("t0ken") && !json.contains("secret"),
        "{json}"
    );
}

#[tokio::test]
async fn subsz_counts_subscriptions_and_lists_them_in_pages() {
    let (daemon, _reader, mut writer) = watched().await;
    writer.send_and_wait("SUB c.> 7\r\nUNSUB 7 3\r\n").await;
    let subsz: Value = read(&daemon, "/subsz", "").await;
    assert_eq!(subsz["num_subscriptions"], 3);
    assert!(subsz.get("subscriptions_list").is_none(), "{subsz}");
    let subsz: Value = read(&daemon, "/subscriptionsz", "subs=1&offset=1&limit=2").await;
    assert_eq!((&subsz["total"], &subsz["offset"]), (&3.into(), &1.into()));
    let queue =
        serde_json::json!({"subject": "b", "qgroup": "queue", "sid": "2", "msgs": 1, "cid": 1});
    assert_eq!(subsz["subscriptions_list"][0], queue);
    let limited = serde_json::json!({"subject": "c.>", "sid": "7", "msgs": 0, "max": 3, "cid": 2});
    assert_eq!(subsz["subscriptions_list"][1], limited);
    let (status, json) = page(&daemon, "/subsz", "test=a.b").await;
    assert_eq!(status, 400, "{json}");
}

#[tokio::test]
async fn links_count_as_routes() {
    let daemons = line(2).await;
    for (daemon, remotes) in daemons.iter().zip([0, 1]) {
        let varz: Varz = read(daemon, "/varz", "").await;
        assert_eq!((varz.routes, varz.remotes), (1, remotes));
    }
}

#[tokio::test]
async fn healthz_answers_as_long_as_the_daemon_serves_clients() {
    let daemon = start(config("a")).await.unwrap();
    let monitor = daemon.monitor();
    let (status, json) = page(&daemon, "/healthz", "js-enabled-only=true").await;
    assert_eq!((status, json.as_str()), (200, r#"{"status":"ok"}"#));
    daemon.stop().await;
    let health = monitor.page("/healthz", "").await;
    assert_eq!(health.status, 503);
    let json: Value = serde_json::from_str(&health.json).unwrap();
    assert_eq!(json["status"], "unavailable");
    assert_eq!(monitor.page("/varz", "").await.status, 503);
    assert_eq!(monitor.page("/other", "").await.status, 404);
}
