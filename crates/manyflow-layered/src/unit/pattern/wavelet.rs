//! The reversible 5/3 wavelet in integers, by lifting. Each level halves the picture in both
//! directions; low frequencies are moved to the top left.

use super::Size;

/// The number of levels.
pub(super) const LEVELS: u32 = 5;

/// A row or a column in the values of a picture.
struct Line {
    start: usize,
    step: usize,
    length: usize,
}

impl Line {
    fn places(&self) -> impl Iterator<Item = usize> {
        (self.start..).step_by(self.step).take(self.length)
    }
}

/// Returns the width and height of the part of a picture that a level transforms.
pub(super) fn part(size: Size, level: u32) -> (usize, usize) {
    let halved = |length: usize| length.div_ceil(1 << level);
    (halved(size.width()), halved(size.height()))
}

fn rows(size: Size, level: u32) -> impl Iterator<Item = Line> {
    let (length, height) = part(size, level);
    (0..height).map(move |y| Line {
        start: y * size.width(),
        step: 1,
        length,
    })
}

fn columns(size: Size, level: u32) -> impl Iterator<Item = Line> {
    let (width, length) = part(size, level);
    (0..width).map(move |start| Line {
        start,
        step: size.width(),
        length,
    })
}

/// Transforms the points of a picture to coefficients.
pub(super) fn transform(values: &mut [i32], size: Size) {
    let mut spare = Vec::new();
    for level in 0..LEVELS {
        for line in rows(size, level).chain(columns(size, level)) {
            split(values, &line, &mut spare);
        }
    }
}

/// Transforms coefficients back to points.
pub(super) fn invert(values: &mut [i32], size: Size) {
    let mut spare = Vec::new();
    for level in (0..LEVELS).rev() {
        for line in columns(size, level).chain(rows(size, level)) {
            join(values, &line, &mut spare);
        }
    }
}

/// Splits a line into its low frequencies, and behind them the high ones.
fn split(values: &mut [i32], line: &Line, spare: &mut Vec<i32>) {
    spare.clear();
    spare.extend(line.places().map(|place| values[place]));
    for at in (1..spare.len()).step_by(2) {
        spare[at] -= predicted(spare, at);
    }
    for at in (0..spare.len()).step_by(2) {
        spare[at] += update(spare, at);
    }
    let low = spare.iter().step_by(2);
    let sorted = low.chain(spare.iter().skip(1).step_by(2));
    for (place, value) in line.places().zip(sorted) {
        values[place] = *value;
    }
}

/// Reverses [`split`].
fn join(values: &mut [i32], line: &Line, spare: &mut Vec<i32>) {
    spare.clear();
    spare.resize(line.length, 0);
    let low = (0..line.length).step_by(2);
    let sorted = low.chain((1..line.length).step_by(2));
    for (place, at) in line.places().zip(sorted) {
        spare[at] = values[place];
    }
    for at in (0..spare.len()).step_by(2) {
        spare[at] -= update(spare, at);
    }
    for at in (1..spare.len()).step_by(2) {
        spare[at] += predicted(spare, at);
    }
    for (place, value) in line.places().zip(spare.iter()) {
        values[place] = *value;
    }
}

/// The prediction of an odd value: the mean of its neighbours, mirrored at the end.
fn predicted(line: &[i32], at: usize) -> i32 {
    let before = line[at - 1];
    (before + line.get(at + 1).unwrap_or(&before)) >> 1
}

/// The change of an even value that keeps the mean: a quarter of its neighbours' differences.
fn update(line: &[i32], at: usize) -> i32 {
    let after = line.get(at + 1);
    let before = at.checked_sub(1).map(|before| line[before]);
    match (before, after) {
        (Some(before), Some(after)) => (before + after + 2) >> 2,
        (Some(only), None) => (2 * only + 2) >> 2,
        (None, Some(only)) => (2 * only + 2) >> 2,
        (None, None) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inverse_gives_the_same_points_at_any_size() {
        for (width, height) in [(1, 1), (2, 1), (1, 7), (5, 3), (33, 64), (160, 90)] {
            let size = Size::new(width, height).unwrap();
            let points: Vec<i32> = (0..size.points() as i32)
                .map(|at| at * 7919 % 256 - 128)
                .collect();
            let mut values = points.clone();
            transform(&mut values, size);
            invert(&mut values, size);
            assert_eq!(values, points, "{width}x{height}");
        }
    }

    #[test]
    fn an_even_picture_has_one_band_that_is_not_zero() {
        let size = Size::new(64, 32).unwrap();
        let mut values = vec![9; size.points()];
        transform(&mut values, size);
        let (width, height) = part(size, LEVELS);
        let sum: i32 = values.iter().sum();
        assert_eq!(sum, 9 * (width * height) as i32);
    }
}
