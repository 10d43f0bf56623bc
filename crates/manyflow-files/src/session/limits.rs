//! The parts of a receiver that its configuration determines: the limits of the object layer, and
//! the group key.

use manyflow_object::image::TableKey;
use manyflow_object::receiver as object;

use super::config::ReceiveConfig;
use super::group::GroupOpener;
use super::receive::ReceiveError;
use crate::sdp::Protection;

/// Returns the [`memory_max`](ReceiveConfig::memory_max) with which receivers accept a table of
/// this number of entries and of this length.
pub fn memory_for_table(entries: usize, table_bytes: u64) -> u64 {
    (table_bytes << 3).max((entries as u64) << 10)
}

/// The limits of the object layer. An eighth of the memory is for symbols of files that are not
/// announced yet, and an eighth for a table of files; a file takes up to 1 KiB.
pub(super) fn limits(config: &ReceiveConfig) -> object::ReceiverConfig {
    object::ReceiverConfig {
        tsi: config.description.tsi,
        table_sha256: config.description.table_sha256,
        table_key: config
            .description
            .table_key
            .map(|key| TableKey::new(move |message, signature| key.verifies(message, signature))),
        memory_max: config.memory_max,
        early_max: (config.memory_max >> 3) as usize,
        fdt_length_max: config.memory_max >> 3,
        files_max: (config.memory_max >> 10) as usize,
    }
}

/// Returns the opener of the session's packets; `None` if they are used as they are.
pub(super) fn opener(config: &ReceiveConfig) -> Result<Option<GroupOpener>, ReceiveError> {
    match (&config.group_key, &config.description.protection) {
        (Some(key), Some(protection)) => Ok(Some(GroupOpener::new(key, protection))),
        (Some(_), None) => Err(ReceiveError::NoMac),
        (None, Some(Protection::Encryption { .. })) => Err(ReceiveError::NoGroupKey),
        (None, Some(Protection::Mac) | None) => Ok(None),
    }
}
