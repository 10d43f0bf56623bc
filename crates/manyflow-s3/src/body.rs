//! Bodies of requests as chunks of the store, and chunks as bodies of answers.

use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use futures_core::Stream;
use futures_util::StreamExt as _;
use manyflow_ensembles::store::{Connect, StoreClient, StoreError};
use manyflow_store::{ChunkEntry, Hash, Manifest};
use md5::{Digest as _, Md5};
use s3s::dto::StreamingBlob;
use s3s::{S3Result, s3_error};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::object::CHUNK_BYTES;
use crate::patience::Broken;
use crate::surface::failed;

/// The chunks that are stored together.
const BATCH: usize = 8;
/// The batches that are on their way while the body is read.
const BATCHES: usize = 2;
/// The bytes of an object that are read together.
const SPAN: u64 = BATCH as u64 * CHUNK_BYTES as u64;

/// A body that is stored.
pub(crate) struct StoredBody {
    pub(crate) chunks: Vec<ChunkEntry>,
    pub(crate) size: u64,
    pub(crate) md5: [u8; 16],
}

impl StoredBody {
    /// Returns the body as the bytes of a file.
    pub(crate) fn into_manifest(self, name: &str) -> Manifest {
        Manifest {
            size: self.size,
            digest: Manifest::composite_digest(&self.chunks),
            is_composite: true,
            chunks: self.chunks,
            ..Manifest::empty(name, CHUNK_BYTES)
        }
    }
}

/// Stores a body, while it is still being received.
pub(crate) async fn store<C>(
    client: &Arc<StoreClient<C>>,
    body: Option<StreamingBlob>,
) -> S3Result<StoredBody>
where
    C: Connect + Send + 'static,
{
    let mut storing = Storing {
        client: Arc::clone(client),
        waiting: Vec::new(),
        batches: JoinSet::new(),
        stored: Vec::new(),
        begun: 0,
    };
    let (mut md5, mut size, mut chunk) = (Md5::new(), 0, BytesMut::new());
    if let Some(mut body) = body {
        while let Some(part) = body.next().await {
            let part = part.map_err(|error| match Broken::is_stopped(&*error) {
                true => s3_error!(RequestTimeout, "{error}"),
                false => s3_error!(IncompleteBody, "{error}"),
            })?;
            md5.update(&part);
            size += part.len() as u64;
            chunk.extend_from_slice(&part);
            while chunk.len() >= CHUNK_BYTES as usize {
                let full = chunk.split_to(CHUNK_BYTES as usize).freeze();
                storing.add(full).await?;
            }
        }
    }
    if !chunk.is_empty() {
        storing.add(chunk.freeze()).await?;
    }
    Ok(StoredBody {
        chunks: storing.finish().await?,
        size,
        md5: md5.finalize().into(),
    })
}

type Batch = (usize, Result<Vec<ChunkEntry>, StoreError>);

/// Chunks on their way into the store.
struct Storing<C> {
    client: Arc<StoreClient<C>>,
    waiting: Vec<Bytes>,
    batches: JoinSet<Batch>,
    /// The entries of each batch that is stored, by its number.
    stored: Vec<Vec<ChunkEntry>>,
    begun: usize,
}

impl<C: Connect + Send + 'static> Storing<C> {
    async fn add(&mut self, chunk: Bytes) -> S3Result<()> {
        self.waiting.push(chunk);
        if self.waiting.len() == BATCH {
            self.begin_batch();
            while self.batches.len() >= BATCHES {
                self.wait().await?;
            }
        }
        Ok(())
    }

    fn begin_batch(&mut self) {
        let (client, chunks) = (Arc::clone(&self.client), std::mem::take(&mut self.waiting));
        let number = self.begun;
        self.begun += 1;
        self.stored.push(Vec::new());
        self.batches
            .spawn(async move { (number, client.store_chunks(chunks).await) });
    }

    async fn wait(&mut self) -> S3Result<()> {
        if let Some(batch) = self.batches.join_next().await {
            let (number, entries) = batch.map_err(|error| s3_error!(error, InternalError))?;
            self.stored[number] = entries.map_err(failed)?;
        }
        Ok(())
    }

    async fn finish(mut self) -> S3Result<Vec<ChunkEntry>> {
        if !self.waiting.is_empty() {
            self.begin_batch();
        }
        while !self.batches.is_empty() {
            self.wait().await?;
        }
        Ok(self.stored.concat())
    }
}

/// Stores the bytes of several files again as one file, in chunks of the usual length.
pub(crate) async fn join<C>(
    client: &Arc<StoreClient<C>>,
    parts: &[Manifest],
) -> S3Result<Vec<ChunkEntry>>
where
    C: Connect + Send + 'static,
{
    let parts = parts.to_vec();
    let reading = Arc::clone(client);
    let (sender, receiver) = mpsc::channel(1);
    let task = tokio::spawn(async move {
        for part in parts {
            let size = part.size;
            if !send_spans(&reading, &part, 0..size, &sender).await {
                return;
            }
        }
    });
    let stored = store(client, Some(StreamingBlob::wrap(Spans(receiver)))).await;
    task.abort();
    stored.map(|stored| stored.chunks)
}

/// Returns a part of a file as the body of an answer.
pub(crate) fn read<C>(
    client: &Arc<StoreClient<C>>,
    manifest: Manifest,
    part: Range<u64>,
) -> StreamingBlob
where
    C: Connect + Send + 'static,
{
    let client = Arc::clone(client);
    // One span is read while another one is sent.
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        send_spans(&client, &manifest, part, &sender).await;
    });
    StreamingBlob::wrap(Spans(receiver))
}

/// Sends the bytes of a part of a file. Returns whether all were sent.
async fn send_spans<C: Connect>(
    client: &StoreClient<C>,
    manifest: &Manifest,
    part: Range<u64>,
    sender: &mpsc::Sender<io::Result<Bytes>>,
) -> bool {
    let mut start = part.start;
    while start < part.end {
        // Spans end where chunks do, so that no chunk is read twice.
        let end = ((start / SPAN + 1) * SPAN).min(part.end);
        let read = match client.read(manifest, start..end).await {
            Ok(read) => read.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(io::Error::other(error))],
        };
        for bytes in read {
            let has_failed = bytes.is_err();
            if sender.send(bytes).await.is_err() || has_failed {
                return false;
            }
        }
        start = end;
    }
    true
}

/// Bytes that another task reads.
struct Spans(mpsc::Receiver<io::Result<Bytes>>);

impl Stream for Spans {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context)
    }
}

/// Returns digits of a digest.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the hashes of chunks.
pub(crate) fn hashes(chunks: &[ChunkEntry]) -> Vec<Hash> {
    chunks.iter().map(|chunk| chunk.hash).collect()
}
