//! Fewer tokens in a step than configured, after the device's memory ran out.

use playhouse_actors::logic::{
    request::{
        pooling_params::{PoolingParams, PoolingTask},
        work::Work,
    },
    scheduler::SchedulerConfig,
};

use crate::harness::{Harness, own_prompt, request, roomy, tokens};

#[test]
fn the_next_step_keeps_to_the_budget() {
    let mut harness = Harness::new(SchedulerConfig { max_num_batched_tokens: 100, ..roomy() });
    harness.add_all(&[80, 80]);
    harness.scheduler.set_token_budget(50);
    assert_eq!(harness.step(), tokens([(0, 50)]));
    assert_eq!(harness.step(), tokens([(0, 30), (1, 20)]));
    harness.scheduler.set_token_budget(1_000);
    assert_eq!(harness.scheduler.token_budget(), 100, "never more than configured");
    assert_eq!(harness.step(), tokens([(0, 1), (1, 60)]));
    harness.scheduler.set_token_budget(0);
    assert_eq!(harness.step(), tokens([(0, 1)]), "one token is always possible");
}

/// A prompt longer than the reduced budget cannot be computed whole.
#[test]
fn without_chunks_only_a_prompt_longer_than_the_budget_is_computed_in_parts() {
    let config = SchedulerConfig {
        max_num_batched_tokens: 100,
        max_model_len: 100,
        enable_chunked_prefill: false,
        ..roomy()
    };
    let mut harness = Harness::new(config);
    harness.add_all(&[30, 90, 30]);
    harness.scheduler.set_token_budget(50);
    assert_eq!(harness.step(), tokens([(0, 30), (1, 20)]));
    assert_eq!(harness.step(), tokens([(0, 1), (1, 49)]));
    assert_eq!(harness.step(), tokens([(0, 1), (1, 21)]), "28 tokens are left, 30 are needed");
    assert_eq!(harness.step(), tokens([(0, 1), (1, 1), (2, 30)]));
}

/// A model without a KV cache cannot compute a prompt in parts. One that is longer than the reduced
/// budget has a step of its own.
#[test]
fn without_a_kv_cache_every_prompt_is_computed_whole() {
    let mut config = SchedulerConfig {
        max_num_batched_tokens: 100,
        max_model_len: 100,
        enable_chunked_prefill: false,
        enable_prefix_caching: false,
        long_prefill_token_threshold: 7,
        ..roomy()
    };
    config.kv_spec.groups.clear();
    let mut harness = Harness::new(config);
    for (id, len) in [(0, 30), (1, 60), (2, 20), (3, 90), (4, 10)] {
        let mut pooled = request(id, own_prompt(id, len));
        pooled.work = Work::Pool(PoolingParams::new(PoolingTask::Embed));
        harness.add(pooled);
    }
    assert_eq!(harness.step(), tokens([(0, 30), (1, 60)]));
    harness.finish(&[0, 1]);
    harness.scheduler.set_token_budget(50);
    assert_eq!(harness.step(), tokens([(2, 20)]), "90 tokens are more than a step has");
    harness.finish(&[2]);
    assert_eq!(harness.step(), tokens([(3, 90)]));
    harness.finish(&[3]);
    assert_eq!(harness.step(), tokens([(4, 10)]));
}
