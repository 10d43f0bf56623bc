//! Pictures from NAL units, and units from pictures.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::annexb::{Nal, Stamp};
use crate::codec::{Codec, Frame, Key, Part, Slice};
use crate::unit::{Begin, Index, Item, StreamEntry};
use crate::{CLOCK_HZ, VideoError, duration};

/// The time from which on a group of pictures is continued in another unit. A unit is sent in the
/// time of the next one, and a receiver waits for its end.
pub const UNIT_DURATION_MAX: Duration = Duration::from_secs(1);
/// The maximum length of a unit in bytes, which is that of streams.
const UNIT_BYTES_MAX: usize = 64 << 20;
/// The time of the first picture of a stream without times, in ticks: decoders have this time
/// before they show it.
const FIRST_TICKS: i64 = CLOCK_HZ;
/// The time of a picture in ticks, if nothing else is known: that of 30 per second.
const PICTURE_TICKS: i64 = CLOCK_HZ / 30;

/// A unit, and the time for which it lasts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VideoUnit {
    /// The index, the audio and the pictures, the most important ones first.
    pub bytes: Vec<u8>,
    /// The time until the next unit begins.
    pub duration: Duration,
    /// Whether the unit needs none before it.
    pub is_closed: bool,
}

/// A coded picture.
#[derive(Debug)]
struct Picture {
    bytes: Vec<u8>,
    stamp: Option<Stamp>,
    slice: Slice,
}

impl Picture {
    /// The place in the order of the display, which can be compared within a stream.
    fn display(&self) -> Option<i64> {
        self.stamp.map(|stamp| stamp.pts).or(self.slice.order)
    }
}

/// A packet of another stream than the video: audio.
#[derive(Debug)]
pub(crate) struct Extra {
    pub(crate) stream: u8,
    pub(crate) stamp: Stamp,
    pub(crate) bytes: Vec<u8>,
}

/// Makes units of the NAL units of one stream of video.
pub(crate) struct Gop {
    codec: Box<dyn Codec>,
    /// The rate that the user gives.
    fps: Option<f64>,
    /// The streams of the index; the first is the video.
    streams: Vec<StreamEntry>,
    /// The present parameter sets, and those that the next picture needs.
    sets: BTreeMap<u32, Vec<u8>>,
    new_sets: BTreeSet<u32>,
    /// NAL units that belong to the next picture.
    before: Vec<u8>,
    before_stamp: Option<Stamp>,
    picture: Option<Picture>,
    /// The pictures of the unit, in decoding order.
    pictures: Vec<Picture>,
    extras: Vec<Extra>,
    bytes: usize,
    last_stamp: Option<Stamp>,
    last_step: i64,
    /// Pictures in the units so far.
    counted: i64,
    units: VecDeque<VideoUnit>,
}

impl Gop {
    pub(crate) fn new(codec: Box<dyn Codec>, fps: Option<f64>, streams: Vec<StreamEntry>) -> Gop {
        Gop {
            codec,
            fps,
            streams,
            sets: BTreeMap::new(),
            new_sets: BTreeSet::new(),
            before: Vec::new(),
            before_stamp: None,
            picture: None,
            pictures: Vec::new(),
            extras: Vec::new(),
            bytes: 0,
            last_stamp: None,
            last_step: PICTURE_TICKS,
            counted: 0,
            units: VecDeque::new(),
        }
    }

    pub(crate) fn poll_unit(&mut self) -> Option<VideoUnit> {
        self.units.pop_front()
    }

    /// Adds a packet of another stream to the present unit.
    pub(crate) fn push_extra(&mut self, extra: Extra) -> Result<(), VideoError> {
        self.count_bytes(extra.bytes.len())?;
        self.extras.push(extra);
        Ok(())
    }

