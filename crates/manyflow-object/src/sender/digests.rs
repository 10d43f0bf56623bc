//! The digests of a file, its blocks and its chunks.

use std::ops::Range;
use std::{io, thread};

use blake3::Hasher;
use md5::{Digest, Md5};
use sha2::Sha256;

use crate::chunks::Chunks;
use crate::fec::{BlockDigest, Oti, truncate};
use crate::source::Source;

/// The length of the parts in which a file is read, in bytes.
const PART_BYTES: u64 = 1 << 18;
/// The length from which a file is read by two threads, one of which computes the digests of its
/// blocks: both take equally long, and a thread takes less than the digest of this length.
const SHARED_FROM_BYTES: u64 = 1 << 20;

pub(super) struct Digests {
    pub(super) md5: Option<[u8; 16]>,
    pub(super) sha256: [u8; 32],
    /// The digests of the source blocks, in order.
    pub(super) blocks: Vec<BlockDigest>,
    /// The content-defined chunks, if they are asked for.
    pub(super) chunks: Option<Chunks>,
}

impl Digests {
    /// Reads all of `source`, which has the parameters `oti`. With the average length of chunks,
    /// these are found, too.
    pub(super) fn of(
        source: &dyn Source,
        oti: &Oti,
        with_md5: bool,
        chunk_average: Option<u32>,
    ) -> io::Result<Digests> {
        let blocks = || digests_of_blocks(source, oti);
        let chunks = || chunk_average.map(|average| Chunks::of(source, average));
        let (blocks, chunks, whole) = match oti.transfer_length() < SHARED_FROM_BYTES {
            true => (blocks(), chunks(), Whole::of(source, oti, with_md5)),
            false => thread::scope(|scope| {
                let digests = scope.spawn(|| (blocks(), chunks()));
                let whole = Whole::of(source, oti, with_md5);
                let (blocks, chunks) = digests.join().expect("a digest does not panic");
                (blocks, chunks, whole)
            }),
        };
        let Whole { md5, sha256 } = whole?;
        Ok(Digests {
            md5,
            sha256,
            blocks: blocks?,
            chunks: chunks.transpose()?,
        })
    }
}

/// The digests of a whole file.
struct Whole {
    md5: Option<[u8; 16]>,
    sha256: [u8; 32],
}

impl Whole {
    fn of(source: &dyn Source, oti: &Oti, with_md5: bool) -> io::Result<Whole> {
        let (mut md5, mut sha256) = (with_md5.then(Md5::new), Sha256::new());
        read(source, 0..oti.transfer_length(), |part| {
            if let Some(md5) = &mut md5 {
                md5.update(part);
            }
            sha256.update(part);
        })?;
        Ok(Whole {
            md5: md5.map(|md5| md5.finalize().into()),
            sha256: sha256.finalize().into(),
        })
    }
}

fn digests_of_blocks(source: &dyn Source, oti: &Oti) -> io::Result<Vec<BlockDigest>> {
    let digest = |sbn| {
        let mut block = Hasher::new();
        read(source, oti.block_range(sbn), |part| {
            block.update(part);
        })?;
        Ok(truncate(&block))
    };
    (0..oti.blocks()).map(digest).collect()
}

/// Reads this range of a source, and passes on its parts in order.
fn read(
    source: &dyn Source,
    mut range: Range<u64>,
    mut on_part: impl FnMut(&[u8]),
) -> io::Result<()> {
    let mut part = vec![0; PART_BYTES.min(range.end - range.start) as usize];
    while !range.is_empty() {
        let length = (range.end - range.start).min(PART_BYTES);
        let part = &mut part[..length as usize];
        source.read_at(range.start, part)?;
        on_part(part);
        range.start += length;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fec::{FecScheme, block_digest};
    use bytes::Bytes;

    #[test]
    fn digests_are_those_of_the_file_and_its_blocks() {
        let content = Bytes::from(
            (0..3_000_003_u32)
                .map(|byte| (byte % 251) as u8)
                .collect::<Vec<_>>(),
        );
        let oti = Oti::choose(FecScheme::RaptorQ, content.len() as u64, 1_000, 300).unwrap();
        let digests = Digests::of(&content, &oti, true, None).unwrap();
        assert_eq!(digests.md5, Some(Md5::digest(&content).into()));
        assert_eq!(digests.sha256, <[u8; 32]>::from(Sha256::digest(&content)));
        let blocks = (0..oti.blocks()).map(|sbn| {
            let range = oti.block_range(sbn);
            block_digest(&content[range.start as usize..range.end as usize])
        });
        assert_eq!(digests.blocks, blocks.collect::<Vec<_>>());
    }
}
