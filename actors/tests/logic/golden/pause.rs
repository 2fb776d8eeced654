//! Pauses, and prefills that are admitted only every few steps.

use playhouse_actors::logic::scheduler::{PauseState, SchedulerConfig, WaitingReason};

use crate::harness::{Harness, own_prompt, request, roomy, tokens};

#[test]
fn paused_new_keeps_running_requests_going() {
    let mut harness = Harness::new(roomy());
    harness.add_all(&[10]);
    harness.step();
    harness.scheduler.set_pause(PauseState::PausedNew);
    harness.add(request(1, own_prompt(1, 10)));
    assert_eq!(harness.step(), tokens([(0, 1)]));
    assert_eq!(harness.scheduler.waiting_reasons()[0].1, WaitingReason::Paused);
    harness.scheduler.set_pause(PauseState::Unpaused);
    assert_eq!(harness.step(), tokens([(0, 1), (1, 10)]));
}

#[test]
fn paused_all_schedules_nothing() {
    let mut harness = Harness::new(roomy());
    harness.add_all(&[10, 10]);
    harness.step();
    harness.scheduler.set_pause(PauseState::PausedAll);
    assert_eq!(harness.step(), tokens([]));
    harness.scheduler.set_pause(PauseState::Unpaused);
    assert_eq!(harness.step(), tokens([(0, 1), (1, 1)]));
}

#[test]
fn a_prefill_interval_of_three_admits_on_the_first_and_the_fourth_step() {
    let mut harness = Harness::new(SchedulerConfig { prefill_schedule_interval: 3, ..roomy() });
    harness.add_all(&[10]);
    assert_eq!(harness.step(), tokens([(0, 10)]));
    harness.add(request(1, own_prompt(1, 10)));
    assert_eq!(harness.step(), tokens([(0, 1)]));
    harness.add(request(2, own_prompt(2, 10)));
    assert_eq!(harness.step(), tokens([(0, 1)]));
    assert_eq!(harness.scheduler.stats().waiting_reason, WaitingReason::PrefillInterval);
    assert_eq!(harness.step(), tokens([(0, 1), (1, 10), (2, 10)]));
}

#[test]
fn an_idle_engine_does_not_wait_for_the_interval() {
    let mut harness = Harness::new(SchedulerConfig { prefill_schedule_interval: 3, ..roomy() });
    harness.add_all(&[10]);
    harness.step();
    harness.finish(&[0]);
    harness.add(request(1, own_prompt(1, 10)));
    assert_eq!(harness.step(), tokens([(1, 10)]));
}
