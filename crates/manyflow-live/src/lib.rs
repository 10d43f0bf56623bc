//! live

pub mod files;
