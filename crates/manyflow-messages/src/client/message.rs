//! Messages as a client sends and receives them.

use std::time::Duration;

use bytes::Bytes;
use manyflow_overlay::{LayerSize, Layers};

use super::ClientError;
use crate::nats::layers::{self, LAYERS, WHOLE, header_value};
use crate::nats::parse::ALSO;
use crate::nats::subject::is_subject;

/// Version line of the headers of a message.
const HEADER_VERSION: &str = "NATS/1.0";

/// A message of a group.
///
/// ```
/// use manyflow_messages::client::Message;
///
/// let message = Message::new("news.sport", "3:1")?.with_header("Language", "en")?;
/// assert_eq!(message.subject(), "news.sport");
/// assert_eq!(message.header("language"), Some("en"));
/// # Ok::<_, manyflow_messages::client::ClientError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub(super) subject: Bytes,
    pub(super) reply: Option<Bytes>,
    /// The lines of the headers with the version before them and an empty line behind.
    pub(super) headers: Option<Bytes>,
    pub(super) payload: Bytes,
}

impl Message {
    /// Returns a message to the members of a group, without headers and reply subject.
    ///
    /// # Errors
    /// If nobody can publish to this subject: see [`is_subject`].
    pub fn new(subject: &str, payload: impl Into<Bytes>) -> Result<Message, ClientError> {
        check_subject(subject)?;
        Ok(Message {
            subject: Bytes::copy_from_slice(subject.as_bytes()),
            reply: None,
            headers: None,
            payload: payload.into(),
        })
    }

    /// Replaces the payload.
    pub fn with_payload(self, payload: impl Into<Bytes>) -> Message {
        Message {
            payload: payload.into(),
            ..self
        }
    }

    /// Sets the subject that answers are sent to.
    ///
    /// # Errors
    /// If nobody can publish to this subject.
    pub fn with_reply(mut self, reply: &str) -> Result<Message, ClientError> {
        check_subject(reply)?;
        self.reply = Some(Bytes::copy_from_slice(reply.as_bytes()));
        Ok(self)
    }

    /// Adds a header. A message may have several with the same name.
    ///
    /// # Errors
    /// If the name is empty or contains a colon or anything but visible ASCII, or if the value
    /// contains a line break.
    pub fn with_header(mut self, name: &str, value: &str) -> Result<Message, ClientError> {
        let is_name = |byte: u8| byte.is_ascii_graphic() && byte != b':';
        if name.is_empty() || !name.bytes().all(is_name) || value.contains(['\r', '\n']) {
            return Err(ClientError::InvalidHeader {
                header: format!("{name}: {value}"),
            });
        }
        let headers = self.headers.take().unwrap_or_default();
        let lines = headers.strip_suffix(b"\r\n").unwrap_or(b"NATS/1.0\r\n");
        let line = format!("{name}: {value}\r\n\r\n");
        self.headers = Some([lines, line.as_bytes()].concat().into());
        Ok(self)
    }

    /// Adds a subject: the message goes to the members of all its subjects' groups, and links
    /// between daemons carry one copy for up to three groups. A member of several gets it once for
    /// each of its patterns.
    ///
    /// # Errors
    /// If nobody can publish to this subject.
    pub fn also_to(self, subject: &str) -> Result<Message, ClientError> {
        check_subject(subject)?;
        self.with_header(ALSO, subject)
    }

    /// Sends the payload in layers: a prefix of it that ends behind a layer is a coarser version.
    /// Each link between daemons carries the layers that its price allows to a message with this
    /// purse, the time to the next message of the stream. No member slows others down. A message
    /// has 48 KiB at most, with its headers.
    ///
    /// ```
    /// use std::time::Duration;
    /// use manyflow_messages::LayerSize;
    /// use manyflow_messages::client::Message;
    ///
    /// let layers = [(40, 10), (200, 5)].map(|(bytes, dollars)| LayerSize { bytes, dollars });
    /// let message = Message::new("cam", vec![0; 240])?;
    /// let message = message.in_layers(Duration::from_millis(20), &layers)?;
    /// assert_eq!(message.header("Manyflow-Layers"), Some("20000us 40:10 200:5"));
    /// # Ok::<_, manyflow_messages::client::ClientError>(())
    /// ```
    ///
    /// # Errors
    /// If the layers do not have all bytes of the payload, or a value is outside its range.
    pub fn in_layers(self, purse: Duration, layers: &[LayerSize]) -> Result<Message, ClientError> {
        let value = header_value(purse, layers);
        let bytes: usize = layers.iter().map(|layer| usize::from(layer.bytes)).sum();
        let is_valid = Layers::encode(purse, 0, layers).is_ok() && bytes == self.payload.len();
        match is_valid {
            true => self.with_header(LAYERS, &value),
            false => Err(ClientError::InvalidLayers {
                layers: value,
                payload: self.payload.len(),
            }),
        }
    }

