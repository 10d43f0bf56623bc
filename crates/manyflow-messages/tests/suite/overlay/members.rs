//! Members of ordered groups by the typed interface of clients.

use std::time::Duration;

use manyflow_messages::{
    Access, Cause, Client, ClientError, ClientOptions, Credentials, DaemonConfig, DaemonHandle,
    Member, MemberEvent, OrderedMessage, Service, User, View, start,
};

use crate::overlay::stage::{Nats, config, line, two_with_delay, within};

async fn connect(daemon: &DaemonHandle, options: &ClientOptions) -> Client {
    let address = daemon.addresses().clients.unwrap().to_string();
    Client::connect(&address, options).await.unwrap()
}

/// Connects a client that has joined the group `g`.
async fn join(daemon: &DaemonHandle) -> (Client, Member) {
    let client = connect(daemon, &ClientOptions::default()).await;
    let mut member = client.member().unwrap();
    member.join("g").await.unwrap();
    (client, member)
}

async fn next_event(member: &mut Member) -> MemberEvent {
    let event = within(member.next()).await;
    event.expect("the groups go on").unwrap()
}

/// Reads until a view of this number of members.
async fn next_view(member: &mut Member, members: usize) -> View {
    loop {
        if let MemberEvent::View(view) = next_event(member).await
            && view.members.len() == members
        {
            return view;
        }
    }
}

async fn next_message(member: &mut Member) -> OrderedMessage {
    loop {
        if let MemberEvent::Message(message) = next_event(member).await {
            return message;
        }
    }
}

#[tokio::test]
async fn messages_of_each_service_arrive_once_with_their_service_and_sender() {
    let daemons = line(2).await;
    let (sender, mut near) = join(&daemons[0]).await;
    let (_other, mut far) = join(&daemons[1]).await;
    let own = next_view(&mut near, 2).await.own_name;
    next_view(&mut far, 2).await;
    for service in Service::ALL {
        sender.multicast(service, &["g"], "hi").await.unwrap();
        for member in [&mut near, &mut far] {
            let message = next_message(member).await;
            assert_eq!(message.service, service);
            assert_eq!(message.sender, own);
            assert_eq!(message.groups, ["g"]);
            assert_eq!(&message.payload[..], b"hi");
        }
    }
}

#[tokio::test]
async fn a_message_for_several_groups_arrives_once_and_one_for_a_client_reaches_it_alone() {
    let daemons = line(2).await;
    let (sender, mut near) = join(&daemons[0]).await;
    let (_other, mut far) = join(&daemons[1]).await;
    far.join("h").await.unwrap();
    far.join("h").await.unwrap();
    let far_name = loop {
        match next_event(&mut far).await {
            MemberEvent::View(view) if view.group == "h" => break view.own_name,
            _ => {}
        }
    };
    next_view(&mut near, 2).await;
    let send = |groups: &'static [&str], payload: &'static str| {
        let sender = sender.clone();
        async move {
            let sent = sender.multicast(Service::Agreed, groups, payload).await;
            sent.unwrap();
        }
    };
    send(&["none", "h", "g"], "both").await;
    send(&["h"], "h").await;
    let private = [far_name.as_str()];
    let sent = sender.multicast(Service::Agreed, &private, "for you").await;
    sent.unwrap();
    send(&["g"], "end").await;
    let mut arrived = Vec::new();
    for _ in 0..4 {
        let message = next_message(&mut far).await;
        arrived.push((
            String::from_utf8_lossy(&message.payload).into_owned(),
            message.groups,
        ));
    }
    assert_eq!(arrived[0].0, "both");
    assert_eq!(arrived[0].1.len(), 3);
    assert_eq!(arrived[1], ("h".to_owned(), vec!["h".to_owned()]));
    assert_eq!(arrived[2], ("for you".to_owned(), vec![far_name]));
    assert_eq!(arrived[3].0, "end");
    let first = next_message(&mut near).await;
    assert_eq!(
        (&first.payload[..], first.groups[0].as_str()),
        (&b"both"[..], "g")
    );
    assert_eq!(next_message(&mut near).await.payload, "end");
}

#[tokio::test]
async fn a_client_without_echo_does_not_get_its_own_messages() {
    let daemons = line(1).await;
    let silent = ClientOptions {
        echo: false,
        ..ClientOptions::default()
    };
    let client = connect(&daemons[0], &silent).await;
    let mut member = client.member().unwrap();
    member.join("g").await.unwrap();
    let (other, mut echo) = join(&daemons[0]).await;
    next_view(&mut echo, 2).await;
    client
        .multicast(Service::Agreed, &["g"], "own")
        .await
        .unwrap();
    assert_eq!(next_message(&mut echo).await.payload, "own");
    other
        .multicast(Service::Agreed, &["g"], "other")
        .await
        .unwrap();
    assert_eq!(next_message(&mut member).await.payload, "other");
    assert_eq!(next_message(&mut echo).await.payload, "other");
}

