//! One layer of the tower of Gemma 4 (HF `Gemma4VisionEncoderLayer`): attention and a gated MLP,
//! each between two norms. Inputs and outputs of projections may be clamped to stored ranges.

use std::sync::Arc;

use burn::tensor::Tensor;
use playhouse_kernels::{
    Activation, AttentionMask, AttentionMetadata, AttentionParams, HeadNorm, QkvHeads, RotaryTable,
    WeightVector, activate, add, encoder_attention, profile::timed, qk_norm_rope, rms_norm,
};

use crate::model::config::NormConfig;
use crate::model::family::NormKind;
use crate::model::layers::{Arrangement, Linear, Norm, Part};
use crate::model::weight_loader::{WeightLoader, refused};
use crate::model::{Adapters, ModelError};

/// The shape of all layers.
#[derive(Debug, Clone)]
pub(super) struct LayerShape {
    pub(super) hidden_size: usize,
    pub(super) intermediate_size: usize,
    pub(super) num_heads: usize,
    pub(super) num_kv_heads: usize,
    /// A multiple of 4.
    pub(super) head_dim: usize,
    pub(super) eps: f32,
    pub(super) activation: Activation,
    /// Whether the checkpoint has ranges of the inputs and outputs of projections.
    pub(super) clips: bool,
}

/// `h = x + norm(attention(norm(x)))`, `y = h + norm(mlp(norm(h)))`.
#[derive(Debug)]
pub(super) struct Layer {
    attention_norms: [Norm; 2],
    /// Queries, keys and values.
    qkv: [Clipped; 3],
    heads: QkvHeads,
    /// Ones: heads of values are normalised without a weight.
    values_norm: WeightVector,
    params: AttentionParams,
    o: Clipped,
    mlp_norms: [Norm; 2],
    gate: Clipped,
    up: Clipped,
    down: Clipped,
    activation: Activation,
}

/// A projection with the ranges of its inputs and outputs: HF `Gemma4ClippableLinear`.
#[derive(Debug)]
struct Clipped {
    linear: Linear,
    input: Range,
    output: Range,
}

/// The least and the greatest number, if there are some.
#[derive(Debug, Clone, Copy, Default)]
struct Range {
    least: Option<f32>,
    most: Option<f32>,
}

impl Layer {
    /// Maps the states of frames, `[rows, hidden_size]`, to the same shape. `lines` are the rows of
    /// `table` that turn the heads.
    pub(super) fn forward(
        &self,
        hidden: Tensor<2>,
        frames: &AttentionMetadata,
        lines: &[u32],
        table: &RotaryTable,
    ) -> Tensor<2> {
        let [before, after] = &self.attention_norms;
        let x = before.forward(hidden.clone());
        let [q, k, v] = &self.qkv;
        let qkv = timed("qkv", || {
            let all = [q, k, v].map(|projection| projection.forward(x.clone()));
            Tensor::cat(all.into(), 1)
        });
        let (q, k, v) =
            timed("qk_norm_rope", || qk_norm_rope(qkv, &self.heads, lines, Some(table)));
        let v = self.normed_values(v);
        let num_kv_heads = self.heads.num_kv_heads;
        let attended =
            timed("attention", || encoder_attention(q, k, v, num_kv_heads, frames, &self.params));
        let attended = after.forward(timed("o", || self.o.forward(attended)));
        let [before, after] = &self.mlp_norms;
        let (x, stream) = before.add_forward(attended, Some(hidden));
        let inner = timed("gate_up", || {
            activate(self.gate.forward(x.clone()), self.activation).mul(self.up.forward(x))
        });
        add(stream, after.forward(timed("down", || self.down.forward(inner))))
    }

    fn normed_values(&self, v: Tensor<2>) -> Tensor<2> {
        let QkvHeads { num_kv_heads, head_dim, eps, .. } = self.heads;
        let [count, width] = v.dims();
        let heads = v.reshape([count * num_kv_heads, head_dim]);
        rms_norm(heads, &self.values_norm, eps).reshape([count, width])
    }

    /// Returns the bytes of weights that are pages of a file.
    pub(super) fn mapped_bytes(&self) -> u64 {
        let others = [&self.o, &self.gate, &self.up, &self.down];
        self.qkv.iter().chain(others).map(|projection| projection.linear.mapped_bytes()).sum()
    }

