//! Tests of prices, budgets and updates in isolation. `tests/overlay_cost_benefit.rs` tests them
//! together.

use std::sync::Arc;

use core::time::Duration;

use super::*;
use crate::message::{CostUpdate, Data, Frame, GroupId, LinkState, Message};
use crate::sequence::{ChangeSeq, LinkSeq, OriginSeq};
use crate::{Body, Topology};

/// Returns the site of the second daemon in a chain of four. Group 1 has a member at the last
/// daemon, group 2 at the first.
fn chain() -> Site {
    let links: Vec<_> = (0..3)
        .map(|daemon| (DaemonId(daemon), DaemonId(daemon + 1), 1))
        .collect();
    let topology = Topology::new((0..4).map(DaemonId), &links).unwrap();
    let mut site = Site::new(DaemonId(1), Arc::new(topology));
    site.groups.set(GroupId(1), DaemonId(3), 1, ChangeSeq(1));
    site.groups.set(GroupId(2), DaemonId(0), 1, ChangeSeq(1));
    site
}

fn controller(config: CostBenefitConfig) -> CostBenefit {
    CostBenefit::new(config, DaemonId(1), 7).unwrap()
}

fn millis(millis: u64) -> Time {
    Time::ZERO + Duration::from_millis(millis)
}

fn update(to: u16, messages: u16) -> Control {
    let (to, queue) = (DaemonId(to), 16 * messages);
    let links = [Some(LinkState { to, queue }), None, None];
    Control::Cost(CostUpdate { version: 0, links })
}

fn request(client: u32, group: u32) -> Request {
    Request {
        client: ClientId(client),
        groups: GroupId(group).into(),
        bytes: 1000,
        purse: None,
    }
}

#[test]
fn the_price_is_zero_on_an_empty_link_and_prohibitive_at_the_soft_limit() {
    let config = CostBenefitConfig::default();
    assert_eq!(price(0.0, &config), 0.0);
    assert!((price(100.0, &config) - 20.0).abs() < 1e-9);
    // 20 (e^0.5 - 1) / (e - 1)
    assert!((price(50.0, &config) - 7.5508).abs() < 1e-4);
}

#[test]
fn a_message_costs_the_prices_of_its_links_and_the_fee() {
    let site = chain();
    let mut controller = controller(CostBenefitConfig::default());
    let behind = site.topology.link(DaemonId(1), DaemonId(0)).unwrap();
    controller.on_control(Time::ZERO, DaemonId(2), &update(3, 100), &site);
    controller.on_queue(Time::ZERO, behind, 50);
    let later = millis(1000);
    let [far, near, nowhere] =
        [1, 2, 3].map(|group| controller.cost(later, &GroupId(group).into(), &site));
    assert!((far - 21.0).abs() < 1e-9);
    assert!((near - 8.5508).abs() < 1e-4);
    assert_eq!(nowhere, 1.0);
}

#[test]
fn updates_about_links_that_do_not_exist_are_ignored() {
    let site = chain();
    let mut controller = controller(CostBenefitConfig::default());
    for (from, to) in [(3, 3), (0, 3), (2, 60_000)] {
        controller.on_control(Time::ZERO, DaemonId(from), &update(to, 100), &site);
    }
    assert_eq!(controller.cost(Time::ZERO, &GroupId(1).into(), &site), 1.0);
}

#[test]
fn a_daemon_without_clients_keeps_state_for_links_with_prices_only() {
    let site = chain();
    let mut controller = controller(CostBenefitConfig::default());
    let own = site.topology.link(DaemonId(1), DaemonId(2)).unwrap();
    let kept = |controller: &CostBenefit| {
        let links = controller.remote_queues.waiting(millis(2)).count() + controller.updates.len();
        (links, controller.clients.len(), controller.retries.len())
    };
    controller.on_control(millis(1), DaemonId(2), &update(3, 10), &site);
    // Messages of 10,000 senders to as many groups pass through.
    for flow in 0..10_000 {
        let data = Data {
            group: GroupId(flow),
            version: 0,
            sequence: OriginSeq::new(1),
            sender: ClientId(flow),
            sent_us: 0,
        };
        let message = Message {
            origin: DaemonId(0),
            copy: Default::default(),
            body: Body::Data(data),
        };
        controller.on_queue(millis(1), own, 1 + flow as usize % 10);
        controller.on_arrival(millis(1), &message, &data, 1000);
    }
    assert_eq!(kept(&controller), (2, 0, 0));
    controller.on_control(millis(2), DaemonId(2), &update(3, 0), &site);
    controller.on_queue(millis(2), own, 0);
    while let Some(at) = controller.poll_timeout()
        && at < millis(3000)
    {
        controller.handle_timeout(at, &site);
    }
    assert_eq!(kept(&controller), (0, 0, 0));
}

