//! One request of a client: its head, the framing of its response, and answers of the gateway.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, HeaderValue, MAX_FORWARDS};
use hyper::http::uri::{PathAndQuery, Scheme};
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Uri, Version};

use super::super::framing::is_host;
use super::super::headers::{add_forwarded_for, add_via, content_length, remove_hop_by_hop};
use super::super::wire::{self, RequestHead};
use super::Shared;
use super::attempts::Attempts;
use super::body::GatewayBody;
use super::counters::Counter;
use super::upload::Upload;

/// The sum of the windows of responses in progress in bytes, up to which each has all of its own.
const WINDOWS_BYTES: u32 = 32 << 20;
/// The smallest window in bytes that a response gets.
const WINDOW_BYTES_MIN: u32 = 16 << 10;

pub(super) type Answer = Response<GatewayBody>;

/// Answers a request of `client`.
pub(super) async fn answer(
    shared: &Arc<Shared>,
    client: IpAddr,
    request: Request<Incoming>,
) -> Result<Answer, Infallible> {
    shared.counters.requests.add_one();
    let (head, upload) = match take_head(client, request) {
        Ok(taken) => taken,
        Err(answer) => {
            shared.counters.rejected.add_one();
            return Ok(*answer);
        }
    };
    // The server drops this future if the client ends its connection.
    let mut unanswered = Unanswered(Some(&shared.counters.cancelled));
    let answer = Attempts::new(shared, head, upload).run().await;
    unanswered.0 = None;
    Ok(answer)
}

/// Counts a request that its client gave up before the response began.
struct Unanswered<'a>(Option<&'a Counter>);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some(cancelled) = self.0 {
            cancelled.add_one();
        }
    }
}

/// Checks and converts the head of a request.
fn take_head(
    client: IpAddr,
    request: Request<Incoming>,
) -> Result<(RequestHead, Upload), Box<Answer>> {
    let (parts, body) = request.into_parts();
    if parts.method == Method::CONNECT {
        let reason = "this port opens no tunnels: `manyflow gateway --tcp connect` does\n";
        let answer = text(StatusCode::NOT_IMPLEMENTED, reason.to_owned());
        return Err(answer.into());
    }
    let mut headers = parts.headers;
    // RFC 9112 section 3.2.2: the authority of the target takes the place of Host.
    if let Some(authority) = parts.uri.authority() {
        let host = HeaderValue::from_str(authority.as_str());
        let host = host.ok().filter(|_| is_host(authority.as_str().as_bytes()));
        match host.filter(|_| parts.uri.scheme() == Some(&Scheme::HTTP)) {
            Some(host) => headers.insert(HOST, host),
            None => {
                let reason = "this gateway answers for http://HOST[:PORT] only, without a user\n";
                return Err(text(StatusCode::BAD_REQUEST, reason.to_owned()).into());
            }
        };
    }
    // RFC 9110 section 7.6.2.
    if parts.method == Method::OPTIONS || parts.method == Method::TRACE {
        match count_forward(&mut headers) {
            Forward::Further => {}
            Forward::EndsHere if parts.method == Method::OPTIONS => {
                return Err(text(StatusCode::OK, String::new()).into());
            }
            Forward::EndsHere => {
                let reason = "this gateway does not answer TRACE\n";
                return Err(text(StatusCode::NOT_IMPLEMENTED, reason.to_owned()).into());
            }
        }
    }
    remove_hop_by_hop(&mut headers);
    let upload = Upload::new(body, takes_continue(parts.version, &headers));
    if !upload.is_awaited() {
        headers.remove(EXPECT);
    }
    add_forwarded_for(&mut headers, client);
    add_via(&mut headers);
    let head = RequestHead {
        method: parts.method,
        target: origin_form(&parts.uri),
        headers,
    };
    match head.check() {
        Ok(()) => Ok((head, upload)),
        Err(error) => {
            let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
            Err(text(status, format!("{error}\n")).into())
        }
    }
}

/// Returns whether the client may wait for 100 before it sends the body (RFC 9110 section 10.1.1):
/// the condition under which hyper's server sends it.
fn takes_continue(version: Version, headers: &HeaderMap) -> bool {
    let expected = headers.get(EXPECT).map(HeaderValue::as_bytes);
    version == Version::HTTP_11
        && expected.is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue"))
}

/// Returns the path and the query of a target. An empty path is `/` (RFC 9112 section 3.2.1), also
/// before a query, as in `http://example.net?a=b`.
fn origin_form(target: &Uri) -> PathAndQuery {
    let root = || PathAndQuery::from_static("/");
    match target.path_and_query() {
        Some(given) if given.as_str().starts_with('?') => {
            let path = format!("/{}", given.as_str());
            PathAndQuery::from_maybe_shared(path).unwrap_or_else(|_| root())
        }
        Some(given) => given.clone(),
        None => root(),
    }
}

