//! Layered messages: a payload of which every prefix up to a cut point is of use, so that daemons
//! may forward less of it over a link whose price is high.
//!
//! Source: this project. The benefit by layer follows the example of the Cost-Benefit paper
//! (section IV-A): voice for $10, pictures for $5, their colours for $2. `docs/multirate.md`
//! describes the mechanism.
//!
//! ```text
//!   the payload:  | table | kept | layer 0 | layer 1 | ... | layer n-1 |
//!                                ^cut point ^cut point     ^cut point  ^whole
//!
//!   the table:    | n: 8 bits | purse in microseconds: 24 bits | kept bytes: 16 bits |
//!                 | bytes: 16 bits, dollars: 16 bits | of each layer ...
//! ```
//!
//! The table is never cut, so that each receiver knows the length of the whole message, and whether
//! the message was cut. The `kept` bytes behind it are never cut either: they are a header of the
//! application. Integers are in network byte order.
//!
//! A message brings a *purse*: seconds of its client's salary, which the client has earned since
//! its last message. Each link that the message crosses sells it for this purse. The purse is paid
//! once, when the message enters, whatever the number of links.

use core::time::Duration;

use bytes::Bytes;
use manyflow_core::{Contents, Length, Payload};

use crate::cost_benefit::{Layer, rate_in_layers};
use crate::sequence::OriginSeq;

/// Bytes of the table before its layers.
const FIRST_BYTES: usize = 6;
/// Bytes of a layer in the table.
const LAYER_BYTES: usize = 4;
/// The largest purse.
const PURSE_MAX_US: u32 = (1 << 24) - 1;

/// The layers of a message, read from the table at the beginning of its payload.
///
/// ```
/// use std::time::Duration;
/// use manyflow_overlay::{LayerSize, Layers};
///
/// // Voice, pictures and colours of a fiftieth of a second.
/// let sizes = [(40, 10), (200, 5), (1000, 2)];
/// let layers = sizes.map(|(bytes, dollars)| LayerSize { bytes, dollars });
/// let mut payload = Layers::encode(Duration::from_millis(20), 0, &layers)?;
/// payload.resize(payload.len() + 1240, 0);
///
/// let layers = Layers::read(&payload)?;
/// assert_eq!(layers.whole_bytes() as usize, payload.len());
/// let cut_points: Vec<_> = layers.cut_points().collect();
/// assert_eq!(cut_points, [18, 58, 258, 1258]);
/// # Ok::<_, manyflow_overlay::LayersError>(())
/// ```
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Layers<'a> {
    table: &'a [u8],
}

/// One layer of a message.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct LayerSize {
    /// The length of the layer in bytes; at least 1.
    pub bytes: u16,
    /// The worth of the layer in relation to the message's other layers; at least 1. No byte may be
    /// worth more than one before it.
    pub dollars: u16,
}

/// The reason why bytes are not a layered payload.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayersError {
    /// The payload ends within its table or its kept bytes.
    #[error("{have} bytes are too few: the table of layers and the kept bytes take {want}")]
    Short {
        /// The number of bytes that are present.
        have: usize,
        /// The number of bytes that can not be cut, as far as the present bytes show.
        want: usize,
    },
    /// There are no layers, or too many.
    #[error("a message has {0} layers: it must have 1 to {max}", max = Layers::MAX)]
    Count(usize),
    /// The purse is outside its range.
    #[error("a message's purse is {0:?}: it must be 1 us to 16.7 s of salary")]
    Purse(Duration),
    /// A layer has no bytes, or is worth nothing.
    #[error("layer {0} has no bytes or is worth nothing: both must be at least 1")]
    Empty(usize),
    /// A byte of a layer is worth more than one of the layer before it.
    #[error("a byte of layer {0} is worth more than one of the layer before it: exchange the two")]
    Order(usize),
    /// Bytes follow the last layer.
    #[error("{0} bytes follow the last layer: the layers must have all bytes of the payload")]
    Trailing(usize),
}