    /// Loads the layer `module`.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        module: &str,
        shape: &LayerShape,
    ) -> Result<Self, ModelError> {
        let LayerShape { hidden_size, intermediate_size, num_heads, num_kv_heads, .. } = *shape;
        let LayerShape { head_dim, eps, activation, clips, .. } = *shape;
        let full = |name: &str| format!("{module}.{name}");
        let mut norm = |name: &str| {
            let config = NormConfig { kind: NormKind::Rms, eps };
            Norm::load(loader, &full(name), hidden_size, config)
        };
        let attention_norms = [norm("input_layernorm")?, norm("post_attention_layernorm")?];
        let mlp_norms = [norm("pre_feedforward_layernorm")?, norm("post_feedforward_layernorm")?];
        let order = halves_together(head_dim);
        let mut head_norm = |name: &str| {
            let name = full(&format!("self_attn.{name}.weight"));
            let stored = loader.values(&name, &[head_dim])?;
            let ordered = order.iter().map(|at| stored[*at as usize]).collect();
            Ok::<_, ModelError>(Some(HeadNorm::Rms(loader.on_device(&name, ordered)?)))
        };
        let heads = QkvHeads {
            num_heads,
            num_kv_heads,
            head_dim,
            q_norm: head_norm("q_norm")?,
            k_norm: head_norm("k_norm")?,
            norms_after_rope: false,
            eps,
            clip: None,
        };
        let params = AttentionParams {
            mask: AttentionMask::Both,
            tensor_cores: loader.tensor_cores(),
            ..AttentionParams::new(num_heads, 1.0)
        };
        params.require_place(loader.device()).map_err(refused(&full("self_attn")))?;
        let ones = full("self_attn.v_norm");
        let values_norm = loader.on_device(&ones, vec![1.0; head_dim])?;
        let mut clipped = |name: &str, arrangement: Arrangement, [outputs, inputs]: [usize; 2]| {
            Clipped::load(loader, &full(name), arrangement, [outputs, inputs], clips)
        };
        let turned = |heads: usize| Arrangement::Rows(in_heads(&order, heads));
        let as_stored = Arrangement::AsStored;
        let (q_size, kv_size) = (num_heads * head_dim, num_kv_heads * head_dim);
        Ok(Self {
            attention_norms,
            qkv: [
                clipped("self_attn.q_proj", turned(num_heads), [q_size, hidden_size])?,
                clipped("self_attn.k_proj", turned(num_kv_heads), [kv_size, hidden_size])?,
                clipped("self_attn.v_proj", as_stored.clone(), [kv_size, hidden_size])?,
            ],
            heads,
            values_norm,
            params,
            o: clipped("self_attn.o_proj", as_stored.clone(), [hidden_size, q_size])?,
            mlp_norms,
            gate: clipped("mlp.gate_proj", as_stored.clone(), [intermediate_size, hidden_size])?,
            up: clipped("mlp.up_proj", as_stored.clone(), [intermediate_size, hidden_size])?,
            down: clipped("mlp.down_proj", as_stored, [hidden_size, intermediate_size])?,
            activation,
        })
    }
}

/// Returns the elements of a head in the order in which those half a head apart turn together. In
/// the checkpoint, each half turns by itself: columns the first one, and rows the second.
fn halves_together(head_dim: usize) -> Vec<u32> {
    let quarter = (head_dim / 4) as u32;
    [0, 2, 1, 3].into_iter().flat_map(|part| part * quarter..(part + 1) * quarter).collect()
}

/// Returns the same rows of all heads.
fn in_heads(order: &[u32], heads: usize) -> Arc<[u32]> {
    let len = order.len() as u32;
    (0..heads as u32).flat_map(|head| order.iter().map(move |at| head * len + at)).collect()
}

impl Clipped {
    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        self.output.clamped(self.linear.forward(self.input.clamped(x), Adapters::none()))
    }

    fn load(
        loader: &mut WeightLoader<'_>,
        module: &str,
        arrangement: Arrangement,
        [outputs, inputs]: [usize; 2],
        clips: bool,
    ) -> Result<Self, ModelError> {
        let part = Part { arrangement, ..Part::new(format!("{module}.linear"), outputs) };
        let mut range = |end: &str| match clips {
            true => Range::load(loader, &format!("{module}.{end}")),
            false => Ok(Range::default()),
        };
        let (input, output) = (range("input")?, range("output")?);
        Ok(Self { linear: Linear::of_media(loader, &[part], inputs, false)?, input, output })
    }
}

impl Range {
    fn load(loader: &mut WeightLoader<'_>, name: &str) -> Result<Self, ModelError> {
        let mut number = |end: &str| loader.number(&format!("{name}_{end}"), &[]);
        let (least, most) = (number("min")?, number("max")?);
        let finite = |number: f32| Some(number).filter(|number| number.is_finite());
        Ok(Self { least: finite(least), most: finite(most) })
    }

    fn clamped(self, x: Tensor<2>) -> Tensor<2> {
        let x = match self.least {
            None => x,
            Some(least) => x.clamp_min(least),
        };
        match self.most {
            None => x,
            Some(most) => x.clamp_max(most),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_of_a_head_turn_apart() {
        assert_eq!(halves_together(8), [0, 1, 4, 5, 2, 3, 6, 7]);
        assert_eq!(*in_heads(&[0, 2, 1, 3], 2), [0, 2, 1, 3, 4, 6, 5, 7]);
    }
}
