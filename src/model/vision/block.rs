//! One layer of a tower: attention of whole sequences to both sides, and an MLP, each after a norm.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use burn::tensor::Tensor;
use playhouse_kernels::{
    Activation, AttentionMask, AttentionMetadata, AttentionParams, HeadNorm, QkvHeads, RotaryTable,
    activate, add, cross_attention, encoder_attention, profile::timed, qk_norm_rope,
};

use crate::model::config::NormConfig;
use crate::model::layers::{Arrangement, Linear, Norm, Part};
use crate::model::weight_loader::{WeightLoader, refused};
use crate::model::{Adapters, ModelError};

/// The names of a layer's modules.
#[derive(Debug)]
pub(super) struct BlockNames {
    pub(super) attention_norm: &'static str,
    pub(super) mlp_norm: &'static str,
    /// One module of all three, or three.
    pub(super) qkv: &'static [&'static str],
    pub(super) o: &'static str,
    /// The gate first, if there is one.
    pub(super) inner: &'static [&'static str],
    pub(super) down: &'static str,
    /// The factors of the outputs of both parts, if they have some.
    pub(super) factors: Option<[&'static str; 2]>,
    /// The norms of queries and keys, if there are some.
    pub(super) head_norms: Option<[&'static str; 2]>,
}

/// The shape of all layers of a tower.
#[derive(Debug, Clone)]
pub(super) struct BlockConfig {
    pub(super) names: &'static BlockNames,
    pub(super) hidden_size: usize,
    pub(super) intermediate_size: usize,
    pub(super) num_heads: usize,
    pub(super) num_kv_heads: usize,
    pub(super) norm: NormConfig,
    pub(super) activation: Activation,
    pub(super) qkv_bias: bool,
    pub(super) o_bias: bool,
    pub(super) mlp_bias: bool,
    pub(super) head_norms: HeadNorms,
    /// Whether the elements of a head that turn together are neighbours in the checkpoint. If
    /// queries and keys are modules of their own, both have as many heads.
    pub(super) has_neighbour_pairs: bool,
}

/// The norms of queries and keys.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum HeadNorms {
    None,
    /// A norm over all heads together: HF `InternVLVisionRMSNorm`.
    AcrossHeads,
    /// A norm of each head, with this number added to the mean square: HF `GlmOcrRMSNorm`.
    OfEach {
        eps: f32,
    },
}

impl BlockConfig {
    /// Returns the elements of a head.
    pub(super) fn head_dim(&self) -> usize {
        self.hidden_size / self.num_heads
    }
}

/// One layer.
#[derive(Debug)]
pub(super) struct Block {
    attention_norm: Norm,
    qkv: Linear,
    heads: QkvHeads,
    params: AttentionParams,
    o: Linear,
    mlp_norm: Norm,
    inner: Linear,
    is_gated: bool,
    activation: Activation,
    down: Linear,
    factors: Option<[Vec<f32>; 2]>,
}

/// The rows of a batch, as all layers see them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows<'a> {
    /// The rows that attend to each other.
    pub(super) sequences: &'a AttentionMetadata,
    /// The line of each row in a rotary table.
    pub(super) rotary: Option<(&'a [u32], &'a RotaryTable)>,
    /// Rows behind those of the sequences, in order. They see others, and no row sees them.
    pub(super) watchers: &'a [Watchers],
}

/// Rows that see those of a sequence without being in it.
#[derive(Debug, Clone)]
pub(super) struct Watchers {
    pub(super) rows: Range<usize>,
    pub(super) seen: Range<usize>,
}

impl Block {
    /// Returns the layer's output and the residual stream, both `[rows, hidden_size]`. The next
    /// norm adds them.
    pub(super) fn forward(
        &self,
        hidden: Tensor<2>,
        residual: Option<Tensor<2>>,
        rows: Rows<'_>,
    ) -> (Tensor<2>, Tensor<2>) {
        let none = Adapters::none();
        let (x, stream) = self.attention_norm.add_forward(hidden, residual);
        let attended = self.attention(x, rows);
        let (x, stream) = self.mlp_norm.add_forward(self.scaled(0, attended), Some(stream));
        let inner = timed("gate_up", || match self.is_gated {
            true => self.inner.forward_gated(x, self.activation, none),
            false => activate(self.inner.forward(x, none), self.activation),
        });
        let output = timed("down", || self.down.forward(inner, none));
        (self.scaled(1, output), stream)
    }

