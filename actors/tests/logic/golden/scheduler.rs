//! vLLM's test_scheduler: budgets, chunks, aborts.

use playhouse_actors::{
    error::RequestError,
    logic::{request::ids::RequestId, scheduler::SchedulerConfig},
};

use crate::harness::{Harness, Tokens, answer, own_prompt, request, roomy, tokens};

/// Checks that prompts of these lengths, all added at the start, take these steps.
fn check(config: SchedulerConfig, prompts: &[usize], steps: &[Tokens]) {
    let mut harness = Harness::new(config);
    harness.add_all(prompts);
    for (index, expected) in steps.iter().enumerate() {
        assert_eq!(harness.step(), *expected, "step {}", index + 1);
    }
}

#[test]
fn one_budget_for_all() {
    let config = SchedulerConfig { max_num_batched_tokens: 100, ..roomy() };
    let steps = [
        tokens([(0, 80), (1, 20)]),
        tokens([(0, 1), (1, 60), (2, 39)]),
        tokens([(0, 1), (1, 1), (2, 41)]),
    ];
    check(config, &[80, 80, 80], &steps);
}

#[test]
fn a_long_prompt_advances_by_the_threshold_while_others_wait() {
    let config = SchedulerConfig {
        max_num_batched_tokens: 1024,
        long_prefill_token_threshold: 400,
        ..roomy()
    };
    let steps = [
        tokens([(0, 400), (1, 400), (2, 224)]),
        tokens([(0, 400), (1, 400), (2, 224)]),
        tokens([(0, 1), (1, 1), (2, 352)]),
    ];
    check(config.clone(), &[800, 800, 800], &steps);
    check(config, &[2000], &[tokens([(0, 1024)]), tokens([(0, 976)])]);
}

#[test]
fn without_chunks_no_request_overtakes_a_prompt_that_does_not_fit() {
    let config = SchedulerConfig {
        max_num_batched_tokens: 1024,
        max_model_len: 1024,
        enable_chunked_prefill: false,
        ..roomy()
    };
    check(config, &[800, 800, 10, 10], &[tokens([(0, 800)])]);
}

#[test]
fn with_chunks_the_budget_is_filled() {
    let config = SchedulerConfig { max_num_batched_tokens: 1024, ..roomy() };
    let steps = [tokens([(0, 800), (1, 224)]), tokens([(0, 1), (1, 576), (2, 10), (3, 10)])];
    check(config, &[800, 800, 10, 10], &steps);
}

#[test]
fn max_num_seqs_of_one_serves_one_after_the_other() {
    let mut harness = Harness::new(SchedulerConfig { max_num_seqs: 1, ..roomy() });
    harness.add_all(&[10, 10]);
    assert_eq!(harness.step(), tokens([(0, 10)]));
    assert_eq!(harness.step(), tokens([(0, 1)]));
    harness.finish(&[0]);
    assert_eq!(harness.step(), tokens([(1, 10)]));
}

#[test]
fn finished_requests_are_reported_once() {
    let mut harness = Harness::new(roomy());
    harness.add_all(&[10, 10, 10]);
    harness.plan();
    assert_eq!(harness.finish(&[0, 1, 7]), [0, 1]);
    assert_eq!(harness.finish(&[0]), [0; 0]);
    assert_eq!(harness.compute(5).len(), 1, "the output of aborted requests is dropped");
    assert_eq!(harness.plan(), tokens([(2, 1)]));
    assert_eq!(harness.last.output.finished, [RequestId(0), RequestId(1)]);
    harness.compute(5);
    harness.plan();
    assert_eq!(harness.last.output.finished, []);
}

#[test]
fn the_step_counts_from_one_and_counts_empty_steps() {
    let mut harness = Harness::new(roomy());
    let step = |harness: &mut Harness| {
        harness.step();
        harness.last.output.step.0
    };
    assert_eq!([step(&mut harness), step(&mut harness)], [1, 2]);
    harness.add_all(&[10]);
    assert_eq!([step(&mut harness), step(&mut harness)], [3, 4]);
}

#[test]
fn only_the_output_of_the_step_in_flight_counts() {
    let mut harness = Harness::new(roomy());
    harness.add_all(&[10]);
    harness.plan();
    let output = answer(&harness.last.output, |_| vec![7]);
    let mut of_another_epoch = output.clone();
    of_another_epoch.epoch = of_another_epoch.epoch.next();
    assert!(harness.scheduler.update_from_output(of_another_epoch, 0).is_empty());
    assert_eq!(harness.scheduler.update_from_output(output.clone(), 0).len(), 1);
    assert!(harness.scheduler.update_from_output(output, 0).is_empty(), "twice");
    assert_eq!(harness.scheduler.stats().num_stale, 2);
}

#[test]
fn tokens_of_a_partial_prompt_are_not_sampled() {
    let mut harness = Harness::new(SchedulerConfig { max_num_batched_tokens: 6, ..roomy() });
    harness.add_all(&[10]);
    assert_eq!(harness.plan(), tokens([(0, 6)]));
    assert!(harness.compute(5).is_empty());
    assert_eq!(harness.plan(), tokens([(0, 4)]));
    assert_eq!(harness.compute(5).len(), 1);
    harness.plan();
    assert_eq!(harness.last.output.scheduled_cached[0].num_computed_tokens, 10);
}

#[test]
fn a_prompt_that_can_never_fit_is_refused() {
    let harness = Harness::new(SchedulerConfig { num_blocks: 5, ..roomy() });
    assert_eq!(harness.scheduler.check_servable(63), Ok(()));
    let refused = RequestError::Unservable { needed_blocks: 13, total_blocks: 4, block_size: 16 };
    assert_eq!(harness.scheduler.check_servable(13 * 16 - 1), Err(refused));
}

#[test]
fn an_expired_request_ends_before_its_prefill() {
    let mut harness = Harness::new(SchedulerConfig { max_num_seqs: 1, ..roomy() });
    harness.add(request(0, own_prompt(0, 10)));
    let mut hasty = request(1, own_prompt(1, 10));
    hasty.deadline = Some(50);
    harness.add(hasty);
    let mut patient = request(2, own_prompt(2, 10));
    patient.deadline = Some(500);
    harness.add(patient);
    harness.step();
    harness.now = 49;
    harness.step();
    assert!(harness.last.ended.is_empty());
    harness.now = 50;
    assert_eq!(harness.plan(), tokens([(0, 1)]));
    let [ended] = &harness.last.ended[..] else { panic!("one request expired") };
    assert_eq!(ended.request, RequestId(1));
    let finish = ended.finish.as_ref().unwrap();
    assert_eq!(format!("{finish:?}"), "Error(DeadlineExceeded)");
    assert_eq!(harness.waiting(), [2]);
    // A request that has begun is served to its end.
    harness.compute(0);
    harness.finish(&[0]);
    harness.step();
    harness.now = 1_000;
    assert_eq!(harness.plan(), tokens([(2, 1)]));
    assert!(harness.last.ended.is_empty());
}
