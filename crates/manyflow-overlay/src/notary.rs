//! Signatures of daemons' states.
//!
//! The daemons of an overlay pass on one another's states. If each daemon signs its own, another
//! one can neither invent a state of it nor leave out a part: at most it keeps a newer state to
//! itself. This crate decides what is signed and when, and what a false signature means; a
//! [`Notary`] computes with keys.
//!
//! A signature covers the digests of the changes since the last one and of the whole state after
//! them. Changes that a daemon makes at about the same time share one signature: thousands of
//! clients that join at once cost only a few.

use core::fmt;

use crate::message::DaemonId;

/// Signs a daemon's states, and verifies those of others.
pub trait Notary<P>: fmt::Debug + Send {
    /// Returns the bytes of a payload.
    fn bytes<'a>(&self, payload: &'a P) -> &'a [u8];

    /// Returns a payload of these bytes.
    fn payload(&self, bytes: &[u8]) -> P;

    /// Returns the bytes that other daemons need to verify this daemon's signatures, such as its
    /// certificates: at most [`IDENTITY_BYTES_MAX`] bytes.
    fn identity(&self) -> &[u8];

    /// Returns a signature of this daemon, of 1 to [`SIGNATURE_BYTES_MAX`] bytes.
    fn sign(&self, statement: &[u8]) -> Vec<u8>;

    /// Returns whether a signature is one of the daemon that it is said to be of. A claim does not
    /// become false with time: a daemon that is running when its certificate expires remains
    /// believed.
    fn verify(&self, claim: &Claim<'_>) -> bool;
}

/// The maximum length of a daemon's [identity](Notary::identity), in bytes.
pub const IDENTITY_BYTES_MAX: usize = 12_000;

/// The maximum length of a [signature](Notary::sign), in bytes.
pub const SIGNATURE_BYTES_MAX: usize = 1024;

/// A signature, and the daemon that it is said to be of.
#[derive(Copy, Clone, Debug)]
pub struct Claim<'a> {
    /// The daemon.
    pub origin: DaemonId,
    /// The daemon's incarnation.
    pub incarnation: u32,
    /// The daemon's [identity](Notary::identity).
    pub identity: &'a [u8],
    /// The bytes that were signed.
    pub statement: &'a [u8],
    /// The signature.
    pub signature: &'a [u8],
}
