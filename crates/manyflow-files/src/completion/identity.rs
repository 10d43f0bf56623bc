//! The names and keys by which a sender knows its receivers.
//!
//! | a receiver with | is the same one | proves |
//! |---|---|---|
//! | a key (`recv --identity`) | wherever it has the key | that it holds the key |
//! | a name of its own (`recv --name`) | wherever it has the name | nothing: anyone who can read the description may take the name |
//! | neither | in the same output folder, under the name of its host | as with a name |

use std::fmt;
use std::io;
use std::path::Path;
use std::str::FromStr;

use manyflow_net::keys::SigningKey;
use sha2::{Digest as _, Sha256};

use crate::files::{receiver_number, write_receiver_number};
use crate::sdp::SessionDescription;

/// The maximum length of a name in bytes, which is that of a host name in Linux.
pub(super) const NAME_BYTES_MAX: usize = 64;

/// The name of a receiver: 1 to 64 visible characters of ASCII, as host names have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReceiverName(Box<str>);

/// A text is no name of a receiver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no name of a receiver: use 1 to 64 visible characters of ASCII, and no space")]
pub struct NameError(String);

impl ReceiverName {
    /// Returns the name of this host, with `-` for characters that names do not have.
    pub fn of_host() -> ReceiverName {
        let host = nix::unistd::gethostname().unwrap_or_default();
        let host = host.to_string_lossy();
        let characters = host.chars().take(NAME_BYTES_MAX);
        let name: String = characters
            .map(|c| if c.is_ascii_graphic() { c } else { '-' })
            .collect();
        name.parse().unwrap_or_else(|_| ReceiverName("?".into()))
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the number of all receivers with this name.
    fn number(&self) -> u64 {
        number_of(self.0.as_bytes())
    }
}

impl FromStr for ReceiverName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<ReceiverName, NameError> {
        let is_name = (1..=NAME_BYTES_MAX).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_graphic());
        match is_name {
            true => Ok(ReceiverName(text.into())),
            false => Err(NameError(text.chars().take(80).collect())),
        }
    }
}

impl fmt::Display for ReceiverName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// A receiver, as it presents itself to the sender.
#[derive(Debug)]
pub struct Identity {
    pub(super) name: ReceiverName,
    /// Identifies the receiver in this session.
    pub(super) number: u64,
    pub(super) key: Option<SigningKey>,
}

impl Identity {
    /// Returns the receiver of a session with this name and this key, if it has them: see the page
    /// of this module. `output` is the folder of its files.
    pub fn new(
        name: Option<ReceiverName>,
        key: Option<SigningKey>,
        output: &Path,
        description: &SessionDescription,
    ) -> Identity {
        match (key, name, description.content_id()) {
            (Some(key), name, _) => {
                Identity::keyed(name.unwrap_or_else(ReceiverName::of_host), key)
            }
            (None, Some(name), _) => Identity::named(name),
            (None, None, Some(id)) => Identity::of_folder(output, &id),
            (None, None, None) => Identity::named(ReceiverName::of_host()),
        }
    }

    /// Returns the name under which the receiver reports.
    pub fn name(&self) -> &ReceiverName {
        &self.name
    }

    /// Returns the receiver with this name, which is the same one wherever it has the name.
    pub fn named(name: ReceiverName) -> Identity {
        Identity {
            number: name.number(),
            name,
            key: None,
        }
    }

    /// Returns the receiver with this key, which signs its reports.
    pub fn keyed(name: ReceiverName, key: SigningKey) -> Identity {
        Identity {
            number: number_of(key.public().to_string().as_bytes()),
            name,
            key: Some(key),
        }
    }

    /// Returns the receiver of this output folder, under the name of this host. Its random number
    /// is kept in the folder of incomplete files, where the next process finds it, so that
    /// a receiver that is started again is the same one.
    pub fn of_folder(output: &Path, table_sha256: &[u8; 32]) -> Identity {
        // A folder that cannot be written makes the receiver fail, which it reports, too.
        let number = kept_number(output, table_sha256).unwrap_or_else(|error| {
            let shown = output.display();
            tracing::warn!(
                "{shown}: the number of this receiver cannot be kept there ({error}); started again, it will be \
                 another one to the sender"
            );
            rand::random()
        });
        Identity {
            name: ReceiverName::of_host(),
            number,
            key: None,
        }
    }
}

/// Returns the number in this folder, which is written there if the folder has none.
fn kept_number(output: &Path, table_sha256: &[u8; 32]) -> io::Result<u64> {
    match receiver_number(output, table_sha256)? {
        Some(number) => Ok(number),
        None => write_receiver_number(output, table_sha256, rand::random()),
    }
}

fn number_of(bytes: &[u8]) -> u64 {
    let digest = Sha256::digest(bytes);
    let first = digest.first_chunk();
    u64::from_be_bytes(*first.expect("SHA-256 has 32 bytes"))
}
