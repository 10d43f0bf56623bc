//! The bit planes of coefficients, the most significant first.
//!
//! The coefficients are put in order: the coarsest band first, and each band in Z order, so that
//! neighbours remain together. Sets of 4, 16, 64 and more consecutive coefficients form a tree. In
//! each plane, the coder visits the tree from the root. For a set whose coefficients were all zero
//! in the planes above, one bit says whether this remains so. A coefficient that becomes nonzero
//! gets a bit for its sign. A coefficient that was nonzero before gets its bit of the plane.
//!
//! The decoder visits the same sets, and stops where the prefix ends. It sets each nonzero
//! coefficient to the middle of the range that the planes so far leave.

use super::Size;
use super::wavelet::{LEVELS, part};

/// The maximum number of planes. The coefficients of 8-bit points have at most 13.
pub(super) const PLANES_MAX: u8 = 14;
/// Each set has this many parts.
const PARTS: usize = 4;

/// Returns the places of the coefficients in the order in which they are sent.
pub(super) fn order(size: Size) -> Vec<usize> {
    let mut order = Vec::with_capacity(size.points());
    let (low_width, low_height) = part(size, LEVELS);
    push_area(&mut order, size, [0, 0, low_width, low_height]);
    for level in (0..LEVELS).rev() {
        let ((width, height), (low_width, low_height)) = (part(size, level), part(size, level + 1));
        push_area(&mut order, size, [low_width, 0, width, low_height]);
        push_area(&mut order, size, [0, low_height, low_width, height]);
        push_area(&mut order, size, [low_width, low_height, width, height]);
    }
    debug_assert_eq!(order.len(), size.points());
    order
}

/// Appends the places of an area, from its left and top to its right and bottom, in Z order.
fn push_area(order: &mut Vec<usize>, size: Size, [left, top, right, bottom]: [usize; 4]) {
    if left >= right || top >= bottom {
        return;
    }
    if right - left == 1 && bottom - top == 1 {
        order.push(top * size.width() + left);
        return;
    }
    let (x, y) = ((left + right).div_ceil(2), (top + bottom).div_ceil(2));
    push_area(order, size, [left, top, x, y]);
    push_area(order, size, [x, top, right, y]);
    push_area(order, size, [left, y, x, bottom]);
    push_area(order, size, [x, y, right, bottom]);
}

/// Returns the number of planes that the coefficients need.
pub(super) fn count(values: &[i32]) -> u8 {
    let top = values.iter().map(|value| value.unsigned_abs()).max();
    let planes = bits(top.unwrap_or(0));
    debug_assert!(planes <= PLANES_MAX);
    planes
}

/// The number of bits of a number.
fn bits(number: u32) -> u8 {
    (u32::BITS - number.leading_zeros()) as u8
}

/// Encodes coefficients, and appends them to `unit`.
pub(super) fn encode(values: &[i32], order: &[usize], planes: u8, unit: Vec<u8>) -> Vec<u8> {
    let sorted: Vec<i32> = order.iter().map(|place| values[*place]).collect();
    let mut tops = vec![
        sorted
            .iter()
            .map(|v| bits(v.unsigned_abs()))
            .collect::<Vec<u8>>(),
    ];
    while let Some(level) = tops.last().filter(|level| level.len() > 1) {
        let top = |set: &[u8]| set.iter().copied().max().unwrap_or(0);
        tops.push(level.chunks(PARTS).map(top).collect());
    }
    let mut writer = Writer {
        values: &sorted,
        tops: &tops,
        unit,
        byte: 0,
        filled: 0,
    };
    for plane in (0..planes).rev() {
        writer.visit(tops.len() - 1, 0, plane);
    }
    writer.finish()
}

struct Writer<'a> {
    values: &'a [i32],
    /// The bits of the largest coefficient of each set: those of single coefficients first, the
    /// root last.
    tops: &'a [Vec<u8>],
    unit: Vec<u8>,
    byte: u8,
    filled: u8,
}

impl Writer<'_> {
    fn push(&mut self, bit: bool) {
        self.byte = self.byte << 1 | u8::from(bit);
        self.filled += 1;
        if self.filled == 8 {
            self.unit.push(self.byte);
            (self.byte, self.filled) = (0, 0);
        }
    }

    fn visit(&mut self, level: usize, index: usize, plane: u8) {
        let top = self.tops[level][index];
        if top <= plane + 1 {
            self.push(top == plane + 1);
        }
        if top <= plane {
            return;
        }
        if level == 0 {
            let value = self.values[index];
            match top == plane + 1 {
                true => self.push(value < 0),
                false => self.push(value.unsigned_abs() >> plane & 1 == 1),
            }
            return;
        }
        let end = (PARTS * (index + 1)).min(self.tops[level - 1].len());
        for part in PARTS * index..end {
            self.visit(level - 1, part, plane);
        }
    }

    /// Fills the last byte.
    fn finish(mut self) -> Vec<u8> {
        while self.filled > 0 {
            self.push(false);
        }
        self.unit
    }
}

/// Decodes a prefix to coefficients in their places.
pub(super) fn decode(bits: &[u8], order: &[usize], planes: u8) -> Vec<i32> {
    let mut found = vec![vec![false; order.len()]];
    while let Some(level) = found.last().filter(|level| level.len() > 1) {
        let sets = level.len().div_ceil(PARTS);
        found.push(vec![false; sets]);
    }
    let root = found.len() - 1;
    let mut reader = Reader {
        values: vec![0; order.len()],
        found,
        bits,
        next: 0,
    };
    for plane in (0..planes).rev() {
        if reader.visit(root, 0, plane).is_none() {
            break;
        }
    }
    let mut values = vec![0; order.len()];
    for (place, value) in order.iter().zip(reader.values) {
        values[*place] = value;
    }
    values
}

struct Reader<'a> {
    /// The coefficients so far, each in the middle of its range.
    values: Vec<i32>,
    /// Whether a set has a nonzero coefficient, as far as known; as in [`Writer::tops`].
    found: Vec<Vec<bool>>,
    bits: &'a [u8],
    next: usize,
}

impl Reader<'_> {
    /// Returns the next bit; `None` at the end of the prefix.
    fn pull(&mut self) -> Option<bool> {
        let byte = self.bits.get(self.next / 8)?;
        let bit = byte >> (7 - self.next % 8) & 1 == 1;
        self.next += 1;
        Some(bit)
    }

    fn visit(&mut self, level: usize, index: usize, plane: u8) -> Option<()> {
        let is_new = !self.found[level][index];
        if is_new {
            self.found[level][index] = self.pull()?;
        }
        if !self.found[level][index] {
            return Some(());
        }
        if level == 0 {
            return self.refine(index, plane, is_new);
        }
        let end = (PARTS * (index + 1)).min(self.found[level - 1].len());
        (PARTS * index..end).try_for_each(|part| self.visit(level - 1, part, plane))
    }

    /// Reads the sign of a coefficient that becomes nonzero, or one more bit of another one.
    fn refine(&mut self, index: usize, plane: u8, is_new: bool) -> Option<()> {
        let bit = self.pull()?;
        // The middle of the range that the lower planes leave.
        let half = (1 << plane) >> 1;
        let value = self.values[index];
        self.values[index] = if is_new {
            let size = (1 << plane) + half;
            if bit { -size } else { size }
        } else {
            let known = value.abs() >> (plane + 1) << (plane + 1);
            let size = known + (i32::from(bit) << plane) + half;
            size * value.signum()
        };
        Some(())
    }
}
