//! Multipart uploads: each part is a file until the upload is complete.
//!
//! ```text
//!   .uploads/BUCKET/ID/        the upload: key and attributes of the object
//!   .uploads/BUCKET/ID/00007   part 7
//! ```

use std::collections::BTreeMap;

use manyflow_ensembles::store::{Connect, next_version};
use manyflow_store::Manifest;
use md5::{Digest as _, Md5};
use s3s::dto::{
    CompleteMultipartUploadInput, CompleteMultipartUploadOutput, CompletedPart,
    CreateMultipartUploadInput, CreateMultipartUploadOutput, UploadPartInput, UploadPartOutput,
};
use s3s::{S3Result, s3_error};

use crate::S3Surface;
use crate::body;
use crate::checks::{check_length, check_md5};
use crate::object::{Attributes, CHUNK_BYTES, UPLOADS, name_of};
use crate::surface::failed;

/// The highest number of a part.
const PART_MAX: i32 = 10_000;

fn folder_of(bucket: &str, id: &str) -> S3Result<String> {
    // The id becomes a part of a name.
    match id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        true => Ok(format!("{UPLOADS}{bucket}/{id}/")),
        false => Err(s3_error!(NoSuchUpload)),
    }
}

fn part_name(folder: &str, number: i32) -> S3Result<String> {
    match (1..=PART_MAX).contains(&number) {
        true => Ok(format!("{folder}{number:05}")),
        false => Err(s3_error!(
            InvalidArgument,
            "parts have numbers from 1 to 10000"
        )),
    }
}

