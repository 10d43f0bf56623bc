//! Says in the log that a counterpart cannot be reached, and when it is back.
//!
//! Every role that waits for another uses [`Reach`], so that a wrong address is found in two
//! seconds, and a long outage does not fill the log.

use std::convert::Infallible;
use std::fmt::{self, Display, Formatter};
use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Time without the counterpart before the first warning. A connection over a slow path is up by
/// then.
pub const FIRST_WARNING: Duration = Duration::from_secs(2);
/// Time between the later warnings.
pub const NEXT_WARNING: Duration = Duration::from_secs(60);

/// Whether a counterpart, such as a daemon, a switch or a sender, can be reached.
///
/// Begins as not reached. Methods return what to log, so that a state machine can be tested with
/// any clock; [`warn_while_down`](Self::warn_while_down) and [`during`](Self::during) log by
/// themselves.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
/// #     .block_on(async {
/// use std::time::Duration;
/// use manyflow_net::reach::Reach;
/// use tokio::time::Instant;
///
/// let mut reach = Reach::new("the daemon b at 192.0.2.2:7000", "is it running?");
/// reach.down("connection refused");
/// let later = Instant::now() + Duration::from_secs(2);
/// assert_eq!(
///     reach.poll(later).unwrap().to_string(),
///     "the daemon b at 192.0.2.2:7000 has not been reachable for 2 s: connection refused; \
///      still trying: is it running?",
/// );
/// # });
/// ```
#[derive(Clone, Debug)]
pub struct Reach {
    counterpart: String,
    /// The fault of the counterpart while it is down, for a sentence.
    complaint: &'static str,
    hint: String,
    /// Why the last attempt failed, if a reason is known.
    reason: Option<String>,
    /// `None` while the counterpart is reached.
    down: Option<Down>,
    /// Whether nothing is logged.
    is_silent: bool,
}

#[derive(Copy, Clone, Debug)]
struct Down {
    since: Instant,
    next_warning: Instant,
    is_warned: bool,
}

impl Down {
    fn begin(now: Instant) -> Down {
        Down {
            since: now,
            next_warning: now + FIRST_WARNING,
            is_warned: false,
        }
    }
}

/// A sentence for the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// The counterpart cannot be reached.
    Down(String),
    /// The counterpart is reached again after a warning. As loud as the warning that it ends.
    Back(String),
}

impl Display for Notice {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let (Notice::Down(text) | Notice::Back(text)) = self;
        formatter.write_str(text)
    }
}

impl Notice {
    /// Writes the sentence to the log, as a warning.
    pub fn log(&self) {
        tracing::warn!("{self}");
    }
}

impl Reach {
    /// Begins to wait for `counterpart`, a name with its address. The warnings end with `hint`,
    /// which says what to check; it may be empty.
    pub fn new(counterpart: impl Into<String>, hint: impl Into<String>) -> Reach {
        Reach {
            counterpart: counterpart.into(),
            complaint: "has not been reachable",
            hint: hint.into(),
            reason: None,
            down: Some(Down::begin(Instant::now())),
            is_silent: false,
        }
    }

    /// Begins to wait for a counterpart of which another part of this program warns.
    pub fn silent() -> Reach {
        Reach {
            is_silent: true,
            ..Reach::new("", "")
        }
    }

    /// Watches a counterpart that is reached, for another fault: the warnings have `complaint`
    /// where the usual ones say "has not been reachable".
    pub fn of_fault(
        counterpart: impl Into<String>,
        complaint: &'static str,
        hint: impl Into<String>,
    ) -> Reach {
        Reach {
            complaint,
            down: None,
            ..Reach::new(counterpart, hint)
        }
    }

    /// Whether the counterpart is reached.
    pub fn is_up(&self) -> bool {
        self.down.is_none()
    }

    /// The counterpart is reached. Returns a notice if a warning was given before.
    pub fn up(&mut self) -> Option<Notice> {
        self.reason = None;
        let down = self.down.take()?;
        down.is_warned.then(|| {
            let seconds = down.since.elapsed().as_secs();
            Notice::Back(format!("{} is back after {seconds} s", self.counterpart))
        })
    }

    /// The counterpart is not reached, or an attempt failed for `reason`. The next warning names
    /// the reason.
    pub fn down(&mut self, reason: impl Display) {
        self.down_since(Instant::now(), reason);
    }

    /// The same as [`down`](Self::down) for an outage that began at `since`, if it is new.
    pub fn down_since(&mut self, since: Instant, reason: impl Display) {
        self.reason = Some(reason.to_string());
        self.down.get_or_insert_with(|| Down::begin(since));
    }

