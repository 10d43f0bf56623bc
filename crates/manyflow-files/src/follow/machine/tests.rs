//! Sessions that are announced, in simulated time.

use super::*;
use crate::follow::{Origin, digest_of};
use crate::sdp::SessionDescription;

const TEXT: &str = "v=0\r
o=- 7 1 IN IP4 192.0.2.1\r
s=nightly\r
t=0 0\r
a=source-filter: incl IN IP4 * 192.0.2.1\r
a=flute-tsi:7\r
a=flute-ch:46\r
a=FEC-declaration:0 encoding-id=6\r
a=webrc:N=15;Q=30;TSD=10;BCR=1;P=0.75;LENP=1400;SR=2000000;constant=1;CCI=short;EL=0.5\r
m=application 5000 FLUTE/UDP *\r
c=IN IP4 232.1.2.0/1/46\r
a=FEC:0\r
";
const KEYS: [&str; 2] = [
    "ed25519:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
    "ed25519:AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
];

/// An announcement by the first key, of a version and with a table of files.
fn announced(name: &str, version: u64, table: u8) -> Announcement {
    let mut description = SessionDescription::parse(TEXT).unwrap();
    description.name = name.to_owned();
    description.version = version;
    description.table_sha256 = Some([table; 32]);
    Announcement {
        text: description.to_sdp().unwrap(),
        description,
        signer: Some(KEYS[0].parse().unwrap()),
        origin: Origin::Sap,
    }
}

fn by_second_key(announcement: Announcement) -> Announcement {
    let text = format!("{}a=other:signature\r\n", announcement.text);
    let signer = Some(KEYS[1].parse().unwrap());
    Announcement {
        text,
        signer,
        ..announcement
    }
}

fn at(seconds: u64) -> Time {
    Time::ZERO + Duration::from_secs(seconds)
}

/// A follower, and what it has asked for.
struct Stage {
    follower: Follower,
    records: BTreeMap<String, Record>,
}

impl Stage {
    fn new(rules: Rules, at_once: usize) -> Stage {
        Stage {
            follower: Follower::new(rules, at_once),
            records: BTreeMap::new(),
        }
    }

    /// Announces as a driver does, and returns what happens.
    fn announce(&mut self, now: u64, announcement: &Announcement) -> Vec<String> {
        let digest = announcement.digest();
        if !self.follower.handle_text(at(now), 0, &digest) {
            self.follower
                .handle_announcement(at(now), 0, announcement.clone());
        }
        self.happened()
    }

    fn end(&mut self, now: u64, folder: &str, end: End) -> Vec<String> {
        self.follower.handle_end(at(now), folder, end);
        self.happened()
    }

    /// Waits until the follower's next time-out, which is at `seconds`.
    fn time_out(&mut self, seconds: u64) -> Vec<String> {
        assert_eq!(self.follower.poll_timeout(), Some(at(seconds)));
        self.follower.handle_timeout(at(seconds));
        self.happened()
    }

    /// Takes all events: records are stored, and the others are words.
    fn happened(&mut self) -> Vec<String> {
        let mut happened = Vec::new();
        while let Some(event) = self.follower.poll_event() {
            match event {
                Event::Start {
                    folder,
                    announcement,
                } => happened.push(format!(
                    "start {folder} {}",
                    announcement.description.version
                )),
                Event::Stop { folder } => happened.push(format!("stop {folder}")),
                Event::Save(record) => drop(self.records.insert(record.folder.clone(), *record)),
                Event::Forget { folder } => {
                    assert!(self.records.remove(&folder).is_some(), "{folder}");
                }
                Event::Notice(Notice::Found(_)) => {}
                Event::Notice(Notice::Refused { refusal, .. }) => {
                    happened.push(format!("refused: {refusal}"));
                }
                Event::Notice(Notice::Failed { pause, .. }) => {
                    happened.push(format!("failed for {} s", pause.as_secs()));
                }
                Event::Notice(Notice::Ended { name }) => happened.push(format!("ended {name}")),
            }
        }
        happened
    }

    /// Returns a follower with the records of this one, as after a restart.
    fn restart(self, rules: Rules) -> (Stage, Vec<String>) {
        let mut stage = Stage::new(rules, 1);
        for record in self.records.values() {
            let description = SessionDescription::parse(&record.description).unwrap();
            let announcement = Announcement {
                description,
                text: record.description.clone(),
                signer: Some(KEYS[0].parse().unwrap()),
                origin: record.origin.clone(),
            };
            let progress = record.progress;
            stage.follower.restore(at(0), progress, announcement);
        }
        stage.records = self.records;
        let happened = stage.happened();
        (stage, happened)
    }
}

