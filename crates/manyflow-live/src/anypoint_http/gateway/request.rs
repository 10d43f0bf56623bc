//! One request of a client: sent to a member, and to another one if that is safe and of use.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, EXPECT, HOST, HeaderValue, RETRY_AFTER};
use hyper::http::uri::PathAndQuery;
use hyper::{Method, Request, Response, StatusCode};

use super::super::headers::{add_forwarded_for, add_via, remove_hop_by_hop};
use super::super::wire::{self, FailureKind, RequestHead, RequestId, is_safe};
use super::body::{GatewayBody, Streamed};
use super::counters::Counter;
use super::exchange::Event;
use super::link::{Link, Ticket};
use super::upload::Upload;
use super::{LinkState, Shared};

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
    let upload = Upload::read(body).await?;
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
    if let Some(authority) = parts.uri.authority()
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        headers.insert(HOST, host);
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
        let opened = link.open(options.window, self.first.len() as u64);
        let busy = || Problem::new(Kind::Unavailable, "too many requests are in progress");
        let mut ticket = opened.ok_or_else(busy)?;
        let message = self.message(ticket.id());
        let failed = |reason| Problem::new(Kind::Failed, reason);
        match tokio::time::timeout(options.timeout, ticket.send(message)).await {
            Ok(sent) => sent.map_err(failed)?,
            Err(_) => return Err(self.silent(&ticket, "takes no request")),
        }
        if let Some(rest) = upload.rest.take() {
            ticket.start_upload(rest);
        }
        match ticket.next_event(options.timeout).await {
            Some(Event::Response(response)) => Ok(self.respond(ticket, *response)),
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
        let reason = format!("the member {what} for {patience:?}: it may have died");
        Problem::new(Kind::Failed, reason)
    }

    fn message(&self, id: RequestId) -> Bytes {
        let options = &self.shared.options;
        let alive_ms = options.timeout.as_millis() as u32 / 3;
        let request = wire::Request {
            id,
            window: options.window,
            alive_ms: alive_ms.max(1),
            head: self.head.clone(),
            body: self.first.clone(),
            is_last: self.can_repeat,
        };
        request.encode()
    }

    fn respond(&self, ticket: Ticket, response: wire::Response) -> Answer {
        let counters = &self.shared.counters;
        let options = &self.shared.options;
        let body = if response.is_last {
            counters.answered.add_one();
            GatewayBody::Full(response.body)
        } else {
            let counters = Arc::clone(counters);
            let (window, patience) = (options.window, options.timeout);
            let body = Streamed::new(ticket, counters, response.body, window, patience);
            GatewayBody::Streamed(Box::new(body))
        };
        let mut answer = Response::new(body);
        *answer.status_mut() = response.status;
        *answer.headers_mut() = response.headers;
        add_via(answer.headers_mut());
        answer
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
