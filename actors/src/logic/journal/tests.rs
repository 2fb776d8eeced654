//! Tests of the fold of records, and of segments that are cut.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::logic::request::{EngineRequest, ids::RequestId};

fn choices(first: u64, count: u64, answer: &Arc<str>) -> Vec<Arc<EngineRequest>> {
    let choice = |id: u64| EngineRequest {
        choice: (id - first) as u32,
        seed: id * 31,
        group: RequestId(first),
        answer_id: Some(Arc::clone(answer)),
        arrival: 500,
        deadline: Some(900),
        ..EngineRequest::for_test(id, [1, 2, 3])
    };
    (first..first + count).map(|id| Arc::new(choice(id))).collect()
}

fn name(number: u8) -> Arc<str> {
    format!("answer-{number}").into()
}

fn record() -> impl Strategy<Value = Record> {
    let answer = 0u8..5;
    prop_oneof![
        (answer.clone(), any::<bool>()).prop_map(|(answer, needs_requests)| Record::Answer {
            name: name(answer),
            data: vec![answer; 9].into(),
            needs_requests,
        }),
        (answer.clone(), 0u64..40, 1u64..4).prop_map(|(answer, first, count)| {
            Record::Accepted(Acceptance::new(7, &choices(first, count, &name(answer))).unwrap())
        }),
        (0u64..40, any::<bool>()).prop_map(|(id, is_reproducible)| Record::Ended {
            request: RequestId(id),
            is_reproducible
        }),
        answer.clone().prop_map(|answer| Record::Dropped { name: name(answer) }),
        prop::collection::vec(answer, 0..3)
            .prop_map(|names| Record::Tried { names: names.into_iter().map(name).collect() }),
        Just(Record::Closed),
    ]
}

fn segment(records: impl IntoIterator<Item = Record>) -> Vec<u8> {
    let mut bytes = Vec::new();
    records.into_iter().for_each(|record| FRAMES.encode(&record, &mut bytes).unwrap());
    bytes
}

proptest! {
    /// A new segment with the snapshot holds what the old one held, however the two were made.
    #[test]
    fn a_snapshot_is_the_content(
        records in prop::collection::vec(record(), 0..60),
        num_deaths in 0..3,
    ) {
        let mut whole = scan(&segment(records));
        prop_assert_eq!(&whole.fault, &None);
        (0..num_deaths).for_each(|_| whole.live.count_death());
        let fingerprint = Fingerprint { build: "b".to_owned(), ..Fingerprint::default() };
        let copy = scan(&segment(whole.live.snapshot(&fingerprint)));
        prop_assert_eq!(copy.live.answers(7), whole.live.answers(7));
        prop_assert_eq!(copy.live.next_request(), whole.live.next_request());
        prop_assert_eq!(copy.live.fingerprint(), &fingerprint);
        let again = segment(copy.live.snapshot(&fingerprint));
        prop_assert_eq!(scan(&again).live, copy.live);
    }

    /// Wherever a segment is cut, the records before the cut are read.
    #[test]
    fn a_cut_leaves_the_records_before_it(
        records in prop::collection::vec(record(), 1..20),
        cut in any::<prop::sample::Index>(),
    ) {
        let bytes = segment(records.clone());
        let cut = cut.index(bytes.len());
        let read = scan(&bytes[..cut]);
        prop_assert_eq!(read.num_bytes < cut, read.fault.is_some());
        let before = scan(&segment(records.into_iter().take(read.num_records)));
        prop_assert_eq!(read.live, before.live);
    }
}

#[test]
fn a_prompt_is_written_once_for_all_choices() {
    let long: Vec<u32> = (0..5_000).collect();
    let answer = name(1);
    let wide = |count: u64| {
        let prompt: Arc<[u32]> = long.clone().into();
        let mut all = choices(1, count, &answer);
        for request in &mut all {
            Arc::make_mut(request).prompt_token_ids = Arc::clone(&prompt);
        }
        (segment([Record::Accepted(Acceptance::new(0, &all).unwrap())]).len(), all)
    };
    let ((one, _), (many, all)) = (wide(1), wide(100));
    assert!(many < one + 100 * 24, "{one} and {many}");
    assert_eq!(Acceptance::new(0, &all).unwrap().requests(0), all);
}

#[test]
fn times_move_with_the_process() {
    let acceptance = Acceptance::new(1_000_000, &choices(1, 2, &name(1))).unwrap();
    let moved = acceptance.requests(1_000_300);
    assert_eq!((moved[1].arrival, moved[1].deadline), (200, Some(600)));
    let later = acceptance.requests(2_000_000);
    assert_eq!((later[0].arrival, later[0].deadline), (0, Some(0)));
}

fn answer(number: u8) -> Record {
    Record::Answer { name: name(number), data: vec![number].into(), needs_requests: true }
}

fn accepted(number: u8) -> Record {
    let choices = choices(10 * u64::from(number), 2, &name(number));
    Record::Accepted(Acceptance::new(7, &choices).unwrap())
}

fn ended(id: u64) -> Record {
    Record::Ended { request: RequestId(id), is_reproducible: true }
}

/// Lets the process die after these records. Returns the number of deaths of each answer then.
fn died(live: &mut Live, records: impl IntoIterator<Item = Record>) -> Vec<u32> {
    records.into_iter().for_each(|record| live.apply(&record, 1));
    live.count_death();
    let next = scan(&segment(live.snapshot(&Fingerprint::default())));
    *live = next.live;
    live.answers(7).iter().map(|answer| answer.trial.num_deaths).collect()
}

#[test]
fn a_death_counts_against_the_answers_that_were_computed() {
    let mut live = Live::default();
    let tried = |number| Record::Tried { names: vec![name(number)] };
    let first = [answer(1), answer(2), accepted(1), accepted(2), ended(20), ended(21)];
    assert_eq!(died(&mut live, first), [1, 0], "an answer that has ended is no cause");
    assert_eq!(died(&mut live, []), [1, 0], "the engine did not get it again");
    assert_eq!(died(&mut live, [tried(1)]), [2, 0]);
    let closed = [tried(1), Record::Closed];
    assert_eq!(died(&mut live, closed), [2, 0], "its operator ended the process");
    assert_eq!(died(&mut live, [tried(1), answer(3), accepted(3)]), [3, 0, 1]);
    let convicted = |live: &Live| {
        let answers = live.answers(7);
        answers.iter().map(|answer| answer.trial.is_convicted).collect::<Vec<_>>()
    };
    assert_eq!(died(&mut live, [tried(1)]), [4, 0, 1]);
    assert_eq!(convicted(&live), [false; 3], "kills from outside may be the cause");
    assert_eq!(died(&mut live, [tried(1)]), [5, 0, 1]);
    assert_eq!(convicted(&live), [true, false, false]);
}

#[test]
fn a_made_answer_is_no_cause_of_a_death() {
    let mut live = Live::default();
    let made = Record::Answer { name: name(1), data: vec![9].into(), needs_requests: false };
    assert_eq!(died(&mut live, [answer(1), accepted(1), made]), [0]);
    assert_eq!(died(&mut live, [Record::Tried { names: vec![name(1)] }]), [0]);
}
