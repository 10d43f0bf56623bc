//! The end of a daemon, as its clients and neighbours see it.

use std::cell::RefCell;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::core::DaemonCore;
use super::nats::serve::Front;

/// The time for which a daemon that stops waits until its messages have been acknowledged. Other
/// daemons acknowledge after 200 ms; with a broken link they would not.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(3);
/// The time for which clients' last bytes are written when a daemon stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// Announces the end to clients, and delivers the messages that the daemon has accepted.
pub(super) async fn retire(core: &RefCell<DaemonCore>, front: Option<&Front>, grace: Duration) {
    if let Some(front) = front {
        front.is_retiring.set(true);
        core.borrow_mut().withdraw_addresses();
        let line = |peer| front.lame_duck_info(peer);
        core.borrow().send_to_clients(line);
    }
    wait_until(grace, || !core.borrow().has_clients()).await;
    core.borrow_mut().settle();
    wait_until(SETTLE_TIMEOUT, || core.borrow().is_settled()).await;
    core.borrow_mut().close();
    wait_until(STOP_TIMEOUT, || core.borrow().is_closed()).await;
}

/// Closes all connections. Neighbours and clients get what has been written for them.
pub(super) async fn close(core: &RefCell<DaemonCore>) {
    core.borrow_mut().close();
    sleep(Duration::ZERO).await;
    wait_until(STOP_TIMEOUT, || core.borrow().is_drained()).await;
}

/// Waits until a condition holds, at most for `limit`.
async fn wait_until(limit: Duration, holds: impl Fn() -> bool) {
    let holding = async {
        while !holds() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    // The caller goes on in either case.
    let _ = timeout(limit, holding).await;
}
