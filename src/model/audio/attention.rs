//! Attention of tokens, or of the frames of a sound, to each other: HF `WhisperAttention`.

use burn::tensor::Tensor;
use playhouse_kernels::{
    AttentionMask, AttentionMetadata, AttentionParams, QkvHeads, encoder_attention,
    paged_attention, profile::timed, qk_norm_rope, reshape_and_cache,
};

use super::config::{LoadLinear, NORM};
use crate::model::layers::{Linear, Part};
use crate::model::weight_loader::WeightLoader;
use crate::model::{Adapters, ModelError, Step};

/// Attention of tokens, or of the frames of a sound, to each other.
#[derive(Debug)]
pub(super) struct SelfAttention {
    qkv_proj: Linear,
    heads: QkvHeads,
    out_proj: Linear,
    params: AttentionParams,
}

/// Returns the parameters of attention with `heads` heads.
pub(super) fn params(
    loader: &WeightLoader<'_>,
    hidden: usize,
    heads: usize,
    mask: AttentionMask,
) -> AttentionParams {
    let scale = ((hidden / heads) as f32).sqrt().recip();
    let tensor_cores = loader.tensor_cores();
    AttentionParams { mask, tensor_cores, ..AttentionParams::new(heads, scale) }
}

/// Loads `module`, which maps states to states.
pub(super) fn square(
    loader: &mut WeightLoader<'_>,
    module: String,
    hidden: usize,
    has_bias: bool,
    load: LoadLinear,
) -> Result<Linear, ModelError> {
    load(loader, &[Part::new(module, hidden)], hidden, has_bias)
}

impl SelfAttention {
    /// Loads the attention `module` of `heads` heads.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        module: &str,
        [hidden, heads]: [usize; 2],
        mask: AttentionMask,
        load: LoadLinear,
    ) -> Result<Self, ModelError> {
        let parts = ["q_proj", "k_proj", "v_proj"]
            .map(|part| Part::new(format!("{module}.{part}"), hidden));
        // Keys have no bias.
        let bias = |loader: &mut WeightLoader<'_>, part: &str| {
            loader.values(&format!("{module}.{part}.bias"), &[hidden])
        };
        let biases = [bias(loader, "q_proj")?, vec![0.0; hidden], bias(loader, "v_proj")?];
        let biases = loader.on_device(module, biases.concat())?;
        Ok(Self {
            qkv_proj: load(loader, &parts, hidden, false)?.with_biases(biases),
            heads: QkvHeads {
                num_heads: heads,
                num_kv_heads: heads,
                head_dim: hidden / heads,
                q_norm: None,
                k_norm: None,
                norms_after_rope: false,
                eps: NORM.eps,
                clip: None,
            },
            out_proj: square(loader, format!("{module}.out_proj"), hidden, true, load)?,
            params: params(loader, hidden, heads, mask),
        })
    }

    fn projected(&self, x: Tensor<2>, adapters: Adapters<'_>) -> [Tensor<2>; 3] {
        let [tokens, _] = x.dims();
        let qkv = timed("qkv", || self.qkv_proj.forward(x, adapters));
        // Nothing rotates, so the positions do not matter.
        let (q, k, v) = qk_norm_rope(qkv, &self.heads, &vec![0; tokens], None);
        [q, k, v]
    }

    /// Maps the frames of one sound, `[num_frames, hidden_size]`, to the same shape.
    pub(super) fn of_frames(&self, x: Tensor<2>, frames: &AttentionMetadata) -> Tensor<2> {
        let [q, k, v] = self.projected(x, Adapters::none());
        let heads = self.heads.num_kv_heads;
        let output = timed("attention", || encoder_attention(q, k, v, heads, frames, &self.params));
        timed("o", || self.out_proj.forward(output, Adapters::none()))
    }

    /// Maps a step's tokens, `[num_tokens, hidden_size]`, to the same shape, and writes their keys
    /// and values into the cache of layer `index`.
    pub(super) fn of_tokens(&self, x: Tensor<2>, index: usize, step: &mut Step<'_>) -> Tensor<2> {
        let adapters = step.adapters();
        let [q, k, v] = self.projected(x, adapters);
        let (meta, kv) = step.layer(index);
        timed("kv_write", || reshape_and_cache(k, v, kv, &meta.slot_mapping));
        let output = timed("attention", || paged_attention(q, kv, meta, &self.params));
        timed("o", || self.out_proj.forward(output, adapters))
    }

    pub(super) fn mapped_bytes(&self) -> u64 {
        self.qkv_proj.mapped_bytes() + self.out_proj.mapped_bytes()
    }
}
