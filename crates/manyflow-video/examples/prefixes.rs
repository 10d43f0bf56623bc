//! Writes what a receiver gets of a stream if units are cut, for `scripts/stream-video prefixes`:
//! one file for each number of pictures and packets that one unit, or all of them, have left.
//!
//!     cargo run -p manyflow-video --example prefixes FILE FOLDER
//!
//! Prints a line for each file: its name, and the numbers of its pictures and of substitutes.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a program reads and writes files, and prints"
)]

use std::error::Error;
use std::fs;
use std::path::Path;

use manyflow_video::{Format, Index, Player, Splitter, VideoUnit};

/// The unit that is cut alone: those before and behind are whole.
const CUT: usize = 1;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, folder] = &arguments[..] else {
        return Err("usage: prefixes FILE FOLDER".into());
    };
    let mut splitter = Splitter::new(None);
    splitter.push(&fs::read(file)?)?;
    splitter.finish()?;
    let units: Vec<VideoUnit> = std::iter::from_fn(|| splitter.poll_unit()).collect();
    let mut longest = 0;
    for unit in &units {
        longest = longest.max(Index::decode(&unit.bytes)?.0.items.len());
    }
    for format in [Format::MpegTs, Format::AnnexB] {
        for items in 0..=longest {
            for all in [false, true] {
                write(&units, items, all, format, Path::new(folder))?;
            }
        }
    }
    Ok(())
}

/// Writes the stream with units of this number of items.
fn write(
    units: &[VideoUnit],
    items: usize,
    all: bool,
    format: Format,
    folder: &Path,
) -> Result<(), Box<dyn Error>> {
    let (mut player, mut out) = (Player::new(format), Vec::new());
    let (mut pictures, mut substitutes, mut is_av1) = (0, 0, false);
    for (number, unit) in (0..).zip(units) {
        let is_cut = all || number as usize == CUT;
        let prefix = if is_cut {
            cut(&unit.bytes, items)?
        } else {
            &unit.bytes
        };
        let played = player.play(number, prefix, &mut out)?;
        pictures += played.pictures;
        substitutes += played.substitutes;
        is_av1 |= played.is_av1;
    }
    let scope = if all { "all" } else { "one" };
    let extension = match (format, is_av1) {
        (Format::MpegTs, false) => "ts",
        (Format::MpegTs, true) => "ivf",
        (Format::AnnexB, false) => "h264",
        (Format::AnnexB, true) => "obu",
    };
    let name = format!("{scope}-{items:03}.{extension}");
    fs::write(folder.join(&name), out)?;
    println!("{name} {pictures} {substitutes}");
    Ok(())
}

/// The longest prefix that has the first `items` items of a unit, and no further one.
fn cut(unit: &[u8], items: usize) -> Result<&[u8], Box<dyn Error>> {
    let (index, head) = Index::decode(unit)?;
    let kept: usize = index
        .items
        .iter()
        .take(items)
        .map(|item| item.bytes as usize)
        .sum();
    let next = index
        .items
        .get(items)
        .map_or(0, |item| item.bytes as usize - 1);
    Ok(&unit[..head + kept + next])
}
