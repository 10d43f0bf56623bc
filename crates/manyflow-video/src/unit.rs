//! The index at the begin of a unit. Integers are in network order, times in ticks of
//! [`CLOCK_HZ`](crate::CLOCK_HZ).
//!
//! ```text
//!   0        4        8       9          13          21        22      26
//!   | "MFV1" | length | begin | duration | base time | streams | items | entries ...
//!
//!   stream: type (1), stream id (1), length of descriptors (2), descriptors
//!   item:   stream (1), flags (1), place (2), bytes (4), PTS and DTS (4 each, beyond base time)
//!   substitute, for each item that has one: length (1), bytes
//! ```
//!
//! `length` is that of the index. The entries are those of the streams, then those of the items.
//! The bytes of the items follow in the same order: audio, then the pictures by importance. `place`
//! is the place of a picture in decoding order.

/// The first bytes of a unit: a name, and the version of the format.
const MAGIC: [u8; 4] = *b"MFV1";
/// The bytes before the streams.
const FIXED_BYTES: usize = 26;
const ITEM_BYTES: u64 = 16;

/// The contents of a unit, and their places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    /// How the unit begins.
    pub begin: Begin,
    /// The time until the next unit, in ticks.
    pub duration: u32,
    /// The streams; the first one is the video.
    pub streams: Vec<StreamEntry>,
    /// The packets of audio and the pictures, in the order of their bytes.
    pub items: Vec<Item>,
    /// The pictures to write in place of items that are cut, for those with
    /// [`SUBSTITUTE`](Item::SUBSTITUTE), in the order of the items.
    pub substitutes: Vec<Vec<u8>>,
}

/// How a unit begins.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Begin {
    /// With a picture from which on everything decodes.
    Closed,
    /// With a picture from which on everything but leading pictures decodes.
    Open,
    /// In a group of pictures: needs all references of the units before.
    Continued,
}

/// A stream, as the program map of MPEG-TS describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamEntry {
    /// The stream type (ISO/IEC 13818-1, table 2-34): 0x1b for H.264, 0x24 for HEVC, and 0x06 with
    /// a registration descriptor for AV1.
    pub kind: u8,
    /// The stream id of its PES packets.
    pub id: u8,
    /// Descriptors of the stream, as the program map has them.
    pub descriptors: Vec<u8>,
}

/// A picture, or a packet of another stream.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The number of its stream in the index.
    pub stream: u8,
    /// [`REFERENCE`](Item::REFERENCE), [`LEADING`](Item::LEADING),
    /// [`SUBSTITUTE`](Item::SUBSTITUTE) and [`HIDDEN`](Item::HIDDEN).
    pub flags: u8,
    /// The place of a picture in decoding order, from 0 on.
    pub place: u16,
    /// Its length in bytes.
    pub bytes: u32,
    /// When it is shown, in ticks.
    pub pts: i64,
    /// When it is decoded, in ticks.
    pub dts: i64,
}

impl Item {
    /// Other pictures may need this one.
    pub const REFERENCE: u8 = 1;
    /// This picture may need one of the unit before.
    pub const LEADING: u8 = 2;
    /// The index has a substitute for this picture.
    pub const SUBSTITUTE: u8 = 4;
    /// This picture is not shown, or only by a later one.
    pub const HIDDEN: u8 = 8;

    /// Whether other pictures may need this one.
    pub fn is_reference(&self) -> bool {
        self.flags & Item::REFERENCE != 0
    }

    /// Whether this picture is not shown, or only by a later one.
    pub fn is_hidden(&self) -> bool {
        self.flags & Item::HIDDEN != 0
    }

    /// Whether this picture may need one of the unit before.
    pub fn is_leading(&self) -> bool {
        self.flags & Item::LEADING != 0
    }
}

/// The reason why a unit has no usable index.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// The prefix ends in the index.
    #[error("the unit was cut in its index of {0} bytes")]
    Cut(usize),
    /// The unit is not one of video.
    #[error("the unit has no index of video: is the stream sent with --video?")]
    Magic,
    /// The index contradicts itself.
    #[error("the index of the unit contradicts itself")]
    Invalid,
}

impl Index {
    /// Encodes the index.
    pub fn encode(&self) -> Vec<u8> {
        let base = self.items.first().map_or(0, |item| item.dts);
        let mut head = vec![0; FIXED_BYTES];
        for stream in &self.streams {
            head.extend([stream.kind, stream.id]);
            head.extend((stream.descriptors.len() as u16).to_be_bytes());
            head.extend_from_slice(&stream.descriptors);
        }
        for item in &self.items {
            head.extend([item.stream, item.flags]);
            head.extend(item.place.to_be_bytes());
            head.extend(item.bytes.to_be_bytes());
            for time in [item.pts, item.dts] {
                let beyond = (time - base).clamp(i32::MIN.into(), i32::MAX.into());
                head.extend((beyond as i32).to_be_bytes());
            }
        }
        for substitute in &self.substitutes {
            head.push(substitute.len() as u8);
            head.extend_from_slice(substitute);
        }
        let length = head.len() as u32;
        head[..4].copy_from_slice(&MAGIC);
        head[4..8].copy_from_slice(&length.to_be_bytes());
        head[8] = match self.begin {
            Begin::Closed => 0,
            Begin::Open => 1,
            Begin::Continued => 2,
        };
        head[9..13].copy_from_slice(&self.duration.to_be_bytes());
        head[13..21].copy_from_slice(&base.to_be_bytes());
        head[21] = self.streams.len() as u8;
        head[22..26].copy_from_slice(&(self.items.len() as u32).to_be_bytes());
        head
    }

