//! test_reset_prefix_cache.

use crate::house::{House, request, roomy, tokens};

#[test]
fn nothing_is_reset_while_requests_hold_blocks() {
    let mut house = House::new(roomy());
    house.add(request(0, 0..48));
    house.step();
    house.scheduler.reset_prefix_cache(false);
    house.step();
    assert_eq!(house.last.prefix_cache_reset, Some(false));
    house.finish(&[0]);
    house.scheduler.reset_prefix_cache(false);
    house.add(request(1, 0..48));
    house.step();
    assert_eq!(house.last.prefix_cache_reset, Some(true));
    assert_eq!(house.hits(1), 0);
    house.step();
    assert_eq!(house.last.prefix_cache_reset, None);
}

#[test]
fn running_requests_are_preempted_for_it_and_come_back_in_order() {
    let mut house = House::new(roomy());
    house.add_all(&[20, 30, 40]);
    house.step();
    house.scheduler.reset_prefix_cache(true);
    assert_eq!(house.step(), tokens([(0, 21), (1, 31), (2, 41)]));
    assert_eq!(house.last.prefix_cache_reset, Some(true));
    assert_eq!(house.running(), [0, 1, 2]);
    assert_eq!(house.last.output.preempted.len(), 3);
    assert_eq!(house.step(), tokens([(0, 1), (1, 1), (2, 1)]));
    assert_eq!(house.output(1).len(), 3, "no token was lost");
}
