//! The table of files that a sender makes, and the headers of its packets.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;

use super::SenderConfig;
use super::digests::Digests;
use crate::alc::FdtHeader;
use crate::chunks;
use crate::error::SendError;
use crate::fdt::{FecAttributes, FileEntry};
use crate::fec::{ObjectSource, Oti};
use crate::name;
use crate::source::SourceFile;

/// Length of EXT_FDT and EXT_FTI in bytes, which only packets of the FDT carry.
pub(super) const FDT_EXTENSION_BYTES: usize = 4 + Oti::EXTENSION_BYTES;

/// The FDT's parameters. Its symbols leave room for its extensions, so its datagrams are as long as
/// all others.
pub(super) fn fdt_oti(config: &SenderConfig, length: usize) -> Result<Oti, SendError> {
    let symbol_length = config.symbol_length - FDT_EXTENSION_BYTES as u16;
    Oti::choose(
        config.scheme,
        length as u64,
        symbol_length,
        config.block_symbols_max,
    )
    .map_err(|error| SendError::Oti {
        name: "FDT".to_owned(),
        error,
    })
}

pub(super) fn describe(
    toi: u32,
    file: &SourceFile,
    oti: &Oti,
    digests: &Digests,
) -> Result<FileEntry, SendError> {
    Ok(FileEntry {
        toi: toi.into(),
        location: name::to_location(&file.name)?,
        transfer_length: Some(oti.transfer_length()),
        content_encoding: None,
        md5: digests.md5,
        sha256: Some(digests.sha256),
        // The digest of the file is that of its only block.
        blocks: match oti.blocks() {
            0 | 1 => Vec::new(),
            _ => digests.blocks.clone(),
        },
        chunks: digests.chunks.clone(),
        bundle: file.bundle,
        attributes: file.attributes,
        section: None,
        fec: FecAttributes::from(oti),
    })
}

/// The FDT Instance ID: 20 bits of the table's digest. So a sender that is started again with other
/// files sends another instance, and one with the same files the same instance.
pub(super) fn instance_id(table_sha256: &[u8; 32]) -> u32 {
    let [high, middle, low, ..] = *table_sha256;
    u32::from_be_bytes([0, high, middle, low]) >> 4
}

pub(super) fn table_source(content: Bytes) -> ObjectSource {
    ObjectSource {
        is_withdrawn: false,
        name: "the table of files".into(),
        source: Arc::new(content),
        digests: Vec::new(),
    }
}

pub(super) fn fdt_extensions(oti: &Oti, instance: u32) -> [u8; FDT_EXTENSION_BYTES] {
    let mut extensions = [0; FDT_EXTENSION_BYTES];
    let header = FdtHeader {
        version: FdtHeader::VERSION,
        instance,
    };
    extensions[..4].copy_from_slice(&header.encode());
    extensions[4..].copy_from_slice(&oti.encode_extension());
    extensions
}

pub(super) fn check_names(files: &[SourceFile]) -> Result<(), SendError> {
    if files.is_empty() {
        return Err(SendError::NoFiles);
    }
    let mut names = BTreeSet::new();
    files.iter().try_for_each(|file| {
        name::check(&file.name)?;
        if names.insert(&file.name) {
            Ok(())
        } else {
            Err(SendError::DuplicateName(file.name.clone()))
        }
    })
}

/// The average length of a file's chunks, if the session has some. A bundle is compressed, so it
/// has nothing in common with a former version.
pub(super) fn chunk_average(config: &SenderConfig, file: &SourceFile, total: u64) -> Option<u32> {
    let average = chunks::average_of(total);
    let is_cut = config.content_chunks && file.bundle.is_none();
    (is_cut && file.content.length() > average.into()).then_some(average)
}

pub(super) fn choose_oti(config: &SenderConfig, file: &SourceFile) -> Result<Oti, SendError> {
    Oti::choose(
        config.scheme,
        file.content.length(),
        config.symbol_length,
        config.block_symbols_max,
    )
    .map_err(|error| SendError::Oti {
        name: file.name.clone(),
        error,
    })
}
