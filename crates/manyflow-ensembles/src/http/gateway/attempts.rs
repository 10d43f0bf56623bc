//! The attempts to answer one request: sent to a member, and to another one if that is safe and of
//! use.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::ext::ReasonPhrase;
use hyper::header::{CONNECTION, EXPECT, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};
use tokio::time::{Instant, sleep};

use super::super::headers::add_via;
use super::super::wire::{self, Failure, FailureKind, RequestHead, is_safe};
use super::Shared;
use super::body::{GatewayBody, Streamed};
use super::exchange::Event;
use super::link::{Link, Ticket};
use super::request::{Answer, take_framing, text, window_for};
use super::roster::Outcome;
use super::upload::{Rest, Unread, Upload};

/// The minimum number of attempts for a request that members refuse unseen, which any request may
/// have. With more members, each is asked once.
const REFUSALS_MIN: usize = 3;
/// The time between two looks at whether a request needs a second copy.
const HEDGE_TICK: Duration = Duration::from_millis(25);

/// The reason why an attempt has no response.
pub(super) struct Problem {
    pub(super) kind: Kind,
    pub(super) reason: String,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// There is no connection to the switch, or no place for the request.
    Unavailable,
    /// No member has passed the request to its server.
    Refused,
    /// The request may have had an effect.
    Failed,
    /// The server has got the request, and has not answered in time.
    Late,
    /// The client has not sent its whole request.
    Unread(StatusCode),
}

impl Problem {
    pub(super) fn new(kind: Kind, reason: impl Into<String>) -> Problem {
        let reason = reason.into();
        Problem { kind, reason }
    }

    /// Returns the problem of a request that a member has reported as failed.
    pub(super) fn of(failure: Failure) -> Problem {
        let kind = match failure.kind {
            FailureKind::Refused | FailureKind::Unreachable => Kind::Refused,
            FailureKind::Late => Kind::Late,
            FailureKind::Unknown | FailureKind::Origin | FailureKind::Elsewhere => Kind::Failed,
        };
        Problem::new(kind, failure.reason)
    }
}

impl From<Unread> for Problem {
    fn from(unread: Unread) -> Problem {
        Problem::new(Kind::Unread(unread.status()), unread.to_string())
    }
}

/// A request that a member has, or its beginning.
struct Sent {
    ticket: Ticket,
    window: u32,
    /// The bytes of the body in the first message, if others follow.
    begun: Option<u64>,
}

/// Sends the rest of a body, if there is one. Returns only if the client does not send it.
async fn send_rest(rest: &mut Option<Rest>) -> Unread {
    if let Some(sending) = rest {
        if let Err(unread) = sending.await {
            return unread;
        }
        *rest = None;
    }
    std::future::pending().await
}

/// The attempts to answer one request.
pub(super) struct Attempts<'a> {
    shared: &'a Arc<Shared>,
    head: RequestHead,
    upload: Upload,
    /// The members that have had the request.
    tried: Vec<u64>,
    refusals: usize,
    retries: u32,
}

