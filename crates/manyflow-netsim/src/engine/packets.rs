//! The packets of a network, which links carry by number.
//!
//! A packet is stored here when an endpoint sends it. Links hold references to it, so forwarding
//! moves a number instead of a packet, and a multicast packet is stored once for all receivers.

use core::ops::Index;

use manyflow_core::link::{Carried, Flow, Item};
use manyflow_core::xcp::Congestion;
use manyflow_core::{Destination, EndpointId, Header, Packet};

use super::NodeId;

/// The number of a packet, and one reference to it: its holder passes it on or
/// [releases](Packets::release) it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct PacketId(u32);

#[derive(Debug)]
struct Slot<H> {
    packet: Packet<H>,
    /// The packet's bytes on a link.
    bytes: u32,
    references: u32,
    /// The node at which a unicast packet's destination is.
    node: NodeId,
    /// The node of the source.
    origin: NodeId,
}

impl Item for PacketId {
    const IS_STORED: bool = true;

    /// Does nothing: the network marks the stored packet.
    fn set_mark(&mut self) {}
}

/// A packet on its way to another store, with what the store knows of it.
pub(super) struct Shipped<H>(Slot<H>);

impl<H> Shipped<H> {
    /// Returns the packet's bytes on a link.
    pub(super) fn wire_bytes(&self) -> u32 {
        self.0.bytes
    }
}

/// The packets that links and the current event hold.
#[derive(Debug)]
pub(super) struct Packets<H> {
    slots: Vec<Slot<H>>,
    /// The slots without references. The last one was used last, so it is likely to be cached.
    free: Vec<PacketId>,
}

impl<H> Default for Packets<H> {
    fn default() -> Packets<H> {
        Packets {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<H> Index<PacketId> for Packets<H> {
    type Output = Packet<H>;

    #[inline]
    fn index(&self, id: PacketId) -> &Packet<H> {
        &self.slots[id.0 as usize].packet
    }
}

impl<H: Header> Packets<H> {
    /// Stores a packet from this source at `origin`, with one reference. A unicast packet's
    /// destination is at `node`.
    // Inlined, so that the packet is moved directly from the endpoint to its slot.
    #[inline(always)]
    pub(super) fn add(
        &mut self,
        packet: Packet<H>,
        source: EndpointId,
        origin: NodeId,
        node: NodeId,
    ) -> PacketId {
        if let Some(id) = self.free.pop() {
            let slot = &mut self.slots[id.0 as usize];
            slot.packet = packet;
            slot.packet.source = source;
            slot.bytes = slot.packet.wire_bytes();
            (slot.references, slot.node, slot.origin) = (1, node, origin);
            return id;
        }
        let (bytes, references) = (packet.wire_bytes(), 1);
        let packet = packet.with_source(source);
        self.slots.push(Slot {
            packet,
            bytes,
            references,
            node,
            origin,
        });
        PacketId(self.slots.len() as u32 - 1)
    }

    /// Returns the packet's bytes on a link.
    #[inline]
    pub(super) fn wire_bytes(&self, id: PacketId) -> u32 {
        self.slots[id.0 as usize].bytes
    }

    /// Returns the node at which a unicast packet's destination is.
    #[inline]
    pub(super) fn node(&self, id: PacketId) -> NodeId {
        self.slots[id.0 as usize].node
    }

    /// Adds a reference.
    #[inline]
    pub(super) fn retain(&mut self, id: PacketId) {
        self.slots[id.0 as usize].references += 1;
    }

    /// Removes a reference.
    #[inline]
    pub(super) fn release(&mut self, id: PacketId) {
        let slot = &mut self.slots[id.0 as usize];
        debug_assert!(slot.references > 0, "{id:?} was released before");
        slot.references -= 1;
        if slot.references == 0 {
            self.free.push(id);
        }
    }

    /// Exchanges a reference for one to an equal packet that has no other references.
    #[inline]
    pub(super) fn separate(&mut self, id: PacketId) -> PacketId {
        let slot = &self.slots[id.0 as usize];
        if slot.references == 1 {
            return id;
        }
        let (copy, node, origin) = (slot.packet.clone(), slot.node, slot.origin);
        self.release(id);
        let source = copy.source;
        self.add(copy, source, origin, node)
    }

    /// Exchanges a reference for a packet that another store can take.
    pub(super) fn ship(&mut self, id: PacketId) -> Shipped<H> {
        let slot = &self.slots[id.0 as usize];
        let shipped = Shipped(Slot {
            packet: slot.packet.clone(),
            references: 1,
            ..*slot
        });
        self.release(id);
        shipped
    }

    /// Stores a packet of another store, with one reference.
    pub(super) fn unpack(&mut self, Shipped(slot): Shipped<H>) -> PacketId {
        if let Some(id) = self.free.pop() {
            self.slots[id.0 as usize] = slot;
            return id;
        }
        self.slots.push(slot);
        PacketId(self.slots.len() as u32 - 1)
    }

    /// Marks a packet. The link that holds it has its only references.
    pub(super) fn mark(&mut self, id: PacketId) {
        self.slots[id.0 as usize].packet.mark();
    }

    /// Returns the number of references to all packets.
    pub(super) fn references(&self) -> u64 {
        let references = self.slots.iter().map(|slot| u64::from(slot.references));
        references.sum()
    }
}

/// A packet that is handed to a link.
pub(super) struct Parcel<'a, H> {
    pub(super) packets: &'a mut Packets<H>,
    pub(super) id: PacketId,
}

impl<H> Parcel<'_, H> {
    /// Returns the packet so that it can be changed. It must not be shared.
    fn packet_mut(&mut self) -> &mut Packet<H> {
        let slot = &mut self.packets.slots[self.id.0 as usize];
        debug_assert_eq!(slot.references, 1, "{:?} is shared", self.id);
        &mut slot.packet
    }
}

impl<H> From<Parcel<'_, H>> for PacketId {
    #[inline]
    fn from(parcel: Parcel<'_, H>) -> PacketId {
        parcel.id
    }
}

