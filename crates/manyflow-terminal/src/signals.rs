//! The signals and times that end a command.

use std::future::{pending, poll_fn};
use std::task::Poll;
use std::time::Duration;

use manyflow_net::process::process_status;
use nix::libc::{SIGHUP, SIGXFSZ};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Completes when the user presses Ctrl-C, when a service manager sends SIGTERM, or when the
/// terminal is closed (SIGHUP). The signals are handled from the call on, not from the first poll:
/// roles call this before they print that they run, and after all that can wait.
pub fn interrupted() -> impl Future<Output = ()> {
    let mut kinds = vec![SignalKind::interrupt(), SignalKind::terminate()];
    if !is_hangup_ignored() {
        kinds.push(SignalKind::hangup());
    }
    // A signal without a handler ends the process, so a failure does not need to be reported.
    let mut signals: Vec<Signal> = kinds
        .into_iter()
        .filter_map(|kind| signal(kind).ok())
        .collect();
    poll_fn(move |context| {
        let came = |signal: &mut Signal| signal.poll_recv(context).is_ready();
        match signals.iter_mut().any(came) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
}

/// Lets the process survive SIGXFSZ, so that a write beyond the limit of the length of files
/// (`ulimit -f`) fails with an error. Otherwise the signal would end the process without a word.
pub(crate) fn survive_long_files() {
    // The handler remains when its `Signal` is dropped. If there can be none, the limit ends the
    // process.
    drop(signal(SignalKind::from_raw(SIGXFSZ)));
}

/// Completes after a duration, if there is one.
pub async fn elapsed(duration: Option<Duration>) {
    match duration {
        Some(duration) => tokio::time::sleep(duration).await,
        None => pending().await,
    }
}

/// Time for outputs, programs, disks and peers of a command to end after the command was asked to.
pub const END_GRACE: Duration = Duration::from_millis(1500);

/// Completes when an operator sends SIGUSR2, by which nats-server enters its lame duck mode. The
/// signal is handled from the call on, as by [`interrupted`].
pub fn lame_duck_requested() -> impl Future<Output = ()> {
    let handler = signal(SignalKind::user_defined2());
    async {
        match handler {
            Ok(mut signal) => {
                signal.recv().await;
            }
            // Without a handler, the signal ends the process.
            Err(_) => pending().await,
        }
    }
}

/// Whether the process was started with SIGHUP ignored, as `nohup` does. A handler would undo that.
fn is_hangup_ignored() -> bool {
    let ignored = process_status("SigIgn:").and_then(|mask| u64::from_str_radix(&mask, 16).ok());
    ignored.is_some_and(|mask| mask >> (SIGHUP - 1) & 1 == 1)
}
