//! Guesses: how many places a step has for them, and the effects of right and wrong ones.

use playhouse_actors::logic::{
    admission::Tenant,
    kv_cache::{KvKind, KvSpec},
    request::{
        EngineRequest, FinishReason,
        ids::{RequestId, TokenId},
        outputs::{Commit, DraftCounts, StepOutput},
    },
    scheduler::{SchedulerConfig, output::SchedulerOutput},
};

use crate::harness::{Harness, answer, own_prompt, request, roomy, tokens};

fn guessing() -> SchedulerConfig {
    SchedulerConfig { num_lookahead_tokens: 4, ..roomy() }
}

/// Answers a step: each request gets these tokens, and asks for `num_wanted` guesses.
fn drawn(step: &SchedulerOutput, drawn: &[TokenId], num_wanted: u32) -> StepOutput {
    let mut output = answer(step, |_| drawn.to_vec());
    for output in &mut output.outputs {
        output.drafts = DraftCounts { num_wanted, ..DraftCounts::default() };
    }
    output
}

fn computed(harness: &mut Harness, draws: &[TokenId], num_wanted: u32) -> Vec<Commit> {
    let output = drawn(&harness.last.output, draws, num_wanted);
    harness.scheduler.update_from_output(output, 0)
}

/// Computes the prompt of request 0, which then asks for four guesses.
fn begun(config: SchedulerConfig, prompt_len: usize) -> Harness {
    let mut harness = Harness::new(config);
    harness.add_all(&[prompt_len]);
    harness.plan();
    computed(&mut harness, &[5], 4);
    harness
}

#[test]
fn places_for_guesses_are_those_that_the_executor_asks_for() {
    let mut harness = begun(guessing(), 10);
    for (num_wanted, num_tokens) in [(2, 5), (9, 3), (0, 5), (4, 1)] {
        assert_eq!(harness.plan(), tokens([(0, num_tokens)]));
        let cached = &harness.last.output.scheduled_cached[0];
        assert_eq!(cached.num_lookahead_tokens, num_tokens - 1);
        computed(&mut harness, &[5], num_wanted);
    }
    let mut without = begun(SchedulerConfig { num_lookahead_tokens: 0, ..guessing() }, 10);
    assert_eq!(without.plan(), tokens([(0, 1)]));
}

#[test]
fn computed_tokens_end_at_the_position_plus_the_accepted_ones() {
    let mut harness = begun(guessing(), 10);
    // Of four guesses, all are right, then two, then none.
    for (num_drawn, position) in [(5, 10), (3, 15), (1, 18)] {
        assert_eq!(harness.plan(), tokens([(0, 5)]));
        assert_eq!(harness.last.output.scheduled_cached[0].num_computed_tokens, position);
        let commits = computed(&mut harness, &[7; 5][..num_drawn], 4);
        assert_eq!(commits[0].produced.tokens().len(), num_drawn);
        assert_eq!(commits[0].position, position - 9);
    }
    harness.plan();
    assert_eq!(harness.last.output.scheduled_cached[0].num_computed_tokens, 19);
}

#[test]
fn a_request_ends_at_its_length_whatever_is_guessed() {
    let mut harness = Harness::new(guessing());
    let mut short = request(0, own_prompt(0, 10));
    short.sampling_mut().max_tokens = 4;
    harness.add(short);
    harness.plan();
    computed(&mut harness, &[5], 4);
    assert_eq!(harness.plan(), tokens([(0, 3)]), "three tokens are left, one without a guess");
    let commits = computed(&mut harness, &[5, 6, 7], 4);
    assert_eq!(commits[0].finish, Some(FinishReason::Length));
}

#[test]
fn tokens_after_a_stop_token_are_dropped() {
    let mut harness = Harness::new(guessing());
    let mut stopping = request(0, own_prompt(0, 10));
    stopping.sampling_mut().stop_token_ids = vec![9];
    harness.add(stopping);
    harness.plan();
    computed(&mut harness, &[5], 4);
    harness.plan();
    let commits = computed(&mut harness, &[6, 9, 7, 8], 4);
    let committed: Vec<TokenId> =
        commits[0].produced.tokens().iter().map(|token| token.token_id).collect();
    assert_eq!(committed, [6, 9]);
    assert!(matches!(commits[0].finish, Some(FinishReason::Stop(Some(_)))));
}

