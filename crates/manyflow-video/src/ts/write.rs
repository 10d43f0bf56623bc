//! Packets of MPEG-TS with the streams of one program.

use mpeg2ts::es::{StreamId, StreamType};
use mpeg2ts::pes::PesHeader;
use mpeg2ts::time::{ClockReference, Timestamp};
use mpeg2ts::ts::payload::{Bytes, Pat, Pes, Pmt};
use mpeg2ts::ts::{
    AdaptationField, ContinuityCounter, Descriptor, EsInfo, Pid, ProgramAssociation, TsHeader,
    TsPacket, TsPacketWriter, TsPayload, VersionNumber, WriteTsPacket,
};

use super::TIME_RANGE;
use crate::unit::{Item, StreamEntry};

/// The packet identifiers of the program map and of the first stream.
const PID_MAP: u16 = 0x1000;
const PID_FIRST: u16 = 0x100;
/// The time by which the program's clock is behind the first decoding time: the time that a
/// receiver of MPEG-TS has for a picture's bytes.
const CLOCK_DELAY_TICKS: i64 = 9_000;
/// The bytes behind a packet's header, those of an adaptation field with a clock, and those of a
/// PES header with both times.
const PAYLOAD_BYTES: usize = 184;
const CLOCK_BYTES: usize = 8;
const PES_HEADER_BYTES: usize = 19;
/// The bytes that a PES length counts beside its data.
const PES_FIELD_BYTES: usize = 13;

/// Writes packets of MPEG-TS.
#[derive(Debug, Default)]
pub(crate) struct TsWriter {
    /// One for the association, one for the map, and one for each stream.
    counters: Vec<ContinuityCounter>,
}

impl TsWriter {
    /// Writes the tables that describe the streams. Fails if a stream cannot be described.
    pub(crate) fn write_tables(
        &mut self,
        streams: &[StreamEntry],
        out: &mut Vec<u8>,
    ) -> mpeg2ts::Result<()> {
        let version_number = VersionNumber::new();
        let association = Pat {
            transport_stream_id: 1,
            version_number,
            table: vec![ProgramAssociation {
                program_num: 1,
                program_map_pid: Pid::new(PID_MAP)?,
            }],
        };
        let map = Pmt {
            program_num: 1,
            pcr_pid: Some(Pid::new(PID_FIRST)?),
            version_number,
            program_info: Vec::new(),
            es_info: (0..)
                .zip(streams)
                .map(describe)
                .collect::<mpeg2ts::Result<_>>()?,
        };
        let association = TsPayload::Pat(association);
        self.write(0, Pid::new(Pid::PAT)?, None, association, out)?;
        self.write(1, Pid::new(PID_MAP)?, None, TsPayload::Pmt(map), out)
    }

    /// Writes a packet of a stream. A key picture begins with its parameter sets.
    pub(crate) fn write_item(
        &mut self,
        item: &Item,
        id: u8,
        is_key: bool,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> mpeg2ts::Result<()> {
        let is_video = item.stream == 0;
        let pid = Pid::new(PID_FIRST + u16::from(item.stream))?;
        let length = bytes.len() + PES_FIELD_BYTES;
        let header = PesHeader {
            stream_id: StreamId::new(id),
            priority: false,
            data_alignment_indicator: true,
            copyright: false,
            original_or_copy: false,
            pts: Some(time(item.pts)?),
            dts: Some(time(item.dts)?),
            escr: None,
        };
        let clock = is_video.then(|| clock(item, is_key)).transpose()?;
        let room = PAYLOAD_BYTES - PES_HEADER_BYTES - if is_video { CLOCK_BYTES } else { 0 };
        let (first, rest) = bytes.split_at(room.min(bytes.len()));
        let start = TsPayload::PesStart(Pes {
            header,
            // Video may have no length.
            pes_packet_len: if is_video {
                0
            } else {
                u16::try_from(length).unwrap_or(0)
            },
            data: Bytes::new(first)?,
        });
        let counter = 2 + usize::from(item.stream);
        self.write(counter, pid, clock, start, out)?;
        for part in rest.chunks(PAYLOAD_BYTES) {
            let part = TsPayload::PesContinuation(Bytes::new(part)?);
            self.write(counter, pid, None, part, out)?;
        }
        Ok(())
    }

    fn write(
        &mut self,
        counter: usize,
        pid: Pid,
        adaptation_field: Option<AdaptationField>,
        payload: TsPayload,
        out: &mut Vec<u8>,
    ) -> mpeg2ts::Result<()> {
        let needed = self.counters.len().max(counter + 1);
        self.counters.resize(needed, ContinuityCounter::new());
        let continuity_counter = self.counters[counter];
        self.counters[counter].increment();
        let packet = TsPacket {
            header: TsHeader {
                transport_error_indicator: false,
                transport_priority: false,
                pid,
                transport_scrambling_control: mpeg2ts::ts::TransportScramblingControl::NotScrambled,
                continuity_counter,
            },
            adaptation_field,
            payload: Some(payload),
        };
        TsPacketWriter::new(out).write_ts_packet(&packet)
    }
}

fn describe((number, stream): (u16, &StreamEntry)) -> mpeg2ts::Result<EsInfo> {
    let mut descriptors = Vec::new();
    let mut rest = &stream.descriptors[..];
    while let [tag, length, behind @ ..] = rest {
        let (data, behind) = behind.split_at(usize::from(*length).min(behind.len()));
        descriptors.push(Descriptor {
            tag: *tag,
            data: data.to_vec(),
        });
        rest = behind;
    }
    Ok(EsInfo {
        stream_type: StreamType::from_u8(stream.kind)?,
        elementary_pid: Pid::new(PID_FIRST + number)?,
        descriptors,
    })
}

fn time(ticks: i64) -> mpeg2ts::Result<Timestamp> {
    Timestamp::new(ticks.rem_euclid(TIME_RANGE) as u64)
}

fn clock(item: &Item, is_key: bool) -> mpeg2ts::Result<AdaptationField> {
    let clock = ClockReference::from(time(item.dts - CLOCK_DELAY_TICKS)?);
    Ok(AdaptationField {
        discontinuity_indicator: false,
        random_access_indicator: is_key,
        es_priority_indicator: false,
        pcr: Some(clock),
        opcr: None,
        splice_countdown: None,
        transport_private_data: Vec::new(),
        extension: None,
    })
}
