//! A view of the engine from outside: the KV cache as a map, the steps of each request, how long
//! clients waited. These types are only for display: no decision depends on them.

pub mod block_map;
pub mod latencies;
pub mod timelines;

pub use self::{
    block_map::{BlockMap, BlockRun, BlockState},
    latencies::Latencies,
    timelines::{Segment, StepKind, Timeline, Timelines},
};
