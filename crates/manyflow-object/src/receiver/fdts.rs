//! Reassembles FDT Instances: packets of TOI 0, distinguished by their FDT Instance ID.

use std::collections::VecDeque;
use std::io;

use super::assembly::{Assembly, Taken};
use super::oti_of;
use crate::alc::{FdtHeader, PAYLOAD_ID_BYTES, Packet, Symbol};
use crate::error::{OtiError, ReceiveError};
use crate::fec::Oti;
use crate::storage::{MemoryStorage, Storage};

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
    storage: MemoryStorage,
    /// The number in the storage of the next assembly.
    next_object: u128,
}

/// The result of taking a packet of the FDT.
pub(super) enum FdtPacket {
    /// The packet belongs to an instance that is done.
    Known,
    /// The packet's instance needs more.
    Kept,
    /// The packet completed the document of this instance.
    Complete(u32, Vec<u8>),
}

impl FdtAssemblies {
    pub(super) fn new(length_max: u64) -> Self {
        FdtAssemblies {
            length_max,
            under_way: VecDeque::new(),
            done: VecDeque::new(),
            storage: MemoryStorage::default(),
            next_object: 0,
        }
    }

    /// Memory for the symbols in bytes.
    pub(super) fn bytes(&self) -> u64 {
        let bytes = self.under_way.iter().map(|(_, assembly)| assembly.bytes());
        bytes.sum::<u64>() + self.storage.bytes()
    }

    /// Takes a packet of the FDT.
    pub(super) fn take(
        &mut self,
        packet: &Packet<'_>,
        symbol: Symbol<'_>,
        memory_left: u64,
    ) -> Result<FdtPacket, ReceiveError> {
        let Some(FdtHeader { instance, .. }) =
            packet.fdt.filter(|fdt| VERSIONS.contains(&fdt.version))
        else {
            return Err(ReceiveError::FdtHeader(packet.fdt.map(|fdt| fdt.version)));
        };
        if packet.content_encoding != 0 {
            return Err(ReceiveError::FdtEncoding(packet.content_encoding));
        }
        if self.done.contains(&instance) {
            return Ok(FdtPacket::Known);
        }
        if symbol.data.len() as u64 > memory_left {
            return Err(ReceiveError::Memory);
        }
        let mut assembly = self.take_out(instance, oti_of(packet)?)?;
        let taken = assembly.take(
            symbol.payload_id,
            symbol.data,
            memory_left,
            &mut self.storage,
        );
        if let Ok(Taken::Enough(sbn)) = taken
            && let Some(job) = assembly.job(sbn, &mut self.storage)?
        {
            assembly.finish_job(&job.run(), &mut self.storage)?;
        }
        if assembly.is_complete() {
            let mut document = vec![0; assembly.oti().transfer_length() as usize];
            self.storage.read_at(assembly.object(), 0, &mut document)?;
            self.storage.remove(assembly.object())?;
            return Ok(FdtPacket::Complete(instance, document));
        }
        self.put_back(instance, assembly)?;
        taken.map(|_| FdtPacket::Kept)
    }

    /// Drops a false symbol. Returns whether an instance had it.
    pub(super) fn withdraw(&mut self, payload_id: [u8; PAYLOAD_ID_BYTES]) -> io::Result<bool> {
        let mut had = false;
        for (_, assembly) in &mut self.under_way {
            had |= assembly.withdraw(payload_id, &mut self.storage)?;
        }
        Ok(had)
    }

    /// Records that the FDT Instance is known: one ID means one document (RFC 6726 section 3.4.1).
    pub(super) fn note_done(&mut self, instance: u32) -> io::Result<()> {
        self.done.truncate(DONE_MAX - 1);
        self.done.push_front(instance);
        let (done, under_way) = std::mem::take(&mut self.under_way)
            .into_iter()
            .partition(|(other, _)| *other == instance);
        self.under_way = under_way;
        let mut done: VecDeque<(u32, Assembly)> = done;
        done.drain(..)
            .try_for_each(|(_, assembly)| self.storage.remove(assembly.object()))
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
        self.next_object += 1;
        Ok(Assembly::new(self.next_object, oti, Vec::new()))
    }

    /// Keeps an assembly that has just been used. If there are too many, the one that has not been
    /// used for the longest time is dropped.
    fn put_back(&mut self, instance: u32, assembly: Assembly) -> io::Result<()> {
        self.under_way.push_back((instance, assembly));
        if self.under_way.len() > ASSEMBLIES_MAX
            && let Some((_, oldest)) = self.under_way.pop_front()
        {
            self.storage.remove(oldest.object())?;
        }
        Ok(())
    }
}
