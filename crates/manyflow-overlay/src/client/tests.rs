use super::*;
use crate::message::ClientId;
use crate::sequence::OriginSeq;
use manyflow_core::Length;

const GROUP: GroupId = GroupId(3);

fn connected() -> Client<Length> {
    let mut client = Client::new();
    client.connect(100);
    while client.poll_transmit().is_some() {}
    client
}

fn frames(client: &mut Client<Length>) -> Vec<ClientFrame> {
    let frames = core::iter::from_fn(|| client.poll_transmit());
    frames.map(|(frame, _)| frame).collect()
}

fn deliver(client: &mut Client<Length>, sequence: u32) -> Result<(), ProtocolError> {
    let frame = ClientFrame::Deliver {
        origin: DaemonId(1),
        data: Data {
            group: GROUP,
            version: 0,
            sequence: OriginSeq::new(sequence.into()),
            sender: ClientId(0),
            sent_us: 0,
        },
        layered: false,
    };
    client.handle_frame(&frame, Length(sequence))
}

fn took(messages: u32) -> ClientFrame {
    ClientFrame::Took { messages }
}

#[test]
fn one_message_at_a_time_goes_to_the_daemon() {
    let mut client = connected();
    assert_eq!(client.send(GROUP, 5, Length(10)), Ok(()));
    assert_eq!(
        client.send(GROUP, 6, Length(10)),
        Err(SendError::NotReady),
        "the first has not entered"
    );
    let send = ClientFrame::Send {
        groups: GROUP.into(),
        sent_us: 5,
        layered: false,
    };
    assert_eq!(client.poll_transmit(), Some((send, Length(10))));
    for _ in 0..2 {
        client.handle_frame(&ClientFrame::Ready, Length(0)).unwrap();
    }
    assert_eq!(client.poll_event(), Some(ClientEvent::Ready));
    assert_eq!(client.poll_event(), None, "nothing else was sent");
    let too_long = Length(PAYLOAD_BYTES_MAX + 1);
    assert_eq!(
        client.send(GROUP, 7, too_long),
        Err(SendError::TooLong(too_long.0))
    );
    assert_eq!(client.send(GROUP, 7, Length(PAYLOAD_BYTES_MAX)), Ok(()));
}

#[test]
fn read_messages_are_reported_when_none_is_left_or_half_the_window_is_free() {
    let mut client = connected();
    for sequence in 1..=CLIENT_WINDOW {
        deliver(&mut client, sequence).unwrap();
    }
    assert_eq!(
        deliver(&mut client, CLIENT_WINDOW + 1),
        Err(ProtocolError::Window)
    );
    for sequence in 1..=CLIENT_WINDOW {
        assert_eq!(
            client.read().map(|read| read.payload),
            Some(Length(sequence))
        );
    }
    assert_eq!(frames(&mut client), [took(CLIENT_WINDOW / 2); 2]);
    deliver(&mut client, CLIENT_WINDOW + 1).unwrap();
    assert!(client.read().is_some());
    assert_eq!(frames(&mut client), [took(1)]);
}

#[test]
fn an_evicted_member_does_not_leave_again_but_may_join_again() {
    let mut client = connected();
    assert!(client.join(GROUP, Length(0)));
    assert!(!client.join(GROUP, Length(0)));
    let evicted = ClientFrame::Evicted(GROUP);
    client.handle_frame(&evicted, Length(0)).unwrap();
    assert_eq!(client.poll_event(), Some(ClientEvent::Evicted(GROUP)));
    assert!(!client.leave(GROUP));
    assert!(client.join(GROUP, Length(0)));
    let join = ClientFrame::Join(GROUP);
    assert_eq!(frames(&mut client), [join, join]);
}

#[test]
fn nothing_is_sent_before_connect_or_after_disconnect() {
    let mut client = Client::<Length>::new();
    for phase in ["before", "after"] {
        assert!(!client.join(GROUP, Length(0)), "{phase}");
        assert_eq!(
            client.send(GROUP, 0, Length(1)),
            Err(SendError::NotConnected)
        );
        deliver(&mut client, 1).unwrap();
        assert_eq!((client.unread(), frames(&mut client)), (0, vec![]));
        client.connect(0);
        client.disconnect();
        let connect = ClientFrame::Connect { priority: 1 };
        let expected = match phase {
            "before" => vec![connect, ClientFrame::Disconnect],
            _ => vec![],
        };
        assert_eq!(frames(&mut client), expected);
    }
}

#[test]
fn client_frames_from_a_daemon_are_refused() {
    let mut client = connected();
    let join = ClientFrame::Join(GROUP);
    let error = client.handle_frame(&join, Length(0)).unwrap_err();
    assert_eq!(error, ProtocolError::Unexpected(join));
    assert!(error.to_string().contains("only clients send"));
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(
    expected = "OriginSeq(4) of DaemonId(1) to GroupId(3) arrived after Some(OriginSeq(5))"
)]
fn a_message_out_of_order_panics_in_debug_builds() {
    let mut client = connected();
    deliver(&mut client, 5).unwrap();
    deliver(&mut client, 4).unwrap();
}
