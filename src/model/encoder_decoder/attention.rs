//! Attention of tokens, or of the frames of a sound, to each other: HF `BartAttention`, and
//! `WhisperAttention`, whose keys have no bias.

use std::sync::Arc;

use burn::tensor::Tensor;
use playhouse_kernels::{
    AttentionMask, AttentionMetadata, AttentionParams, DistanceBiases, QkvHeads, RotaryTable,
    encoder_attention, paged_attention, profile::timed, qk_norm_rope, reshape_and_cache,
};

use super::stack_config::{LoadLinear, NORM};
use crate::model::layers::{Linear, Part};
use crate::model::weight_loader::WeightLoader;
use crate::model::{Adapters, ModelError, Step};

/// Attention of tokens, or of the frames of a sound, to each other.
#[derive(Debug)]
pub(in crate::model) struct SelfAttention {
    qkv_proj: Linear,
    heads: QkvHeads,
    out_proj: Linear,
    params: AttentionParams,
    /// Rotates queries and keys of the frames of a sound, in some towers.
    rotary: Option<Arc<RotaryTable>>,
}

/// The biases of an attention's projections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model) enum AttentionBias {
    All,
    /// A bias of keys changes no result, because it is the same for all keys of a query.
    AllButKeys,
    None,
}

/// The form of an attention in one family.
#[derive(Debug, Clone, Copy)]
pub(in crate::model) struct AttentionForm {
    pub(in crate::model) hidden: usize,
    pub(in crate::model) heads: usize,
    pub(in crate::model) head_dim: usize,
    /// The modules of queries, keys, values and outputs.
    pub(in crate::model) names: [&'static str; 4],
    pub(in crate::model) bias: AttentionBias,
    /// The factor on products of queries and keys.
    pub(in crate::model) scale: f32,
}

impl AttentionForm {
    /// Returns the form of BART's attention.
    pub(in crate::model) fn of_bart(hidden: usize, heads: usize) -> Self {
        let head_dim = hidden / heads;
        let scale = (head_dim as f32).sqrt().recip();
        let names = ["q_proj", "k_proj", "v_proj", "out_proj"];
        Self { hidden, heads, head_dim, names, bias: AttentionBias::All, scale }
    }

    /// Returns the form of Whisper's attention.
    pub(in crate::model) fn of_whisper(hidden: usize, heads: usize) -> Self {
        Self { bias: AttentionBias::AllButKeys, ..Self::of_bart(hidden, heads) }
    }

    /// Returns the width of all heads.
    pub(in crate::model) fn width(&self) -> usize {
        self.heads * self.head_dim
    }

    pub(super) fn params(&self, loader: &WeightLoader<'_>, mask: AttentionMask) -> AttentionParams {
        let tensor_cores = loader.tensor_cores();
        AttentionParams { mask, tensor_cores, ..AttentionParams::new(self.heads, self.scale) }
    }

    /// Loads the projection `index` of `names`.
    pub(super) fn projection(
        &self,
        loader: &mut WeightLoader<'_>,
        module: &str,
        index: usize,
        load: LoadLinear,
    ) -> Result<Linear, ModelError> {
        let is_output = index == 3;
        let [inputs, outputs] = match is_output {
            true => [self.width(), self.hidden],
            false => [self.hidden, self.width()],
        };
        let has_bias = match self.bias {
            AttentionBias::All => true,
            AttentionBias::AllButKeys => index != 1,
            AttentionBias::None => false,
        };
        let part = [Part::new(format!("{module}.{}", self.names[index]), outputs)];
        load(loader, &part, inputs, has_bias)
    }
}

impl SelfAttention {
    /// Loads the attention `module`. `distance_biases` are added to its scores.
    pub(in crate::model) fn load(
        loader: &mut WeightLoader<'_>,
        module: &str,
        form: &AttentionForm,
        mask: AttentionMask,
        distance_biases: Option<DistanceBiases>,
        load: LoadLinear,
    ) -> Result<Self, ModelError> {
        let (width, names) = (form.width(), form.names);
        let parts = [0, 1, 2].map(|at| Part::new(format!("{module}.{}", names[at]), width));
        let qkv_proj = load(loader, &parts, form.hidden, false)?;
        let mut biases = Vec::new();
        for (index, part) in names.iter().enumerate().take(3) {
            match (form.bias, index) {
                (AttentionBias::None, _) => {}
                (AttentionBias::AllButKeys, 1) => biases.resize(biases.len() + width, 0.0),
                _ => biases.extend(loader.values(&format!("{module}.{part}.bias"), &[width])?),
            }
        }
        let qkv_proj = match biases.is_empty() {
            true => qkv_proj,
            false => qkv_proj.with_biases(loader.on_device(module, biases)?),
        };
        Ok(Self {
            qkv_proj,
            heads: QkvHeads {
                num_heads: form.heads,
                num_kv_heads: form.heads,
                head_dim: form.head_dim,
                q_norm: None,
                k_norm: None,
                norms_after_rope: false,
                eps: NORM.eps,
                clip: None,
            },
            out_proj: form.projection(loader, module, 3, load)?,
            params: AttentionParams { distance_biases, ..form.params(loader, mask) },
            rotary: None,
        })
    }

    /// Returns the attention with this table for the positions of frames.
    pub(in crate::model) fn rotated(self, rotary: Option<Arc<RotaryTable>>) -> Self {
        Self { rotary, ..self }
    }

    fn projected(&self, x: Tensor<2>, adapters: Adapters<'_>) -> [Tensor<2>; 3] {
        let [tokens, _] = x.dims();
        let qkv = timed("qkv", || self.qkv_proj.forward(x, adapters));
        // The frames of a sound begin at position 0. If nothing rotates, positions do not matter.
        let positions: Vec<u32> = match self.rotary {
            Some(_) => (0..tokens as u32).collect(),
            None => vec![0; tokens],
        };
        let (q, k, v) = qk_norm_rope(qkv, &self.heads, &positions, self.rotary.as_deref());
        [q, k, v]
    }

    /// Maps the frames of one sound, or the tokens of one text, to the same shape,
    /// `[num_frames, hidden_size]`. They are not in the KV cache.
    pub(in crate::model) fn of_frames(
        &self,
        x: Tensor<2>,
        frames: &AttentionMetadata,
    ) -> Tensor<2> {
        let [q, k, v] = self.projected(x, Adapters::none());
        let heads = self.heads.num_kv_heads;
        let output = timed("attention", || encoder_attention(q, k, v, heads, frames, &self.params));
        timed("o", || self.out_proj.forward(output, Adapters::none()))
    }

    /// Maps a step's tokens, `[num_tokens, hidden_size]`, to the same shape, and writes their keys
    /// and values into the cache of layer `index`.
    pub(in crate::model) fn of_tokens(
        &self,
        x: Tensor<2>,
        index: usize,
        step: &mut Step<'_>,
    ) -> Tensor<2> {
        let adapters = step.adapters();
        let [q, k, v] = self.projected(x, adapters);
        let (meta, kv) = step.layer(index);
        timed("kv_write", || reshape_and_cache(k, v, kv, &meta.slot_mapping));
        let output = timed("attention", || paged_attention(q, kv, meta, &self.params));
        timed("o", || self.out_proj.forward(output, adapters))
    }

    pub(in crate::model) fn mapped_bytes(&self) -> u64 {
        self.qkv_proj.mapped_bytes() + self.out_proj.mapped_bytes()
    }
}
