//! Requests that wait aside for an adapter: for its weights, or for room among the adapters in use.

use std::sync::Arc;

use playhouse_actors::logic::{
    request::{EngineRequest, FinishReason, failure::Failure, ids::RequestId, lora::LoraRequest},
    scheduler::{AdapterRoom, Resource, SchedulerConfig, WaitingReason},
};

use crate::harness::{Harness, own_prompt, request, roomy, tokens};

fn adapter(name: &str) -> Arc<LoraRequest> {
    Arc::new(LoraRequest::for_test(name))
}

fn adapted(id: u64, name: &str) -> EngineRequest {
    EngineRequest { lora: Some(adapter(name)), ..request(id, own_prompt(id, 10)) }
}

fn room(harness: &Harness, name: &str) -> AdapterRoom {
    harness.scheduler.adapter_room(&adapter(name), &harness.scheduler.adapters_in_use())
}

fn loaded(harness: &mut Harness, name: &str) {
    assert_eq!(room(harness, name), AdapterRoom::Free);
    assert_eq!(harness.scheduler.resolve(&Resource::Adapter(adapter(name)), Ok(())), []);
}

#[test]
fn others_pass_a_request_that_waits_for_its_adapter() {
    let mut harness = Harness::new(roomy());
    harness.add(adapted(0, "a"));
    harness.add(request(1, own_prompt(1, 10)));
    assert_eq!(harness.step(), tokens([(1, 10)]));
    let aside = (RequestId(0), WaitingReason::LoraAdapter);
    assert_eq!(harness.scheduler.waiting_reasons(), [aside]);
    loaded(&mut harness, "a");
    assert_eq!(harness.step(), tokens([(0, 10), (1, 1)]));
    assert_eq!(harness.scheduler.stats().adapters.running, ["a"]);
}

#[test]
fn as_many_adapters_as_may_be_are_in_use() {
    let mut harness = Harness::new(SchedulerConfig { max_loras: 2, ..roomy() });
    for (id, name) in [(0, "a"), (1, "b"), (2, "c"), (3, "a")] {
        harness.add(adapted(id, name));
    }
    loaded(&mut harness, "a");
    loaded(&mut harness, "b");
    assert_eq!(room(&harness, "c"), AdapterRoom::None);
    assert_eq!(harness.step(), tokens([(0, 10), (1, 10), (3, 10)]));
    harness.scheduler.take_wanted();
    harness.finish(&[1]);
    assert_eq!(harness.scheduler.take_wanted(), [Resource::Adapter(adapter("c"))]);
    loaded(&mut harness, "c");
    assert_eq!(harness.step(), tokens([(0, 1), (2, 10), (3, 1)]));
}

#[test]
fn a_request_that_waits_for_long_gets_its_turn() {
    let mut harness = Harness::new(roomy());
    harness.add(adapted(0, "a"));
    loaded(&mut harness, "a");
    harness.add(adapted(1, "b"));
    harness.step();
    harness.add(adapted(2, "a"));
    loaded(&mut harness, "a");
    harness.now = 1_500_000;
    harness.step();
    harness.add(adapted(3, "a"));
    assert_eq!(room(&harness, "a"), AdapterRoom::None, "others no longer join");
    harness.finish(&[0, 2]);
    loaded(&mut harness, "b");
    assert_eq!(harness.step(), tokens([(1, 10)]));
}

#[test]
fn a_broken_adapter_ends_its_requests_alone() {
    let mut harness = Harness::new(roomy());
    for (id, name) in [(0, "bad"), (1, "good"), (2, "bad")] {
        harness.add(adapted(id, name));
    }
    let failure = Failure::Adapter("no adapter".to_owned());
    let ended = harness.scheduler.resolve(&Resource::Adapter(adapter("bad")), Err(failure.clone()));
    let ends: Vec<_> =
        ended.iter().map(|commit| (commit.request.0, commit.finish.clone())).collect();
    let failed = Some(FinishReason::Error(failure));
    assert_eq!(ends, [(0, failed.clone()), (2, failed)]);
    loaded(&mut harness, "good");
    assert_eq!(harness.step(), tokens([(1, 10)]));
}
