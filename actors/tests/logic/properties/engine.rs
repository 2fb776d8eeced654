//! Random runs of an engine.

use std::{cell::Cell, collections::BTreeSet, sync::Arc};

use playhouse_actors::logic::{
    admission::Tenant,
    kv_cache::{KvKind, KvSpec},
    request::{
        EngineRequest,
        ids::{Micros, RequestId, TokenId},
        sampling_params::SamplingParams,
        work::Work,
    },
    scheduler::{PauseState, SchedulerConfig, SchedulingPolicy},
};
use proptest::{prelude::*, test_runner::TestRunner};

use super::{
    device::{BLOCK_SIZE, EOS},
    recording,
    world::{Crash, SAME_GROUP, World},
};
use crate::harness::request;

#[derive(Debug, Clone)]
enum Op {
    Add(Box<EngineRequest>),
    Step,
    /// A step with some rows that are not finite, while a request is aborted.
    BadStep {
        nan_rows: u32,
        aborted: Option<u64>,
    },
    Abort(u64),
    Crash {
        crash: Crash,
        keep_kv_cache: bool,
        keep_scheduler: bool,
    },
    Pause(PauseState),
    Reset {
        reset_running: bool,
    },
    Cohort(Option<BTreeSet<u64>>),
    TokenBudget(usize),
    Wait(Micros),
}

/// Returns the addition of a request. Prompts share beginnings: the first `num_shared` tokens are
/// those of a family.
fn engine_request() -> impl Strategy<Value = Op> {
    let prompt = (0..3 as TokenId, 0..20usize, 1..16usize, any::<bool>());
    let is_rare = || prop::bool::weighted(0.2);
    let flags = (is_rare(), is_rare(), prop::option::of(1..60u64), prop::bool::weighted(0.3));
    let share = (prop::option::of((0..2u32).prop_map(Tenant)), any::<bool>());
    let parts = (prompt, 1..20u32, -2..3i32, flags, share);
    parts.prop_map(|(prompt, max_tokens, priority, flags, (tenant, is_choice))| {
        let (family, num_shared, num_own, is_own) = prompt;
        let (is_salted, wants_logprobs, deadline, may_end) = flags;
        let shared = (0..num_shared as TokenId).map(move |position| 10 * family + position % 7);
        let own = (0..num_own as TokenId).map(move |position| if is_own { position } else { 1 });
        let params = SamplingParams {
            max_tokens,
            ignore_eos: !may_end,
            prompt_logprobs: wants_logprobs.then_some(1),
            ..SamplingParams::default()
        };
        Op::Add(Box::new(EngineRequest {
            work: Work::Generate(params),
            priority,
            tenant,
            group: if is_choice { SAME_GROUP } else { RequestId(0) },
            eos_token_ids: Arc::from([EOS]),
            deadline: deadline.map(|deadline| deadline * 3),
            cache_salt: is_salted.then(|| Arc::from("salt")),
            ..request(0, shared.chain(own))
        }))
    })
}

fn crash() -> impl Strategy<Value = Op> {
    let crash = prop_oneof![
        Just(Crash::BetweenSteps),
        (0..4u8).prop_map(Crash::Planning),
        any::<u64>().prop_map(Crash::Computing),
        (0..4u8, any::<u64>()).prop_map(|(plans, cut)| Crash::Process(plans, cut)),
    ];
    (crash, any::<bool>(), any::<bool>()).prop_map(|(crash, keep_kv_cache, keep_scheduler)| {
        Op::Crash { crash, keep_kv_cache, keep_scheduler }
    })
}

fn op() -> impl Strategy<Value = Op> {
    let pause = prop_oneof![
        Just(PauseState::Unpaused),
        Just(PauseState::PausedNew),
        Just(PauseState::PausedAll)
    ];
    let bad_step = (any::<u32>(), any::<u32>(), prop::option::of(0..20u64));
    prop_oneof![
        6 => engine_request(),
        14 => Just(Op::Step),
        2 => bad_step.prop_map(|(one, two, aborted)| Op::BadStep { nan_rows: one & two, aborted }),
        1 => (0..20u64).prop_map(Op::Abort),
        2 => crash(),
        1 => pause.prop_map(Op::Pause),
        1 => any::<bool>().prop_map(|reset_running| Op::Reset { reset_running }),
        2 => (1..40 as Micros).prop_map(Op::Wait),
        1 => prop::option::of(prop::collection::btree_set(0..20u64, 0..6)).prop_map(Op::Cohort),
        1 => (0..50usize).prop_map(Op::TokenBudget),
    ]
}

