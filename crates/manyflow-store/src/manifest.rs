//! The manifest of a stored file: its chunks, and the members that hold them.
//!
//! ```text
//!   byte 0    4         12         16     24            28       60      61       62
//!   | "MFS2" | version | revision | size | chunk bytes | digest | flags | copies | pack offset u32 |
//!   | lengths: name u16, metadata u16, earlier versions u8, members u16 | name | metadata |
//!   | earlier versions: version u64, size u64, SHA-256 of the manifest |
//!   | members: length u8, name | chunks: SHA-256, copies u8, place of each member u16 |
//!   | SHA-256 of all bytes before |
//!
//!   flags   | 1 removed, 2 packed, 4 composite digest |
//! ```
//!
//! Integers are in network order. The number of chunks follows from the size. Decoding is strict: a
//! manifest has one encoding for each order of its members.

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::query::take;
use crate::wire::STORED_BYTES_MAX;
use crate::{Hash, MemberName, RANKS};

const MAGIC: &[u8; 4] = b"MFS2";
const REMOVED: u8 = 1;
const PACKED: u8 = 2;
const COMPOSITE: u8 = 4;
const DIGEST_BYTES: usize = 32;
/// The most chunks of a file.
const CHUNKS_MAX: u64 = 65_535;
/// The length of the longest name of a file in bytes.
pub const NAME_BYTES_MAX: usize = 1024;
/// The length of the longest metadata of a file in bytes.
pub const METADATA_BYTES_MAX: usize = 8 << 10;
/// The most earlier versions that a manifest lists.
pub const EARLIER_MAX: usize = 64;

/// The manifest of a stored file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The name of the file: 1 to [`NAME_BYTES_MAX`] bytes without control characters.
    pub name: String,
    /// The manifest with the highest version of a name is the valid one. Of two with the same
    /// version, it is the one with the higher revision, then the one with the larger digest.
    pub version: u64,
    /// The number of times that a repair has rewritten this version, to list the members that have
    /// its chunks since then.
    pub revision: u32,
    /// The length of the file in bytes.
    pub size: u64,
    /// The length of each chunk but the last in bytes: 1 to [`STORED_BYTES_MAX`].
    pub chunk_bytes: u32,
    /// The digest of the whole file or, if `is_composite`, of the digests of its chunks in order.
    pub digest: Hash,
    /// Whether `digest` was made of the chunks' digests: the file was put together from parts.
    pub is_composite: bool,
    /// Whether the name was removed. Members that were away learn of the removal from it.
    pub is_removed: bool,
    /// The place of the file's first byte in its only chunk, which has bytes of other files, too.
    pub pack_offset: Option<u32>,
    /// The number of members that shall have each chunk and the manifest: 1 to [`RANKS`].
    pub copies: u8,
    /// Bytes of the application, at most [`METADATA_BYTES_MAX`]. The store does not read them.
    pub metadata: Bytes,
    /// Earlier versions that can still be read, the newest first; at most [`EARLIER_MAX`].
    pub earlier: Vec<Earlier>,
    /// The chunks in order; their number is `size / chunk_bytes`, rounded up.
    pub chunks: Vec<ChunkEntry>,
}

