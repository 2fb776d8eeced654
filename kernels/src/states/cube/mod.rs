//! Recurrences over states on a GPU. The state of a sequence stays in registers while its tokens
//! pass, and is written to the page of each block at the block's end.
//!
//! A launch has a cube, or units, for each sequence and part of its state. A sequence that begins
//! at a state which another one writes in the same step is computed by a later launch.

pub(crate) mod matrix;
mod plan;
#[cfg(test)]
mod tests;
mod tokens;

use cubecl::client::Client;
use cubecl::server::Handle;

use crate::cube::{StepInput, upload_once};
use crate::kv_cache::KvLayer;
use crate::kv_cache::cube::{CubeKv, on_gpu};
use crate::paged_attention::AttentionMetadata;
pub(crate) use plan::{StatePlan, StatesOf};
pub(crate) use tokens::{StateLayout, StateLayoutLaunch, Tokens};

/// A step's states in one layer, and the order of its sequences.
pub(crate) struct States<'a> {
    kv: &'a CubeKv,
    plan: StatePlan,
    /// The words of the plan on the device.
    words: Handle,
    /// The place of the recurrence's numbers in a state.
    state_at: usize,
}

impl<'a> States<'a> {
    /// Returns the states of the sequences of `meta` in `layer`. A recurrence has `state_len`
    /// numbers of them, from `state_at` on.
    ///
    /// # Panics
    /// If the layer is on the CPU or has no room for the state, or `meta` has a block that is not
    /// in it.
    pub(crate) fn new(
        client: &Client,
        device: &cubecl::Device,
        layer: &'a KvLayer,
        meta: &AttentionMetadata,
        [state_at, state_len]: [usize; 2],
        operation: &str,
    ) -> Self {
        let kv = on_gpu(layer, operation);
        let room = kv.shape.state_len;
        assert!(
            state_at + state_len <= room,
            "{operation}: the layer has states of {room} numbers"
        );
        let of = StatesOf::new(&kv.shape, layer.group());
        let plan = of.plan(meta);
        let words = upload_once(client, device, StepInput::States(of), &plan.words);
        Self { kv, plan, words, state_at }
    }

    /// Returns the arena, as numbers f32.
    pub(crate) fn pages(&self) -> &Handle {
        &self.kv.arena
    }

    /// Returns the plan on the device.
    pub(crate) fn plan(&self) -> &Handle {
        &self.words
    }

    /// Calls `launch` for each launch that the step needs, with its number of sequences.
    pub(crate) fn launches(&self, mut launch: impl FnMut(usize, StateLayoutLaunch)) {
        let mut first = 0;
        for &count in self.plan.waves.iter().filter(|count| **count > 0) {
            let (stride, at) = (self.kv.state_stride(), self.state_at);
            let block_size = self.kv.shape.block_size;
            launch(count, StateLayoutLaunch::new(first, block_size, stride, at));
            first += count;
        }
    }
}
