//! Loads a session description from where its receivers find it.

use manyflow_net::description::load::{LoadError, Trust, load_text};
use manyflow_net::keys::PublicKey;

use super::sdp::SessionDescription;

/// A description with the key that signed it.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The description.
    pub description: SessionDescription,
    /// The key that signed the description; `None` without a signature.
    pub signer: Option<PublicKey>,
}

/// Loads a session description from an `http://` or `https://` URL, from standard input (`-`) or
/// from a file. Reading a file or standard input blocks the thread: call this before a transfer
/// starts.
pub async fn load(session: &str, trust: &Trust) -> Result<Loaded, LoadError> {
    let (text, signer) = load_text(session, trust).await?;
    Ok(Loaded {
        description: SessionDescription::parse(&text)?,
        signer,
    })
}