/// An earlier version of a file. Its manifest is stored as a chunk.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Earlier {
    /// The version.
    pub version: u64,
    /// The length of the file in bytes.
    pub size: u64,
    /// The digest of its manifest's bytes.
    pub manifest: Hash,
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
    /// Returns the manifest of an empty file, with one copy and version 0.
    pub fn empty(name: &str, chunk_bytes: u32) -> Manifest {
        Manifest {
            name: name.to_owned(),
            version: 0,
            revision: 0,
            size: 0,
            chunk_bytes,
            digest: Hash::of(b""),
            is_composite: false,
            is_removed: false,
            pack_offset: None,
            copies: 1,
            metadata: Bytes::new(),
            earlier: Vec::new(),
            chunks: Vec::new(),
        }
    }

    /// Returns the entry of this version in the list of earlier versions of a newer one, with the
    /// bytes to store as a chunk. Those bytes list no further versions.
    ///
    /// # Errors
    /// As [`encode`](Manifest::encode).
    pub fn as_earlier(&self) -> Result<(Earlier, Bytes), ManifestError> {
        let alone = Manifest {
            earlier: Vec::new(),
            ..self.clone()
        };
        let bytes = alone.encode()?;
        let earlier = Earlier {
            version: self.version,
            size: self.size,
            manifest: Hash::of(&bytes),
        };
        Ok((earlier, bytes))
    }

    /// Returns the digest of chunks whose own digests these are.
    pub fn composite_digest(chunks: &[ChunkEntry]) -> Hash {
        let digests: Vec<u8> = chunks.iter().flat_map(|chunk| chunk.hash.0).collect();
        Hash::of(&digests)
    }

    /// Returns the digests that keep the file alive: those of its chunks, and of the manifests of
    /// its earlier versions.
    pub fn referenced(&self) -> impl Iterator<Item = Hash> {
        let chunks = self.chunks.iter().map(|chunk| chunk.hash);
        chunks.chain(self.earlier.iter().map(|earlier| earlier.manifest))
    }

    /// Returns the bytes of the file in a chunk, if the chunk has the right length.
    pub fn part_of(&self, chunk: u32, bytes: &Bytes) -> Option<Bytes> {
        let length = self.span(chunk).1 as usize;
        match self.pack_offset {
            None => (bytes.len() == length).then(|| bytes.clone()),
            Some(offset) => {
                let offset = offset as usize;
                (bytes.len() >= offset + length).then(|| bytes.slice(offset..offset + length))
            }
        }
    }

    /// Returns whether an encoded manifest takes the place of another one of the same name. Any
    /// manifest takes the place of bytes that are not a manifest.
    pub fn is_newer(bytes: &[u8], than: &[u8]) -> bool {
        let rank = |bytes: &[u8]| {
            let manifest = Manifest::decode(bytes).ok();
            manifest.map(|manifest| (manifest.version, manifest.revision, Hash::of(bytes)))
        };
        rank(bytes) > rank(than)
    }

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
        let others = 10_000 + METADATA_BYTES_MAX as u64 + 48 * EARLIER_MAX as u64;
        let bytes = chunks.saturating_mul(entry).saturating_add(others);
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
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        bytes.put_slice(MAGIC);
        bytes.put_u64(self.version);
        bytes.put_u32(self.revision);
        bytes.put_u64(self.size);
        bytes.put_u32(self.chunk_bytes);
        bytes.put_slice(&self.digest.0);
        bytes.put_u8(
            flag(self.is_removed, REMOVED)
                | flag(self.pack_offset.is_some(), PACKED)
                | flag(self.is_composite, COMPOSITE),
        );
        bytes.put_u8(self.copies);
        bytes.put_u32(self.pack_offset.unwrap_or(0));
        bytes.put_u16(self.name.len() as u16);
        bytes.put_u16(self.metadata.len() as u16);
        bytes.put_u8(self.earlier.len() as u8);
        bytes.put_u16(members);
        bytes.put_slice(self.name.as_bytes());
        bytes.put_slice(&self.metadata);
        for Earlier {
            version,
            size,
            manifest,
        } in &self.earlier
        {
            bytes.put_u64(*version);
            bytes.put_u64(*size);
            bytes.put_slice(&manifest.0);
        }
    }

    fn check(&self) -> Result<(), ManifestError> {
        let count = Manifest::chunk_count(self.size, self.chunk_bytes);
        let copies = |chunk: &ChunkEntry| chunk.members.len() <= usize::from(RANKS);
        let is_packed_well = self.pack_offset.is_none_or(|offset| {
            count == 1 && u64::from(offset) + self.size <= STORED_BYTES_MAX as u64
        });
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
            (
                (1..=RANKS).contains(&self.copies),
                "the number of copies is not 1 to 16",
            ),
            (
                is_packed_well,
                "a packed file does not lie in a single chunk",
            ),
            (
                !self.is_removed || self.size == 0,
                "a file that was removed has bytes",
            ),
            (
                self.metadata.len() <= METADATA_BYTES_MAX,
                "the metadata has more than 8192 bytes",
            ),
            (
                self.earlier.len() <= EARLIER_MAX,
                "there are more than 64 earlier versions",
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
    let body = &mut body;
    let mut magic = [0; 4];
    body.try_copy_to_slice(&mut magic)?;
    if magic != *MAGIC {
        return Ok(Err(ManifestError::Field(
            "it begins with other letters than MFS2",
        )));
    }
    let mut manifest = Manifest::empty("", 1);
    (manifest.version, manifest.revision) = (body.try_get_u64()?, body.try_get_u32()?);
    (manifest.size, manifest.chunk_bytes) = (body.try_get_u64()?, body.try_get_u32()?);
    body.try_copy_to_slice(&mut manifest.digest.0)?;
    let flags = body.try_get_u8()?;
    manifest.is_removed = flags & REMOVED != 0;
    manifest.is_composite = flags & COMPOSITE != 0;
    manifest.copies = body.try_get_u8()?;
    let offset = body.try_get_u32()?;
    manifest.pack_offset = (flags & PACKED != 0).then_some(offset);
    let (name, metadata) = (body.try_get_u16()?, body.try_get_u16()?);
    let (earlier, members) = (body.try_get_u8()?, body.try_get_u16()?);
    manifest.name = decode_text(body, usize::from(name))?;
    manifest.metadata = Bytes::copy_from_slice(take(body, usize::from(metadata))?);
    for _ in 0..earlier {
        manifest.earlier.push(decode_earlier(body)?);
    }
    let mut names = Vec::new();
    for _ in 0..members {
        let length = usize::from(body.try_get_u8()?);
        let Ok(member) = MemberName::new(&decode_text(body, length)?) else {
            return Ok(Err(ManifestError::Field("a member has no valid name")));
        };
        names.push(member);
    }
    while body.has_remaining() {
        let Some(chunk) = decode_chunk(body, &names)? else {
            return Ok(Err(ManifestError::Field("a chunk names an unknown member")));
        };
        manifest.chunks.push(chunk);
    }
    Ok(Ok(manifest))
}

fn decode_earlier(body: &mut &[u8]) -> Result<Earlier, bytes::TryGetError> {
    let (version, size) = (body.try_get_u64()?, body.try_get_u64()?);
    let mut manifest = Hash([0; 32]);
    body.try_copy_to_slice(&mut manifest.0)?;
    Ok(Earlier {
        version,
        size,
        manifest,
    })
}

/// Decodes UTF-8; other bytes give the empty text, which is no name.
fn decode_text(body: &mut &[u8], length: usize) -> Result<String, bytes::TryGetError> {
    let text = take(body, length)?;
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
        let earlier = |version: u64| Earlier {
            version,
            size: 9,
            manifest: Hash::of(&version.to_be_bytes()),
        };
        let chunk = |n: u64| ChunkEntry {
            hash: Hash::of(&n.to_be_bytes()),
            members: (n..n + copies as u64).map(member).collect(),
        };
        Manifest {
            version: 3,
            revision: size as u32,
            size,
            digest: Hash::of(b"file"),
            is_composite: size.is_multiple_of(3),
            copies: 1 + copies as u8,
            metadata: Bytes::from(vec![7; size as usize % 50]),
            earlier: (0..copies as u64).map(earlier).collect(),
            chunks: (0..count).map(chunk).collect(),
            ..Manifest::empty(name, chunk_bytes)
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
    fn a_packed_file_is_a_part_of_its_chunk() {
        let mut packed = manifest("file", 300, 1000, 1);
        packed.pack_offset = Some(200);
        let decoded = Manifest::decode(&packed.encode().unwrap()).unwrap();
        assert_eq!(decoded, packed);
        let chunk = Bytes::from((0..600u16).map(|n| n as u8).collect::<Vec<_>>());
        assert_eq!(packed.part_of(0, &chunk), Some(chunk.slice(200..500)));
        assert_eq!(packed.part_of(0, &chunk.slice(..499)), None);
        packed.pack_offset = Some(STORED_BYTES_MAX as u32 - 299);
        assert!(packed.encode().is_err(), "it reaches beyond any chunk");
    }

    #[test]
    fn an_earlier_version_is_stored_without_those_before_it() {
        let newest = manifest("file", 2500, 1000, 2);
        let (earlier, bytes) = newest.as_earlier().unwrap();
        assert_eq!(earlier.manifest, Hash::of(&bytes));
        let read = Manifest::decode(&bytes).unwrap();
        assert_eq!((read.version, read.earlier.len()), (3, 0));
        assert_eq!(read.chunks, newest.chunks);
        assert_eq!(newest.referenced().count(), 3 + 2);
    }

    #[test]
    fn a_manifest_that_is_too_long_says_what_to_do() {
        let error = manifest("file", 40_000_000, 1000, 2).encode().unwrap_err();
        assert!(error.to_string().contains("larger chunks"), "{error}");
        let nameless = manifest("\n", 1, 1, 1).encode();
        assert!(matches!(nameless, Err(ManifestError::Field(_))));
    }
}
