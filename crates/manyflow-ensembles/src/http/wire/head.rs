//! The encoding of methods, targets and headers.

use bytes::{BufMut, Bytes, BytesMut};
use hyper::header::{HeaderName, HeaderValue};
use hyper::http::uri::PathAndQuery;
use hyper::{HeaderMap, Method};

use super::reader::Reader;
use super::{HEAD_BYTES_MAX, HEADERS_MAX, WireError};

/// The head of a request: request line and headers.
///
/// ```text
///   | length, 1 | method | length, 2 | target | number, 2 | headers |
///   header: | length, 2 | name | length, 2 | value |
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct RequestHead {
    /// The method.
    pub method: Method,
    /// The path and the query.
    pub target: PathAndQuery,
    /// The headers.
    pub headers: HeaderMap,
}

impl RequestHead {
    /// Checks that the head can be encoded.
    ///
    /// # Errors
    /// If it is longer than [`HEAD_BYTES_MAX`] or has more than [`HEADERS_MAX`] headers.
    pub fn check(&self) -> Result<(), WireError> {
        let line = 1 + self.method.as_str().len() + 2 + self.target.as_str().len();
        let is_long = self.method.as_str().len() > usize::from(u8::MAX)
            || self.target.as_str().len() > usize::from(u16::MAX);
        match is_long {
            true => Err(WireError::LongHead),
            false => check_headers(&self.headers, line),
        }
    }

    pub(super) fn encode(&self, bytes: &mut BytesMut) {
        let (method, target) = (self.method.as_str(), self.target.as_str());
        bytes.put_u8(method.len() as u8);
        bytes.put_slice(method.as_bytes());
        bytes.put_u16(target.len() as u16);
        bytes.put_slice(target.as_bytes());
        put_headers(bytes, &self.headers);
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<RequestHead, WireError> {
        let length = reader.take_u8()?;
        let method = Method::from_bytes(reader.take(length.into())?);
        let method = method.map_err(|_| WireError::Head("method"))?;
        let length = reader.take_u16()?;
        let text = reader.take_bytes(length.into())?;
        let target = PathAndQuery::from_maybe_shared(text.clone());
        let target = target.map_err(|_| WireError::Head("target"))?;
        let is_path = text.first() == Some(&b'/') || text == Bytes::from_static(b"*");
        // A fragment, which the parser cuts off, is not part of a target.
        if !is_path || target.as_str().as_bytes() != text {
            return Err(WireError::Head("target"));
        }
        Ok(RequestHead {
            method,
            target,
            headers: take_headers(reader)?,
        })
    }
}

/// Checks that headers can be encoded behind `before` other bytes of the head.
pub(in crate::http) fn check_headers(headers: &HeaderMap, before: usize) -> Result<(), WireError> {
    let lengths = headers.iter();
    let lengths = lengths.map(|(name, value)| 4 + name.as_str().len() + value.len());
    let length = before + 2 + lengths.sum::<usize>();
    let is_encodable = headers
        .iter()
        .all(|(name, value)| name.as_str().len().max(value.len()) <= usize::from(u16::MAX));
    match is_encodable && length <= HEAD_BYTES_MAX && headers.len() <= HEADERS_MAX {
        true => Ok(()),
        false => Err(WireError::LongHead),
    }
}

/// Encodes headers, which [`check_headers`] has accepted.
pub(super) fn put_headers(bytes: &mut BytesMut, headers: &HeaderMap) {
    debug_assert_eq!(check_headers(headers, 0), Ok(()));
    bytes.put_u16(headers.len() as u16);
    for (name, value) in headers {
        let name = name.as_str();
        bytes.put_u16(name.len() as u16);
        bytes.put_slice(name.as_bytes());
        bytes.put_u16(value.len() as u16);
        bytes.put_slice(value.as_bytes());
    }
}

/// Decodes headers. Values share the message's memory.
pub(super) fn take_headers(reader: &mut Reader<'_>) -> Result<HeaderMap, WireError> {
    let number = usize::from(reader.take_u16()?);
    if number > HEADERS_MAX {
        return Err(WireError::LongHead);
    }
    let mut headers = HeaderMap::new();
    for _ in 0..number {
        let length = reader.take_u16()?;
        let name = HeaderName::from_lowercase(reader.take(length.into())?);
        let length = reader.take_u16()?;
        let value = HeaderValue::from_maybe_shared(reader.take_bytes(length.into())?);
        let name = name.map_err(|_| WireError::Head("name of a header"))?;
        let value = value.map_err(|_| WireError::Head("value of a header"))?;
        headers.append(name, value);
    }
    Ok(headers)
}