impl<C: Connect + Send + 'static> S3Surface<C> {
    /// Begins an upload.
    pub(crate) async fn begin_upload(
        &self,
        input: CreateMultipartUploadInput,
    ) -> S3Result<CreateMultipartUploadOutput> {
        name_of(&input.bucket, &input.key)?;
        self.check_bucket(&input.bucket).await?;
        let id = format!("{:032x}", rand::random::<u128>());
        let attributes = Attributes {
            content_type: input.content_type,
            content_encoding: input.content_encoding,
            content_language: input.content_language,
            content_disposition: input.content_disposition,
            cache_control: input.cache_control,
            user: input.metadata.into_iter().flatten().collect(),
            key: Some(input.key.clone()),
            etag: String::new(),
        };
        let upload = Manifest {
            version: next_version(None),
            copies: self.client.config().copies,
            metadata: attributes.encode()?,
            ..Manifest::empty(&folder_of(&input.bucket, &id)?, CHUNK_BYTES)
        };
        let stored = self.client.store_manifest(&upload, None).await;
        stored.map_err(failed)?;
        Ok(CreateMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(id),
            ..CreateMultipartUploadOutput::default()
        })
    }

    /// Returns the attributes of an upload.
    async fn upload(&self, bucket: &str, key: &str, id: &str) -> S3Result<Attributes> {
        let found = self.client.find(&folder_of(bucket, id)?).await;
        let upload = found.map_err(failed)?;
        let attributes = upload.map(|upload| Attributes::of(&upload.metadata, upload.version));
        attributes
            .filter(|attributes| attributes.key.as_deref() == Some(key))
            .ok_or_else(|| s3_error!(NoSuchUpload))
    }

    /// Stores a part.
    pub(crate) async fn store_part(&self, input: UploadPartInput) -> S3Result<UploadPartOutput> {
        let folder = folder_of(&input.bucket, &input.upload_id)?;
        let name = part_name(&folder, input.part_number)?;
        self.upload(&input.bucket, &input.key, &input.upload_id)
            .await?;
        let stored = body::store(&self.client, input.body).await?;
        check_length(input.content_length, stored.size)?;
        check_md5(input.content_md5.as_deref(), &stored.md5)?;
        let attributes = Attributes {
            etag: body::hex(&stored.md5),
            ..Attributes::default()
        };
        let part = Manifest {
            version: next_version(None),
            copies: self.client.config().copies,
            metadata: attributes.encode()?,
            ..stored.into_manifest(&name)
        };
        let stored = self.client.store_manifest(&part, None).await;
        stored.map_err(failed)?;
        Ok(UploadPartOutput {
            e_tag: Some(attributes.etag()),
            ..UploadPartOutput::default()
        })
    }

    /// Makes an object of the parts of an upload.
    pub(crate) async fn complete_upload(
        &self,
        input: CompleteMultipartUploadInput,
    ) -> S3Result<CompleteMultipartUploadOutput> {
        let (bucket, key, id) = (&input.bucket, &input.key, &input.upload_id);
        let attributes = self.upload(bucket, key, id).await?;
        let conditions = (input.if_match.as_ref(), input.if_none_match.as_ref());
        let place = self.place(bucket, key, conditions.0, conditions.1).await?;
        let listed = input.multipart_upload.and_then(|upload| upload.parts);
        let parts = self.parts(bucket, id, &listed.unwrap_or_default()).await?;
        let attributes = Attributes {
            etag: etag_of(&parts),
            key: None,
            ..attributes
        };
        let manifest = self.join_parts(&name_of(bucket, key)?, &parts).await?;
        self.store_object(manifest, &attributes, &place).await?;
        self.remove_upload(bucket, key, id).await?;
        Ok(CompleteMultipartUploadOutput {
            location: Some(format!("/{bucket}/{key}")),
            e_tag: Some(attributes.etag()),
            bucket: Some(input.bucket),
            key: Some(input.key),
            ..CompleteMultipartUploadOutput::default()
        })
    }

    /// Returns the parts that a client lists.
    async fn parts(
        &self,
        bucket: &str,
        id: &str,
        listed: &[CompletedPart],
    ) -> S3Result<Vec<Manifest>> {
        let folder = folder_of(bucket, id)?;
        let stored = self.client.read_manifests(&folder).await.map_err(failed)?;
        let stored = stored.into_iter().map(|part| (part.name.clone(), part));
        let mut stored: BTreeMap<_, _> = stored.collect();
        let (mut parts, mut last) = (Vec::new(), 0);
        for part in listed {
            let number = part.part_number.unwrap_or(0);
            if number <= last {
                return Err(s3_error!(InvalidPartOrder));
            }
            last = number;
            let stored = stored.remove(&part_name(&folder, number)?);
            let stored = stored.ok_or_else(|| s3_error!(InvalidPart, "part {number}"))?;
            let etag = Attributes::of(&stored.metadata, stored.version).etag;
            if part
                .e_tag
                .as_ref()
                .is_some_and(|wanted| wanted.value() != etag)
            {
                return Err(s3_error!(
                    InvalidPart,
                    "part {number} has another entity tag"
                ));
            }
            parts.push(stored);
        }
        match parts.is_empty() {
            true => Err(s3_error!(MalformedXML)),
            false => Ok(parts),
        }
    }

    /// Returns a file of the bytes of all parts. It has their chunks, if all parts but the last end
    /// with a whole chunk; otherwise the bytes are stored again.
    async fn join_parts(&self, name: &str, parts: &[Manifest]) -> S3Result<Manifest> {
        let aligned = parts.iter().rev().skip(1);
        let is_aligned = aligned
            .clone()
            .all(|part| part.size % u64::from(CHUNK_BYTES) == 0);
        let chunks = match is_aligned {
            true => parts.iter().flat_map(|part| part.chunks.clone()).collect(),
            false => body::join(&self.client, parts).await?,
        };
        // The parts are removed soon, and may have been stored long ago.
        let is_held = self.client.refresh(&body::hashes(&chunks)).await;
        if !is_held.map_err(failed)? {
            return Err(s3_error!(
                InternalError,
                "a chunk of a part has no copy left"
            ));
        }
        Ok(Manifest {
            size: parts.iter().map(|part| part.size).sum(),
            digest: Manifest::composite_digest(&chunks),
            is_composite: true,
            chunks,
            ..Manifest::empty(name, CHUNK_BYTES)
        })
    }

    /// Removes an upload and its parts.
    pub(crate) async fn remove_upload(&self, bucket: &str, key: &str, id: &str) -> S3Result<()> {
        self.upload(bucket, key, id).await?;
        let (mut names, mut after) = (Vec::new(), String::new());
        loop {
            let page = self.client.list(&folder_of(bucket, id)?, &after).await;
            let page = page.map_err(failed)?;
            names.extend(page.files.into_keys());
            match page.next {
                Some(next) => after = next,
                None => break,
            }
        }
        self.client.remove_all(&names).await.map_err(failed)?;
        Ok(())
    }
}

/// Returns the entity tag of an object of several parts: the digest of their digests, and their
/// number.
fn etag_of(parts: &[Manifest]) -> String {
    let mut md5 = Md5::new();
    for part in parts {
        let etag = Attributes::of(&part.metadata, part.version).etag;
        let digits = etag.as_bytes().chunks(2);
        let bytes: Vec<u8> = digits
            .filter_map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
            .collect();
        md5.update(bytes);
    }
    format!("{}-{}", body::hex(&md5.finalize()), parts.len())
}
