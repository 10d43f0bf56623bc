//! The rates that paths carry, as far as the sender knows them (second edition).
//!
//! A round tells of each group how many receivers have it as their top group, and the lowest and
//! highest rate that their paths carry. A menu with other rates divides the receivers elsewhere, so
//! that each menu shows something that the one before did not:
//!
//! ```text
//!   menu 1, 3, 5      4 receivers: 1 to 2        8 receivers: 3 to 4
//!   menu 1, 2, 4      3 receivers: 1   1: 2  to 3  ...
//!   known             3: 1,  1: 2,  7: 3,  1: 4
//! ```

use super::measured::EXCEEDS;
use super::places::HEADROOM;

/// The distance within which two rates are the same, as a share of the higher one. A receiver does
/// not leave the group for a path that is faster by as much, so the two never show apart.
const SAME: f64 = 1.0 - HEADROOM / EXCEEDS;

/// Receivers whose paths carry rates in a range: one of them the lowest rate, one the highest.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) struct Span {
    /// In bytes per second.
    pub(super) lowest: f64,
    pub(super) highest: f64,
    /// The number of receivers, at least 1.
    pub(super) receivers: u32,
    /// Whether receivers can be hoped to join a group at the highest rate: none did not join one
    /// that it could.
    pub(super) is_hoped: bool,
}

impl Span {
    /// Returns whether all these paths carry the same.
    fn is_one(&self) -> bool {
        self.receivers == 1 || is_same(self.lowest, self.highest)
    }
}

/// The rates that the paths of a session carry, as far as they are known.
#[derive(Clone, Debug, Default)]
pub(super) struct Census {
    /// In ascending order.
    spans: Vec<Span>,
}

pub(super) fn is_same(a: f64, b: f64) -> bool {
    (a - b).abs() <= SAME * a.max(b)
}

impl Census {
    /// Forgets what one menu alone does not show.
    pub(super) fn clear(&mut self) {
        self.spans.clear();
    }

    /// Adds what a menu shows: the receivers of each group that has some, in ascending order.
    pub(super) fn add(&mut self, groups: impl Iterator<Item = Span>) {
        let known = core::mem::take(&mut self.spans);
        for group in groups {
            match refined(&known, group).filter(|_| group.is_hoped) {
                Some(parts) => self.spans.extend(parts),
                None => self.spans.push(group),
            }
        }
    }

    /// Returns pairs of a rate and the number of receivers whose paths carry it, in ascending
    /// order. Of a range of unknown rates, all but one count as the highest: a further group for
    /// them gains at most that much, and shows how many they are.
    pub(super) fn hoped(&self) -> Vec<(f64, f64)> {
        let mut hoped = Vec::with_capacity(2 * self.spans.len());
        for span in &self.spans {
            if span.is_one() || !span.is_hoped {
                hoped.push((span.lowest, f64::from(span.receivers)));
            } else {
                hoped.push((span.lowest, 1.0));
                hoped.push((span.highest, f64::from(span.receivers - 1)));
            }
        }
        hoped.sort_by(|a, b| a.0.total_cmp(&b.0));
        hoped
    }

    /// Returns up to `count` rates that divide the ranges of which least is known, for groups that
    /// are not needed elsewhere. The receivers in a range could gain at least the share `least` of
    /// one path.
    pub(super) fn dividing(&self, count: usize, least: f64) -> Vec<f64> {
        let gain = |span: &Span| f64::from(span.receivers) * (1.0 - span.lowest / span.highest);
        let is_unknown = |span: &&Span| !span.is_one() && span.receivers > 2;
        let mut unknown: Vec<Span> = self.spans.iter().filter(is_unknown).copied().collect();
        let mut dividing = Vec::with_capacity(count);
        for _ in 0..count {
            let widest = (0..unknown.len())
                .filter(|place| gain(&unknown[*place]) > least)
                .max_by(|a, b| gain(&unknown[*a]).total_cmp(&gain(&unknown[*b])));
            let Some(span) = widest.map(|place| unknown.swap_remove(place)) else {
                break;
            };
            let middle = (span.lowest + span.highest) / 2.0;
            dividing.push(middle);
            // They are taken to be spread evenly.
            let receivers = span.receivers.div_ceil(2);
            let (lowest, highest) = (span.lowest, span.highest);
            for (lowest, highest) in [(lowest, middle), (middle, highest)] {
                unknown.push(Span {
                    lowest,
                    highest,
                    receivers,
                    ..span
                });
            }
        }
        dividing
    }
}

