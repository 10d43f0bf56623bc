//! The sections of an image in the decoder thread.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use manyflow_object::receiver::CompleteObject;

use super::decoder::{DecoderError, Worker};
use crate::files::{FileError, Spool, free_room};
use crate::image::{ImageOutput, ImageStore, Target, Waiting, place_of};

/// The image of a session.
#[derive(Debug)]
pub(super) struct Image {
    /// The device or file that takes the image; `None` for a pipe.
    target: Option<Arc<Target>>,
    waiting: Arc<Waiting>,
    /// The lengths of complete sections behind a missing one, and the number of that one.
    out_of_order: BTreeMap<u32, u64>,
    next: u32,
    /// The signed tables of an earlier process.
    tables: Vec<Vec<u8>>,
    spool: PathBuf,
}

impl Image {
    /// Opens the output. Returns its writer besides.
    pub(super) fn open(
        output: ImageOutput,
        spool: &mut Spool,
    ) -> Result<(Image, ImageStore), FileError> {
        let folder = spool.folder().to_owned();
        let failed = |error| FileError::Folder {
            folder: folder.clone(),
            error,
        };
        let tables = spool.begin_image().map_err(failed)?;
        let waiting = Arc::new(Waiting::default());
        let image = folder.join("image");
        let (store, target) = ImageStore::open(output, image, Arc::clone(&waiting))?;
        let image = Image {
            target,
            waiting,
            out_of_order: BTreeMap::new(),
            next: 0,
            tables,
            spool: folder,
        };
        Ok((image, store))
    }

    pub(super) fn waiting(&self) -> Arc<Waiting> {
        Arc::clone(&self.waiting)
    }

    /// Takes note of a section that is complete. A command does not wait for the others behind a
    /// missing section: the network does.
    pub(super) fn note_complete(&mut self, object: &CompleteObject) {
        let (Some(section), Some(place)) = (object.section, place_of(object)) else {
            return;
        };
        let bytes = place.length + place.zeros;
        if self.target.is_some() {
            return self.waiting.note_complete(bytes);
        }
        self.out_of_order.insert(section.number, bytes);
        while let Some(bytes) = self.out_of_order.remove(&self.next) {
            self.waiting.note_complete(bytes);
            self.next += 1;
        }
    }

    /// Whether the output has a section. An image that is too long is an error.
    fn has(&self, object: &CompleteObject) -> Result<bool, FileError> {
        let (Some(section), Some(place)) = (object.section, place_of(object)) else {
            return Ok(false);
        };
        let Some(target) = &self.target else {
            return Ok(false);
        };
        target.check_length(section.image_length.unwrap_or(place.end()))?;
        let sha256 = object.sha256.unwrap_or_default();
        target.has(place, &sha256)
    }
}

impl Worker {
    /// Announces the sections that an earlier process knew. Those that the output has are complete.
    pub(super) fn resume_image(&mut self) -> Result<(), DecoderError> {
        let tables = self.image.as_mut().map(|image| &mut image.tables);
        let tables = tables.map_or_else(Vec::new, std::mem::take);
        for table in tables {
            if let Err(error) = self.receiver.resume_section(&table) {
                tracing::warn!("the state of an earlier run cannot be used: {error}");
            }
        }
        self.release(0);
        let before = self.receiver.progress().earlier_bytes;
        self.prepare_sections()?;
        match self.receiver.progress().earlier_bytes - before {
            0 => {}
            bytes => tracing::info!("{bytes} bytes were received earlier"),
        }
        Ok(())
    }

    /// Skips new sections that the output has.
    pub(super) fn prepare_sections(&mut self) -> Result<(), DecoderError> {
        for object in self.receiver.take_new_sections() {
            let Some(image) = &mut self.image else {
                return Ok(());
            };
            if image.has(&object)? {
                image.note_complete(&object);
                self.skip(object.toi)?;
                self.storer.push_present(object);
            }
        }
        Ok(())
    }

    /// Takes note that an image is written up to a position. Incomplete sections may take half of
    /// the free room of the disk.
    pub(super) fn release(&mut self, released: u64) {
        if let Some(image) = &self.image {
            let ahead_max = free_room(&image.spool).map_or(u64::MAX, |room| room / 2);
            self.receiver.set_released(released, ahead_max);
        }
    }
}

#[cfg(test)]
mod tests {
    use manyflow_object::fdt::Section;
    use manyflow_object::receiver::Verified;

    use super::*;

    fn section(number: u32) -> CompleteObject {
        CompleteObject {
            toi: u128::from(number) + 1,
            name: format!("image/{number:07}"),
            length: 10,
            sha256: None,
            bundle: None,
            attributes: None,
            section: Some(Section {
                number,
                offset: u64::from(number) * 15,
                zeros: 5,
                image_length: None,
            }),
            verified: Verified::default(),
        }
    }

    #[test]
    fn sections_behind_a_missing_one_do_not_wait_for_the_command() {
        let mut image = Image {
            target: None,
            waiting: Arc::default(),
            out_of_order: BTreeMap::new(),
            next: 0,
            tables: Vec::new(),
            spool: PathBuf::new(),
        };
        for (number, waiting) in [(0, 15), (2, 15), (3, 15), (1, 60), (4, 75)] {
            image.note_complete(&section(number));
            assert_eq!(image.waiting.bytes(), (waiting, 0), "section {number}");
        }
    }
}
