//! The manifest of a stored file: its chunks, and the members that hold them.
//!
//! ```text
//!   byte 0    4         12     20            24            56
//!   | "MFS1" | version | size | chunk bytes | file SHA-256 | lengths: name u16, members u16 |
//!   | name | members: length u8, name | chunks: SHA-256, copies u8, place of each member u16 |
//!   | SHA-256 of all bytes before |
//! ```
//!
//! Integers are in network order. The number of chunks follows from the size. Decoding is strict: a
//! manifest has one encoding for each order of its members.

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::wire::STORED_BYTES_MAX;
use crate::{Hash, MemberName, RANKS};

const MAGIC: &[u8; 4] = b"MFS1";
const DIGEST_BYTES: usize = 32;
/// The most chunks of a file.
const CHUNKS_MAX: u64 = 65_535;
/// The length of the longest name of a file in bytes.
pub const NAME_BYTES_MAX: usize = 1024;

/// The manifest of a stored file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The name of the file: 1 to [`NAME_BYTES_MAX`] bytes without control characters.
    pub name: String,
    /// The manifest with the highest version of a name is the valid one. Of two with the same
    /// version, it is the one with the larger digest.
    pub version: u64,
    /// The length of the file in bytes.
    pub size: u64,
    /// The length of each chunk but the last in bytes: 1 to [`STORED_BYTES_MAX`].
    pub chunk_bytes: u32,
    /// The digest of the whole file.
    pub digest: Hash,
    /// The chunks in order; their number is `size / chunk_bytes`, rounded up.
    pub chunks: Vec<ChunkEntry>,
}

/// The entry of a chunk in a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkEntry {
    /// The digest of the chunk.
    pub hash: Hash,
    /// The members that stored the chunk when it was put, in the order of their ranks; at most
    /// [`RANKS`].
    pub members: Vec<MemberName>,
}

/// The reason why bytes are not a manifest, or a manifest cannot be stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// The bytes do not end with their digest, so they were changed or cut.
    #[error("the manifest's bytes do not match their digest; another copy may be sound")]
    Digest,
    /// A field has a value that no manifest has.
    #[error("the manifest is invalid: {0}")]
    Field(&'static str),
    /// The manifest has more bytes than can be stored.
    #[error(
        "the manifest takes {0} bytes, of at most {STORED_BYTES_MAX}; choose larger chunks, or split the file"
    )]
    Long(usize),
}

/// Returns whether a file can have this name in the store.
pub fn is_name(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.chars().any(char::is_control)
}

impl Manifest {
    /// Returns the number of chunks of a file.
    pub fn chunk_count(size: u64, chunk_bytes: u32) -> u64 {
        size.div_ceil(u64::from(chunk_bytes.max(1)))
    }

    /// Checks that the manifest of this many chunks can be stored, with any names of up to 128
    /// members.
    ///
    /// # Errors
    /// [`ManifestError::Long`] if it may be too long.
    pub fn check_room(chunks: u64, copies: u8) -> Result<(), ManifestError> {
        // Names of the file and of up to 128 members take at most 10,000 bytes.
        let entry = 33 + 2 * u64::from(copies);
        let bytes = chunks.saturating_mul(entry).saturating_add(10_000);
        match bytes <= STORED_BYTES_MAX as u64 && chunks <= CHUNKS_MAX {
            true => Ok(()),
            false => Err(ManifestError::Long(bytes as usize)),
        }
    }

    /// Returns the offset of a chunk in the file, and its length, both in bytes.
    pub fn span(&self, chunk: u32) -> (u64, u32) {
        let offset = u64::from(chunk) * u64::from(self.chunk_bytes);
        let left = self.size.saturating_sub(offset);
        (offset, left.min(u64::from(self.chunk_bytes)) as u32)
    }

