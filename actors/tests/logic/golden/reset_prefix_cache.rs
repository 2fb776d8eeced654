//! vLLM's test_reset_prefix_cache.

use crate::harness::{Harness, request, roomy, tokens};

#[test]
fn nothing_is_reset_while_requests_hold_blocks() {
    let mut harness = Harness::new(roomy());
    harness.add(request(0, 0..48));
    harness.step();
    harness.scheduler.reset_prefix_cache(false);
    harness.step();
    assert_eq!(harness.last.prefix_cache_reset, Some(false));
    harness.finish(&[0]);
    harness.scheduler.reset_prefix_cache(false);
    harness.add(request(1, 0..48));
    harness.step();
    assert_eq!(harness.last.prefix_cache_reset, Some(true));
    assert_eq!(harness.hits(1), 0);
    harness.step();
    assert_eq!(harness.last.prefix_cache_reset, None);
}

#[test]
fn running_requests_are_preempted_for_it_and_come_back_in_order() {
    let mut harness = Harness::new(roomy());
    harness.add_all(&[20, 30, 40]);
    harness.step();
    harness.scheduler.reset_prefix_cache(true);
    assert_eq!(harness.step(), tokens([(0, 21), (1, 31), (2, 41)]));
    assert_eq!(harness.last.prefix_cache_reset, Some(true));
    assert_eq!(harness.running(), [0, 1, 2]);
    assert_eq!(harness.last.output.preempted.len(), 3);
    assert_eq!(harness.step(), tokens([(0, 1), (1, 1), (2, 1)]));
    assert_eq!(harness.output(1).len(), 3, "no token was lost");
}