    /// When [`poll`](Self::poll) has the next warning; `None` while the counterpart is reached.
    pub fn next_warning(&self) -> Option<Instant> {
        let down = self.down.filter(|_| !self.is_silent)?;
        Some(down.next_warning)
    }

    /// Returns the warning that is due at `now`, if one is.
    pub fn poll(&mut self, now: Instant) -> Option<Notice> {
        let down = self.down.as_mut()?;
        if self.is_silent || now < down.next_warning {
            return None;
        }
        down.next_warning = now + NEXT_WARNING;
        down.is_warned = true;
        let seconds = (now - down.since).as_secs();
        let reason = self.reason.as_deref().unwrap_or("no answer");
        let mut text = format!(
            "{} {} for {seconds} s: {reason}; still trying",
            self.counterpart, self.complaint
        );
        if !self.hint.is_empty() {
            text.push_str(": ");
            text.push_str(&self.hint);
        }
        Some(Notice::Down(text))
    }

    /// Logs the warnings as they get due, and never returns. Cancel safe: a branch of `select!`.
    pub async fn warn_while_down(&mut self) -> Infallible {
        loop {
            let Some(at) = self.next_warning() else {
                return std::future::pending().await;
            };
            sleep_until(at).await;
            if let Some(notice) = self.poll(Instant::now()) {
                notice.log();
            }
        }
    }

    /// Runs `attempt` to reach the counterpart, and logs warnings meanwhile.
    ///
    /// # Errors
    /// Those of `attempt`, after which the counterpart counts as not reached.
    pub async fn during<T, E: Display>(
        &mut self,
        attempt: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let mut attempt = pin!(attempt);
        let result = tokio::select! {
            result = &mut attempt => result,
            never = self.warn_while_down() => match never {},
        };
        match &result {
            Ok(_) => self.up().iter().for_each(Notice::log),
            Err(error) => self.down(error),
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn reach() -> Reach {
        Reach::new("the switch at 192.0.2.1:7000", "is it running?")
    }

    /// Returns the seconds, from now on, at which there are warnings during `span`.
    fn warnings(reach: &mut Reach, span: Duration) -> Vec<u64> {
        let start = Instant::now();
        let mut found = Vec::new();
        while let Some(at) = reach.next_warning().filter(|at| *at <= start + span) {
            assert!(reach.poll(at).is_some());
            found.push((at - start).as_secs());
        }
        found
    }

    #[tokio::test(start_paused = true)]
    async fn warns_after_two_seconds_and_then_every_minute() {
        assert_eq!(
            warnings(&mut reach(), Duration::from_secs(130)),
            [2, 62, 122]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn says_nothing_of_a_short_outage() {
        let mut reach = reach();
        assert_eq!(reach.up(), None);
        reach.down("connection reset");
        advance(Duration::from_millis(1900)).await;
        assert_eq!(reach.poll(Instant::now()), None);
        assert_eq!(reach.up(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn says_nothing_of_a_counterpart_of_which_others_warn() {
        let mut reach = Reach::silent();
        reach.down("connection refused");
        advance(Duration::from_secs(5)).await;
        assert_eq!(reach.next_warning(), None);
        assert_eq!(reach.poll(Instant::now()), None);
        assert!(!reach.is_up());
        assert_eq!(reach.up(), None);
        assert!(reach.is_up());
    }

    #[tokio::test(start_paused = true)]
    async fn says_when_the_counterpart_is_back() {
        let mut reach = reach();
        advance(Duration::from_secs(5)).await;
        assert!(reach.poll(Instant::now()).is_some());
        reach.down("connection refused");
        advance(Duration::from_secs(5)).await;
        assert_eq!(
            reach.up(),
            Some(Notice::Back(
                "the switch at 192.0.2.1:7000 is back after 10 s".into()
            ))
        );
        assert_eq!(reach.up(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn failed_attempts_do_not_begin_the_outage_again() {
        let mut reach = reach();
        for _ in 0..10 {
            reach.down("connection refused");
            advance(Duration::from_millis(190)).await;
        }
        assert_eq!(reach.poll(Instant::now()), None);
        advance(Duration::from_millis(100)).await;
        let warning = reach.poll(Instant::now()).unwrap().to_string();
        assert!(warning.contains("connection refused"), "{warning}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_hangs_is_warned_of() {
        let mut reach = reach();
        let slow = async {
            tokio::time::sleep(Duration::from_secs(70)).await;
            Err::<(), _>("timed out")
        };
        assert_eq!(reach.during(slow).await, Err("timed out"));
        assert!(!reach.is_up());
        assert!(reach.down.unwrap().is_warned);
        assert_eq!(warnings(&mut reach, Duration::from_secs(60)), [52]);
    }
}
