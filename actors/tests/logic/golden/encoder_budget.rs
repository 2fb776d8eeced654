//! Images in prompts. The encoder's budget ends a chunk where an image begins.

use std::sync::Arc;

use playhouse_actors::logic::{
    request::{
        EngineRequest, FinishReason, failure::Failure, ids::RequestId, media::MultimodalFeature,
    },
    scheduler::{SchedulerConfig, SchedulingPolicy, output::EncoderInputs},
};

use crate::harness::{Harness, own_prompt, request, roomy, tokens};

fn config() -> SchedulerConfig {
    SchedulerConfig {
        max_num_batched_tokens: 1024,
        encoder_budget: 1024,
        encoder_cache_size: 1024,
        ..roomy()
    }
}

/// Returns a request with its own image.
fn with_image(id: u64, len: usize, offset: usize, length: usize) -> EngineRequest {
    let feature = MultimodalFeature::for_test(&format!("image{id}"), offset, length);
    EngineRequest { mm_features: Arc::from([feature]), ..request(id, own_prompt(id, len)) }
}

#[test]
fn prompts_advance_to_the_image_that_cannot_be_encoded_yet() {
    let mut harness = Harness::new(config());
    (0..3).for_each(|id| harness.add(with_image(id, 800, 100, 600)));
    assert_eq!(harness.step(), tokens([(0, 800), (1, 100), (2, 100)]));
    let inputs = EncoderInputs { request: RequestId(0), features: vec![0] };
    assert_eq!(harness.last.output.scheduled_encoder_inputs, [inputs]);
    assert_eq!(harness.step(), tokens([(0, 1), (1, 700)]));
    assert_eq!(harness.last.output.freed_encoder_outputs, ["image0".into()]);
    assert_eq!(harness.step(), tokens([(0, 1), (1, 1), (2, 700)]));
}

#[test]
fn an_image_is_computed_in_one_step_if_configured() {
    let config = SchedulerConfig { disable_chunked_mm_input: true, ..config() };
    let mut harness = Harness::new(config);
    harness.add(with_image(0, 1200, 400, 800));
    assert_eq!(harness.step(), tokens([(0, 400)]));
    assert_eq!(harness.step(), tokens([(0, 800)]));
}

#[test]
fn an_image_that_two_requests_share_is_encoded_once() {
    let mut harness = Harness::new(config());
    let first = with_image(0, 300, 100, 200);
    let features = Arc::clone(&first.mm_features);
    harness.add(first);
    harness.add(EngineRequest { mm_features: features, ..request(1, own_prompt(1, 300)) });
    assert_eq!(harness.step(), tokens([(0, 300), (1, 300)]));
    assert_eq!(harness.last.output.scheduled_encoder_inputs.len(), 1);
}

#[test]
fn an_image_that_can_never_be_encoded_ends_its_request_alone() {
    let mut harness = Harness::new(config());
    harness.add(with_image(0, 2000, 0, 1500));
    harness.add(request(1, own_prompt(1, 10)));
    assert_eq!(harness.step(), tokens([(1, 10)]));
    assert_eq!(harness.last.ended[0].finish, Some(FinishReason::Error(Failure::Unservable)));
}

/// Two running requests reach an image that they share in the same step. The one that was to encode
/// it is then preempted for a third.
#[test]
fn a_shared_image_is_encoded_for_the_one_that_stays() {
    let mut harness = Harness::new(SchedulerConfig {
        policy: SchedulingPolicy::Priority,
        max_num_batched_tokens: 96,
        long_prefill_token_threshold: 32,
        num_blocks: 18,
        reserve_full_isl: false,
        enable_prefix_caching: false,
        ..config()
    });
    let with_shared_image = |id, offset, priority| {
        let image = MultimodalFeature::for_test("shared", offset, 32);
        let prompt = request(id, own_prompt(id, 200));
        EngineRequest { mm_features: Arc::from([image]), priority, ..prompt }
    };
    harness.add(with_shared_image(0, 128, 9));
    assert_eq!(harness.step(), tokens([(0, 96)]));
    harness.add(with_shared_image(1, 32, 0));
    harness.add(EngineRequest { priority: 1, ..request(2, own_prompt(2, 200)) });
    assert_eq!(harness.step(), tokens([(0, 32), (1, 32), (2, 32)]));
    assert_eq!(harness.step(), tokens([(1, 32), (2, 32)]));
    assert_eq!(harness.last.output.preempted, [RequestId(0)]);
    let inputs = EncoderInputs { request: RequestId(1), features: vec![0] };
    assert_eq!(harness.last.output.scheduled_encoder_inputs, [inputs]);
}
