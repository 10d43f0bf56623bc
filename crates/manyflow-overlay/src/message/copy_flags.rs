//! The fate of a copy of a message, and whether it may be cut.

/// The fate of a copy of a message on its path, and whether daemons may cut it, in one byte.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyFlags(u8);

impl CopyFlags {
    /// A link on the path had to retransmit the copy. A repaired copy gives no sample of the
    /// round-trip time, and its loss has already been noticed.
    pub const REPAIRED: CopyFlags = CopyFlags(0x80);
    /// A router on the path has marked the copy's packet (ECN).
    pub const MARKED: CopyFlags = CopyFlags(0x40);
    /// The payload is in [layers](crate::Layers), which daemons may cut. Only clients' messages
    /// have this flag.
    pub const LAYERED: CopyFlags = CopyFlags(0x08);

    /// Returns the flags in a byte, without other bits.
    pub(crate) fn from_bits(bits: u8) -> CopyFlags {
        CopyFlags(bits & CopyFlags::bits_of_all())
    }

    /// Returns the bits of all flags.
    pub(crate) const fn bits_of_all() -> u8 {
        CopyFlags::REPAIRED.0 | CopyFlags::MARKED.0 | CopyFlags::LAYERED.0
    }

    /// Returns the flags as bits.
    pub(crate) fn bits(self) -> u8 {
        self.0
    }

    /// Returns these flags and others.
    #[must_use]
    pub fn with(self, other: CopyFlags) -> CopyFlags {
        CopyFlags(self.0 | other.0)
    }

    /// Returns the flag of a layered payload, or none.
    pub(crate) fn layered(is_layered: bool) -> CopyFlags {
        match is_layered {
            true => CopyFlags::LAYERED,
            false => CopyFlags::default(),
        }
    }

    /// Returns whether all of the other flags are set.
    pub fn has(self, other: CopyFlags) -> bool {
        self.0 & other.0 == other.0
    }
}