impl<H: Header> Carried for Parcel<'_, H> {
    fn is_ecn_capable(&self) -> bool {
        self.packets[self.id].is_ecn_capable()
    }

    fn is_l4s(&self) -> bool {
        self.packets[self.id].is_l4s()
    }

    fn mark(&mut self) {
        self.packet_mut().mark();
    }

    fn flow(&self) -> Flow {
        let slot = &self.packets.slots[self.id.0 as usize];
        let flow = slot.packet.flow();
        Flow {
            source: slot.origin.0,
            destination: match slot.packet.destination {
                Destination::Endpoint(_) => slot.node.0,
                Destination::Channel(_) => flow.destination,
            },
            ..flow
        }
    }

    fn group(&self) -> Option<(u32, u8)> {
        self.packets[self.id].group()
    }

    fn congestion(&mut self) -> Option<&mut Congestion> {
        self.packet_mut().congestion()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manyflow_core::Ecn;

    #[derive(Copy, Clone, Debug, PartialEq)]
    struct Empty;

    impl Header for Empty {
        fn wire_bytes(&self) -> u32 {
            40
        }
    }

    fn add(packets: &mut Packets<Empty>) -> PacketId {
        let destination = Destination::Endpoint(EndpointId(7));
        let packet = Packet::new(destination, Empty, 1000).with_ecn(Ecn::Capable);
        packets.add(packet, EndpointId(1), NodeId(2), NodeId(3))
    }

    #[test]
    fn a_slot_is_used_again_once_its_last_reference_is_released() {
        let mut packets = Packets::default();
        let first = add(&mut packets);
        packets.retain(first);
        packets.release(first);
        assert_ne!(add(&mut packets), first);
        packets.release(first);
        assert_eq!(add(&mut packets), first);
        assert_eq!(packets.references(), 2);
        assert_eq!(
            (packets.wire_bytes(first), packets.node(first)),
            (1040, NodeId(3))
        );
        assert_eq!(packets[first].source, EndpointId(1));
    }

    #[test]
    fn a_mark_is_not_seen_by_other_holders_of_the_packet() {
        let mut packets = Packets::default();
        let shared = add(&mut packets);
        packets.retain(shared);
        let own = packets.separate(shared);
        let mut parcel = Parcel {
            packets: &mut packets,
            id: own,
        };
        parcel.mark();
        assert_eq!(packets[own].ecn, Ecn::Marked);
        assert_eq!(packets[shared].ecn, Ecn::Capable);
        assert_eq!(packets.references(), 2);
        assert_eq!(packets.separate(shared), shared);
    }
}
