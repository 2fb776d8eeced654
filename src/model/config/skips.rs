//! Connections that skip layers.

/// Before a layer, the residual stream becomes `weight · earlier + (1 - weight) · stream`. The
/// earlier one is the stream before a layer, before that is mixed itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SkipConnection {
    /// The layer.
    pub(crate) layer: usize,
    /// The earlier layer, or the layer itself, which changes nothing.
    pub(crate) from: usize,
    /// The part of the earlier stream.
    pub(crate) weight: f32,
}