    /// Decodes the index of a prefix of a unit. Returns it with its own length in bytes.
    ///
    /// # Errors
    /// If the prefix is no unit of video, or ends before the end of the index.
    pub fn decode(prefix: &[u8]) -> Result<(Index, usize), IndexError> {
        let known = prefix.len().min(MAGIC.len());
        if prefix[..known] != MAGIC[..known] {
            return Err(IndexError::Magic);
        }
        let fixed = prefix
            .get(..FIXED_BYTES)
            .ok_or(IndexError::Cut(FIXED_BYTES))?;
        let mut reader = Reader(&fixed[4..]);
        let length = reader.u32()? as usize;
        let begin = match reader.u8()? {
            0 => Begin::Closed,
            1 => Begin::Open,
            2 => Begin::Continued,
            _ => return Err(IndexError::Invalid),
        };
        let duration = reader.u32()?;
        let base = i64::from_be_bytes(reader.array()?);
        let (streams, items) = (reader.u8()?, reader.u32()?);
        let head = prefix.get(..length).ok_or(IndexError::Cut(length))?;
        let mut reader = Reader(head.get(FIXED_BYTES..).ok_or(IndexError::Invalid)?);
        let streams = (0..streams).map(|_| reader.stream());
        let streams = streams.collect::<Result<Vec<_>, _>>()?;
        // Before the items take memory.
        if (reader.0.len() as u64) < u64::from(items) * ITEM_BYTES {
            return Err(IndexError::Invalid);
        }
        let items = (0..items).map(|_| reader.item(base));
        let items = items.collect::<Result<Vec<_>, _>>()?;
        let replaced = items
            .iter()
            .filter(|item| item.flags & Item::SUBSTITUTE != 0);
        let substitutes = replaced.map(|_| reader.substitute());
        let index = Index {
            begin,
            duration,
            streams,
            substitutes: substitutes.collect::<Result<_, _>>()?,
            items,
        };
        if !reader.0.is_empty() {
            return Err(IndexError::Invalid);
        }
        Ok((index, length))
    }
}

/// Reads integers; every length is checked.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], IndexError> {
        let (first, rest) = self.0.split_first_chunk().ok_or(IndexError::Invalid)?;
        self.0 = rest;
        Ok(*first)
    }

    fn u8(&mut self) -> Result<u8, IndexError> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    fn u16(&mut self) -> Result<u16, IndexError> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    fn u32(&mut self) -> Result<u32, IndexError> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    fn stream(&mut self) -> Result<StreamEntry, IndexError> {
        let (kind, id, length) = (self.u8()?, self.u8()?, self.u16()?.into());
        let descriptors = self.bytes(length)?;
        Ok(StreamEntry {
            kind,
            id,
            descriptors,
        })
    }

    fn bytes(&mut self, length: usize) -> Result<Vec<u8>, IndexError> {
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(IndexError::Invalid)?;
        self.0 = rest;
        Ok(bytes.to_vec())
    }

    fn substitute(&mut self) -> Result<Vec<u8>, IndexError> {
        let length = self.u8()?.into();
        self.bytes(length)
    }

    fn item(&mut self, base: i64) -> Result<Item, IndexError> {
        let (stream, flags, place, bytes) = (self.u8()?, self.u8()?, self.u16()?, self.u32()?);
        let mut time = || {
            let beyond = i32::from_be_bytes(self.array()?);
            base.checked_add(beyond.into()).ok_or(IndexError::Invalid)
        };
        Ok(Item {
            stream,
            flags,
            place,
            bytes,
            pts: time()?,
            dts: time()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index() -> Index {
        let item = |place, bytes| Item {
            stream: 0,
            flags: Item::REFERENCE | if place == 1 { Item::SUBSTITUTE } else { 0 },
            place,
            bytes,
            pts: 1 << 34,
            dts: (1 << 34) - 3_000 + i64::from(place),
        };
        Index {
            begin: Begin::Open,
            duration: 90_000,
            streams: vec![StreamEntry {
                kind: 0x1b,
                id: 0xe0,
                descriptors: vec![5, 1, 7],
            }],
            items: vec![item(0, 10), item(1, 1 << 20)],
            substitutes: vec![vec![9; 20]],
        }
    }

    #[test]
    fn an_index_decodes_to_itself_from_any_prefix_that_has_it() {
        let mut unit = index().encode();
        let length = unit.len();
        for cut in 0..length {
            assert!(matches!(
                Index::decode(&unit[..cut]),
                Err(IndexError::Cut(_))
            ));
        }
        unit.extend([1, 2, 3]);
        assert_eq!(Index::decode(&unit), Ok((index(), length)));
    }

    #[test]
    fn an_index_that_is_none_is_refused() {
        assert_eq!(Index::decode(b"MFX"), Err(IndexError::Magic));
        let mut unit = index().encode();
        unit[25] = 9;
        assert_eq!(Index::decode(&unit), Err(IndexError::Invalid));
        unit[7] = 3;
        assert_eq!(Index::decode(&unit), Err(IndexError::Invalid));
    }
}
