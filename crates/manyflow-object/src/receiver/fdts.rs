//! Reassembles FDT Instances: packets of TOI 0, distinguished by their FDT Instance ID.

use std::collections::{BTreeMap, VecDeque};

use super::assembly::{Assembly, Taken};
use super::oti_of;
use crate::alc::{FdtHeader, Packet, Symbol};
use crate::error::{OtiError, ReceiveError};
use crate::fec::Oti;

/// Maximum number of FDT Instances under reassembly. A session needs one, or two while the table
/// changes.
const ASSEMBLIES_MAX: usize = 4;
/// Maximum number of finished FDT Instances that are remembered, so that their repetitions are not
/// reassembled.
const DONE_MAX: usize = 1_024;
/// In FLUTE version 1 (RFC 3926) the FDT packets and the attributes that we read are the same.
const VERSIONS: std::ops::RangeInclusive<u8> = 1..=FdtHeader::VERSION;

pub(super) struct FdtAssemblies {
    length_max: u64,
    under_way: BTreeMap<u32, Assembly>,
    /// IDs of the instances that are done, the newest first.
    done: VecDeque<u32>,
    bytes: u64,
}

impl FdtAssemblies {
    pub(super) fn new(length_max: u64) -> Self {
        FdtAssemblies {
            length_max,
            under_way: BTreeMap::new(),
            done: VecDeque::new(),
            bytes: 0,
        }
    }

    /// Memory for the symbols in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes a packet of the FDT. Returns the document and its FDT Instance ID when the last symbol
    /// has arrived.
    pub(super) fn take(
        &mut self,
        packet: &Packet<'_>,
        symbol: Symbol<'_>,
        memory_left: u64,
    ) -> Result<Option<(u32, Vec<u8>)>, ReceiveError> {
        let Some(FdtHeader { instance, .. }) =
            packet.fdt.filter(|fdt| VERSIONS.contains(&fdt.version))
        else {
            return Err(ReceiveError::FdtHeader(packet.fdt.map(|fdt| fdt.version)));
        };
        if packet.content_encoding != 0 {
            return Err(ReceiveError::FdtEncoding(packet.content_encoding));
        }
        if self.done.contains(&instance) {
            return Ok(None);
        }
        let assembly = self.assembly(instance, oti_of(packet)?)?;
        let before = assembly.bytes();
        let taken = assembly.take(symbol.payload_id, symbol.data, memory_left);
        let after = assembly.bytes();
        self.bytes = self.bytes - before + after;
        let document = (taken? == Taken::Complete)
            .then(|| self.remove(instance))
            .flatten();
        Ok(document.map(|assembly| (instance, assembly.into_content())))
    }

    /// Records that the FDT Instance is known: one ID means one document (RFC 6726 section 3.4.1).
    pub(super) fn note_done(&mut self, instance: u32) {
        self.done.truncate(DONE_MAX - 1);
        self.done.push_front(instance);
    }

    fn assembly(
        &mut self,
        instance: u32,
        in_packet: Option<Oti>,
    ) -> Result<&mut Assembly, ReceiveError> {
        // A forged packet may have come first. When the parameters change, the instance starts
        // over, so the forger delays it only for as long as it keeps sending.
        let changed = |assembly: &Assembly| assembly.check_oti(in_packet).is_err();
        if self.under_way.get(&instance).is_some_and(changed) {
            self.remove(instance);
        }
        if !self.under_way.contains_key(&instance) {
            let oti = in_packet.ok_or(OtiError::Missing("FDT's parameters (EXT_FTI)"))?;
            let (length, limit) = (oti.transfer_length(), self.length_max);
            if length > limit {
                return Err(ReceiveError::FdtLength { length, limit });
            }
            if let Some(&oldest) = self
                .under_way
                .keys()
                .next()
                .filter(|_| self.under_way.len() == ASSEMBLIES_MAX)
            {
                self.remove(oldest);
            }
            self.under_way.insert(instance, Assembly::new(oti));
        }
        Ok(self
            .under_way
            .get_mut(&instance)
            .expect("it was there or was just inserted"))
    }

    fn remove(&mut self, instance: u32) -> Option<Assembly> {
        let assembly = self.under_way.remove(&instance)?;
        self.bytes -= assembly.bytes();
        Some(assembly)
    }
}
