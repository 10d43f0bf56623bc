//! Packets of the streams of a program, from packets of MPEG-TS.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read};

use mpeg2ts::time::Timestamp;
use mpeg2ts::ts::payload::{Pes, Pmt};
use mpeg2ts::ts::{Pid, ReadTsPacket, TsPacketReader, TsPayload};

use super::{PACKET_BYTES, SYNC_BYTE, TIME_RANGE};
use crate::VideoError;
use crate::annexb::Stamp;
use crate::splitter::{KIND_H264, KIND_HEVC};
use crate::unit::StreamEntry;

/// The bytes within which a program map has to name a stream of video. It comes several times per
/// second.
const TABLES_BYTES_MAX: usize = 8 << 20;
/// The longest packet of a stream in bytes.
const PES_BYTES_MAX: usize = 32 << 20;
/// Optional fields of a packet's header before its data, as its length counts them.
const PES_FIXED_BYTES: usize = 3;
const TIME_BYTES: usize = 5;

/// A packet of a stream (PES).
pub(crate) struct PesPacket {
    /// The number of the stream.
    pub(crate) stream: u8,
    /// Its times, if it has them.
    pub(crate) stamp: Option<Stamp>,
    pub(crate) bytes: Vec<u8>,
}

/// Reads MPEG-TS. It skips packets of other programs, and bytes between packets.
pub(crate) struct TsReader {
    packets: TsPacketReader<Feed>,
    /// Bytes that are no whole packet yet.
    rest: Vec<u8>,
    /// The streams of the first program with video, the video first.
    streams: Vec<StreamEntry>,
    numbers: BTreeMap<Pid, u8>,
    /// The packets that have begun, by number.
    begun: BTreeMap<u8, Begun>,
    ready: VecDeque<PesPacket>,
    /// The last time, without wrapping around.
    last_time: Option<i64>,
    read: usize,
    error: Option<String>,
}

struct Begun {
    packet: PesPacket,
    /// The length of its data, if it is announced.
    length: Option<usize>,
}

/// Gives the reader of `mpeg2ts` one packet at a time: an error costs this packet.
#[derive(Default)]
struct Feed(RefCell<VecDeque<u8>>);

impl Read for Feed {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.get_mut().read(into)
    }
}

impl TsReader {
    pub(crate) fn new() -> TsReader {
        TsReader {
            packets: TsPacketReader::new(Feed::default()),
            rest: Vec::new(),
            streams: Vec::new(),
            numbers: BTreeMap::new(),
            begun: BTreeMap::new(),
            ready: VecDeque::new(),
            last_time: None,
            read: 0,
            error: None,
        }
    }

