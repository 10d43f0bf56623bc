//! Streams of JetStream between sites.
//!
//! ```text
//!   site a                                                  site b
//!   stream -- consumer -> send.rs  -- message -> overlay -> receive.rs -- publish -> stream
//!                 ^          |                                  |  ^                   |
//!                 +-- ack ---+  <--- stored --- overlay <-------+  +------- ack -------+
//! ```

mod receive;
mod send;

pub(crate) use receive::Receiver;
pub(crate) use send::Sender;

use crate::arrivals::Place;

/// Returns a place as text.
fn format_place(place: Place) -> String {
    format!("{}-{}", place.created_ns, place.sequence)
}

/// Reads a place.
fn parse_place(text: &str) -> Option<Place> {
    // The time of creation may be before 1970.
    let (created_ns, sequence) = text.rsplit_once('-')?;
    Some(Place {
        created_ns: created_ns.parse().ok()?,
        sequence: sequence.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_was_written() {
        for (created_ns, sequence) in [(0, 1), (-5, 7), (i64::MAX, u64::MAX)] {
            let place = Place {
                created_ns,
                sequence,
            };
            assert_eq!(parse_place(&format_place(place)), Some(place));
        }
        for wrong in ["", "1", "1-", "-1", "a-1", "1-2x"] {
            assert_eq!(parse_place(wrong), None, "{wrong}");
        }
    }
}
