//! Menu adaptation: the upper bounds of the intermediate groups (section III-D).

/// The menu of a session.
#[derive(Clone, Debug)]
pub(super) struct Menu {
    groups: usize,
    /// The lowest and highest received rates between which the boundaries are drawn, in bytes per
    /// second; `None` while the menu is inactive.
    range: Option<(f64, f64)>,
    /// The reports since the last adaptation: the sums of the lowest and of the highest rates, and
    /// the number of rounds.
    reported: (f64, f64, u32),
}

impl Menu {
    pub(super) fn new(groups: u8) -> Menu {
        Menu {
            groups: usize::from(groups),
            range: None,
            reported: (0.0, 0.0, 0),
        }
    }

    pub(super) fn is_active(&self) -> bool {
        self.range.is_some()
    }

    /// Records the lowest and highest received rates of a round. A rate above the range counts at
    /// once: a receiver that has just joined would otherwise be held to the rates of those before
    /// it for up to two intervals. The low end does not follow at once, because the first round
    /// after an interruption can have a low rate.
    pub(super) fn on_reports(&mut self, minimum: f64, maximum: f64) {
        let (low, high, count) = self.reported;
        self.reported = (low + minimum, high + maximum, count + 1);
        if let Some((_, high)) = &mut self.range {
            *high = high.max(maximum);
        }
    }

    /// Activates the menu, when the top group is congested. The menu remains active.
    pub(super) fn activate(&mut self) {
        if self.range.is_none() {
            self.adapt();
        }
    }

    /// Ends a menu adaptation interval: an active menu adapts to the reports of the interval.
    pub(super) fn on_interval(&mut self) {
        if self.is_active() {
            self.adapt();
        } else {
            self.reported = (0.0, 0.0, 0);
        }
    }

    fn adapt(&mut self) {
        let (low, high, count) = core::mem::take(&mut self.reported);
        if count > 0 {
            let count = f64::from(count);
            self.range = Some((low / count, high / count));
        }
    }

    /// Returns the upper bound of the intermediate `group`, if there is one: the upper boundary of
    /// its subrange, one of n_g - 2 equal subranges.
    pub(super) fn bound(&self, group: usize) -> Option<f64> {
        let (low, high) = self.range?;
        let is_intermediate = group > 0 && group + 1 < self.groups;
        let subranges = self.groups as f64 - 2.0;
        is_intermediate.then(|| low + (high - low) * group as f64 / subranges)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_is_split_into_equal_subranges() {
        let mut menu = Menu::new(5);
        menu.on_reports(1.0, 7.0);
        assert_eq!(menu.bound(1), None);
        menu.activate();
        let bounds: Vec<_> = (0..5).map(|group| menu.bound(group)).collect();
        assert_eq!(bounds, [None, Some(3.0), Some(5.0), Some(7.0), None]);
    }

    #[test]
    fn an_active_menu_follows_the_reports() {
        let mut menu = Menu::new(3);
        menu.on_reports(1.0, 7.0);
        menu.activate();
        menu.on_reports(1.0, 9.0);
        menu.on_reports(3.0, 11.0);
        assert_eq!(menu.bound(1), Some(11.0), "the range grows at once");
        menu.on_interval();
        assert_eq!(menu.bound(1), Some(10.0));
        menu.on_interval();
        assert_eq!(menu.bound(1), Some(10.0), "nothing new was reported");
        menu.on_reports(3.0, 5.0);
        assert_eq!(menu.bound(1), Some(10.0));
        menu.on_interval();
        assert_eq!(menu.bound(1), Some(5.0), "the range shrinks afterwards");
    }

    #[test]
    fn sessions_of_one_or_two_groups_have_no_intermediate_group() {
        for groups in [1, 2] {
            let mut menu = Menu::new(groups);
            menu.on_reports(1.0, 2.0);
            menu.activate();
            assert!((0..2).all(|group| menu.bound(group).is_none()));
        }
    }
}
