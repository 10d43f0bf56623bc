//! The task that serves a socket: receives, handles timers, and sends.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use manyflow_net::udp::Inbox;
use tokio::time::Sleep;

use super::core::{EndCore, Shared};

/// The batches that the driver receives before it sends and lets other tasks run.
const BATCHES: usize = 4;

/// Serves the socket until no application uses it and all connections are over.
pub(super) async fn drive(shared: Arc<Shared>) {
    let mut inbox = Inbox::default();
    let mut sleep = pin!(tokio::time::sleep(std::time::Duration::ZERO));
    poll_fn(|context| {
        let mut core = shared.lock();
        let is_more = receive(&mut core, &mut inbox, context);
        let now = core.clock.now();
        core.handle_timeouts(now);
        core.transmit(now);
        if core.is_over() {
            return Poll::Ready(());
        }
        core.driver = Some(context.waker().clone());
        if is_more || arm(&core, sleep.as_mut(), context) {
            context.waker().wake_by_ref();
        }
        Poll::Pending
    })
    .await;
}

/// Handles datagrams. Returns whether more may wait.
fn receive(core: &mut EndCore, inbox: &mut Inbox, context: &mut Context<'_>) -> bool {
    for _ in 0..BATCHES {
        match core.wire.poll_recv(inbox, context) {
            Poll::Pending => return false,
            Poll::Ready(Ok(())) => {
                let now = core.clock.now();
                while let Some(arrival) = inbox.next_arrival() {
                    core.handle_datagram(now, &arrival, inbox.bytes(arrival.payload.clone()));
                }
            }
            // An ICMP error of an earlier datagram; the connections' timers notice a dead path.
            Poll::Ready(Err(error)) => tracing::debug!("a socket reports: {error}"),
        }
    }
    true
}

/// Sets the timer. Returns whether it is due already.
fn arm(core: &EndCore, mut sleep: Pin<&mut Sleep>, context: &mut Context<'_>) -> bool {
    let Some(due) = core.next_timeout() else {
        return false;
    };
    let instant = core.clock.instant_of(due).into();
    if sleep.deadline() != instant {
        sleep.as_mut().reset(instant);
    }
    sleep.poll(context).is_ready()
}
