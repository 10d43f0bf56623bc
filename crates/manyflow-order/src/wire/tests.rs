use super::*;
use proptest::prelude::*;

fn name() -> impl Strategy<Value = String> {
    "[a-z#]{1,40}"
}

fn peer() -> impl Strategy<Value = Peer> {
    (any::<u16>(), any::<u32>()).prop_map(|(daemon, incarnation)| Peer {
        daemon: DaemonId(daemon),
        incarnation,
    })
}

fn check(record: &Record<'_>) {
    let bytes = record.encode();
    assert_eq!(Record::decode(&bytes).as_ref(), Some(record));
    let head = match record {
        Record::Data(data) => Some((data.service, data.client)),
        _ => None,
    };
    assert_eq!(data_head(&bytes), head);
    let is_of_exchange = match record {
        Record::State(_) | Record::Roster(_) | Record::Recover(_) | Record::Ready { .. } => true,
        Record::Part(part) => part.client == ClientId(0),
        _ => false,
    };
    assert_eq!(super::is_of_exchange(&bytes), is_of_exchange);
    for length in 0..bytes.len() {
        if let Some(shorter) = Record::decode(&bytes[..length]) {
            assert_eq!(shorter.encode(), bytes[..length], "a payload that is cut");
        }
    }
}

proptest! {
    #[test]
    fn records_are_decoded_as_they_were_encoded(
        groups in prop::collection::vec(name(), 0..5),
        name in name(),
        payload in prop::collection::vec(any::<u8>(), 0..50),
        (client, kind, round, hash) in (any::<u32>(), any::<i16>(), any::<u32>(), any::<u64>()),
        mut peers in prop::collection::vec(peer(), 0..9),
        (service, discard) in (0..6usize, any::<bool>()),
    ) {
        let (client, view) = (ClientId(client), ViewId { counter: round, hash });
        let names = names(groups.iter().map(String::as_str));
        check(&Record::Data(Data {
            service: Service::ALL[service],
            discard,
            kind,
            client,
            groups: Names(&names),
            payload: &payload,
        }));
        let name = name.as_str();
        check(&Record::Hello { client, name });
        check(&Record::Bye { client });
        check(&Record::Join { client, group: name });
        check(&Record::Leave { client, group: name });
        check(&Record::Mark { round: hash, received: hash / 2 });
        check(&Record::Ready { view });
        let origin = DaemonId(kind as u16);
        check(&Record::Part(Part { client, is_last: discard, bytes: &payload }));
        check(&Record::Recover(Recover { view, origin, sequence: hash, record: &payload }));
        peers.sort();
        peers.dedup_by_key(|peer| peer.daemon);
        let arrived = peers.iter().map(|peer| Arrived { next: peer.incarnation.into(), is_cut: discard, sound: hash, is_complete: !discard });
        check(&Record::State(State {
            incarnation: round,
            attempt: client.0,
            first: hash,
            rosters: kind as u16,
            previous: view,
            arrived: arrived.collect(),
            peers,
        }));
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        if let Some(record) = Record::decode(&bytes) {
            let again = record.encode();
            prop_assert_eq!(Record::decode(&again), Some(record));
        }
    }
}

#[test]
fn a_roster_of_many_groups_takes_several_records() {
    let groups: Vec<String> = (0..10_000).map(|n| format!("group-{n}")).collect();
    let clients = [(ClientId(1), "#a#d"), (ClientId(2), "#b#d")];
    let mut records = Vec::new();
    let all = clients
        .iter()
        .map(|(client, name)| (*client, *name, groups.iter().map(String::as_str)));
    rosters(all, |record| records.push(record));
    assert!(records.len() > 4 && records.iter().all(|record| record.len() < 33 << 10));
    let mut read: Vec<(ClientId, String)> = Vec::new();
    for record in &records {
        let Some(Record::Roster(roster)) = Record::decode(record) else {
            panic!("not a roster");
        };
        for (client, _, names) in roster {
            read.extend(names.map(|name| (client, name.to_owned())));
        }
    }
    let expected = clients
        .iter()
        .flat_map(|(client, _)| groups.iter().map(|name| (*client, name.clone())));
    assert!(read.into_iter().eq(expected));
}
