//! Connections of the load's senders and members.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result, bail, ensure};

use super::load::SILENCE_LIMIT;

/// The number of messages that are sent before the load, until all members receive them.
pub(super) const PROBE: u64 = u64::MAX / 2;

/// Maximum length of a line, as in nats-server.
const LINE_MAX: usize = 4096;

/// Connects a client, which joins a group or none, and returns when the server has accepted it. Its
/// reads and writes fail after [`SILENCE_LIMIT`] without a byte.
///
/// # Errors
/// If there is no connection, or if the server refuses the client.
pub(super) fn connect(address: SocketAddr, join: Option<&str>) -> Result<TcpStream> {
    let stream = TcpStream::connect(address).with_context(|| format!("cannot reach {address}"))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(SILENCE_LIMIT))?;
    stream.set_write_timeout(Some(SILENCE_LIMIT))?;
    let join = join.map_or_else(String::new, |subject| format!("SUB {subject} 1\r\n"));
    let hello = format!(
        "CONNECT {{\"verbose\":false,\"pedantic\":false,\"lang\":\"rust\",\"version\":\"1\",\
         \"protocol\":1,\"headers\":false}}\r\n{join}PING\r\n"
    );
    (&stream).write_all(hello.as_bytes())?;
    wait_for_pong(&stream).with_context(|| format!("{address} refuses a client"))?;
    Ok(stream)
}

/// Reads lines up to the server's PONG. No message arrives before: nobody sends yet.
fn wait_for_pong(stream: &TcpStream) -> Result<()> {
    // A buffer of one byte takes nothing from the stream beyond the line.
    let mut reader = BufReader::with_capacity(1, stream);
    loop {
        let mut line = Vec::new();
        let length = reader
            .by_ref()
            .take(LINE_MAX as u64)
            .read_until(b'\n', &mut line)?;
        ensure!(length > 0, "the connection is closed");
        match line.as_slice() {
            b"PONG\r\n" => return Ok(()),
            line if line.starts_with(b"-ERR") => bail!("{}", String::from_utf8_lossy(line).trim()),
            _ => {}
        }
    }
}
