//! The content of a session that is sent: files, or an image whose sections come one after another.

use manyflow_object::error::{ReadError, SendError};
use manyflow_object::fec::{EncodeJob, Encoded};
use manyflow_object::needs::Needs;
use manyflow_object::sender::{ImageSender, ObjectSender};

use crate::files::Scratch;
use crate::image::Reading;

/// The number of sections that are not sent yet at which no more are taken from the reader.
const UNSENT_MAX: usize = 2;

/// The content of a session.
pub struct Content(Kind);

enum Kind {
    Files(Box<ObjectSender<Scratch>>),
    Image(Box<ImageSender>, Reading),
}

impl From<ObjectSender<Scratch>> for Content {
    fn from(objects: ObjectSender<Scratch>) -> Content {
        Content(Kind::Files(Box::new(objects)))
    }
}

impl Content {
    pub(crate) fn of_image(image: ImageSender, reading: Reading) -> Content {
        Content(Kind::Image(Box::new(image), reading))
    }

    pub(super) fn datagram_length(&self) -> usize {
        match &self.0 {
            Kind::Files(objects) => objects.datagram_length(),
            Kind::Image(image, _) => image.datagram_length(),
        }
    }

    /// Takes sections that were sealed, unless enough are waiting.
    pub(super) fn take_sections(&mut self) -> Result<(), ReadError> {
        let Kind::Image(image, reading) = &mut self.0 else {
            return Ok(());
        };
        while image.unsent() < UNSENT_MAX
            && let Some(section) = reading.poll()
        {
            image.push(section.map_err(read_error)?);
        }
        Ok(())
    }

    pub(super) fn next_datagram(
        &mut self,
        layer: u16,
        cci: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), ReadError> {
        match &mut self.0 {
            Kind::Files(objects) => objects.next_datagram(layer, cci, out),
            Kind::Image(image, _) => image.next_datagram(layer, cci, out),
        }
    }

    pub(super) fn next_fdt_datagram(
        &mut self,
        cci: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), ReadError> {
        match &mut self.0 {
            Kind::Files(objects) => objects.next_fdt_datagram(cci, out),
            Kind::Image(image, _) => image.next_fdt_datagram(cci, out),
        }
    }

    pub(super) fn close_datagram(&self, cci: &[u8], out: &mut Vec<u8>) {
        match &self.0 {
            Kind::Files(objects) => objects.close_datagram(cci, out),
            Kind::Image(image, _) => image.close_datagram(cci, out),
        }
    }

    pub(super) fn next_job(&mut self) -> Option<EncodeJob> {
        match &mut self.0 {
            Kind::Files(objects) => objects.next_job(),
            Kind::Image(image, _) => image.next_job(),
        }
    }

    pub(super) fn finish_job(&mut self, encoded: &Encoded) -> Result<(), ReadError> {
        match &mut self.0 {
            Kind::Files(objects) => objects.finish_job(encoded),
            Kind::Image(image, _) => image.finish_job(encoded),
        }
    }

    /// Sends only what receivers need: see [`ObjectSender::focus`]. Returns whether this is so.
    pub(super) fn focus(&mut self, needs: &[Needs], is_alone: bool) -> bool {
        match &mut self.0 {
            Kind::Files(objects) => objects.focus(needs, is_alone),
            Kind::Image(..) => false,
        }
    }

    /// Sends everything again.
    pub(super) fn unfocus(&mut self) {
        match &mut self.0 {
            Kind::Files(objects) => objects.unfocus(),
            Kind::Image(..) => {}
        }
    }

    /// Goes on without a file that cannot be read. Returns whether there are others. An image
    /// cannot do without a section.
    pub(super) fn withdraw(&mut self, error: &ReadError) -> bool {
        match &mut self.0 {
            Kind::Files(objects) => objects.withdraw(error),
            Kind::Image(..) => false,
        }
    }
}

fn read_error(error: SendError) -> ReadError {
    match error {
        SendError::Read(error) => error,
        error => ReadError {
            name: "the image".to_owned(),
            error: std::io::Error::other(error),
        },
    }
}
