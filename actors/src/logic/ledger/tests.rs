//! The ledger's promises: one test for each.

use std::sync::Arc;

use super::*;
use crate::logic::{
    admission::Quota,
    request::{
        ids::{EngineIndex, TokenId},
        outputs::{Commit, PromptLogprobs, SampledToken},
    },
};

pub(super) fn request(id: u64) -> Arc<EngineRequest> {
    Arc::new(EngineRequest { arrival: 100, ..EngineRequest::for_test(id, [id as TokenId, 2, 3]) })
}

fn commit(id: u64, position: usize, tokens: &[TokenId]) -> Commit {
    let token = |&token_id| SampledToken { token_id, logprobs: None };
    Commit {
        request: RequestId(id),
        position,
        produced: tokens.iter().map(token).collect(),
        prompt_logprobs: None,
        finish: None,
    }
}

fn new_ledger(max_num_requests: usize, num_shards: usize) -> Ledger {
    let limits = AdmissionLimits {
        max_num_requests,
        max_num_queued_reqs: None,
        max_num_queued_tokens: None,
        quota: Quota::default(),
    };
    Ledger::new(LedgerConfig { limits, num_shards, max_num_batched_tokens: 64 }, ())
}

fn ledger_with(ids: &[u64]) -> (Ledger, Epoch) {
    let mut ledger = new_ledger(8, 2);
    let requests: Vec<_> = ids.iter().map(|&id| request(id)).collect();
    ledger.accept(requests, None, 0).unwrap();
    let (epoch, _) = ledger.begin_epoch(EngineIndex(0), "the test begins");
    (ledger, epoch)
}

fn tokens(ledger: &Ledger, id: u64) -> Vec<TokenId> {
    let entry = ledger.state().get(RequestId(id)).unwrap();
    entry.output().iter().map(|token| token.token_id).collect()
}

#[test]
fn acceptance_is_all_or_nothing() {
    let mut ledger = new_ledger(2, 1);
    ledger.accept(vec![request(1)], None, 0).unwrap();
    assert!(ledger.accept(vec![request(2), request(3)], None, 0).is_err());
    assert_eq!(ledger.state().len(), 1);
}

#[test]
fn a_repeated_acceptance_has_no_effect() {
    let (mut ledger, epoch) = ledger_with(&[1]);
    ledger.commit(epoch, commit(1, 0, &[7]), 0);
    assert_eq!(ledger.accept(vec![request(1), request(2)], None, 0), Ok(vec![request(2)]));
    assert_eq!(tokens(&ledger, 1), [7]);
}

#[test]
fn only_the_current_epoch_commits() {
    let (mut ledger, old) = ledger_with(&[1]);
    let (new, live) = ledger.begin_epoch(EngineIndex(0), "the test begins");
    assert_eq!(live.len(), 1);
    assert_eq!(ledger.commit(old, commit(1, 0, &[7]), 0), CommitVerdict::StaleEpoch);
    assert!(ledger.commit(new, commit(1, 0, &[7]), 0) == CommitVerdict::Accepted);
}

#[test]
fn a_request_of_another_engine_goes_on_where_it_was() {
    let (mut ledger, first) = ledger_with(&[1, 2]);
    let other = EngineIndex(1);
    ledger.assign(vec![RequestId(2)], other);
    let (second, live) = ledger.begin_epoch(other, "the test begins");
    assert_eq!(live.len(), 1);
    assert_eq!(ledger.commit(first, commit(1, 0, &[7]), 0), CommitVerdict::Accepted);
    assert_eq!(ledger.commit(second, commit(2, 0, &[8]), 0), CommitVerdict::Accepted);
    assert_eq!(ledger.commit(first, commit(2, 1, &[9]), 0), CommitVerdict::StaleEpoch);
    // The first engine dies.
    ledger.assign(vec![RequestId(1)], other);
    assert_eq!(ledger.commit(first, commit(1, 1, &[7]), 0), CommitVerdict::StaleEpoch);
    assert_eq!(ledger.commit(second, commit(1, 1, &[7]), 0), CommitVerdict::Accepted);
    let (third, live) = ledger.begin_epoch(other, "the test begins");
    let lengths: Vec<_> = live.iter().map(|live| live.output_token_ids.len()).collect();
    assert_eq!(lengths, [2, 1]);
    assert_eq!(ledger.commit(second, commit(2, 1, &[9]), 0), CommitVerdict::StaleEpoch);
    assert_eq!(ledger.state().engine_of(third), Some(other));
    assert_eq!(ledger.state().engine_of(second), None);
    assert_eq!(ledger.begin_epoch(EngineIndex(0), "the test begins").1, []);
}

