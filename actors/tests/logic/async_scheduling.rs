//! Async scheduling: a step is planned while the one before is computed.

use std::sync::Arc;

use playhouse_actors::logic::{
    request::{
        FinishReason,
        failure::Failure,
        ids::RequestId,
        outputs::{Commit, Produced, RowFailure},
    },
    scheduler::{PauseState, SchedulerConfig, WaitingReason, output::SchedulerOutput},
};

use crate::harness::{Harness, answer, own_prompt, request, roomy, tokens};

const EOS: u32 = 9;

fn ahead() -> SchedulerConfig {
    SchedulerConfig { async_scheduling: true, ..roomy() }
}

/// Plans a step and returns it, to be computed later.
fn planned(harness: &mut Harness) -> SchedulerOutput {
    harness.plan();
    harness.last.output.clone()
}

fn computed(harness: &mut Harness, step: &SchedulerOutput, token: u32) -> Vec<Commit> {
    harness.scheduler.update_from_output(answer(step, |_| vec![token]), 0)
}

#[test]
fn the_next_step_is_planned_on_the_token_to_come() {
    let mut harness = Harness::new(ahead());
    harness.add_all(&[10]);
    let mut first = planned(&mut harness);
    for position in 10..14 {
        assert!(harness.scheduler.can_plan_ahead());
        assert_eq!(harness.plan(), tokens([(0, 1)]));
        let second = harness.last.output.clone();
        assert_eq!(second.scheduled_cached[0].num_computed_tokens, position);
        assert!(!harness.scheduler.can_plan_ahead(), "two are in flight");
        assert!(harness.scheduler.begin_step(0).is_err());
        assert_eq!(harness.scheduler.step_in_flight(), Some(first.step));
        let [commit] = &computed(&mut harness, &first, 5)[..] else { panic!("one commit") };
        assert_eq!((commit.position, commit.produced.tokens().len()), (position - 10, 1));
        first = second;
    }
}

#[test]
fn a_prompt_in_parts_goes_on_while_they_are_computed() {
    let mut harness = Harness::new(SchedulerConfig { max_num_batched_tokens: 8, ..ahead() });
    harness.add_all(&[12]);
    let first = planned(&mut harness);
    assert_eq!(harness.plan(), tokens([(0, 4)]));
    let second = harness.last.output.clone();
    assert!(computed(&mut harness, &first, 5).is_empty(), "a part draws nothing");
    assert_eq!(harness.plan(), tokens([(0, 1)]));
    assert_eq!(computed(&mut harness, &second, 5).len(), 1);
}

#[test]
fn without_the_setting_nothing_is_planned_ahead() {
    let mut harness = Harness::new(roomy());
    harness.add_all(&[10]);
    harness.plan();
    assert!(!harness.scheduler.can_plan_ahead());
    assert!(harness.scheduler.begin_step(0).is_err());
}

#[test]
fn no_step_is_planned_after_a_known_last_token() {
    let mut harness = Harness::new(ahead());
    let mut short = request(0, own_prompt(0, 10));
    short.sampling_mut().max_tokens = 2;
    harness.add(short);
    let first = planned(&mut harness);
    assert!(harness.scheduler.can_plan_ahead());
    let second = planned(&mut harness);
    computed(&mut harness, &first, 5);
    assert!(!harness.scheduler.can_plan_ahead(), "its second token is in flight");
    let commits = computed(&mut harness, &second, 5);
    assert_eq!(commits[0].finish, Some(FinishReason::Length));
}

#[test]
fn an_ended_request_is_computed_once_more_and_keeps_its_blocks_until_then() {
    let mut harness = Harness::new(ahead());
    let mut ending = request(0, own_prompt(0, 20));
    ending.eos_token_ids = Arc::from([EOS]);
    ending.sampling_mut().ignore_eos = false;
    harness.add(ending);
    harness.add(request(1, own_prompt(1, 20)));
    let first = planned(&mut harness);
    let second = planned(&mut harness);
    let ends = harness.scheduler.update_from_output(answer(&first, |_| vec![EOS]), 0);
    assert_eq!(ends[0].finish, Some(FinishReason::Stop(None)));
    // It is not in the third step, but the device still has to compute the second.
    assert_eq!(harness.plan(), tokens([(1, 1)]));
    assert_eq!(harness.last.output.finished, [RequestId(0)]);
    assert_eq!(harness.blocks(0).len(), 2);
    let third = harness.last.output.clone();
    let commits = computed(&mut harness, &second, 5);
    assert_eq!(commits.iter().map(|commit| commit.request.0).collect::<Vec<_>>(), [1]);
    let fourth = planned(&mut harness);
    assert_eq!(harness.blocks(0).len(), 0);
    for step in [third, fourth] {
        assert_eq!(computed(&mut harness, &step, 5).len(), 1);
    }
}

#[test]
fn no_request_is_preempted_while_a_step_is_in_flight() {
    // Each prompt fills its blocks, and one free block is left for the two.
    let mut harness = Harness::new(SchedulerConfig { num_blocks: 6, watermark: 0.0, ..ahead() });
    harness.add_all(&[32, 32]);
    let first = planned(&mut harness);
    assert_eq!(harness.plan(), tokens([(0, 1)]), "the other does not fit");
    assert_eq!(harness.last.stats.preempted.len(), 0);
    let second = harness.last.output.clone();
    assert_eq!(computed(&mut harness, &first, 5).len(), 2);
    assert!(!harness.scheduler.can_plan_ahead(), "the steps in flight end first");
    assert_eq!(computed(&mut harness, &second, 5).len(), 1);
    assert_eq!(harness.plan(), tokens([(0, 1)]));
    assert_eq!(harness.last.stats.preempted.len(), 1);
    assert_eq!(harness.scheduler.waiting_reasons()[0], (RequestId(1), WaitingReason::Preemption));
}

