use super::*;
use hyper::header::{HeaderName, HeaderValue};
use hyper::http::uri::PathAndQuery;
use proptest::prelude::*;

fn headers(list: &[(&'static str, &'static str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in list {
        headers.append(
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        );
    }
    headers
}

fn request(id: u64) -> ToMember {
    ToMember::Request(Box::new(Request {
        id: RequestId(id),
        window: 1000,
        alive_ms: 500,
        to: 3,
        head: RequestHead {
            method: Method::POST,
            target: PathAndQuery::from_static("/a?b=c"),
            headers: headers(&[("host", "h"), ("accept", "x"), ("accept", "y")]),
        },
        body: Bytes::from_static(b"body"),
        is_last: true,
    }))
}

fn part(bytes: &'static [u8], is_last: bool) -> Part {
    let bytes = Bytes::from_static(bytes);
    Part {
        offset: 300,
        bytes,
        is_last,
    }
}

fn response() -> MemberEvent {
    let response = Response {
        status: StatusCode::NOT_FOUND,
        headers: headers(&[("content-length", "3")]),
        body: Bytes::from_static(b"abc"),
        is_last: true,
    };
    MemberEvent::Response(RequestId(9), Box::new(response))
}

fn open() -> ToMember {
    ToMember::Open(Box::new(Open {
        id: RequestId(11),
        window: 1000,
        alive_ms: 500,
        to: 3,
        client: "192.0.2.1:50000".parse().unwrap(),
        local: "[2001:db8::1]:5432".parse().unwrap(),
        server: "db.example.net:5432".to_owned(),
    }))
}

fn to_member() -> Vec<ToMember> {
    vec![
        request(7),
        open(),
        ToMember::Probe(RequestId(5)),
        ToMember::Part(RequestId(8), part(b"more", false)),
        ToMember::Part(RequestId(8), part(b"", true)),
        ToMember::Credit(RequestId(9), 1 << 40),
        ToMember::Cancel(RequestId(u64::MAX)),
    ]
}

fn from_member() -> Vec<FromMember> {
    let failure = Failure::new(FailureKind::Unknown, "not known");
    let events = [
        response(),
        MemberEvent::Part(RequestId(9), part(b"more", true)),
        MemberEvent::Credit(RequestId(9), 17),
        MemberEvent::Alive(vec![RequestId(1), RequestId(2)]),
        MemberEvent::Failed(RequestId(4), failure),
        MemberEvent::Pulse(
            RequestId(5),
            Pulse {
                is_serving: true,
                is_draining: false,
            },
        ),
    ];
    let member = 0x0102_0304_0506_0708;
    events
        .map(|event| FromMember { member, event })
        .into_iter()
        .collect()
}

#[test]
fn every_message_is_decoded_as_it_was_encoded() {
    for message in to_member() {
        assert_eq!(ToMember::decode(&message.encode()), Ok(message));
    }
    for message in from_member() {
        assert_eq!(FromMember::decode(&message.encode()), Ok(message));
    }
}

#[test]
fn a_credit_has_the_bytes_that_the_page_draws() {
    let drawn = [2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 1, 0];
    assert_eq!(ToMember::Credit(RequestId(9), 256).encode()[..], drawn);
    let alive = FromMember {
        member: 5,
        event: MemberEvent::Alive(vec![RequestId(6)]),
    };
    let drawn = [[2, 8, 0, 0], [0; 4], [0; 4], [0; 4], [0, 0, 0, 5]].concat();
    let drawn = [&drawn[..], &[0, 0, 0, 0, 0, 0, 0, 6]].concat();
    assert_eq!(alive.encode()[..], drawn);
}

#[test]
fn every_message_that_was_cut_in_its_head_is_refused() {
    let whole = request(7).encode();
    let head = whole.len() - 4;
    for length in 0..head {
        let cut = whole.slice(..length);
        assert!(ToMember::decode(&cut).is_err(), "{length} bytes");
    }
    for message in from_member() {
        let cut = message.encode().slice(..19);
        assert!(FromMember::decode(&cut).is_err(), "{message:?}");
    }
}

#[test]
fn messages_with_a_wrong_field_are_refused_with_the_cause() {
    let change = |message: &ToMember, place: usize, byte: u8| {
        let mut bytes = message.encode().to_vec();
        bytes[place] = byte;
        ToMember::decode(&bytes.into()).unwrap_err()
    };
    let cancel = ToMember::Cancel(RequestId(1));
    assert_eq!(change(&cancel, 0, 3), WireError::Version(3));
    assert_eq!(change(&cancel, 1, 5), WireError::Type(5));
    assert_eq!(change(&cancel, 2, 1), WireError::Flags(4));
    assert_eq!(change(&cancel, 3, 1), WireError::Flags(4));
    let request = request(1);
    assert_eq!(change(&request, 2, 2), WireError::Flags(1));
    assert_eq!(change(&request, 28, 1), WireError::LongHead);
    assert_eq!(change(&request, 33, b' '), WireError::Head("method"));
    assert_eq!(change(&request, 39, b'a'), WireError::Head("target"));
    let name = open().encode().len() - 1;
    let refused = WireError::Range("name of the server");
    assert_eq!(change(&open(), name, 0xff), refused);
    let last = ToMember::Part(RequestId(1), part(b"", true));
    assert_eq!(change(&last, 2, 0), WireError::Body(0));
}

#[test]
fn headers_with_line_breaks_or_capitals_are_refused() {
    let whole = FromMember {
        member: 1,
        event: response(),
    };
    let whole = whole.encode().to_vec();
    let name = whole.windows(7).position(|bytes| bytes == b"content");
    let mut capital = whole.clone();
    capital[name.unwrap()] = b'C';
    let refused = FromMember::decode(&capital.into());
    assert_eq!(refused, Err(WireError::Head("name of a header")));
    let mut broken = whole.clone();
    let value = whole.len() - 4;
    assert_eq!(broken[value], b'3');
    broken[value] = b'\n';
    let refused = FromMember::decode(&broken.into());
    assert_eq!(refused, Err(WireError::Head("value of a header")));
}

#[test]
fn heads_that_cannot_be_encoded_are_found_before() {
    let mut head = RequestHead {
        method: Method::GET,
        target: PathAndQuery::from_static("/"),
        headers: HeaderMap::new(),
    };
    for number in 0..HEADERS_MAX {
        let name = HeaderName::from_bytes(format!("x-{number}").as_bytes());
        head.headers
            .append(name.unwrap(), HeaderValue::from_static("1"));
    }
    assert_eq!(head.check(), Ok(()));
    head.headers.append("x", HeaderValue::from_static("1"));
    assert_eq!(head.check(), Err(WireError::LongHead));
    head.headers.clear();
    let long = HeaderValue::from_bytes(&vec![b'a'; HEAD_BYTES_MAX]);
    head.headers.append("x", long.unwrap());
    assert_eq!(head.check(), Err(WireError::LongHead));
}

#[test]
fn long_reasons_are_cut_between_characters() {
    let long = "ö".repeat(REASON_BYTES_MAX);
    let failure = Failure::new(FailureKind::Origin, &long);
    assert_eq!(failure.reason.len(), REASON_BYTES_MAX);
    assert_eq!(Failure::new(FailureKind::Origin, "").reason, "unknown");
}

proptest! {
    #[test]
    fn changed_messages_never_panic_and_are_encoded_the_same_way(
        which in 0_usize..13,
        changes in prop::collection::vec((0_usize..100, any::<u8>()), 0..6),
        cut in 0_usize..100,
    ) {
        let mut all: Vec<Bytes> = to_member().iter().map(ToMember::encode).collect();
        all.extend(from_member().iter().map(FromMember::encode));
        let mut bytes = all[which].to_vec();
        for (place, byte) in changes {
            let length = bytes.len();
            bytes[place % length] = byte;
        }
        bytes.truncate(bytes.len().max(cut + 1) - cut);
        let bytes = Bytes::from(bytes);
        if let Ok(message) = ToMember::decode(&bytes) {
            prop_assert_eq!(ToMember::decode(&message.encode()), Ok(message));
        }
        if let Ok(message) = FromMember::decode(&bytes) {
            prop_assert_eq!(FromMember::decode(&message.encode()), Ok(message));
        }
    }
}
