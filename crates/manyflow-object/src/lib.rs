//! Objects over packets: ALC/LCT, FLUTE file delivery tables, forward error correction.
#![forbid(unsafe_code)]

pub mod alc;
pub mod error;
pub mod fdt;
pub mod fec;
pub mod lct;
pub mod name;
pub mod receiver;
mod schedule;
pub mod sender;
