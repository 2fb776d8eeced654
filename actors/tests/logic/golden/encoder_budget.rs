//! Images in prompts. A chunk ends where an image begins that is not encoded yet.

use playhouse_actors::logic::{
    request::{EngineRequest, FinishReason, failure::Failure, media::MultimodalFeature},
    scheduler::{SchedulerConfig, SchedulingPolicy, WaitingReason},
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
    with_images(id, len, &[(&format!("image{id}"), offset, length)])
}

/// Returns a request with images of these names, offsets and lengths.
fn with_images(id: u64, len: usize, images: &[(&str, usize, usize)]) -> EngineRequest {
    let feature = |(name, offset, length): &(&str, usize, usize)| {
        MultimodalFeature::for_test(name, *offset, *length)
    };
    let mm_features = images.iter().map(feature).collect();
    EngineRequest { mm_features, ..request(id, own_prompt(id, len)) }
}

/// vLLM's numbers, one step later: there, a step encodes the images of its own tokens.
#[test]
fn prompts_advance_to_the_image_that_is_not_encoded_yet() {
    let mut harness = Harness::new(config());
    (0..3).for_each(|id| harness.add(with_image(id, 800, 100, 600)));
    assert_eq!(harness.step(), tokens([(0, 100), (1, 100), (2, 100)]));
    assert_eq!(harness.encode(), ["image0"]);
    assert_eq!(harness.step(), tokens([(0, 700)]));
    assert_eq!(harness.encode(), ["image1"]);
    assert_eq!(harness.encoder_cache.take_evicted(), ["image0".into()]);
    assert_eq!(harness.step(), tokens([(0, 1), (1, 700)]));
    assert_eq!(harness.encode(), ["image2"]);
    assert_eq!(harness.step(), tokens([(0, 1), (1, 1), (2, 700)]));
}

#[test]
fn text_goes_on_while_an_image_is_encoded() {
    let mut harness = Harness::new(config());
    harness.add(with_image(0, 300, 0, 200));
    harness.add(request(1, own_prompt(1, 50)));
    assert_eq!(harness.step(), tokens([(1, 50)]));
    let waits = harness.scheduler.waiting_reasons();
    assert_eq!(
        waits.iter().map(|(_, why)| *why).collect::<Vec<_>>(),
        [WaitingReason::EncoderCache]
    );
    assert_eq!(harness.step(), tokens([(1, 1)]));
    assert_eq!(harness.encode(), ["image0"]);
    assert_eq!(harness.step(), tokens([(1, 1), (0, 300)]));
}

#[test]
fn an_image_is_computed_in_one_step_if_configured() {
    let config = SchedulerConfig { disable_chunked_mm_input: true, ..config() };
    let mut harness = Harness::new(config);
    harness.add(with_image(0, 1200, 400, 800));
    assert_eq!(harness.step(), tokens([(0, 400)]));
    assert_eq!(harness.step(), tokens([]));
    assert_eq!(harness.encode(), ["image0"]);
    assert_eq!(harness.step(), tokens([(0, 800)]));
}

#[test]
fn an_image_longer_than_a_reduced_budget_is_computed_in_parts_too() {
    let config =
        SchedulerConfig { max_num_batched_tokens: 100, disable_chunked_mm_input: true, ..config() };
    let mut harness = Harness::new(config);
    harness.add(with_images(0, 80, &[("image", 10, 60)]));
    harness.scheduler.set_token_budget(40);
    assert_eq!(harness.step(), tokens([(0, 10)]));
    assert_eq!(harness.encode(), ["image"]);
    assert_eq!(harness.step(), tokens([(0, 40)]));
    assert!(harness.encode().is_empty());
    assert_eq!(harness.step(), tokens([(0, 30)]));
}

/// The tokens of an image attend to each other, in a model that says so.
fn whole_items(max_num_batched_tokens: usize) -> SchedulerConfig {
    SchedulerConfig { max_num_batched_tokens, largest_whole_item: 60, ..config() }
}

