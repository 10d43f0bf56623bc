//! The handshake of a connection between two daemons.
//!
//! ```text
//!   the dialling end                    the accepting end
//!     Hello  ----------------------------->
//!            <-----------------------------  Hello, Resume
//!     Resume ----------------------------->
//!     frames <---------------------------->  frames
//! ```
//!
//! Both ends continue the link where its last connection broke if each still has the state of the
//! other's present incarnation. Otherwise, the link begins again at both ends.

use manyflow_overlay::{DaemonId, LinkSeq};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The first bytes of a connection, with the version of what daemons say to each other.
const MAGIC: &[u8; 8] = b"manyflo\x06";
/// The maximum length of the names of daemons and overlays, in bytes.
const NAME_BYTES_MAX: usize = 128;
/// Bytes of a [`Resume`].
const RESUME_BYTES: usize = 8;

/// A daemon's description of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The name of the overlay. Daemons of different overlays do not connect.
    pub overlay: String,
    /// The daemon's name.
    pub name: String,
    /// The daemon's number.
    pub id: DaemonId,
    /// The daemon's incarnation, which is greater after a restart.
    pub incarnation: u32,
    /// Whether the daemon dials the other. If both do, the one with the lower number dials.
    pub dials: bool,
    /// Whether the links of the overlay are of datagrams.
    pub datagrams: bool,
}

/// The state that a daemon has of its link to the other.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Resume {
    /// The incarnation of the other daemon whose messages it has received; 0 if it has no state of
    /// this link.
    pub incarnation: u32,
    /// The number of the next message that it expects.
    pub received: LinkSeq,
}

/// The reason why a handshake failed.
#[derive(Debug, thiserror::Error)]
pub enum HelloError {
    /// The connection failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The other end does not speak this protocol.
    #[error("the other end is not a daemon of this version")]
    Magic,
    /// A name is too long, or has other characters than names of daemons have.
    #[error(
        "a name in the handshake is none of a daemon: it has 1 to {NAME_BYTES_MAX} letters, digits, dots, hyphens and underscores"
    )]
    Name,
    /// A reserved byte has an unknown value.
    #[error("the handshake has an unknown flag")]
    Flags,
}

impl Hello {
    /// Returns the encoding: magic, id, incarnation, flags, and two names with their lengths.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&self.id.0.to_be_bytes());
        bytes.extend_from_slice(&self.incarnation.to_be_bytes());
        bytes.push(u8::from(self.dials) | u8::from(self.datagrams) << 1);
        for name in [&self.overlay, &self.name] {
            debug_assert!(
                name.len() <= NAME_BYTES_MAX,
                "the configuration checks names"
            );
            bytes.push(name.len() as u8);
            bytes.extend_from_slice(name.as_bytes());
        }
        bytes
    }

    /// Reads a hello.
    ///
    /// # Errors
    /// Returns an error if the connection ends or does not begin with a hello.
    pub async fn read(socket: &mut (impl AsyncRead + Unpin)) -> Result<Hello, HelloError> {
        let mut fixed = [0; 15];
        socket.read_exact(&mut fixed[..8]).await?;
        if fixed[..8] != *MAGIC {
            return Err(HelloError::Magic);
        }
        socket.read_exact(&mut fixed[8..]).await?;
        let [i0, i1, n0, n1, n2, n3, flags] = *fixed.last_chunk().expect("15 bytes were read");
        if flags > 3 {
            return Err(HelloError::Flags);
        }
        let overlay = read_name(socket).await?;
        let name = read_name(socket).await?;
        Ok(Hello {
            overlay,
            name,
            id: DaemonId(u16::from_be_bytes([i0, i1])),
            incarnation: u32::from_be_bytes([n0, n1, n2, n3]),
            dials: flags & 1 != 0,
            datagrams: flags & 2 != 0,
        })
    }
}

async fn read_name(socket: &mut (impl AsyncRead + Unpin)) -> Result<String, HelloError> {
    let length = usize::from(socket.read_u8().await?);
    if length == 0 || length > NAME_BYTES_MAX {
        return Err(HelloError::Name);
    }
    let mut name = vec![0; length];
    socket.read_exact(&mut name).await?;
    let name = String::from_utf8(name).ok().filter(|name| is_name(name));
    name.ok_or(HelloError::Name)
}

/// Returns whether a text can be the name of a daemon or an overlay.
pub(super) fn is_name(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.chars().all(is_part)
}

impl Resume {
    /// Returns the encoding.
    pub fn encode(self) -> [u8; RESUME_BYTES] {
        let (incarnation, received) = (self.incarnation, self.received.0);
        (u64::from(incarnation) << 32 | u64::from(received)).to_be_bytes()
    }

    /// Decodes a resume.
    pub fn decode(bytes: [u8; RESUME_BYTES]) -> Resume {
        let both = u64::from_be_bytes(bytes);
        Resume {
            incarnation: (both >> 32) as u32,
            received: LinkSeq(both as u32),
        }
    }

    /// Reads a resume.
    ///
    /// # Errors
    /// Returns an error if the connection ends.
    pub async fn read(socket: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Resume> {
        let mut bytes = [0; RESUME_BYTES];
        socket.read_exact(&mut bytes).await?;
        Ok(Resume::decode(bytes))
    }

    /// Writes a resume.
    ///
    /// # Errors
    /// Returns an error if the connection ends.
    pub async fn write(self, socket: &mut (impl AsyncWrite + Unpin)) -> std::io::Result<()> {
        socket.write_all(&self.encode()).await?;
        socket.flush().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hello() -> Hello {
        Hello {
            overlay: "o".to_owned(),
            name: "north".to_owned(),
            id: DaemonId(513),
            incarnation: 7,
            dials: true,
            datagrams: true,
        }
    }

    #[tokio::test]
    async fn a_hello_is_read_as_it_was_written() {
        let bytes = hello().encode();
        assert_eq!(Hello::read(&mut &bytes[..]).await.unwrap(), hello());
        for length in 0..bytes.len() {
            assert!(Hello::read(&mut &bytes[..length]).await.is_err());
        }
    }

    #[tokio::test]
    async fn other_protocols_are_refused() {
        let refused = async |bytes: &[u8]| Hello::read(&mut &*bytes).await.unwrap_err();
        let error = refused(b"GET / HTTP/1.1\r\n\r\n").await;
        assert!(matches!(error, HelloError::Magic), "{error}");
        let mut bytes = hello().encode();
        bytes[14] = 4;
        assert!(matches!(refused(&bytes).await, HelloError::Flags));
        bytes[14] = 1;
        bytes[15] = 200;
        assert!(matches!(refused(&bytes).await, HelloError::Name));
    }

    proptest! {
        #[test]
        fn a_resume_is_read_as_it_was_written(incarnation: u32, received: u32) {
            let resume = Resume { incarnation, received: LinkSeq(received) };
            prop_assert_eq!(Resume::decode(resume.encode()), resume);
        }
    }
}