/// Returns when updates were sent up to `until`, in milliseconds, with the first queue in each.
fn updates_until(
    controller: &mut CostBenefit,
    until: Time,
    site: &Site,
) -> Vec<(u64, Option<u16>)> {
    let mut sent = Vec::new();
    while let Some(at) = controller.poll_timeout()
        && at <= until
    {
        controller.handle_timeout(at, site);
        while let Some((audience, Control::Cost(update))) = controller.poll_control() {
            assert_eq!(audience, Audience::Everyone);
            let queue = update.links[0].map(|state| state.queue);
            sent.push((at.as_nanos() / 1_000_000, queue));
        }
    }
    sent
}

#[test]
fn updates_come_every_tmin_while_a_link_is_congested_and_every_tmax_after() {
    let site = chain();
    let mut controller = controller(CostBenefitConfig::default());
    assert_eq!(controller.poll_timeout(), None, "no update is due yet");
    let link = site.topology.link(DaemonId(1), DaemonId(2)).unwrap();
    controller.on_queue(millis(1000), link, 40);
    let busy = updates_until(&mut controller, millis(1999), &site);
    assert_eq!(busy.len(), 20);
    assert!(busy.windows(2).all(|pair| pair[1].0 - pair[0].0 == 50));
    assert_eq!(busy[19].1, Some(640));
    controller.on_queue(millis(1999), link, 0);
    let idle = updates_until(&mut controller, millis(10_000), &site);
    // The average falls below half a message after 88 ms.
    let queues: Vec<_> = idle.iter().map(|update| update.1).collect();
    assert_eq!(queues.len(), 6, "{idle:?}");
    assert_eq!(queues[2..], [Some(0), None, None, None]);
    assert!(
        idle[2..]
            .windows(2)
            .all(|pair| pair[1].0 - pair[0].0 == 2500)
    );
}

#[test]
fn control_takes_at_most_half_a_percent_of_two_megabits_for_a_congested_link() {
    let share = |states: usize, every: Duration| {
        let mut links = [None; CostUpdate::LINKS];
        let state = LinkState {
            to: DaemonId(1),
            queue: 1,
        };
        links[..states].fill(Some(state));
        let message = Message {
            origin: DaemonId(0),
            copy: Default::default(),
            body: Body::Control(Control::Cost(CostUpdate { version: 0, links })),
        };
        let frame = Frame::Segment {
            sequence: LinkSeq(0),
            message,
        };
        f64::from(frame.wire_bytes()) * 8.0 / every.as_secs_f64() / 2e6
    };
    let config = CostBenefitConfig::default();
    assert!(share(1, config.update_min) <= 0.005);
    assert!(share(0, config.update_max) <= 0.0001);
}

#[test]
fn money_is_conserved_and_no_client_starves() {
    let site = chain();
    let mut controller = controller(CostBenefitConfig::default());
    let mut random = Pcg64Mcg::seed_from_u64(3);
    let mut bought = BTreeMap::new();
    let mut next = 0;
    for step in 0..100_000u64 {
        let now = millis(20 * step);
        if bought.len() < 5 || bought.len() < 50 && random.random_bool(0.5) {
            controller.add_client(now, ClientId(next), random.random_range(0.1..10.0));
            bought.insert(next, (now, 0u32));
            next += 1;
        } else {
            let place = random.random_range(0..bought.len());
            let client = *bought.keys().nth(place).unwrap();
            controller.remove_client(now, ClientId(client));
            let (since, messages) = bought.remove(&client).unwrap();
            // Even a client that is paid a tenth as often as others buys a message for $8 within
            // seconds.
            let stayed = (now - since).as_secs_f64();
            assert!(stayed < 40.0 || messages > 0, "{client} stayed {stayed} s");
        }
        controller.on_control(
            now,
            DaemonId(2),
            &update(3, random.random_range(0..70)),
            &site,
        );
        controller.handle_timeout(now, &site);
        let connected: Vec<u32> = bought.keys().copied().collect();
        for client in connected {
            if controller.try_admit(now, &request(client, 1), &site) {
                bought.get_mut(&client).unwrap().1 += 1;
            }
        }
        while controller.poll_ready().is_some() {}
        let Ledger {
            given,
            spent,
            capped,
            taken,
        } = controller.ledger();
        assert_eq!(given, spent + capped + taken + controller.savings());
    }
    assert!(controller.ledger().spent > 0 && controller.ledger().capped > 0);
    assert_eq!(controller.retries.len().max(bought.len()), bought.len());
}

