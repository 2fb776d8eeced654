//! A new epoch computes again one token for each request, because of the tails.

use std::collections::BTreeSet;

use playhouse_actors::logic::{
    kv_cache::KvSpec,
    request::ids::RequestId,
    scheduler::{SchedulerConfig, StepStats},
};

use super::{
    device::BLOCK_SIZE,
    world::{Crash, World},
};
use crate::harness::request;

const REQUESTS: usize = 7;
const CRASHES: [Crash; 6] = [
    Crash::BetweenSteps,
    Crash::Planning(0),
    Crash::Planning(1),
    Crash::Computing(0x5a3c_96f0),
    Crash::Process(0, 0),
    // After all stores of the plan.
    Crash::Process(1, u64::MAX),
];

/// Returns a world after `num_steps` steps, with prompts of 1 to 13 tokens that share nothing.
fn world(num_steps: usize, config: SchedulerConfig) -> World {
    let mut world = World::new(SchedulerConfig {
        kv_spec: KvSpec::full(1, BLOCK_SIZE, 1),
        num_blocks: 200,
        max_model_len: 100,
        ..config
    });
    for id in 0..REQUESTS as u32 {
        world.add(request(0, (0..1 + 2 * id).map(|position| 100 * id + position)));
    }
    (0..num_steps).for_each(|_| step(&mut world));
    world
}

fn step(world: &mut World) {
    world.now += 1;
    world.step(0, None);
}

/// Crashes the core and returns the statistics of the first step after it.
fn after(crash: Crash, world: &mut World) -> StepStats {
    world.crash(crash, false, false);
    step(world);
    world.stats.clone()
}

#[test]
fn a_new_epoch_computes_one_token_a_request() {
    let mut num_adopted = 0;
    for num_steps in 2..30 {
        for crash in CRASHES {
            let mut world = world(num_steps, SchedulerConfig::default());
            for again in 0..3 {
                let stats = after(crash, &mut world);
                let what = format!("{crash:?} after {num_steps} steps, {again}: {stats:?}");
                assert_eq!(stats.num_scheduled_tokens, REQUESTS, "{what}");
                assert_eq!(stats.recomputed_tokens, 0, "{what}");
                assert_eq!((stats.prefix_cache_queries, stats.prefix_cache_hits), (0, 0));
                num_adopted += stats.adopted_tail_tokens;
            }
            step(&mut world);
            assert_eq!(world.stats.num_scheduled_tokens, REQUESTS, "{crash:?}");
        }
    }
    assert!(num_adopted > 0);
}

#[test]
fn a_prompt_in_parts_has_a_tail_once_all_of_it_is_computed() {
    let config = SchedulerConfig { max_num_batched_tokens: 8, ..SchedulerConfig::default() };
    // The prompts have 49 tokens, and a step has eight.
    for num_steps in 0..30 {
        for crash in CRASHES {
            let mut world = world(num_steps, config.clone());
            (0..20).for_each(|_| drop(after(crash, &mut world)));
            (0..20).for_each(|_| step(&mut world));
            let stats = after(crash, &mut world);
            assert_eq!(stats.num_scheduled_tokens, REQUESTS, "{crash:?} after {num_steps} steps");
        }
    }
}

#[test]
fn a_suspect_alone_computes_its_tail_again() {
    for suspects in [[3].into(), BTreeSet::from([3, 4])] {
        let mut world = world(9, SchedulerConfig::default());
        world.set_cohort(Some(suspects.clone()));
        let stats = after(Crash::Computing(1), &mut world);
        let is_alone = suspects.len() == 1;
        assert_eq!(stats.adopted_tail_tokens == 0, is_alone, "{stats:?}");
        assert_eq!(stats.recomputed_tokens > 0, is_alone, "{stats:?}");
        world.set_cohort(None);
        step(&mut world);
        let num_innocent = REQUESTS - suspects.len();
        assert_eq!(world.stats.num_scheduled_tokens, REQUESTS, "their tails waited for them");
        assert!(world.stats.adopted_tail_tokens >= num_innocent, "{:?}", world.stats);
    }
}

#[test]
fn a_reset_forgets_tails_as_well() {
    let mut world = world(9, SchedulerConfig::default());
    world.crash(Crash::BetweenSteps, false, false);
    world.reset_prefix_cache(false);
    step(&mut world);
    assert_eq!(world.stats.adopted_tail_tokens, 0);
    let prompts: usize = (0..REQUESTS).map(|id| 1 + 2 * id).sum();
    assert_eq!(world.stats.num_scheduled_tokens, prompts + 9 * REQUESTS);
}

#[test]
fn without_a_prefix_cache_there_are_no_tails() {
    let config = SchedulerConfig { enable_prefix_caching: false, ..SchedulerConfig::default() };
    let mut world = world(9, config);
    let stats = after(Crash::BetweenSteps, &mut world);
    assert_eq!(stats.adopted_tail_tokens, 0);
    assert_eq!(stats.num_scheduled_tokens - stats.recomputed_tokens, REQUESTS);
}

#[test]
fn a_request_that_ends_before_it_is_resumed_leaves_no_tail() {
    let mut world = world(9, SchedulerConfig::default());
    world.abort(RequestId(0));
    world.crash(Crash::BetweenSteps, false, false);
    world.abort(RequestId(1));
    (2..REQUESTS as u64).for_each(|id| world.abort(RequestId(id)));
    world.run_out();
}
