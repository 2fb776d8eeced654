//! vLLM's test_scheduler, stop conditions: the end of a request, and the tokens that are kept.

use std::sync::Arc;

use playhouse_actors::logic::{
    request::{EngineRequest, FinishReason, StopReason, ids::TokenId},
    text::stop::RepetitionDetection,
};

use crate::harness::{Harness, own_prompt, request, roomy};

const EOS: TokenId = 2;

/// Checks that a request ends with this reason and keeps these tokens when the model draws `says`.
fn check(
    change: impl FnOnce(&mut EngineRequest),
    says: &[TokenId],
    reason: FinishReason,
    kept: &[TokenId],
) {
    let mut harness = Harness::new(roomy());
    let mut asked = request(0, own_prompt(0, 10));
    asked.sampling_mut().ignore_eos = false;
    asked.eos_token_ids = Arc::from([EOS]);
    change(&mut asked);
    harness.add(asked);
    for &token in says {
        harness.plan();
        harness.compute(token);
    }
    assert_eq!((harness.finish_reason(0), harness.output(0)), (Some(reason), kept.to_vec()));
    harness.plan();
    assert_eq!(harness.kv_cache.pool().usage(), 0.0);
}

#[test]
fn the_end_of_sequence_token_is_kept_and_has_no_stop_reason() {
    check(|_| (), &[5, EOS], FinishReason::Stop(None), &[5, EOS]);
}

#[test]
fn ignore_eos_runs_to_max_tokens() {
    let change = |request: &mut EngineRequest| {
        request.sampling_mut().ignore_eos = true;
        request.sampling_mut().max_tokens = 3;
    };
    check(change, &[EOS, EOS, EOS], FinishReason::Length, &[EOS, EOS, EOS]);
}

#[test]
fn a_stop_token_is_the_stop_reason() {
    let change = |request: &mut EngineRequest| request.sampling_mut().stop_token_ids = vec![42];
    check(change, &[7, 42], FinishReason::Stop(Some(StopReason::Token(42))), &[7, 42]);
}

#[test]
fn the_context_ends_it() {
    let mut harness = Harness::new(playhouse_actors::logic::scheduler::SchedulerConfig {
        max_model_len: 12,
        ..roomy()
    });
    harness.add(request(0, own_prompt(0, 10)));
    harness.step();
    harness.step();
    assert_eq!(harness.finish_reason(0), Some(FinishReason::Length));
    assert_eq!(harness.output(0).len(), 2);
}

#[test]
fn repetition_ends_it() {
    let detection = RepetitionDetection { max_pattern_size: 2, min_pattern_size: 2, min_count: 3 };
    let change =
        |request: &mut EngineRequest| request.sampling_mut().repetition_detection = Some(detection);
    let says = [5, 6, 5, 6, 5, 6];
    check(change, &says, FinishReason::Repetition, &says);
}

#[test]
fn tokens_after_a_stop_in_the_same_step_are_dropped() {
    let mut harness = Harness::new(roomy());
    let mut asked = request(0, own_prompt(0, 10));
    asked.sampling_mut().max_tokens = 2;
    harness.add(asked);
    harness.plan();
    let output = crate::harness::answer(&harness.last.output, |_| vec![4, 5, 6]);
    let commits = harness.scheduler.update_from_output(output, 0);
    assert_eq!((commits[0].position, commits[0].produced.tokens().len()), (0, 2));
    assert_eq!(commits[0].finish, Some(FinishReason::Length));
}
