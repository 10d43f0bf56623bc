use super::*;

fn shown(text: &str, default_port: Option<u16>) -> String {
    Address::parse(text, default_port).unwrap().to_string()
}

#[test]
fn a_host_without_a_port_has_the_default_port() {
    for (text, full) in [
        ("192.0.2.1", "192.0.2.1:2268"),
        ("192.0.2.1:1", "192.0.2.1:1"),
        ("2001:db8::1", "[2001:db8::1]:2268"),
        ("[2001:db8::1]", "[2001:db8::1]:2268"),
        ("[2001:db8::1]:1", "[2001:db8::1]:1"),
        ("[fe80::1%eth0]", "[fe80::1%eth0]:2268"),
        ("fe80::1%eth0", "[fe80::1%eth0]:2268"),
        ("[fe80::1%3]:1", "[fe80::1%3]:1"),
        ("relay.example.net", "relay.example.net:2268"),
        ("relay_2.example.net.:1", "relay_2.example.net.:1"),
        ("localhost", "localhost:2268"),
    ] {
        assert_eq!(shown(text, Some(2268)), full, "{text}");
    }
}

#[test]
fn a_text_that_is_no_address_is_refused_with_its_problem_and_examples() {
    for (text, problem) in [
        ("", "is empty"),
        ("nonsense", "has no port"),
        ("127.0.0.1", "has no port"),
        ("[::1]", "has no port"),
        ("::1", "brackets"),
        (":80", "has no host"),
        ("127.0.0.1:0", "has port 0"),
        ("127.0.0.1:99999", "1 to 65535"),
        ("127.0.0.1:+80", "1 to 65535"),
        ("127.0.0.1:", "1 to 65535"),
        ("127.0.0.1:80/", "slash"),
        ("http://127.0.0.1:80", "is a URL"),
        ("127.0.0.1: 80", "space"),
        ("127.1:80", "four decimal numbers"),
        ("2130706433:80", "four decimal numbers"),
        ("010.0.0.1:80", "four decimal numbers"),
        ("1.2.3.4.5:80", "four decimal numbers"),
        ("0x7f000001:80", "four decimal numbers"),
        ("[::1]:26003x", "1 to 65535"),
        ("[::1]26003", "no colon"),
        ("[::1:80", "closing bracket"),
        ("[127.0.0.1]:80", "no IPv6 address in its brackets"),
        ("1:2:3", "not an address of IPv6"),
        ("[fe80::1%]:80", "no interface after %"),
        ("[2001:db8::1%eth0]:80", "only link-local"),
        ("a..b:80", "is not a host name"),
        ("a@b:80", "is not a host name"),
        ("b\u{202e}:80", "is not a host name"),
    ] {
        let error = Address::parse(text, None).unwrap_err();
        let shown = error.to_string();
        assert!(shown.contains(problem), "{text}: {shown}");
        assert!(shown.contains("such as 192.0.2.1:7000"), "{text}: {shown}");
        assert!(!error.may_pass(), "{text}");
    }
}

#[test]
fn a_url_has_one_of_the_schemes_and_at_most_a_slash_behind_the_port() {
    let parse = |text| Address::parse_url(text, &["nats"], 4222);
    for (text, full) in [
        ("nats://127.0.0.1:4222", "127.0.0.1:4222"),
        ("NATS://b.example.net/", "b.example.net:4222"),
        ("nats://[::1]", "[::1]:4222"),
        ("nats://[fe80::1%25eth0]:1/", "[fe80::1%eth0]:1"),
        ("nats://[fe80::1%eth0]", "[fe80::1%eth0]:4222"),
        ("b.example.net:1", "b.example.net:1"),
    ] {
        assert_eq!(parse(text).unwrap().to_string(), full);
    }
    for (text, problem) in [
        ("http://127.0.0.1:4222", "scheme"),
        ("nats://", "is empty"),
        ("nats://user@b.example.net", "user"),
        ("nats://b.example.net/orders", "slash"),
    ] {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.contains(problem) && error.contains(text), "{error}");
    }
}

#[test]
fn an_address_to_listen_on_may_have_port_0_or_a_name() {
    let listen = |text| Address::parse_listen(text, 2268);
    assert_eq!(listen("[::]:0").unwrap(), "[::]:0".parse().unwrap());
    let local = listen("localhost:5").unwrap();
    assert!(local.ip().is_loopback() && local.port() == 5, "{local}");
    let SocketAddr::V6(zoned) = listen("[fe80::1%lo]:5").unwrap() else {
        panic!("not IPv6");
    };
    assert_eq!(zoned.scope_id(), if_nametoindex("lo").unwrap());
    let error = listen("127.0.0.1").unwrap_err().to_string();
    assert!(
        error.contains("has no port") && error.contains(":2268"),
        "{error}"
    );
}

#[test]
fn an_interface_or_a_name_that_is_missing_now_may_be_there_later() {
    let error = Address::parse_listen("[fe80::1%nosuch0]:5", 1).unwrap_err();
    assert!(
        error.to_string().contains("no interface `nosuch0`"),
        "{error}"
    );
    assert!(error.may_pass());
    let error = Address::parse_listen("no-such-host.invalid:5", 1).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("cannot find no-such-host.invalid:5"),
        "{error}"
    );
    assert!(error.may_pass());
}
