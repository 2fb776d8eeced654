//! The attention of a decoder to a sound or to another text: HF `BartAttention`, and
//! `WhisperAttention`, whose keys have no bias.

use burn::tensor::Tensor;
use playhouse_kernels::{
    AttentionMask, AttentionParams, cross_attention, profile::timed, scale_rows,
};

use super::attention::AttentionForm;
use crate::model::layers::Linear;
use crate::model::weight_loader::WeightLoader;
use crate::model::{Adapters, EncoderOutput, ModelError, Step};

/// Attention of a decoder's tokens to the states of an encoder.
#[derive(Debug)]
pub(in crate::model) struct CrossAttention {
    q_proj: Linear,
    out_proj: Linear,
    params: AttentionParams,
    /// The layer of the decoder.
    index: usize,
}

/// The projections of an encoder's states to keys and values for one layer of the decoder.
#[derive(Debug)]
pub(in crate::model) struct KvProjection {
    k_proj: Linear,
    v_proj: Linear,
}

impl CrossAttention {
    /// Loads the attention `module` of layer `index` of the decoder.
    pub(in crate::model) fn load(
        loader: &mut WeightLoader<'_>,
        module: &str,
        form: &AttentionForm,
        index: usize,
    ) -> Result<Self, ModelError> {
        Ok(Self {
            q_proj: form.projection(loader, module, 0, Linear::load)?,
            out_proj: form.projection(loader, module, 3, Linear::load)?,
            params: form.params(loader, AttentionMask::Both),
            index,
        })
    }

    /// Maps a step's tokens, `[num_tokens, hidden_size]`, to the same shape. The rows of a sequence
    /// without a sound or a text to attend to become zero.
    pub(in crate::model) fn forward(&self, x: Tensor<2>, step: &Step<'_>) -> Tensor<2> {
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

    /// Returns the rows of each sequence, and the item that they attend to.
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

    pub(in crate::model) fn mapped_bytes(&self) -> u64 {
        self.q_proj.mapped_bytes() + self.out_proj.mapped_bytes()
    }
}

impl KvProjection {
    /// Loads the projections of the attention `module`.
    pub(in crate::model) fn load(
        loader: &mut WeightLoader<'_>,
        module: &str,
        form: &AttentionForm,
    ) -> Result<Self, ModelError> {
        Ok(Self {
            k_proj: form.projection(loader, module, 1, Linear::load)?,
            v_proj: form.projection(loader, module, 2, Linear::load)?,
        })
    }

    /// Returns the keys and the values of states, `[num_frames, hidden_size]` each.
    pub(in crate::model) fn of(&self, states: &Tensor<2>) -> [Tensor<2>; 2] {
        [&self.k_proj, &self.v_proj].map(|part| part.forward(states.clone(), Adapters::none()))
    }

    pub(in crate::model) fn mapped_bytes(&self) -> u64 {
        self.k_proj.mapped_bytes() + self.v_proj.mapped_bytes()
    }
}
