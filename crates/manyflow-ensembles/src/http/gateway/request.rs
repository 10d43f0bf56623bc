//! One request of a client: sent to a member, and to another one if that is safe and of use.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{
    CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, HeaderValue, MAX_FORWARDS, RETRY_AFTER,
};
use hyper::http::uri::{PathAndQuery, Scheme};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};

use super::super::framing::is_host;
use super::super::headers::{add_forwarded_for, add_via, content_length, remove_hop_by_hop};
use super::super::wire::{self, FailureKind, RequestHead, RequestId, is_safe};
use super::body::{GatewayBody, Streamed};
use super::counters::Counter;
use super::exchange::Event;
use super::link::{Link, Ticket};
use super::upload::Upload;
use super::{LinkState, Shared};

/// The sum of the windows of responses in progress in bytes, up to which each has all of its own.
const WINDOWS_BYTES: u32 = 32 << 20;
/// The smallest window in bytes that a response gets.
const WINDOW_BYTES_MIN: u32 = 16 << 10;
/// The attempts for a request that members refuse unseen, which any request may have.
const REFUSALS_MAX: u32 = 3;

type Answer = Response<GatewayBody>;

/// The reason why an attempt has no response.
struct Problem {
    kind: Kind,
    reason: String,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// There is no connection to the switch, or no place for the request.
    Unavailable,
    /// No member has passed the request to its server.
    Refused,
    /// The request may have had an effect.
    Failed,
}

impl Problem {
    fn new(kind: Kind, reason: impl Into<String>) -> Problem {
        let reason = reason.into();
        Problem { kind, reason }
    }
}

/// Answers a request of `client`.
pub(super) async fn answer(
    shared: &Arc<Shared>,
    client: IpAddr,
    request: Request<Incoming>,
) -> Result<Answer, hyper::Error> {
    shared.counters.requests.add_one();
    let (head, body) = match take_head(client, request) {
        Ok(taken) => taken,
        Err(answer) => {
            shared.counters.rejected.add_one();
            return Ok(*answer);
        }
    };
    // The server drops this future if the client ends its connection.
    let mut unanswered = Unanswered(Some(&shared.counters.cancelled));
    let upload = match Upload::read(body).await {
        Ok(upload) => upload,
        Err(error) if error.is_incomplete_message() => return Err(error),
        Err(error) => {
            unanswered.0 = None;
            shared.counters.rejected.add_one();
            let reason = format!("the body of the request is not valid: {error}\n");
            return Ok(text(StatusCode::BAD_REQUEST, reason));
        }
    };
    let can_repeat = upload.rest.is_none();
    let mut attempts = Attempts {
        shared,
        head,
        first: upload.first.clone(),
        can_repeat,
        refusals: 0,
        retries: 0,
    };
    let answer = attempts.run(upload).await;
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
) -> Result<(RequestHead, Incoming), Box<Answer>> {
    let (parts, body) = request.into_parts();
    if parts.method == Method::CONNECT {
        let reason = "this gateway opens no tunnels: CONNECT is not supported\n";
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
    // The gateway has answered it: the body arrives.
    headers.remove(EXPECT);
    add_forwarded_for(&mut headers, client);
    add_via(&mut headers);
    let target = parts.uri.path_and_query().cloned();
    let head = RequestHead {
        method: parts.method,
        target: target.unwrap_or_else(|| PathAndQuery::from_static("/")),
        headers,
    };
    match head.check() {
        Ok(()) => Ok((head, body)),
        Err(error) => {
            let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
            Err(text(status, format!("{error}\n")).into())
        }
    }
}

/// The attempts to answer one request.
struct Attempts<'a> {
    shared: &'a Arc<Shared>,
    head: RequestHead,
    first: Bytes,
    /// Whether the gateway still has the whole request.
    can_repeat: bool,
    refusals: u32,
    retries: u32,
}