    /// Adds a NAL unit of the video.
    pub(crate) fn push_nal(&mut self, nal: Nal) -> Result<(), VideoError> {
        let part = match self.codec.read(&nal.bytes) {
            Ok(part) => part,
            // A stream that is joined in its middle has slices before its parameter sets.
            Err(_) if self.picture.is_none() && self.sets.is_empty() => return Ok(()),
            Err(error) => return Err(error),
        };
        self.count_bytes(nal.bytes.len())?;
        self.before_stamp = nal.stamp.or(self.before_stamp);
        match part {
            Part::Parameters(key) => {
                let mut set = self.codec.start_code().to_vec();
                set.extend(nal.bytes);
                if self.sets.insert(key, set.clone()) != Some(set) {
                    self.new_sets.insert(key);
                }
            }
            Part::Before => append(&mut self.before, self.codec.start_code(), &nal.bytes),
            Part::Slice(slice) => {
                if slice.begins_picture {
                    self.begin_picture(slice)?;
                }
                if let Some(picture) = &mut self.picture {
                    picture.bytes.append(&mut self.before);
                    append(&mut picture.bytes, self.codec.start_code(), &nal.bytes);
                }
            }
            Part::After => {
                if let Some(picture) = &mut self.picture {
                    append(&mut picture.bytes, self.codec.start_code(), &nal.bytes);
                }
            }
            Part::Unused => {}
        }
        Ok(())
    }

    /// Returns the time of a temporal unit of a stream without times, once its rate is known.
    pub(crate) fn stamp_of(&self, unit: i64) -> Option<Stamp> {
        let time = FIRST_TICKS + self.ticks(unit).ok()?;
        Some(Stamp {
            pts: time,
            dts: time,
        })
    }

    /// Ends the last picture and the last unit.
    pub(crate) fn finish(&mut self) -> Result<(), VideoError> {
        self.end_picture()?;
        self.end_unit(None)
    }

    fn count_bytes(&mut self, bytes: usize) -> Result<(), VideoError> {
        self.bytes += bytes;
        match self.bytes > UNIT_BYTES_MAX {
            true => Err(VideoError::TooLong(UNIT_BYTES_MAX)),
            false => Ok(()),
        }
    }

    /// Begins a picture, unless none before was a key picture.
    fn begin_picture(&mut self, slice: Slice) -> Result<(), VideoError> {
        self.end_picture()?;
        if self.pictures.is_empty() && self.counted == 0 && slice.key.is_none() {
            self.before.clear();
            self.extras.clear();
            self.before_stamp = None;
            self.bytes = 0;
            return Ok(());
        }
        let mut bytes = Vec::new();
        for (key, set) in &self.sets {
            if slice.key.is_some() || self.new_sets.contains(key) {
                bytes.extend_from_slice(set);
            }
        }
        self.new_sets.clear();
        let stamp = self.stamp();
        self.picture = Some(Picture {
            bytes,
            stamp,
            slice,
        });
        Ok(())
    }

    /// The times of the next picture: those of its packet. Further pictures of a packet have none,
    /// and follow at the distance of the last ones.
    fn stamp(&mut self) -> Option<Stamp> {
        let stamp = match (self.before_stamp.take(), self.last_stamp) {
            (Some(stamp), last) => {
                let step = last.map_or(0, |last| stamp.dts - last.dts);
                if (1..=CLOCK_HZ).contains(&step) {
                    self.last_step = step;
                }
                stamp
            }
            (None, Some(last)) => Stamp {
                pts: last.pts + self.last_step,
                dts: last.dts + self.last_step,
            },
            (None, None) => return None,
        };
        self.last_stamp = Some(stamp);
        Some(stamp)
    }

    fn end_picture(&mut self) -> Result<(), VideoError> {
        let Some(picture) = self.picture.take() else {
            return Ok(());
        };
        if picture.slice.key.is_some() || self.may_continue_with(&picture)? {
            self.end_unit(Some(&picture))?;
        }
        self.bytes += picture.bytes.len();
        self.pictures.push(picture);
        Ok(())
    }

