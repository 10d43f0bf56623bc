//! The picture: all integers, so that it is the same on every machine.

use super::Size;

/// The brightness of the noise, from -16 to 15: as much as keeps a unit of 640x360 points above
/// 150 kB.
const NOISE: u32 = 32;

/// Draws one picture, row by row.
pub(super) fn draw(number: u32, size: Size) -> Vec<u8> {
    let (width, height) = (size.width() as i32, size.height() as i32);
    let time = (number % 10_000) as i32;
    // The disc crosses the picture in 50 pictures, and returns.
    let radius = height / 5;
    let disc_x = bounce(time * width / 50, width);
    let disc_y = bounce(time * height / 80, height);
    let mut points = Vec::with_capacity(size.points());
    for y in 0..height {
        for x in 0..width {
            let (dx, dy) = (x - disc_x, y - disc_y);
            let bars = (x + time * width / 100) * 16 / width % 2;
            let base = match dx * dx + dy * dy < radius * radius {
                true => 210,
                false if y > height * 3 / 4 => 60 + 100 * bars,
                false => 48 + 120 * x / width + 40 * y / height,
            };
            let noise = hash(number, (y * width + x) as u32) % NOISE;
            points.push((base + noise as i32 - NOISE as i32 / 2).clamp(0, 255) as u8);
        }
    }
    points
}

/// A place that moves from 0 to `length` and back.
fn bounce(distance: i32, length: i32) -> i32 {
    let phase = distance % (2 * length);
    phase.min(2 * length - phase)
}

/// A mixture of two numbers, after the finalizer of MurmurHash3.
fn hash(number: u32, place: u32) -> u32 {
    let mut mixed = place ^ number.wrapping_mul(0x9e37_79b9);
    mixed = (mixed ^ mixed >> 16).wrapping_mul(0x85eb_ca6b);
    mixed = (mixed ^ mixed >> 13).wrapping_mul(0xc2b2_ae35);
    mixed ^ mixed >> 16
}
