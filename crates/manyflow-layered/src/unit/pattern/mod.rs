//! A moving test picture with an embedded coder, so that a stream needs no other program.
//!
//! The picture is grey: a gradient, moving bars and a moving disc, and noise that is the same in
//! every run. The coder is small, not competitive:
//!
//! 1. The reversible 5/3 wavelet of JPEG 2000 (Le Gall and Tabatabai, 1988; lifting by Sweldens,
//!    1996) separates the picture into bands, coarse ones first.
//! 2. The coefficients are sent by bit planes, the most significant plane first. As in SPECK
//!    (Islam and Pearlman, 1999), one bit says that a whole set of coefficients is still zero.
//!
//! So every prefix decodes, a longer prefix decodes better, and the whole unit is lossless.
//!
//! ```text
//!    0        4       6        8        9
//!   | number | width | height | planes | bits ...
//! ```
//!
//! ```
//! use manyflow_layered::unit::pattern::{Picture, Size, decode, encode, psnr_db};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let size = Size::new(160, 90)?;
//! let unit = encode(7, size);
//! let original = Picture::draw(7, size);
//! let coarse = decode(&unit[..unit.len() / 20])?;
//! assert!(psnr_db(&original, &coarse) > 20.0);
//! assert_eq!(decode(&unit)?, original);
//! # Ok(())
//! # }
//! ```

mod draw;
mod planes;
mod wavelet;

/// The maximum number of points of a picture. It bounds the memory of a decoder, whatever a header
/// claims.
pub const POINTS_MAX: usize = 1 << 21;
/// The length of the header in bytes. A shorter prefix does not decode.
pub const HEADER_BYTES: usize = 9;

/// The size of a picture in points.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Size {
    width: u16,
    height: u16,
}

/// The reason why a size is refused, or a prefix does not decode.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// The picture has no points, or more than [`POINTS_MAX`].
    #[error("a picture of {0}x{1} points: choose 1 to {POINTS_MAX} points")]
    Size(u16, u16),
    /// The prefix ends in the header.
    #[error("{0} bytes are too few: the header of a picture takes {HEADER_BYTES}")]
    Short(usize),
    /// The header claims more bit planes than a picture can have.
    #[error("{0} bit planes are too many: at most {max}", max = planes::PLANES_MAX)]
    Planes(u8),
}

impl Size {
    /// Returns a size of `width` times `height` points.
    ///
    /// # Errors
    /// If there are no points, or more than [`POINTS_MAX`].
    pub fn new(width: u16, height: u16) -> Result<Size, PatternError> {
        let points = usize::from(width) * usize::from(height);
        match (1..=POINTS_MAX).contains(&points) {
            true => Ok(Size { width, height }),
            false => Err(PatternError::Size(width, height)),
        }
    }

    /// Returns the width in points.
    pub fn width(self) -> usize {
        self.width.into()
    }

    /// Returns the height in points.
    pub fn height(self) -> usize {
        self.height.into()
    }

    /// Returns the number of points.
    pub fn points(self) -> usize {
        self.width() * self.height()
    }
}

/// A grey picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// The place of the picture in its sequence.
    pub number: u32,
    /// The size in points.
    pub size: Size,
    /// The brightness of each point, row by row, from 0 (black).
    pub points: Vec<u8>,
}

impl Picture {
    /// Draws a picture of the test sequence: always the same for the same number and size.
    pub fn draw(number: u32, size: Size) -> Picture {
        let points = draw::draw(number, size);
        Picture {
            number,
            size,
            points,
        }
    }

    /// Encodes the picture.
    pub fn encode(&self) -> Vec<u8> {
        let mut values: Vec<i32> = self.points.iter().map(|p| i32::from(*p) - 128).collect();
        wavelet::transform(&mut values, self.size);
        let order = planes::order(self.size);
        let planes = planes::count(&values);
        let mut unit = Vec::with_capacity(HEADER_BYTES + self.points.len());
        unit.extend_from_slice(&self.number.to_be_bytes());
        unit.extend_from_slice(&self.size.width.to_be_bytes());
        unit.extend_from_slice(&self.size.height.to_be_bytes());
        unit.push(planes);
        planes::encode(&values, &order, planes, unit)
    }
}

