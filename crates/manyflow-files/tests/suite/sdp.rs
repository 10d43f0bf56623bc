//! Session descriptions: a description survives writing and reading, and errors name the flaw.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, SystemTime};

use manyflow_files::sdp::{CciFormat, Completion, Protection, SessionDescription, WebrcParameters};
use manyflow_net::description::{DESCRIPTION_BYTES_MAX, DescriptionError, HostPort, ntp_seconds};
use proptest::option;
use proptest::prelude::*;

/// The example of the module's documentation.
const EXAMPLE: &str = "v=0\r
o=- 7 3976214400 IN IP4 192.0.2.1\r
s=nightly build\r
t=0 0\r
a=source-filter: incl IN IP4 * 192.0.2.1\r
a=flute-tsi:7\r
a=flute-ch:46\r
a=FEC-declaration:0 encoding-id=6\r
a=webrc:N=15;Q=30;TSD=10;BCR=1;P=0.75;LENP=1400;SR=2000000;constant=1;CCI=short;EL=0.5\r
a=fdt-digest:sha-256 a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5\r
a=ext-auth:0 hmac-sha-256-128\r
a=amt-relay:relay.example.net:2268\r
a=completion:192.0.2.1:5446 400\r
m=application 5000 FLUTE/UDP *\r
c=IN IP4 232.1.2.0/1/46\r
a=FEC:0\r
";

fn example() -> SessionDescription {
    SessionDescription {
        name: "nightly build".to_owned(),
        tsi: 7,
        version: 3_976_214_400,
        source: "192.0.2.1".parse().unwrap(),
        first_group: "232.1.2.0".parse().unwrap(),
        port: 5000,
        ttl: Some(1),
        fec_encoding_id: 6,
        table_sha256: Some([0xa5; 32]),
        table_key: None,
        protection: Some(Protection::Mac),
        amt_relay: Some(HostPort {
            host: "relay.example.net".to_owned(),
            port: 2268,
        }),
        completion: Some(Completion {
            server: HostPort {
                host: "192.0.2.1".to_owned(),
                port: 5446,
            },
            window: Duration::from_secs(400),
            progress: false,
        }),
        webrc: WebrcParameters {
            wave_slots: 15,
            quiescent_slots: 30,
            time_slot_s: 10.0,
            base_rate_packets_per_s: 1.0,
            decay_per_slot: 0.75,
            packet_bytes: 1400,
            session_rate_bits_per_s: 2_000_000,
            constant_rate: true,
            cci: CciFormat::Short,
            epoch_s: 0.5,
            packet_trains: None,
        },
    }
}

fn error(text: &str) -> String {
    SessionDescription::parse(text).unwrap_err().to_string()
}

#[test]
fn the_example_is_written_and_read() {
    assert_eq!(example().to_sdp().unwrap(), EXAMPLE);
    assert_eq!(SessionDescription::parse(EXAMPLE).unwrap(), example());
    assert_eq!(
        SessionDescription::parse(&EXAMPLE.replace('\r', "")).unwrap(),
        example()
    );
}

#[test]
fn the_example_of_the_documentation_is_the_tested_one() {
    let documentation = include_str!("../../src/sdp/mod.rs");
    for line in EXAMPLE.lines() {
        assert!(documentation.contains(&format!("//! {line}\n")), "{line}");
    }
}

#[test]
fn channels_have_consecutive_groups_and_the_base_channel_is_the_last() {
    let description = example();
    assert_eq!(description.channels(), 46);
    assert_eq!(description.group(0), Some("232.1.2.0".parse().unwrap()));
    assert_eq!(description.group(45), Some("232.1.2.45".parse().unwrap()));
    assert_eq!(description.group(46), None);
}

#[test]
fn unknown_attributes_and_parameters_are_ignored() {
    let text = EXAMPLE
        .replace("a=flute-tsi", "a=tool:other\r\na=recvonly\r\na=flute-tsi")
        .replace("N=15", "new=1;N=15");
    assert_eq!(SessionDescription::parse(&text).unwrap(), example());
}