#[tokio::test]
async fn views_say_who_has_joined_left_and_disconnected() {
    let daemons = line(2).await;
    let (_client, mut stays) = join(&daemons[0]).await;
    let first = next_view(&mut stays, 1).await;
    assert_eq!(first.cause, Cause::Join(first.own_name.as_str().into()));
    let (other, mut goes) = join(&daemons[1]).await;
    let name = next_view(&mut goes, 2).await.own_name;
    let joined = next_view(&mut stays, 2).await;
    assert_eq!(joined.cause, Cause::Join(name.as_str().into()));
    assert_eq!(joined.stayed, [first.own_name]);
    assert!(joined.id > first.id);

    goes.leave("g").await.unwrap();
    let left = next_view(&mut stays, 1).await;
    assert_eq!(left.cause, Cause::Leave(name.as_str().into()));
    while within(goes.next()).await.is_some() {}

    goes.join("g").await.unwrap();
    next_view(&mut stays, 2).await;
    drop((goes, other));
    // The member leaves before its client disconnects.
    let left = next_view(&mut stays, 1).await;
    assert_eq!(left.cause, Cause::Leave(name.as_str().into()));

    // A connection that is closed without a word.
    let mut goes = Nats::connect(&daemons[1]).await;
    goes.send("SUB $MF.order.g 1\r\n").await;
    let joined = next_view(&mut stays, 2).await;
    drop(goes);
    let gone = next_view(&mut stays, 1).await;
    let Cause::Join(name) = joined.cause else {
        panic!("{joined:?}");
    };
    assert_eq!(gone.cause, Cause::Disconnect(name));
}

#[tokio::test]
async fn a_cut_link_brings_the_transitional_signal_and_a_view_by_the_network() {
    let ([a, b], wire) = two_with_delay(Duration::from_millis(1)).await;
    let (_near, mut near) = join(&a).await;
    let (_far, mut far) = join(&b).await;
    for member in [&mut near, &mut far] {
        next_view(member, 2).await;
    }
    wire.set_up(false);
    for member in [&mut near, &mut far] {
        let signal = MemberEvent::Transitional("g".to_owned());
        assert_eq!(next_event(member).await, signal);
        let view = next_view(member, 1).await;
        assert_eq!(view.cause, Cause::Network);
        assert_eq!(view.members, [view.own_name.as_str()]);
        assert_eq!(view.stayed, view.members);
    }
    wire.set_up(true);
    let [near, far] = [next_view(&mut near, 2).await, next_view(&mut far, 2).await];
    assert_eq!((near.cause, near.id), (Cause::Network, far.id));
    assert_eq!(near.members, far.members);
    assert_eq!(near.stayed, [near.own_name]);
    assert_eq!(far.stayed, [far.own_name]);
}

#[tokio::test]
async fn requests_that_cannot_be_met_are_errors_that_say_why() {
    let daemons = line(1).await;
    let (client, mut member) = join(&daemons[0]).await;
    let invalid = client
        .multicast(Service::Agreed, &["g", "two words"], "")
        .await;
    let invalid = invalid.unwrap_err();
    assert!(matches!(&invalid, ClientError::InvalidGroup { group } if group == "two words"));
    let long = "x".repeat(256);
    for group in ["g.*", "", long.as_str()] {
        let joined = member.join(group).await;
        assert!(
            matches!(joined, Err(ClientError::InvalidGroup { .. })),
            "{group}"
        );
    }
    for count in [0, 256] {
        let groups = vec!["g"; count];
        let sent = client.multicast(Service::Safe, &groups, "").await;
        assert!(matches!(sent, Err(ClientError::Groups { count: of }) if of == count));
    }
    assert!(matches!(
        client.member(),
        Err(ClientError::HasMember { .. })
    ));
    let left = member.leave("h").await.unwrap_err();
    assert!(left.to_string().contains("`h`"), "{left}");
    drop(member);
    assert!(client.member().unwrap().next().await.is_none());
}

#[tokio::test]
async fn a_group_without_permission_is_refused_and_a_lost_connection_is_an_error() {
    let password = Credentials::Password {
        name: "ann".to_owned(),
        password: "secret".to_owned(),
    };
    let user = User {
        subscribe: Some(vec!["g".to_owned()]),
        ..User::new(password.clone())
    };
    let daemon = DaemonConfig {
        access: Access::Users(vec![user]),
        ..config("a")
    };
    let daemon = start(daemon).await.unwrap();
    let options = ClientOptions {
        credentials: Some(password),
        ..ClientOptions::default()
    };
    let client = connect(&daemon, &options).await;
    let mut member = client.member().unwrap();
    member.join("g").await.unwrap();
    let refused = member.join("secret").await;
    assert!(
        matches!(refused, Err(ClientError::Refused { .. })),
        "{refused:?}"
    );
    next_view(&mut member, 1).await;
    daemon.stop().await;
    let end = within(member.next()).await.expect("an error");
    assert!(matches!(end, Err(ClientError::Lost { .. })), "{end:?}");
    assert!(within(member.next()).await.is_none());
}
