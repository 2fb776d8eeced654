//! The operator's orders.

use std::time::Duration;

use super::Workload;
use crate::{
    logic::{request::ids::EngineIndex, scheduler::PauseState},
    sim::rng::Rng,
};

/// An order of the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Sets which requests are paused.
    Pause(PauseState),
    /// Resets the prefix cache. With `true`, it preempts requests first.
    ResetPrefixCache(bool),
    /// Reads the status.
    Status,
    /// Lets an engine have no new requests. With `true`, its requests go on in others.
    Drain(EngineIndex, bool),
    /// Lets an engine have new requests again.
    Undrain(EngineIndex),
}

impl Workload {
    /// Returns whether the operator pauses requests.
    #[must_use]
    pub fn has_pauses(&self) -> bool {
        self.orders.iter().any(|(_, order)| matches!(order, Order::Pause(_)))
    }
}

/// Draws the orders of a run, in order of their times.
pub(super) fn orders(rng: &mut Rng) -> Vec<(Duration, Order)> {
    let mut orders = Vec::new();
    if rng.percent(15) {
        let pause = rng.pick(&[PauseState::PausedNew, PauseState::PausedAll]);
        let start = Duration::from_millis(rng.below(60));
        let length = Duration::from_millis(rng.within(1, 2_000) as u64);
        orders.push((start, Order::Pause(pause)));
        orders.push((start + length, Order::Pause(PauseState::Unpaused)));
    }
    if rng.percent(15) {
        let at = Duration::from_millis(rng.below(100));
        orders.push((at, Order::ResetPrefixCache(rng.percent(50))));
    }
    if rng.percent(5) {
        orders.push((Duration::from_millis(rng.below(50)), Order::Status));
    }
    orders.sort_by_key(|(at, _)| *at);
    orders
}