    /// Whether the message is in layers, so that it cannot be divided into fragments.
    pub(super) fn is_in_layers(&self) -> bool {
        self.header(LAYERS).is_some()
    }

    /// The number of bytes that were published in layers, of which the payload can be a prefix;
    /// `None` if the message is not in layers.
    pub fn whole_bytes(&self) -> Option<usize> {
        self.header(WHOLE)?.parse().ok()
    }

    /// The layers of which the payload has all bytes, in their order; `None` if the message is not
    /// in layers. They share the payload's bytes.
    pub fn layers(&self) -> Option<Vec<Bytes>> {
        let (_, sizes) = layers::parse(self.header(LAYERS)?.as_bytes())?;
        let mut rest = self.payload.clone();
        let layers = sizes.iter().map_while(|size| {
            let bytes = usize::from(size.bytes);
            (bytes <= rest.len()).then(|| rest.split_to(bytes))
        });
        Some(layers.collect())
    }

    /// The subject that the message was published to. Of several, the first that fits the pattern
    /// by which it was received.
    pub fn subject(&self) -> &str {
        text(&self.subject)
    }

    /// The subject that the sender expects answers at.
    pub fn reply(&self) -> Option<&str> {
        self.reply.as_deref().map(text)
    }

    /// The bytes that the sender published.
    pub fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// The names and values of the headers, in the sender's order.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        let lines = self.headers.as_deref().map(text).unwrap_or_default();
        let fields = lines.split("\r\n").skip(1);
        fields.filter_map(|line| {
            let (name, value) = line.split_once(':')?;
            Some((name, value.trim()))
        })
    }

    /// The value of the first header with this name, in any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers();
        let found = headers.find(|(other, _)| other.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value)
    }

    /// The status that a daemon sends instead of an answer, such as 503 if a request has no
    /// responders. Such a message has no payload.
    pub fn status(&self) -> Option<u16> {
        let first = text(self.headers.as_deref()?).split("\r\n").next()?;
        let status = first.strip_prefix(HEADER_VERSION)?.trim_start();
        status.split(' ').next()?.parse().ok()
    }
}

/// Bytes that are not UTF-8 are shown as an empty text.
fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

fn check_subject(subject: &str) -> Result<(), ClientError> {
    match is_subject(subject.as_bytes()) {
        true => Ok(()),
        false => Err(ClientError::InvalidSubject {
            subject: subject.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layers_of_a_prefix_are_those_that_are_whole() {
        let layers = [(2, 10), (3, 5), (1, 1)];
        let layers = layers.map(|(bytes, dollars)| LayerSize { bytes, dollars });
        let message = Message::new("a", "abcdef").unwrap();
        assert_eq!(message.layers(), None);
        let message = message.in_layers(Duration::from_millis(20), &layers);
        let message = message.unwrap();
        let of = |prefix: &'static str| message.clone().with_payload(prefix).layers().unwrap();
        assert_eq!(of("abcdef"), ["ab", "cde", "f"]);
        assert_eq!(
            (of("abcde"), of("abcd")),
            (vec!["ab".into(), "cde".into()], vec!["ab".into()])
        );
        assert_eq!(of(""), Vec::<Bytes>::new());
    }

    #[test]
    fn headers_keep_their_order_and_their_repetitions() {
        let message = Message::new("a", "").unwrap();
        let message = message.with_header("B", "1").unwrap();
        let message = message.with_header("a", "x y").unwrap();
        let message = message.with_header("b", "2").unwrap();
        let headers: Vec<_> = message.headers().collect();
        assert_eq!(headers, [("B", "1"), ("a", "x y"), ("b", "2")]);
        assert_eq!(message.header("b"), Some("1"));
        assert_eq!(message.status(), None);
    }

    #[test]
    fn headers_cannot_add_lines() {
        for (name, value) in [("a", "b\r\nc: d"), ("a:", "b"), ("", "b"), ("a b", "c")] {
            let message = Message::new("a", "").unwrap();
            assert!(message.with_header(name, value).is_err(), "{name} {value}");
        }
    }

    #[test]
    fn a_status_stands_in_the_first_line() {
        let mut message = Message::new("a", "").unwrap();
        message.headers = Some(Bytes::from_static(b"NATS/1.0 503\r\n\r\n"));
        assert_eq!(message.status(), Some(503));
        message.headers = Some(Bytes::from_static(b"NATS/1.0 408 Request Timeout\r\n\r\n"));
        assert_eq!(message.status(), Some(408));
    }
}
