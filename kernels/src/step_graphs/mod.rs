//! Steps of one token a sequence, recorded on a GPU and replayed: what a step launches does not change
//! from one to the next, so all but the copies of its inputs is said once (vLLM's CUDA graphs).
//!
//! A recording is for a number of rows and a form of attention's plans. Steps of fewer sequences are
//! filled up with ones of a single token, which writes to block 0: it must be nobody's, as vLLM's null
//! block is.
//!
//! Recordings hold the memory of their activations, within a limit: those that were not used for longest
//! are dropped. A step that takes much memory for weights laid out anew, for tensor cores, is not recorded.

#[cfg(feature = "gpu")]
mod capture;
#[cfg(feature = "gpu")]
mod cube;
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

/// The recordings of a model's steps over one KV cache. On the CPU there are none, and steps are
/// computed as they come.
#[derive(Debug, Default)]
pub struct StepGraphs {
    #[cfg(feature = "gpu")]
    gpu: Option<cube::CubeGraphs>,
}

/// What became of the steps so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StepGraphStats {
    /// Steps that were recorded.
    pub recorded: u64,
    /// Steps that were replayed.
    pub replayed: u64,
    /// Recordings that there are.
    pub kept: usize,
    /// Bytes of the device's memory that they hold.
    pub bytes: u64,
}

impl StepGraphs {
    /// None recorded so far, for steps on `device`; they may hold `bytes_max` bytes of its memory
    /// together.
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

    /// The hidden states of a step, `[rows, hidden]`, the batch's tokens first, as `forward` computes
    /// them of token ids and their metadata: it must launch the same for every batch of one form, read
    /// nothing back, and always be the same function; it may be called on another thread. Token ids
    /// and metadata may have been filled up afterwards, and `rows` is their number of tokens then.
    ///
    /// Which rows share the step decides nothing that they do not decide without a recording.
    pub fn run(
        &mut self,
        token_ids: &mut Vec<u32>,
        meta: &mut AttentionMetadata,
        mut forward: impl FnMut(&[u32], &AttentionMetadata) -> Tensor<2> + Send,
    ) -> Tensor<2> {
        #[cfg(feature = "gpu")]
        if let Some(gpu) = &mut self.gpu
            && let Some(rows) = padding::rows_of(meta)
            && gpu.takes(rows)
        {
            padding::fill_up(token_ids, meta, rows);
            return gpu.run(token_ids, meta, &mut forward);
        }
        forward(token_ids, meta)
    }

    /// Drops all recordings, and with them the memory that they hold. Steps are recorded again as they
    /// come.
    pub fn clear(&mut self) {
        #[cfg(feature = "gpu")]
        if let Some(gpu) = &mut self.gpu {
            gpu.clear();
        }
    }

    /// What became of the steps so far.
    #[must_use]
    pub fn stats(&self) -> StepGraphStats {
        #[cfg(feature = "gpu")]
        return self.gpu.as_ref().map(cube::CubeGraphs::stats).unwrap_or_default();
        #[cfg(not(feature = "gpu"))]
        StepGraphStats::default()
    }

    /// Why no more steps are recorded; told once.
    pub fn take_failure(&mut self) -> Option<String> {
        #[cfg(feature = "gpu")]
        return self.gpu.as_mut()?.take_failure();
        #[cfg(not(feature = "gpu"))]
        None
    }
}