#[test]
fn an_image_has_a_key_instead_of_a_digest() {
    let text = "ed25519:tpS2AsPKAC4K+cnZSuBI6yi0YfWCkEGLy/bZ5PTHCBY=";
    let image = SessionDescription {
        table_sha256: None,
        table_key: Some(text.parse().unwrap()),
        ..example()
    };
    let written = image.to_sdp().unwrap();
    let line = format!("a=fdt-key:{text}\r\n");
    assert!(
        written.contains(&line) && !written.contains("fdt-digest"),
        "{written}"
    );
    assert_eq!(SessionDescription::parse(&written).unwrap(), image);
    assert_eq!(image.content_id(), Some(*image.table_key.unwrap().bytes()));
    let documentation = include_str!("../../src/sdp/mod.rs");
    assert!(documentation.contains(line.trim_end()));
    let both = error(&EXAMPLE.replace("a=ext-auth", &format!("{line}a=ext-auth")));
    assert!(
        both.contains("a=fdt-key") && both.contains("a=fdt-digest"),
        "{both}"
    );
    let wrong = error(&written.replace("ed25519:tp", "ed25519:"));
    assert!(
        wrong.contains("a=fdt-key") && wrong.contains("44 characters"),
        "{wrong}"
    );
}

/// Replacements in the example that make one mistake each: the text to replace, its replacement,
/// and the place and the expected form that the error must name.
const MISTAKES: &[[&str; 4]] = &[
    [
        "v=0",
        "v=1",
        "line 1",
        "the file that `manyflow send` writes",
    ],
    ["s=nightly build", "s=", "s=", "1 to 255 bytes"],
    [
        "flute-tsi:7",
        "flute-tsi:281474976710656",
        "a=flute-tsi",
        "0 to 281474976710655",
    ],
    ["flute-tsi:7", "flute-tsi:-1", "a=flute-tsi", "a number"],
    ["a=flute-tsi:7\r\n", "", "a=flute-tsi", "lacks"],
    [
        "a=flute-tsi:7",
        "a=flute-tsi:7\r\na=flute-tsi:8",
        "a=flute-tsi",
        "once",
    ],
    ["flute-ch:46", "flute-ch:45", "a=flute-ch", "46"],
    ["* 192.0.2.1", "* 232.1.2.3", "a=source-filter", "unicast"],
    [
        "* 192.0.2.1",
        "* 192.0.2.1 192.0.2.2",
        "a=source-filter",
        "one address",
    ],
    [
        "* 192.0.2.1",
        "* sender.example.net",
        "a=source-filter",
        "one address",
    ],
    [": incl", ": excl", "a=source-filter", "incl"],
    ["* 192.0.2.1", "* 2001:db8::1", "c=", "IP version"],
    [
        "encoding-id=6",
        "encoding-id=1",
        "encoding-id",
        "0 (no code) or 6",
    ],
    ["a=FEC:0", "a=FEC:1", "a=FEC-declaration", "a=FEC refers"],
    [
        "m=application 5000",
        "m=application 0",
        "port",
        "1 to 65535",
    ],
    ["FLUTE/UDP", "RTP/AVP", "m=", "FLUTE/UDP"],
    [
        "FLUTE/UDP",
        "LAYERED/UDP",
        "a stream",
        "`manyflow stream recv`",
    ],
    [
        "c=IN IP4 232.1.2.0/1/46",
        "c=IN IP4 232.1.2.0/46",
        "c=",
        "FIRST/TTL/COUNT",
    ],
    [
        "c=IN IP4 232.1.2.0/1/46",
        "c=IN IP4 232.1.2.0/256/46",
        "c=",
        "FIRST/TTL/COUNT",
    ],
    [
        "c=IN IP4 232.1.2.0/1/46",
        "c=IN IP4 232.1.2.0/1/46/1",
        "c=",
        "FIRST/TTL/COUNT",
    ],
    ["232.1.2.0/1/46", "232.1.2.0/1/47", "groups in c=", "46"],
    ["232.1.2.0", "232.255.255.240", "c=", "one multicast range"],
    ["232.1.2.0", "239.255.255.240", "c=", "one multicast range"],
    ["232.1.2.0", "255.255.255.240", "c=", "one multicast range"],
    ["232.1.2.0", "192.0.2.9", "c=", "one multicast range"],
    [
        "a=amt-relay:relay.example.net:2268",
        "a=amt-relay:relay",
        "a=amt-relay",
        "HOST:PORT",
    ],
    [
        "relay.example.net:2268",
        "re lay:2268",
        "a=amt-relay",
        "HOST:PORT",
    ],
    [
        "relay.example.net:2268",
        "::1:2268",
        "a=amt-relay",
        "brackets",
    ],
    [
        "relay.example.net:2268",
        "[relay]:2268",
        "a=amt-relay",
        "brackets",
    ],
    ["5446 400", "5446", "a=completion", "HOST:PORT SECONDS"],
    [
        "5446 400",
        "5446 400 often",
        "a=completion",
        "`progress` or nothing",
    ],
    [
        "5446 400",
        "5446 400 progress x",
        "a=completion",
        "`progress` or nothing",
    ],
    ["5446 400", "0 400", "a=completion", "HOST:PORT"],
    [
        "5446 400",
        "5446 0",
        "the window of a=completion",
        "1 to 31622400",
    ],
    [
        "5446 400",
        "5446 1e9",
        "the window of a=completion",
        "number",
    ],
    ["N=15", "N=0", "N in a=webrc", "1 to 1022"],
    [
        "N=15",
        "N=250",
        "N+Q",
        "at most 255 with the short CCI format",
    ],
    ["N=15;", "", "N in a=webrc", "lacks"],
    ["N=15;", "N=15;N=16;", "N in a=webrc", "once"],
    [
        "sha-256 a5a5",
        "sha-256 x5a5",
        "a=fdt-digest",
        "64 hexadecimal",
    ],
    [
        "sha-256 a5a5",
        "sha-256 a5",
        "a=fdt-digest",
        "64 hexadecimal",
    ],
    ["sha-256 a5a5", "md5 a5a5", "a=fdt-digest", "sha-256"],
    [
        "0 hmac-sha-256-128",
        "0 hmac-md5",
        "a=ext-auth",
        "hmac-sha-256-128",
    ],
    ["TSD=10", "TSD=NaN", "TSD in a=webrc", "0.1 to 3600"],
    ["TSD=10", "TSD=inf", "TSD in a=webrc", "0.1 to 3600"],
    ["BCR=1;", "BCR=0;", "BCR in a=webrc", "0.01 to 100000"],
    ["P=0.75", "P=1", "P in a=webrc", "0.1 to 0.99"],
    ["LENP=1400", "LENP=63", "LENP in a=webrc", "64 to 65507"],
    ["SR=2000000", "SR=0", "SR in a=webrc", "1 to 1000000000000"],
    [
        "constant=1",
        "constant=yes",
        "constant in a=webrc",
        "0 or 1",
    ],
    ["CCI=short", "CCI=medium", "CCI in a=webrc", "short or long"],
    ["EL=0.5", "EL=11", "EL in a=webrc", "0.001 to 10"],
];

