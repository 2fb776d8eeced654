//! Seeds that failed once, each with its cause. They stay here.

/// A seed that failed once.
#[derive(Debug, Clone, Copy)]
pub struct Regression {
    /// The seed.
    pub seed: u64,
    /// The cause of the failure.
    pub why: &'static str,
    /// Whether it failed in the first version of the world, which had one process.
    pub is_first_world: bool,
}

const fn failed(seed: u64, why: &'static str) -> Regression {
    Regression { seed, why, is_first_world: true }
}

const fn failed_with_processes(seed: u64, why: &'static str) -> Regression {
    Regression { seed, why, is_first_world: false }
}

/// All regressions.
pub const REGRESSIONS: &[Regression] = &[
    failed(7, "a dead worker's device wrote to blocks that other requests already had"),
    failed(61, "a dead worker's device wrote to blocks that other requests already had"),
    failed(131, "the message that a pause was over was lost, and no actor asked again"),
    failed(2_114, "an entry was forgotten though the message of its end was late"),
    failed(4_026, "an entry was forgotten though the message of its end was late"),
    failed(130_722, "the scheduler stopped at a gap, and its report was lost"),
    failed(166_303, "the scheduler stopped at a gap, and its report was lost"),
    failed(196_875, "the scheduler stopped at a gap, and its report was lost"),
    failed(273_084, "the scheduler stopped at a gap, and its report was lost"),
    failed(278_447, "the scheduler stopped at a gap, and its report was lost"),
    failed(279_519, "the scheduler stopped at a gap, and its report was lost"),
    failed(435_528, "an abandoned thread took a lease on the KV cache after it was reclaimed"),
    failed(160_417, "a step of many tokens after steps of few was granted far too much time"),
    failed(182_211, "a step of many tokens after steps of few was granted far too much time"),
    failed(431, "a tail was kept for a request that ended while it waited for its grammar"),
    failed(291_226, "a grammar that took too long was accepted when no actor checked in time"),
    failed(293_339, "a grammar that took too long was accepted when no actor checked in time"),
    failed(346_030, "a grammar that took too long was accepted when no actor checked in time"),
    failed(480_702, "a grammar that took too long was accepted when no actor checked in time"),
    failed(505_242, "a grammar that took too long was accepted when no actor checked in time"),
    failed(912_074, "a request was convicted before its first token's commit had arrived"),
    failed_with_processes(77, "the message that a process's core had started was lost"),
    failed_with_processes(15_973, "the end of a pause was lost that began after the last look"),
];
