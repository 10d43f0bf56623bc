//! The HTTP server of the surface.

use std::io;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use manyflow_ensembles::http::wire::HEADERS_MAX;
use manyflow_ensembles::store::Connect;
use manyflow_net::accepting::FailedAccepts;
use manyflow_net::inbound::Inbound;
use manyflow_net::text::BYTE_ORDER_MARK;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::S3Surface;
use crate::patience::Patient;

/// The length of the shortest secret in bytes.
const SECRET_BYTES_MIN: usize = 16;

/// The access keys of clients, with their secrets.
pub struct Credentials(Vec<(String, String)>);

/// The reason why a text has no credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialsError {
    /// A line has another form.
    Line(usize),
    /// A secret is too short.
    Short(usize),
    /// There is no line.
    Empty,
}

impl std::fmt::Display for CredentialsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CredentialsError::Line(line) => write!(
                f,
                "line {line}: write an access key, a space and its secret"
            ),
            CredentialsError::Short(line) => write!(
                f,
                "line {line}: the secret has less than {SECRET_BYTES_MIN} bytes; choose a longer one"
            ),
            CredentialsError::Empty => {
                f.write_str("there is no access key; write one and its secret in a line")
            }
        }
    }
}

impl std::error::Error for CredentialsError {}

impl Credentials {
    /// Reads credentials: in each line an access key and its secret, separated by spaces. Empty
    /// lines and those that begin with `#` are ignored.
    ///
    /// # Errors
    /// If a line has another form, a secret is too short, or there is none.
    pub fn parse(text: &str) -> Result<Credentials, CredentialsError> {
        let mut all = Vec::new();
        // Some editors write a byte order mark before the first key.
        let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
        for (line, text) in (1..).zip(text.lines()) {
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let mut words = text.split_whitespace();
            let (Some(key), Some(secret), None) = (words.next(), words.next(), words.next()) else {
                return Err(CredentialsError::Line(line));
            };
            if secret.len() < SECRET_BYTES_MIN {
                return Err(CredentialsError::Short(line));
            }
            all.push((key.to_owned(), secret.to_owned()));
        }
        match all.is_empty() {
            true => Err(CredentialsError::Empty),
            false => Ok(Credentials(all)),
        }
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let keys = self.0.iter().map(|(key, _)| key);
        f.debug_list().entries(keys).finish()
    }
}

/// Serves the surface to clients with these credentials, until the future is dropped.
///
/// # Errors
/// If no further connection can be accepted.
pub async fn serve<C>(
    listener: TcpListener,
    surface: S3Surface<C>,
    credentials: Credentials,
) -> io::Result<()>
where
    C: Connect + Send + 'static,
{
    let mut auth = SimpleAuth::new();
    for (key, secret) in credentials.0 {
        auth.register(key, secret.into());
    }
    let mut builder = S3ServiceBuilder::new(surface);
    builder.set_auth(auth);
    let service = builder.build();
    let (mut connections, mut failed) = (JoinSet::new(), FailedAccepts::default());
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, remote) = match accepted {
                    Ok(accepted) => accepted,
                    // The client has given up, or there are too many open files for the moment.
                    Err(error) => {
                        failed.pause(&error).await;
                        continue;
                    }
                };
                let service = service.clone();
                connections.spawn(async move {
                    if let Err(error) = serve_client(stream, service).await {
                        tracing::debug!("the connection from {remote} is over: {error}");
                    }
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Answers the requests on a connection of a client.
async fn serve_client(stream: TcpStream, service: S3Service) -> io::Result<()> {
    let stream = Inbound::new(stream)?;
    let answer = |request: Request<Incoming>| {
        let (service, request) = (service.clone(), request.map(Patient::new));
        async move { service.call(request.map(s3s::Body::http_body_unsync)).await }
    };
    let serve = http1::Builder::new()
        .timer(TokioTimer::new())
        .half_close(true)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream.clone()), service_fn(answer));
    let served = tokio::select! {
        served = serve => served,
        () = stream.reset() => return Err(io::ErrorKind::ConnectionReset.into()),
    };
    stream.close().await;
    served.map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_lines_with_a_key_and_a_secret() {
        let text = "# ours\n\nAK1 0123456789abcdef\nAK2\t0123456789abcdefg\n";
        let credentials = Credentials::parse(text).unwrap();
        assert_eq!(format!("{credentials:?}"), r#"["AK1", "AK2"]"#);
        let marked = Credentials::parse("\u{feff}AK1 0123456789abcdef").unwrap();
        assert_eq!(format!("{marked:?}"), r#"["AK1"]"#);
        let error = |text| Credentials::parse(text).unwrap_err();
        assert_eq!(error("# nothing\n"), CredentialsError::Empty);
        assert_eq!(error("AK1\n"), CredentialsError::Line(1));
        assert_eq!(error("\nAK1 short"), CredentialsError::Short(2));
    }
}
