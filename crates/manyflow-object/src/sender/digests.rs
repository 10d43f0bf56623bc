//! The digests of a file, computed in one pass.

use std::io;

use md5::{Digest, Md5};
use sha2::Sha256;

use crate::fec::{BlockDigest, Oti, truncate};
use crate::source::Source;

/// The length of the parts in which a file is read, in bytes.
const PART_BYTES: u64 = 1 << 18;

pub(super) struct Digests {
    pub(super) md5: Option<[u8; 16]>,
    pub(super) sha256: [u8; 32],
    /// The digests of the source blocks, in order.
    pub(super) blocks: Vec<BlockDigest>,
}

impl Digests {
    /// Reads all of `source`, which has the parameters `oti`.
    pub(super) fn of(source: &dyn Source, oti: &Oti, with_md5: bool) -> io::Result<Digests> {
        let (mut md5, mut sha256) = (with_md5.then(Md5::new), Sha256::new());
        let mut part = vec![0; PART_BYTES.min(oti.transfer_length()) as usize];
        let mut blocks = Vec::with_capacity(oti.blocks() as usize);
        for sbn in 0..oti.blocks() {
            let mut range = oti.block_range(sbn);
            let mut block = Sha256::new();
            while !range.is_empty() {
                let length = (range.end - range.start).min(PART_BYTES);
                let part = &mut part[..length as usize];
                source.read_at(range.start, part)?;
                if let Some(md5) = &mut md5 {
                    md5.update(&*part);
                }
                sha256.update(&*part);
                block.update(&*part);
                range.start += length;
            }
            blocks.push(truncate(block));
        }
        Ok(Digests {
            md5: md5.map(|md5| md5.finalize().into()),
            sha256: sha256.finalize().into(),
            blocks,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fec::{FecScheme, block_digest};
    use bytes::Bytes;

    #[test]
    fn digests_are_those_of_the_file_and_its_blocks() {
        let content = Bytes::from(
            (0..1_000_003_u32)
                .map(|byte| (byte % 251) as u8)
                .collect::<Vec<_>>(),
        );
        let oti = Oti::choose(FecScheme::RaptorQ, content.len() as u64, 1_000, 300).unwrap();
        let digests = Digests::of(&content, &oti, true).unwrap();
        assert_eq!(digests.md5, Some(Md5::digest(&content).into()));
        assert_eq!(digests.sha256, <[u8; 32]>::from(Sha256::digest(&content)));
        let blocks = (0..oti.blocks()).map(|sbn| {
            let range = oti.block_range(sbn);
            block_digest(&content[range.start as usize..range.end as usize])
        });
        assert_eq!(digests.blocks, blocks.collect::<Vec<_>>());
    }
}
