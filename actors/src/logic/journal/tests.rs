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
        answer.prop_map(|answer| Record::Dropped { name: name(answer) }),
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
    fn a_snapshot_is_the_content(records in prop::collection::vec(record(), 0..60)) {
        let whole = scan(&segment(records));
        prop_assert_eq!(&whole.fault, &None);
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
