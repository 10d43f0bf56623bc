use proptest::prelude::*;

use super::*;

fn addresses(family: Family) -> BoxedStrategy<IpAddr> {
    match family {
        Family::V4 => any::<Ipv4Addr>().prop_map(IpAddr::from).boxed(),
        Family::V6 => any::<Ipv6Addr>().prop_map(IpAddr::from).boxed(),
    }
}

fn family() -> impl Strategy<Value = Family> {
    prop_oneof![Just(Family::V4), Just(Family::V6)]
}

fn record(family: Family) -> impl Strategy<Value = GroupRecord> {
    let kind = (1u8..=6).prop_map(|code| RecordType::from_wire(code).unwrap());
    let sources = proptest::collection::vec(addresses(family), 0..5);
    (kind, addresses(family), sources).prop_map(|(kind, group, sources)| GroupRecord {
        kind,
        group,
        sources,
    })
}

fn report() -> impl Strategy<Value = Report> {
    family().prop_flat_map(|family| {
        proptest::collection::vec(record(family), 0..10)
            .prop_map(move |records| Report { family, records })
    })
}

fn encoded(report: &Report) -> Vec<u8> {
    let mut out = Vec::new();
    report.encode(&mut out);
    out
}

fn one_join(family: Family) -> Report {
    let (group, source) = match family {
        Family::V4 => ("232.1.1.1", "192.0.2.1"),
        Family::V6 => ("ff3e::1", "2001:db8::1"),
    };
    let record = GroupRecord {
        kind: RecordType::Allow,
        group: group.parse().unwrap(),
        sources: vec![source.parse().unwrap()],
    };
    Report {
        family,
        records: vec![record],
    }
}

proptest! {
    #[test]
    fn a_report_survives_the_wire(report in report()) {
        prop_assert_eq!(Report::decode(&encoded(&report)), Ok(report));
    }

    #[test]
    fn a_query_survives_the_wire_with_its_interval_rounded_down(
        (family, robustness, seconds) in (family(), 1u8..=7, 1u64..31_744),
    ) {
        let query = GeneralQuery { family, robustness, query_interval: Duration::from_secs(seconds) };
        let mut out = Vec::new();
        query.encode(&mut out);
        let read = GeneralQuery::decode(&out).unwrap();
        prop_assert_eq!((read.family, read.robustness), (family, robustness));
        prop_assert!(read.query_interval <= query.query_interval);
        prop_assert!(read.query_interval >= query.query_interval * 16 / 17);
    }

    #[test]
    fn one_flipped_bit_makes_no_other_report(report in report(), bit in any::<prop::sample::Index>()) {
        let mut bytes = encoded(&report);
        let bit = bit.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        // No checksum covers some bits of an IPv6 header: the report remains the same.
        if let Ok(read) = Report::decode(&bytes) {
            prop_assert_eq!(read, report);
        }
    }

    #[test]
    fn no_bytes_make_the_decoders_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
        let _ = (Report::decode(&bytes), GeneralQuery::decode(&bytes));
    }
}

#[test]
fn a_report_cut_short_is_refused_at_every_length() {
    for bytes in [Family::V4, Family::V6].map(|family| encoded(&one_join(family))) {
        for len in 0..bytes.len() {
            assert!(Report::decode(&bytes[..len]).is_err(), "cut at {len}");
        }
    }
}

#[test]
fn a_report_that_announces_more_records_than_it_holds_is_refused() {
    let mut message = vec![IGMPV3_REPORT, 0, 0, 0, 0, 0, 0xff, 0xff];
    let mut out = Vec::new();
    encode_igmp(Ipv4Addr::new(224, 0, 0, 22), &mut message, &mut out);
    assert_eq!(Report::decode(&out), Err(MembershipError::Truncated));
}

#[test]
fn records_of_unknown_type_and_auxiliary_data_are_skipped() {
    let mut message = vec![IGMPV3_REPORT, 0, 0, 0, 0, 0, 0, 2];
    message.extend_from_slice(&[99, 1, 0, 0, 232, 9, 9, 9, 0xde, 0xad, 0xbe, 0xef]);
    message.extend_from_slice(&[5, 0, 0, 1, 232, 1, 1, 1, 192, 0, 2, 1]);
    let mut out = Vec::new();
    encode_igmp(Ipv4Addr::new(224, 0, 0, 22), &mut message, &mut out);
    assert_eq!(Report::decode(&out), Ok(one_join(Family::V4)));
}

