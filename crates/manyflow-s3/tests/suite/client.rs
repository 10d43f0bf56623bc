//! A plain HTTP client that signs its requests (Signature Version 4).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::SystemTime;

use base64::Engine as _;
use md5::Digest as _;
use ring::{digest, hmac};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

pub(crate) const KEY: &str = "AKTEST";
pub(crate) const SECRET: &str = "a-secret-of-this-test";

/// A client of a server.
pub(crate) struct Client {
    server: SocketAddr,
    secret: String,
    /// Whether the client ends its direction behind each request.
    is_half_closed: bool,
}

/// The answer of a server.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn header(&self, name: &str) -> String {
        self.headers.get(name).cloned().unwrap_or_default()
    }
}

impl Client {
    pub(crate) fn new(server: SocketAddr) -> Client {
        Client {
            server,
            secret: SECRET.to_owned(),
            is_half_closed: false,
        }
    }

    pub(crate) fn half_closed(&self) -> Client {
        Client {
            secret: self.secret.clone(),
            is_half_closed: true,
            ..*self
        }
    }

    pub(crate) fn with_secret(&self, secret: &str) -> Client {
        let secret = secret.to_owned();
        Client { secret, ..*self }
    }

    /// Sends a signed request. The parameters of `query` are in order.
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        query: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        let now = amz_date();
        let digest = hex(digest::digest(&digest::SHA256, body).as_ref());
        let mut all: BTreeMap<&str, String> = headers
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()))
            .collect();
        all.insert("host", self.server.to_string());
        all.insert("x-amz-date", now.clone());
        all.insert("x-amz-content-sha256", digest.clone());
        let signed: Vec<_> = all.keys().copied().collect();
        let signed = signed.join(";");
        let lines: String = all
            .iter()
            .map(|(n, v)| format!("{n}:{}\n", v.trim()))
            .collect();
        let canonical = format!("{method}\n{path}\n{query}\n{lines}\n{signed}\n{digest}");
        let scope = format!("{}/us-east-1/s3/aws4_request", &now[..8]);
        let canonical = hex(digest::digest(&digest::SHA256, canonical.as_bytes()).as_ref());
        let text = format!("AWS4-HMAC-SHA256\n{now}\n{scope}\n{canonical}");
        let mut key = format!("AWS4{}", self.secret).into_bytes();
        for part in [&now[..8], "us-east-1", "s3", "aws4_request"] {
            key = mac(&key, part);
        }
        let signature = hex(&mac(&key, &text));
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential={KEY}/{scope}, SignedHeaders={signed}, Signature={signature}"
        );
        all.insert("authorization", authorization);
        self.exchange(method, path, query, &all, body).await
    }

    pub(crate) async fn send_unsigned(&self, method: &str, path: &str) -> Answer {
        let headers = BTreeMap::from([("host", self.server.to_string())]);
        self.exchange(method, path, "", &headers, b"").await
    }

    async fn exchange(
        &self,
        method: &str,
        path: &str,
        query: &str,
        headers: &BTreeMap<&str, String>,
        body: &[u8],
    ) -> Answer {
        let mark = if query.is_empty() { "" } else { "?" };
        let mut head = format!("{method} {path}{mark}{query} HTTP/1.1\r\nconnection: close\r\n");
        head += &format!("content-length: {}\r\n", body.len());
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        head += "\r\n";
        let mut stream = TcpStream::connect(self.server).await.unwrap();
        stream
            .write_all(&[head.as_bytes(), body].concat())
            .await
            .unwrap();
        if self.is_half_closed {
            stream.shutdown().await.unwrap();
        }
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        parse(&answer)
    }
}

fn parse(answer: &[u8]) -> Answer {
    let end = answer
        .windows(4)
        .position(|bytes| bytes == b"\r\n\r\n")
        .unwrap();
    let head = String::from_utf8(answer[..end].to_vec()).unwrap();
    let mut lines = head.lines();
    let status = lines
        .next()
        .unwrap()
        .split(' ')
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    let headers = lines.map(|line| {
        let (name, value) = line.split_once(':').unwrap();
        (name.to_ascii_lowercase(), value.trim().to_owned())
    });
    let headers: BTreeMap<_, _> = headers.collect();
    let mut body = answer[end + 4..].to_vec();
    if headers
        .get("transfer-encoding")
        .is_some_and(|coding| coding == "chunked")
    {
        body = dechunk(&body);
    }
    Answer {
        status,
        headers,
        body,
    }
}

/// Returns the bytes of a body in chunks.
fn dechunk(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    loop {
        let line = body.windows(2).position(|bytes| bytes == b"\r\n").unwrap();
        let length = std::str::from_utf8(&body[..line]).unwrap();
        let length = usize::from_str_radix(length, 16).unwrap();
        if length == 0 {
            return whole;
        }
        whole.extend(&body[line + 2..line + 2 + length]);
        body = &body[line + 4 + length..];
    }
}

/// Returns the time as S3 has it: 20260102T030405Z.
fn amz_date() -> String {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let (days, seconds) = (since / 86_400, since % 86_400);
    // Days since the first of March of the year 0 (Howard Hinnant's civil_from_days).
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    hmac::sign(&key, text.as_bytes()).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the digest of a body in base 64.
pub(crate) fn md5(body: &[u8]) -> String {
    base64::prelude::BASE64_STANDARD.encode(md5::Md5::digest(body))
}