#[test]
fn each_running_request_has_its_token_before_others_have_guesses() {
    let config = SchedulerConfig { max_num_batched_tokens: 6, ..guessing() };
    let mut harness = Harness::new(config);
    harness.add_all(&[2, 2, 2]);
    harness.plan();
    computed(&mut harness, &[5], 4);
    assert_eq!(harness.plan(), tokens([(0, 4), (1, 1), (2, 1)]));
}

#[test]
fn guesses_preempt_no_request() {
    // Two prompts take four of five blocks. The guesses of the first request take the fifth, and
    // those of the second have no room.
    let config = SchedulerConfig { num_blocks: 6, watermark: 0.0, ..guessing() };
    let mut harness = Harness::new(config);
    harness.add_all(&[28, 28]);
    harness.plan();
    computed(&mut harness, &[5], 4);
    assert_eq!(harness.plan(), tokens([(0, 5), (1, 1)]));
    assert_eq!(harness.last.stats.preempted.len(), 0);
    assert_eq!((harness.blocks(0).len(), harness.blocks(1).len()), (3, 2));
}

#[test]
fn a_block_with_a_guess_has_no_hash() {
    let mut harness = begun(guessing(), 14);
    harness.plan();
    let pool = |harness: &Harness| {
        let blocks = harness.blocks(0).to_vec();
        blocks.into_iter().filter(|&block| harness.kv_cache.pool().is_cached(block)).count()
    };
    assert_eq!((harness.blocks(0).len(), pool(&harness)), (2, 0), "tokens 15 to 18 are guesses");
    computed(&mut harness, &[5, 6], 0);
    harness.plan();
    assert_eq!(pool(&harness), 1, "16 tokens are known and computed");
}

fn with_states(config: SchedulerConfig) -> SchedulerConfig {
    let kv_spec = KvSpec::of_layers(&[KvKind::Full, KvKind::State], 16, 1);
    SchedulerConfig { kv_spec, ..config }
}

/// No state keeps a guess, so the next step computes right ones again, before new ones.
#[test]
fn a_model_with_states_computes_right_guesses_again() {
    let mut harness = begun(with_states(guessing()), 10);
    // Of four guesses, all are right, then two, then none.
    let steps = [(5, 5, 10), (3, 9, 11), (1, 7, 16), (2, 5, 19)];
    for (num_drawn, num_tokens, position) in steps {
        assert_eq!(harness.plan(), tokens([(0, num_tokens)]));
        let cached = &harness.last.output.scheduled_cached[0];
        assert_eq!((cached.num_computed_tokens, cached.num_lookahead_tokens), (position, 4));
        let commits = computed(&mut harness, &[7; 5][..num_drawn], 4);
        assert_eq!(commits[0].produced.tokens().len(), num_drawn);
    }
    computed_without_guesses(&mut harness);
}

/// Computes steps of a request with two known tokens that are not computed.
fn computed_without_guesses(harness: &mut Harness) {
    assert_eq!(harness.plan(), tokens([(0, 6)]));
    computed(harness, &[7], 0);
    assert_eq!(harness.plan(), tokens([(0, 1)]));
}

#[test]
fn a_block_of_a_state_has_no_hash_before_its_guesses_are_computed_again() {
    let mut harness = begun(with_states(guessing()), 14);
    harness.plan();
    let num_cached = |harness: &Harness| {
        let table = harness.kv_cache.block_ids(RequestId(0)).unwrap();
        table.iter().filter(|&block| harness.kv_cache.pool().is_cached(block)).count()
    };
    assert_eq!(num_cached(&harness), 0, "tokens 15 to 18 are guesses");
    computed(&mut harness, &[5, 6, 7], 0);
    harness.plan();
    assert_eq!(num_cached(&harness), 2, "18 tokens are known, and all computed");
}

