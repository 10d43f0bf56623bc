//! Encoded pictures of the test pattern, made in advance, so that the encoder is not the load of a
//! measurement.

use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use manyflow_layered::unit::pattern::{Picture, Size, decode, psnr_db};
use manyflow_streams::SourceUnit;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

/// The time between two units.
pub(super) const UNIT_INTERVAL: Duration = Duration::from_millis(100);
/// Units of this size are longer than a link of 10 Mbit/s carries in a tenth of a second.
const SIZE: [u16; 2] = [640, 360];
/// The pictures that are sent in turn: two seconds of the pattern.
const COUNT: u32 = 20;

/// Pictures with their encoded units, which are sent in turn.
#[derive(Debug)]
pub struct Pictures {
    originals: Vec<Picture>,
    units: Vec<Bytes>,
}

impl Pictures {
    /// Draws and encodes the pictures. It takes about a second of processor time.
    ///
    /// # Errors
    /// If the size of the pictures is refused.
    pub fn encode() -> Result<Pictures> {
        let size = Size::new(SIZE[0], SIZE[1]).context("the size of the test picture")?;
        let originals: Vec<_> = (0..COUNT)
            .map(|number| Picture::draw(number, size))
            .collect();
        let units = originals.iter().map(|picture| picture.encode().into());
        Ok(Pictures {
            units: units.collect(),
            originals,
        })
    }

    /// Returns the rate of whole units in bits per second.
    pub fn bits_per_s(&self) -> f64 {
        let bytes: usize = self.units.iter().map(Bytes::len).sum();
        bytes as f64 * 8.0 / self.units.len() as f64 / UNIT_INTERVAL.as_secs_f64()
    }

    /// Sends the units in turn, until the receiving end is dropped.
    pub async fn produce(&self, units: mpsc::Sender<SourceUnit>) {
        let mut ticks = interval(UNIT_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for bytes in self.units.iter().cycle() {
            ticks.tick().await;
            let unit = SourceUnit {
                bytes: bytes.clone(),
                interval: Some(UNIT_INTERVAL),
            };
            if units.send(unit).await.is_err() {
                return;
            }
        }
    }

    /// Returns whether a prefix is the beginning of a unit. A prefix without a whole picture number
    /// is compared with all units.
    pub fn is_prefix(&self, prefix: &[u8]) -> bool {
        match self.place(prefix) {
            Some(place) => self.units[place].starts_with(prefix),
            None => self.units.iter().any(|unit| unit.starts_with(prefix)),
        }
    }

    /// Decodes a prefix; `None` if it does not contain the header of a picture.
    pub fn decode(prefix: &[u8]) -> Option<Picture> {
        decode(prefix).ok()
    }

    /// Returns the peak signal-to-noise ratio of a prefix in dB. A prefix that does not decode has
    /// 0 dB.
    pub fn quality_db(&self, prefix: &[u8]) -> f64 {
        let decoded = self.place(prefix).zip(Pictures::decode(prefix));
        decoded.map_or(0.0, |(place, picture)| {
            psnr_db(&self.originals[place], &picture)
        })
    }

    /// Returns the place of the picture with the number that a prefix begins with.
    fn place(&self, prefix: &[u8]) -> Option<usize> {
        let number = u32::from_be_bytes(*prefix.first_chunk()?);
        let place = usize::try_from(number).ok()?;
        (place < self.units.len()).then_some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_recognised_and_longer_ones_are_better() {
        let pictures = Pictures::encode().unwrap();
        assert!(pictures.bits_per_s() > 10e6);
        let unit = pictures.units[3].clone();
        assert!(pictures.is_prefix(&unit[..3]) && pictures.is_prefix(&unit[..5_000]));
        let mut wrong = unit[..5_000].to_vec();
        wrong[4_000] ^= 1;
        assert!(!pictures.is_prefix(&wrong));
        let [short, long] = [5_000, 50_000].map(|length| pictures.quality_db(&unit[..length]));
        assert!(20.0 < short && short < long, "{short} dB, {long} dB");
        assert_eq!(pictures.quality_db(&unit[..3]), 0.0);
    }
}