    /// Whether the unit is long, and this picture may begin another one: all pictures of the unit
    /// are shown before it, and none behind it is.
    fn may_continue_with(&self, next: &Picture) -> Result<bool, VideoError> {
        let Some(first) = self.pictures.first() else {
            return Ok(false);
        };
        let ticks = match (first.stamp, next.stamp) {
            (Some(first), Some(next)) => next.dts - first.dts,
            _ => self.ticks(self.pictures.len() as i64)?,
        };
        let is_last = self
            .pictures
            .iter()
            .all(|picture| picture.display() < next.display());
        Ok(duration(ticks) >= UNIT_DURATION_MAX && next.slice.is_reference && is_last)
    }

    /// The time of `pictures` pictures of a stream without times.
    fn ticks(&self, pictures: i64) -> Result<i64, VideoError> {
        let fps = self.fps.or_else(|| self.codec.fps());
        let fps = fps.ok_or(VideoError::NoRate)?;
        Ok((pictures as f64 * CLOCK_HZ as f64 / fps).round() as i64)
    }

    /// Ends the unit before `next`, the first picture of the next one.
    fn end_unit(&mut self, next: Option<&Picture>) -> Result<(), VideoError> {
        if self.pictures.is_empty() {
            return Ok(());
        }
        let pictures = std::mem::take(&mut self.pictures);
        let extras = std::mem::take(&mut self.extras);
        self.bytes = 0;
        let stamps = self.stamps(&pictures)?;
        self.counted += pictures.len() as i64;
        let end = match (next.and_then(|next| next.stamp), stamps.last()) {
            (Some(next), _) => next.dts,
            (None, Some(last)) if pictures[0].stamp.is_some() => last.dts + self.last_step,
            _ => FIRST_TICKS + self.ticks(self.counted)?,
        };
        let begin = match pictures[0].slice.key {
            Some(Key::Closed) => Begin::Closed,
            Some(Key::Open) => Begin::Open,
            None => Begin::Continued,
        };
        let ticks = (end - stamps[0].dts).max(1);
        // The state of a decoder matters to a unit that needs it.
        let is_needed = next.is_some_and(|next| next.slice.key != Some(Key::Closed));
        if let (Some(descriptors), Some(video)) =
            (self.codec.descriptors(), self.streams.first_mut())
        {
            video.descriptors = descriptors;
        }
        let mut unit = Contents::new(ticks, begin, self.streams.clone());
        for extra in &extras {
            unit.push(extra.stream, 0, 0, extra.stamp, &extra.bytes);
        }
        for place in importance(&pictures) {
            let picture = &pictures[place];
            let mut flags = flags(picture, &pictures[0]);
            if let (Some(substitute), true) = (&picture.slice.substitute, is_needed)
                && substitute.len() <= usize::from(u8::MAX)
            {
                flags |= Item::SUBSTITUTE;
                unit.index.substitutes.push(substitute.clone());
            }
            unit.push(0, flags, place, stamps[place], &picture.bytes);
        }
        self.units.push_back(VideoUnit {
            bytes: unit.finish(),
            duration: duration(ticks),
            is_closed: begin == Begin::Closed,
        });
        Ok(())
    }

    /// The times of the pictures of a unit. Without times in the stream, pictures of a unit are
    /// shown at equal distances, in the order of their picture order counts.
    fn stamps(&self, pictures: &[Picture]) -> Result<Vec<Stamp>, VideoError> {
        if let Some(stamps) = pictures.iter().map(|picture| picture.stamp).collect() {
            return Ok(stamps);
        }
        let mut shown: Vec<usize> = (0..pictures.len()).collect();
        shown.sort_by_key(|&place| pictures[place].slice.order);
        let mut ranks = vec![0; pictures.len()];
        for (rank, place) in shown.into_iter().enumerate() {
            ranks[place] = rank as i64;
        }
        let reorder = i64::from(self.codec.reorder());
        let stamp = |(place, rank): (i64, i64)| {
            let dts = FIRST_TICKS + self.ticks(self.counted + place)?;
            let pts = FIRST_TICKS + self.ticks(self.counted + rank + reorder)?;
            Ok(Stamp {
                pts,
                dts: dts.min(pts),
            })
        };
        (0..).zip(ranks).map(stamp).collect()
    }
}

