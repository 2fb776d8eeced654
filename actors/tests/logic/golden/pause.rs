//! Pausing, and admitting only every so many steps.

use playhouse_actors::logic::scheduler::{PauseState, SchedulerConfig, WaitingReason};

use crate::house::{House, own_prompt, request, roomy, tokens};

#[test]
fn paused_new_keeps_running_requests_going() {
    let mut house = House::new(roomy());
    house.add_all(&[10]);
    house.step();
    house.scheduler.set_pause(PauseState::PausedNew);
    house.add(request(1, own_prompt(1, 10)));
    assert_eq!(house.step(), tokens([(0, 1)]));
    assert_eq!(house.scheduler.waiting_reasons()[0].1, WaitingReason::Paused);
    house.scheduler.set_pause(PauseState::Unpaused);
    assert_eq!(house.step(), tokens([(0, 1), (1, 10)]));
}

#[test]
fn paused_all_schedules_nothing() {
    let mut house = House::new(roomy());
    house.add_all(&[10, 10]);
    house.step();
    house.scheduler.set_pause(PauseState::PausedAll);
    assert_eq!(house.step(), tokens([]));
    house.scheduler.set_pause(PauseState::Unpaused);
    assert_eq!(house.step(), tokens([(0, 1), (1, 1)]));
}

#[test]
fn a_prefill_interval_of_three_admits_on_the_first_and_the_fourth_step() {
    let mut house = House::new(SchedulerConfig { prefill_schedule_interval: 3, ..roomy() });
    house.add_all(&[10]);
    assert_eq!(house.step(), tokens([(0, 10)]));
    house.add(request(1, own_prompt(1, 10)));
    assert_eq!(house.step(), tokens([(0, 1)]));
    house.add(request(2, own_prompt(2, 10)));
    assert_eq!(house.step(), tokens([(0, 1)]));
    assert_eq!(house.scheduler.stats().waiting_reason, WaitingReason::PrefillInterval);
    assert_eq!(house.step(), tokens([(0, 1), (1, 10), (2, 10)]));
}

#[test]
fn an_idle_engine_does_not_wait_for_the_interval() {
    let mut house = House::new(SchedulerConfig { prefill_schedule_interval: 3, ..roomy() });
    house.add_all(&[10]);
    house.step();
    house.finish(&[0]);
    house.add(request(1, own_prompt(1, 10)));
    assert_eq!(house.step(), tokens([(1, 10)]));
}
