//! Preemption by recomputation, admission of whole prompts, the watermark.

use playhouse_actors::logic::{
    request::{
        FinishReason,
        failure::Failure,
        ids::RequestId,
        outputs::{Produced, RowFailure},
    },
    scheduler::{SchedulerConfig, WaitingReason},
};

use crate::harness::{Harness, own_prompt, request, roomy, tokens};

fn small(num_usable: u32, enable_prefix_caching: bool) -> Harness {
    let num_blocks = num_usable + 1;
    Harness::new(SchedulerConfig { num_blocks, enable_prefix_caching, ..roomy() })
}

/// Returns an engine with 10 blocks and two prompts of 80 tokens, after step 2 has preempted the
/// second.
fn after_preemption(enable_prefix_caching: bool) -> Harness {
    let mut harness = small(10, enable_prefix_caching);
    harness.add_all(&[80, 80]);
    assert_eq!(harness.step(), tokens([(0, 80), (1, 80)]));
    harness.add(request(2, own_prompt(2, 16)));
    assert_eq!(harness.plan(), tokens([(0, 1)]));
    assert_eq!(harness.last.output.preempted, [RequestId(1)]);
    assert_eq!(harness.kv_cache.pool().num_free(), 4);
    assert_eq!(harness.waiting(), [1, 2], "the preempted one is before later arrivals");
    assert_eq!(harness.scheduler.waiting_reasons()[0].1, WaitingReason::Preemption);
    harness.compute(0);
    harness
}

#[test]
fn a_preempted_request_computes_prompt_and_outputs_again() {
    let mut harness = after_preemption(false);
    harness.finish(&[0]);
    assert_eq!(harness.plan()[&1], 81);
    let resumed = &harness.last.output.scheduled_new[0];
    assert_eq!((resumed.request.id, &resumed.output_token_ids[..]), (RequestId(1), &[0][..]));
    harness.compute(0);
    assert_eq!(harness.output(1), [0, 0]);
    assert_eq!(harness.scheduler.stats().num_preemptions, 1);
}

#[test]
fn the_remaining_blocks_of_a_preempted_request_are_hits() {
    let mut harness = after_preemption(true);
    harness.finish(&[0]);
    assert_eq!(harness.plan()[&1], 17);
    assert_eq!(harness.hits(1), 64);
    assert_eq!(harness.last.stats.recomputed_tokens, 16);
}

#[test]
fn a_prompt_is_admitted_only_as_a_whole() {
    let config = SchedulerConfig {
        num_blocks: 11,
        max_num_batched_tokens: 128,
        enable_prefix_caching: false,
        ..roomy()
    };
    let mut harness = Harness::new(config.clone());
    harness.add_all(&[96, 96]);
    assert_eq!(harness.step(), tokens([(0, 96)]));
    assert_eq!(harness.step(), tokens([(0, 1)]));
    assert_eq!(harness.scheduler.waiting_reasons(), [(RequestId(1), WaitingReason::KvCache)]);

    let mut harness = Harness::new(SchedulerConfig { reserve_full_isl: false, ..config });
    harness.add_all(&[96, 96]);
    assert_eq!(harness.step(), tokens([(0, 96), (1, 32)]));
    assert_eq!(harness.step(), tokens([(0, 1)]));
    assert_eq!(harness.last.output.preempted, [RequestId(1)]);
}

#[test]
fn the_watermark_holds_back_all_but_the_first() {
    let admitted = |watermark| {
        let mut harness = Harness::new(SchedulerConfig { num_blocks: 21, watermark, ..roomy() });
        harness.add_all(&[96; 4]);
        harness.plan().len()
    };
    assert_eq!(admitted(0.2), 2);
    assert_eq!(admitted(0.0), 3);
}

#[test]
fn a_request_that_has_the_whole_cache_and_outgrows_it_ends_with_length() {
    let mut harness = small(2, true);
    harness.add(request(0, own_prompt(0, 31)));
    harness.step();
    assert_eq!(harness.step(), tokens([(0, 1)]));
    // Thirty-two tokens fill the cache. The last token is only sampled.
    assert_eq!(harness.finish_reason(0), Some(FinishReason::Length));
    assert_eq!(harness.output(0).len(), 2);
    assert_eq!(harness.plan(), tokens([]));
    assert_eq!(harness.kv_cache.pool().num_free(), 2);
    assert!(!harness.scheduler.has_work());
}

#[test]
fn a_non_finite_row_is_computed_again_without_the_cache() {
    let mut harness = small(10, true);
    harness.add(request(0, 0..48));
    harness.step();
    assert_eq!(harness.plan(), tokens([(0, 1)]));
    let garbage = |harness: &Harness| {
        let mut output = crate::harness::answer(&harness.last.output, |_| vec![1]);
        output.outputs.iter_mut().for_each(|row| row.failure = Some(RowFailure::NotANumber));
        output
    };
    assert!(harness.scheduler.update_from_output(garbage(&harness), 0).is_empty());
    assert_eq!(harness.plan(), tokens([(0, 49)]), "all of it, from the start");
    assert_eq!(harness.hits(0), 0);
    assert_eq!(harness.last.output.preempted, [RequestId(0)]);
    let commits = harness.scheduler.update_from_output(garbage(&harness), 0);
    let expected = FinishReason::Error(Failure::NumericalGarbage);
    assert_eq!(commits[0].finish, Some(expected));
    harness.add(request(1, 0..48));
    assert_eq!(harness.plan(), tokens([(1, 48)]), "its blocks are not hit");
}

#[test]
fn a_grammar_that_breaks_off_ends_only_its_request() {
    let mut harness = small(10, true);
    harness.add(request(0, 0..16));
    harness.add(request(1, 100..116));
    harness.plan();
    let mut output = crate::harness::answer(&harness.last.output, |_| vec![1]);
    output.outputs[0].produced = Produced::default();
    output.outputs[0].failure = Some(RowFailure::Grammar("too ambiguous".to_owned()));
    let commits = harness.scheduler.update_from_output(output, 0);
    assert_eq!(
        commits[0].finish,
        Some(FinishReason::Error(Failure::InvalidGrammar("too ambiguous".into())))
    );
    assert!(commits[0].produced.tokens().is_empty());
    assert_eq!((commits[1].finish.clone(), commits[1].produced.tokens().len()), (None, 1));
    assert_eq!(harness.plan(), tokens([(1, 1)]), "the other continues");
}

#[test]
fn a_retry_that_succeeds_is_forgotten() {
    let mut harness = small(10, true);
    harness.add(request(0, 0..48));
    for _ in 0..3 {
        harness.plan();
        let mut output = crate::harness::answer(&harness.last.output, |_| vec![1]);
        output.outputs[0].failure = Some(RowFailure::NotANumber);
        assert!(harness.scheduler.update_from_output(output, 0).is_empty());
        harness.plan();
        assert_eq!(harness.compute(1).len(), 1);
    }
}
