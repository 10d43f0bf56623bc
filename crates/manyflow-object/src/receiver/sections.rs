//! The sections of an image, each announced by a table that the sender has signed.

use super::object::Object;
use super::{CompleteObject, ObjectReceiver, Verified};
use crate::alc::Packet;
use crate::error::ReceiveError;
use crate::fdt::FdtInstance;
use crate::storage::Storage;

/// The state of an image besides its sections, which are objects.
#[derive(Debug)]
pub(super) struct Sections {
    /// The number of the last section, once its table has come.
    last: Option<u32>,
    /// The number of sections that were announced.
    announced: u32,
    /// The position in the image up to which the caller has used it, and the distance from it from
    /// which symbols are not taken.
    released: u64,
    ahead_max: u64,
    /// The TOIs of sections that the caller has not asked for yet.
    new: Vec<u128>,
}

impl Default for Sections {
    fn default() -> Sections {
        Sections {
            last: None,
            announced: 0,
            released: 0,
            ahead_max: u64::MAX,
            new: Vec::new(),
        }
    }
}

impl Sections {
    /// Whether an object is a section that is too far ahead.
    pub(super) fn is_ahead(&self, object: &Object) -> bool {
        let end = self.released.saturating_add(self.ahead_max);
        object
            .section()
            .is_some_and(|section| section.offset >= end)
    }
}

impl<S: Storage> ObjectReceiver<S> {
    /// Reports that the caller has used the image up to the position `released`. Symbols of
    /// sections that begin `ahead_max` bytes or more behind it are not taken from now on: the
    /// sender repeats them.
    pub fn set_released(&mut self, released: u64, ahead_max: u64) {
        self.sections.released = released;
        self.sections.ahead_max = ahead_max;
    }

    /// Returns the incomplete sections that were announced since the last call. Their content may
    /// exist elsewhere: see [`skip`](Self::skip).
    pub fn take_new_sections(&mut self) -> Vec<CompleteObject> {
        let new = std::mem::take(&mut self.sections.new);
        let objects = new.iter().filter_map(|toi| self.objects.get(toi));
        let missing = objects.filter(|object| object.is_missing());
        missing
            .map(|object| object.completed(Verified::default()))
            .collect()
    }

    /// Announces a section of an earlier receiver again, from its signed table.
    ///
    /// # Errors
    /// [`ReceiveError`] if the table is not one of this session.
    pub fn resume_section(&mut self, document: &[u8]) -> Result<(), ReceiveError> {
        self.announce_section(None, document)
    }

    /// Whether all announced sections are complete, and others will come.
    pub(super) fn waits_for_sections(&self) -> bool {
        let progress = &self.progress;
        self.config.table_key.is_some()
            && progress.files == progress.files_complete + progress.files_refused
    }

    /// Whether a packet of an FDT Instance is one of a section that is known.
    pub(super) fn knows_table_of(&self, packet: &Packet<'_>) -> bool {
        let instance = packet.fdt.map(|fdt| u128::from(fdt.instance));
        self.config.table_key.is_some()
            && instance.is_some_and(|instance| self.objects.contains_key(&(instance + 1)))
    }

    /// Whether every section up to the last one was announced; true for a session of files.
    pub(super) fn has_all_sections(&self) -> bool {
        let last = self.sections.last;
        self.config.table_key.is_none() || last.is_some_and(|last| self.sections.announced > last)
    }

    pub(super) fn on_section_table(
        &mut self,
        instance: u32,
        document: &[u8],
    ) -> Result<(), ReceiveError> {
        self.announce_section(Some(instance), document)?;
        self.fdts.note_done(instance)?;
        self.storage.record_table(document)?;
        self.replay_early();
        self.tell_if_all_complete();
        Ok(())
    }

    fn announce_section(
        &mut self,
        instance: Option<u32>,
        document: &[u8],
    ) -> Result<(), ReceiveError> {
        let number = instance.unwrap_or(0);
        let key = self.config.table_key.as_ref();
        let body = key.and_then(|key| key.open(document));
        let body = body.ok_or(ReceiveError::TableSignature(number))?;
        let mut fdt = FdtInstance::decode(body, 1)?;
        let contradicts = || ReceiveError::Section(number);
        let file = fdt.files.first().ok_or_else(contradicts)?;
        let section = file.section.ok_or_else(contradicts)?;
        let number = section.number;
        if instance.is_some_and(|instance| instance != number) || file.toi != section.toi() {
            return Err(ReceiveError::Section(number));
        }
        if self.objects.contains_key(&file.toi) {
            return Ok(());
        }
        let is_last = fdt.complete;
        // The session is complete with the last section only if it has all others, too.
        fdt.complete = false;
        let end = self.check_place(number, section.offset, file.transfer_length, section.zeros)?;
        if self.sections.last.is_some_and(|last| number > last) {
            return Err(ReceiveError::Section(number));
        }
        if is_last {
            let has_later = self.objects.keys().next_back() > Some(&section.toi());
            let is_short = section.image_length.is_some_and(|length| length != end);
            if has_later || is_short {
                return Err(ReceiveError::Section(number));
            }
            self.sections.last = Some(number);
            self.listed_completely = true;
        }
        self.sections.announced += 1;
        self.sections.new.push(section.toi());
        self.announce(fdt)
    }

    /// Checks that a section begins where the one before it ends, and ends where the next begins,
    /// as far as these are known. Returns the section's end.
    fn check_place(
        &self,
        number: u32,
        offset: u64,
        length: Option<u64>,
        zeros: u64,
    ) -> Result<u64, ReceiveError> {
        let contradicts = || ReceiveError::Section(number);
        let end = length
            .and_then(|length| offset.checked_add(length)?.checked_add(zeros))
            .ok_or_else(contradicts)?;
        let toi = u128::from(number) + 1;
        let before = self.objects.get(&(toi - 1)).map(Object::section_end);
        let after = self.objects.get(&(toi + 1));
        let after = after.map(|object| object.section().map(|section| section.offset));
        let is_first = number > 0 || offset == 0;
        let fits = before.is_none_or(|before| before == Some(offset))
            && after.is_none_or(|after| after == Some(end));
        match fits && is_first {
            true => Ok(end),
            false => Err(contradicts()),
        }
    }
}