    /// Encodes the manifest.
    ///
    /// # Errors
    /// If a field is outside its range, or the manifest is too long to be stored.
    pub fn encode(&self) -> Result<Bytes, ManifestError> {
        self.check()?;
        let mut places = BTreeMap::new();
        let mut members = Vec::new();
        for member in self.chunks.iter().flat_map(|chunk| &chunk.members) {
            places.entry(member).or_insert_with(|| {
                members.push(member);
                members.len() as u16 - 1
            });
        }
        let mut bytes = BytesMut::new();
        self.encode_head(&mut bytes, members.len() as u16);
        for member in members {
            bytes.put_u8(member.as_str().len() as u8);
            bytes.put_slice(member.as_str().as_bytes());
        }
        for ChunkEntry { hash, members } in &self.chunks {
            bytes.put_slice(&hash.0);
            bytes.put_u8(members.len() as u8);
            members
                .iter()
                .for_each(|member| bytes.put_u16(places[member]));
        }
        let digest = Hash::of(&bytes);
        bytes.put_slice(&digest.0);
        match bytes.len() {
            0..=STORED_BYTES_MAX => Ok(bytes.freeze()),
            length => Err(ManifestError::Long(length)),
        }
    }

    fn encode_head(&self, bytes: &mut BytesMut, members: u16) {
        bytes.put_slice(MAGIC);
        bytes.put_u64(self.version);
        bytes.put_u64(self.size);
        bytes.put_u32(self.chunk_bytes);
        bytes.put_slice(&self.digest.0);
        bytes.put_u16(self.name.len() as u16);
        bytes.put_u16(members);
        bytes.put_slice(self.name.as_bytes());
    }

    fn check(&self) -> Result<(), ManifestError> {
        let count = Manifest::chunk_count(self.size, self.chunk_bytes);
        let copies = |chunk: &ChunkEntry| chunk.members.len() <= usize::from(RANKS);
        let checks = [
            (
                is_name(&self.name),
                "the name must have 1 to 1024 bytes without control characters",
            ),
            (
                (1..=STORED_BYTES_MAX as u32).contains(&self.chunk_bytes),
                "the chunk's length is out of range",
            ),
            (
                count == self.chunks.len() as u64,
                "the number of chunks does not match the size",
            ),
            (count <= CHUNKS_MAX, "there are more than 65,535 chunks"),
            (
                self.chunks.iter().all(copies),
                "a chunk has more than 16 copies",
            ),
        ];
        let failed = checks.into_iter().find(|(holds, _)| !holds);
        failed.map_or(Ok(()), |(_, message)| Err(ManifestError::Field(message)))
    }

    /// Decodes a manifest.
    ///
    /// # Errors
    /// If the bytes are not the encoding of a manifest.
    pub fn decode(bytes: &[u8]) -> Result<Manifest, ManifestError> {
        let (body, digest) = bytes
            .split_last_chunk::<DIGEST_BYTES>()
            .ok_or(ManifestError::Digest)?;
        if Hash::of(body) != Hash(*digest) {
            return Err(ManifestError::Digest);
        }
        let manifest = decode_body(body)
            .map_err(|_| ManifestError::Field("it ends too early, or has more bytes"))??;
        manifest.check()?;
        // The only way to be sure that there is no other encoding, for few bytes.
        match manifest.encode()?[..] == *bytes {
            true => Ok(manifest),
            false => Err(ManifestError::Field("it has another encoding")),
        }
    }
}

/// Decodes the fields of a manifest. The outer error means a wrong length.
fn decode_body(mut body: &[u8]) -> Result<Result<Manifest, ManifestError>, bytes::TryGetError> {
    let mut magic = [0; 4];
    let mut digest = Hash([0; 32]);
    body.try_copy_to_slice(&mut magic)?;
    let (version, size) = (body.try_get_u64()?, body.try_get_u64()?);
    let chunk_bytes = body.try_get_u32()?;
    body.try_copy_to_slice(&mut digest.0)?;
    let (name_bytes, members) = (body.try_get_u16()?, body.try_get_u16()?);
    let name = decode_text(&mut body, usize::from(name_bytes))?;
    if magic != *MAGIC {
        return Ok(Err(ManifestError::Field(
            "it begins with other letters than MFS1",
        )));
    }
    let mut names = Vec::new();
    for _ in 0..members {
        let length = usize::from(body.try_get_u8()?);
        let Ok(member) = MemberName::new(&decode_text(&mut body, length)?) else {
            return Ok(Err(ManifestError::Field("a member has no valid name")));
        };
        names.push(member);
    }
    let mut chunks = Vec::new();
    while body.has_remaining() {
        let Some(chunk) = decode_chunk(&mut body, &names)? else {
            return Ok(Err(ManifestError::Field("a chunk names an unknown member")));
        };
        chunks.push(chunk);
    }
    Ok(Ok(Manifest {
        name,
        version,
        size,
        chunk_bytes,
        digest,
        chunks,
    }))
}

