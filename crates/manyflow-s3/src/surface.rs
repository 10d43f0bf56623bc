//! The operations on buckets and objects.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use manyflow_ensembles::store::{Connect, StoreClient, StoreError, next_version};
use manyflow_store::{DownloadError, Manifest, UploadError};
use s3s::dto::{
    AbortMultipartUploadInput, AbortMultipartUploadOutput, Bucket, CompleteMultipartUploadInput,
    CompleteMultipartUploadOutput, CopyObjectInput, CopyObjectOutput, CopyObjectResult, CopySource,
    CreateBucketInput, CreateBucketOutput, CreateMultipartUploadInput, CreateMultipartUploadOutput,
    DeleteBucketInput, DeleteBucketOutput, DeleteObjectInput, DeleteObjectOutput,
    DeleteObjectsInput, DeleteObjectsOutput, DeletedObject, ETagCondition, GetBucketLocationInput,
    GetBucketLocationOutput, GetBucketVersioningInput, GetBucketVersioningOutput, GetObjectInput,
    GetObjectOutput, HeadBucketInput, HeadBucketOutput, HeadObjectInput, HeadObjectOutput,
    ListBucketsInput, ListBucketsOutput, ListObjectsInput, ListObjectsOutput, ListObjectsV2Input,
    ListObjectsV2Output, Metadata, MetadataDirective, PutObjectInput, PutObjectOutput,
    UploadPartInput, UploadPartOutput,
};
use s3s::{S3, S3Error, S3Request, S3Response, S3Result, s3_error};

use crate::body;
use crate::checks::{check_conditions, check_length, check_md5, matches, span};
use crate::listing::{ListRequest, list};
use crate::object::{Attributes, bucket_name, length_of, name_of, time_of};

/// The most entries of a listing, as with AWS.
const ENTRIES_MAX: usize = 1000;

/// An S3 surface of a store.
pub struct S3Surface<C> {
    pub(crate) client: Arc<StoreClient<C>>,
}

impl<C> fmt::Debug for S3Surface<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Surface").finish_non_exhaustive()
    }
}

/// Returns the error of an operation of the store.
pub(crate) fn failed(error: StoreError) -> S3Error {
    match error {
        StoreError::Upload(UploadError::Conflict { .. }) => s3_error!(
            PreconditionFailed,
            "another client has changed the object meanwhile"
        ),
        StoreError::Session(_)
        | StoreError::Download(DownloadError::Silent { .. })
        | StoreError::Upload(_)
        | StoreError::Incomplete { .. } => {
            tracing::warn!("a request failed: {error}");
            s3_error!(ServiceUnavailable, "{error}")
        }
        error => {
            tracing::warn!("a request failed: {error}");
            s3_error!(InternalError, "{error}")
        }
    }
}

