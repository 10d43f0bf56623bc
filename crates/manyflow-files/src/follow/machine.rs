//! The state of all sessions that a follower knows, without clock, sockets and files.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use manyflow_core::Time;
use manyflow_net::keys::PublicKey;
use manyflow_net::sap;

use super::bucket::Bucket;
use super::record::{Progress, Record};
use super::{Announcement, Digest, Rules, folder_of};

/// The maximum number of sessions that are known at a time. Beyond it, those are forgotten that are
/// complete and were not announced for the longest time.
const SESSIONS_MAX: usize = 1_024;
/// The maximum number of announcements that are remembered as refused.
const REFUSED_MAX: usize = 1_024;
/// The pause after the first failure of a session, which doubles with each further one.
const PAUSE_MIN: Duration = Duration::from_secs(10);
/// The longest pause after a failure.
const PAUSE_MAX: Duration = Duration::from_secs(600);

/// The number of a source of announcements, in the order in which the user named them.
pub type SourceId = usize;

/// A task for the driver.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Receive this session into the folder, and report the end to
    /// [`handle_end`](Follower::handle_end).
    Start {
        /// The folder, which also identifies the session.
        folder: String,
        /// The session.
        announcement: Box<Announcement>,
    },
    /// Stop receiving a session: a newer one has taken its place. The driver reports the end.
    Stop {
        /// The session's folder.
        folder: String,
    },
    /// Store this record in the place of the folder's earlier one.
    Save(Box<Record>),
    /// Remove the record of a session, but not its files.
    Forget {
        /// The session's folder.
        folder: String,
    },
    /// Tell the user.
    Notice(Notice),
}

/// News about a session.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// The session was announced, and will be received.
    Found(Box<Announcement>),
    /// The session was announced, and will not be received.
    Refused {
        /// The session's name.
        name: String,
        /// The signer of the announcement.
        signer: Option<PublicKey>,
        /// The reason.
        refusal: Refusal,
    },
    /// The session was not received, and will be tried again.
    Failed {
        /// The session's name.
        name: String,
        /// The reason.
        reason: String,
        /// The pause before the next attempt.
        pause: Duration,
    },
    /// The session is no longer announced, and was not received.
    Ended {
        /// The session's name.
        name: String,
    },
}

/// The reason why an announced session is not received.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The rules do not select the name.
    #[error("no pattern selects its name")]
    Name,
    /// The files are too long.
    #[error("it has {0} bytes, more than the limit")]
    Size(u64),
    /// The session was written before the one that is known, or at the same time.
    #[error(
        "it is not newer than the known session of this name: it may have been announced again by someone else. If its \
         sender's clock was ahead before, remove the session's file from the state folder"
    )]
    Older,
    /// A session of another signer or name has the folder.
    #[error("its folder {folder} belongs to sessions of {owner}: rename one of them")]
    Folder {
        /// The folder below the output folder.
        folder: String,
        /// The other session's signer and name.
        owner: String,
    },
    /// There are too many sessions.
    #[error("{SESSIONS_MAX} other sessions are announced and not complete")]
    Full,
    /// The session cannot be received with the options of this receiver.
    #[error("{0}")]
    Unusable(String),
}

/// The end of an attempt to receive a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// All files are stored: this number of bytes.
    Done(u64),
    /// The table of files announced too many bytes.
    TooLarge(u64),
    /// The session cannot be received with these options.
    Unusable(String),
    /// The attempt failed for this reason, and another may succeed.
    Failed(String),
    /// The driver was asked to stop.
    Stopped,
}

#[derive(Debug)]
struct Entry {
    announcement: Announcement,
    digest: Digest,
    state: State,
    /// Time of the latest announcement.
    heard: Time,
    /// The source of the latest announcement; `None` if it comes from the state folder.
    source: Option<SourceId>,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    Waiting {
        due: Time,
        failures: u32,
    },
    /// An attempt runs. It is superseded if a newer session waits for its end.
    Receiving {
        failures: u32,
        is_superseded: bool,
    },
    Done {
        bytes: u64,
    },
    /// Not received; with the length of the files if it is the reason.
    Refused {
        bytes: Option<u64>,
    },
}

