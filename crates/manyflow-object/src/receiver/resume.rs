//! Objects that need not be received, or not completely: an earlier receiver got a part of them, or
//! the caller has them.

use std::io;

use sha2::{Digest, Sha256};

use super::{CompleteObject, ObjectReceiver, Verified};
use crate::error::ReceiveError;
use crate::fdt::FdtInstance;
use crate::storage::{Record, Storage};

impl<S: Storage> ObjectReceiver<S> {
    /// Continues from the table of files and the records of an earlier receiver, whose storage this
    /// receiver has. Returns the number of bytes that need not be received again.
    ///
    /// # Errors
    /// [`ReceiveError`] if the table is not the session's, or if the storage fails.
    pub fn resume(
        &mut self,
        table: &[u8],
        records: impl IntoIterator<Item = Record>,
    ) -> Result<u64, ReceiveError> {
        if self.config.table_sha256 != Some(Sha256::digest(table).into()) {
            return Err(ReceiveError::TableDigest(0));
        }
        let fdt = FdtInstance::decode(table, self.config.files_max)?;
        self.listed_completely |= fdt.complete;
        self.announce(fdt)?;
        for record in records {
            let (Record::Symbol { object, .. }
            | Record::Withdrawn { object, .. }
            | Record::Decoded { object, .. }
            | Record::Dropped { object, .. }) = record;
            if let Some(object) = self.objects.get_mut(&object.into()) {
                object.restore(record);
            }
        }
        let mut restored = 0;
        for object in self.objects.values_mut() {
            if let Some(assembly) = object.assembly() {
                restored += assembly.verify_restored(&mut self.storage)?;
                self.memory += assembly.bytes();
            }
        }
        self.progress.useful_bytes += restored;
        self.progress.earlier_bytes += restored;
        let complete = self
            .objects
            .iter()
            .filter(|(_, object)| object.can_finish());
        let complete: Vec<u128> = complete.map(|(&toi, _)| toi).collect();
        for toi in complete {
            self.finish(toi)?;
        }
        self.tell_if_all_complete();
        Ok(restored)
    }

    /// Returns the files that the session has and this receiver does not: their content may exist
    /// elsewhere.
    pub fn missing(&self) -> impl Iterator<Item = CompleteObject> {
        let missing = self.objects.values().filter(|object| object.is_missing());
        missing.map(|object| object.completed(Verified::default()))
    }

    /// Declares that the caller has the content of an object, with the SHA-256 that the FDT gives.
    /// No symbols are needed then.
    ///
    /// # Errors
    /// If the storage fails.
    pub fn skip(&mut self, toi: u128) -> io::Result<()> {
        let Some(object) = self.objects.get_mut(&toi) else {
            return Ok(());
        };
        if !object.is_missing() {
            return Ok(());
        }
        self.memory -= object.bytes();
        self.progress.files_complete += object.files();
        let complete = object.skip();
        self.progress.useful_bytes += complete.length;
        self.progress.earlier_bytes += complete.length;
        self.storage.remove(toi)?;
        self.tell_if_all_complete();
        Ok(())
    }
}