impl<C: Connect + Send + 'static> S3Surface<C> {
    /// Creates a surface of the store that a client uses. New objects have as many copies as the
    /// client's configuration says.
    pub fn new(client: StoreClient<C>) -> S3Surface<C> {
        S3Surface {
            client: Arc::new(client),
        }
    }

    /// Fails unless a bucket exists.
    pub(crate) async fn check_bucket(&self, bucket: &str) -> S3Result<()> {
        let found = self.client.find(&bucket_name(bucket)).await;
        match found.map_err(failed)? {
            Some(_) => Ok(()),
            None => Err(s3_error!(NoSuchBucket)),
        }
    }

    /// Returns the manifest of an object.
    pub(crate) async fn object(&self, bucket: &str, key: &str) -> S3Result<Manifest> {
        let found = self.client.find(&name_of(bucket, key)?).await;
        match found.map_err(failed)? {
            Some(manifest) => Ok(manifest),
            None => {
                self.check_bucket(bucket).await?;
                Err(s3_error!(NoSuchKey))
            }
        }
    }

    /// Stores the manifest of an object, with these attributes, in the place of the one that was
    /// found. Returns its version.
    pub(crate) async fn store_object(
        &self,
        mut manifest: Manifest,
        attributes: &Attributes,
        place: &Place,
    ) -> S3Result<u64> {
        manifest.metadata = attributes.encode()?;
        manifest.copies = self.client.config().copies;
        manifest.version = next_version(place.version);
        let stored = self.client.store_manifest(&manifest, place.expected);
        stored.await.map_err(failed)?;
        Ok(manifest.version)
    }

    /// Returns the place of a new object, and fails if a condition on the present one is not met.
    pub(crate) async fn place(
        &self,
        bucket: &str,
        key: &str,
        if_match: Option<&ETagCondition>,
        if_none_match: Option<&ETagCondition>,
    ) -> S3Result<Place> {
        let found = self.client.lookup(&name_of(bucket, key)?).await;
        let newest = found.map_err(failed)?.manifest;
        let version = newest.as_ref().map(|newest| newest.version);
        let present = newest.filter(|newest| !newest.is_removed);
        if present.is_none() {
            self.check_bucket(bucket).await?;
        }
        let held = present.as_ref().map_or(0, |present| present.version);
        let matches = |condition: &ETagCondition| {
            present
                .as_ref()
                .is_some_and(|present| matches(present, condition))
        };
        if if_match.is_some_and(|condition| !matches(condition))
            || if_none_match.is_some_and(matches)
        {
            return Err(s3_error!(PreconditionFailed));
        }
        let is_conditional = if_match.is_some() || if_none_match.is_some();
        Ok(Place {
            version,
            expected: is_conditional.then_some(held),
        })
    }

    /// Lists objects.
    async fn list(&self, request: &ListRequest) -> S3Result<crate::listing::ObjectList> {
        let listed = list(&self.client, request).await.map_err(failed)?;
        if listed.objects.is_empty() && listed.prefixes.is_empty() {
            self.check_bucket(&request.bucket).await?;
        }
        Ok(listed)
    }
}

/// The place of a new object: the versions that it replaces.
pub(crate) struct Place {
    /// The newest version of the name, also if it was removed.
    pub(crate) version: Option<u64>,
    /// The version that must be the present one when the object is stored.
    pub(crate) expected: Option<u64>,
}

/// Returns the metadata as the library has it.
fn user_metadata(attributes: &Attributes) -> Option<Metadata> {
    let user = attributes.user.clone();
    (!user.is_empty()).then(|| user.into_iter().collect::<HashMap<_, _>>())
}

fn etag_of(md5: &[u8; 16]) -> String {
    body::hex(md5)
}

