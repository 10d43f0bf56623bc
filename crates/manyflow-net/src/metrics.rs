//! Serves metrics to Prometheus and other programs that read OpenMetrics text, with the limits of
//! the [`publish`](mod@super::publish) server.

use std::future::ready;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;

use hyper::Request;
pub use hyper::StatusCode;
use hyper::body::Incoming;
use hyper::header::{
    ACCEPT, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY, VARY,
    X_CONTENT_TYPE_OPTIONS,
};
use tokio::net::{TcpListener, ToSocketAddrs};

use super::http::{self, HttpServer, TEXT, page};

/// The path of the metrics in their URL.
pub const METRICS_PATH: &str = "/metrics";
/// The media type of OpenMetrics text.
pub const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The media type of Prometheus's text format before OpenMetrics.
const CLASSIC_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Pages load nothing but the process's own files, and no other page shows them in a frame. Names
/// from peers are on them: should one ever become markup, it still runs nothing.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// The headers of all answers.
const HEADERS: [(HeaderName, &str); 3] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "no-referrer"),
];

/// The answer to a request for a page: the status, and the page.
pub type Answer = (StatusCode, String);

type Answering = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// A page that is rendered for each request.
pub struct Page {
    path: &'static str,
    media_type: &'static str,
    answer: Box<dyn Fn(&str) -> Answering + Send + Sync>,
}

impl Page {
    /// Returns a page at this path, which `render` returns.
    pub fn new(
        path: &'static str,
        media_type: &'static str,
        render: impl Fn() -> String + Send + Sync + 'static,
    ) -> Page {
        Page::with_query(path, media_type, move |_| ready((StatusCode::OK, render())))
    }

    /// Returns a page at this path. `answer` gets the query of the request's URL, without the
    /// question mark.
    pub fn with_query<F>(
        path: &'static str,
        media_type: &'static str,
        answer: impl Fn(&str) -> F + Send + Sync + 'static,
    ) -> Page
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        Page {
            path,
            media_type,
            answer: Box::new(move |query| Box::pin(answer(query))),
        }
    }

    /// Returns the path of the page in its URL.
    pub fn path(&self) -> &'static str {
        self.path
    }

    /// Returns the answer to a request.
    fn answer(&self, request: &Request<Incoming>) -> impl Future<Output = http::Page> + use<> {
        let answering = (self.answer)(request.uri().query().unwrap_or_default());
        let media_type = self.media_type;
        let is_classic = media_type == METRICS_TYPE && wants_classic(request);
        async move {
            let (status, text) = answering.await;
            let mut answer = match is_classic {
                true => page(status, CLASSIC_TYPE, classic(&text)),
                false => page(status, media_type, text),
            };
            let headers = answer.headers_mut();
            for (name, value) in HEADERS {
                headers.insert(name, HeaderValue::from_static(value));
            }
            if media_type == METRICS_TYPE {
                headers.insert(VARY, HeaderValue::from_static("accept"));
            }
            answer
        }
    }
}

/// Whether the client asks for text and does not know OpenMetrics.
fn wants_classic(request: &Request<Incoming>) -> bool {
    let accepted = request.headers().get_all(ACCEPT).iter();
    let accepted: Vec<_> = accepted.filter_map(|value| value.to_str().ok()).collect();
    let accepts = |kind| accepted.iter().any(|value| value.contains(kind));
    accepts("text/plain") && !accepts("application/openmetrics-text")
}

/// Converts OpenMetrics text to Prometheus's older text format, in which the help and the type of a
/// counter have the name of its samples, with `_total` at its end.
fn classic(open: &str) -> String {
    let mut text = String::with_capacity(open.len());
    let mut lines = open.lines().peekable();
    while let Some(line) = lines.next() {
        let name = |prefix: &str| line.strip_prefix(prefix)?.split_once(' ');
        if let Some((name, help)) = name("# HELP ") {
            let kind = format!("# TYPE {name} counter");
            let end = if lines.peek() == Some(&&kind[..]) {
                "_total"
            } else {
                ""
            };
            text.push_str(&format!("# HELP {name}{end} {help}\n"));
        } else if let Some((name, "counter")) = name("# TYPE ") {
            text.push_str(&format!("# TYPE {name}_total counter\n"));
        } else if !line.starts_with("# EOF") && !line.starts_with("# UNIT") {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

/// A server of metrics and other pages, which ends when it is dropped.
#[derive(Debug)]
pub struct MetricsServer {
    local_address: SocketAddr,
    _server: HttpServer,
}

impl MetricsServer {
    /// Listens on `address`, and answers each request with what `render` returns at that moment: a
    /// document in OpenMetrics text.
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub async fn serve(
        address: impl ToSocketAddrs,
        render: impl Fn() -> String + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let page = Page::new(METRICS_PATH, METRICS_TYPE, render);
        Self::serve_pages(address, vec![page]).await
    }

    /// Listens on `address`, and answers each request for one of these pages.
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub async fn serve_pages(address: impl ToSocketAddrs, pages: Vec<Page>) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let local_address = listener.local_addr()?;
        let respond = move |request: &Request<Incoming>| {
            let path = request.uri().path();
            let answering = pages.iter().find(|page| page.path == path);
            let answering = answering.map(|page| page.answer(request));
            async {
                match answering {
                    Some(answering) => answering.await,
                    None => page(
                        StatusCode::NOT_FOUND,
                        TEXT,
                        format!("the metrics are at {METRICS_PATH}\n"),
                    ),
                }
            }
        };
        Ok(Self {
            local_address,
            _server: HttpServer::start(listener, None, respond),
        })
    }

    /// Returns the server's address, with the port that the system chose if it was asked for port
    /// 0.
    pub fn local_address(&self) -> SocketAddr {
        self.local_address
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_classic_text_has_the_help_of_counters_under_the_names_of_their_samples() {
        let open = "# HELP a_sent Packets.\n# TYPE a_sent counter\na_sent_total{of=\"b\"} 2\n\
                    # HELP a_rate Rate.\n# TYPE a_rate gauge\na_rate 1.5\n# EOF\n";
        assert_eq!(
            classic(open),
            "# HELP a_sent_total Packets.\n# TYPE a_sent_total counter\na_sent_total{of=\"b\"} 2\n\
             # HELP a_rate Rate.\n# TYPE a_rate gauge\na_rate 1.5\n"
        );
    }
}
