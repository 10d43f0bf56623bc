//! The members of a group, as a daemon reports them.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Deserialize;

use super::{Client, ClientError, Message, is_pattern};

/// The members of the clients that joined with one pattern, as a daemon knows them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct Members {
    /// The version of all memberships that the daemon knows: it grows with each change.
    pub version: u64,
    /// The number of members at each daemon that has any, by the daemon's name.
    #[serde(rename = "members")]
    pub by_daemon: BTreeMap<String, u64>,
}

impl Client {
    /// Asks the daemon for the members that joined with `pattern`. Members that joined with another
    /// pattern are not counted, even if it matches the same subjects. A join at another daemon is
    /// known after a moment.
    ///
    /// # Errors
    /// If the pattern is invalid, if no answer arrives in time, or if the connection has ended.
    /// nats-server has no members to report: [`ClientError::NoResponders`].
    pub async fn members(&self, pattern: &str) -> Result<Members, ClientError> {
        if !is_pattern(pattern.as_bytes()) {
            let subject = pattern.to_owned();
            return Err(ClientError::InvalidSubject { subject });
        }
        let request = Message {
            subject: format!("$MF.members.{pattern}").into(),
            reply: None,
            headers: None,
            payload: Bytes::new(),
        };
        let answer = self.request_message(request).await?;
        serde_json::from_slice(answer.payload()).map_err(|_| ClientError::Refused {
            address: self.address().to_owned(),
            reason: "its answer to the request for members is not valid".to_owned(),
        })
    }
}
