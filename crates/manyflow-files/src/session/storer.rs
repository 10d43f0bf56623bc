//! The thread that moves complete files to the output folder. It may wait for disks, and unpacks
//! bundles, while the decoder handles packets.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use manyflow_object::receiver::CompleteObject;
use tempfile::TempPath;
use tokio::sync::mpsc::UnboundedSender;

use super::decoder::{DecoderEvent, FileDone};
use crate::files::{FileError, Staged, Store, unpack};
use crate::image::ImageStore;

/// The decoder's handle of the thread.
#[derive(Debug)]
pub(super) struct Storer {
    /// Complete objects; `None` when there will be no more.
    objects: Option<mpsc::Sender<Work>>,
    stored: mpsc::Receiver<Result<Stored, FileError>>,
    thread: Option<JoinHandle<()>>,
}

/// The work of the thread.
#[derive(Debug)]
enum Work {
    Object(CompleteObject, TempPath),
    /// A section of an image that the image's output has already.
    Present(CompleteObject),
    /// All sections of an image were handed over.
    FinishImage,
}

/// An object whose files were stored, except for those that could not be.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) toi: u128,
    /// The names of files that could not be stored. The reasons were logged.
    pub(super) failed: BTreeSet<String>,
    /// The position up to which an image is written; 0 in a session of files.
    pub(super) released: u64,
}

impl Storer {
    /// Starts the thread. `spool` is a folder for temporary files on the store's disk.
    pub(super) fn start(
        store: Store,
        spool: PathBuf,
        image: Option<ImageStore>,
        events: UnboundedSender<DecoderEvent>,
    ) -> Storer {
        let (objects, complete) = mpsc::channel();
        let (reports, stored) = mpsc::channel();
        let thread = thread::spawn(move || {
            let mut image = image;
            for work in complete {
                // The receiver was stopped.
                if events.is_closed() {
                    return;
                }
                let result = match (work, &mut image) {
                    (Work::FinishImage, image) => finish_image(image.take(), &store, &events),
                    (work, Some(image)) => store_section(image, work, &events),
                    (Work::Object(object, content), None) => {
                        store_object(&store, &spool, &object, content, &events)
                    }
                    (Work::Present(_), None) => continue,
                };
                if reports.send(result).is_err() {
                    return;
                }
            }
        });
        Storer {
            objects: Some(objects),
            stored,
            thread: Some(thread),
        }
    }

    /// Passes an object and its content to the thread.
    pub(super) fn push(&self, object: CompleteObject, content: TempPath) {
        self.send(Work::Object(object, content));
    }

    /// Passes a section of an image that the image's output has already.
    pub(super) fn push_present(&self, object: CompleteObject) {
        self.send(Work::Present(object));
    }

    /// Ends the image: all its sections were passed.
    pub(super) fn finish_image(&self) {
        self.send(Work::FinishImage);
    }

    fn send(&self, work: Work) {
        if let Some(objects) = &self.objects {
            // A thread that failed has reported why.
            let _ = objects.send(work);
        }
    }

    /// Returns the next object that was stored since the last call.
    pub(super) fn poll(&self) -> Option<Result<Stored, FileError>> {
        self.stored.try_recv().ok()
    }

    /// Waits until all objects are stored. Returns those that [`Storer::poll`] has not.
    pub(super) fn finish(&mut self) -> Vec<Result<Stored, FileError>> {
        self.objects = None;
        self.stored.iter().collect()
    }
}

impl Drop for Storer {
    fn drop(&mut self) {
        self.objects = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed.
            let _ = thread.join();
        }
    }
}

/// Stores the files of an object. A file that cannot be stored does not keep the others from being
/// stored, unless the disk is full.
fn store_object(
    store: &Store,
    spool: &std::path::Path,
    object: &CompleteObject,
    content: TempPath,
    events: &UnboundedSender<DecoderEvent>,
) -> Result<Stored, FileError> {
    let results = match object.bundle {
        Some(_) => unpack(&content, object, spool, store)
            .unwrap_or_else(|error| vec![(object.name.clone(), Err(error))]),
        // An interrupted receiver stored it: an empty file is complete before it can be skipped.
        None if is_stored(store, object) => vec![(object.name.clone(), Ok(object.length))],
        None => {
            let staged = Staged {
                content,
                name: object.name.clone(),
                attributes: object.attributes,
            };
            let results = store.publish(vec![staged]);
            let named = |result: Result<_, _>| (object.name.clone(), result.map(|_| object.length));
            results.into_iter().map(named).collect()
        }
    };
    let mut failed = BTreeSet::new();
    for (name, result) in results {
        match result {
            Ok(bytes) => {
                // The driver may no longer exist.
                let _ = events.send(DecoderEvent::Done(FileDone { name, bytes }));
            }
            Err(error @ FileError::DiskFull(_)) => return Err(error),
            Err(error) => {
                tracing::warn!("{error}");
                failed.insert(name);
            }
        }
    }
    Ok(Stored {
        toi: object.toi,
        failed,
        released: 0,
    })
}

/// Stores a section of an image.
fn store_section(
    image: &mut ImageStore,
    work: Work,
    events: &UnboundedSender<DecoderEvent>,
) -> Result<Stored, FileError> {
    let (object, content) = match work {
        Work::Object(object, content) => (object, Some(content)),
        Work::Present(object) => (object, None),
        Work::FinishImage => unreachable!("the caller ends images"),
    };
    image.store(&object, content, &|| events.is_closed())?;
    Ok(Stored {
        toi: object.toi,
        failed: BTreeSet::new(),
        released: image.released(),
    })
}

/// Completes an image, and reports it as the session's only file.
fn finish_image(
    image: Option<ImageStore>,
    store: &Store,
    events: &UnboundedSender<DecoderEvent>,
) -> Result<Stored, FileError> {
    if let Some(image) = image {
        let (name, bytes) = image.finish(store)?;
        // The driver may no longer exist.
        let _ = events.send(DecoderEvent::Done(FileDone { name, bytes }));
    }
    Ok(Stored {
        toi: 0,
        failed: BTreeSet::new(),
        released: u64::MAX,
    })
}

fn is_stored(store: &Store, object: &CompleteObject) -> bool {
    let sha256 = object.sha256.as_ref();
    sha256.is_some_and(|sha256| store.has(&object.name, object.length, sha256))
}
