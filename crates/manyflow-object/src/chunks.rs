//! Content-defined chunks: parts of a file that another version of the file has, too, even where
//! bytes before them were inserted or removed.
//!
//! The boundaries depend on the bytes around them only (FastCDC: Xia, Zhou, Jiang, Feng, Hua, Hu,
//! Liu and Zhang, "FastCDC: a Fast and Efficient Content-Defined Chunking Approach for Data
//! Deduplication", 2016). A sender gives the chunks of a file in its FDT. A receiver that has a
//! former version cuts it in the same way, and takes the chunks that both have from there: see
//! [`ObjectReceiver::reuse`](crate::receiver::ObjectReceiver::reuse).

use std::io::{self, Read};
use std::ops::RangeInclusive;

use blake3::Hasher;
use fastcdc::v2020::StreamCDC;

use crate::source::Source;

/// The average lengths of chunks that are possible, in bytes.
const AVERAGES: RangeInclusive<u32> = 1 << 14..=1 << 20;
/// The number of chunks of a session, about. The FDT has [`ENTRY_BYTES`] for each, in base64.
const CHUNKS_OF_SESSION: u64 = 8_192;
/// A chunk has at least a quarter of the average length, and at most four times as much.
const SPREAD: u32 = 4;
/// Length of a chunk in an FDT: its length in 3 bytes, and its digest.
const ENTRY_BYTES: usize = 3 + DIGEST_BYTES;
const DIGEST_BYTES: usize = 8;

/// The first 64 bits of the BLAKE3 hash of a chunk. They find a chunk and do not prove it: each
/// block is compared with its own digest afterwards.
type ChunkDigest = [u8; DIGEST_BYTES];

/// A chunk of a file. The order means nothing, but makes chunks easy to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Chunk {
    pub(crate) length: u32,
    pub(crate) digest: ChunkDigest,
}

/// The chunks of a file, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunks {
    average: u32,
    chunks: Vec<Chunk>,
}

/// Returns the average length of chunks in a session of `bytes`: the power of two with which it has
/// 4,096 to 8,192 chunks, within bounds of 16 KiB and 1 MiB.
pub(crate) fn average_of(bytes: u64) -> u32 {
    let average = bytes.div_ceil(CHUNKS_OF_SESSION).max(1);
    let average = average.checked_next_power_of_two().unwrap_or(u64::MAX);
    average.clamp((*AVERAGES.start()).into(), (*AVERAGES.end()).into()) as u32
}

impl Chunks {
    /// Cuts a file into chunks of the `average` length, which [`average_of`] has returned.
    pub(crate) fn of(source: &dyn Source, average: u32) -> io::Result<Chunks> {
        let chunks = cut_source(source, average).map(|bytes| Ok(chunk_of(&bytes?)));
        let chunks = chunks.collect::<io::Result<_>>()?;
        Ok(Chunks { average, chunks })
    }

    /// The length of the file in bytes.
    pub fn length(&self) -> u64 {
        self.iter().map(|chunk| u64::from(chunk.length)).sum()
    }

    pub(crate) fn average(&self) -> u32 {
        self.average
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Chunk> {
        self.chunks.iter()
    }

    /// Returns the bytes in an FDT: the average length in 4 bytes, and the chunks.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.average.to_be_bytes().to_vec();
        for Chunk { length, digest } in &self.chunks {
            bytes.extend_from_slice(&length.to_be_bytes()[1..]);
            bytes.extend_from_slice(digest);
        }
        bytes
    }

    /// Returns the chunks in an FDT; `None` if no sender can have cut them.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Chunks> {
        let (average, entries) = bytes.split_first_chunk()?;
        let average = u32::from_be_bytes(*average);
        if !AVERAGES.contains(&average) || !average.is_power_of_two() {
            return None;
        }
        let (entries, rest) = entries.as_chunks::<ENTRY_BYTES>();
        let chunks = entries.iter().map(|entry| {
            let [high, middle, low, digest @ ..] = *entry;
            let length = u32::from_be_bytes([0, high, middle, low]);
            let is_possible = (1..=average * SPREAD).contains(&length);
            is_possible.then_some(Chunk { length, digest })
        });
        let chunks = chunks.collect::<Option<Vec<_>>>()?;
        rest.is_empty().then_some(Chunks { average, chunks })
    }
}

/// Returns the bytes of a source's chunks, in order.
pub(crate) fn cut_source(
    source: &dyn Source,
    average: u32,
) -> impl Iterator<Item = io::Result<Vec<u8>>> {
    debug_assert!(AVERAGES.contains(&average) && average.is_power_of_two());
    let [min, average, max] = [average / SPREAD, average, average * SPREAD];
    let reader = SourceReader {
        source,
        position: 0,
    };
    let chunks = StreamCDC::new(reader, min as usize, average as usize, max as usize);
    chunks.map(|chunk| Ok(chunk?.data))
}

/// Returns the length and the digest of a chunk with these bytes.
pub(crate) fn chunk_of(bytes: &[u8]) -> Chunk {
    let hash = Hasher::new().update(bytes).finalize();
    let digest = hash.as_bytes().first_chunk();
    Chunk {
        length: bytes.len() as u32,
        digest: *digest.expect("a BLAKE3 hash has 32 bytes"),
    }
}

/// Reads a source from its beginning to its end.
struct SourceReader<'a> {
    source: &'a dyn Source,
    position: u64,
}

impl Read for SourceReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.source.length() - self.position;
        let length = left.min(buffer.len() as u64) as usize;
        self.source.read_at(self.position, &mut buffer[..length])?;
        self.position += length as u64;
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use proptest::prelude::*;
    use rand::SeedableRng as _;
    use rand_pcg::Pcg64;

    fn random(length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        Pcg64::seed_from_u64(length as u64).fill_bytes(&mut bytes);
        bytes
    }

    proptest! {
        #[test]
        fn any_bytes_give_chunks_or_nothing(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let average = 1_u32 << 15;
            for bytes in [bytes.clone(), [&average.to_be_bytes(), &bytes[..]].concat()] {
                if let Some(chunks) = Chunks::decode(&bytes) {
                    prop_assert_eq!(chunks.encode(), bytes);
                }
            }
        }
    }

    #[test]
    fn chunks_cover_the_file_and_come_back() {
        for length in [0, 1, 5_000, 1_000_000] {
            let chunks = Chunks::of(&Bytes::from(random(length)), 1 << 14).unwrap();
            assert_eq!(chunks.length(), length as u64);
            assert_eq!(Chunks::decode(&chunks.encode()), Some(chunks));
        }
    }

    #[test]
    fn bytes_that_are_inserted_change_the_chunks_around_them_only() {
        let former = random(2_000_000);
        let mut latter = former.clone();
        latter.splice(700_000..700_000, *b"inserted");
        let [former, latter] = [former, latter].map(|bytes| {
            let chunks = Chunks::of(&Bytes::from(bytes), 1 << 14).unwrap();
            chunks.chunks
        });
        let new = latter.iter().filter(|chunk| !former.contains(chunk));
        assert!(former.len() > 60 && new.count() <= 3);
    }

    #[test]
    fn a_session_has_thousands_of_chunks_at_most() {
        for (bytes, average) in [
            (0, 1 << 14),
            (100_000_000, 1 << 14),
            (1_000_000_000, 1 << 17),
            (u64::MAX, 1 << 20),
        ] {
            assert_eq!(average_of(bytes), average);
        }
    }
}