#[async_trait::async_trait]
impl<C: Connect + Send + 'static> S3 for S3Surface<C> {
    async fn create_bucket(
        &self,
        request: S3Request<CreateBucketInput>,
    ) -> S3Result<S3Response<CreateBucketOutput>> {
        let bucket = request.input.bucket;
        let name = bucket_name(&bucket);
        let newest = self.client.lookup(&name).await.map_err(failed)?.manifest;
        if newest.as_ref().is_none_or(|newest| newest.is_removed) {
            let marker = Manifest {
                version: next_version(newest.map(|newest| newest.version)),
                copies: self.client.config().copies,
                ..Manifest::empty(&name, crate::object::CHUNK_BYTES)
            };
            let stored = self.client.store_manifest(&marker, None).await;
            stored.map_err(failed)?;
        }
        Ok(S3Response::new(CreateBucketOutput {
            location: Some(format!("/{bucket}")),
        }))
    }

    async fn delete_bucket(
        &self,
        request: S3Request<DeleteBucketInput>,
    ) -> S3Result<S3Response<DeleteBucketOutput>> {
        let bucket = request.input.bucket;
        self.check_bucket(&bucket).await?;
        let first = ListRequest {
            bucket: bucket.clone(),
            prefix: String::new(),
            after: String::new(),
            delimiter: None,
            most: 1,
        };
        if !self.list(&first).await?.objects.is_empty() {
            return Err(s3_error!(BucketNotEmpty));
        }
        let removed = self.client.remove(&bucket_name(&bucket), None).await;
        removed.map_err(failed)?;
        Ok(S3Response::new(DeleteBucketOutput {}))
    }

    async fn head_bucket(
        &self,
        request: S3Request<HeadBucketInput>,
    ) -> S3Result<S3Response<HeadBucketOutput>> {
        self.check_bucket(&request.input.bucket).await?;
        Ok(S3Response::new(HeadBucketOutput::default()))
    }

    async fn get_bucket_location(
        &self,
        request: S3Request<GetBucketLocationInput>,
    ) -> S3Result<S3Response<GetBucketLocationOutput>> {
        self.check_bucket(&request.input.bucket).await?;
        Ok(S3Response::new(GetBucketLocationOutput::default()))
    }

    async fn get_bucket_versioning(
        &self,
        request: S3Request<GetBucketVersioningInput>,
    ) -> S3Result<S3Response<GetBucketVersioningOutput>> {
        self.check_bucket(&request.input.bucket).await?;
        // Without a status, the bucket never had versions.
        Ok(S3Response::new(GetBucketVersioningOutput::default()))
    }

    async fn list_buckets(
        &self,
        _request: S3Request<ListBucketsInput>,
    ) -> S3Result<S3Response<ListBucketsOutput>> {
        let (mut buckets, mut after) = (Vec::new(), String::new());
        loop {
            let page = self.client.list("", &after).await.map_err(failed)?;
            for (name, file) in page.files {
                if name <= after {
                    continue;
                }
                let (folder, key) = name.split_once('/').unwrap_or((&name, "/"));
                if key.is_empty() && !file.newest.is_removed {
                    buckets.push(Bucket {
                        name: Some(folder.to_owned()),
                        creation_date: Some(time_of(file.newest.version)),
                        ..Bucket::default()
                    });
                }
                // The objects of a bucket are behind its own name.
                after = match name.contains('/') {
                    true => format!("{folder}/{}", char::MAX),
                    false => name.clone(),
                };
            }
            match page.next {
                Some(next) => after = after.max(next),
                None => break,
            }
        }
        Ok(S3Response::new(ListBucketsOutput {
            buckets: Some(buckets),
            ..ListBucketsOutput::default()
        }))
    }

    async fn put_object(
        &self,
        request: S3Request<PutObjectInput>,
    ) -> S3Result<S3Response<PutObjectOutput>> {
        let input = request.input;
        let (bucket, key) = (input.bucket, input.key);
        let conditions = (input.if_match.as_ref(), input.if_none_match.as_ref());
        let place = self
            .place(&bucket, &key, conditions.0, conditions.1)
            .await?;
        let stored = body::store(&self.client, input.body).await?;
        check_length(input.content_length, stored.size)?;
        check_md5(input.content_md5.as_deref(), &stored.md5)?;
        let attributes = Attributes {
            etag: etag_of(&stored.md5),
            content_type: input.content_type,
            content_encoding: input.content_encoding,
            content_language: input.content_language,
            content_disposition: input.content_disposition,
            cache_control: input.cache_control,
            user: input.metadata.into_iter().flatten().collect(),
            key: None,
        };
        let manifest = stored.into_manifest(&name_of(&bucket, &key)?);
        self.store_object(manifest, &attributes, &place).await?;
        Ok(S3Response::new(PutObjectOutput {
            e_tag: Some(attributes.etag()),
            ..PutObjectOutput::default()
        }))
    }

    async fn get_object(
        &self,
        request: S3Request<GetObjectInput>,
    ) -> S3Result<S3Response<GetObjectOutput>> {
        let input = request.input;
        let manifest = self.object(&input.bucket, &input.key).await?;
        let conditions = (input.if_match.as_ref(), input.if_none_match.as_ref());
        check_conditions(&manifest, conditions.0, conditions.1)?;
        let attributes = Attributes::of(&manifest.metadata, manifest.version);
        let (span, content_range) = span(&manifest, input.range)?;
        let output = GetObjectOutput {
            accept_ranges: Some("bytes".to_owned()),
            content_length: i64::try_from(span.end - span.start).ok(),
            content_range,
            e_tag: Some(attributes.etag()),
            last_modified: Some(time_of(manifest.version)),
            metadata: user_metadata(&attributes),
            content_type: attributes.content_type,
            content_encoding: attributes.content_encoding,
            content_language: attributes.content_language,
            content_disposition: attributes.content_disposition,
            cache_control: attributes.cache_control,
            body: Some(body::read(&self.client, manifest, span)),
            ..GetObjectOutput::default()
        };
        Ok(S3Response::new(output))
    }

    async fn head_object(
        &self,
        request: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        let input = request.input;
        let manifest = self.object(&input.bucket, &input.key).await?;
        let conditions = (input.if_match.as_ref(), input.if_none_match.as_ref());
        check_conditions(&manifest, conditions.0, conditions.1)?;
        let attributes = Attributes::of(&manifest.metadata, manifest.version);
        Ok(S3Response::new(HeadObjectOutput {
            accept_ranges: Some("bytes".to_owned()),
            content_length: Some(length_of(&manifest)),
            e_tag: Some(attributes.etag()),
            last_modified: Some(time_of(manifest.version)),
            metadata: user_metadata(&attributes),
            content_type: attributes.content_type,
            content_encoding: attributes.content_encoding,
            content_language: attributes.content_language,
            content_disposition: attributes.content_disposition,
            cache_control: attributes.cache_control,
            ..HeadObjectOutput::default()
        }))
    }

    async fn delete_object(
        &self,
        request: S3Request<DeleteObjectInput>,
    ) -> S3Result<S3Response<DeleteObjectOutput>> {
        let input = request.input;
        self.check_bucket(&input.bucket).await?;
        let names = [name_of(&input.bucket, &input.key)?];
        self.client.remove_all(&names).await.map_err(failed)?;
        Ok(S3Response::new(DeleteObjectOutput::default()))
    }

    async fn delete_objects(
        &self,
        request: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        let input = request.input;
        self.check_bucket(&input.bucket).await?;
        let objects = input.delete.objects;
        let names = objects
            .iter()
            .map(|object| name_of(&input.bucket, &object.key));
        let names = names.collect::<S3Result<Vec<_>>>()?;
        self.client.remove_all(&names).await.map_err(failed)?;
        let deleted = objects.into_iter().map(|object| DeletedObject {
            key: Some(object.key),
            ..DeletedObject::default()
        });
        let is_quiet = input.delete.quiet.unwrap_or(false);
        Ok(S3Response::new(DeleteObjectsOutput {
            deleted: (!is_quiet).then(|| deleted.collect()),
            ..DeleteObjectsOutput::default()
        }))
    }

    async fn list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        let input = request.input;
        let token = input.continuation_token.clone();
        let wanted = ListRequest {
            bucket: input.bucket.clone(),
            prefix: input.prefix.clone().unwrap_or_default(),
            after: token
                .clone()
                .or(input.start_after.clone())
                .unwrap_or_default(),
            delimiter: input.delimiter.clone(),
            most: most(input.max_keys)?,
        };
        let listed = self.list(&wanted).await?;
        let count = listed.objects.len() + listed.prefixes.len();
        Ok(S3Response::new(ListObjectsV2Output {
            name: Some(input.bucket),
            prefix: input.prefix,
            delimiter: input.delimiter,
            start_after: input.start_after,
            continuation_token: token,
            encoding_type: input.encoding_type,
            max_keys: i32::try_from(wanted.most).ok(),
            key_count: i32::try_from(count).ok(),
            is_truncated: Some(listed.next.is_some()),
            next_continuation_token: listed.next,
            contents: Some(listed.objects),
            common_prefixes: Some(listed.prefixes),
            ..ListObjectsV2Output::default()
        }))
    }

    async fn list_objects(
        &self,
        request: S3Request<ListObjectsInput>,
    ) -> S3Result<S3Response<ListObjectsOutput>> {
        let input = request.input;
        let wanted = ListRequest {
            bucket: input.bucket.clone(),
            prefix: input.prefix.clone().unwrap_or_default(),
            after: input.marker.clone().unwrap_or_default(),
            delimiter: input.delimiter.clone(),
            most: most(input.max_keys)?,
        };
        let listed = self.list(&wanted).await?;
        Ok(S3Response::new(ListObjectsOutput {
            name: Some(input.bucket),
            prefix: input.prefix,
            delimiter: input.delimiter,
            marker: input.marker,
            encoding_type: input.encoding_type,
            max_keys: i32::try_from(wanted.most).ok(),
            is_truncated: Some(listed.next.is_some()),
            next_marker: listed.next,
            contents: Some(listed.objects),
            common_prefixes: Some(listed.prefixes),
            ..ListObjectsOutput::default()
        }))
    }

    async fn copy_object(
        &self,
        request: S3Request<CopyObjectInput>,
    ) -> S3Result<S3Response<CopyObjectOutput>> {
        let input = request.input;
        let CopySource::Bucket { bucket, key, .. } = &input.copy_source else {
            return Err(s3_error!(NotImplemented, "copies from access points"));
        };
        let source = self.object(bucket, key).await?;
        let place = self.place(&input.bucket, &input.key, None, None).await?;
        let mut attributes = Attributes::of(&source.metadata, source.version);
        let is_replaced = input
            .metadata_directive
            .is_some_and(|directive| directive.as_str() == MetadataDirective::REPLACE);
        if is_replaced {
            attributes = Attributes {
                etag: attributes.etag,
                content_type: input.content_type,
                content_encoding: input.content_encoding,
                content_language: input.content_language,
                content_disposition: input.content_disposition,
                cache_control: input.cache_control,
                user: input.metadata.into_iter().flatten().collect(),
                key: None,
            };
        }
        // The source may be removed before the copy is stored.
        let is_held = self.client.refresh(&body::hashes(&source.chunks)).await;
        if !is_held.map_err(failed)? {
            return Err(s3_error!(
                InternalError,
                "a chunk of the source has no copy left"
            ));
        }
        let copy = Manifest {
            name: name_of(&input.bucket, &input.key)?,
            revision: 0,
            earlier: Vec::new(),
            ..source
        };
        let version = self.store_object(copy, &attributes, &place).await?;
        Ok(S3Response::new(CopyObjectOutput {
            copy_object_result: Some(CopyObjectResult {
                e_tag: Some(attributes.etag()),
                last_modified: Some(time_of(version)),
                ..CopyObjectResult::default()
            }),
            ..CopyObjectOutput::default()
        }))
    }

    async fn create_multipart_upload(
        &self,
        request: S3Request<CreateMultipartUploadInput>,
    ) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
        self.begin_upload(request.input).await.map(S3Response::new)
    }

    async fn upload_part(
        &self,
        request: S3Request<UploadPartInput>,
    ) -> S3Result<S3Response<UploadPartOutput>> {
        self.store_part(request.input).await.map(S3Response::new)
    }

    async fn complete_multipart_upload(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
        self.complete_upload(request.input)
            .await
            .map(S3Response::new)
    }

    async fn abort_multipart_upload(
        &self,
        request: S3Request<AbortMultipartUploadInput>,
    ) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
        let input = request.input;
        self.remove_upload(&input.bucket, &input.key, &input.upload_id)
            .await?;
        Ok(S3Response::new(AbortMultipartUploadOutput::default()))
    }
}

/// Returns the number of entries that a listing may have.
fn most(max_keys: Option<i32>) -> S3Result<usize> {
    let Some(wanted) = max_keys else {
        return Ok(ENTRIES_MAX);
    };
    match usize::try_from(wanted) {
        Ok(wanted) => Ok(wanted.min(ENTRIES_MAX)),
        Err(_) => Err(s3_error!(
            InvalidArgument,
            "max-keys is 0 or more, and here it is {wanted}"
        )),
    }
}
