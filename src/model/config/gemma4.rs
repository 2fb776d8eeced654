//! The parts of Gemma 4's decoder around its layers: HF `Gemma4TextConfig`.

/// Embeddings of each layer, in models that have them. Each layer has a factor of its output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gemma4Config {
    /// The embeddings of each layer.
    pub per_layer: Option<PerLayerConfig>,
}

/// Embeddings that each layer has of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PerLayerConfig {
    /// The width of a layer's embeddings.
    pub width: usize,
    /// Tokens with embeddings of each layer. Other tokens have those of token 0.
    pub vocab: usize,
}
