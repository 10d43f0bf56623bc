//! Messages of many fragments.

use std::sync::Arc;

use bytes::Bytes;
use manyflow_ensembles::anypoint::switch::PolicyName;
use manyflow_ensembles::anypoint::{MESSAGE_BYTES_MAX, Options, connect};
use manyflow_net::group_key::GroupKey;

use super::stage::{Stage, exchange, finish, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_a_mebibyte_stay_whole() {
    let stage = Stage::start(4, PolicyName::RoundRobin, &Options::default());
    let connection = within("open", connect(stage.address(), Options::default())).await;
    let connection = Arc::new(connection.unwrap());
    // `exchange` adds the number of the message, 4 bytes.
    exchange(Arc::clone(&connection), 16, MESSAGE_BYTES_MAX - 4).await;
    assert_eq!(connection.counters().discarded, 0);
    let message = Bytes::from(vec![0; MESSAGE_BYTES_MAX + 1]);
    let error = connection
        .send_frame(0, message)
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("1048577"), "{error}");
    assert!(connection.send_frame(0, Bytes::new()).await.is_err());
    finish(connection).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_messages_travel_in_jumbo_frames_where_all_paths_carry_them() {
    let stage = Stage::start(3, PolicyName::RoundRobin, &Options::default());
    let connection = within("open", connect(stage.address(), Options::default())).await;
    let connection = Arc::new(connection.unwrap());
    assert!(connection.counters().path_bytes <= 1_440);
    // A probe that the switch does not answer yet is repeated after a second.
    within("jumbo frames", async {
        while connection.counters().path_bytes < 8_952 {
            exchange(Arc::clone(&connection), 4, 100_000).await;
        }
    })
    .await;
    exchange(Arc::clone(&connection), 16, 100_000).await;
    assert_eq!(connection.counters().discarded, 0);
    finish(connection).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sealed_messages_pass_a_switch_that_has_no_key() {
    let folder = tempfile::tempdir().unwrap();
    let key = GroupKey::generate(&folder.path().join("service.key")).unwrap();
    let sealed = Options {
        key: Some(key),
        ..Options::default()
    };
    let stage = Stage::start(3, PolicyName::RoundRobin, &sealed);
    let connection = within("open", connect(stage.address(), sealed)).await;
    let connection = Arc::new(connection.unwrap());
    exchange(Arc::clone(&connection), 100, 5_000).await;
    finish(connection).await;

    let plain = within("open", connect(stage.address(), Options::default()))
        .await
        .unwrap();
    plain.send_frame(0, "not sealed".into()).await.unwrap();
    within("the close", plain.close()).await.unwrap();
    assert_eq!(within("the end", plain.recv_frame()).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_does_not_read_stops_its_sender() {
    let options = Options {
        send_buffer: 64 << 10,
        receive_buffer: 64 << 10,
        ..Options::default()
    };
    let mut member =
        manyflow_ensembles::anypoint::serve(super::stage::ANY, options.clone()).unwrap();
    let connection = within("open", connect(member.local_address(), options))
        .await
        .unwrap();
    let accepted = within("accept", member.accept()).await.unwrap();
    // The buffers take less than these, so the sender has to wait for the reader.
    const COUNT: usize = 1000;
    let sent = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let sender = tokio::spawn({
        let sent = Arc::clone(&sent);
        async move {
            for _ in 0..COUNT {
                connection
                    .send_frame(0, vec![1; 1000].into())
                    .await
                    .unwrap();
                sent.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
            connection.close().await.unwrap();
        }
    });
    let mut read = 0;
    while within("a message", accepted.recv_frame())
        .await
        .unwrap()
        .is_some()
    {
        read += 1;
        let ahead = sent
            .load(std::sync::atomic::Ordering::Relaxed)
            .saturating_sub(read);
        assert!(
            ahead <= 2 * 66,
            "{ahead} messages are neither read nor in a buffer"
        );
    }
    assert_eq!(read, COUNT);
    within("the sender's end", sender).await.unwrap();
}