#[test]
fn an_error_names_the_line_and_what_was_expected() {
    for [from, to, what, expected] in MISTAKES {
        let text = EXAMPLE.replacen(from, to, 1);
        assert_ne!(text, EXAMPLE, "{from} is not in the example");
        let error = error(&text);
        assert!(
            error.contains(what) && error.contains(expected),
            "{to}: {error}"
        );
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn encryption_is_described_by_its_algorithm_and_salt() {
    let salt = "5a".repeat(32);
    let line = format!("a=ext-auth:0 chacha20-poly1305 {salt}\r\n");
    let description = SessionDescription {
        protection: Some(Protection::Encryption { salt: [0x5a; 32] }),
        ..example()
    };
    let text = description.to_sdp().unwrap();
    assert!(text.contains(&line), "{text}");
    assert_eq!(SessionDescription::parse(&text).unwrap(), description);
    for wrong in [
        "0 rot13 5a".to_owned(),
        "0 chacha20-poly1305".to_owned(),
        format!("0 chacha20-poly1305 {}", &salt[2..]),
        format!("0 aes-256-gcm {salt}"),
        format!("1 chacha20-poly1305 {salt}"),
    ] {
        let text = EXAMPLE.replace("0 hmac-sha-256-128", &wrong);
        let error = error(&text);
        let parts = ["a=ext-auth", &wrong[..5], "chacha20-poly1305 and 64"];
        for part in parts {
            assert!(error.contains(part), "{wrong}: {error}");
        }
    }
}

#[test]
fn a_text_that_is_too_long_is_refused() {
    let text = format!("{EXAMPLE}a=x:{}", "x".repeat(DESCRIPTION_BYTES_MAX));
    assert!(matches!(
        SessionDescription::parse(&text),
        Err(DescriptionError::TooLong)
    ));
}

#[test]
fn the_version_is_the_time_of_writing_in_seconds_of_ntp() {
    // The first of January 2026, 00:00 UTC.
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_225_600);
    assert_eq!(ntp_seconds(time), 3_976_214_400);
    assert_eq!(example().written(), Some(time));
    let counted = SessionDescription {
        version: 1,
        ..example()
    };
    assert_eq!(counted.written(), None);
}

/// An error must not repeat a long line of the input in full.
#[test]
fn an_error_is_short_whatever_the_input() {
    let text = EXAMPLE.replace("flute-tsi:7", &format!("flute-tsi:{}", "9".repeat(10_000)));
    assert!(error(&text).len() < 300);
}

fn parameters() -> impl Strategy<Value = WebrcParameters> {
    let slots = (any::<bool>(), 1u16..200).prop_flat_map(|(long, wave_slots)| {
        let (cci, channels) = if long {
            (CciFormat::Long, 1023)
        } else {
            (CciFormat::Short, 255)
        };
        (Just(cci), Just(wave_slots), 1..=channels - wave_slots)
    });
    let times = (0.1..=3600.0f64, 0.01..=1.0f64);
    let rates = (
        0.01..=100_000.0f64,
        0.1..=0.99f64,
        1..=1_000_000_000_000u64,
        any::<bool>(),
        prop::option::of(4..=32u32),
    );
    (slots, times, rates, 64..=65_507u16).prop_map(|(slots, times, rates, packet_bytes)| {
        WebrcParameters {
            cci: slots.0,
            wave_slots: slots.1,
            quiescent_slots: slots.2,
            time_slot_s: times.0,
            epoch_s: (times.0 * times.1).clamp(0.001, times.0),
            base_rate_packets_per_s: rates.0,
            decay_per_slot: rates.1,
            session_rate_bits_per_s: rates.2,
            constant_rate: rates.3,
            packet_trains: rates.4,
            packet_bytes,
        }
    })
}

/// A source, a first group with room for 1024 channels, and a TTL.
fn addresses() -> impl Strategy<Value = (IpAddr, IpAddr, Option<u8>)> {
    let ipv4 = (
        0x0100_0000..=0xdfff_ffffu32,
        224..=239u32,
        0..=0x00ff_f000u32,
        any::<u8>(),
    )
        .prop_map(|(source, range, low, ttl)| {
            let group = Ipv4Addr::from_bits(range << 24 | low);
            (Ipv4Addr::from_bits(source).into(), group.into(), Some(ttl))
        });
    let ipv6 =
        (1..u64::MAX, 0..=0xffu16, 0..u128::from(u64::MAX)).prop_map(|(source, scope, low)| {
            let group = Ipv6Addr::from_bits(u128::from(0xff00 | scope) << 112 | low);
            (
                Ipv6Addr::from_bits(source.into()).into(),
                group.into(),
                None,
            )
        });
    prop_oneof![ipv4, ipv6]
}

fn server() -> impl Strategy<Value = HostPort> {
    let address = any::<u128>().prop_map(|bits| Ipv6Addr::from_bits(bits).to_string());
    (prop_oneof!["[a-z0-9.-]{1,20}", address], 1..=u16::MAX)
        .prop_map(|(host, port)| HostPort { host, port })
}

fn completion() -> impl Strategy<Value = Completion> {
    (server(), 1..=31_622_400u64, any::<bool>()).prop_map(|(server, seconds, progress)| {
        let window = Duration::from_secs(seconds);
        Completion {
            server,
            window,
            progress,
        }
    })
}

fn protection() -> impl Strategy<Value = Protection> {
    let encryption = any::<[u8; 32]>().prop_map(|salt| Protection::Encryption { salt });
    prop_oneof![Just(Protection::Mac), encryption]
}

prop_compose! {
    fn descriptions()(
        name in "[^\\p{Cc}]{1,50}",
        tsi in 0..1u64 << 48,
        version in any::<u64>(),
        (source, first_group, ttl) in addresses(),
        port in 1..=u16::MAX,
        fec_encoding_id in prop_oneof![Just(0), Just(6)],
        table_sha256 in option::of(any::<[u8; 32]>()),
        protection in option::of(protection()),
        amt_relay in option::of(server()),
        completion in option::of(completion()),
        webrc in parameters(),
    ) -> SessionDescription {
        SessionDescription { name, tsi, version, source, first_group, port, ttl, fec_encoding_id, table_sha256, table_key: None, protection, amt_relay, completion, webrc }
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(description in descriptions()) {
        let text = description.to_sdp().unwrap();
        prop_assert_eq!(SessionDescription::parse(&text).unwrap(), description);
    }

    /// A parsed description can be written: parsing accepts nothing that the writer refuses.
    #[test]
    fn damaged_text_is_refused_or_is_another_valid_description(
        place in 0..EXAMPLE.len(),
        length in 0..20usize,
        new in "[ -~\r\n]{0,20}",
    ) {
        let end = (place + length).min(EXAMPLE.len());
        let text = [&EXAMPLE[..place], &new, &EXAMPLE[end..]].concat();
        if let Ok(description) = SessionDescription::parse(&text) {
            let again = SessionDescription::parse(&description.to_sdp().unwrap()).unwrap();
            prop_assert_eq!(again, description);
        }
    }
}
