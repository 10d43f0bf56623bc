//! Messages of nats-server as messages of the overlay, and back.

use async_nats::HeaderMap;
use async_nats::header::{HeaderName, HeaderValue};
use bytes::Bytes;
use manyflow_messages::{ClientError, Message};

use crate::names::{self, SITE};
use crate::state::Shared;

/// Returns a message for the overlay with the headers and payload of one of nats-server, from this
/// site.
pub(crate) fn to_overlay(
    subject: &str,
    message: &async_nats::Message,
    shared: &Shared,
) -> Result<Message, ClientError> {
    let to = Message::new(subject, message.payload.clone())?;
    let mut to = to.with_header(SITE, &shared.config.site)?;
    if let Some(reply) = &message.reply {
        to = to.with_reply(&shared.replies.leaving(reply))?;
    }
    let headers = message.headers.iter().flat_map(HeaderMap::iter);
    for (name, values) in headers {
        let name: &str = name.as_ref();
        let values = values.iter().filter(|_| !names::is_own_header(name));
        for value in values {
            to = to.with_header(name, value.as_str())?;
        }
    }
    Ok(to)
}

/// A message for nats-server.
pub(crate) struct ToNats {
    pub(crate) subject: String,
    pub(crate) reply: Option<String>,
    pub(crate) headers: HeaderMap,
    pub(crate) payload: Bytes,
}

impl ToNats {
    /// Returns a message with the subject, headers and payload of one that has arrived from the
    /// overlay. It has a header with the site that it comes from. Only headers whose names
    /// are to `keep` are copied.
    pub(crate) fn new(message: &Message, shared: &Shared, keep: impl Fn(&str) -> bool) -> ToNats {
        let mut headers = HeaderMap::new();
        let origin = message.header(SITE).unwrap_or(names::OVERLAY);
        let is_kept = |name: &str| !names::is_own_header(name) && keep(name);
        let kept = message.headers().filter(|(name, _)| is_kept(name));
        for (name, value) in kept {
            // nats-server and its clients take names and values that async-nats refuses.
            if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), value.parse()) {
                headers.append::<_, HeaderValue>(name, value);
            }
        }
        if let Ok(origin) = origin.parse::<HeaderValue>() {
            headers.insert(SITE, origin);
        }
        let reply = message.reply();
        let reply = reply.map(|reply| shared.replies.arriving(reply));
        ToNats {
            subject: message.subject().to_owned(),
            reply,
            headers,
            payload: message.payload().clone(),
        }
    }

    /// Publishes the message.
    pub(crate) async fn publish(
        self,
        nats: &async_nats::Client,
    ) -> Result<(), async_nats::PublishError> {
        let ToNats {
            subject,
            reply,
            headers,
            payload,
        } = self;
        match reply {
            Some(reply) => {
                nats.publish_with_reply_and_headers(subject, reply, headers, payload)
                    .await
            }
            None => nats.publish_with_headers(subject, headers, payload).await,
        }
    }
}

/// Returns whether a message has come over a bridge.
pub(crate) fn is_bridged(message: &async_nats::Message) -> bool {
    let headers = message.headers.as_ref();
    headers.is_some_and(|headers| headers.get(SITE).is_some())
}