/// Returns layers of one kind or of several, or none that keeps anything. Windows may be shorter
/// than a block.
fn layers() -> impl Strategy<Value = Vec<KvKind>> {
    let kind = prop_oneof![
        2 => Just(KvKind::Full),
        2 => (1..14usize).prop_map(|window| KvKind::Sliding { window }),
        1 => (1..14usize).prop_map(|chunk| KvKind::ChunkedLocal { chunk }),
        2 => Just(KvKind::State),
    ];
    prop_oneof![
        4 => Just(vec![KvKind::Full]),
        4 => prop::collection::vec(kind, 1..5),
        1 => Just(Vec::new()),
    ]
}

fn config() -> impl Strategy<Value = SchedulerConfig> {
    let sizes = (6..24u32, 1..6usize, 4..48usize, 0..12usize, 1..4u64);
    let flags =
        (any::<bool>(), any::<bool>(), any::<bool>(), prop::bool::weighted(0.8), any::<bool>());
    let parts = (sizes, flags, 0.0..0.3f64, 10..100 as Micros, layers());
    parts.prop_map(|(sizes, flags, watermark, age, layers)| {
        let (num_blocks, max_num_seqs, max_num_batched_tokens, threshold, interval) = sizes;
        let (is_priority, is_chunked, reserve_full_isl, enable_prefix_caching, is_async) = flags;
        let max_model_len = 40;
        let kv_spec = KvSpec::of_layers(&layers, BLOCK_SIZE, 1);
        let num_blocks = num_blocks * kv_spec.groups.len().max(1) as u32;
        // Without a KV cache, prompts are computed whole.
        let (is_chunked, enable_prefix_caching) = match kv_spec.groups.is_empty() {
            true => (false, false),
            false => (is_chunked, enable_prefix_caching),
        };
        SchedulerConfig {
            policy: match is_priority {
                true => SchedulingPolicy::Priority,
                false => SchedulingPolicy::Fcfs,
            },
            priority_age_bound: age,
            max_num_seqs,
            max_num_batched_tokens: match is_chunked {
                true => max_num_batched_tokens,
                false => max_num_batched_tokens.max(max_model_len),
            },
            max_model_len,
            long_prefill_token_threshold: threshold,
            enable_chunked_prefill: is_chunked,
            reserve_full_isl,
            watermark,
            prefill_schedule_interval: interval,
            kv_spec,
            num_blocks,
            enable_prefix_caching,
            async_scheduling: is_async,
            // Half of the engines guess.
            num_lookahead_tokens: (num_blocks as usize % 2) * interval as usize * 2,
            ..SchedulerConfig::default()
        }
    })
}

/// Runs the operations. Returns how many steps were planned while one was computed.
fn live(config: SchedulerConfig, ops: Vec<Op>) -> usize {
    let mut world = World::new(config.clone());
    for op in ops {
        world.now += 1;
        match op {
            Op::Add(request) => world.add(EngineRequest {
                deadline: request.deadline.map(|deadline| world.now + deadline),
                ..*request
            }),
            Op::Step => world.step(0, None),
            Op::BadStep { nan_rows, aborted } => world.step(nan_rows, aborted.map(RequestId)),
            Op::Abort(id) => world.abort(RequestId(id)),
            Op::Crash { crash, keep_kv_cache, keep_scheduler } => {
                world.crash(crash, keep_kv_cache, keep_scheduler);
            }
            Op::Pause(pause) => world.set_pause(pause),
            Op::Reset { reset_running } => world.reset_prefix_cache(reset_running),
            Op::Cohort(cohort) => world.set_cohort(cohort),
            Op::TokenBudget(tokens) => world.set_token_budget(tokens),
            Op::Wait(time) => world.now += time,
        }
    }
    let before_end = (world.recorded.len(), world.end_state());
    world.run_out();
    // A recording is of one process.
    if !world.has_lost_process {
        recording::check(&config, &world, before_end);
    }
    world.num_planned_ahead
}

/// In every order, each request ends once, with the stream of an engine without faults or a named
/// error. No request reads KV that is not of its own prefix, and nothing leaks.
#[test]
fn every_request_ends_with_the_tokens_of_a_faultless_engine() {
    let num_planned_ahead = Cell::new(0);
    let mut runner = TestRunner::new(ProptestConfig {
        cases: 1_000,
        source_file: Some(file!()),
        ..ProptestConfig::default()
    });
    let lives = (config(), prop::collection::vec(op(), 0..120));
    let result = runner.run(&lives, |(config, ops)| {
        num_planned_ahead.set(num_planned_ahead.get() + live(config, ops));
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
    assert!(num_planned_ahead.get() > 5_000, "{} steps", num_planned_ahead.get());
}
