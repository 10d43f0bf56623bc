//! Checks of requests: conditions, ranges, digests and lengths.

use std::ops::Range;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use manyflow_store::Manifest;
use s3s::dto::ETagCondition;
use s3s::{S3Result, s3_error};

use crate::object::Attributes;

/// Returns whether an object meets a condition on its entity tag.
pub(crate) fn matches(manifest: &Manifest, condition: &ETagCondition) -> bool {
    match condition {
        ETagCondition::Any => true,
        ETagCondition::ETag(etag) => {
            Attributes::of(&manifest.metadata, manifest.version).etag == etag.value()
        }
    }
}

/// Checks the conditions of a read.
pub(crate) fn check_conditions(
    manifest: &Manifest,
    if_match: Option<&ETagCondition>,
    if_none_match: Option<&ETagCondition>,
) -> S3Result<()> {
    if if_match.is_some_and(|condition| !matches(manifest, condition)) {
        return Err(s3_error!(PreconditionFailed));
    }
    match if_none_match.is_some_and(|condition| matches(manifest, condition)) {
        true => Err(s3_error!(NotModified)),
        false => Ok(()),
    }
}

/// Returns the bytes that a range means, and the header that says so.
pub(crate) fn span(
    manifest: &Manifest,
    range: Option<s3s::dto::Range>,
) -> S3Result<(Range<u64>, Option<String>)> {
    let Some(range) = range else {
        return Ok((0..manifest.size, None));
    };
    let span = range.check(manifest.size)?;
    let last = span.end.saturating_sub(1);
    let header = format!("bytes {}-{last}/{}", span.start, manifest.size);
    Ok((span, Some(header)))
}

/// Checks the digest that a client has sent in base 64.
pub(crate) fn check_md5(wanted: Option<&str>, md5: &[u8; 16]) -> S3Result<()> {
    let Some(wanted) = wanted else {
        return Ok(());
    };
    match BASE64_STANDARD.encode(md5) == wanted {
        true => Ok(()),
        false => Err(s3_error!(BadDigest)),
    }
}

/// Checks that a body has the length that its client has announced.
pub(crate) fn check_length(announced: Option<i64>, length: u64) -> S3Result<()> {
    match announced.is_none_or(|announced| u64::try_from(announced) == Ok(length)) {
        true => Ok(()),
        false => Err(s3_error!(IncompleteBody)),
    }
}
