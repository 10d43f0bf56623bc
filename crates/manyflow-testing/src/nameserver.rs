//! A nameserver on this machine, with the records that a test chooses: AMTRELAY (RFC 8777), or
//! those of another type.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;

/// The length of a header (RFC 1035 section 4.1.1).
const HEADER_BYTES: usize = 12;
/// The type of the record AMTRELAY.
const AMTRELAY: u16 = 260;

/// The answer of the nameserver to all questions.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    /// The code: 0 without an error, 2 for a failure of the server, 3 for a name that does not
    /// exist.
    pub code: u8,
    /// The data of each record.
    pub records: Vec<Vec<u8>>,
    /// The type of the records; 0 stands for AMTRELAY.
    pub kind: u16,
    /// Whether answers by UDP are cut: they have no records.
    pub is_cut: bool,
    /// Whether an answer with another number comes first, as a forger would send it.
    pub is_forged: bool,
}

/// A nameserver, which runs until the process ends.
#[derive(Debug)]
pub struct Nameserver {
    /// The address, for UDP and TCP.
    pub address: SocketAddr,
    /// The names that were asked for.
    pub asked: Arc<Mutex<Vec<String>>>,
}

impl Nameserver {
    /// Starts a nameserver on this address; port 0 is any free port. It remains in the network
    /// namespace of the caller.
    pub fn start(address: &str, reply: Reply) -> Nameserver {
        let (socket, listener) = bind(address);
        let address = socket.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (names, by_tcp) = (Arc::clone(&asked), reply.clone());
        thread::spawn(move || {
            let mut buffer = [0; 512];
            while let Ok((length, client)) = socket.recv_from(&mut buffer) {
                let query = &buffer[..length];
                names.lock().unwrap().push(name(query));
                let answer = reply.answer(query, reply.is_cut);
                if reply.is_forged {
                    let mut forged = Reply::default().answer(query, false);
                    forged[1] ^= 1;
                    socket.send_to(&forged, client).unwrap();
                }
                socket.send_to(&answer, client).unwrap();
            }
        });
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut length = [0; 2];
                stream.read_exact(&mut length).unwrap();
                let mut query = vec![0; u16::from_be_bytes(length).into()];
                stream.read_exact(&mut query).unwrap();
                let answer = by_tcp.answer(&query, false);
                let length = (answer.len() as u16).to_be_bytes();
                stream.write_all(&[&length, &answer[..]].concat()).unwrap();
            }
        });
        Nameserver { address, asked }
    }
}

/// Binds one port for UDP and TCP. A free port of one may be taken for the other.
fn bind(address: &str) -> (UdpSocket, TcpListener) {
    let attempts = std::iter::repeat_with(|| {
        let socket = UdpSocket::bind(address).unwrap();
        let listener = TcpListener::bind(socket.local_addr().unwrap());
        Some((socket, listener.ok()?))
    });
    attempts.take(100).flatten().next().unwrap()
}

impl Reply {
    fn answer(&self, query: &[u8], is_cut: bool) -> Vec<u8> {
        let records = if is_cut { &[][..] } else { &self.records };
        let mut answer = query[..end_of_question(query)].to_vec();
        // An answer, with recursion; cut or not.
        answer[2] = 0x81 | u8::from(is_cut) << 1;
        answer[3] = 0x80 | self.code;
        answer[6..12].copy_from_slice(&[0, records.len() as u8, 0, 0, 0, 0]);
        for data in records {
            // The name of the question, the type, the Internet, a minute.
            answer.extend([0xc0, HEADER_BYTES as u8]);
            let kind = if self.kind == 0 { AMTRELAY } else { self.kind };
            answer.extend(kind.to_be_bytes());
            answer.extend([0, 1, 0, 0, 0, 60]);
            answer.extend((data.len() as u16).to_be_bytes());
            answer.extend(data);
        }
        answer
    }
}

/// Returns the labels of the question's name.
fn labels(query: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut place = HEADER_BYTES;
    std::iter::from_fn(move || {
        let length = usize::from(query[place]);
        let label = &query[place + 1..place + 1 + length];
        place += 1 + length;
        (length > 0).then_some(label)
    })
}

fn end_of_question(query: &[u8]) -> usize {
    let name: usize = labels(query).map(|label| 1 + label.len()).sum();
    // The root's label, the type and the class.
    HEADER_BYTES + name + 1 + 4
}

fn name(query: &[u8]) -> String {
    let labels = labels(query).map(String::from_utf8_lossy);
    labels.collect::<Vec<_>>().join(".")
}