#[test]
fn a_step_has_all_tokens_of_an_image_that_attend_to_each_other_or_none() {
    let mut harness = Harness::new(whole_items(64));
    harness.add(with_images(0, 150, &[("a", 10, 60), ("b", 80, 60)]));
    assert_eq!(harness.step(), tokens([(0, 10)]));
    assert_eq!(harness.encode(), ["a"]);
    assert_eq!(harness.step(), tokens([(0, 64)]));
    assert_eq!(harness.step(), tokens([(0, 6)]));
    assert_eq!(harness.encode(), ["b"]);
    assert_eq!(harness.step(), tokens([(0, 64)]));
    assert_eq!(harness.step(), tokens([(0, 6)]));
    // Now both images are there: a step ends before the one that it has no room for.
    harness.add(with_images(1, 150, &[("a", 10, 60), ("b", 80, 60)]));
    assert_eq!(harness.step(), tokens([(0, 1), (1, 10)]));
    assert!(harness.encode().is_empty(), "they are still in memory");
    assert_eq!(harness.step(), tokens([(0, 1), (1, 63)]));
}

/// The limit on a prompt's tokens beside others, and a budget that was reduced, do not cut it.
#[test]
fn limits_do_not_cut_such_an_image() {
    let config = SchedulerConfig { long_prefill_token_threshold: 8, ..whole_items(64) };
    let mut harness = Harness::new(config);
    harness.scheduler.set_token_budget(5);
    assert_eq!(harness.scheduler.token_budget(), 60);
    harness.add(request(1, own_prompt(1, 5)));
    assert_eq!(harness.step(), tokens([(1, 5)]));
    harness.add(with_images(2, 100, &[("a", 3, 60)]));
    assert_eq!(harness.step(), tokens([(1, 1), (2, 3)]));
    assert_eq!(harness.encode(), ["a"]);
    // Its 60 tokens and another do not fit.
    assert_eq!(harness.step(), tokens([(1, 1)]));
    harness.scheduler.set_token_budget(64);
    assert_eq!(harness.step(), tokens([(1, 1), (2, 60)]));
}

/// The first tokens of a hit were computed with all others of the image.
#[test]
fn a_hit_within_such_an_image_goes_on_to_its_end() {
    let mut harness = Harness::new(whole_items(64));
    for id in 0..2 {
        let image = MultimodalFeature::for_test("a", 10, 60);
        let prompt = own_prompt(9, 70).into_iter().chain([id as u32; 20]);
        harness.add(EngineRequest { mm_features: vec![image].into(), ..request(id, prompt) });
        if id == 0 {
            assert_eq!(harness.step(), tokens([(0, 10)]));
            harness.encode();
            assert_eq!(harness.step(), tokens([(0, 64)]));
            assert_eq!(harness.step(), tokens([(0, 16)]));
        }
    }
    assert_eq!(harness.step(), tokens([(0, 1)]));
    assert!(harness.encode().is_empty(), "it is still in memory");
    // Four blocks of 16 tokens are hits.
    assert_eq!(harness.step(), tokens([(0, 1), (1, 26)]));
}

/// All tokens of a prompt attend to each other. The first image spans it, and another is encoded
/// later.
#[test]
fn a_prompt_that_attends_to_itself_waits_for_all_its_images() {
    let limits = SchedulerConfig { long_prefill_token_threshold: 8, ..whole_items(64) };
    let mut harness = Harness::new(SchedulerConfig { encoder_budget: 20, ..limits });
    let first = MultimodalFeature { num_embeds: 20, ..MultimodalFeature::for_test("a", 0, 50) };
    let mm_features = vec![first, MultimodalFeature::for_test("b", 25, 20)].into();
    harness.add(EngineRequest { mm_features, ..request(0, own_prompt(0, 50)) });
    for image in ["a", "b"] {
        assert_eq!(harness.step(), tokens([]));
        assert_eq!(harness.encode(), [image]);
    }
    assert_eq!(harness.step(), tokens([(0, 50)]));
    assert_eq!(harness.step(), tokens([(0, 1)]));
}

