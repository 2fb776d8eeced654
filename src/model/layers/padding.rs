//! The heads of the KV cache where they differ from those of a layer.
//!
//! A head that is narrower than those of the cache ends with zeros there: they change no score and
//! no sum. Where the cache has more heads, each key and value is there several times, so that each
//! query still finds its own.

use burn::tensor::Tensor;

use crate::model::config::AttentionConfig;

/// The heads of a layer, and those of the KV cache.
#[derive(Debug, Clone, Copy)]
pub(super) struct Padding {
    head_dim: usize,
    /// Elements of a head in the cache.
    cached: usize,
    /// The heads of the cache for each head of keys.
    copies: usize,
}

impl Padding {
    pub(super) fn of(attention: &AttentionConfig) -> Self {
        let copies = attention.num_cached_heads() / attention.num_kv_heads.max(1);
        Self { head_dim: attention.head_dim, cached: attention.cached_head_dim(), copies }
    }

    /// Returns the zeros that make values as wide as heads, if they are narrower.
    pub(super) fn of_values(attention: &AttentionConfig) -> Option<Self> {
        let cached = attention.head_dim;
        attention.value_dim.map(|head_dim| Self { head_dim, cached, copies: 1 })
    }

    /// Returns whether the heads of the cache differ from those of the layer.
    pub(super) fn adds(self) -> bool {
        self.head_dim != self.cached || self.copies > 1
    }

    /// Returns `x`, `[num_tokens, heads * head_dim]`, with the zeros of each head.
    pub(super) fn added(self, x: Tensor<2>) -> Tensor<2> {
        let Self { head_dim, cached, .. } = self;
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

    /// Returns keys or values `x`, `[num_tokens, num_kv_heads * head_dim]`, as the cache has them:
    /// with the zeros of each head, and each head `copies` times.
    pub(super) fn of_cache(self, x: Tensor<2>) -> Tensor<2> {
        let Self { head_dim, cached, copies } = self;
        let ([tokens, width], x) = (x.dims(), self.added(x));
        if copies == 1 {
            return x;
        }
        let num_heads = width / head_dim;
        let x = x.reshape([tokens * num_heads, cached]);
        Tensor::cat(vec![x; copies], 1).reshape([tokens, num_heads * copies * cached])
    }

    /// Returns `x`, `[num_tokens, heads * cached]`, without the zeros of each head.
    pub(super) fn removed(self, x: Tensor<2>) -> Tensor<2> {
        let Self { head_dim, cached, .. } = self;
        if head_dim == cached {
            return x;
        }
        let [tokens, width] = x.dims();
        let num_heads = width / cached;
        let heads = x.reshape([tokens * num_heads, cached]).narrow(1, 0, head_dim);
        heads.reshape([tokens, num_heads * head_dim])
    }
}
