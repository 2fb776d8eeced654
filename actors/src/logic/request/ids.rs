//! Small values that identify things.

use serde::{Deserialize, Serialize};

/// A token of the model's vocabulary.
pub type TokenId = u32;

/// A KV cache block: `0..num_blocks`; block 0 is the null block.
pub type BlockId = u32;

/// Time since the engine started, in microseconds. Logic never reads a clock: `now` is an argument.
pub type Micros = u64;

/// Id of one output being generated: one choice of one prompt. Assigned in order of acceptance.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct RequestId(pub u64);

/// The place of an engine among those of one front. It is 0 where there is one.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct EngineIndex(pub usize);

/// The generation of the core (scheduler, KV cache manager, worker). It grows whenever one of them
/// is replaced, so that messages of a dead incarnation are recognised as stale. No two engines have
/// the same epoch.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Epoch(pub u64);

/// The scheduler's step counter. It starts at 1, counts empty steps, and is never reset.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Step(pub u64);

impl std::fmt::Display for RequestId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl std::fmt::Display for EngineIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl Epoch {
    /// Returns the epoch after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}
