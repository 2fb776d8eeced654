//! Tests that compare the persistent batch with block tables written by hand.

use std::sync::Arc;

use playhouse_actors::{
    logic::{
        request::{
            EngineRequest,
            ids::RequestId,
            lora::LoraRequest,
            outputs::{RowFailure, SampledToken},
        },
        scheduler::output::{CachedRequestData, NewRequestData, SchedulerOutput},
    },
    ports::ExecuteError,
};

use super::batch::{Chunk, KvSizes, PersistentBatch, RaggedBatch, Stores};

const SIZES: KvSizes = KvSizes { block_size: 4, num_groups: 1 };

/// Returns a new request with `computed` tokens computed already and `count` tokens to compute.
pub(super) fn new(
    id: u64,
    prompt: &[u32],
    blocks: &[u32],
    computed: usize,
    count: usize,
) -> NewRequestData {
    let request = EngineRequest::for_test(id, prompt.iter().copied());
    NewRequestData {
        request: Arc::new(request),
        output_token_ids: Vec::new(),
        block_ids: blocks.to_vec().into(),
        num_computed_tokens: computed,
        num_scheduled_tokens: count,
    }
}

fn cached(id: u64, computed: usize, blocks: &[u32]) -> CachedRequestData {
    CachedRequestData {
        request: RequestId(id),
        new_block_ids: blocks.to_vec().into(),
        num_computed_tokens: computed,
        num_scheduled_tokens: 1,
        num_lookahead_tokens: 0,
    }
}

fn drawn<const N: usize>(token_ids: [u32; N]) -> [SampledToken; N] {
    token_ids.map(|token_id| SampledToken { token_id, logprobs: None })
}

fn lay_out_in(
    batch: &mut PersistentBatch,
    step: &SchedulerOutput,
    sizes: KvSizes,
    laid: &mut RaggedBatch,
) -> Result<(), ExecuteError> {
    batch.receive(step, Stores::default(), laid, |_, _| ())?;
    batch.lay_out(sizes, None, laid)
}

fn lay_out(
    batch: &mut PersistentBatch,
    step: &SchedulerOutput,
) -> Result<RaggedBatch, ExecuteError> {
    let mut laid = RaggedBatch::default();
    lay_out_in(batch, step, SIZES, &mut laid).map(|()| laid)
}

#[test]
fn prefill_and_decode_share_a_ragged_batch() {
    let mut batch = PersistentBatch::default();
    let first = SchedulerOutput {
        scheduled_new: vec![new(1, &[10, 11, 12, 13], &[3], 0, 4)],
        ..SchedulerOutput::default()
    };
    let laid = lay_out(&mut batch, &first).unwrap();
    batch.continue_with(&laid.chunks[0], Ok(&drawn([99])));
    let second = SchedulerOutput {
        scheduled_new: vec![new(2, &[20, 21, 22, 23, 24, 25], &[5, 2], 4, 2)],
        scheduled_cached: vec![cached(1, 4, &[7])],
        ..SchedulerOutput::default()
    };
    let laid = lay_out(&mut batch, &second).unwrap();
    assert_eq!(laid.token_ids, [24, 25, 99]);
    assert_eq!(laid.groups[0].positions, [4, 5, 4]);
    assert_eq!(laid.groups[0].slot_mapping, [8, 9, 28]);
    assert_eq!(laid.groups[0].query_start_loc, [0, 2, 3]);
    assert_eq!(laid.groups[0].seq_lens, [6, 5]);
    assert_eq!(laid.groups[0].block_tables, [vec![5, 2], vec![3, 7]]);
    assert_eq!(
        laid.chunks[1],
        Chunk {
            request: RequestId(1),
            sequence: 0,
            start: 4,
            end: 5,
            num_places: 0,
            num_guesses: 0
        }
    );
}

#[test]
fn each_group_has_block_tables_of_its_own() {
    let sizes = KvSizes { num_groups: 2, ..SIZES };
    let (mut batch, mut laid) = (PersistentBatch::default(), RaggedBatch::default());
    let mut begun = new(1, &[10, 11, 12, 13, 14, 15, 16, 17, 18], &[], 8, 1);
    // The second group has a window. Its prefix hit begins at the second block.
    begun.block_ids = [vec![3, 4, 5], vec![0, 6, 7]].into_iter().collect();
    let step = SchedulerOutput { scheduled_new: vec![begun], ..SchedulerOutput::default() };
    lay_out_in(&mut batch, &step, sizes, &mut laid).unwrap();
    batch.continue_with(&laid.chunks[0], Ok(&drawn([19])));
    let [full, sliding] = &laid.groups[..] else { panic!("{laid:?}") };
    assert_eq!((&full.slot_mapping, &full.block_tables), (&vec![20], &vec![vec![3, 4, 5]]));
    assert_eq!((&sliding.slot_mapping, &sliding.block_tables), (&vec![28], &vec![vec![0, 6, 7]]));
    assert_eq!((full.positions[..] == [8], &full.positions), (true, &sliding.positions));
    assert_eq!((&full.seq_lens, &full.query_start_loc), (&vec![9], &vec![0, 1]));

    let next =
        SchedulerOutput { scheduled_cached: vec![cached(1, 9, &[])], ..SchedulerOutput::default() };
    lay_out_in(&mut batch, &next, sizes, &mut laid).unwrap();
    assert_eq!(
        (&laid.groups[0].slot_mapping, &laid.groups[1].slot_mapping),
        (&vec![21], &vec![29])
    );

    // A step must have blocks in all groups.
    let mut lacking = new(2, &[1, 2, 3, 4, 5], &[], 0, 5);
    lacking.block_ids = [vec![8, 9], vec![10]].into_iter().collect();
    let step = SchedulerOutput { scheduled_new: vec![lacking], ..SchedulerOutput::default() };
    assert!(lay_out_in(&mut batch, &step, sizes, &mut laid).is_err());
}