fn stage() -> Stage {
    Stage::new(Rules::default(), 1)
}

#[test]
fn a_session_is_received_once_however_often_it_is_announced() {
    let mut stage = stage();
    let session = announced("a", 5, 1);
    assert_eq!(stage.announce(0, &session), ["start a 5"]);
    for now in 1..9 {
        assert!(stage.announce(now, &session).is_empty());
    }
    assert!(stage.end(9, "a", End::Done(1_000)).is_empty());
    assert!(stage.announce(400, &session).is_empty());
    // Again after a restart.
    let (mut stage, happened) = stage.restart(Rules::default());
    assert!(happened.is_empty());
    assert!(stage.announce(0, &session).is_empty());
    assert_eq!(stage.follower.poll_timeout(), None);
}

#[test]
fn a_session_that_was_interrupted_continues_after_a_restart_without_an_announcement() {
    let mut stage = stage();
    stage.announce(0, &announced("a", 5, 1));
    let (_, happened) = stage.restart(Rules::default());
    assert_eq!(happened, ["start a 5"]);
}

#[test]
fn a_newer_session_of_the_name_takes_the_place_of_the_older_one() {
    let mut stage = stage();
    stage.announce(0, &announced("a", 5, 1));
    stage.end(1, "a", End::Done(1_000));
    assert_eq!(stage.announce(2, &announced("a", 6, 2)), ["start a 6"]);
    // While it is received, too.
    assert_eq!(stage.announce(3, &announced("a", 7, 3)), ["stop a"]);
    assert!(stage.announce(3, &announced("a", 8, 4)).is_empty());
    assert_eq!(stage.end(4, "a", End::Stopped), ["start a 8"]);
}

#[test]
fn a_session_that_its_sender_continues_is_neither_stopped_nor_received_again() {
    let mut stage = stage();
    stage.announce(0, &announced("a", 5, 1));
    assert!(stage.announce(1, &announced("a", 6, 1)).is_empty());
    stage.end(2, "a", End::Done(1_000));
    assert!(stage.announce(3, &announced("a", 7, 1)).is_empty());
}

/// An attacker has the announcements of the past, with their valid signatures.
#[test]
fn an_old_session_that_is_announced_again_starts_nothing() {
    let mut stage = stage();
    let old = announced("a", 5, 1);
    stage.announce(0, &old);
    stage.end(1, "a", End::Done(1_000));
    stage.announce(2, &announced("a", 6, 2));
    stage.end(3, "a", End::Done(1_000));
    assert!(stage.announce(4, &old).is_empty());
    let (mut stage, _) = stage.restart(Rules::default());
    let happened = stage.announce(0, &old);
    assert!(happened[0].contains("not newer"), "{happened:?}");
    // The user reads of it once.
    assert!(stage.announce(1, &old).is_empty());
}

#[test]
fn a_session_of_another_signer_does_not_take_a_folder() {
    let mut stage = stage();
    stage.announce(0, &announced("a", 5, 1));
    let other = by_second_key(announced("a", 6, 2));
    let happened = stage.announce(1, &other);
    assert!(
        happened[0].contains("belongs to sessions of ed25519:"),
        "{happened:?}"
    );
    // Nor does another name that has the same folder.
    stage.announce(2, &announced("x/y", 5, 1));
    let happened = stage.announce(3, &announced("x:y", 6, 1));
    assert!(happened[0].contains("its folder x_y"), "{happened:?}");
}

#[test]
fn rules_choose_names_and_sizes() {
    let rules = |max| Rules::new(&["fw-*".to_owned()], Some(max)).unwrap();
    let mut stage = Stage::new(rules(1_000), 1);
    let happened = stage.announce(0, &announced("other", 5, 1));
    assert_eq!(happened, ["refused: no pattern selects its name"]);
    let session = announced("fw-1", 5, 1);
    assert_eq!(stage.announce(0, &session), ["start fw-1 5"]);
    let happened = stage.end(1, "fw-1", End::TooLarge(1_001));
    assert_eq!(
        happened,
        ["refused: it has 1001 bytes, more than the limit"]
    );
    assert!(stage.announce(2, &session).is_empty());
    // A restart does not join it again, except with another limit.
    let (stage, happened) = stage.restart(rules(1_000));
    assert!(happened.is_empty());
    let (_, happened) = stage.restart(rules(1_001));
    assert_eq!(happened, ["start fw-1 5"]);
}

