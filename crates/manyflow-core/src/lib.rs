//! Rate-control protocols as state machines, and the links that carry their packets.
#![forbid(unsafe_code)]