/// Returns what was known about the receivers of a group, divided at its ends; `None` if it
/// contradicts what the group shows.
fn refined(known: &[Span], group: Span) -> Option<Vec<Span>> {
    let is_below = |a: f64, b: f64| a < b && !is_same(a, b);
    let overlaps = |span: &&Span| {
        !is_below(span.highest, group.lowest) && !is_below(group.highest, span.lowest)
    };
    let (mut parts, mut divided, mut counted) = (Vec::new(), None, 0);
    for span in known.iter().filter(overlaps) {
        let is_divided =
            is_below(span.lowest, group.lowest) || is_below(group.highest, span.highest);
        if !is_divided {
            counted += span.receivers;
        } else if divided.replace(parts.len()).is_some() {
            // How many of each belong to the group is not known.
            return None;
        }
        // The group shows newer rates.
        parts.push(Span {
            lowest: span.lowest.clamp(group.lowest, group.highest),
            highest: span.highest.clamp(group.lowest, group.highest),
            ..*span
        });
    }
    let rest = group.receivers.checked_sub(counted)?;
    match divided {
        None if rest == 0 => {}
        Some(place) if (1..parts[place].receivers).contains(&rest) => parts[place].receivers = rest,
        _ => return None,
    }
    let is_valid = |part: &Span| part.receivers > 1 || is_same(part.lowest, part.highest);
    let is_whole = is_same(parts.first()?.lowest, group.lowest)
        && is_same(parts.last()?.highest, group.highest);
    if !is_whole || !parts.iter().all(is_valid) {
        return None;
    }
    parts.first_mut()?.lowest = group.lowest;
    parts.last_mut()?.highest = group.highest;
    Some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(lowest: f64, highest: f64, receivers: u32) -> Span {
        Span {
            lowest,
            highest,
            receivers,
            is_hoped: true,
        }
    }

    fn after(menus: &[&[Span]]) -> Vec<(f64, f64)> {
        let mut census = Census::default();
        for menu in menus {
            census.add(menu.iter().copied());
        }
        census.hoped()
    }

    /// Both accept a group at 97 % of the higher one, so their numbers never show apart.
    #[test]
    fn paths_whose_receivers_stay_in_the_same_group_count_as_one() {
        let (lower, higher) = (5.21, 5.52);
        assert!(HEADROOM * higher < EXCEEDS * lower, "nobody leaves");
        assert_eq!(after(&[&[span(lower, higher, 5)]]), [(lower, 5.0)]);
    }

    #[test]
    fn of_unknown_receivers_all_but_one_are_hoped_to_carry_the_most() {
        let menu = [span(1.0, 3.0, 5), span(4.0, 4.0, 2)];
        assert_eq!(after(&[&menu]), [(1.0, 1.0), (3.0, 4.0), (4.0, 2.0)]);
    }

    /// Paths of 1 (three), 2, 3 (seven), 4: two menus show them all.
    #[test]
    fn a_second_menu_divides_what_the_first_has_shown() {
        let (first, second) = (
            [span(1.0, 2.0, 4), span(3.0, 4.0, 8)],
            [span(1.0, 1.0, 3), span(2.0, 3.0, 8), span(4.0, 4.0, 1)],
        );
        let all = [(1.0, 3.0), (2.0, 1.0), (3.0, 7.0), (4.0, 1.0)];
        assert_eq!(after(&[&first, &second]), all);
        assert_eq!(after(&[&first, &second, &first]), all, "it is remembered");
    }

    #[test]
    fn spare_groups_divide_the_ranges_of_which_least_is_known() {
        let mut census = Census::default();
        let menu = [span(1.0, 1.2, 8), span(2.0, 6.0, 8), span(7.0, 9.0, 2)];
        census.add(menu.into_iter());
        assert!(census.dividing(0, 0.1).is_empty());
        assert_eq!(census.dividing(3, 0.1), [4.0, 3.0, 5.0]);
        assert_eq!(census.dividing(3, 2.5), [4.0], "the rest gains less");
        census.add([span(2.0, 6.0, 2)].into_iter());
        assert!(census.dividing(3, 0.1).is_empty(), "these two are known");
    }

    #[test]
    fn what_contradicts_a_group_is_forgotten() {
        let first = [span(1.0, 1.0, 3), span(2.0, 2.0, 1), span(3.0, 4.0, 8)];
        let found = after(&[&first, &[span(1.0, 2.0, 6), span(3.0, 4.0, 8)]]);
        assert_eq!(
            found[..2],
            [(1.0, 1.0), (2.0, 5.0)],
            "receivers have joined"
        );
        let found = after(&[&first, &[span(1.0, 2.5, 4), span(3.0, 4.0, 8)]]);
        assert_eq!(found[..2], [(1.0, 1.0), (2.5, 3.0)], "a path is faster");
    }
}
