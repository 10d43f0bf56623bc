//! Messages of NATS clients in layers: the header that describes them, and what a member gets.
//!
//! ```text
//!   HPUB cam 61 1301                                 HMSG cam 1 82 342
//!   NATS/1.0                                         NATS/1.0
//!   Manyflow-Layers: 20ms 40:10 200:5 1000:2   -->   Manyflow-Layers: 20ms 40:10 200:5 1000:2
//!                                                    Manyflow-Whole: 1240
//!   1240 bytes                                       the first 240 bytes
//! ```
//!
//! In the overlay, the line of the operation and its headers are the bytes that no daemon cuts.

use core::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use manyflow_core::units::parse_duration;
use manyflow_overlay::{LayerSize, Layers};

use super::parse::Published;

/// The header with the purse of a message and its layers: their lengths in bytes and what they are
/// worth.
pub(crate) const LAYERS: &str = "Manyflow-Layers";
/// The header with the number of bytes that were published.
pub(crate) const WHOLE: &str = "Manyflow-Whole";

/// The maximum number of characters of a header in an error.
const SHOWN_MAX: usize = 100;

/// Returns the value of [`LAYERS`] for layers of a message that brings `purse` of its client's
/// salary.
pub(crate) fn header_value(purse: Duration, layers: &[LayerSize]) -> String {
    let layers = layers
        .iter()
        .map(|layer| format!(" {}:{}", layer.bytes, layer.dollars));
    let us = purse.as_micros();
    core::iter::once(format!("{us}us")).chain(layers).collect()
}

/// Returns the payload that carries a message in the overlay in layers; `None` if the message has
/// none.
///
/// # Errors
/// Returns what is wrong with the layers, also if the payload would be longer than `longest`.
pub(crate) fn encode(message: &Published, longest: usize) -> Option<Result<Bytes, String>> {
    let value = message.header(LAYERS)?;
    Some(encode_with(message, value, longest))
}

fn encode_with(message: &Published, value: &[u8], longest: usize) -> Result<Bytes, String> {
    let unread = || {
        let value = String::from_utf8_lossy(value);
        let shown: String = value.trim().chars().take(SHOWN_MAX).collect();
        let shown = shown.escape_default();
        format!("\"{shown}\" is no purse with layers, such as 20ms 40:10 200:5")
    };
    let (purse, layers) = parse(value).ok_or_else(unread)?;
    let payload = message.payload().len() - 2;
    let described: usize = layers.iter().map(|layer| usize::from(layer.bytes)).sum();
    if described != payload {
        return Err(format!(
            "the layers have {described} bytes, and the payload {payload}"
        ));
    }
    let raw = &message.raw()[..message.raw().len() - 2];
    let kept = u16::try_from(raw.len() - payload).map_err(|_| "the headers are too long")?;
    let table = Layers::encode(purse, kept, &layers).map_err(|error| error.to_string())?;
    let bytes = table.len() + raw.len();
    if bytes > longest {
        return Err(format!(
            "a message in layers has at most {longest} bytes with its headers, not {bytes}"
        ));
    }
    let mut encoded = BytesMut::with_capacity(bytes);
    encoded.put_slice(&table);
    encoded.put_slice(raw);
    Ok(encoded.freeze())
}

/// Returns the message of a payload in layers, which may have been cut; `None` if no client can
/// have published it.
pub(crate) fn decode(payload: &Bytes) -> Option<Published> {
    let layers = Layers::read(payload).ok()?;
    let (kept, prefix) = payload.split_at_checked(layers.least_bytes() as usize)?;
    let kept = kept.get(layers.table_bytes() as usize..)?;
    let whole = layers.whole_bytes() - layers.least_bytes();
    let line_end = kept.iter().position(|byte| *byte == b'\n')? + 1;
    let (line, headers) = kept.split_at(line_end);
    let headers = headers.strip_suffix(b"\r\n")?;
    // The lengths at the end of the line change: of the headers, and of all.
    let mut words = line.trim_ascii_end().rsplitn(3, u8::is_ascii_whitespace);
    let start = words.nth(2)?;
    let added = format!("{WHOLE}: {whole}\r\n\r\n");
    let header_bytes = headers.len() + added.len();
    let lengths = format!(" {header_bytes} {}\r\n", header_bytes + prefix.len());
    let parts = [
        start,
        lengths.as_bytes(),
        headers,
        added.as_bytes(),
        prefix,
        b"\r\n",
    ];
    Published::decode(parts.concat().into())
}

