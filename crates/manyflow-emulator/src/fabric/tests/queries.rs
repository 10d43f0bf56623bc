//! Queries, and memberships that end without a report.

use manyflow_amt::membership::GeneralQuery;

use super::*;

fn seconds(seconds: u64) -> Time {
    Time::ZERO + Duration::from_secs(seconds)
}

/// Sends a packet from A to the group, and returns the nodes that it reaches.
fn reached(line: &mut Line, at: Time) -> Vec<NodeId> {
    line.advance(at);
    line.inbox.delivered.clear();
    line.push(at, A, &udp(A, GROUP, 8, b"data"));
    line.advance(at + Duration::from_secs(1));
    line.arrivals().into_iter().map(|(_, node)| node).collect()
}

#[test]
fn all_hosts_are_queried_at_the_start_and_at_intervals() {
    let mut line = Line::plain();
    for (at, rounds) in [(0, 1), (124, 1), (125, 2), (1000, 9)] {
        line.advance(seconds(at));
        assert_eq!(line.inbox.queries.len(), rounds * 6, "after {at} s");
    }
    let first = line.inbox.queries[..6].iter().map(|(node, packet)| {
        let query = GeneralQuery::decode(packet).unwrap();
        assert_eq!(query.query_interval, Duration::from_secs(125));
        (*node, query.family)
    });
    let expected = [A, B, C].map(|node| [(node, Family::V4), (node, Family::V6)]);
    assert_eq!(first.collect::<Vec<_>>(), expected.concat());
    let links = (0..8).map(|link| line.fabric.network().link_counters(LinkId(link)).pushed);
    assert_eq!(links.sum::<u64>(), 0);
    assert_eq!(line.fabric.counts(), Counts::default());
}

#[test]
fn a_membership_that_no_report_refreshes_ends() {
    let mut line = Line::plain();
    line.report(seconds(1), B, RecordType::Allow, &[A]);
    line.report(seconds(1), C, RecordType::ToExclude, &[]);
    assert_eq!(reached(&mut line, seconds(10)), [B, C]);
    // B answers a query; the kernel of C no longer does.
    line.report(seconds(126), B, RecordType::IsInclude, &[A]);
    assert_eq!(reached(&mut line, seconds(255)), [B, C]);
    assert_eq!(reached(&mut line, seconds(262)), [B]);
    assert_eq!(reached(&mut line, seconds(380)), [B]);
    assert_eq!(reached(&mut line, seconds(387)), []);
}

#[test]
fn the_answers_to_queries_change_nothing() {
    let [mut quiet, mut asked] = [Line::plain(), Line::plain()];
    for line in [&mut quiet, &mut asked] {
        line.report(seconds(0), B, RecordType::Allow, &[A]);
        line.report(seconds(0), C, RecordType::ToExclude, &[B]);
    }
    for at in [1, 2, 125, 250] {
        asked.report(seconds(at), B, RecordType::IsInclude, &[A]);
        asked.report(seconds(at), C, RecordType::IsExclude, &[B]);
        quiet.advance(seconds(at));
        let [pending, expected] =
            [&mut asked, &mut quiet].map(|line| line.fabric.network_mut().next_time());
        assert_eq!(pending, expected, "no join or leave travels");
    }
    let at = seconds(251);
    assert_eq!(reached(&mut asked, at), reached(&mut quiet, at));
    assert_eq!(asked.arrivals().len(), 2);
}
