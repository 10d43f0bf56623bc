//! Sessions outside this process: the kernel's own TCP, and programs.

pub mod program;
pub mod tcp;