#[test]
fn a_request_without_a_token_cannot_continue() {
    let mut batch = PersistentBatch::default();
    let first = SchedulerOutput {
        scheduled_new: vec![new(1, &[10, 11], &[3], 0, 2), new(2, &[20, 21], &[5], 0, 2)],
        ..SchedulerOutput::default()
    };
    let laid = lay_out(&mut batch, &first).unwrap();
    let failure = RowFailure::Grammar("no way on".to_owned());
    batch.continue_with(&laid.chunks[0], Err(failure.clone()));
    batch.continue_with(&laid.chunks[1], Ok(&drawn([7])));
    let second = SchedulerOutput {
        scheduled_cached: vec![cached(1, 2, &[]), cached(2, 2, &[])],
        ..SchedulerOutput::default()
    };
    let laid = lay_out(&mut batch, &second).unwrap();
    assert_eq!((laid.token_ids, laid.broken), (vec![7], vec![(RequestId(1), failure)]));
}

#[test]
fn all_tokens_that_a_step_drew_continue_the_request() {
    let mut batch = PersistentBatch::default();
    let first = SchedulerOutput {
        scheduled_new: vec![new(1, &[10, 11], &[3], 0, 2)],
        ..SchedulerOutput::default()
    };
    let laid = lay_out(&mut batch, &first).unwrap();
    batch.continue_with(&laid.chunks[0], Ok(&drawn([12, 13])));
    let mut next = cached(1, 2, &[]);
    next.num_scheduled_tokens = 2;
    let second = SchedulerOutput { scheduled_cached: vec![next], ..SchedulerOutput::default() };
    assert_eq!(lay_out(&mut batch, &second).unwrap().token_ids, [12, 13]);
}

#[test]
fn a_step_with_unknown_requests_is_rejected() {
    let mut batch = PersistentBatch::default();
    let unknown =
        SchedulerOutput { scheduled_cached: vec![cached(1, 4, &[])], ..SchedulerOutput::default() };
    let refused =
        |result: Result<_, ExecuteError>| matches!(result, Err(ExecuteError::InvalidStep(_)));
    assert!(refused(lay_out(&mut batch, &unknown).map(drop)));
    let too_few_blocks = SchedulerOutput {
        scheduled_new: vec![new(2, &[1, 2, 3, 4, 5], &[1], 0, 5)],
        ..SchedulerOutput::default()
    };
    assert!(refused(lay_out(&mut batch, &too_few_blocks).map(drop)));
}

#[test]
fn a_finished_request_is_forgotten() {
    let mut batch = PersistentBatch::default();
    let begin = SchedulerOutput {
        scheduled_new: vec![new(1, &[1, 2], &[1], 0, 2)],
        ..SchedulerOutput::default()
    };
    let chunk = lay_out(&mut batch, &begin).unwrap().chunks[0];
    assert!(batch.sequence(&chunk).is_ok());
    let end = SchedulerOutput { finished: vec![RequestId(1)], ..SchedulerOutput::default() };
    lay_out(&mut batch, &end).unwrap();
    assert!(batch.sequence(&chunk).is_err());
}

#[test]
fn buffers_of_an_earlier_step_leave_no_trace() {
    let (mut batch, mut laid) = (PersistentBatch::default(), RaggedBatch::default());
    let wide = SchedulerOutput {
        scheduled_new: vec![new(1, &[1; 9], &[1, 2, 3], 0, 9), new(2, &[2; 5], &[4, 5], 0, 5)],
        ..SchedulerOutput::default()
    };
    lay_out_in(&mut batch, &wide, SIZES, &mut laid).unwrap();
    batch.continue_with(&laid.chunks[1], Ok(&drawn([8])));
    // The first request ends first, so the others' places change.
    let narrow = SchedulerOutput {
        finished: vec![RequestId(1)],
        scheduled_cached: vec![cached(2, 5, &[])],
        ..SchedulerOutput::default()
    };
    lay_out_in(&mut batch, &narrow, SIZES, &mut laid).unwrap();
    let mut other = PersistentBatch::default();
    let alone = SchedulerOutput {
        scheduled_new: vec![new(2, &[2; 5], &[4, 5], 0, 5)],
        ..SchedulerOutput::default()
    };
    let begun = lay_out(&mut other, &alone).unwrap();
    other.continue_with(&begun.chunks[0], Ok(&drawn([8])));
    let alone =
        SchedulerOutput { scheduled_cached: vec![cached(2, 5, &[])], ..SchedulerOutput::default() };
    let expected = lay_out(&mut other, &alone).unwrap();
    assert_eq!((&laid.token_ids, &laid.chunks), (&expected.token_ids, &expected.chunks));
    assert_eq!(laid.groups, expected.groups);
}

/// The scheduler makes sure of adapters. If one is missing all the same, no base row takes its
/// place.
#[test]
fn a_request_without_its_adapter_does_not_run() {
    let mut batch = PersistentBatch::default();
    let mut data = new(1, &[1, 2, 3], &[1], 0, 3);
    let request = EngineRequest {
        lora: Some(Arc::new(LoraRequest::for_test("lost"))),
        ..(*data.request).clone()
    };
    data.request = Arc::new(request);
    let step = SchedulerOutput { scheduled_new: vec![data], ..SchedulerOutput::default() };
    let laid = lay_out(&mut batch, &step).unwrap();
    assert!(laid.chunks.is_empty() && laid.token_ids.is_empty());
    let failure = RowFailure::Adapter("adapter 'lost' is not in memory".to_owned());
    assert_eq!(laid.broken, [(RequestId(1), failure)]);
}