/// Decodes UTF-8; other bytes give the empty text, which is no name.
fn decode_text(body: &mut &[u8], length: usize) -> Result<String, bytes::TryGetError> {
    let (text, rest) = body.split_at_checked(length).ok_or(bytes::TryGetError {
        requested: length,
        available: body.len(),
    })?;
    *body = rest;
    Ok(core::str::from_utf8(text).unwrap_or_default().to_owned())
}

fn decode_chunk(
    body: &mut &[u8],
    names: &[MemberName],
) -> Result<Option<ChunkEntry>, bytes::TryGetError> {
    let mut hash = Hash([0; 32]);
    body.try_copy_to_slice(&mut hash.0)?;
    let mut members = Vec::new();
    for _ in 0..body.try_get_u8()? {
        let Some(member) = names.get(usize::from(body.try_get_u16()?)) else {
            return Ok(None);
        };
        members.push(member.clone());
    }
    Ok(Some(ChunkEntry { hash, members }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn manifest(name: &str, size: u64, chunk_bytes: u32, copies: usize) -> Manifest {
        let count = Manifest::chunk_count(size, chunk_bytes);
        let member = |n: u64| MemberName::new(&format!("m{}", n % 5)).unwrap();
        let chunk = |n: u64| ChunkEntry {
            hash: Hash::of(&n.to_be_bytes()),
            members: (n..n + copies as u64).map(member).collect(),
        };
        Manifest {
            name: name.to_owned(),
            version: 3,
            size,
            chunk_bytes,
            digest: Hash::of(b"file"),
            chunks: (0..count).map(chunk).collect(),
        }
    }

    proptest! {
        #[test]
        fn manifests_survive_encoding(
            name in "[a-zé/. ]{1,30}", size in 0..5000u64, chunk in 100..2000u32, copies in 0..5usize,
        ) {
            let manifest = manifest(&name, size, chunk, copies);
            prop_assert_eq!(Manifest::decode(&manifest.encode().unwrap()), Ok(manifest));
        }

        /// The digest is made valid, so that the fields are read.
        #[test]
        fn no_change_of_a_byte_breaks_the_decoder(place in 0..400usize, byte: u8, cut in 0..400usize) {
            let bytes = manifest("file", 2500, 1000, 2).encode().unwrap();
            let mut body = bytes[..bytes.len() - DIGEST_BYTES].to_vec();
            prop_assert_eq!(Manifest::decode(&body), Err(ManifestError::Digest));
            let place = place % body.len();
            body[place] = byte;
            body.truncate(cut.max(1));
            body.extend(Hash::of(&body).0);
            if let Ok(decoded) = Manifest::decode(&body) {
                prop_assert_eq!(&decoded.encode().unwrap()[..], &body[..]);
            }
        }
    }

    #[test]
    fn the_last_chunk_is_shorter_and_an_empty_file_has_none() {
        let manifest = manifest("file", 2500, 1000, 1);
        assert_eq!(
            [0, 1, 2].map(|n| manifest.span(n)),
            [(0, 1000), (1000, 1000), (2000, 500)]
        );
        assert_eq!(Manifest::chunk_count(0, 1000), 0);
    }

    #[test]
    fn a_manifest_that_is_too_long_says_what_to_do() {
        let error = manifest("file", 40_000_000, 1000, 2).encode().unwrap_err();
        assert!(error.to_string().contains("larger chunks"), "{error}");
        let nameless = manifest("\n", 1, 1, 1).encode();
        assert!(matches!(nameless, Err(ManifestError::Field(_))));
    }
}