#[test]
fn an_image_that_two_requests_share_is_encoded_once() {
    let mut harness = Harness::new(config());
    harness.add(with_images(0, 300, &[("shared", 100, 200)]));
    harness.add(with_images(1, 300, &[("shared", 100, 200)]));
    assert_eq!(harness.step(), tokens([(0, 100), (1, 100)]));
    assert_eq!(harness.encode(), ["shared"]);
    assert_eq!(harness.step(), tokens([(0, 200), (1, 200)]));
    assert!(harness.encode().is_empty());
    assert_eq!(harness.encoder_cache.view().num_freeable, 1024, "no request needs it now");
    harness.add(with_images(2, 300, &[("shared", 0, 200)]));
    assert_eq!(harness.step(), tokens([(0, 1), (1, 1)]));
    assert!(harness.encode().is_empty(), "it is still in memory");
    assert_eq!(harness.step(), tokens([(0, 1), (1, 1), (2, 300)]));
}

#[test]
fn an_image_that_can_never_be_encoded_ends_its_request_alone() {
    let mut harness = Harness::new(config());
    harness.add(with_image(0, 2000, 0, 1500));
    harness.add(request(1, own_prompt(1, 10)));
    assert_eq!(harness.step(), tokens([(1, 10)]));
    assert_eq!(harness.last.ended[0].finish, Some(FinishReason::Error(Failure::Unservable)));
}

#[test]
fn a_broken_image_ends_the_requests_that_need_it() {
    let mut harness = Harness::new(config());
    harness.add(with_images(0, 100, &[("broken", 50, 20)]));
    harness.add(with_images(1, 100, &[("broken", 0, 20)]));
    harness.add(with_images(2, 100, &[("good", 50, 20)]));
    assert_eq!(harness.step(), tokens([(0, 50), (2, 50)]));
    let broken = Failure::Encoder("no image".to_owned());
    let ends = |item: &str| if item == "good" { Ok(()) } else { Err(broken.clone()) };
    assert_eq!(harness.encode_with(ends), ["broken", "good"]);
    let reason = Some(FinishReason::Error(broken.clone()));
    assert_eq!([0, 1].map(|id| harness.finish_reason(id)), [reason.clone(), reason]);
    assert_eq!(harness.step(), tokens([(2, 50)]));
    harness.encode();
    assert_eq!(harness.encoder_cache.view().num_freeable, 1024);
}

/// Small images that arrive later do not keep a large one out, although they would find room.
#[test]
fn a_large_image_is_not_starved_by_small_ones() {
    let mut harness = Harness::new(config());
    harness.add(with_images(0, 700, &[("first", 0, 600)]));
    harness.add(with_images(1, 700, &[("large", 0, 600)]));
    harness.add(with_images(2, 200, &[("small", 0, 100)]));
    assert_eq!(harness.step(), tokens([]));
    assert_eq!(harness.encode(), ["first"]);
    assert_eq!(harness.step(), tokens([(0, 700)]));
    assert_eq!(harness.encode(), ["large", "small"]);
    assert_eq!(harness.step(), tokens([(0, 1), (1, 700), (2, 200)]));
}

/// Large images that keep coming fill the cache, one after the other. Small ones that wait among
/// them are encoded in the order of arrival, and text is served in each step.
#[test]
fn small_images_are_not_starved_by_large_ones_that_keep_coming() {
    let config = SchedulerConfig { max_num_batched_tokens: 4096, ..config() };
    let mut harness = Harness::new(config);
    let is_small = |id: u64| id % 4 == 3;
    let add = |harness: &mut Harness, id: u64| match is_small(id) {
        true => harness.add(with_image(id, 60, 0, 50)),
        // Each takes the whole cache.
        false => harness.add(with_image(id, 1_100, 0, 1_024)),
    };
    let text = 1_000;
    harness.add(request(text, own_prompt(text, 50)));
    let (mut next, mut order) = (0, Vec::new());
    for step in 0..120 {
        if step % 3 == 0 && next < 32 {
            add(&mut harness, next);
            next += 1;
        }
        let scheduled = harness.step();
        assert!(scheduled.contains_key(&text), "step {step}: text waits for no image");
        // A request leaves with its first token, and its image is no longer needed.
        let served: Vec<u64> =
            scheduled.keys().copied().filter(|id| *id != text && !order.contains(id)).collect();
        harness.finish(&served);
        order.extend(served);
        harness.encode();
    }
    assert_eq!(order.len(), 32, "{order:?}");
    for (place, id) in order.iter().enumerate().filter(|(_, id)| is_small(**id)) {
        assert!(place.abs_diff(*id as usize) <= 2, "in the order of arrival: {order:?}");
    }
}

