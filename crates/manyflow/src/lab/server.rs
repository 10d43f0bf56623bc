//! Accepts connections and routes requests.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use manyflow_net::accepting::FailedAccepts;
use serde::de::DeserializeOwned;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::order::OrderStage;
use super::reply::{Reply, failure, json, page};
use super::{Lab, api, assets};

/// Maximum time between the beginning of a request and the end of its header.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum length of a scenario's text with the rest of its request.
const BODY_BYTES_MAX: usize = 4 << 20;
/// The maximum number of connections; others wait. A browser uses six.
const CONNECTIONS_MAX: usize = 64;

const TEXT: &str = "text/plain; charset=utf-8";

/// Answers requests until the future is dropped.
pub(super) async fn serve(listener: TcpListener, lab: Arc<Lab>) {
    let free = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut failed = FailedAccepts::default();
    loop {
        let permit = Arc::clone(&free).acquire_owned().await;
        match listener.accept().await {
            Ok((stream, _)) => {
                let lab = Arc::clone(&lab);
                tokio::spawn(async move {
                    serve_connection(stream, lab).await;
                    drop(permit);
                });
            }
            Err(error) => failed.pause(&error).await,
        }
    }
}

async fn serve_connection(stream: TcpStream, lab: Arc<Lab>) {
    // Events are small and must not wait for the acknowledgement of others.
    let _ = stream.set_nodelay(true);
    let respond = service_fn(|request| {
        let lab = Arc::clone(&lab);
        async move { Ok::<_, Infallible>(respond(&lab, request).await) }
    });
    // Without `half_close`: the end of a browser's bytes is that of its page, which has to end the
    // events of a run that is paused.
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), respond);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "connection failed");
    }
}

async fn respond(lab: &Arc<Lab>, request: Request<Incoming>) -> Reply {
    let Some(path) = lab.guard.admit(&request).map(str::to_owned) else {
        let message = "open the address that `manyflow lab` has printed, with its token\n";
        return page(StatusCode::FORBIDDEN, TEXT, message);
    };
    let segments: Vec<&str> = path.split('/').collect();
    match (request.method(), segments.as_slice()) {
        (&Method::POST, ["check"]) => {
            with_body(request, |asked: api::Asked| api::check(&asked)).await
        }
        (&Method::POST, ["runs"]) => {
            let lab = Arc::clone(lab);
            with_body(request, move |asked| api::start(&lab, &asked)).await
        }
        (&Method::POST, ["sweeps"]) => {
            let lab = Arc::clone(lab);
            with_body(request, move |asked| api::start_sweep(&lab, &asked)).await
        }
        (&Method::POST, ["runs", number, what @ ("pace" | "stop")]) => {
            let Some(run) = number.parse().ok().and_then(|number| lab.runs.find(number)) else {
                return not_found();
            };
            let is_stop = *what == "stop";
            with_body(request, move |speed| {
                match is_stop {
                    true => run.stop(),
                    false => run.pace.set(speed),
                }
                json(StatusCode::OK, &())
            })
            .await
        }
        (&Method::POST, ["order", what @ ("cut" | "send")]) => {
            let (lab, is_cut) = (Arc::clone(lab), *what == "cut");
            with_body(request, move |wanted| change_order(&lab, is_cut, wanted)).await
        }
        (&Method::GET, segments) => get(lab, &request, &path, segments).await,
        _ => failure(StatusCode::METHOD_NOT_ALLOWED, "only GET and POST"),
    }
}