    fn attention(&self, x: Tensor<2>, rows: Rows<'_>) -> Tensor<2> {
        let Rows { sequences, rotary, watchers } = rows;
        let qkv = timed("qkv", || self.qkv.forward(x, Adapters::none()));
        // Without a table, the positions do not matter.
        let zeros;
        let (lines, table) = match rotary {
            Some((lines, table)) => (lines, Some(table)),
            None if watchers.is_empty() => (&*sequences.positions, None),
            None => {
                zeros = vec![0; qkv.dims()[0]];
                (&*zeros, None)
            }
        };
        let (q, k, v) = timed("qk_norm_rope", || qk_norm_rope(qkv, &self.heads, lines, table));
        let attended = timed("attention", || match watchers {
            [] => encoder_attention(q, k, v, self.heads.num_kv_heads, sequences, &self.params),
            watchers => self.watched([q, k, v], sequences, watchers),
        });
        timed("o", || self.o.forward(attended, Adapters::none()))
    }

    /// Returns the attention of the rows of sequences to each other, and of `watchers` to them.
    fn watched(
        &self,
        qkv: [Tensor<2>; 3],
        sequences: &AttentionMetadata,
        watchers: &[Watchers],
    ) -> Tensor<2> {
        let heads = self.heads.num_kv_heads;
        let part = |x: &Tensor<2>, rows: Range<usize>| {
            let [_, width] = x.dims();
            x.clone().slice([rows, 0..width])
        };
        let own = 0..sequences.positions.len();
        let [q, k, v] = qkv.each_ref().map(|x| part(x, own.clone()));
        let mut all = vec![encoder_attention(q, k, v, heads, sequences, &self.params)];
        let [q, k, v] = &qkv;
        for Watchers { rows, seen } in watchers {
            let (q, k) = (part(q, rows.clone()), part(k, seen.clone()));
            all.push(cross_attention(q, k, part(v, seen.clone()), heads, &self.params));
        }
        Tensor::cat(all, 0)
    }

    /// Returns the output of part `part` with its factors.
    fn scaled(&self, part: usize, output: Tensor<2>) -> Tensor<2> {
        match &self.factors {
            None => output,
            Some(factors) => {
                let factors = &factors[part];
                let device = output.device();
                output.mul(super::batch::rows(factors.clone(), factors.len(), &device))
            }
        }
    }

    /// Returns the bytes of weights that are pages of a file.
    pub(super) fn mapped_bytes(&self) -> u64 {
        let layers = [&self.qkv, &self.o, &self.inner, &self.down];
        layers.into_iter().map(Linear::mapped_bytes).sum()
    }

    /// Loads the layer `module`.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        module: &str,
        config: &BlockConfig,
    ) -> Result<Self, ModelError> {
        let BlockConfig { names, hidden_size, intermediate_size, num_heads, norm, .. } = *config;
        let full = |name: &str| format!("{module}.{name}");
        let parts = |names: &[&str], outputs: usize| -> Vec<Part> {
            names.iter().map(|name| Part::new(full(name), outputs)).collect()
        };
        let kv_size = config.num_kv_heads * config.head_dim();
        let mut qkv = match names.qkv {
            [all] => vec![Part::new(full(all), hidden_size + 2 * kv_size)],
            apart => {
                let outputs = [hidden_size, kv_size, kv_size];
                let parts = apart.iter().zip(outputs);
                parts.map(|(name, outputs)| Part::new(full(name), outputs)).collect()
            }
        };
        if config.has_neighbour_pairs {
            let rows = |heads: usize| pairs_apart(heads, config.head_dim());
            match &mut *qkv {
                [all] => {
                    let turned = rows(num_heads + config.num_kv_heads);
                    let values = turned.len() as u32..all.outputs as u32;
                    let rows = turned.iter().copied().chain(values).collect();
                    all.arrangement = Arrangement::Rows(rows);
                }
                apart => {
                    let rows = rows(num_heads);
                    for part in apart.iter_mut().take(2) {
                        part.arrangement = Arrangement::Rows(rows.clone());
                    }
                }
            }
        }
        let is_gated = names.inner.len() == 2;
        let params = AttentionParams {
            mask: AttentionMask::Both,
            tensor_cores: loader.tensor_cores(),
            ..AttentionParams::new(num_heads, (config.head_dim() as f32).powf(-0.5))
        };
        params.require_place(loader.device()).map_err(refused(&full(names.o)))?;
        let factors = names.factors.map(|names| {
            let [attention, mlp] = names.map(|name| loader.values(&full(name), &[hidden_size]));
            Ok::<_, ModelError>([attention?, mlp?])
        });
        let outputs = [Part::new(full(names.o), hidden_size)];
        let down = [Part::new(full(names.down), hidden_size)];
        let inner = parts(names.inner, intermediate_size);
        Ok(Self {
            attention_norm: Norm::load(loader, &full(names.attention_norm), hidden_size, norm)?,
            heads: heads(loader, module, config)?,
            qkv: Linear::of_media(loader, &qkv, hidden_size, config.qkv_bias)?,
            params,
            o: Linear::of_media(loader, &outputs, hidden_size, config.o_bias)?,
            mlp_norm: Norm::load(loader, &full(names.mlp_norm), hidden_size, norm)?,
            inner: Linear::of_media(loader, &inner, hidden_size, config.mlp_bias)?,
            is_gated,
            activation: config.activation,
            down: Linear::of_media(loader, &down, intermediate_size, config.mlp_bias)?,
            factors: factors.transpose()?,
        })
    }
}