/// The tokens of the step planned ahead are those that are known when it is computed.
#[test]
fn a_step_of_states_planned_ahead_begins_after_the_known_tokens() {
    let config = with_states(SchedulerConfig { async_scheduling: true, ..guessing() });
    let mut harness = begun(config, 10);
    assert_eq!(harness.plan(), tokens([(0, 5)]));
    let first = harness.last.output.clone();
    assert_eq!(harness.plan(), tokens([(0, 9)]), "as if all guesses were right");
    let second = harness.last.output.clone();
    let cached = &second.scheduled_cached[0];
    assert_eq!(cached.num_computed_tokens, 11);
    // Two guesses of four are right, so 14 tokens are known.
    harness.scheduler.update_from_output(drawn(&first, &[6, 7, 8], 4), 0);
    assert_eq!(cached.certain_tokens(13, 14), 11..14);
    harness.scheduler.update_from_output(drawn(&second, &[9, 10], 4), 0);
    assert_eq!(harness.plan(), tokens([(0, 6)]));
    assert_eq!(harness.last.output.scheduled_cached[0].num_computed_tokens, 14);
}

/// A row whose last token depends on guesses in flight is not cut.
#[test]
fn a_step_of_states_planned_ahead_has_all_of_its_tokens() {
    let config = SchedulerConfig { max_num_batched_tokens: 7, ..with_states(guessing()) };
    let mut harness = Harness::new(SchedulerConfig { async_scheduling: true, ..config });
    harness.add_all(&[2, 2]);
    harness.plan();
    computed(&mut harness, &[5], 4);
    assert_eq!(harness.plan(), tokens([(0, 5), (1, 2)]));
    let first = harness.last.output.clone();
    assert_eq!(harness.plan(), tokens([(0, 6)]), "five certain ones and a guess");
    harness.scheduler.update_from_output(drawn(&first, &[6], 4), 0);
}

#[test]
fn suspects_have_no_guesses() {
    let mut harness = begun(guessing(), 10);
    harness.scheduler.set_cohort(Some([RequestId(0)].into()));
    assert_eq!(harness.plan(), tokens([(0, 1)]));
}

/// The step planned ahead counts on all guesses. The executor begins where the right ones end.
#[test]
fn a_step_planned_ahead_follows_wrong_guesses() {
    let mut harness = begun(SchedulerConfig { async_scheduling: true, ..guessing() }, 10);
    assert_eq!(harness.plan(), tokens([(0, 5)]));
    let first = harness.last.output.clone();
    assert!(harness.scheduler.can_plan_ahead());
    assert_eq!(harness.plan(), tokens([(0, 5)]), "as if all guesses were right");
    let second = harness.last.output.clone();
    let cached = &second.scheduled_cached[0];
    assert_eq!(cached.num_computed_tokens, 15);
    // Two guesses of four are right, so 13 tokens are computed.
    let commits = harness.scheduler.update_from_output(drawn(&first, &[6, 7, 8], 4), 0);
    assert_eq!(commits[0].produced.tokens().len(), 3);
    assert_eq!(cached.certain_tokens(13, 14), 13..14);
    let commits = harness.scheduler.update_from_output(drawn(&second, &[9], 4), 0);
    assert_eq!((commits[0].position, commits[0].produced.tokens().len()), (4, 1));
    harness.plan();
    assert_eq!(harness.last.output.scheduled_cached[0].num_computed_tokens, 14);
}

/// Two tenants have the same places for guesses. Only the second one's drafter fills them.
#[test]
fn a_tenant_pays_for_no_place_without_a_guess() {
    let mut harness = Harness::new(SchedulerConfig { max_num_seqs: 2, ..guessing() });
    for (id, tenant) in [(0, 0), (1, 1), (2, 1), (3, 0)] {
        let request = request(id, own_prompt(id, 10));
        harness.add(EngineRequest { tenant: Some(Tenant(tenant)), ..request });
    }
    let answered = |harness: &mut Harness, num_drafted: u32| {
        let mut output = answer(&harness.last.output, |_| vec![5]);
        for output in &mut output.outputs {
            let num_drafted = if output.request == RequestId(1) { num_drafted } else { 0 };
            output.drafts = DraftCounts { num_drafted, num_accepted: 0, num_wanted: 4 };
        }
        harness.scheduler.update_from_output(output, 0);
    };
    assert_eq!(harness.plan(), tokens([(0, 10), (1, 10)]));
    answered(&mut harness, 0);
    for _ in 0..3 {
        assert_eq!(harness.plan(), tokens([(0, 5), (1, 5)]));
        answered(&mut harness, 4);
    }
    // The first tenant has 13 tokens and the second 25.
    assert_eq!(harness.waiting(), [3, 2]);
}