async fn get(lab: &Arc<Lab>, request: &Request<Incoming>, path: &str, segments: &[&str]) -> Reply {
    match segments {
        ["figures.json"] => json(StatusCode::OK, &lab.figures.entries()),
        ["text"] => {
            // The id can be a path, so it is in the query.
            let id = request.uri().query().map(decode);
            let text = id.and_then(|id| lab.figures.text(&id));
            text.map_or_else(not_found, |text| page(StatusCode::OK, TEXT, text))
        }
        ["schema.json"] => page(
            StatusCode::OK,
            "application/json",
            *manyflow_figures::SCHEMA,
        ),
        ["attached.json"] => {
            let urls = lab.attached.as_ref().map(|attached| attached.urls());
            json(StatusCode::OK, &urls.unwrap_or_default())
        }
        ["attached", "events"] => match &lab.attached {
            Some(attached) => super::reply::events(attached.follow()),
            None => not_found(),
        },
        ["order", "events"] => match lab.order.get_or_try_init(OrderStage::start).await {
            Ok(stage) => super::reply::events(stage.follow(next_event(request))),
            Err(error) => failure(StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}")),
        },
        ["runs", number, what] => {
            let Some(run) = number.parse().ok().and_then(|number| lab.runs.find(number)) else {
                return not_found();
            };
            let what = (*what).to_owned();
            let first_event = next_event(request);
            // Drawing a figure takes a while.
            blocking(move || api::of_run(&run, &what, first_event)).await
        }
        _ => assets::find(path).unwrap_or_else(not_found),
    }
}

/// Cuts links of the daemons of ordered groups, or sends a message of a member. Runs on a thread
/// for slow work.
fn change_order(lab: &Lab, is_cut: bool, wanted: serde_json::Value) -> Reply {
    let Some(stage) = lab.order.get() else {
        return not_found();
    };
    let done = match is_cut {
        true => serde_json::from_value(wanted)
            .map_err(Into::into)
            .and_then(|wanted| stage.cut(&wanted)),
        false => serde_json::from_value(wanted)
            .map_err(Into::into)
            .and_then(|wanted| Handle::current().block_on(stage.send(&wanted))),
    };
    match done {
        Ok(()) => json(StatusCode::OK, &()),
        Err(error) => failure(StatusCode::BAD_REQUEST, format!("{error:#}")),
    }
}

/// Returns the number of the first event that a page does not have. A browser that connects again
/// says which one it has received last.
fn next_event(request: &Request<Incoming>) -> usize {
    let last = request.headers().get("last-event-id");
    let last = last.and_then(|last| last.to_str().ok()?.parse::<usize>().ok());
    last.map_or(0, |last| last.saturating_add(1))
}

/// Decodes the escapes of a URL.
fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut place = 0;
    while place < bytes.len() {
        let escaped = (bytes[place] == b'%').then(|| text.get(place + 1..place + 3));
        let byte = escaped
            .flatten()
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        decoded.push(byte.unwrap_or(bytes[place]));
        place += if byte.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// Reads the body as JSON, and answers with `respond` on a thread for slow work.
async fn with_body<T: DeserializeOwned + Send + 'static>(
    request: Request<Incoming>,
    respond: impl FnOnce(T) -> Reply + Send + 'static,
) -> Reply {
    // Forms of other pages cannot send this type.
    let media_type = request.headers().get(CONTENT_TYPE);
    if media_type.is_none_or(|given| given != "application/json") {
        let message = "the body has to be application/json";
        return failure(StatusCode::UNSUPPORTED_MEDIA_TYPE, message);
    }
    let body = Limited::new(request.into_body(), BODY_BYTES_MAX)
        .collect()
        .await;
    let body: Bytes = match body {
        Ok(body) => body.to_bytes(),
        Err(error) => return failure(StatusCode::PAYLOAD_TOO_LARGE, error),
    };
    match serde_json::from_slice(&body) {
        Ok(value) => blocking(move || respond(value)).await,
        Err(error) => failure(StatusCode::BAD_REQUEST, error),
    }
}

async fn blocking(respond: impl FnOnce() -> Reply + Send + 'static) -> Reply {
    let reply = spawn_blocking(respond).await;
    reply.unwrap_or_else(|error| failure(StatusCode::INTERNAL_SERVER_ERROR, error))
}

fn not_found() -> Reply {
    failure(StatusCode::NOT_FOUND, "there is nothing here")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_of_an_id_are_decoded() {
        assert_eq!(decode("webrc-9"), "webrc-9");
        assert_eq!(decode("a%2Fb%20%C3%A9.toml"), "a/b é.toml");
        assert_eq!(decode("100%"), "100%");
        assert_eq!(decode("%zz%é"), "%zz%é");
    }
}
