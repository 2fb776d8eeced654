//! What somebody sees who looks at the engine from outside: the KV cache as a map, the steps of each
//! request, how long clients waited. Shapes for showing; nothing decides by them.

pub mod block_map;
pub mod latencies;
pub mod timelines;

pub use self::{
    block_map::{BlockMap, BlockRun, BlockState},
    latencies::Latencies,
    timelines::{Segment, StepKind, Timeline, Timelines},
};
