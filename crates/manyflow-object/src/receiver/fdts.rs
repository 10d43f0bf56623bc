//! Reassembles FDT Instances: packets of TOI 0, distinguished by their FDT Instance ID.

use std::collections::VecDeque;

use super::assembly::{Assembly, Taken};
use super::oti_of;
use crate::alc::{FdtHeader, Packet, Symbol};
use crate::error::{OtiError, ReceiveError};
use crate::fec::Oti;

/// Maximum number of FDT Instances under reassembly. A session needs one, or two while the table
/// changes; the others leave room for forged packets.
const ASSEMBLIES_MAX: usize = 16;
/// Maximum number of finished FDT Instances that are remembered, so that their repetitions are not
/// reassembled.
const DONE_MAX: usize = 1_024;
/// In FLUTE version 1 (RFC 3926) the FDT packets and the attributes that we read are the same.
const VERSIONS: std::ops::RangeInclusive<u8> = 1..=FdtHeader::VERSION;

pub(super) struct FdtAssemblies {
    length_max: u64,
    /// The instances under reassembly. The one that took a symbol last is at the back. Packets of
    /// one instance with different FEC parameters are assembled separately, because a forged packet
    /// may come first.
    under_way: VecDeque<(u32, Assembly)>,
    /// IDs of the instances that are done, the newest first.
    done: VecDeque<u32>,
}

impl FdtAssemblies {
    pub(super) fn new(length_max: u64) -> Self {
        FdtAssemblies {
            length_max,
            under_way: VecDeque::new(),
            done: VecDeque::new(),
        }
    }

    /// Memory for the symbols in bytes.
    pub(super) fn bytes(&self) -> u64 {
        let bytes = self.under_way.iter().map(|(_, assembly)| assembly.bytes());
        bytes.sum()
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
        let mut assembly = self.take_out(instance, oti_of(packet)?)?;
        let taken = assembly.take(symbol.payload_id, symbol.data, memory_left);
        if matches!(taken, Ok(Taken::Complete)) {
            return Ok(Some((instance, assembly.into_content())));
        }
        self.put_back(instance, assembly);
        taken.map(|_| None)
    }

    /// Records that the FDT Instance is known: one ID means one document (RFC 6726 section 3.4.1).
    pub(super) fn note_done(&mut self, instance: u32) {
        self.done.truncate(DONE_MAX - 1);
        self.done.push_front(instance);
        self.under_way.retain(|(other, _)| *other != instance);
    }

    /// Removes the assembly to which a packet belongs, or begins a new one.
    fn take_out(
        &mut self,
        instance: u32,
        in_packet: Option<Oti>,
    ) -> Result<Assembly, ReceiveError> {
        let fits = |(other, assembly): &(u32, Assembly)| {
            *other == instance && assembly.check_oti(in_packet).is_ok()
        };
        if let Some(place) = self.under_way.iter().position(fits)
            && let Some((_, assembly)) = self.under_way.remove(place)
        {
            return Ok(assembly);
        }
        let oti = in_packet.ok_or(OtiError::Missing("FDT's parameters (EXT_FTI)"))?;
        let (length, limit) = (oti.transfer_length(), self.length_max);
        if length > limit {
            return Err(ReceiveError::FdtLength { length, limit });
        }
        Ok(Assembly::new(oti))
    }

    /// Keeps an assembly that has just been used. If there are too many, the one that has not been
    /// used for the longest time is dropped.
    fn put_back(&mut self, instance: u32, assembly: Assembly) {
        self.under_way.push_back((instance, assembly));
        if self.under_way.len() > ASSEMBLIES_MAX {
            self.under_way.pop_front();
        }
    }
}
