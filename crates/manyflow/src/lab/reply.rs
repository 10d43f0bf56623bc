//! Responses of the lab.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::Full;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Body, Frame};
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Response, StatusCode};
use serde::Serialize;
use tokio::sync::mpsc;

/// A response.
pub(super) type Reply = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// The page loads only its own files, and no other page can hold it in a frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Returns a response with this body.
pub(super) fn page(status: StatusCode, media_type: &'static str, body: impl Into<Bytes>) -> Reply {
    respond(
        status,
        media_type,
        UnsyncBoxBody::new(Full::new(body.into())),
    )
}

/// Returns a value as JSON.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Reply {
    let text = serde_json::to_vec(value).expect("all keys of maps are texts");
    page(status, "application/json", text)
}

/// Returns a failure with a message for the page.
pub(super) fn failure(status: StatusCode, message: impl ToString) -> Reply {
    json(status, &serde_json::json!({"message": message.to_string()}))
}

/// Returns the events that a channel brings, as a stream of `text/event-stream`.
pub(super) fn events(events: mpsc::Receiver<Bytes>) -> Reply {
    let body = UnsyncBoxBody::new(Events(events));
    respond(StatusCode::OK, "text/event-stream", body)
}

/// Offers a response as a file to be saved.
pub(super) fn attachment(mut reply: Reply, name: &str) -> Reply {
    let value = format!("attachment; filename=\"{name}\"");
    if let Ok(value) = HeaderValue::from_str(&value) {
        reply
            .headers_mut()
            .insert(hyper::header::CONTENT_DISPOSITION, value);
    }
    reply
}

fn respond(
    status: StatusCode,
    media_type: &'static str,
    body: UnsyncBoxBody<Bytes, Infallible>,
) -> Reply {
    let mut reply = Response::new(body);
    *reply.status_mut() = status;
    let headers = [
        (CONTENT_TYPE, media_type),
        (CACHE_CONTROL, "no-store"),
        (CONTENT_SECURITY_POLICY, POLICY),
        // The address holds the token.
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
    ];
    for (name, value) in headers {
        reply
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    reply
}

/// A body whose frames a channel brings.
struct Events(mpsc::Receiver<Bytes>);

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self.0.poll_recv(context);
        next.map(|event| event.map(|event| Ok(Frame::data(event))))
    }
}