/// The images of requests that wait give way to those of a request that runs. Neither could go on
/// otherwise: the one that waits lacks the blocks that the other holds.
#[test]
fn a_waiting_request_gives_up_its_image_for_a_running_one() {
    let config = SchedulerConfig { num_blocks: 61, reserve_full_isl: false, ..config() };
    let mut harness = Harness::new(config);
    let first = MultimodalFeature::for_test("first", 100, 600);
    let second = MultimodalFeature::for_test("second", 750, 50);
    let second = MultimodalFeature { num_embeds: 500, ..second };
    let mm_features = [first, second].into();
    harness.add(EngineRequest { mm_features, ..request(0, own_prompt(0, 850)) });
    harness.add(with_images(1, 700, &[("other", 0, 600)]));
    assert_eq!(harness.step(), tokens([(0, 100)]));
    assert_eq!(harness.encode(), ["first"]);
    assert_eq!(harness.step(), tokens([(0, 650)]));
    assert_eq!(harness.encode(), ["other"]);
    assert_eq!(harness.step(), tokens([]));
    assert!(harness.encode().is_empty(), "there is no room beside the other");
    assert_eq!(harness.encode(), ["second"]);
    assert_eq!(harness.step(), tokens([(0, 100)]));
}

#[test]
fn all_tokens_attend_to_an_item_until_the_request_ends() {
    let mut harness = Harness::new(config());
    let sound = MultimodalFeature { num_embeds: 900, ..MultimodalFeature::for_test("sound", 0, 0) };
    harness.add(EngineRequest { mm_features: [sound].into(), ..request(0, own_prompt(0, 4)) });
    assert_eq!(harness.step(), tokens([]));
    assert_eq!(harness.encode(), ["sound"]);
    assert_eq!(harness.step(), tokens([(0, 4)]));
    assert_eq!(harness.step(), tokens([(0, 1)]));
    harness.encode();
    assert_eq!(harness.encoder_cache.view().num_freeable, 124);
    harness.finish(&[0]);
    harness.encode();
    assert_eq!(harness.encoder_cache.view().num_freeable, 1024);
}

/// A list that was lost is sent again, and an old answer changes nothing.
#[test]
fn lost_lists_and_late_answers_do_no_harm() {
    let mut harness = Harness::new(config());
    harness.add(with_image(0, 300, 0, 200));
    assert_eq!(harness.step(), tokens([]));
    let lost = harness.scheduler.take_encoder_needs();
    assert!(lost.is_some() && harness.scheduler.take_encoder_needs().is_none());
    let again = harness.scheduler.unanswered_encoder_needs();
    assert_eq!(again, lost);
    let early = harness.encoder_cache.answer();
    assert!(harness.encoder_cache.set_needs(&again.unwrap()));
    assert_eq!(harness.encode(), ["image0"]);
    assert!(harness.scheduler.encoded(early).is_empty());
    assert_eq!(harness.step(), tokens([(0, 300)]));
}

/// Two running requests reach an image that they share in the same step. One of them is then
/// preempted for a third.
#[test]
fn a_shared_image_stays_for_the_one_that_stays() {
    let mut harness = Harness::new(SchedulerConfig {
        policy: SchedulingPolicy::Priority,
        max_num_batched_tokens: 96,
        long_prefill_token_threshold: 32,
        num_blocks: 18,
        reserve_full_isl: false,
        enable_prefix_caching: false,
        ..config()
    });
    let with_shared_image = |id, offset, priority| EngineRequest {
        priority,
        ..with_images(id, 200, &[("shared", offset, 32)])
    };
    harness.add(with_shared_image(0, 128, 9));
    assert_eq!(harness.step(), tokens([(0, 96)]));
    harness.add(with_shared_image(1, 32, 0));
    harness.add(EngineRequest { priority: 1, ..request(2, own_prompt(2, 200)) });
    assert_eq!(harness.step(), tokens([(0, 32), (1, 32), (2, 32)]));
    assert!(harness.encode().is_empty());
    assert_eq!(harness.step(), tokens([(2, 32)]));
    assert_eq!(harness.encode(), ["shared"]);
    assert_eq!(harness.step(), tokens([(1, 32), (2, 32)]));
}
