//! Objects as files of the store: their names, and what manifests keep of them besides their bytes.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use manyflow_store::{METADATA_BYTES_MAX, Manifest, is_name};
use s3s::dto::{ETag, Timestamp};
use s3s::{S3Result, s3_error};
use serde::{Deserialize, Serialize};

/// The length of a chunk of an object in bytes. The parts that clients send are multiples of it, so
/// that the chunks of a multipart upload are those of its parts.
pub(crate) const CHUNK_BYTES: u32 = 512 << 10;
/// The beginning of the names of multipart uploads. No bucket's name begins with a dot.
pub(crate) const UPLOADS: &str = ".uploads/";

/// The entity tag, the headers and the metadata of an object, in the metadata of its manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Attributes {
    /// The MD5 digest in hexadecimal digits; that of a multipart upload also has the number of
    /// parts.
    pub(crate) etag: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) content_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) content_encoding: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) content_language: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) content_disposition: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cache_control: Option<String>,
    /// The headers `x-amz-meta-...` of the client.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) user: BTreeMap<String, String>,
    /// Of a multipart upload in progress, the key of the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
}

impl Attributes {
    /// Reads the attributes of a file. A file that another client has put has no entity tag of MD5.
    pub(crate) fn of(metadata: &[u8], version: u64) -> Attributes {
        let read = serde_json::from_slice(metadata).ok();
        read.unwrap_or_else(|| Attributes {
            etag: format!("{version:032x}"),
            ..Attributes::default()
        })
    }

    /// Returns the bytes for a manifest.
    pub(crate) fn encode(&self) -> S3Result<Bytes> {
        let bytes = serde_json::to_vec(self).map_err(|error| s3_error!(error, InternalError))?;
        match bytes.len() <= METADATA_BYTES_MAX {
            true => Ok(bytes.into()),
            false => Err(s3_error!(MetadataTooLarge)),
        }
    }

    pub(crate) fn etag(&self) -> ETag {
        ETag::Strong(self.etag.clone())
    }
}

/// Returns the name of an object's file.
pub(crate) fn name_of(bucket: &str, key: &str) -> S3Result<String> {
    let name = format!("{bucket}/{key}");
    match is_name(&name) && !key.is_empty() {
        true => Ok(name),
        false if name.len() > 1024 => Err(s3_error!(
            KeyTooLongError,
            "bucket and key have at most 1024 bytes together"
        )),
        false => Err(s3_error!(
            InvalidArgument,
            "a key has no control characters"
        )),
    }
}

/// Returns the name of a bucket's file.
pub(crate) fn bucket_name(bucket: &str) -> String {
    format!("{bucket}/")
}

/// Returns the time of a version, which is in milliseconds since 1970.
pub(crate) fn time_of(version: u64) -> Timestamp {
    // Clients compare times with the seconds of HTTP dates.
    let seconds = Duration::from_secs(version / 1000);
    let time = SystemTime::UNIX_EPOCH.checked_add(seconds);
    Timestamp::from(time.unwrap_or(SystemTime::UNIX_EPOCH))
}

/// Returns the length of a file as S3 has it.
pub(crate) fn length_of(manifest: &Manifest) -> i64 {
    i64::try_from(manifest.size).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_survive_a_manifest_and_are_made_up_for_files_of_others() {
        let attributes = Attributes {
            etag: "abc".to_owned(),
            content_type: Some("text/plain".to_owned()),
            user: [("mtime".to_owned(), "1.5".to_owned())].into(),
            ..Attributes::default()
        };
        let bytes = attributes.encode().unwrap();
        assert_eq!(Attributes::of(&bytes, 5), attributes);
        assert_eq!(Attributes::of(b"", 5).etag, format!("{:032x}", 5));
        let long = Attributes {
            etag: "x".repeat(METADATA_BYTES_MAX),
            ..Attributes::default()
        };
        assert!(long.encode().is_err());
    }

    #[test]
    fn keys_are_parts_of_names() {
        assert_eq!(name_of("b", "a/c").unwrap(), "b/a/c");
        for key in ["", "a\nb", &"x".repeat(1023)] {
            assert!(name_of("b", key).is_err(), "{key:?}");
        }
    }
}