/// The bytes of a unit and its index.
struct Contents {
    index: Index,
    bytes: Vec<u8>,
}

impl Contents {
    fn new(ticks: i64, begin: Begin, streams: Vec<StreamEntry>) -> Contents {
        let index = Index {
            begin,
            duration: u32::try_from(ticks).unwrap_or(u32::MAX),
            streams,
            items: Vec::new(),
            substitutes: Vec::new(),
        };
        Contents {
            index,
            bytes: Vec::new(),
        }
    }

    fn push(&mut self, stream: u8, flags: u8, place: usize, stamp: Stamp, bytes: &[u8]) {
        self.index.items.push(Item {
            stream,
            flags,
            place: place as u16,
            bytes: bytes.len() as u32,
            pts: stamp.pts,
            dts: stamp.dts,
        });
        self.bytes.extend_from_slice(bytes);
    }

    fn finish(self) -> Vec<u8> {
        let mut unit = self.index.encode();
        unit.extend(self.bytes);
        unit
    }
}

fn append(bytes: &mut Vec<u8>, start_code: &[u8], nal: &[u8]) {
    bytes.extend_from_slice(start_code);
    bytes.extend_from_slice(nal);
}

fn flags(picture: &Picture, first: &Picture) -> u8 {
    let is_open = first.slice.key == Some(Key::Open);
    let is_before = is_open && picture.display() < first.display();
    let is_leading = picture.slice.is_leading.unwrap_or(is_before);
    let is_hidden = picture.slice.frame.as_ref().is_some_and(|it| it.is_hidden);
    let flags = [
        (Item::REFERENCE, picture.slice.is_reference),
        (Item::LEADING, is_leading),
        (Item::HIDDEN, is_hidden),
    ];
    let set = flags.into_iter().filter(|(_, is_set)| *is_set);
    set.fold(0, |flags, (flag, _)| flags | flag)
}

/// The order in which the pictures of a unit, here in decoding order, are sent.
fn importance(pictures: &[Picture]) -> Vec<usize> {
    let frames = pictures.iter().map(|picture| picture.slice.frame.as_ref());
    if let Some(frames) = frames.collect::<Option<Vec<_>>>() {
        let levels: Vec<u8> = pictures.iter().map(|picture| picture.slice.level).collect();
        return importance_by_needs(&frames, &levels);
    }
    let mut unneeded: BTreeMap<u8, u32> = BTreeMap::new();
    let rank = |(place, picture): (usize, &Picture)| {
        let slice = &picture.slice;
        if place == 0 || slice.is_reference {
            return (
                u8::from(place > 0) * slice.level,
                false,
                place as u32,
                place,
            );
        }
        // Reversed bits: every second picture comes after the others, every fourth before, and so
        // on.
        let rank = unneeded.entry(slice.level).or_default();
        *rank += 1;
        (slice.level, true, (*rank - 1).reverse_bits(), place)
    };
    let mut ranks: Vec<_> = pictures.iter().enumerate().map(rank).collect();
    ranks.sort_unstable();
    ranks.into_iter().map(|(.., place)| place).collect()
}

