//! The ports of TCP clients: plain, SOCKS5 and CONNECT, with or without the PROXY protocol.
//!
//! SOCKS5 is written here: of the crates that serve it, one needs second versions of four other
//! crates, and the others are under the GPL.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use manyflow_net::inbound::Inbound;
use proxy_header::{ParseConfig, ProxyHeader};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::super::super::wire::HEADERS_MAX;
use super::super::attempts::{Kind, Problem};
use super::super::body::GatewayBody;
use super::super::request::{Answer, text};
use super::super::{CLIENT_BYTES_MAX, Shared};
use super::{Accepted, Ends, StreamError, TunnelPort, open, pass};

/// The time in which a client has to name its server.
const GREETING_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum length of a PROXY header with its extensions.
const PROXY_BYTES_MAX: usize = 4 << 10;

/// The version of SOCKS, and the numbers of RFC 1928 that occur here.
const SOCKS_VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const NO_METHOD: u8 = 0xff;
const COMMAND_CONNECT: u8 = 1;
const ADDRESS_IPV4: u8 = 1;
const ADDRESS_NAME: u8 = 3;
const ADDRESS_IPV6: u8 = 4;

/// A reply of SOCKS5 (RFC 1928 section 6).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Reply {
    Succeeded = 0,
    GeneralFailure = 1,
    ConnectionRefused = 5,
    CommandNotSupported = 7,
    AddressNotSupported = 8,
}

