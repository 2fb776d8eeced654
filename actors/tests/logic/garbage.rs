//! Requests with non-finite logits. A worker reports them when it draws a token, after the parts of
//! a prompt are computed. No later request may hit a block that such a request has written or read.

use playhouse_actors::logic::{
    kv_cache::{DirectoryUpdate, KvKind, KvSpec},
    request::{
        FinishReason,
        failure::Failure,
        ids::RequestId,
        outputs::{Produced, RowFailure},
    },
    scheduler::{SchedulerConfig, output::SchedulerOutput},
};

use crate::harness::{Harness, answer, own_prompt, request, roomy, tokens};

/// Layers without full attention, so that blocks are passed while a request runs.
const WINDOWS: [KvKind; 2] = [KvKind::State, KvKind::Sliding { window: 20 }];

/// Returns an engine that computes two blocks of a prompt in a step.
fn engine(kinds: &[KvKind], async_scheduling: bool) -> Harness {
    Harness::new(SchedulerConfig {
        kv_spec: KvSpec::of_layers(kinds, 16, 1),
        max_num_batched_tokens: 32,
        async_scheduling,
        ..roomy()
    })
}

fn planned(harness: &mut Harness) -> SchedulerOutput {
    harness.plan();
    harness.last.output.clone()
}

/// Computes a step. The first row is not finite, which is reported if `is_drawn`.
fn spoil(harness: &mut Harness, step: &SchedulerOutput, is_drawn: bool) {
    let mut output = answer(step, |_| vec![5]);
    output.outputs[0].produced = Produced::default();
    output.outputs[0].failure = is_drawn.then_some(RowFailure::NotANumber);
    let commits = harness.scheduler.update_from_output(output, 0);
    harness.commits.extend(commits);
}

/// Computes a prompt of six blocks and seven tokens in parts that report nothing.
fn compute_all_but_the_last_part(harness: &mut Harness) {
    harness.add(request(0, 0..103));
    for _ in 0..3 {
        let part = planned(harness);
        spoil(harness, &part, false);
    }
}

/// Returns the number of cached blocks.
fn num_cached(harness: &Harness) -> usize {
    let pool = harness.kv_cache.pool();
    (1..=pool.num_usable() as u32).filter(|&block| pool.is_cached(block)).count()
}

#[test]
fn blocks_that_a_window_has_passed_are_not_hit_after_garbage() {
    for kind in WINDOWS {
        let mut harness = engine(&[kind], false);
        compute_all_but_the_last_part(&mut harness);
        assert_eq!(planned(&mut harness).total_num_scheduled_tokens, 7);
        assert_eq!(harness.blocks(0)[..2], [0, 0], "{kind:?} has passed blocks");
        assert_eq!(num_cached(&harness), 6);
        let last = harness.last.output.clone();
        spoil(&mut harness, &last, true);
        // The request begins again, and another that shares the first 40 tokens does, too.
        harness.add(request(1, (0..40).chain(own_prompt(1, 8))));
        assert_eq!(harness.plan(), tokens([(0, 32)]), "{kind:?}");
        assert_eq!((harness.hits(0), num_cached(&harness)), (0, 2), "of this step");
        let evicted = harness.kv_cache.drain_directory_updates();
        let is_evicted =
            |update: &&DirectoryUpdate| matches!(update, DirectoryUpdate::Evicted { .. });
        assert_eq!(evicted.iter().filter(is_evicted).count(), 6, "a crash brings none back");
        harness.compute(5);
        while harness.output(0).is_empty() {
            harness.step();
        }
        assert_eq!(harness.finish_reason(0), None, "the second try succeeds");
    }
}

#[test]
fn blocks_of_a_request_that_ends_with_garbage_are_not_hit() {
    for kind in WINDOWS {
        let mut harness = engine(&[kind], false);
        compute_all_but_the_last_part(&mut harness);
        let last = planned(&mut harness);
        spoil(&mut harness, &last, true);
        while harness.finish_reason(0).is_none() {
            let step = planned(&mut harness);
            let is_last = step.total_num_scheduled_tokens == 7;
            spoil(&mut harness, &step, is_last);
        }
        let expected = FinishReason::Error(Failure::NumericalGarbage);
        assert_eq!(harness.finish_reason(0), Some(expected));
        harness.add(request(1, 0..103));
        harness.plan();
        assert_eq!((harness.hits(1), num_cached(&harness)), (0, 2), "{kind:?}");
    }
}

#[test]
fn copies_of_garbage_that_another_request_wrote_are_not_hit_either() {
    for kind in WINDOWS {
        let mut harness = engine(&[kind], false);
        compute_all_but_the_last_part(&mut harness);
        // A client leaves before a token was drawn, so the garbage is not reported.
        harness.finish(&[0]);
        harness.add(request(1, 0..103));
        let step = planned(&mut harness);
        assert_eq!(harness.hits(1), 96, "{kind:?}");
        spoil(&mut harness, &step, true);
        harness.add(request(2, 0..60));
        assert_eq!(harness.plan(), tokens([(1, 32)]));
        assert_eq!((harness.hits(1), num_cached(&harness)), (0, 2), "{kind:?}");
        harness.finish(&[1]);
        harness.compute(5);
        harness.plan();
        assert_eq!(harness.hits(2), 32, "what the second try has computed is good");
    }
}

#[test]
fn steps_in_flight_leave_no_garbage_either() {
    for kind in WINDOWS {
        for is_aborted in [false, true] {
            let mut harness = engine(&[kind], true);
            harness.add(request(0, 0..103));
            let mut steps = vec![planned(&mut harness), planned(&mut harness)];
            for _ in 0..3 {
                spoil(&mut harness, &steps.remove(0), false);
                steps.push(planned(&mut harness));
            }
            let [last_part, ahead] = &steps[..] else { panic!("two are in flight") };
            assert_eq!(last_part.total_num_scheduled_tokens, 7);
            assert_eq!(ahead.total_num_scheduled_tokens, 1);
            if is_aborted {
                harness.finish(&[0]);
            }
            spoil(&mut harness, last_part, true);
            harness.add(request(1, 0..103));
            assert!(!harness.scheduler.can_plan_ahead(), "the blocks could be hit");
            spoil(&mut harness, ahead, true);
            harness.plan();
            let first = if is_aborted { 1 } else { 0 };
            assert_eq!(harness.running(), [first], "{kind:?}");
            assert_eq!((harness.hits(first), num_cached(&harness)), (0, 2), "{kind:?}");
        }
    }
}

/// Full attention finds no run of blocks after the garbage. Once another request has computed the
/// blocks again, a hit must not take the old block of the other group.
#[test]
fn garbage_of_one_group_is_not_hit_beside_good_blocks_of_another() {
    for kind in WINDOWS.into_iter().chain([KvKind::ChunkedLocal { chunk: 32 }]) {
        let mut harness = engine(&[KvKind::Full, kind], false);
        compute_all_but_the_last_part(&mut harness);
        let last = planned(&mut harness);
        let table = harness.kv_cache.block_ids(RequestId(0)).unwrap().group(1).to_vec();
        assert_eq!(table[0], 0, "{kind:?} has passed a block");
        assert_eq!(num_cached(&harness), 12);
        spoil(&mut harness, &last, true);
        harness.finish(&[0]);
        harness.add(request(1, 0..103));
        harness.plan();
        assert_eq!((harness.hits(1), num_cached(&harness)), (0, 4), "{kind:?}");
    }
}
