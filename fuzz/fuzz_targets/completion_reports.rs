//! Reports of receivers, which a holder of the session description makes of any bytes, with the
//! cookies of the answers or others, cause no panic. Receivers outside the list stay few, nobody
//! takes the name that the list has with a key, and no answer is longer than its report.
#![cfg_attr(fuzzing, no_main)]

use std::time::Duration;

use arbitrary::Arbitrary;
use manyflow_core::Time;
use manyflow_files::completion::{
    Audience, CompletionKey, Expected, Identity, RECEIVERS_PER_CLIENT_MAX, ReceiverState, Reporter,
    Tally,
};
use manyflow_files::sdp::SessionDescription;
use manyflow_net::keys::PublicKey;
use ring::hmac;

const DESCRIPTION: &str = "v=0\r\n\
    o=- 7 1 IN IP4 192.0.2.1\r\n\
    s=x\r\n\
    t=0 0\r\n\
    a=source-filter: incl IN IP4 * 192.0.2.1\r\n\
    a=flute-tsi:7\r\n\
    a=flute-ch:46\r\n\
    a=FEC-declaration:0 encoding-id=6\r\n\
    a=webrc:N=15;Q=30;TSD=10;BCR=1;P=0.75;LENP=1400;SR=2000000;constant=1;CCI=short;EL=0.5\r\n\
    a=fdt-digest:sha-256 a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5\r\n\
    m=application 5000 FLUTE/UDP *\r\n\
    c=IN IP4 232.1.2.0/1/46\r\n\
    a=FEC:0\r\n";
/// The digest in the description, which is the key of its messages.
const DIGEST: [u8; 32] = [0xa5; 32];
/// The key that the list has for `a`.
const OWNER: [u8; 32] = [9; 32];

#[derive(Arbitrary, Debug)]
struct Report {
    port: bool,
    number: u8,
    /// Whether the report has the cookie of the last answer.
    has_cookie: bool,
    state: u8,
    failure: u8,
    name: u8,
    bytes: u32,
    more: u8,
    /// Whether the report claims the owner's key.
    claims_key: bool,
    /// Bytes in place of the name and what follows it.
    other: Option<[u8; 9]>,
    seconds: u8,
}

impl Report {
    fn to_bytes(&self, cookie: u64) -> Vec<u8> {
        let name = ["a", "b", "stranger", "two words"][usize::from(self.name % 4)].as_bytes();
        let mut bytes = [b"mfc\x01", &7u64.to_be_bytes()[..]].concat();
        bytes.extend(u64::from(self.number % 2).to_be_bytes());
        bytes.extend(if self.has_cookie { cookie } else { 0 }.to_be_bytes());
        let name_bytes = self.other.map_or(name.len(), |other| other.len() / 2);
        let claims_key = self.claims_key.into();
        bytes.extend([
            self.state % 6,
            self.failure % 11,
            name_bytes as u8,
            claims_key,
        ]);
        let total = u64::from(self.bytes) + u64::from(self.more);
        bytes.extend(
            [self.bytes.into(), total, 1]
                .into_iter()
                .flat_map(u64::to_be_bytes),
        );
        match self.other {
            Some(other) => bytes.extend(other),
            None => {
                bytes.extend(name);
                if self.claims_key {
                    bytes.extend(OWNER);
                    bytes.extend([1; 64]);
                }
            }
        }
        let mac = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &DIGEST), &bytes);
        bytes.extend(&mac.as_ref()[..16]);
        bytes
    }
}

manyflow_fuzz::target!(|input: &[u8]| {
    let description = SessionDescription::parse(DESCRIPTION).expect("the description is valid");
    let key = CompletionKey::new(&description, None).expect("the description has a digest");
    let expected = |name: &str, key| Expected {
        name: name.parse().expect("a name"),
        key,
    };
    let owner = PublicKey::from_bytes(OWNER);
    let receivers = vec![expected("a", Some(owner)), expected("b", None)];
    let audience = Audience::Listed {
        receivers,
        ends_after: None,
    };
    let mut tally = Tally::new(key.clone(), audience, [3; 32]);
    let identity = Identity::named("b".parse().expect("a name"));
    let window = Duration::from_secs(2);
    let mut reporter = Reporter::new(key, identity, window, true, Time::ZERO, [1; 32]);
    let (mut now, mut cookie) = (Time::ZERO, 0);
    for report in manyflow_fuzz::each::<Report>(input) {
        now += Duration::from_secs(report.seconds.into());
        let bytes = report.to_bytes(cookie);
        let from = ([10, 0, 0, 1], 4000 + u16::from(report.port)).into();
        let answer = tally.handle(now, from, &bytes);
        if let Some(answer) = answer {
            assert!(answer.len() <= bytes.len());
            cookie = u64::from_be_bytes(*answer[28..].first_chunk().expect("a cookie"));
            reporter.handle(&answer);
        }
        reporter.handle(&bytes);
        tally.handle_timeout(now);
        reporter.handle_timeout(now);
        reporter.poll_transmit();
        let rows = tally.table().receivers();
        assert_eq!(rows[0].state, ReceiverState::NeverHeard);
        assert!(rows.len() <= 2 + RECEIVERS_PER_CLIENT_MAX as usize);
    }
});