/// Reads what the client sends before its stream, and passes the stream.
pub(super) async fn serve(
    mut stream: Inbound,
    client: SocketAddr,
    shared: &Arc<Shared>,
    port: TunnelPort,
) -> Result<(), StreamError> {
    let mut ends = Ends {
        client: canonical(client),
        local: canonical(stream.as_ref().local_addr()?),
    };
    let mut early = BytesMut::new();
    if shared.options.accept_proxy {
        let read = read_proxy_header(&mut stream, &mut early, &mut ends);
        in_time(read).await?;
    }
    match port {
        TunnelPort::Plain => serve_plain(shared, stream, early.freeze(), ends).await,
        TunnelPort::Socks5 => serve_socks5(shared, stream, early, ends).await,
        TunnelPort::Connect => serve_connect(shared, stream, early.freeze(), ends).await,
    }
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

async fn in_time<T>(read: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let late = |_| io::Error::from(io::ErrorKind::TimedOut);
    timeout(GREETING_TIMEOUT, read).await.map_err(late)?
}

fn invalid(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

/// Reads until `early` has at least `length` bytes.
async fn fill(stream: &mut Inbound, early: &mut BytesMut, length: usize) -> io::Result<()> {
    while early.len() < length {
        if stream.read_buf(early).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}

/// Reads the header of the PROXY protocol, version 1 or 2, which has the addresses of the client.
async fn read_proxy_header(
    stream: &mut Inbound,
    early: &mut BytesMut,
    ends: &mut Ends,
) -> io::Result<()> {
    loop {
        let parsed = ProxyHeader::parse(early, ParseConfig::default());
        let length = match parsed {
            Ok((header, length)) => {
                // Without addresses, the proxy itself asks, for example to check the port.
                if let Some(address) = header.proxied_address() {
                    *ends = Ends {
                        client: canonical(address.source),
                        local: canonical(address.destination),
                    };
                }
                length
            }
            Err(proxy_header::Error::BufferTooShort) if early.len() < PROXY_BYTES_MAX => {
                let more = early.len() + 1;
                fill(stream, early, more).await?;
                continue;
            }
            Err(_) => return Err(invalid("the bytes are not a header of the PROXY protocol")),
        };
        early.advance(length);
        return Ok(());
    }
}

async fn serve_plain(
    shared: &Shared,
    stream: Inbound,
    early: Bytes,
    ends: Ends,
) -> Result<(), StreamError> {
    match open(shared, ends, &shared.options.server).await {
        Ok(accepted) => pass(shared, stream, early, accepted).await,
        Err(problem) => {
            // The client learns that there is no server as from a host that refuses.
            socket2::SockRef::from(stream.as_ref()).set_linger(Some(Duration::ZERO))?;
            Err(StreamError::Member(problem.reason))
        }
    }
}

async fn serve_socks5(
    shared: &Shared,
    mut stream: Inbound,
    mut early: BytesMut,
    ends: Ends,
) -> Result<(), StreamError> {
    let asked = in_time(read_socks5(&mut stream, &mut early)).await?;
    let server = match asked {
        Ok(server) => server,
        Err(reply) => {
            send_reply(&mut stream, reply).await?;
            return Err(invalid("the request of SOCKS5 is not CONNECT to an address").into());
        }
    };
    match open(shared, ends, &server).await {
        Ok(accepted) => {
            send_reply(&mut stream, Reply::Succeeded).await?;
            pass(shared, stream, early.freeze(), accepted).await
        }
        Err(problem) => {
            let reply = match problem.kind {
                Kind::Refused => Reply::ConnectionRefused,
                _ => Reply::GeneralFailure,
            };
            send_reply(&mut stream, reply).await?;
            Err(StreamError::Member(problem.reason))
        }
    }
}

/// Reads the greeting and the request of SOCKS5 (RFC 1928 sections 3 and 4). Returns the server as
/// HOST:PORT, or the reply that refuses the request.
async fn read_socks5(
    stream: &mut Inbound,
    early: &mut BytesMut,
) -> io::Result<Result<String, Reply>> {
    fill(stream, early, 2).await?;
    let (version, methods) = (early[0], usize::from(early[1]));
    if version != SOCKS_VERSION {
        return Err(invalid("the client does not speak SOCKS5"));
    }
    fill(stream, early, 2 + methods).await?;
    let is_offered = early[2..2 + methods].contains(&NO_AUTHENTICATION);
    early.advance(2 + methods);
    if !is_offered {
        stream.write_all(&[SOCKS_VERSION, NO_METHOD]).await?;
        return Err(invalid(
            "the client wants authentication, which this port has not",
        ));
    }
    stream
        .write_all(&[SOCKS_VERSION, NO_AUTHENTICATION])
        .await?;
    fill(stream, early, 5).await?;
    let [version, command, _, kind, first] = early[..5] else {
        return Err(invalid("the request is cut"));
    };
    if version != SOCKS_VERSION {
        return Err(invalid("the request is not one of SOCKS5"));
    }
    let host_bytes = match kind {
        ADDRESS_IPV4 => 4,
        ADDRESS_IPV6 => 16,
        ADDRESS_NAME => 1 + usize::from(first),
        _ => return Ok(Err(Reply::AddressNotSupported)),
    };
    fill(stream, early, 4 + host_bytes + 2).await?;
    early.advance(4);
    let host = early.split_to(host_bytes);
    let port = early.get_u16();
    if command != COMMAND_CONNECT {
        return Ok(Err(Reply::CommandNotSupported));
    }
    Ok(name_of(kind, &host, port).ok_or(Reply::AddressNotSupported))
}

/// Returns the address of a request as text.
fn name_of(kind: u8, host: &[u8], port: u16) -> Option<String> {
    Some(match kind {
        ADDRESS_IPV4 => {
            let ip: [u8; 4] = host.try_into().ok()?;
            SocketAddr::from((Ipv4Addr::from(ip), port)).to_string()
        }
        ADDRESS_IPV6 => {
            let ip: [u8; 16] = host.try_into().ok()?;
            SocketAddr::from((Ipv6Addr::from(ip), port)).to_string()
        }
        _ => format!("{}:{port}", std::str::from_utf8(host.get(1..)?).ok()?),
    })
}

/// Sends a reply. The address at which the server sees the stream is that of the member, which
/// means nothing to the client.
async fn send_reply(stream: &mut Inbound, reply: Reply) -> io::Result<()> {
    let address = [0; 4 + 2];
    let head = [SOCKS_VERSION, reply as u8, 0, ADDRESS_IPV4];
    stream.write_all(&[&head[..], &address[..]].concat()).await
}

/// Serves the method CONNECT of one connection.
async fn serve_connect(
    shared: &Arc<Shared>,
    stream: Inbound,
    early: Bytes,
    ends: Ends,
) -> Result<(), StreamError> {
    let (accept, mut accepted) = mpsc::unbounded_channel();
    let respond = service_fn(|request| {
        let accept = accept.clone();
        async move { Ok::<_, Infallible>(connect(shared, ends, request, &accept).await) }
    });
    let rewound = Rewound {
        early,
        stream: stream.clone(),
    };
    let serve = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(GREETING_TIMEOUT)
        .half_close(true)
        .max_buf_size(CLIENT_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(rewound), respond)
        .with_upgrades();
    let served = tokio::select! {
        served = serve => served,
        () = stream.reset() => return Err(io::Error::from(io::ErrorKind::ConnectionReset).into()),
    };
    match accepted.try_recv() {
        Ok((upgrade, accepted)) if served.is_ok() => pass_upgraded(shared, upgrade, accepted).await,
        _ => {
            stream.close().await;
            Ok(served.map_err(io::Error::other)?)
        }
    }
}

/// Answers a request. If it opens a stream, hands the stream to `accept`: its bytes follow when
/// hyper has sent the answer.
async fn connect(
    shared: &Shared,
    ends: Ends,
    mut request: Request<Incoming>,
    accept: &mpsc::UnboundedSender<(OnUpgrade, Accepted)>,
) -> Answer {
    let server = request.uri().authority().map(ToString::to_string);
    let (&Method::CONNECT, Some(server)) = (request.method(), server) else {
        shared.counters.rejected.add_one();
        let reason =
            "this port takes CONNECT only: `manyflow gateway` without --tcp takes others\n";
        return text(StatusCode::METHOD_NOT_ALLOWED, reason.to_owned());
    };
    match open(shared, ends, &server).await {
        Ok(accepted) => {
            // The receiver lives as long as the connection.
            let _ = accept.send((hyper::upgrade::on(&mut request), accepted));
            Answer::new(GatewayBody::Full(Bytes::new()))
        }
        Err(Problem { kind, reason }) => {
            let status = match kind {
                Kind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
                _ => StatusCode::BAD_GATEWAY,
            };
            text(status, format!("{reason}\n"))
        }
    }
}

async fn pass_upgraded(
    shared: &Shared,
    upgrade: OnUpgrade,
    accepted: Accepted,
) -> Result<(), StreamError> {
    let upgraded = upgrade.await.map_err(io::Error::other)?;
    let parts = upgraded.downcast::<TokioIo<Rewound>>();
    let parts = parts.map_err(|_| invalid("the connection is of another kind"))?;
    let Rewound { early, stream } = parts.io.into_inner();
    let early = [&parts.read_buf[..], &early[..]].concat();
    pass(shared, stream, early.into(), accepted).await
}

/// A connection of which some bytes were read before.
struct Rewound {
    early: Bytes,
    stream: Inbound,
}

mod rewound {
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use bytes::Buf as _;
    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    use super::Rewound;

    impl AsyncRead for Rewound {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            if self.early.is_empty() {
                return Pin::new(&mut self.stream).poll_read(context, buffer);
            }
            let length = self.early.len().min(buffer.remaining());
            buffer.put_slice(&self.early[..length]);
            self.early.advance(length);
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Rewound {
        fn poll_write(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            Pin::new(&mut self.stream).poll_write(context, bytes)
        }

        fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.stream).poll_flush(context)
        }

        fn poll_shutdown(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.stream).poll_shutdown(context)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::{TcpListener, TcpStream};

    /// Lets a client send bytes, and reads them on the other side.
    async fn sent(bytes: &[u8]) -> (TcpStream, Inbound) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        client.write_all(bytes).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        (client, Inbound::new(stream).unwrap())
    }

    async fn socks5(bytes: &[u8]) -> (io::Result<Result<String, Reply>>, BytesMut) {
        let (mut client, mut stream) = sent(bytes).await;
        client.shutdown().await.unwrap();
        let mut early = BytesMut::new();
        let read = read_socks5(&mut stream, &mut early).await;
        (read, early)
    }

    #[tokio::test]
    async fn requests_of_socks5_name_a_server() {
        let greeting = [5, 2, 2, 0];
        let cases: [(&[u8], Result<&str, Reply>); 5] = [
            (&[5, 1, 0, 1, 192, 0, 2, 1, 0, 80], Ok("192.0.2.1:80")),
            (b"\x05\x01\x00\x03\x02db\x15\x38", Ok("db:5432")),
            (
                &[
                    5, 1, 0, 4, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 22,
                ],
                Ok("[2001:db8::1]:22"),
            ),
            (
                &[5, 2, 0, 1, 192, 0, 2, 1, 0, 80],
                Err(Reply::CommandNotSupported),
            ),
            (
                &[5, 1, 0, 9, 192, 0, 2, 1, 0, 80],
                Err(Reply::AddressNotSupported),
            ),
        ];
        for (request, expected) in cases {
            let (read, early) = socks5(&[&greeting, request, b"more"].concat()).await;
            assert_eq!(read.unwrap(), expected.map(str::to_owned), "{request:?}");
            assert!(expected.is_err() || &early[..] == b"more");
        }
    }

    #[tokio::test]
    async fn other_bytes_on_a_socks5_port_are_refused() {
        for bytes in [
            &b"GET / HTTP/1.1\r\n\r\n"[..],
            &[4, 1, 0, 80],
            &[5, 1, 2],
            &[5, 1, 0, 4, 1, 0, 1, 0, 0, 0, 0, 0, 80],
            &[5, 1],
            &[],
        ] {
            let (read, _) = socks5(bytes).await;
            assert!(read.is_err(), "{bytes:?}");
        }
    }

    #[tokio::test]
    async fn a_proxy_header_names_the_client_in_both_versions() {
        let address = proxy_header::ProxiedAddress::stream(
            "192.0.2.7:50000".parse().unwrap(),
            "192.0.2.8:443".parse().unwrap(),
        );
        let header = ProxyHeader::with_address(address);
        let (mut first, mut second) = (Vec::new(), Vec::new());
        header.encode_v1(&mut first).unwrap();
        header.encode_v2(&mut second).unwrap();
        for header in [first, second] {
            let (_client, mut stream) = sent(&[&header[..], b"hello"].concat()).await;
            let before = "127.0.0.1:1".parse().unwrap();
            let mut ends = Ends {
                client: before,
                local: before,
            };
            let mut early = BytesMut::new();
            read_proxy_header(&mut stream, &mut early, &mut ends)
                .await
                .unwrap();
            fill(&mut stream, &mut early, 5).await.unwrap();
            assert_eq!(&early[..], b"hello");
            assert_eq!(ends.client.to_string(), "192.0.2.7:50000");
            assert_eq!(ends.local.to_string(), "192.0.2.8:443");
        }
        let (_client, mut stream) = sent(b"GET / HTTP/1.1\r\n\r\n").await;
        let mut ends = Ends {
            client: "127.0.0.1:1".parse().unwrap(),
            local: "127.0.0.1:1".parse().unwrap(),
        };
        let refused = read_proxy_header(&mut stream, &mut BytesMut::new(), &mut ends).await;
        assert!(refused.is_err());
    }
}
