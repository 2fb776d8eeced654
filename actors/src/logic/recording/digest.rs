//! Hashes of steps: of the schedule, which no token id changes, and of the results.

use serde::Serialize;

use super::RowDone;
use crate::{
    codec::hash,
    logic::{
        kv_cache::BlockIds,
        request::ids::{Epoch, RequestId, Step},
        scheduler::Scheduled,
    },
};

/// The numbers of a row of a plan.
#[derive(Serialize)]
struct Row<'a> {
    request: RequestId,
    is_new: bool,
    num_computed: usize,
    num_scheduled: usize,
    num_lookahead: usize,
    blocks: &'a BlockIds,
}

/// The numbers of a plan, without the content of its requests.
#[derive(Serialize)]
struct Plan<'a> {
    epoch: Epoch,
    step: Step,
    rows: Vec<Row<'a>>,
    finished: &'a [RequestId],
    preempted: &'a [RequestId],
    ended: Vec<RequestId>,
    was_reset: Option<bool>,
}

/// Returns the hash of a planned step: of its requests, numbers of tokens and blocks, and of the
/// requests that ended or were preempted. It does not depend on token ids.
#[must_use]
pub fn schedule_hash(scheduled: &Scheduled) -> u64 {
    let output = &scheduled.output;
    let new = output.scheduled_new.iter().map(|row| Row {
        request: row.request.id,
        is_new: true,
        num_computed: row.num_computed_tokens,
        num_scheduled: row.num_scheduled_tokens,
        num_lookahead: 0,
        blocks: &row.block_ids,
    });
    let cached = output.scheduled_cached.iter().map(|row| Row {
        request: row.request,
        is_new: false,
        num_computed: row.num_computed_tokens,
        num_scheduled: row.num_scheduled_tokens,
        num_lookahead: row.num_lookahead_tokens,
        blocks: &row.new_block_ids,
    });
    hash(&Plan {
        epoch: output.epoch,
        step: output.step,
        rows: new.chain(cached).collect(),
        finished: &output.finished,
        preempted: &output.preempted,
        ended: scheduled.ended.iter().map(|commit| commit.request).collect(),
        was_reset: scheduled.prefix_cache_reset,
    })
}

/// Returns the hash of the results of a step.
#[must_use]
pub fn tokens_hash(rows: &[RowDone]) -> u64 {
    hash(&rows)
}
