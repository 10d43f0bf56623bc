//! Tests of the places of groups.

use super::*;

/// A session whose receivers join at once what their paths carry.
struct Session {
    places: Places,
    paths: Vec<f64>,
    menu: Vec<f64>,
}

impl Session {
    fn new(paths: &[f64], menu: &[f64]) -> Session {
        Session {
            places: Places::new(),
            paths: paths.to_vec(),
            menu: menu.to_vec(),
        }
    }

    fn shown(&self) -> Vec<Shown> {
        let of_group = |group: usize| {
            let next = self.menu.get(group + 1).copied().unwrap_or(f64::INFINITY);
            let low = if group == 0 { 0.0 } else { self.menu[group] };
            let paths = self.paths.iter().copied();
            let mine: Vec<f64> = paths.filter(|path| (low..next).contains(path)).collect();
            Shown {
                receivers: mine.len() as u32,
                is_congested: false,
                carried: [
                    mine.iter().copied().fold(f64::INFINITY, f64::min),
                    mine.iter().copied().fold(0.0, f64::max),
                ],
            }
        };
        (0..self.menu.len()).map(of_group).collect()
    }

    /// Runs some rounds; each group grows to the lowest of its paths. Returns the number of new
    /// menus.
    fn run(&mut self, rounds: u32) -> u32 {
        let mut menus = 0;
        for _ in 0..rounds {
            let shown = self.shown();
            for (rate, group) in self.menu.iter_mut().zip(&shown) {
                if group.receivers > 0 {
                    *rate = HEADROOM * group.carried[0];
                }
            }
            self.places.on_round(&shown);
            if let Some(menu) = self.places.poll_menu(&self.menu) {
                self.menu = menu;
                menus += 1;
            }
        }
        menus
    }

    fn is_at(&self, paths: &[f64]) -> bool {
        let wanted = paths.iter().map(|path| HEADROOM * path);
        self.menu.len() == paths.len() && self.menu.iter().zip(wanted).all(|(a, b)| is_same(*a, b))
    }
}

/// The receivers of the paper's Figure 2.
const FIGURE_2: [f64; 16] = [
    1., 1., 1., 1., 2., 3., 3., 3., 3., 3., 4., 5., 5., 6., 6., 6.,
];

#[test]
fn the_menu_of_figure_2_is_found_from_any_other_and_kept() {
    for from in [
        [0.1, 0.2, 0.3, 0.4, 0.5],
        [1.0, 3.0, 4.0, 5.0, 6.0],
        [0.5, 7.0, 8.0, 9.0, 10.0],
        [1.0, 1.1, 1.2, 1.3, 7.0],
    ] {
        let mut session = Session::new(&FIGURE_2, &from);
        session.run(400);
        assert!(
            session.is_at(&[1., 2., 3., 5., 6.]),
            "{from:?}: {:?}",
            session.menu
        );
        assert_eq!(session.run(800), 0, "{from:?}: it is kept");
    }
}

/// Paths are spread evenly, with as many receivers behind each; more of them than groups.
#[test]
fn the_best_menu_for_many_paths_is_found() {
    for count in 6..16 {
        let path = |place: usize| 1.0 + 5.0 * (place % count) as f64 / (count - 1) as f64;
        let paths: Vec<f64> = (0..3 * count).map(path).collect();
        let mut session = Session::new(&paths, &[0.1, 0.2, 0.3, 0.4, 0.5]);
        session.run(600);
        let share = |path: &f64| {
            let carried = session.menu.iter().filter(|rate| *rate <= path);
            carried.copied().fold(0.0, f64::max) / path
        };
        let efficiency = paths.iter().map(share).sum::<f64>() / paths.len() as f64;
        let best = crate::optimum::best_menu(&paths, 5).unwrap().efficiency;
        assert!(
            efficiency >= HEADROOM * best - GAIN_MIN - 1e-9,
            "{count}: {efficiency} of {best}, {:?}",
            session.menu
        );
    }
}