#[test]
fn a_session_that_fails_is_tried_again_after_growing_pauses() {
    let mut stage = stage();
    let session = announced("a", 5, 1);
    stage.announce(0, &session);
    let mut now = 0;
    for pause in [10, 20, 40, 80, 160, 320, 600, 600] {
        let failed = End::Failed("silent".to_owned());
        assert_eq!(
            stage.end(now, "a", failed),
            [format!("failed for {pause} s")]
        );
        stage.announce(now, &session);
        now += pause;
        assert_eq!(stage.time_out(now), ["start a 5"]);
    }
    // Another announcement has a new chance at once.
    stage.end(now, "a", End::Failed("silent".to_owned()));
    assert_eq!(
        stage.announce(now + 1, &announced("a", 6, 2)),
        ["start a 6"]
    );
}

#[test]
fn a_session_that_is_no_longer_announced_is_forgotten_after_an_hour() {
    let mut stage = stage();
    let session = announced("a", 5, 1);
    stage.announce(0, &session);
    // It is silent: the sender has ended.
    let mut now = 30;
    loop {
        stage.end(now, "a", End::Failed("silent".to_owned()));
        let due = stage.follower.poll_timeout().unwrap();
        now = (due - at(0)).as_secs();
        let happened = stage.time_out(now);
        if happened == ["ended a"] {
            break;
        }
        assert_eq!(happened, ["start a 5"]);
        now += 30;
    }
    assert_eq!(now, 3_600);
    assert!(stage.records.is_empty());
    assert_eq!(stage.announce(now, &session), ["start a 5"]);
}

#[test]
fn a_session_that_leaves_the_catalogue_ends_unless_it_is_received() {
    let mut stage = stage();
    let sessions = [
        announced("a", 5, 1),
        announced("b", 5, 1),
        announced("c", 5, 1),
    ];
    for session in &sessions {
        stage.announce(0, session);
    }
    stage.end(1, "a", End::Done(1));
    let listed = BTreeSet::from([sessions[2].digest()]);
    stage.follower.handle_listing(at(2), 0, &listed);
    assert!(
        stage.happened().is_empty(),
        "a is done, b is received, c is listed"
    );
    // The catalogue of another source is another matter.
    stage.follower.handle_listing(at(2), 1, &BTreeSet::new());
    assert!(stage.happened().is_empty());
    let happened = stage.end(3, "b", End::Failed("silent".to_owned()));
    assert_eq!(happened, ["failed for 10 s", "start c 5"]);
    stage.follower.handle_listing(at(4), 0, &listed);
    assert_eq!(stage.happened(), ["ended b"]);
}

#[test]
fn a_bounded_number_is_received_at_a_time_and_failures_come_last() {
    let mut stage = Stage::new(Rules::default(), 2);
    assert_eq!(stage.announce(0, &announced("a", 5, 1)), ["start a 5"]);
    assert_eq!(stage.announce(0, &announced("b", 5, 1)), ["start b 5"]);
    assert!(stage.announce(1, &announced("c", 5, 1)).is_empty());
    let happened = stage.end(2, "a", End::Failed("silent".to_owned()));
    assert_eq!(happened, ["failed for 10 s", "start c 5"]);
    assert!(stage.announce(30, &announced("d", 5, 1)).is_empty());
    // `a` is due for longer, and has failed.
    assert_eq!(stage.end(31, "b", End::Done(1)), ["start d 5"]);
    assert_eq!(stage.end(32, "c", End::Done(1)), ["start a 5"]);
}

#[test]
fn a_flood_of_unknown_texts_is_verified_at_a_bounded_rate() {
    let mut stage = stage();
    let mut verified = 0;
    // Ten thousand in a second, for a second.
    for number in 0..10_000 {
        let now = Time::ZERO + Duration::from_micros(100 * number);
        let digest = digest_of(&number.to_string());
        assert!(!stage.follower.handle_text(now, 0, &digest));
        verified += u32::from(stage.follower.may_verify(now));
    }
    assert!(
        (1_990..=2_000).contains(&verified),
        "{verified} with a burst of 1,000"
    );
}

#[test]
fn memory_is_bounded_whatever_trusted_signers_announce() {
    let mut stage = Stage::new(Rules::new(&["a*".to_owned()], None).unwrap(), 1);
    for number in 0..2 * REFUSED_MAX {
        stage.announce(0, &announced(&format!("a{number}"), 5, 1));
        stage.announce(0, &announced(&format!("b{number}"), 5, 1));
    }
    assert_eq!(stage.follower.sessions.len(), SESSIONS_MAX);
    // Complete sessions make room.
    let happened = stage.end(1, "a0", End::Done(1));
    assert_eq!(happened, ["start a1 5"]);
    stage.announce(2, &announced("a-last", 5, 1));
    assert!(!stage.records.contains_key("a0") && stage.records.contains_key("a-last"));
    assert!(stage.follower.texts.len() <= SESSIONS_MAX + REFUSED_MAX + 1);
}
