//! The properties of a codec on which the order of pictures depends.

use crate::VideoError;

/// Reads the NAL units of a codec, in their order.
pub(crate) trait Codec: Send {
    /// Returns the part that a NAL unit has in its picture.
    ///
    /// # Errors
    /// If the NAL unit is not one of this codec, or lacks its parameter sets.
    fn read(&mut self, nal: &[u8]) -> Result<Part, VideoError>;

    /// Returns the rate of a stream that has no times, as its parameter sets announce it.
    fn fps(&self) -> Option<f64>;

    /// Returns the number of pictures by which decoding is ahead of the display.
    fn reorder(&self) -> u32;

    /// Returns the bytes before each NAL unit, if there are any.
    fn start_code(&self) -> &'static [u8] {
        &[0, 0, 0, 1]
    }

    /// Returns the descriptors of the stream, if they come from its headers.
    fn descriptors(&self) -> Option<Vec<u8>> {
        None
    }
}

/// The part of a NAL unit in its picture.
#[derive(Debug)]
pub(crate) enum Part {
    /// A parameter set, which is replaced by the next one with the same key.
    Parameters(u32),
    /// Belongs to the next picture: supplemental information.
    Before,
    /// A part of a picture.
    Slice(Slice),
    /// Belongs to the present picture.
    After,
    /// Of no use to a decoder.
    Unused,
}

/// A slice, and the part of its picture in the order.
#[derive(Debug)]
pub(crate) struct Slice {
    /// Whether a picture begins here.
    pub(crate) begins_picture: bool,
    /// Whether decoding can begin here.
    pub(crate) key: Option<Key>,
    /// Whether another picture of the same level may need this one.
    pub(crate) is_reference: bool,
    /// Pictures of a lower level need none of a higher level.
    pub(crate) level: u8,
    /// The place in the order of the display, in any unit; `None` if only times tell.
    pub(crate) order: Option<i64>,
    /// Whether the picture needs one before its key picture; `None` if the order of the display
    /// decides.
    pub(crate) is_leading: Option<bool>,
    /// A short picture that keeps a decoder's count of references right if this one is cut.
    pub(crate) substitute: Option<Vec<u8>>,
    /// The frames that this picture needs, if its codec names them.
    pub(crate) frame: Option<Frame>,
}

/// A frame of AV1 among the others.
#[derive(Debug)]
pub(crate) struct Frame {
    /// Its number in the stream.
    pub(crate) number: u64,
    /// The numbers of the frames that it may need.
    pub(crate) needs: Vec<u64>,
    /// Whether it is not shown, or only by a later one.
    pub(crate) is_hidden: bool,
    /// Whether it only shows an earlier one, in a few bytes.
    pub(crate) is_repeat: bool,
}

/// How decoding can begin at a picture.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// No picture behind needs one before.
    Closed,
    /// Only leading pictures need one before.
    Open,
}
