//! The beginning of a connection: INFO, TLS, CONNECT.

use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use manyflow_net::address::Address;
use manyflow_net::tls::{Authorities, advice};
use manyflow_net::unix_socket;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};

use super::wire::{Operation, parse};
use super::{ClientError, ClientOptions};
use crate::Credentials;

/// The port of daemons for clients, if an address has none: that of NATS.
pub const CLIENT_PORT: u16 = 4222;

pub(super) type ReadHalf = Box<dyn AsyncRead + Send + Unpin>;
pub(super) type WriteHalf = Box<dyn AsyncWrite + Send + Unpin>;

/// A connection that the daemon has accepted.
pub(super) struct Connected {
    pub(super) reader: ReadHalf,
    pub(super) writer: WriteHalf,
    /// Bytes that were read beyond the daemon's PONG.
    pub(super) input: BytesMut,
    /// Maximum length of a message, headers included.
    pub(super) message_bytes_max: usize,
}

/// Connects to the daemon at `address`: a host and a port, a URL such as `nats://host:4222`, or a
/// Unix socket such as `unix:/run/manyflow.sock`.
pub(super) async fn connect(
    address: &str,
    options: &ClientOptions,
) -> Result<Connected, ClientError> {
    let failed = |cause: io::Error| ClientError::Connect {
        address: address.to_owned(),
        cause: Arc::new(cause),
    };
    if let Some(path) = unix_socket::path_of(address) {
        let path = path.map_err(|error| failed(error.into()))?;
        let stream = unix_socket::connect(path).await.map_err(failed)?;
        return greet(stream, None, address, options).await;
    }
    let server = Address::parse_url(address, &["nats"], CLIENT_PORT);
    let server = server.map_err(|error| failed(error.into()))?;
    let stream = open_stream(&server).await.map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    greet(stream, Some(&server), address, options).await
}

/// Begins the protocol on a stream. `server` is there if the stream may use TLS: a Unix socket has
/// no host whose name a certificate could have.
async fn greet<S: Stream>(
    mut stream: S,
    server: Option<&Address>,
    address: &str,
    options: &ClientOptions,
) -> Result<Connected, ClientError> {
    let failed = |cause: io::Error| ClientError::Connect {
        address: address.to_owned(),
        cause: Arc::new(cause),
    };
    let mut input = BytesMut::new();
    let info = match read_operation(&mut stream, &mut input)
        .await
        .map_err(failed)?
    {
        Operation::Info(info) => info,
        _ => return Err(failed(malformed())),
    };
    let info: Value = serde_json::from_slice(&info).map_err(|_| failed(malformed()))?;
    let is_set = |key: &str| info[key].as_bool() == Some(true);
    let offers_tls = is_set("tls_required") || is_set("tls_available");
    let (mut reader, mut writer): (ReadHalf, WriteHalf) = match (&options.tls, server) {
        (Some(authorities), Some(server)) if offers_tls => {
            // Bytes after INFO would be from before the handshake, so nobody vouches for them.
            input.clear();
            let stream = start_tls(stream, server, authorities)
                .await
                .map_err(failed)?;
            let (reader, writer) = tokio::io::split(stream);
            (Box::new(reader), Box::new(writer))
        }
        (Some(_), _) => {
            let address = address.to_owned();
            return Err(ClientError::NoTls { address });
        }
        (None, _) if is_set("tls_required") => {
            let address = address.to_owned();
            return Err(ClientError::TlsRequired { address });
        }
        (None, _) => stream.into_halves(),
    };
    writer.write_all(&hello(options)).await.map_err(failed)?;
    loop {
        match read_operation(&mut reader, &mut input)
            .await
            .map_err(failed)?
        {
            Operation::Pong => break,
            Operation::Error(reason) => {
                let address = address.to_owned();
                return Err(ClientError::Refused { address, reason });
            }
            _ => {}
        }
    }
    let message_bytes_max = info["max_payload"].as_u64().unwrap_or(1 << 20) as usize;
    Ok(Connected {
        reader,
        writer,
        input,
        message_bytes_max,
    })
}

async fn open_stream(server: &Address) -> io::Result<TcpStream> {
    TcpStream::connect(&*server.resolve().await?).await
}

/// A connection that has not begun with the protocol.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {
    fn into_halves(self) -> (ReadHalf, WriteHalf);
}

impl Stream for TcpStream {
    fn into_halves(self) -> (ReadHalf, WriteHalf) {
        let (reader, writer) = self.into_split();
        (Box::new(reader), Box::new(writer))
    }
}

impl Stream for UnixStream {
    fn into_halves(self) -> (ReadHalf, WriteHalf) {
        let (reader, writer) = self.into_split();
        (Box::new(reader), Box::new(writer))
    }
}

async fn start_tls<S: Stream>(
    stream: S,
    server: &Address,
    authorities: &Authorities,
) -> io::Result<tokio_rustls::client::TlsStream<S>> {
    let name = server.host().tls_name().map_err(io::Error::other)?;
    let stream = authorities.connector().connect(name, stream).await;
    stream.map_err(|error| io::Error::other(format!("{error}: {}", advice(&error))))
}

/// Returns CONNECT and PING.
fn hello(options: &ClientOptions) -> Bytes {
    let mut connect = json!({
        "verbose": false, "pedantic": false, "lang": "rust", "version": env!("CARGO_PKG_VERSION"),
        "protocol": 1, "headers": true, "no_responders": true, "echo": options.echo,
        "tls_required": options.tls.is_some(),
    });
    if let Some(name) = &options.name {
        connect["name"] = name.as_str().into();
    }
    match &options.credentials {
        Some(Credentials::Password { name, password }) => {
            connect["user"] = name.as_str().into();
            connect["pass"] = password.as_str().into();
        }
        Some(Credentials::Token(token)) => connect["auth_token"] = token.as_str().into(),
        None => {}
    }
    format!("CONNECT {connect}\r\nPING\r\n").into()
}

async fn read_operation(
    reader: &mut (impl AsyncRead + Unpin),
    input: &mut BytesMut,
) -> io::Result<Operation> {
    loop {
        if let Some(operation) = parse(input).map_err(|_| malformed())? {
            return Ok(operation);
        }
        if reader.read_buf(input).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

pub(super) fn malformed() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "it does not speak the NATS client protocol",
    )
}
