//! Asks the nameservers of this host for the relays of a source (RFC 8777), and for the hosts of a
//! service (RFC 2782).
//!
//! This is a stub resolver for single questions: it asks each nameserver of `/etc/resolv.conf` by
//! UDP, and by TCP if the answer is cut. Functions of the C library cannot ask for records of these
//! types without blocking a thread.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr as _;
use std::time::Duration;

use domain::base::iana::{Rcode, Rtype};
#[cfg(feature = "sessions")]
use domain::base::rdata::UnknownRecordData;
use domain::base::{Message, MessageBuilder, Name};
use domain::rdata::Srv;
#[cfg(feature = "sessions")]
use manyflow_amt::discovery::{RECORD_TYPE, RelayName, RelayRecord, by_preference, reverse_name};
use resolv_conf::Config;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

/// The file with the nameservers.
const CONFIG_FILE: &str = "/etc/resolv.conf";
/// The port of nameservers.
const PORT: u16 = 53;
/// The time for the answer of a nameserver.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// The number of times that each nameserver is asked.
const ROUNDS: usize = 2;
/// The length of answers by UDP that the nameserver may assume, in bytes: one that is not
/// fragmented on any usual path.
const UDP_ANSWER_BYTES: u16 = 1_232;
/// The maximum number of relays that are taken from an answer.
#[cfg(feature = "sessions")]
const RELAYS_MAX: usize = 16;

/// The reason why no nameserver has answered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DnsError {
    /// A nameserver cannot be reached, or breaks off.
    #[error("the nameserver {server} does not answer: {cause}")]
    Unreachable {
        /// The nameserver.
        server: SocketAddr,
        /// The system's reason.
        cause: io::Error,
    },
    /// A nameserver reports a failure.
    #[error("the nameserver {server} answers {code}")]
    Failed {
        /// The nameserver.
        server: SocketAddr,
        /// The code of the answer (RFC 1035 section 4.1.1).
        code: String,
    },
    /// An answer is not one to the question.
    #[error("the nameserver {0} answers nonsense")]
    Nonsense(SocketAddr),
    /// This host has no nameserver.
    #[error("{CONFIG_FILE} names no nameserver")]
    None,
    /// The text is not a domain name.
    #[error("`{0}` is not a domain name such as _web._udp.example.net")]
    Name(String),
}

/// A host of a service, as a record SRV names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceHost {
    /// The name of the host, without the root's dot.
    pub host: String,
    /// The port of the service at this host.
    pub port: u16,
    /// The priority: hosts with a lower number are preferred.
    pub priority: u16,
    /// The weight among hosts of the same priority.
    pub weight: u16,
}

/// The nameservers of this host.
#[derive(Clone, Debug)]
pub struct Nameservers(Vec<SocketAddr>);

impl Nameservers {
    /// Returns the nameservers of `/etc/resolv.conf`, or this host, as the C library does. Keys of
    /// the file that are unknown do not matter.
    pub fn of_system() -> Nameservers {
        let text = std::fs::read(CONFIG_FILE).unwrap_or_default();
        let (config, _) = Config::parse_with_errors(&text);
        let servers = config.get_nameservers_or_local().into_iter();
        Nameservers(servers.map(|ip| (IpAddr::from(ip), PORT).into()).collect())
    }

    /// Returns these nameservers.
    pub fn new(servers: Vec<SocketAddr>) -> Nameservers {
        Nameservers(servers)
    }

    /// Returns the relays that the DNS names for a source, each as a host without a port, the
    /// preferred ones first; none if there are no records.
    ///
    /// # Errors
    /// If no nameserver answers: the last one's reason.
    #[cfg(feature = "sessions")]
    pub async fn relays_of(&self, source: IpAddr) -> Result<Vec<String>, DnsError> {
        let query = query(&reverse_name(source), Rtype::from_int(RECORD_TYPE))?;
        self.ask(&query, relays).await
    }

    /// Returns the hosts of a service such as `_web._udp.example.net`, in no order; none if there
    /// are no records.
    ///
    /// # Errors
    /// If the text is not a domain name, or no nameserver answers: the last one's reason.
    pub async fn hosts_of(&self, service: &str) -> Result<Vec<ServiceHost>, DnsError> {
        self.ask(&query(service, Rtype::SRV)?, service_hosts).await
    }

    /// Asks one nameserver after the other. A name that does not exist has no records.
    async fn ask<T>(
        &self,
        query: &Message<Vec<u8>>,
        records: impl Fn(&Message<Vec<u8>>) -> Option<Vec<T>>,
    ) -> Result<Vec<T>, DnsError> {
        let mut last = DnsError::None;
        for server in self.0.iter().cycle().take(ROUNDS * self.0.len()) {
            let found = match ask(*server, query).await {
                Ok(Some(answer)) => records(&answer).ok_or(DnsError::Nonsense(*server)),
                Ok(None) => Ok(Vec::new()),
                Err(error) => Err(error),
            };
            match found {
                Ok(found) => return Ok(found),
                Err(error) => {
                    tracing::debug!(%error, "another nameserver is asked");
                    last = error;
                }
            }
        }
        Err(last)
    }
}

