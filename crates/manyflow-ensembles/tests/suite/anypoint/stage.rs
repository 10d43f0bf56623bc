//! Members that echo, a switch in front of them, and peers that check their answers.

use std::collections::HashMap;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use manyflow_ensembles::anypoint::switch::{
    MemberConfig, PolicyName, ServiceConfig, SwitchHandle, SwitchOptions, SwitchStatus, start,
};
use manyflow_ensembles::anypoint::{Connection, Member, Options, serve};
use manyflow_testing::LIMIT;
use tokio::task::JoinHandle;

pub(crate) const ANY: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(LIMIT, future).await;
    done.unwrap_or_else(|_| panic!("timed out: {what}"))
}

/// A member that returns every message. It fails without a word when this is dropped.
#[derive(Debug)]
pub(crate) struct EchoMember {
    pub(crate) address: SocketAddr,
    pub(crate) messages: Arc<AtomicU64>,
    runtime: Option<tokio::runtime::Runtime>,
}

impl EchoMember {
    pub(crate) fn start(listen: SocketAddr, options: Options) -> EchoMember {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let member = {
            let _guard = runtime.enter();
            serve(listen, options).unwrap()
        };
        let address = member.local_address();
        let messages: Arc<AtomicU64> = Arc::default();
        runtime.spawn(accept(member, Arc::clone(&messages)));
        EchoMember {
            address,
            messages,
            runtime: Some(runtime),
        }
    }

    pub(crate) fn messages(&self) -> u64 {
        self.messages.load(Ordering::Relaxed)
    }

    /// Stops reading and answering, as a process that hangs or a host without power. Nobody hears
    /// of it.
    pub(crate) fn hang(&self) {
        let runtime = self.runtime.as_ref().unwrap();
        // It blocks the only thread of the runtime until the process ends.
        runtime.spawn(async {
            loop {
                std::thread::park();
            }
        });
    }

    /// Starts a member at the address of one that has stopped.
    pub(crate) async fn restart(address: SocketAddr) -> EchoMember {
        // The socket of the stopped member closes in the background.
        while std::net::UdpSocket::bind(address).is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        EchoMember::start(address, Options::default())
    }
}

impl Drop for EchoMember {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn accept(mut member: Member, messages: Arc<AtomicU64>) {
    while let Ok(connection) = member.accept().await {
        let messages = Arc::clone(&messages);
        tokio::spawn(async move {
            while let Ok(Some(message)) = connection.recv_frame().await {
                messages.fetch_add(1, Ordering::Relaxed);
                if connection
                    .send_frame(message.key, message.payload)
                    .await
                    .is_err()
                {
                    return;
                }
            }
            let _ = connection.close().await;
        });
    }
}

/// A switch and its members.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) members: Vec<EchoMember>,
    pub(crate) switch: SwitchHandle,
}

impl Stage {
    pub(crate) fn start(members: usize, policy: PolicyName, options: &Options) -> Stage {
        Stage::start_at(&vec![ANY; members], policy, options)
    }

    /// Starts a member at each of these addresses.
    pub(crate) fn start_at(members: &[SocketAddr], policy: PolicyName, options: &Options) -> Stage {
        let members = members.iter();
        let members = members.map(|address| EchoMember::start(*address, options.clone()));
        let members: Vec<_> = members.collect();
        let addresses: Vec<_> = members.iter().map(|member| member.address).collect();
        let switch = start(ANY, service(&addresses, policy), SwitchOptions::default()).unwrap();
        Stage { members, switch }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.switch.local_address()
    }

    pub(crate) async fn wait_for(&self, what: &str, condition: impl FnMut(&SwitchStatus) -> bool) {
        wait_for(&self.switch, what, condition).await;
    }
}

pub(crate) async fn wait_for(
    switch: &SwitchHandle,
    what: &str,
    condition: impl FnMut(&SwitchStatus) -> bool,
) {
    let mut status = switch.status();
    within(what, status.wait_for(condition)).await.unwrap();
}

pub(crate) fn service(addresses: &[SocketAddr], policy: PolicyName) -> ServiceConfig {
    let members = addresses
        .iter()
        .zip(0..)
        .map(|(address, place)| MemberConfig {
            name: format!("m{place}"),
            address: *address,
            weight: f64::from(place + 1),
            keys: vec![place * 100..=place * 100 + 99],
        });
    ServiceConfig {
        members: members.collect(),
        policy,
    }
}

/// Returns a message whose bytes depend on its number.
pub(crate) fn payload(number: u32, length: usize) -> Bytes {
    let mut state = u64::from(number) << 20 | length as u64;
    let bytes = (0..length).map(|_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    });
    [&number.to_be_bytes()[..], &bytes.collect::<Vec<_>>()]
        .concat()
        .into()
}

/// Sends `count` messages of a length, and checks that each is answered once, with the same bytes.
pub(crate) async fn exchange(connection: Arc<Connection>, count: u32, length: usize) {
    let sender: JoinHandle<()> = tokio::spawn({
        let connection = Arc::clone(&connection);
        async move {
            for number in 0..count {
                connection
                    .send_frame(number, payload(number, length))
                    .await
                    .unwrap();
            }
        }
    });
    let mut answers: HashMap<u32, u32> = HashMap::new();
    for _ in 0..count {
        let message = within("an answer", connection.recv_frame())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(
            message.payload,
            payload(message.key, length),
            "message {}",
            message.key
        );
        *answers.entry(message.key).or_default() += 1;
    }
    assert!(
        answers.values().all(|times| *times == 1),
        "an answer came twice"
    );
    sender.await.unwrap();
}

pub(crate) async fn finish(connection: Arc<Connection>) {
    within("the close", connection.close()).await.unwrap();
    let end = within("the other close", connection.recv_frame()).await;
    assert_eq!(end.unwrap(), None);
}
