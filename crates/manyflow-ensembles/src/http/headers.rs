//! The headers that a proxy removes and adds.

use std::net::IpAddr;

use hyper::HeaderMap;
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, HOST, HeaderName, HeaderValue, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, VIA,
};

/// The name of this proxy in Via, a pseudonym (RFC 9110 section 7.6.3).
const VIA_VALUE: HeaderValue = HeaderValue::from_static("1.1 manyflow");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// Removes the headers that hold for one connection only: those that `Connection` names, and the
/// list of RFC 9110 section 7.6.1.
pub(super) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let mut named = Vec::new();
    for value in headers.get_all(CONNECTION) {
        let options = value.as_bytes().split(|byte| *byte == b',');
        let options = options.map(<[u8]>::trim_ascii);
        named.extend(options.filter_map(|name| HeaderName::from_bytes(name).ok()));
    }
    // A client that names Host would make the server behind another host answer.
    for name in named.into_iter().filter(|name| *name != HOST) {
        headers.remove(name);
    }
    for name in [
        CONNECTION,
        KEEP_ALIVE,
        PROXY_AUTHENTICATE,
        PROXY_AUTHORIZATION,
        PROXY_CONNECTION,
        TE,
        TRAILER,
        TRANSFER_ENCODING,
        UPGRADE,
    ] {
        headers.remove(name);
    }
}

/// Returns the length that the headers state.
///
/// # Errors
/// If they state several, or one that is not a number (RFC 9110 section 8.6).
pub(super) fn content_length(headers: &HeaderMap) -> Result<Option<u64>, &'static str> {
    let mut values = headers.get_all(CONTENT_LENGTH).iter();
    let Some(first) = values.next() else {
        return Ok(None);
    };
    let text = first.to_str().unwrap_or_default();
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match (text.parse(), values.next()) {
        (Ok(length), None) if is_number => Ok(Some(length)),
        _ => Err("the Content-Length of the response is not one number"),
    }
}

/// Returns whether the body of a server's response comes in chunks.
///
/// # Errors
/// If it has another coding, whose end and contents are in doubt (RFC 9112 sections 6.1 and 7).
/// `identity` is one as well: HTTP/1.1 has it no longer, and a body with it would end with the
/// connection, whatever its Content-Length is.
pub(super) fn is_chunked(headers: &HeaderMap) -> Result<bool, &'static str> {
    let mut values = headers.get_all(TRANSFER_ENCODING).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(false),
        (Some(one), None) if one.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(true),
        _ => Err("the Transfer-Encoding of the response is not `chunked` alone"),
    }
}

/// Adds this proxy to `Via`.
pub(super) fn add_via(headers: &mut HeaderMap) {
    headers.append(VIA, VIA_VALUE);
}

/// Adds the client's address to the list in `X-Forwarded-For`.
pub(super) fn add_forwarded_for(headers: &mut HeaderMap, client: IpAddr) {
    let mut list = Vec::new();
    for value in headers.get_all(X_FORWARDED_FOR) {
        list.extend_from_slice(value.as_bytes());
        list.extend_from_slice(b", ");
    }
    list.extend_from_slice(client.to_canonical().to_string().as_bytes());
    if let Ok(value) = HeaderValue::from_bytes(&list) {
        headers.insert(X_FORWARDED_FOR, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            let value = HeaderValue::from_static(value);
            (HeaderName::from_static(name), value)
        };
        list.iter().map(pair).collect()
    }

    #[test]
    fn headers_of_one_connection_are_removed_and_others_remain() {
        let mut found = headers(&[
            ("connection", "close, X-Private ,upgrade, host"),
            ("x-private", "1"),
            ("upgrade", "websocket"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("host", "example.net"),
            ("content-length", "3"),
        ]);
        remove_hop_by_hop(&mut found);
        let left = headers(&[("host", "example.net"), ("content-length", "3")]);
        assert_eq!(found, left);
    }

    #[test]
    fn the_client_is_added_behind_earlier_proxies() {
        let mut found = headers(&[("x-forwarded-for", "192.0.2.1")]);
        add_forwarded_for(&mut found, "::ffff:10.0.0.7".parse().unwrap());
        assert_eq!(found["x-forwarded-for"], "192.0.2.1, 10.0.0.7");
        add_via(&mut found);
        assert_eq!(found["via"], "1.1 manyflow");
    }
}
