//! object
#![forbid(unsafe_code)]