/// Parses a purse and layers, such as `20ms 40:10 200:5`.
pub(crate) fn parse(value: &[u8]) -> Option<(Duration, Vec<LayerSize>)> {
    let mut words = core::str::from_utf8(value).ok()?.split_ascii_whitespace();
    let purse = parse_duration(words.next()?).ok()?;
    let layer = |word: &str| {
        let (bytes, dollars) = word.split_once(':')?;
        Some(LayerSize {
            bytes: bytes.parse().ok()?,
            dollars: dollars.parse().ok()?,
        })
    };
    let layers = words.map(layer).collect::<Option<_>>()?;
    Some((purse, layers))
}

#[cfg(test)]
mod tests {
    use manyflow_overlay::Cut;

    use super::*;
    use crate::nats::parse::{Operation, parse};

    fn published(layers: &str, payload: &str) -> Published {
        let headers = format!("NATS/1.0\r\nA: b\r\n{LAYERS}: {layers}\r\n\r\n");
        let (of_headers, all) = (headers.len(), headers.len() + payload.len());
        let text = format!("HPUB cam answers {of_headers} {all}\r\n{headers}{payload}\r\n");
        match parse(&mut BytesMut::from(text.as_str()), 10_000) {
            Ok(Some(Operation::Publish(message))) => message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_member_gets_the_prefix_and_the_length_of_the_whole() {
        let message = published("20ms 3:10 4:5", "abcdefg");
        let encoded = encode(&message, 1000).unwrap().unwrap();
        let lengths: Vec<_> = Layers::read(&encoded).unwrap().cut_points().collect();
        for (length, expected) in lengths.into_iter().zip(["", "abc", "abcdefg"]) {
            let arrived = decode(&encoded.cut(length)).unwrap();
            assert_eq!(arrived.payload(), format!("{expected}\r\n").as_bytes());
            assert_eq!(arrived.subject(), b"cam");
            assert_eq!(arrived.reply(), Some(&b"answers"[..]));
            assert_eq!(arrived.header(WHOLE), Some(&b" 7\r"[..]));
            assert_eq!(arrived.header("a"), Some(&b" b\r"[..]));
        }
    }

    #[test]
    fn layers_that_do_not_describe_the_payload_are_refused_with_a_reason() {
        let refused = |layers: &str, longest| {
            let message = published(layers, "abcdefg");
            encode(&message, longest).unwrap().unwrap_err()
        };
        let unread = "is no purse with layers";
        assert!(refused("", 1000).contains(unread));
        assert!(refused("20 3:1 4:1", 1000).contains(unread));
        assert!(refused("20ms 3:1 4", 1000).contains(unread));
        assert!(refused("20ms 3:1 70000:1", 1000).contains(unread));
        assert!(refused("20ms 3:1 5:1", 1000).contains("8 bytes, and the payload 7"));
        assert!(refused("20ms 3:1 4:9", 1000).contains("layer 1"));
        assert!(refused("20s 7:1", 1000).contains("purse"));
        assert!(refused("20ms 7:1", 50).contains("at most 50 bytes"));
    }

    #[test]
    fn the_header_of_the_client_is_read() {
        let layers = [(3, 10), (4, 5)].map(|(bytes, dollars)| LayerSize { bytes, dollars });
        let purse = Duration::from_millis(20);
        let value = header_value(purse, &layers);
        assert_eq!(value, "20000us 3:10 4:5");
        let read = super::parse(value.as_bytes());
        assert_eq!(read, Some((purse, layers.to_vec())));
    }

    #[test]
    fn a_payload_that_lies_about_its_layers_is_no_message() {
        let message = published("20ms 3:10 4:5", "abcdefg");
        let encoded = encode(&message, 1000).unwrap().unwrap();
        for place in 0..encoded.len() {
            let mut changed = encoded.to_vec();
            changed[place] ^= 0x15;
            // It is decoded or refused, without a panic.
            let _ = decode(&changed.into());
        }
        assert_eq!(decode(&Bytes::from_static(b"PUB a 1\r\nx\r\n")), None);
    }
}