#[test]
fn messages_without_router_alert_or_with_another_ttl_are_refused() {
    let mut without = encoded(&one_join(Family::V6));
    without[42..46].copy_from_slice(&[1, 2, 0, 0]);
    assert_eq!(Report::decode(&without), Err(MembershipError::NotLinkLocal));
    let mut far = encoded(&one_join(Family::V6));
    far[7] = 64;
    assert_eq!(Report::decode(&far), Err(MembershipError::NotLinkLocal));
}

#[test]
fn a_query_for_one_group_and_a_report_are_no_general_queries() {
    let mut message = vec![IGMP_QUERY, 1, 0, 0, 232, 1, 1, 1, 2, 125, 0, 0];
    let mut out = Vec::new();
    encode_igmp(Ipv4Addr::new(224, 0, 0, 1), &mut message, &mut out);
    assert_eq!(GeneralQuery::decode(&out), Err(MembershipError::NotGeneral));
    let report = encoded(&one_join(Family::V4));
    assert_eq!(
        GeneralQuery::decode(&report),
        Err(MembershipError::Type(IGMPV3_REPORT))
    );
}

#[test]
fn a_query_without_variables_means_the_defaults() {
    let mut message = vec![IGMP_QUERY, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut out = Vec::new();
    encode_igmp(Ipv4Addr::new(224, 0, 0, 1), &mut message, &mut out);
    let query = GeneralQuery::decode(&out).unwrap();
    assert_eq!(query.robustness, DEFAULT_ROBUSTNESS);
    assert_eq!(query.query_interval, DEFAULT_QUERY_INTERVAL);
}

/// The IP datagram with an IGMPv2 message of this type about `group`.
pub(crate) fn igmpv2(kind: u8, group: [u8; 4]) -> Vec<u8> {
    let mut message = [&[kind, 0, 0, 0][..], &group].concat();
    let mut out = Vec::new();
    encode_igmp(group.into(), &mut message, &mut out);
    out
}

fn mldv1(kind: u8, group: Ipv6Addr) -> Vec<u8> {
    let mut message = [&[kind, 0, 0, 0, 0, 0, 0, 0][..], &group.octets()].concat();
    let mut out = Vec::new();
    encode_mld(Ipv6Addr::UNSPECIFIED, group, &mut message, &mut out);
    out
}

#[test]
fn reports_of_igmpv2_and_mldv1_name_a_group_and_no_source() {
    let (v4, v6) = ([232, 1, 1, 1], "ff3e::1".parse::<Ipv6Addr>().unwrap());
    let cases = [
        (igmpv2(0x16, v4), v4.into(), RecordType::IsExclude),
        (igmpv2(0x17, v4), v4.into(), RecordType::ToInclude),
        (mldv1(131, v6), v6.into(), RecordType::IsExclude),
        (mldv1(132, v6), v6.into(), RecordType::ToInclude),
    ];
    for (bytes, group, kind) in cases {
        let expected = Report {
            family: Family::of(group),
            records: vec![GroupRecord {
                kind,
                group,
                sources: vec![],
            }],
        };
        assert_eq!(Report::decode(&bytes), Ok(expected));
        for len in 0..bytes.len() {
            assert!(Report::decode(&bytes[..len]).is_err(), "cut at {len}");
        }
    }
}

#[test]
fn an_igmpv2_message_without_its_group_is_refused() {
    let mut out = Vec::new();
    encode_igmp(
        Ipv4Addr::new(224, 0, 0, 2),
        &mut [0x17, 0, 0, 0, 232, 1, 1],
        &mut out,
    );
    assert_eq!(Report::decode(&out), Err(MembershipError::Truncated));
}

#[test]
fn igmpv1_is_refused() {
    let report = igmpv2(0x12, [232, 1, 1, 1]);
    assert_eq!(Report::decode(&report), Err(MembershipError::Type(0x12)));
}
