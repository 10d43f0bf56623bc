//! The history of operations on a map, and whether it is linearizable.

use std::collections::BTreeMap;
use std::sync::Mutex;

use manyflow_examples::map::{Answer, Operation};
use todc_utils::linearizability::WGLChecker;
use todc_utils::linearizability::history::{Action, History as Checked};
use todc_utils::specifications::Specification;

/// An operation, and when it was called and answered: places in the history.
#[derive(Debug)]
struct Call {
    operation: Operation,
    answer: Answer,
    called: usize,
    /// `None` if nobody knows the answer.
    answered: Option<usize>,
}

/// The operations of all clients.
#[derive(Default, Debug)]
pub(crate) struct History {
    inner: Mutex<Inner>,
}

#[derive(Default, Debug)]
struct Inner {
    calls: Vec<Call>,
    places: usize,
    /// Operations with a known answer.
    done: usize,
    /// Operations without an answer.
    waiting: usize,
}

/// An operation with its answer, as the checker sees it.
type Observed = (Operation, Answer);

/// The value of one key. Keys are independent, so each has a history of its own.
struct Register;

impl Specification for Register {
    type State = Option<u64>;
    type Operation = Observed;

    fn init() -> Option<u64> {
        None
    }

    fn apply((operation, answer): &Observed, state: &Option<u64>) -> (bool, Option<u64>) {
        let (expected, next) = match operation {
            Operation::Get(_) | Operation::Peek(_) => (Answer::Value(*state), *state),
            Operation::Put(_, value) => (Answer::Stored(true), Some(*value)),
            Operation::CompareAndSet(_, wanted, value) if wanted == state => {
                (Answer::Stored(true), Some(*value))
            }
            Operation::CompareAndSet(..) => (Answer::Stored(false), *state),
        };
        (*answer == expected || *answer == Answer::Unknown, next)
    }
}

pub(crate) fn key_of(operation: &Operation) -> &str {
    match operation {
        Operation::Get(key)
        | Operation::Peek(key)
        | Operation::Put(key, _)
        | Operation::CompareAndSet(key, ..) => key,
    }
}

impl History {
    /// Records the beginning of an operation. Returns its number.
    pub(crate) fn call(&self, operation: Operation) -> usize {
        let mut inner = self.inner.lock().unwrap();
        let called = inner.places;
        inner.places += 1;
        inner.waiting += 1;
        inner.calls.push(Call {
            operation,
            answer: Answer::Unknown,
            called,
            answered: None,
        });
        inner.calls.len() - 1
    }

    /// Records the answer to an operation.
    pub(crate) fn answer(&self, number: usize, answer: Answer) {
        let mut inner = self.inner.lock().unwrap();
        let place = inner.places;
        inner.places += 1;
        inner.waiting -= 1;
        inner.done += usize::from(matches!(answer, Answer::Value(_) | Answer::Stored(_)));
        let call = &mut inner.calls[number];
        call.answer = answer;
        call.answered = (answer != Answer::Unknown).then_some(place);
    }

    /// Returns the number of operations that were made.
    pub(crate) fn done(&self) -> usize {
        self.inner.lock().unwrap().done
    }

    /// Returns the number of operations that wait for their answers.
    pub(crate) fn waiting(&self) -> usize {
        self.inner.lock().unwrap().waiting
    }

    /// Returns the number of operations that have begun.
    pub(crate) fn called(&self) -> usize {
        self.inner.lock().unwrap().calls.len()
    }

    /// Returns the numbers of operations that were made, not served, and of unknown outcome.
    pub(crate) fn counts(&self) -> [usize; 3] {
        let inner = self.inner.lock().unwrap();
        let count = |answer| {
            let calls = inner.calls.iter();
            calls.filter(|call| call.answer == answer).count()
        };
        [inner.done, count(Answer::NotServed), count(Answer::Unknown)]
    }

    /// Returns the keys whose histories are not linearizable.
    pub(crate) fn wrong_keys(&self) -> Vec<String> {
        let inner = self.inner.lock().unwrap();
        let mut by_key: BTreeMap<&str, Vec<&Call>> = BTreeMap::new();
        for call in &inner.calls {
            by_key
                .entry(key_of(&call.operation))
                .or_default()
                .push(call);
        }
        let wrong = by_key
            .into_iter()
            .filter(|(_, calls)| !is_linearizable(calls));
        wrong.map(|(key, _)| key.to_owned()).collect()
    }
}

/// Whether the operations on one key are linearizable. Those that were not served did not happen.
/// One with an unknown outcome may happen at any time after its call, or, as its last effect that
/// nobody sees, after all others.
fn is_linearizable(calls: &[&Call]) -> bool {
    let made = calls.iter().filter(|call| match call.answer {
        Answer::NotServed => false,
        Answer::Unknown => !matches!(call.operation, Operation::Get(_) | Operation::Peek(_)),
        Answer::Value(_) | Answer::Stored(_) => true,
    });
    let mut actions = Vec::new();
    for (process, call) in made.enumerate() {
        let observed = (call.operation.clone(), call.answer);
        let answered = call.answered.unwrap_or(usize::MAX);
        actions.push((call.called, process, Action::Call(observed.clone())));
        actions.push((answered, process, Action::Response(observed)));
    }
    actions.sort_by_key(|(place, ..)| *place);
    let actions: Vec<_> = actions
        .into_iter()
        .map(|(_, process, action)| (process, action))
        .collect();
    actions.is_empty() || WGLChecker::<Register>::is_linearizable(Checked::from_actions(actions))
}

#[test]
fn a_value_that_is_read_after_its_successor_is_wrong() {
    let get = || Operation::Get("k".to_owned());
    let put = |value| Operation::Put("k".to_owned(), value);
    let swap = |wanted, value| Operation::CompareAndSet("k".to_owned(), Some(wanted), value);
    let history = |steps: &[(Operation, Answer)]| {
        let history = History::default();
        for (operation, answer) in steps {
            let number = history.call(operation.clone());
            history.answer(number, *answer);
        }
        history.wrong_keys()
    };
    let good = [
        (put(1), Answer::Stored(true)),
        (put(2), Answer::Unknown),
        (put(3), Answer::NotServed),
        (get(), Answer::Value(Some(1))),
        (swap(1, 4), Answer::Stored(true)),
        (swap(1, 5), Answer::Stored(false)),
        // The unknown one happens here.
        (get(), Answer::Value(Some(2))),
    ];
    assert_eq!(history(&good), [""; 0]);
    let wrong: [&[(Operation, Answer)]; 3] = [
        &[
            (put(1), Answer::Stored(true)),
            (put(2), Answer::Stored(true)),
            (get(), Answer::Value(Some(1))),
        ],
        &[(put(3), Answer::NotServed), (get(), Answer::Value(Some(3)))],
        &[
            (put(1), Answer::Stored(true)),
            (swap(1, 2), Answer::Stored(true)),
            (swap(1, 3), Answer::Stored(true)),
        ],
    ];
    for steps in wrong {
        assert_eq!(history(steps), ["k"], "{steps:?}");
    }
}