/// Encodes a picture of the test sequence.
pub fn encode(number: u32, size: Size) -> Vec<u8> {
    Picture::draw(number, size).encode()
}

/// Decodes any prefix of an encoded picture that contains the header.
///
/// # Errors
/// If the prefix is shorter than the header, or the header claims an impossible picture.
pub fn decode(prefix: &[u8]) -> Result<Picture, PatternError> {
    let (header, bits) = prefix
        .split_first_chunk::<HEADER_BYTES>()
        .ok_or(PatternError::Short(prefix.len()))?;
    let [n0, n1, n2, n3, w0, w1, h0, h1, planes] = *header;
    let size = Size::new(u16::from_be_bytes([w0, w1]), u16::from_be_bytes([h0, h1]))?;
    if planes > planes::PLANES_MAX {
        return Err(PatternError::Planes(planes));
    }
    let mut values = planes::decode(bits, &planes::order(size), planes);
    wavelet::invert(&mut values, size);
    let point = |value: &i32| (value + 128).clamp(0, 255) as u8;
    Ok(Picture {
        number: u32::from_be_bytes([n0, n1, n2, n3]),
        size,
        points: values.iter().map(point).collect(),
    })
}

/// Returns the peak signal-to-noise ratio in dB: infinite for equal pictures. Pictures of different
/// sizes have 0 dB.
pub fn psnr_db(original: &Picture, decoded: &Picture) -> f64 {
    if original.size != decoded.size {
        return 0.0;
    }
    let square = |(a, b): (&u8, &u8)| u64::from(a.abs_diff(*b)).pow(2);
    let points = original.points.iter().zip(&decoded.points);
    let squares: u64 = points.map(square).sum();
    let mean = squares as f64 / original.size.points() as f64;
    10.0 * libm::log10(255.0 * 255.0 / mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(width: u16, height: u16) -> Size {
        Size::new(width, height).unwrap()
    }

    #[test]
    fn a_whole_unit_is_lossless_at_any_size() {
        for size in [size(1, 1), size(3, 2), size(161, 91), size(320, 180)] {
            let original = Picture::draw(3, size);
            assert_eq!(decode(&original.encode()), Ok(original));
        }
    }

    #[test]
    fn extreme_points_are_lossless() {
        let size = size(64, 64);
        for shift in [0, 1, 2, 5] {
            let point = |at: usize| {
                if ((at >> shift) ^ (at / 64)) & 1 == 0 {
                    0
                } else {
                    255
                }
            };
            let points = (0..size.points()).map(point).collect();
            let original = Picture {
                number: 0,
                size,
                points,
            };
            assert_eq!(decode(&original.encode()), Ok(original));
        }
    }

    #[test]
    fn a_longer_prefix_is_closer_to_the_original() {
        let original = Picture::draw(25, size(320, 180));
        let unit = original.encode();
        let mut before = 0.0;
        for percent in [1, 2, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100] {
            let prefix = &unit[..unit.len() * percent / 100];
            let psnr = psnr_db(&original, &decode(prefix).unwrap());
            println!("{percent} %: {} bytes, {psnr:.1} dB", prefix.len());
            assert!(psnr > before, "{percent} %: {psnr} dB after {before} dB");
            before = psnr;
        }
        assert_eq!(before, f64::INFINITY);
    }

    #[test]
    fn every_prefix_from_the_header_on_decodes() {
        let unit = encode(1, size(40, 30));
        for length in 0..unit.len() {
            let is_decoded = decode(&unit[..length]).is_ok();
            assert_eq!(is_decoded, length >= HEADER_BYTES, "{length}");
        }
    }

    #[test]
    fn ten_units_of_640x360_points_fill_12_mbit_per_s() {
        for number in [0, 17, 1_000] {
            let bytes = encode(number, size(640, 360)).len();
            println!("{bytes} bytes");
            assert!(bytes >= 150_000, "{bytes} bytes");
        }
    }

    #[test]
    fn a_header_cannot_claim_a_huge_picture() {
        let huge = [0, 0, 0, 0, 255, 255, 255, 255, 8, 1];
        assert_eq!(decode(&huge), Err(PatternError::Size(65_535, 65_535)));
        let deep = [0, 0, 0, 0, 0, 8, 0, 8, 15, 1];
        assert_eq!(decode(&deep), Err(PatternError::Planes(15)));
    }
}