/// Decides which of the announced sessions are received, and when.
///
/// Sessions are identified by signer and name: a newer one takes the place of an older one. The
/// caller verifies signatures before it hands in an announcement, and hands in only those that it
/// trusts.
#[derive(Debug)]
pub struct Follower {
    rules: Rules,
    at_once: usize,
    /// The sessions by their folders.
    sessions: BTreeMap<String, Entry>,
    /// The announcements that are current, or are refused: those have no folder.
    texts: BTreeMap<Digest, Option<String>>,
    verifications: Bucket,
    running: usize,
    events: VecDeque<Event>,
}

impl Follower {
    /// Follows sessions by these rules, and receives this number at a time, at least 1.
    pub fn new(rules: Rules, at_once: usize) -> Follower {
        Follower {
            rules,
            at_once: at_once.max(1),
            sessions: BTreeMap::new(),
            texts: BTreeMap::new(),
            verifications: Bucket::default(),
            running: 0,
            events: VecDeque::new(),
        }
    }

    /// Takes a session from the state folder, with its verified announcement. One that was not
    /// complete is continued without another announcement.
    pub fn restore(&mut self, now: Time, progress: Progress, announcement: Announcement) {
        let waiting = State::Waiting {
            due: now,
            failures: 0,
        };
        let state = match progress {
            Progress::Done { bytes } => State::Done { bytes },
            Progress::TooLarge { bytes } if self.rules.is_too_large(bytes) => {
                State::Refused { bytes: Some(bytes) }
            }
            _ if !self.rules.wants(&announcement) => State::Refused { bytes: None },
            _ => waiting,
        };
        self.insert(now, None, state, announcement);
        self.start_waiting(now);
    }

    /// Notes that a text was announced. Returns false if it is unknown: the caller then asks
    /// [`may_verify`](Self::may_verify), verifies it, and hands it in.
    pub fn handle_text(&mut self, now: Time, source: SourceId, digest: &Digest) -> bool {
        let Some(folder) = self.texts.get(digest) else {
            return false;
        };
        if let Some(entry) = folder
            .as_ref()
            .and_then(|folder| self.sessions.get_mut(folder))
        {
            (entry.heard, entry.source) = (now, Some(source));
        }
        true
    }

    /// Whether there is time to verify an unknown text. Forged announcements must not take a
    /// processor, so their number in a second is limited.
    pub fn may_verify(&mut self, now: Time) -> bool {
        self.verifications.take(now)
    }

    /// Takes an announcement that the caller has verified and trusts.
    pub fn handle_announcement(&mut self, now: Time, source: SourceId, announcement: Announcement) {
        if !self.rules.wants(&announcement) {
            return self.refuse(announcement, Refusal::Name);
        }
        let folder = folder_of(&announcement.description.name);
        let Some(entry) = self.sessions.get_mut(&folder) else {
            if self.sessions.len() >= SESSIONS_MAX && !self.forget_complete() {
                return self.refuse(announcement, Refusal::Full);
            }
            return self.add(now, source, announcement);
        };
        let known = &entry.announcement;
        if !known.has_owner_of(&announcement) {
            let owner = known.owner();
            return self.refuse(announcement, Refusal::Folder { folder, owner });
        }
        if announcement.description.version <= known.description.version {
            return self.refuse(announcement, Refusal::Older);
        }
        let has_content = known.has_content_of(&announcement);
        let is_same_session = has_content && known.is_session_of(&announcement);
        let old = std::mem::replace(&mut entry.digest, announcement.digest());
        entry.announcement = announcement;
        (entry.heard, entry.source) = (now, Some(source));
        let digest = entry.digest;
        match &mut entry.state {
            State::Done { .. } if has_content => {}
            State::Receiving { .. } if is_same_session => {}
            State::Receiving { is_superseded, .. } => {
                if !std::mem::replace(is_superseded, true) {
                    self.events.push_back(Event::Stop {
                        folder: folder.clone(),
                    });
                }
            }
            state => {
                *state = State::Waiting {
                    due: now,
                    failures: 0,
                };
                let found = Box::new(entry.announcement.clone());
                self.events.push_back(Event::Notice(Notice::Found(found)));
            }
        }
        self.texts.insert(old, None);
        self.texts.insert(digest, Some(folder.clone()));
        self.save(&folder);
        self.start_waiting(now);
    }