#[test]
fn later_requests_that_have_their_blocks_continue() {
    // Three prompts take all six blocks. The first needs another block, the others do not.
    let mut harness = Harness::new(SchedulerConfig { num_blocks: 7, watermark: 0.0, ..ahead() });
    harness.add_all(&[32, 20, 20]);
    harness.add(request(3, own_prompt(3, 10)));
    let first = planned(&mut harness);
    assert_eq!(harness.plan(), tokens([(1, 1), (2, 1)]), "the first does not fit");
    assert_eq!(harness.scheduler.waiting_reasons(), [(RequestId(3), WaitingReason::KvCache)]);
    let second = harness.last.output.clone();
    assert_eq!(computed(&mut harness, &first, 5).len(), 3);
    assert!(!harness.scheduler.can_plan_ahead(), "the steps in flight end first");
    assert_eq!(computed(&mut harness, &second, 5).len(), 2);
    assert_eq!(harness.plan(), tokens([(0, 1), (1, 1)]));
    assert_eq!(harness.last.stats.preempted.len(), 1);
}

#[test]
fn garbage_is_computed_again_after_the_steps_in_flight() {
    let mut harness = Harness::new(ahead());
    harness.add_all(&[20, 20]);
    let first = planned(&mut harness);
    let second = planned(&mut harness);
    let spoil = |step: &SchedulerOutput| {
        let mut output = answer(step, |_| vec![5]);
        output.outputs[0].failure = Some(RowFailure::NotANumber);
        output
    };
    let commits = harness.scheduler.update_from_output(spoil(&first), 0);
    assert_eq!(commits.len(), 1);
    assert!(!harness.scheduler.can_plan_ahead());
    // The worker's result for it in the second step is dropped, because it follows from the spoiled
    // row and not from the repeated one.
    let commits = harness.scheduler.update_from_output(spoil(&second), 0);
    assert_eq!(commits.iter().map(|commit| commit.request.0).collect::<Vec<_>>(), [1]);
    assert_eq!(harness.plan(), tokens([(0, 20), (1, 1)]));
    assert_eq!(harness.hits(0), 0);
}

#[test]
fn garbage_of_an_ended_request_is_never_hit() {
    let mut harness = Harness::new(ahead());
    harness.add_all(&[20, 20]);
    let first = planned(&mut harness);
    let second = planned(&mut harness);
    harness.finish(&[0]);
    harness.add(request(2, own_prompt(0, 30)));
    let mut output = answer(&first, |_| vec![5]);
    output.outputs[0].failure = Some(RowFailure::NotANumber);
    harness.scheduler.update_from_output(output, 0);
    assert!(!harness.scheduler.can_plan_ahead());
    computed(&mut harness, &second, 5);
    assert_eq!(harness.plan(), tokens([(1, 1), (2, 30)]));
    assert_eq!(harness.hits(2), 0);
}

#[test]
fn a_request_whose_grammar_breaks_off_leaves_valid_blocks() {
    let mut harness = Harness::new(ahead());
    harness.add_all(&[20, 20]);
    let first = planned(&mut harness);
    let second = planned(&mut harness);
    let breaks_off = |step: &SchedulerOutput| {
        let mut output = answer(step, |_| vec![5]);
        output.outputs[0].produced = Produced::default();
        output.outputs[0].failure = Some(RowFailure::Grammar("no token is allowed".to_owned()));
        output
    };
    let commits = harness.scheduler.update_from_output(breaks_off(&first), 0);
    let failure = Failure::InvalidGrammar("no token is allowed".to_owned());
    assert_eq!(commits[0].finish, Some(FinishReason::Error(failure)));
    harness.add(request(2, own_prompt(0, 30)));
    harness.scheduler.update_from_output(breaks_off(&second), 0);
    harness.plan();
    assert_eq!(harness.hits(2), 16);
}

#[test]
fn a_block_that_ends_in_a_future_token_is_registered_when_it_is_drawn() {
    let mut harness = Harness::new(ahead());
    let prompt = own_prompt(0, 15);
    harness.add(request(0, prompt.clone()));
    let first = planned(&mut harness);
    let second = planned(&mut harness);
    computed(&mut harness, &first, 5);
    let third = planned(&mut harness);
    computed(&mut harness, &second, 5);
    // The sixteenth token was drawn by the first step, and computed by the second.
    harness.add(request(1, prompt.into_iter().chain([5, 6])));
    computed(&mut harness, &third, 5);
    assert_eq!(harness.plan(), tokens([(0, 1), (1, 1)]));
    assert_eq!(harness.hits(1), 16);
}

#[test]
fn a_pause_and_a_reset_wait_for_the_steps_in_flight() {
    let mut harness = Harness::new(ahead());
    harness.add_all(&[10]);
    harness.plan();
    harness.scheduler.set_pause(PauseState::PausedAll);
    assert!(!harness.scheduler.can_plan_ahead());
    harness.scheduler.set_pause(PauseState::Unpaused);
    harness.scheduler.reset_prefix_cache(true);
    assert!(!harness.scheduler.can_plan_ahead());
}