#[test]
fn a_request_is_a_newcomer_until_its_engine_commits_for_it() {
    let (mut ledger, first) = ledger_with(&[1]);
    let newcomers = |ledger: &Ledger, engine| {
        let all = ledger.state().newcomers(EngineIndex(engine));
        all.into_iter().map(|request| request.0).collect::<Vec<_>>()
    };
    ledger.commit(first, commit(1, 0, &[7]), 0);
    assert_eq!(newcomers(&ledger, 0), [0; 0]);
    ledger.assign(vec![RequestId(1)], EngineIndex(1));
    assert_eq!(newcomers(&ledger, 0), [0; 0], "it is elsewhere");
    let (second, _) = ledger.begin_epoch(EngineIndex(1), "the test begins");
    assert_eq!(newcomers(&ledger, 1), [1], "the epoch may get lost");
    ledger.commit(second, commit(1, 1, &[8]), 0);
    assert_eq!(newcomers(&ledger, 1), [0; 0]);
    ledger.assign(vec![RequestId(1)], EngineIndex(0));
    ledger.begin_epoch(EngineIndex(0), "the test begins");
    assert_eq!(newcomers(&ledger, 0), [1], "its tail there is from before");
}

#[test]
fn a_failed_step_restricts_the_engine_that_has_its_requests() {
    let (mut ledger, first) = ledger_with(&[1, 2, 3, 4]);
    let other = EngineIndex(1);
    ledger.assign(vec![RequestId(3), RequestId(4)], other);
    ledger.begin_epoch(other, "the test begins");
    let batch = [1, 2, 3].map(|id| (RequestId(id), 3));
    assert_eq!(ledger.step_failed(first, &batch, false, 0), Some(Vec::new()));
    let cohort = |ledger: &Ledger, engine| ledger.state().restriction(EngineIndex(engine)).cohort;
    let suspects = Some([RequestId(1), RequestId(2)].into());
    assert_eq!(cohort(&ledger, 0), suspects, "3 is computed elsewhere");
    assert_eq!(cohort(&ledger, 1), None, "no suspect is there");
    ledger.assign(vec![RequestId(1)], other);
    assert_eq!(cohort(&ledger, 1), suspects);
}

/// The same grammar, for example. Each process that compiles it ends.
#[test]
fn requests_that_need_the_same_work_are_suspected_one_by_one() {
    let (mut ledger, epoch) = ledger_with(&[1, 2, 3, 4]);
    let suspects = |ledger: &Ledger, needing: [u64; 2]| {
        let needs = |request: &EngineRequest| needing.contains(&request.id.0);
        ledger.state().suspects_beside(EngineIndex(0), needs)
    };
    for expected in [&[1, 2][..], &[1, 2], &[1], &[2], &[1], &[2]] {
        let beside = suspects(&ledger, [1, 2]);
        assert_eq!(beside.iter().map(|request| request.0).collect::<Vec<_>>(), expected);
        let failed: Vec<_> = beside.into_iter().map(|request| (request, 0)).collect();
        assert_eq!(ledger.step_failed(epoch, &failed, false, 0), Some(Vec::new()));
    }
    assert_eq!(suspects(&ledger, [3, 4]), [3, 4].map(RequestId), "work that began before");
}

#[test]
fn a_repeated_or_early_commit_changes_nothing() {
    let (mut ledger, epoch) = ledger_with(&[1]);
    ledger.commit(epoch, commit(1, 0, &[7]), 0);
    assert_eq!(ledger.commit(epoch, commit(1, 0, &[7]), 0), CommitVerdict::Repeated);
    assert_eq!(ledger.commit(epoch, commit(1, 2, &[9]), 0), CommitVerdict::Gap);
    assert_eq!(tokens(&ledger, 1), [7]);
}

#[test]
fn nothing_follows_an_end() {
    let (mut ledger, epoch) = ledger_with(&[1]);
    let last = Commit { finish: Some(FinishReason::Length), ..commit(1, 0, &[7]) };
    ledger.commit(epoch, last, 0);
    assert_eq!(ledger.commit(epoch, commit(1, 1, &[8]), 0), CommitVerdict::Ended);
    let again = ledger.finish(&[RequestId(1)], &FinishReason::Abort, 0);
    assert!(again.is_empty(), "the first end stands");
    assert!(
        ledger.begin_epoch(EngineIndex(0), "the test begins").1.is_empty(),
        "an ended request is not taken up again"
    );
}

#[test]
fn a_stop_string_cuts_what_was_committed_after_it() {
    let (mut ledger, epoch) = ledger_with(&[1]);
    ledger.commit(epoch, commit(1, 0, &[7, 8, 9]), 0);
    assert!(ledger.end_at(RequestId(1), 2, FinishReason::Stop(None), 0));
    assert_eq!(tokens(&ledger, 1), [7, 8]);
}

#[test]
fn news_that_waits_while_a_stop_string_cuts_the_output_is_harmless() {
    let (mut ledger, epoch) = ledger_with(&[1]);
    ledger.attach(1).unwrap();
    ledger.commit(epoch, commit(1, 0, &[7, 8]), 0);
    let batch = ledger.take_batch(1, 0).unwrap();
    ledger.commit(epoch, commit(1, 2, &[9]), 0);
    ledger.end_at(RequestId(1), 1, FinishReason::Stop(None), 0);
    ledger.delivered(batch.id, &[], 0);
    assert!(ledger.take_batch(1, 0).unwrap().entries[0].produced.tokens().is_empty());
}