#[test]
fn the_salary_period_follows_equations_3_and_4() {
    let site = chain();
    let config = CostBenefitConfig {
        randomise: false,
        // This minimum is reached within the first 10 s.
        salary_period: (Duration::from_millis(5), Duration::from_millis(300)),
        ..CostBenefitConfig::default()
    };
    let mut controller = controller(config.clone());
    let client = ClientId(1);
    controller.add_client(Time::ZERO, client, 1.0);
    let run = |controller: &mut CostBenefit, from: u64, until: u64| {
        for at in from..until {
            while controller.try_admit(millis(at), &request(1, 1), &site) {}
        }
        controller.clients[&client].period().as_secs_f64()
    };
    // On an idle network, the client is blocked only by fees. After n steps, T is 1 / (5 + 20 n) s,
    // with at most one step in 100 ms.
    let fast = run(&mut controller, 0, 10_000);
    assert_eq!(fast, config.salary_period.0.as_secs_f64());
    // The link now costs 14 dollars. The client can buy, and its last cost exceeds H whenever it is
    // blocked.
    controller.on_control(millis(10_000), DaemonId(2), &update(3, 79), &site);
    let slower = run(&mut controller, 10_000, 10_150);
    assert!((slower / fast - 2.0).abs() < 1e-9 || (slower / fast - 4.0).abs() < 1e-9);
    let slow = run(&mut controller, 10_150, 20_000);
    assert_eq!(slow, config.salary_period.1.as_secs_f64());
}

#[test]
fn only_without_randomisation_clients_are_first_paid_together() {
    let paydays = |randomise: bool| {
        let config = CostBenefitConfig {
            randomise,
            ..CostBenefitConfig::default()
        };
        let mut controller = controller(config);
        for (client, at) in [(1, 0), (2, 400), (3, 2_499)] {
            controller.add_client(millis(at), ClientId(client), 1.0);
        }
        let mut paydays: Vec<Time> = controller.clients.values().map(Account::payday).collect();
        paydays.dedup();
        paydays
    };
    assert_eq!(paydays(false), [millis(2_500)]);
    assert_eq!(paydays(true).len(), 3);
}

#[test]
fn a_client_that_is_not_blocked_keeps_its_period() {
    let site = chain();
    let mut controller = controller(CostBenefitConfig::default());
    controller.add_client(Time::ZERO, ClientId(1), 1.0);
    let period = controller.clients[&ClientId(1)].period();
    for second in 3..100 {
        assert!(controller.try_admit(millis(1000 * second), &request(1, 1), &site));
    }
    assert_eq!(controller.clients[&ClientId(1)].period(), period);
}

#[test]
fn a_message_to_several_groups_pays_for_each_link_once() {
    let mut site = chain();
    site.groups.set(GroupId(4), DaemonId(3), 3, ChangeSeq(1));
    let mut controller = controller(CostBenefitConfig::default());
    controller.on_control(millis(0), DaemonId(2), &update(3, 80), &site);
    let cost = |groups: &[u32]| {
        let groups: Vec<_> = groups.iter().copied().map(GroupId).collect();
        controller.cost(millis(1), &GroupSet::of(&groups).unwrap(), &site)
    };
    let (far, near) = (cost(&[1]), cost(&[2]));
    assert!(far > near);
    assert_eq!(cost(&[1, 4]), far);
    assert_eq!(cost(&[2, 1]), far);
}

/// Returns the number of messages of two clients in 1000 s, over a link for which 80 messages wait.
fn contest(priorities: [f64; 2], groups: [u32; 2], benefit: Benefit) -> [u32; 2] {
    let mut site = chain();
    site.groups.set(GroupId(4), DaemonId(3), 3, ChangeSeq(1));
    let mut controller = controller(CostBenefitConfig::default());
    controller.benefits.others = benefit;
    let mut bought = [0; 2];
    for (client, priority) in priorities.into_iter().enumerate() {
        controller.add_client(Time::ZERO, ClientId(client as u32), priority);
    }
    for at in 0..1_000_000 {
        if at % 1000 == 0 {
            controller.on_control(millis(at), DaemonId(2), &update(3, 80), &site);
        }
        for client in 0..2 {
            let asked = request(client as u32, groups[client]);
            while controller.try_admit(millis(at), &asked, &site) {
                bought[client] += 1;
            }
        }
    }
    bought
}

#[test]
fn salaries_follow_priorities_and_benefits() {
    let ratio = |[first, second]: [u32; 2]| f64::from(second) / f64::from(first);
    let even = ratio(contest([1.0, 1.0], [1, 1], Benefit::PerMessage));
    let prior = ratio(contest([1.0, 3.0], [1, 1], Benefit::PerMessage));
    let larger = ratio(contest([1.0, 1.0], [1, 4], Benefit::PerReceiver));
    let half_messages_per_s = 0.5;
    let benefit = Benefit::Diminishing {
        half_messages_per_s,
    };
    let less = ratio(contest([1.0, 3.0], [1, 1], benefit));
    println!(
        "even {even:.2}, priority 3 {prior:.2}, three receivers {larger:.2}, priority 3 with diminishing benefit {less:.2}"
    );
    assert!((even - 1.0).abs() < 0.1);
    assert!((prior - 3.0).abs() < 0.3);
    assert!((larger - 3.0).abs() < 0.3);
    assert!(less < 2.2 && less > 1.3);
}
