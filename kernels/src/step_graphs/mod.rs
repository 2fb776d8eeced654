//! Steps of one token a sequence, recorded on a GPU and replayed. The launches of a step do not
//! change from one step to the next. So everything except the copies of its inputs is submitted
//! only once (vLLM's CUDA graphs).
//!
//! A recording is for a number of rows and a form of attention's plans. Steps of fewer sequences
//! are padded with sequences of a single token, which is written to block 0. As vLLM's null block,
//! that block must belong to no request. The runs that make a recording write there, too. So a
//! state passes the tokens of a step once, whether the step is recorded or not.
//!
//! Recordings hold the memory of their activations, within a limit. Beyond it the least recently
//! used are dropped. A step that takes much memory for weights laid out anew, for tensor cores, is
//! not recorded.

#[cfg(feature = "gpu")]
mod capture;
#[cfg(feature = "gpu")]
mod cube;
#[cfg(test)]
#[cfg(feature = "gpu")]
mod cube_state_tests;
#[cfg(test)]
#[cfg(feature = "gpu")]
mod cube_tests;
#[cfg(feature = "gpu")]
mod kept;
#[cfg(feature = "gpu")]
mod padding;
#[cfg(feature = "gpu")]
mod recorded;

use burn::tensor::{Device, Tensor};

use crate::AttentionMetadata;
#[cfg(feature = "gpu")]
use crate::device::Place;

/// The recordings of a model's steps over one KV cache. The CPU has none, and there every step is
/// computed directly.
#[derive(Debug, Default)]
pub struct StepGraphs {
    #[cfg(feature = "gpu")]
    gpu: Option<cube::CubeGraphs>,
}

/// Counts of the steps so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StepGraphStats {
    /// Steps that were recorded.
    pub recorded: u64,
    /// Steps that were replayed.
    pub replayed: u64,
    /// Number of recordings that are kept now.
    pub kept: usize,
    /// Bytes of the device's memory that they hold.
    pub bytes: u64,
}

impl StepGraphs {
    /// Makes an empty set for steps on `device`. Its recordings may hold `bytes_max` bytes of the
    /// device's memory together.
    #[must_use]
    #[cfg_attr(not(feature = "gpu"), expect(unused_variables, reason = "no GPUs"))]
    pub fn new(device: &Device, bytes_max: u64) -> Self {
        Self {
            #[cfg(feature = "gpu")]
            gpu: match Place::of(device, "step graphs") {
                Ok(Place::Cube(device)) => Some(cube::CubeGraphs::new(device.client(), bytes_max)),
                _ => None,
            },
        }
    }

    /// Returns the hidden states of a step, `[rows, hidden]`, the batch's tokens first. `metas` has
    /// one entry for each group of layers, with the same sequences. `forward` computes the states
    /// from token ids and their metadata. It must launch the same kernels for every batch of one
    /// form, copy nothing to the host, and always be the same function. It may be called on another
    /// thread, and again with all tokens in block 0. Token ids and metadata may be padded
    /// afterwards, and `rows` is then their number of tokens.
    ///
    /// The rows that share a step influence a result only where they also do without a recording.
    ///
    /// # Panics
    /// If a replay fails over layers with states. It may have changed them, so the step cannot be
    /// computed again.
    pub fn run(
        &mut self,
        token_ids: &mut Vec<u32>,
        metas: &mut [AttentionMetadata],
        mut forward: impl FnMut(&[u32], &[AttentionMetadata]) -> Tensor<2> + Send,
    ) -> Tensor<2> {
        #[cfg(feature = "gpu")]
        if let Some(gpu) = &mut self.gpu
            && let Some(rows) = metas.first().and_then(padding::rows_of)
            && gpu.takes(rows)
        {
            padding::fill_up(token_ids, metas, rows);
            return gpu.run(token_ids, metas, &mut forward);
        }
        forward(token_ids, metas)
    }

    /// Drops all recordings and frees their memory. Later steps are recorded again.
    pub fn clear(&mut self) {
        #[cfg(feature = "gpu")]
        if let Some(gpu) = &mut self.gpu {
            gpu.clear();
        }
    }

    /// Returns counts of the steps so far.
    #[must_use]
    pub fn stats(&self) -> StepGraphStats {
        #[cfg(feature = "gpu")]
        return self.gpu.as_ref().map(cube::CubeGraphs::stats).unwrap_or_default();
        #[cfg(not(feature = "gpu"))]
        StepGraphStats::default()
    }

    /// Returns the reason why no more steps are recorded, once.
    pub fn take_failure(&mut self) -> Option<String> {
        #[cfg(feature = "gpu")]
        return self.gpu.as_mut()?.take_failure();
        #[cfg(not(feature = "gpu"))]
        None
    }
}