    /// Takes the complete list of a source that has one: announcements that are not on it have
    /// ended.
    pub fn handle_listing(&mut self, now: Time, source: SourceId, listed: &BTreeSet<Digest>) {
        for entry in self.sessions.values_mut() {
            if listed.contains(&entry.digest) {
                (entry.heard, entry.source) = (now, Some(source));
            }
        }
        self.end_sessions(|entry| entry.source == Some(source) && !listed.contains(&entry.digest));
    }

    /// Takes the end of an attempt to receive the session of this folder.
    pub fn handle_end(&mut self, now: Time, folder: &str, end: End) {
        let Some(entry) = self.sessions.get_mut(folder) else {
            return;
        };
        let State::Receiving {
            failures,
            is_superseded,
        } = entry.state
        else {
            debug_assert!(false, "only a session that is received ends");
            return;
        };
        self.running -= 1;
        let again = State::Waiting {
            due: now,
            failures: 0,
        };
        let name = entry.announcement.description.name.clone();
        let signer = entry.announcement.signer;
        let refused = |refusal| {
            Some(Notice::Refused {
                name: name.clone(),
                signer,
                refusal,
            })
        };
        let (state, notice) = match end {
            _ if is_superseded => {
                let found = Box::new(entry.announcement.clone());
                (again, Some(Notice::Found(found)))
            }
            End::Done(bytes) => (State::Done { bytes }, None),
            End::TooLarge(bytes) => {
                let state = State::Refused { bytes: Some(bytes) };
                (state, refused(Refusal::Size(bytes)))
            }
            End::Unusable(reason) => {
                let state = State::Refused { bytes: None };
                (state, refused(Refusal::Unusable(reason)))
            }
            End::Failed(reason) => {
                let pause = pause_after(failures);
                let state = State::Waiting {
                    due: now + pause,
                    failures: failures + 1,
                };
                let failed = Notice::Failed {
                    name,
                    reason,
                    pause,
                };
                (state, Some(failed))
            }
            End::Stopped => (again, None),
        };
        entry.state = state;
        self.events.extend(notice.map(Event::Notice));
        self.save(folder);
        self.start_waiting(now);
    }

    /// Starts sessions that are due. Forgets sessions that are no longer announced.
    pub fn handle_timeout(&mut self, now: Time) {
        self.end_sessions(|entry| now >= entry.heard + sap::TIMEOUT_MIN);
        self.start_waiting(now);
    }

    /// Returns the next task.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns the time at which [`handle_timeout`](Self::handle_timeout) has something to do.
    pub fn poll_timeout(&self) -> Option<Time> {
        let has_room = self.running < self.at_once;
        let times = self.sessions.values().filter_map(|entry| {
            let forgotten = entry.heard + sap::TIMEOUT_MIN;
            match entry.state {
                State::Waiting { due, .. } if has_room => Some(due.min(forgotten)),
                State::Waiting { .. } | State::Refused { .. } => Some(forgotten),
                State::Receiving { .. } | State::Done { .. } => None,
            }
        });
        times.min()
    }

    fn add(&mut self, now: Time, source: SourceId, announcement: Announcement) {
        let found = Box::new(announcement.clone());
        self.events.push_back(Event::Notice(Notice::Found(found)));
        let state = State::Waiting {
            due: now,
            failures: 0,
        };
        let folder = self.insert(now, Some(source), state, announcement);
        self.save(&folder);
        self.start_waiting(now);
    }

