//! The attention of encoder and decoder: HF `WhisperAttention`.

use burn::tensor::Tensor;
use playhouse_kernels::{
    AttentionMask, AttentionMetadata, AttentionParams, QkvHeads, cross_attention,
    encoder_attention, paged_attention, profile::timed, qk_norm_rope, reshape_and_cache,
    scale_rows,
};

use super::config::NORM;
use crate::model::layers::{Linear, Part};
use crate::model::weight_loader::WeightLoader;
use crate::model::{Adapters, EncoderOutput, ModelError, Step};

/// Attention of tokens, or of the frames of a sound, to each other.
#[derive(Debug)]
pub(super) struct SelfAttention {
    qkv_proj: Linear,
    heads: QkvHeads,
    out_proj: Linear,
    params: AttentionParams,
}

/// Attention of a decoder's tokens to the frames of a sound.
#[derive(Debug)]
pub(super) struct CrossAttention {
    q_proj: Linear,
    out_proj: Linear,
    params: AttentionParams,
    /// The layer of the decoder.
    index: usize,
}

/// The projections of a sound's states to keys and values for one layer of the decoder.
#[derive(Debug)]
pub(super) struct KvProjection {
    k_proj: Linear,
    v_proj: Linear,
}

fn params(
    loader: &WeightLoader<'_>,
    hidden: usize,
    heads: usize,
    mask: AttentionMask,
) -> AttentionParams {
    let scale = ((hidden / heads) as f32).sqrt().recip();
    let tensor_cores = loader.tensor_cores();
    AttentionParams { mask, tensor_cores, ..AttentionParams::new(heads, scale) }
}

fn square(
    loader: &mut WeightLoader<'_>,
    module: String,
    hidden: usize,
    has_bias: bool,
) -> Result<Linear, ModelError> {
    Linear::load(loader, &[Part::new(module, hidden)], hidden, has_bias)
}

impl SelfAttention {
    /// Loads the attention `module` of `heads` heads.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        module: &str,
        [hidden, heads]: [usize; 2],
        mask: AttentionMask,
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
            qkv_proj: Linear::load(loader, &parts, hidden, false)?.with_biases(biases),
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
            out_proj: square(loader, format!("{module}.out_proj"), hidden, true)?,
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

impl CrossAttention {
    /// Loads the attention `module` of layer `index` of the decoder.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        module: &str,
        [hidden, heads]: [usize; 2],
        index: usize,
    ) -> Result<Self, ModelError> {
        Ok(Self {
            q_proj: square(loader, format!("{module}.q_proj"), hidden, true)?,
            out_proj: square(loader, format!("{module}.out_proj"), hidden, true)?,
            params: params(loader, hidden, heads, AttentionMask::Both),
            index,
        })
    }

    /// Maps a step's tokens, `[num_tokens, hidden_size]`, to the same shape. The rows of a sequence
    /// without a sound become zero.
    pub(super) fn forward(&self, x: Tensor<2>, step: &Step<'_>) -> Tensor<2> {
        let adapters = step.adapters();
        let q = timed("qkv", || self.q_proj.forward(x, adapters));
        let output = timed("attention", || self.attended(q, step));
        let output = timed("o", || self.out_proj.forward(output, adapters));
        let rows = |has_sound: &(bool, usize)| {
            let (has_sound, len) = *has_sound;
            std::iter::repeat_n(if has_sound { 1.0 } else { 0.0 }, len)
        };
        let sounds: Vec<(bool, usize)> =
            self.sequences(step).map(|(rows, sound)| (sound.is_some(), rows.len())).collect();
        match sounds.iter().all(|(has_sound, _)| *has_sound) {
            true => output,
            false => scale_rows(output, &sounds.iter().flat_map(rows).collect::<Vec<f32>>()),
        }
    }

    /// Returns the results of all heads.
    fn attended(&self, q: Tensor<2>, step: &Step<'_>) -> Tensor<2> {
        let ([_, width], heads) = (q.dims(), self.params.num_heads);
        let of_sequence = |(rows, sound): (std::ops::Range<usize>, Option<&EncoderOutput>)| {
            let q = q.clone().slice([rows, 0..width]);
            let states = sound.and_then(|sound| {
                let at = 2 * self.index;
                Some((sound.by_layer.get(at)?.clone(), sound.by_layer.get(at + 1)?.clone()))
            });
            match states {
                Some((k, v)) => cross_attention(q, k, v, heads, &self.params),
                None => q,
            }
        };
        let mut parts: Vec<Tensor<2>> =
            self.sequences(step).filter(|(rows, _)| !rows.is_empty()).map(of_sequence).collect();
        match parts.len() {
            0 => q,
            1 => parts.swap_remove(0),
            _ => Tensor::cat(parts, 0),
        }
    }

    /// Returns the rows of each sequence, and the sound that they attend to.
    fn sequences<'s>(
        &self,
        step: &'s Step<'_>,
    ) -> impl Iterator<Item = (std::ops::Range<usize>, Option<&'s EncoderOutput>)> {
        let attended = &step.media().attended;
        let starts = step.batch().query_start_loc.windows(2).enumerate();
        starts.map(|(sequence, rows)| {
            let sound = attended.get(sequence).and_then(Option::as_deref);
            (rows[0] as usize..rows[1] as usize, sound)
        })
    }

    pub(super) fn mapped_bytes(&self) -> u64 {
        self.q_proj.mapped_bytes() + self.out_proj.mapped_bytes()
    }
}

impl KvProjection {
    /// Loads the projections of the attention `module`.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        module: &str,
        hidden: usize,
    ) -> Result<Self, ModelError> {
        Ok(Self {
            k_proj: square(loader, format!("{module}.k_proj"), hidden, false)?,
            v_proj: square(loader, format!("{module}.v_proj"), hidden, true)?,
        })
    }

    /// Returns the keys and the values of states, `[num_frames, hidden_size]` each.
    pub(super) fn of(&self, states: &Tensor<2>) -> [Tensor<2>; 2] {
        [&self.k_proj, &self.v_proj].map(|part| part.forward(states.clone(), Adapters::none()))
    }

    pub(super) fn mapped_bytes(&self) -> u64 {
        self.k_proj.mapped_bytes() + self.v_proj.mapped_bytes()
    }
}