#[test]
fn a_menu_waits_until_receivers_no_longer_change_their_groups() {
    let mut session = Session::new(&[1.0, 2.0, 2.0], &[1.0, 4.0]);
    for _ in 1..STEADY_ROUNDS {
        assert_eq!(session.run(1), 0);
    }
    session.paths.push(1.0);
    for _ in 0..STEADY_ROUNDS - 1 {
        assert_eq!(session.run(1), 0);
    }
    assert_eq!(session.run(1), 1);
}

#[test]
fn a_report_of_a_path_that_joins_nothing_is_believed_once() {
    let mut session = Session::new(&[1.0, 2.0], &[1.0, 2.0, 4.0]);
    let mut menus = 0;
    for _ in 0..400 {
        let mut shown = session.shown();
        shown[1].carried[1] = 20.0;
        session.places.on_round(&shown);
        if let Some(menu) = session.places.poll_menu(&session.menu) {
            (session.menu, menus) = (menu, menus + 1);
        }
    }
    assert!(menus <= 1, "{menus} menus");
}

/// Cross traffic comes and goes at the path of 2, and the lowest group is never calm.
#[test]
fn a_menu_is_judged_although_a_group_is_always_congested() {
    let mut session = Session::new(&[2.0, 9.0, 9.0, 9.0], &[1.9, 9.5, 10.0]);
    for _ in 0..400 {
        let mut shown = session.shown();
        shown[0].is_congested = true;
        shown[0].carried[0] = session.menu[0];
        session.places.on_round(&shown);
        if let Some(menu) = session.places.poll_menu(&session.menu) {
            session.menu = menu;
        }
    }
    let wanted = HEADROOM * 9.0;
    let is_there = session.menu.iter().any(|rate| is_same(*rate, wanted));
    assert!(is_there, "{:?}", session.menu);
}

/// A liar in the lowest group reports a path of 10, and receivers of the upper groups change them
/// every 30 rounds.
#[test]
fn a_false_report_is_refused_although_receivers_of_other_groups_change_them() {
    let paths = [1.0, 1.0, 1.0, 1.0, 3.0, 3.0, 3.0, 6.0, 6.0];
    let mut session = Session::new(&paths, &[1.0, 3.0, 6.0]);
    for round in 0..400 {
        let mut shown = session.shown();
        shown[0].carried[1] = 10.0;
        if round % 30 == 0 {
            shown[1].receivers += 1;
            shown[2].receivers = shown[2].receivers.saturating_sub(1);
        }
        session.places.on_round(&shown);
        if let Some(menu) = session.places.poll_menu(&session.menu) {
            session.menu = menu;
        }
    }
    assert!(session.menu[2] < 7.0, "{:?}", session.menu);
}

#[test]
fn groups_grow_although_the_next_menu_waits() {
    let mut session = Session::new(&[2.0, 4.0], &[1.0, 3.0, 4.0]);
    session.places.menus = FREE_MENUS + 8;
    (session.places.is_new, session.places.all) = (true, 2);
    assert_eq!(
        session.places.limit(0, 1.0),
        1.0,
        "receivers may still join"
    );
    assert_eq!(session.run(JOINING_ROUNDS), 0, "the next menu waits");
    assert_eq!(session.places.limit(0, 1.0), f64::INFINITY);
}

#[test]
fn the_lowest_group_keeps_its_rate_for_receivers_that_have_left() {
    let mut session = Session::new(&[1.0, 3.0, 5.0], &[1.0, 3.0]);
    session.run(STEADY_ROUNDS + 1);
    let before = session.menu[0];
    session.paths.remove(0);
    session.run(KEPT_ROUNDS / 2);
    assert_eq!(session.menu[0], before);
    session.run(2 * KEPT_ROUNDS);
    assert!(session.menu[0] > 2.0 * before, "{:?}", session.menu);
}