/// Returns the credit for the next response: the window, or less if many are in progress.
pub(super) fn window_for(in_progress: usize, window: u32) -> u32 {
    let share = WINDOWS_BYTES / (in_progress as u32 + 1);
    share.max(WINDOW_BYTES_MIN).min(window)
}

/// Makes the headers of a member's response those of a message of this hop. Returns the length of
/// its body, if it states one.
///
/// # Errors
/// If its end is in doubt.
pub(super) fn take_framing(
    method: &Method,
    response: &mut wire::Response,
) -> Result<Option<u64>, &'static str> {
    remove_hop_by_hop(&mut response.headers);
    let status = response.status;
    if status.is_informational() {
        return Err("the server switched protocols, which no request asks for");
    }
    let has_body = *method != Method::HEAD
        && status != StatusCode::NO_CONTENT
        && status != StatusCode::NOT_MODIFIED;
    if status == StatusCode::NO_CONTENT {
        // RFC 9110 section 8.6.
        response.headers.remove(CONTENT_LENGTH);
    }
    let length = content_length(&response.headers)?;
    if !has_body {
        let is_empty = response.is_last && response.body.is_empty();
        return match is_empty {
            true => Ok(None),
            false => Err("the response has a body that it must not have"),
        };
    }
    let here = response.body.len() as u64;
    let is_right = length.is_none_or(|length| match response.is_last {
        true => here == length,
        false => here <= length,
    });
    match is_right {
        true => Ok(length),
        false => Err("the length of the response is not its Content-Length"),
    }
}

/// Whether a request with Max-Forwards goes on.
enum Forward {
    Further,
    EndsHere,
}

/// Lowers Max-Forwards. An invalid value is ignored.
fn count_forward(headers: &mut HeaderMap) -> Forward {
    let value = headers
        .get(MAX_FORWARDS)
        .and_then(|value| value.to_str().ok());
    match value.and_then(|value| value.parse::<u32>().ok()) {
        None => Forward::Further,
        Some(0) => Forward::EndsHere,
        Some(left) => {
            headers.insert(MAX_FORWARDS, HeaderValue::from(left - 1));
            Forward::Further
        }
    }
}

/// Returns an answer of the gateway itself.
pub(super) fn text(status: StatusCode, text: String) -> Answer {
    let mut answer = Response::new(GatewayBody::Full(text.into()));
    *answer.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, plain);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the length of a response's body, or why it is refused.
    fn framing(
        method: Method,
        status: u16,
        headers: &[(&'static str, &'static str)],
        body: &'static str,
        is_last: bool,
    ) -> Result<Option<u64>, &'static str> {
        let mut response = wire::Response {
            status: StatusCode::from_u16(status).unwrap(),
            headers: HeaderMap::new(),
            body: body.into(),
            is_last,
        };
        for (name, value) in headers {
            response
                .headers
                .append(*name, HeaderValue::from_static(value));
        }
        let length = take_framing(&method, &mut response);
        assert!(!response.headers.contains_key("transfer-encoding"));
        length
    }

    #[test]
    fn a_response_of_a_member_is_framed_by_its_body() {
        let hello = |headers: &[_], is_last| framing(Method::GET, 200, headers, "hello", is_last);
        assert_eq!(hello(&[], true), Ok(None));
        assert_eq!(hello(&[("content-length", "5")], true), Ok(Some(5)));
        assert_eq!(hello(&[("content-length", "9")], false), Ok(Some(9)));
        assert_eq!(hello(&[("transfer-encoding", "chunked")], true), Ok(None));
        let refused: [&[_]; 6] = [
            &[("content-length", "3")],
            &[("content-length", "9")],
            &[("content-length", "+5")],
            &[("content-length", "5, 5")],
            &[("content-length", "")],
            &[("content-length", "5"), ("content-length", "5")],
        ];
        for headers in refused {
            assert!(hello(headers, true).is_err(), "{headers:?}");
        }
        assert!(hello(&[("content-length", "3")], false).is_err());
    }

    #[test]
    fn a_response_that_must_have_no_body_has_none() {
        let length = [("content-length", "5")];
        for (method, status) in [(Method::HEAD, 200), (Method::GET, 304), (Method::GET, 204)] {
            let empty = framing(method.clone(), status, &length, "", true);
            assert_eq!(empty, Ok(None), "{method} {status}");
            assert!(framing(method.clone(), status, &[], "hello", true).is_err());
            assert!(framing(method, status, &[], "", false).is_err());
        }
        assert!(framing(Method::GET, 101, &[], "", true).is_err());
    }

    #[test]
    fn many_responses_share_the_memory_of_windows() {
        assert_eq!(window_for(0, 256 << 10), 256 << 10);
        let sum: u64 = (0..1024).map(|n| u64::from(window_for(n, 256 << 10))).sum();
        assert!(sum < 128 << 20, "{sum}");
        assert_eq!(window_for(1 << 20, 256 << 10), WINDOW_BYTES_MIN);
    }
}