impl<'a> Layers<'a> {
    /// The maximum number of layers.
    pub const MAX: usize = 8;

    /// Returns the table of a message, which brings `purse` of its client's salary, has `kept`
    /// bytes that no daemon may cut, and these layers. The kept bytes and the layers follow it.
    ///
    /// # Errors
    /// Returns an error if a value is outside its range.
    pub fn encode(
        purse: Duration,
        kept: u16,
        layers: &[LayerSize],
    ) -> Result<Vec<u8>, LayersError> {
        check_count(layers.len())?;
        let purse_us = u32::try_from(purse.as_micros()).unwrap_or(u32::MAX);
        if purse_us > PURSE_MAX_US {
            return Err(LayersError::Purse(purse));
        }
        let mut table = ((layers.len() as u32) << 24 | purse_us)
            .to_be_bytes()
            .to_vec();
        table.extend(kept.to_be_bytes());
        for layer in layers {
            table.extend(layer.bytes.to_be_bytes());
            table.extend(layer.dollars.to_be_bytes());
        }
        Layers { table: &table }.check()?;
        Ok(table)
    }

    /// Reads the table at the beginning of a payload, which may have been cut.
    ///
    /// # Errors
    /// Returns an error unless the payload has a valid table with its kept bytes, and at most its
    /// layers behind them.
    pub fn read(payload: &'a [u8]) -> Result<Layers<'a>, LayersError> {
        let short = |want| LayersError::Short {
            have: payload.len(),
            want,
        };
        let count = *payload.first().ok_or(short(FIRST_BYTES))?;
        check_count(count.into())?;
        let table_bytes = FIRST_BYTES + LAYER_BYTES * usize::from(count);
        let table = payload.get(..table_bytes).ok_or(short(table_bytes))?;
        let layers = Layers { table };
        layers.check()?;
        let (least, most) = (layers.least_bytes(), layers.whole_bytes());
        if payload.len() < least as usize {
            return Err(short(least as usize));
        }
        match payload.len().saturating_sub(most as usize) {
            0 => Ok(layers),
            trailing => Err(LayersError::Trailing(trailing)),
        }
    }

    fn check(&self) -> Result<(), LayersError> {
        if self.purse().is_zero() {
            return Err(LayersError::Purse(Duration::ZERO));
        }
        let mut before = None;
        for (place, layer) in self.sizes().enumerate() {
            if layer.bytes == 0 || layer.dollars == 0 {
                return Err(LayersError::Empty(place));
            }
            let (bytes, dollars) = (u32::from(layer.bytes), u32::from(layer.dollars));
            if before.is_some_and(|(of, worth)| dollars * of > worth * bytes) {
                return Err(LayersError::Order(place));
            }
            before = Some((bytes, dollars));
        }
        Ok(())
    }

    /// Returns the salary that the message brings, as the time in which a client of priority 1
    /// earns it.
    pub fn purse(&self) -> Duration {
        let [_, a, b, c, ..] = *self.table else {
            return Duration::ZERO;
        };
        Duration::from_micros(u32::from_be_bytes([0, a, b, c]).into())
    }

    /// Returns the layers.
    pub fn sizes(&self) -> impl Iterator<Item = LayerSize> + use<'a> {
        let (layers, _) = self.table[FIRST_BYTES..].as_chunks::<LAYER_BYTES>();
        layers.iter().map(|[a, b, c, d]| LayerSize {
            bytes: u16::from_be_bytes([*a, *b]),
            dollars: u16::from_be_bytes([*c, *d]),
        })
    }

    /// Returns the length of the table in bytes.
    pub fn table_bytes(&self) -> u32 {
        self.table.len() as u32
    }

    /// Returns the length in bytes of a payload without any layer.
    pub fn least_bytes(&self) -> u32 {
        let kept = u16::from_be_bytes([self.table[4], self.table[5]]);
        self.table_bytes() + u32::from(kept)
    }

    /// Returns the length in bytes of a payload with all layers.
    pub fn whole_bytes(&self) -> u32 {
        let layers = self.sizes().map(|layer| u32::from(layer.bytes));
        self.least_bytes() + layers.sum::<u32>()
    }

