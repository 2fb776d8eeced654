//! The parts of Gemma 3n's decoder around its layers: HF `Gemma3nTextConfig`.

use super::PerLayerConfig;

/// Several residual streams (AltUp: <https://arxiv.org/abs/2301.13310>), a second residual branch
/// (LAuReL: <https://arxiv.org/abs/2411.07501>), and embeddings of each layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AltUpConfig {
    /// Residual streams.
    pub num_inputs: usize,
    /// The stream that layers read.
    pub active: usize,
    /// Whether the active stream has a factor for each element before the embeddings of the layer.
    pub scales_output: bool,
    /// The inner width of the second residual branch.
    pub laurel_rank: usize,
    /// Whether the projections between streams are one tensor, `[num_inputs - 1, hidden, hidden]`,
    /// as in GGUF files.
    pub is_stacked: bool,
    /// The embeddings of each layer.
    pub per_layer: PerLayerConfig,
}