impl<'a> Attempts<'a> {
    pub(super) fn new(shared: &'a Arc<Shared>, head: RequestHead, upload: Upload) -> Attempts<'a> {
        Attempts {
            shared,
            head,
            upload,
            tried: Vec::new(),
            refusals: 0,
            retries: 0,
        }
    }

    pub(super) async fn run(&mut self) -> Answer {
        loop {
            let problem = match self.attempt().await {
                Ok(answer) => return answer,
                Err(problem) => problem,
            };
            let RequestHead { method, target, .. } = &self.head;
            tracing::debug!("{method} {target}: {}", problem.reason);
            if !self.may_repeat(problem.kind) {
                return self.refuse(&problem);
            }
        }
    }

    /// Returns whether the request can be sent again without a second effect.
    fn is_safe(&self) -> bool {
        self.upload.is_whole() && is_safe(&self.head.method)
    }

    /// Decides whether to try again, and counts it.
    fn may_repeat(&mut self, kind: Kind) -> bool {
        let counters = &self.shared.counters;
        if !self.upload.is_kept() || matches!(kind, Kind::Unavailable | Kind::Unread(_)) {
            return false;
        }
        if kind == Kind::Refused && self.refusals < REFUSALS_MIN.max(self.tried.len()) {
            self.refusals += 1;
            counters.refused.add_one();
            return true;
        }
        let may = kind != Kind::Refused && self.retries == 0 && self.is_safe();
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
        if let Kind::Unread(status) = problem.kind {
            self.shared.counters.rejected.add_one();
            return text(status, format!("{reason}\n"));
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
        let status = match problem.kind {
            Kind::Late => StatusCode::GATEWAY_TIMEOUT,
            _ => StatusCode::BAD_GATEWAY,
        };
        text(status, format!("{reason}\n{note}\n"))
    }

    /// Sends the request once, and waits for the beginning of its response. A request that can be
    /// sent again goes to a second member when the first is silent or slow.
    async fn attempt(&mut self) -> Result<Answer, Problem> {
        let link = self.link().await?;
        let sent = self.send(&link, false).await?;
        let Some(first) = sent else {
            return Err(Problem::new(
                Kind::Unavailable,
                "too many requests are in progress",
            ));
        };
        let mut rest = self.rest_of(&first);
        let (patience, began) = (self.shared.options.timeout, Instant::now());
        let hedged = {
            let mut event = std::pin::pin!(first.ticket.next_event(patience));
            loop {
                tokio::select! {
                    biased;
                    event = event.as_mut() => break Err(event),
                    unread = send_rest(&mut rest) => return Err(unread.into()),
                    () = sleep(HEDGE_TICK), if self.is_safe() && self.retries == 0 => {}
                }
                if let Some(second) = self.hedge(&first, began).await? {
                    break Ok(second);
                }
            }
        };
        match hedged {
            Ok((second, is_slow)) => self.race(first, second, is_slow).await,
            Err(event) => self.conclude(first, event, rest),
        }
    }

    /// Sends the request to a second member if that is due. Returns whether the first is only slow.
    async fn hedge(
        &mut self,
        first: &Sent,
        began: Instant,
    ) -> Result<Option<(Sent, bool)>, Problem> {
        let is_suspected = first.ticket.is_suspected();
        let after = self.shared.options.hedge_after;
        let is_slow = after.is_some_and(|after| began.elapsed() >= after);
        if !is_suspected && !is_slow {
            return Ok(None);
        }
        let Ok(link) = self.shared.link() else {
            return Ok(None);
        };
        if !Arc::ptr_eq(&link, first.ticket.link()) {
            // The same members may be behind another switch.
            self.tried.clear();
        }
        let has_other = link
            .roster()
            .choose_hedge(Instant::now(), &self.tried)
            .is_some();
        if !has_other || (!is_suspected && !link.roster().take_hedge()) {
            return Ok(None);
        }
        let second = self.send(&link, true).await?;
        if second.is_some() {
            self.retries += 1;
            self.shared.counters.hedged.add_one();
        }
        Ok(second.map(|second| (second, !is_suspected)))
    }

    /// Waits for the first of two responses. A failure of one leaves the other.
    async fn race(&mut self, first: Sent, second: Sent, is_slow: bool) -> Result<Answer, Problem> {
        let patience = self.shared.options.timeout;
        let (event, is_first) = tokio::select! {
            biased;
            event = first.ticket.next_event(patience) => (event, true),
            event = second.ticket.next_event(patience) => (event, false),
        };
        let (ended, other) = if is_first {
            (first, second)
        } else {
            (second, first)
        };
        let answered = self.conclude(ended, event, None);
        if answered.is_ok() {
            if is_slow && !is_first {
                other.ticket.note(Outcome::Slow);
            }
            return answered;
        }
        let event = other.ticket.next_event(patience).await;
        self.conclude(other, event, None)
    }

    /// Gives the request to a member that has not had it, or to the switch's choice. Returns `None`
    /// if too many requests are in progress.
    async fn send(&mut self, link: &Arc<Link>, is_hedge: bool) -> Result<Option<Sent>, Problem> {
        self.upload.read_beginning().await?;
        link.find_members().await;
        let choice = {
            let (now, mut roster) = (Instant::now(), link.roster());
            match is_hedge {
                true => roster.choose_hedge(now, &self.tried),
                // Without another member, the same one gets another attempt.
                false => roster
                    .choose(now, &self.tried, self.is_safe())
                    .or_else(|| roster.choose(now, &[], self.is_safe())),
            }
        };
        if choice.is_none() {
            // A second message might reach another member.
            self.upload.read_message().await?;
        }
        let member = choice.map(|choice| choice.member);
        self.tried
            .extend(member.filter(|member| !self.tried.contains(member)));
        let options = &self.shared.options;
        let window = window_for(link.in_progress(), options.window);
        let (body, is_last) = (self.upload.beginning(), self.upload.is_whole());
        let sent = body.len() as u64;
        let Some(ticket) = link.open(choice, window, sent) else {
            return Ok(None);
        };
        let message = self.message(&ticket, window, body, is_last);
        match tokio::time::timeout(options.timeout, ticket.send(message)).await {
            Ok(sent) => sent.map_err(|reason| Problem::new(Kind::Failed, reason))?,
            Err(_) => return Err(self.silent(&ticket, "takes no request")),
        }
        Ok(Some(Sent {
            ticket,
            window,
            begun: (!is_last).then_some(sent),
        }))
    }

    /// Returns the part of the body that did not fit the first message, or comes later.
    fn rest_of(&self, sent: &Sent) -> Option<Rest> {
        let (link, exchange) = (sent.ticket.link(), &sent.ticket.exchange);
        let (link, exchange) = (Arc::clone(link), Arc::clone(exchange));
        let upload = self.upload.clone();
        sent.begun
            .map(|begun| -> Rest { Box::pin(upload.send_rest(link, exchange, begun)) })
    }

    /// Returns the answer that follows from the first event of an attempt; `None` is the end of the
    /// patience.
    fn conclude(
        &self,
        sent: Sent,
        event: Option<Event>,
        rest: Option<Rest>,
    ) -> Result<Answer, Problem> {
        let failed = |reason: &str| Problem::new(Kind::Failed, reason);
        let Sent {
            mut ticket, window, ..
        } = sent;
        match event {
            Some(Event::Response(mut response)) => {
                let length = take_framing(&self.head.method, &mut response);
                let length = length.map_err(|reason| {
                    ticket.note(Outcome::Failed);
                    failed(reason)
                })?;
                // A client that waits for 100 and gets this answer does not send its body.
                if let Some(rest) = rest.filter(|_| !self.upload.is_awaited()) {
                    ticket.start_upload(rest);
                }
                Ok(self.respond(ticket, *response, length, window))
            }
            Some(Event::Failed(failure)) => {
                note_failure(&ticket, failure.kind);
                let is_elsewhere = failure.kind == FailureKind::Elsewhere;
                let problem = Problem::of(failure);
                // The key has led to another member. A request that can be sent again goes on.
                Err(match is_elsewhere && self.is_safe() {
                    true => Problem::new(Kind::Refused, problem.reason),
                    false => problem,
                })
            }
            Some(Event::Lost(reason)) => Err(failed(&reason)),
            Some(Event::Part(_)) => Err(failed("the response has no beginning")),
            None => Err(self.silent(&ticket, "shows no sign of life")),
        }
    }

    /// Returns the connection to a switch. A request that was sent before may wait for it.
    async fn link(&self) -> Result<Arc<Link>, Problem> {
        if self.retries > 0 {
            // Afterwards the state is read, whether the time was enough or not.
            let connected = self.shared.connected();
            let _ = tokio::time::timeout(self.shared.options.timeout, connected).await;
        }
        let link = self.shared.link();
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

    fn message(&self, ticket: &Ticket, window: u32, body: Bytes, is_last: bool) -> Bytes {
        let mut head = self.head.clone();
        if !self.upload.is_awaited() {
            head.headers.remove(EXPECT);
        }
        let request = wire::Request {
            id: ticket.id(),
            window,
            alive_ms: self.shared.alive_ms(),
            to: ticket.member(),
            head,
            body,
            is_last,
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
        let outcome = match response.status.is_server_error() {
            true => Outcome::Failed,
            false => Outcome::Answered,
        };
        // The response ends the connection before the request has arrived.
        let is_early = self.upload.is_awaited() || (response.is_last && !self.upload.is_over());
        let body = if response.is_last {
            counters.answered.add_one();
            ticket.note(outcome);
            GatewayBody::Full(response.body)
        } else {
            let counters = Arc::clone(counters);
            let first = response.body;
            let patience = options.timeout;
            let body = Streamed::new(ticket, counters, first, length, window, outcome, patience);
            GatewayBody::Streamed(Box::new(body))
        };
        let mut answer = Response::new(body);
        *answer.status_mut() = response.status;
        *answer.headers_mut() = response.headers;
        if response.status.canonical_reason().is_none() {
            // Otherwise hyper writes `<none>`.
            let reason = ReasonPhrase::from_static(b"");
            answer.extensions_mut().insert(reason);
        }
        add_via(answer.headers_mut());
        if is_early {
            let close = HeaderValue::from_static("close");
            answer.headers_mut().insert(CONNECTION, close);
        }
        answer
    }
}

/// Notes a failure that a member has reported, for the health of its server.
pub(super) fn note_failure(ticket: &Ticket, kind: FailureKind) {
    match kind {
        FailureKind::Unreachable => ticket.note(Outcome::Unreachable),
        FailureKind::Late => ticket.note(Outcome::Late),
        FailureKind::Origin => ticket.note(Outcome::Failed),
        // They say nothing about the server.
        FailureKind::Refused | FailureKind::Unknown | FailureKind::Elsewhere => {}
    }
}
