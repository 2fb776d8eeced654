//! Heads of an odd width, which end with a zero in the KV cache. It changes no score and no sum.

use burn::tensor::Tensor;

use crate::model::config::AttentionConfig;

/// The elements of a head before and after its zero, which heads of an even width do not get.
#[derive(Debug, Clone, Copy)]
pub(super) struct Padding {
    head_dim: usize,
    cached: usize,
}

impl Padding {
    pub(super) fn of(attention: &AttentionConfig) -> Self {
        Self { head_dim: attention.head_dim, cached: attention.cached_head_dim() }
    }

    /// Returns whether heads get a zero.
    pub(super) fn adds(self) -> bool {
        self.head_dim != self.cached
    }

    /// Returns `x`, `[num_tokens, heads * head_dim]`, with the zero of each head.
    pub(super) fn added(self, x: Tensor<2>) -> Tensor<2> {
        let Self { head_dim, cached } = self;
        if head_dim == cached {
            return x;
        }
        let ([tokens, width], device) = (x.dims(), x.device());
        let num_heads = width / head_dim;
        let rows = tokens * num_heads;
        let zeros = Tensor::zeros([rows, cached - head_dim], &device);
        let padded = Tensor::cat(vec![x.reshape([rows, head_dim]), zeros], 1);
        padded.reshape([tokens, num_heads * cached])
    }

    /// Returns `x`, `[num_tokens, heads * cached]`, without the zero of each head.
    pub(super) fn removed(self, x: Tensor<2>) -> Tensor<2> {
        let Self { head_dim, cached } = self;
        if head_dim == cached {
            return x;
        }
        let [tokens, width] = x.dims();
        let num_heads = width / cached;
        let heads = x.reshape([tokens * num_heads, cached]).narrow(1, 0, head_dim);
        heads.reshape([tokens, num_heads * head_dim])
    }
}