/// Returns the rows of a module of heads, head by head. In each, the first elements of all pairs
/// come before the second ones.
fn pairs_apart(num_heads: usize, head_dim: usize) -> Arc<[u32]> {
    let of_head = |head: usize| {
        let element = move |at: usize| at % (head_dim / 2) * 2 + at / (head_dim / 2);
        (0..head_dim).map(move |at| (head * head_dim + element(at)) as u32)
    };
    (0..num_heads).flat_map(of_head).collect()
}

/// Returns the residual stream with the output of the last layer.
pub(super) fn sum(hidden: Tensor<2>, residual: Option<Tensor<2>>) -> Tensor<2> {
    match residual {
        None => hidden,
        Some(residual) => add(hidden, residual),
    }
}

/// Returns the features of a tower's rows, `[rows, features]`: the states after some numbers of
/// layers, one beside the other. `feature` makes them of a state and its number of layers.
pub(super) fn features(
    blocks: &[Block],
    mut hidden: Tensor<2>,
    seen: Rows<'_>,
    layers: &[usize],
    feature: impl Fn(Tensor<2>, usize) -> Tensor<2>,
) -> Tensor<2> {
    let (mut residual, mut found) = (None, BTreeMap::new());
    for layer in 0..=blocks.len() {
        if layers.contains(&layer) {
            found.insert(layer, feature(sum(hidden.clone(), residual.clone()), layer));
        }
        if let Some(block) = blocks.get(layer) {
            let (output, stream) = block.forward(hidden, residual, seen);
            (hidden, residual) = (output, Some(stream));
        }
    }
    let mut features: Vec<Tensor<2>> =
        layers.iter().filter_map(|layer| found.get(layer).cloned()).collect();
    match features.len() {
        1 => features.swap_remove(0),
        _ => Tensor::cat(features, 1),
    }
}

/// The number added to the mean squares of all heads: HF `InternVLVisionRMSNorm`.
const HEAD_EPS: f32 = 1e-6;

/// Returns the heads of a layer with their norms.
fn heads(
    loader: &mut WeightLoader<'_>,
    module: &str,
    config: &BlockConfig,
) -> Result<QkvHeads, ModelError> {
    let names = config.names.head_norms;
    let mut norm = |index: usize| {
        let Some(names) = names else { return Ok(None) };
        let name = format!("{module}.{}.weight", names[index]);
        Ok::<_, ModelError>(match config.head_norms {
            HeadNorms::None => None,
            HeadNorms::AcrossHeads => {
                Some(HeadNorm::RmsAcrossHeads(loader.vector(&name, config.hidden_size)?))
            }
            HeadNorms::OfEach { .. } => {
                Some(HeadNorm::Rms(loader.vector(&name, config.head_dim())?))
            }
        })
    };
    Ok(QkvHeads {
        num_heads: config.num_heads,
        num_kv_heads: config.num_kv_heads,
        head_dim: config.head_dim(),
        q_norm: norm(0)?,
        k_norm: norm(1)?,
        norms_after_rope: false,
        eps: match config.head_norms {
            HeadNorms::OfEach { eps } => eps,
            HeadNorms::None | HeadNorms::AcrossHeads => HEAD_EPS,
        },
        clip: None,
    })
}