#[test]
fn timing_tells_first_token_and_gaps() {
    let (mut ledger, epoch) = ledger_with(&[1]);
    let timing = |ledger: &Ledger| ledger.state().get(RequestId(1)).unwrap().timing();
    ledger.commit(epoch, commit(1, 0, &[7]), 350);
    assert_eq!(timing(&ledger).time_to_first_token, Some(250));
    ledger.commit(epoch, commit(1, 1, &[8]), 400);
    let second = timing(&ledger);
    assert_eq!((second.time_to_first_token, second.inter_token_latency), (None, Some(50)));
    ledger.commit(epoch, Commit { finish: Some(FinishReason::Length), ..commit(1, 2, &[]) }, 500);
    assert_eq!(timing(&ledger), CommitTiming::default(), "no token, no wait");
}

#[test]
fn recomputed_prompt_logprobs_count_once() {
    let (mut ledger, epoch) = ledger_with(&[1]);
    ledger.attach(1);
    let row = |n: usize| PromptLogprobs { start: 1, rows: vec![vec![]; n] };
    let with = |n| Commit { prompt_logprobs: Some(row(n)), ..commit(1, 0, &[]) };
    ledger.commit(epoch, with(1), 0);
    ledger.commit(epoch, with(2), 0);
    let batch = ledger.take_batch(1, 0).unwrap();
    assert_eq!(batch.entries[0].prompt_logprobs.len(), 2);
}

#[test]
fn a_shard_has_one_batch_at_a_time_and_misses_nothing() {
    let (mut ledger, epoch) = ledger_with(&[2]);
    assert!(ledger.take_batch(0, 0).is_none(), "nobody is attached");
    ledger.attach(0).unwrap();
    let first = ledger.take_batch(0, 0).unwrap();
    assert!(first.entries[0].introduction.is_some());
    ledger.commit(epoch, commit(2, 0, &[7]), 0);
    ledger.commit(epoch, commit(2, 1, &[8]), 0);
    assert!(ledger.take_batch(0, 0).is_none(), "the first is still out");
    assert!(ledger.delivered(first.id, &[], 0).is_some());
    assert!(ledger.delivered(first.id, &[], 0).is_none(), "said twice, it counts once");
    let second = ledger.take_batch(0, 0).unwrap();
    assert_eq!((second.entries[0].position, second.entries[0].produced.tokens().len()), (0, 2));
    assert!(second.entries[0].introduction.is_none());
}

#[test]
fn a_new_shard_is_told_everything_and_the_old_one_is_not_believed() {
    let (mut ledger, epoch) = ledger_with(&[2]);
    ledger.attach(0).unwrap();
    ledger.commit(epoch, commit(2, 0, &[7]), 0);
    let old = ledger.take_batch(0, 0).unwrap();
    ledger.attach(0).unwrap();
    assert!(ledger.delivered(old.id, &[RequestId(2)], 0).is_none());
    let replay = ledger.take_batch(0, 0).unwrap();
    assert!(replay.entries[0].introduction.is_some());
    assert_eq!(replay.entries[0].produced.tokens().len(), 1);
}

/// Each batch is confirmed before the next, however much has to be sent again.
#[test]
fn a_replay_comes_in_parts() {
    let ids: Vec<u64> = (1..=6).map(|i| 2 * i).collect();
    let (mut ledger, epoch) = ledger_with(&ids);
    let long = vec![7; 5_000];
    for &id in &ids {
        ledger.commit(epoch, commit(id, 0, &long), 0);
    }
    ledger.attach(0).unwrap();
    let mut told = Vec::new();
    while let Some(batch) = ledger.take_batch(0, 0) {
        assert!(batch.entries.len() <= 2, "{} requests at once", batch.entries.len());
        told.extend(
            batch.entries.iter().map(|entry| (entry.request.0, entry.produced.tokens().len())),
        );
        assert!(ledger.delivered(batch.id, &[], 0).is_some());
    }
    assert_eq!(told, ids.iter().map(|&id| (id, 5_000)).collect::<Vec<_>>());
}

#[test]
fn delivery_of_the_end_closes_the_entry() {
    let (mut ledger, _) = ledger_with(&[2]);
    ledger.attach(0).unwrap();
    ledger.finish(&[RequestId(2)], &FinishReason::Abort, 0);
    let batch = ledger.take_batch(0, 5).unwrap();
    assert_eq!(batch.entries[0].end, Some(FinishReason::Abort));
    assert_eq!(ledger.overdue(4).count(), 0);
    assert_eq!(ledger.overdue(5).collect::<Vec<_>>(), [0]);
    ledger.delivered(batch.id, &[RequestId(2)], 0);
    assert!(ledger.state().is_empty());
}