    fn insert(
        &mut self,
        now: Time,
        source: Option<SourceId>,
        state: State,
        announcement: Announcement,
    ) -> String {
        let folder = folder_of(&announcement.description.name);
        let digest = announcement.digest();
        self.texts.insert(digest, Some(folder.clone()));
        let entry = Entry {
            announcement,
            digest,
            state,
            heard: now,
            source,
        };
        self.sessions.insert(folder.clone(), entry);
        folder
    }

    /// Refuses an announcement, and remembers it, so that the user reads of it once.
    fn refuse(&mut self, announcement: Announcement, refusal: Refusal) {
        if self.texts.len() >= self.sessions.len() + REFUSED_MAX {
            self.texts.retain(|_, folder| folder.is_some());
        }
        self.texts.insert(announcement.digest(), None);
        let notice = Notice::Refused {
            name: announcement.description.name,
            signer: announcement.signer,
            refusal,
        };
        self.events.push_back(Event::Notice(notice));
    }

    fn save(&mut self, folder: &str) {
        if let Some(entry) = self.sessions.get(folder) {
            let progress = match entry.state {
                State::Done { bytes } => Progress::Done { bytes },
                State::Refused { bytes: Some(bytes) } => Progress::TooLarge { bytes },
                _ => Progress::Incomplete,
            };
            let record = Record::new(folder, progress, &entry.announcement);
            self.events.push_back(Event::Save(Box::new(record)));
        }
    }

    /// Forgets the complete session that was not announced for the longest time. Returns false if
    /// no session is complete.
    fn forget_complete(&mut self) -> bool {
        let complete = self.sessions.iter();
        let complete = complete.filter(|(_, entry)| matches!(entry.state, State::Done { .. }));
        let oldest = complete.min_by_key(|(_, entry)| entry.heard);
        let Some(folder) = oldest.map(|(folder, _)| folder.clone()) else {
            return false;
        };
        if let Some(entry) = self.sessions.remove(&folder) {
            self.texts.remove(&entry.digest);
            self.events.push_back(Event::Forget { folder });
        }
        true
    }

    /// Forgets sessions that are neither received nor complete, if `has_ended` says so.
    fn end_sessions(&mut self, has_ended: impl Fn(&Entry) -> bool) {
        let is_idle =
            |state: &State| matches!(state, State::Waiting { .. } | State::Refused { .. });
        let ended = self.sessions.iter();
        let ended = ended.filter(|(_, entry)| is_idle(&entry.state) && has_ended(entry));
        let ended: Vec<_> = ended.map(|(folder, _)| folder.clone()).collect();
        for folder in ended {
            if let Some(entry) = self.sessions.remove(&folder) {
                self.texts.remove(&entry.digest);
                let name = entry.announcement.description.name;
                self.events.push_back(Event::Forget { folder });
                self.events.push_back(Event::Notice(Notice::Ended { name }));
            }
        }
    }

    /// Starts as many of the sessions that are due as may run, first those with few failures.
    fn start_waiting(&mut self, now: Time) {
        while self.running < self.at_once {
            let waiting =
                self.sessions
                    .iter_mut()
                    .filter_map(|(folder, entry)| match entry.state {
                        State::Waiting { due, failures } if due <= now => {
                            Some(((failures, due), folder, entry))
                        }
                        _ => None,
                    });
            let Some(((failures, _), folder, entry)) = waiting.min_by_key(|(rank, ..)| *rank)
            else {
                break;
            };
            entry.state = State::Receiving {
                failures,
                is_superseded: false,
            };
            self.running += 1;
            self.events.push_back(Event::Start {
                folder: folder.clone(),
                announcement: Box::new(entry.announcement.clone()),
            });
        }
        let receiving = |entry: &&Entry| matches!(entry.state, State::Receiving { .. });
        debug_assert_eq!(
            self.running,
            self.sessions.values().filter(receiving).count()
        );
        debug_assert!(self.running <= self.at_once);
    }
}

/// Returns the pause after a failure that `failures` others have preceded.
fn pause_after(failures: u32) -> Duration {
    let doubled = PAUSE_MIN.saturating_mul(1 << failures.min(16));
    doubled.min(PAUSE_MAX)
}

#[cfg(test)]
mod tests;