/// The same order for frames that name those which they need: of each temporal level, first the
/// frames on which the longest chains of others depend, and of equal ones every second one after
/// the others. A frame follows all that it needs, so that each prefix of the order decodes.
fn importance_by_needs(frames: &[&Frame], levels: &[u8]) -> Vec<usize> {
    let first = frames.first().map_or(0, |frame| frame.number);
    let needs = |place: usize| {
        let needs = frames[place].needs.iter();
        let places = needs.filter_map(|number| usize::try_from(number.checked_sub(first)?).ok());
        places.filter(move |needed| *needed < place)
    };
    // A level holds only if all that its frames need is on it or below.
    let mut levels = levels.to_vec();
    for place in 0..frames.len() {
        let needed = needs(place).map(|needed| levels[needed]).max();
        levels[place] = levels[place].max(needed.unwrap_or(0));
    }
    // The length of the longest chain of frames that depend on each.
    let mut chains = vec![0u32; frames.len()];
    for place in (0..frames.len()).rev() {
        for needed in needs(place) {
            chains[needed] = chains[needed].max(chains[place] + 1);
        }
    }
    // To show a hidden frame costs next to nothing, so this follows soon after it.
    for place in (0..frames.len()).filter(|place| frames[*place].is_repeat) {
        let shown = needs(place).map(|needed| chains[needed] - 1).max();
        chains[place] = chains[place].max(shown.unwrap_or(0));
    }
    let mut ranks: BTreeMap<(u8, u32), u32> = BTreeMap::new();
    let mut order: Vec<_> = (0..frames.len())
        .map(|place| {
            let rank = ranks.entry((levels[place], chains[place])).or_default();
            *rank += 1;
            let turn = (*rank - 1).reverse_bits();
            (
                place > 0,
                levels[place],
                Reverse(chains[place]),
                turn,
                place,
            )
        })
        .collect();
    order.sort_unstable();
    order.into_iter().map(|(.., place)| place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(needs: &[&[u64]], levels: &[u8]) -> Vec<usize> {
        let frame = |(number, needs): (u64, &&[u64])| Frame {
            number: number + 100,
            needs: needs.iter().map(|needed| needed + 100).collect(),
            is_hidden: false,
            is_repeat: **needs == [1],
        };
        let frames: Vec<Frame> = (0..).zip(needs).map(frame).collect();
        importance_by_needs(&frames.iter().collect::<Vec<_>>(), levels)
    }

    #[test]
    fn frames_follow_what_they_need_and_the_last_layers_come_last() {
        // A pyramid of nine: 0 and 8, then 4, then 2 and 6, then the odd ones, in decoding order.
        let needs: [&[u64]; 9] = [
            &[],
            &[0],
            &[0, 1],
            &[0, 2],
            &[0, 3],
            &[3, 2],
            &[2, 1],
            &[2, 6],
            &[6, 1],
        ];
        let order = order(&needs, &[0; 9]);
        for (at, place) in order.iter().enumerate() {
            for needed in needs[*place] {
                assert!(order[..at].contains(&(*needed as usize)), "{order:?}");
            }
        }
        assert_eq!(order[..3], [0, 1, 2]);
        // Frames 4, 5, 7 and 8 are needed by none.
        let mut last = order[5..].to_vec();
        last.sort_unstable();
        assert_eq!(last, [4, 5, 7, 8]);
    }

    #[test]
    fn temporal_levels_come_one_after_the_other_unless_they_lie() {
        // Levels 0, 2, 1, 2, 0, 2, 1, 2: L1T3, each frame of level 0 needs the one before.
        let needs: [&[u64]; 8] = [&[], &[0], &[0], &[2], &[0], &[4], &[4], &[6]];
        let levels = [0, 2, 1, 2, 0, 2, 1, 2];
        let sorted = order(&needs, &levels);
        let of_order: Vec<u8> = sorted.iter().map(|place| levels[*place]).collect();
        assert_eq!(of_order, [0, 0, 1, 1, 2, 2, 2, 2]);
        // The last frame of level 0 needs one of level 2, which therefore comes before it.
        let needs: [&[u64]; 3] = [&[], &[0], &[0, 1]];
        assert_eq!(order(&needs, &[0, 2, 0]), [0, 1, 2]);
    }

    #[test]
    fn a_frame_is_shown_soon_after_it_was_sent() {
        // 1 is hidden, 2 needs it, 3 needs 2, and 4 shows 1.
        let needs: [&[u64]; 5] = [&[], &[0], &[0, 1], &[0, 2], &[1]];
        assert_eq!(order(&needs, &[0; 5]), [0, 1, 2, 4, 3]);
    }
}