impl Attempts<'_> {
    async fn run(&mut self, mut upload: Upload) -> Answer {
        loop {
            let problem = match self.attempt(&mut upload).await {
                Ok(answer) => return answer,
                Err(problem) => problem,
            };
            tracing::debug!(
                "{} {}: {}",
                self.head.method,
                self.head.target,
                problem.reason
            );
            if !self.may_repeat(problem.kind) {
                return self.refuse(&problem);
            }
        }
    }

    /// Decides whether to try again, and counts it.
    fn may_repeat(&mut self, kind: Kind) -> bool {
        let counters = &self.shared.counters;
        if !self.can_repeat || kind == Kind::Unavailable {
            return false;
        }
        if kind == Kind::Refused && self.refusals < REFUSALS_MAX {
            self.refusals += 1;
            counters.refused.add_one();
            return true;
        }
        let may = kind == Kind::Failed && self.retries == 0 && is_safe(&self.head.method);
        if may {
            self.retries += 1;
            counters.retried.add_one();
        }
        may
    }

    fn refuse(&self, problem: &Problem) -> Answer {
        let reason = &problem.reason;
        if problem.kind == Kind::Unavailable {
            self.shared.counters.unavailable.add_one();
            let mut answer = text(StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n"));
            let second = HeaderValue::from_static("1");
            answer.headers_mut().insert(RETRY_AFTER, second);
            return answer;
        }
        self.shared.counters.failed.add_one();
        let method = &self.head.method;
        let note = match problem.kind {
            Kind::Refused => "No server has handled the request.".to_owned(),
            _ if self.retries > 0 => "The request was sent twice.".to_owned(),
            _ if !is_safe(method) => {
                format!("{method} is not sent again: the server may have handled it.")
            }
            _ => "The request's body is too long to be sent again.".to_owned(),
        };
        text(StatusCode::BAD_GATEWAY, format!("{reason}\n{note}\n"))
    }

    /// Sends the request once, and waits for the beginning of its response.
    async fn attempt(&self, upload: &mut Upload) -> Result<Answer, Problem> {
        let link = self.link().await?;
        let options = &self.shared.options;
        let window = window_for(link.in_progress(), options.window);
        let opened = link.open(window, self.first.len() as u64);
        let busy = || Problem::new(Kind::Unavailable, "too many requests are in progress");
        let mut ticket = opened.ok_or_else(busy)?;
        let message = self.message(ticket.id(), window);
        let failed = |reason| Problem::new(Kind::Failed, reason);
        match tokio::time::timeout(options.timeout, ticket.send(message)).await {
            Ok(sent) => sent.map_err(failed)?,
            Err(_) => return Err(self.silent(&ticket, "takes no request")),
        }
        if let Some(rest) = upload.rest.take() {
            ticket.start_upload(rest);
        }
        match ticket.next_event(options.timeout).await {
            Some(Event::Response(mut response)) => {
                let length = take_framing(&self.head.method, &mut response);
                let length = length.map_err(|reason| failed(reason.to_owned()))?;
                Ok(self.respond(ticket, *response, length, window))
            }
            Some(Event::Failed(failure)) => {
                let kind = match failure.kind {
                    FailureKind::Refused => Kind::Refused,
                    FailureKind::Unknown | FailureKind::Origin => Kind::Failed,
                };
                Err(Problem::new(kind, failure.reason))
            }
            Some(Event::Lost(reason)) => Err(failed(reason)),
            Some(Event::Part(_)) => Err(failed("the response has no beginning".to_owned())),
            None => Err(self.silent(&ticket, "shows no sign of life")),
        }
    }

    /// Returns the connection to the switch. A request that was sent before may wait for it.
    async fn link(&self) -> Result<Arc<Link>, Problem> {
        let mut links = self.shared.links.clone();
        if self.retries > 0 {
            let is_alive = |link: &LinkState| link.as_ref().is_ok_and(|link| link.is_alive());
            let connected = links.wait_for(is_alive);
            // Afterwards the state is read, whether the time was enough or not.
            let _ = tokio::time::timeout(self.shared.options.timeout, connected).await;
        }
        let link = links.borrow().clone();
        link.map_err(|reason| Problem::new(Kind::Unavailable, reason))
    }

    fn silent(&self, ticket: &Ticket, what: &str) -> Problem {
        let patience = self.shared.options.timeout;
        self.shared.counters.silent.add_one();
        ticket.link().doubt(patience * 2);
        let seconds = patience.as_secs_f64();
        let reason = format!("the member {what} for {seconds} s: it may have died");
        Problem::new(Kind::Failed, reason)
    }

    fn message(&self, id: RequestId, window: u32) -> Bytes {
        let options = &self.shared.options;
        let alive_ms = options.timeout.as_millis() as u32 / 3;
        let request = wire::Request {
            id,
            window,
            alive_ms: alive_ms.max(1),
            head: self.head.clone(),
            body: self.first.clone(),
            is_last: self.can_repeat,
        };
        request.encode()
    }

    /// Returns the answer for the client. `length` is that of the body, if the response states it.
    fn respond(
        &self,
        ticket: Ticket,
        response: wire::Response,
        length: Option<u64>,
        window: u32,
    ) -> Answer {
        let counters = &self.shared.counters;
        let options = &self.shared.options;
        let body = if response.is_last {
            counters.answered.add_one();
            GatewayBody::Full(response.body)
        } else {
            let counters = Arc::clone(counters);
            let first = response.body;
            let body = Streamed::new(ticket, counters, first, length, window, options.timeout);
            GatewayBody::Streamed(Box::new(body))
        };
        let mut answer = Response::new(body);
        *answer.status_mut() = response.status;
        *answer.headers_mut() = response.headers;
        add_via(answer.headers_mut());
        answer
    }
}

/// Returns the credit for the next response: the window, or less if many are in progress.
fn window_for(in_progress: usize, window: u32) -> u32 {
    let share = WINDOWS_BYTES / (in_progress as u32 + 1);
    share.max(WINDOW_BYTES_MIN).min(window)
}

/// Makes the headers of a member's response those of a message of this hop. Returns the length of
/// its body, if it states one.
///
/// # Errors
/// If its end is in doubt.
fn take_framing(
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
fn text(status: StatusCode, text: String) -> Answer {
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