/// Returns the message that asks for records of a name.
fn query(name: &str, kind: Rtype) -> Result<Message<Vec<u8>>, DnsError> {
    let name = Name::<Vec<u8>>::from_str(name).map_err(|_| DnsError::Name(name.to_owned()))?;
    let mut builder = MessageBuilder::new_vec();
    builder.header_mut().set_id(rand::random());
    builder.header_mut().set_rd(true);
    let mut builder = builder.question();
    let asked = builder.push((name, kind));
    asked.expect("a vector has room for a question");
    let mut builder = builder.additional();
    let extended = builder.opt(|opt| {
        opt.set_udp_payload_size(UDP_ANSWER_BYTES);
        Ok(())
    });
    extended.expect("a vector has room for an option");
    Ok(builder.into_message())
}

/// Asks a nameserver by UDP, and by TCP if its answer is cut. Returns `None` if there is no such
/// name.
async fn ask(
    server: SocketAddr,
    query: &Message<Vec<u8>>,
) -> Result<Option<Message<Vec<u8>>>, DnsError> {
    let unreachable = |cause| DnsError::Unreachable { server, cause };
    let late = |_| unreachable(io::ErrorKind::TimedOut.into());
    let by_udp = timeout(ANSWER_TIMEOUT, exchange_udp(server, query)).await;
    let mut answer = by_udp.map_err(late)?.map_err(unreachable)?;
    if answer.header().tc() {
        let by_tcp = timeout(ANSWER_TIMEOUT, exchange_tcp(server, query)).await;
        let bytes = by_tcp.map_err(late)?.map_err(unreachable)?;
        answer = Message::from_octets(bytes).map_err(|_| DnsError::Nonsense(server))?;
    }
    if !answer.is_answer(query) {
        return Err(DnsError::Nonsense(server));
    }
    match answer.header().rcode() {
        Rcode::NOERROR => Ok(Some(answer)),
        Rcode::NXDOMAIN => Ok(None),
        code => {
            let code = code.to_string();
            Err(DnsError::Failed { server, code })
        }
    }
}

/// Returns the hosts of a service in an answer. Records that cannot be read, and the target `.`,
/// which stands for no host, are left out.
fn service_hosts(answer: &Message<Vec<u8>>) -> Option<Vec<ServiceHost>> {
    let records = answer.answer().ok()?.limit_to::<Srv<_>>();
    let hosts = records.filter_map(Result::ok).map(|record| {
        let srv = record.data();
        ServiceHost {
            host: srv.target().to_string().trim_end_matches('.').to_owned(),
            port: srv.port(),
            priority: srv.priority(),
            weight: srv.weight(),
        }
    });
    Some(hosts.filter(|found| !found.host.is_empty()).collect())
}

/// Returns the relays in an answer. The records may be those of an alias. Records that cannot be
/// read are left out.
#[cfg(feature = "sessions")]
fn relays(answer: &Message<Vec<u8>>) -> Option<Vec<String>> {
    let mut records = Vec::new();
    for record in answer.answer().ok()?.limit_to::<UnknownRecordData<_>>() {
        let Ok(record) = record else { continue };
        if record.rtype().to_int() != RECORD_TYPE {
            continue;
        }
        match RelayRecord::decode(record.data().data()) {
            Ok(relay) => records.push(relay),
            Err(error) => tracing::debug!(%error, "a record AMTRELAY is left out"),
        }
    }
    let relays = by_preference(records).into_iter().take(RELAYS_MAX);
    let authority = |relay| match relay {
        RelayName::Address(IpAddr::V6(ip)) => format!("[{ip}]"),
        relay => relay.to_string(),
    };
    Some(relays.map(authority).collect())
}

/// Waits for the answer to this query. Other datagrams are dropped: they may be forged.
async fn exchange_udp(
    server: SocketAddr,
    query: &Message<Vec<u8>>,
) -> io::Result<Message<Vec<u8>>> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => [0, 0, 0, 0].into(),
        SocketAddr::V6(_) => [0u16; 8].into(),
    };
    // The system chooses a random port, which an attacker has to guess, too.
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    socket.send(query.as_slice()).await?;
    let mut buffer = vec![0; usize::from(u16::MAX)];
    loop {
        let length = socket.recv(&mut buffer).await?;
        if let Ok(answer) = Message::from_octets(buffer[..length].to_vec())
            && answer.is_answer(query)
        {
            return Ok(answer);
        }
    }
}

/// Sends a message with its length before it, and reads the answer (RFC 1035 section 4.2.2).
async fn exchange_tcp(server: SocketAddr, query: &Message<Vec<u8>>) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    let bytes = query.as_slice();
    let length = (bytes.len() as u16).to_be_bytes();
    stream.write_all(&[&length, bytes].concat()).await?;
    let length = stream.read_u16().await?;
    let mut answer = vec![0; length.into()];
    stream.read_exact(&mut answer).await?;
    Ok(answer)
}
