//! The engine processes of a run.

use std::time::Duration;

use super::Order;
use crate::{logic::request::ids::EngineIndex, sim::rng::Rng};

/// Largest number of engines.
const ENGINES_MAX: usize = 3;

/// The engine processes of one run, without their faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EnginesPlan {
    /// Number of engines.
    pub count: usize,
    /// Whether each engine keeps a second process waiting.
    pub spares: [bool; ENGINES_MAX],
    /// Whether the KV cache outlives its process.
    pub keeps_kv_cache: bool,
    /// Number of bytes that a link holds in each direction. Few of them cut most frames.
    pub link_len: usize,
    /// Time that a process takes to load its model.
    pub load_time: Duration,
    /// Whether a prompt that the model cannot compute ends the process.
    pub is_poison_deadly: bool,
}

impl EnginesPlan {
    /// Gives one run in four engine processes.
    pub(super) fn of(rng: &mut Rng) -> Option<Self> {
        if !rng.percent(25) {
            return None;
        }
        let count = rng.pick(&[1, 1, 1, 2, 2, ENGINES_MAX]);
        let keeps_spare = rng.percent(20);
        let plan = Self {
            count,
            spares: [keeps_spare; ENGINES_MAX],
            keeps_kv_cache: rng.percent(65),
            link_len: rng.pick(&[96, 700, 16_384]),
            load_time: Duration::from_millis(rng.pick(&[1, 20, 150])),
            is_poison_deadly: rng.percent(50),
        };
        let spares = plan.spares.map(|keeps| if count > 1 { rng.percent(40) } else { keeps });
        Some(Self { spares, ..plan })
    }

    /// Lets the operator drain an engine in one run of several engines in four.
    pub(super) fn add_drains(&self, rng: &mut Rng, orders: &mut Vec<(Duration, Order)>) {
        if self.count < 2 || !rng.percent(25) {
            return;
        }
        let engine = EngineIndex(rng.below(self.count as u64) as usize);
        let start = Duration::from_millis(rng.below(80));
        let length = Duration::from_millis(rng.within(1, 300) as u64);
        orders.push((start, Order::Drain(engine, rng.percent(60))));
        orders.push((start + length, Order::Undrain(engine)));
        orders.sort_by_key(|(at, _)| *at);
    }
}