    /// Returns the lengths that the payload may be cut to, in ascending order, from the one without
    /// any layer to the whole one.
    pub fn cut_points(&self) -> impl Iterator<Item = u32> + use<'a> {
        let least = self.least_bytes();
        let ends = self.sizes().scan(least, |end, layer| {
            *end += u32::from(layer.bytes);
            Some(*end)
        });
        core::iter::once(least).chain(ends)
    }

    /// Returns the longest cut point within `length`.
    pub fn cut_point_within(&self, length: u32) -> u32 {
        let within = self.cut_points().take_while(|point| *point <= length);
        within.last().unwrap_or(self.least_bytes())
    }

    /// Returns the length that a link sells to message number `sequence` for its purse, where a
    /// purse of one second buys `bought` whole messages at even worth.
    ///
    /// The stream of such messages is a client with a benefit in layers: it buys what it is paid
    /// for ([`Benefit::rate`](crate::cost_benefit::Benefit::rate)). Its rate is a number of bytes
    /// of each message, between two cut points. Each message ends at one of the two, in this
    /// proportion. All links choose by the number of the message, so that a further link with the
    /// same price cuts no message again.
    pub fn bytes_for(&self, bought: f64, sequence: OriginSeq) -> u32 {
        let (least, whole) = (self.least_bytes(), self.whole_bytes());
        let all = f64::from(whole - least);
        let dollars: f64 = self.sizes().map(|layer| f64::from(layer.dollars)).sum();
        let purse_s = self.purse().as_secs_f64();
        // The whole message counts as one message, worth one on average.
        let layers = self.sizes().map(|layer| Layer {
            messages_per_s: f64::from(layer.bytes) / all / purse_s,
            dollars: f64::from(layer.dollars) / dollars / purse_s,
        });
        let wanted = f64::from(least) + all * rate_in_layers(bought, layers) * purse_s;
        let mut before = least;
        for point in self.cut_points() {
            if f64::from(point) > wanted {
                let share = (wanted - f64::from(before)) / f64::from(point - before);
                return if draw(sequence) < share {
                    point
                } else {
                    before
                };
            }
            before = point;
        }
        whole
    }
}

fn check_count(count: usize) -> Result<(), LayersError> {
    match count {
        1..=Layers::MAX => Ok(()),
        _ => Err(LayersError::Count(count)),
    }
}

/// Returns a number in 0..1. The numbers of successive messages are spread evenly (multiples of the
/// golden ratio, modulo 1).
fn draw(sequence: OriginSeq) -> f64 {
    let turns = (sequence.number() as u32).wrapping_mul(0x9E37_79B9);
    f64::from(turns) / 4_294_967_296.0
}

/// A payload that a daemon can cut.
pub trait Cut: Payload {
    /// Returns the bytes; none for a payload that is only a length, which is never cut.
    fn bytes(&self) -> &[u8];

    /// Returns the first `length` bytes, at most all. A live payload shares them.
    #[must_use]
    fn cut(&self, length: u32) -> Self;
}

impl Cut for Bytes {
    fn bytes(&self) -> &[u8] {
        self
    }

    fn cut(&self, length: u32) -> Bytes {
        self.slice(..self.len().min(length as usize))
    }
}

impl Cut for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }

    fn cut(&self, length: u32) -> Vec<u8> {
        self[..self.len().min(length as usize)].to_vec()
    }
}

impl Cut for Contents {
    fn bytes(&self) -> &[u8] {
        Contents::bytes(self).unwrap_or_default()
    }

    fn cut(&self, length: u32) -> Contents {
        let bytes = Cut::bytes(self);
        bytes[..bytes.len().min(length as usize)].into()
    }
}

impl Cut for Length {
    fn bytes(&self) -> &[u8] {
        &[]
    }

    fn cut(&self, length: u32) -> Length {
        Length(self.0.min(length))
    }
}

#[cfg(test)]
mod tests;