    /// Takes bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), VideoError> {
        let mut rest = std::mem::take(&mut self.rest);
        rest.extend_from_slice(bytes);
        let mut unread = &rest[..];
        while unread.len() >= PACKET_BYTES {
            if unread[0] != SYNC_BYTE {
                unread = &unread[1..];
                continue;
            }
            let (packet, behind) = unread.split_at(PACKET_BYTES);
            self.read_packet(packet)?;
            unread = behind;
        }
        self.rest = unread.to_vec();
        self.read = self.read.saturating_add(bytes.len());
        match self.streams.is_empty() && self.read > TABLES_BYTES_MAX {
            true => Err(self.no_video()),
            false => Ok(()),
        }
    }

    /// Ends all packets.
    pub(crate) fn finish(&mut self) {
        let begun = std::mem::take(&mut self.begun);
        self.ready
            .extend(begun.into_values().map(|begun| begun.packet));
    }

    pub(crate) fn poll_packet(&mut self) -> Option<PesPacket> {
        self.ready.pop_front()
    }

    pub(crate) fn streams(&self) -> &[StreamEntry] {
        &self.streams
    }

    /// The error of a stream that has no video.
    pub(crate) fn no_video(&self) -> VideoError {
        let reason = self.error.as_ref().map(|error| format!(" ({error})"));
        VideoError::NoVideo {
            bytes: self.read,
            reason: reason.unwrap_or_default(),
        }
    }

    fn read_packet(&mut self, packet: &[u8]) -> Result<(), VideoError> {
        let mut feed = self.packets.stream().0.borrow_mut();
        feed.clear();
        feed.extend(packet);
        drop(feed);
        let packet = match self.packets.read_ts_packet() {
            Ok(Some(packet)) => packet,
            Ok(None) => return Ok(()),
            Err(error) => {
                // Packets before the first tables are usual.
                self.error = Some(error.reason);
                return Ok(());
            }
        };
        let number = self.numbers.get(&packet.header.pid).copied();
        match (packet.payload, number) {
            (Some(TsPayload::Pmt(map)), _) => self.take_map(&map),
            (Some(TsPayload::PesStart(pes)), Some(number)) => self.begin(number, pes)?,
            (Some(TsPayload::PesContinuation(bytes)), Some(number)) => {
                self.append(number, &bytes)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Takes the streams of the first program that has video.
    fn take_map(&mut self, map: &Pmt) {
        let is_video = |kind: u8| matches!(kind, KIND_H264 | KIND_HEVC);
        let kinds = || map.es_info.iter().map(|info| info.stream_type as u8);
        let Some(video) = kinds().position(is_video) else {
            return;
        };
        if !self.streams.is_empty() {
            return;
        }
        let others = (0..map.es_info.len()).filter(|&at| at != video);
        let others = others.filter(|&at| is_audio(map.es_info[at].stream_type as u8));
        for at in [video].into_iter().chain(others) {
            let info = &map.es_info[at];
            let number = self.streams.len() as u8;
            self.numbers.insert(info.elementary_pid, number);
            let mut descriptors = Vec::new();
            for descriptor in &info.descriptors {
                descriptors.extend([descriptor.tag, descriptor.data.len() as u8]);
                descriptors.extend_from_slice(&descriptor.data);
            }
            self.streams.push(StreamEntry {
                kind: info.stream_type as u8,
                // The first packet names it.
                id: 0,
                descriptors,
            });
        }
    }

    fn begin(&mut self, number: u8, pes: Pes) -> Result<(), VideoError> {
        self.end(number);
        let header = &pes.header;
        if let Some(stream) = self.streams.get_mut(usize::from(number)) {
            stream.id = header.stream_id.as_u8();
        }
        let times = [header.pts, header.dts].into_iter().flatten().count();
        let fields = PES_FIXED_BYTES + times * TIME_BYTES;
        let length = usize::from(pes.pes_packet_len).checked_sub(fields);
        let stamp = header.pts.map(|pts| {
            let dts = self.unwrap(header.dts.unwrap_or(pts));
            let pts = dts + wrapped(pts.as_u64() as i64 - dts);
            Stamp { pts, dts }
        });
        let packet = PesPacket {
            stream: number,
            stamp,
            bytes: Vec::new(),
        };
        self.begun.insert(number, Begun { packet, length });
        self.append(number, &pes.data)
    }

    fn append(&mut self, number: u8, bytes: &[u8]) -> Result<(), VideoError> {
        let Some(begun) = self.begun.get_mut(&number) else {
            return Ok(());
        };
        begun.packet.bytes.extend_from_slice(bytes);
        let length = begun.packet.bytes.len();
        if length > PES_BYTES_MAX {
            return Err(VideoError::TooLong(PES_BYTES_MAX));
        }
        if begun.length.is_some_and(|announced| announced <= length) {
            self.end(number);
        }
        Ok(())
    }

    fn end(&mut self, number: u8) {
        if let Some(begun) = self.begun.remove(&number) {
            self.ready.push_back(begun.packet);
        }
    }

    /// Returns a time that does not wrap around.
    fn unwrap(&mut self, time: Timestamp) -> i64 {
        let time = time.as_u64() as i64;
        let time = match self.last_time {
            Some(last) => last + wrapped(time - last),
            None => time,
        };
        self.last_time = Some(time);
        time
    }
}

/// The shortest distance that a difference of two times stands for.
fn wrapped(difference: i64) -> i64 {
    (difference + TIME_RANGE / 2).rem_euclid(TIME_RANGE) - TIME_RANGE / 2
}

/// Whether a stream type is audio: MPEG audio, AAC, private data (Opus, AC-3) or Dolby and DTS.
fn is_audio(kind: u8) -> bool {
    matches!(kind, 0x03 | 0x04 | 0x06 | 0x0f | 0x11 | 0x81..=0x87)
}
