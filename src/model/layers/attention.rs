//! Grouped-query attention over the paged KV cache (<https://arxiv.org/abs/2305.13245>): HF
//! `LlamaAttention`, and `Qwen3Attention` with norms over heads.

use std::borrow::Cow;
use std::sync::Arc;

use burn::tensor::Tensor;
use playhouse_kernels::{
    Activation, AttentionMask, AttentionMetadata, AttentionParams, DisentangledAttention,
    GatedNorm, HeadNorm, QkvHeads, RotaryTable, WeightDtype, WeightVector, activate,
    disentangled_attention, encoder_attention, encoder_self_attention, gated_norm, paged_attention,
    profile::timed, qk_norm_rope, qk_norm_rope_and_cache, reshape_and_cache, rms_norm, rope,
    scale_rows,
};

use super::disentangled;
use super::head_norms::{heads, norms_across};
use super::linears::AttentionParts;
use super::low_rank::LowRank;
use super::mamba2::scaled;
use super::ngpt;
use super::padding::Padding;
use super::relative_positions;
use super::rotary::RotaryTables;
use super::{LayerPlace, Linear, Norm};
use crate::model::config::{AttentionConfig, GateForm, NormConfig, TemperatureConfig};
use crate::model::family::QkvNames;
use crate::model::weight_loader::{WeightLoader, refused};
use crate::model::{Adapters, ModelError, Positions, Step};

/// The product with the sigmoid of a gate.
const SIGMOID_GATE: GatedNorm = of_gate(Activation::Sigmoid);
/// The product with its softplus.
const SOFTPLUS_GATE: GatedNorm = of_gate(Activation::Softplus);

const fn of_gate(activation: Activation) -> GatedNorm {
    GatedNorm { norm: None, norm_before_gate: false, activation, gate_scale: 1.0 }
}

/// Returns the results of all heads, `[num_tokens, o_size]`, times the function of their gates.
fn gated(output: Tensor<2>, gate: Tensor<2>, form: GateForm) -> Tensor<2> {
    match form {
        GateForm::Sigmoid => gated_norm(output, gate, 0, &SIGMOID_GATE),
        GateForm::Softplus => gated_norm(output, gate, 0, &SOFTPLUS_GATE),
        GateForm::SoftplusOfHeads => times_by_head(output, activate(gate, Activation::Softplus)),
        GateForm::SigmoidOfHeads => times_by_head(output, activate(gate, Activation::Sigmoid)),
    }
}

/// Returns `x`, `[num_tokens, width]`, whose columns are multiplied by `factors`, `[1, width]`.
fn times(x: Tensor<2>, factors: Option<&Tensor<2>>) -> Tensor<2> {
    match factors {
        None => x,
        Some(factors) => x.mul(factors.clone()),
    }
}

/// Returns `x`, `[num_tokens, heads * width]`, of which each head is multiplied by its factor of
/// `factors`, `[num_tokens, heads]`.
pub(super) fn times_by_head(x: Tensor<2>, factors: Tensor<2>) -> Tensor<2> {
    let ([tokens, width], [_, heads]) = (x.dims(), factors.dims());
    let factors = factors.reshape([tokens * heads, 1]);
    let x = x.reshape([tokens * heads, width / heads]);
    x.mul(factors).reshape([tokens, width])
}

/// The attention of one layer.
#[derive(Debug)]
pub(in crate::model) struct Attention {
    qkv_proj: Linear,
    /// The rest of queries, if they have a low rank.
    low_rank: Option<LowRank>,
    /// The gates of the output, before their function.
    gate: Option<Linear>,
    gate_form: GateForm,
    /// The factors of gates before their function, `[1, gate_size]`.
    gate_factors: Option<Tensor<2>>,
    /// The factors of queries behind their rotation, `[1, q_size]`.
    query_factors: Option<Tensor<2>>,
    heads: QkvHeads,
    /// The norms over all heads of queries and of keys, which precede other changes of heads.
    across: Option<[Norm; 2]>,
    padding: Padding,
    o_proj: Linear,
    rotary: Option<Arc<RotaryTable>>,
    params: AttentionParams,
    /// The attention in the place of that of `params`, in models that have it.
    disentangled: Option<DisentangledAttention>,
    temperature: Option<TemperatureConfig>,
    /// Ones, if the heads of values are normalised.
    values_norm: Option<WeightVector>,
    /// Whether the projection has no values, because they are its keys.
    values_are_keys: bool,
    /// The zeros of values that are narrower than heads.
    values_padding: Option<Padding>,
    output_norm: Option<Norm>,
    /// The factor of values.
    value_scale: f32,
    /// Whether a token attends to no token after it.
    is_causal: bool,
    /// Whether no token of an image sees those after it, either.
    always_causal: bool,
    /// Whether it reads the keys and values of another layer, and has none of its own.
    shares_keys: bool,
    /// The layer of the KV cache that holds its keys and values.
    kv_layer: usize,
}

impl Attention {
    /// Maps `[num_tokens, hidden]` to the same shape. Causal attention writes the keys and values
    /// of these tokens into the step's cache.
    pub(in crate::model) fn forward(
        &self,
        x: Tensor<2>,
        positions: Positions<'_>,
        step: &mut Step<'_>,
    ) -> Tensor<2> {
        let adapters = step.adapters();
        if self.shares_keys {
            let (meta, kv) = step.layer(self.kv_layer);
            let q = self.queries(x, positions, adapters);
            let q = self.padding.added(q);
            let meta = self.seen(meta);
            let output = timed("attention", || paged_attention(q, kv, &meta, &self.params));
            return timed("o", || self.o_proj.forward(self.padding.removed(output), adapters));
        }
        let gate =
            self.gate.as_ref().map(|gate| timed("gate", || gate.forward(x.clone(), adapters)));
        let qkv = timed("qkv", || self.qkv_proj.forward(x, adapters));
        let qkv = match &self.low_rank {
            Some(low_rank) => timed("q", || low_rank.expanded(qkv, adapters)),
            None => qkv,
        };
        let qkv = if self.values_are_keys { self.with_values(qkv) } else { qkv };
        let qkv = match self.values_padding {
            Some(padding) => self.with_wide_values(qkv, padding),
            None => qkv,
        };
        let output = match self.takes_heads_as_they_are() {
            true if self.is_causal => self.attend_cached(qkv, positions, step),
            true if self.temperature.is_none() => {
                let (rows, table) = positions.of_table(self.rotary.as_deref());
                encoder_self_attention(qkv, &self.heads, rows, table, step.batch(), &self.params)
            }
            _ => self.attend_changed(qkv, positions, step),
        };
        let output = match self.values_padding {
            Some(padding) => padding.removed(output),
            None => output,
        };
        // The factor of values is that of their weighted sums.
        let output = scaled(output, self.value_scale);
        let output = match gate {
            Some(gate) => gated(output, times(gate, self.gate_factors.as_ref()), self.gate_form),
            None => output,
        };
        let output = match &self.output_norm {
            Some(norm) => norm.forward(output),
            None => output,
        };
        timed("o", || self.o_proj.forward(output, adapters))
    }

    /// Returns queries and keys with the keys once more, as values.
    fn with_values(&self, qk: Tensor<2>) -> Tensor<2> {
        let QkvHeads { num_heads, num_kv_heads, head_dim, .. } = self.heads;
        let keys = qk.clone().narrow(1, num_heads * head_dim, num_kv_heads * head_dim);
        Tensor::cat(vec![qk, keys], 1)
    }

    /// Returns queries, keys and values, of which the last are as wide as the others.
    fn with_wide_values(&self, qkv: Tensor<2>, padding: Padding) -> Tensor<2> {
        let QkvHeads { num_heads, num_kv_heads, head_dim, .. } = self.heads;
        let kept = (num_heads + num_kv_heads) * head_dim;
        let num_values = qkv.dims()[1] - kept;
        let values = padding.added(qkv.clone().narrow(1, kept, num_values));
        Tensor::cat(vec![qkv.narrow(1, 0, kept), values], 1)
    }

    /// Returns whether plain attention takes keys and values as [`qk_norm_rope`] makes them.
    fn takes_heads_as_they_are(&self) -> bool {
        let is_changed = self.values_norm.is_some() || self.across.is_some();
        !is_changed && !self.padding.adds() && self.disentangled.is_none()
    }

    /// Returns the results of all heads, whose keys and values the operation before writes.
    fn attend_cached(
        &self,
        qkv: Tensor<2>,
        positions: Positions<'_>,
        step: &mut Step<'_>,
    ) -> Tensor<2> {
        let (meta, kv) = step.layer(self.kv_layer);
        let (rows, table) = positions.of_table(self.rotary.as_deref());
        let slots = &meta.slot_mapping;
        let q = qk_norm_rope_and_cache(qkv, &self.heads, rows, table, kv, slots);
        let q = times(q, self.query_factors.as_ref());
        let (q, meta) = (self.tempered(q, positions), self.seen(meta));
        timed("attention", || paged_attention(q, kv, &meta, &self.params))
    }

    /// Returns the results of all heads, which are changed before they are cached, or not cached.
    fn attend_changed(
        &self,
        qkv: Tensor<2>,
        positions: Positions<'_>,
        step: &mut Step<'_>,
    ) -> Tensor<2> {
        let qkv = match &self.across {
            None => qkv,
            Some(norms) => self.normed_across(qkv, norms),
        };
        let (q, k, v) = timed("qk_norm_rope", || {
            let (rows, table) = positions.of_table(self.rotary.as_deref());
            qk_norm_rope(qkv, &self.heads, rows, table)
        });
        let q = self.tempered(times(q, self.query_factors.as_ref()), positions);
        let v = match &self.values_norm {
            None => v,
            Some(weight) => self.normed(v, self.heads.num_kv_heads, weight),
        };
        if let Some(disentangled) = &self.disentangled {
            let batch = step.batch();
            return timed("attention", || disentangled_attention(q, k, v, batch, disentangled));
        }
        let [k, v] = [k, v].map(|heads| self.padding.of_cache(heads));
        self.padding.removed(self.attend([self.padding.added(q), k, v], step))
    }

    /// Returns queries, keys and values, of which the first two are normalised over all heads.
    fn normed_across(&self, qkv: Tensor<2>, [of_q, of_k]: &[Norm; 2]) -> Tensor<2> {
        let QkvHeads { num_heads, num_kv_heads, head_dim, .. } = self.heads;
        let (q_size, kv_size) = (num_heads * head_dim, num_kv_heads * head_dim);
        let q = of_q.forward(qkv.clone().narrow(1, 0, q_size));
        let k = of_k.forward(qkv.clone().narrow(1, q_size, kv_size));
        Tensor::cat(vec![q, k, qkv.narrow(1, q_size + kv_size, kv_size)], 1)
    }

    /// Returns the queries with the temperature of their positions.
    fn tempered(&self, q: Tensor<2>, positions: Positions<'_>) -> Tensor<2> {
        match self.temperature {
            None => q,
            Some(temperature) => temperature.scaled(q, positions.in_sequence()),
        }
    }

    /// Returns the results of all heads.
    fn attend(&self, [q, k, v]: [Tensor<2>; 3], step: &mut Step<'_>) -> Tensor<2> {
        if !self.is_causal {
            let (num_kv_heads, batch) = (self.heads.num_kv_heads, step.batch());
            return timed("attention", || {
                encoder_attention(q, k, v, num_kv_heads, batch, &self.params)
            });
        }
        let (meta, kv) = step.layer(self.kv_layer);
        timed("kv_write", || reshape_and_cache(k, v, kv, &meta.slot_mapping));
        let meta = self.seen(meta);
        timed("attention", || paged_attention(q, kv, &meta, &self.params))
    }

    /// Returns the batch as this layer sees it.
    fn seen<'m>(&self, meta: &'m AttentionMetadata) -> Cow<'m, AttentionMetadata> {
        match self.always_causal && !meta.visible_ends.is_empty() {
            true => Cow::Owned(AttentionMetadata { visible_ends: Vec::new(), ..meta.clone() }),
            false => Cow::Borrowed(meta),
        }
    }

    /// Returns the queries of a layer without keys and values of its own.
    fn queries(&self, x: Tensor<2>, positions: Positions<'_>, adapters: Adapters<'_>) -> Tensor<2> {
        let q = timed("qkv", || self.qkv_proj.forward(x, adapters));
        timed("qk_norm_rope", || {
            let QkvHeads { num_heads, head_dim, q_norm, .. } = &self.heads;
            let q = match q_norm {
                Some(HeadNorm::Rms(weight)) => self.normed(q, *num_heads, weight),
                _ => q,
            };
            match positions.of_table(self.rotary.as_deref()) {
                (rows, Some(table)) => rope(q, rows, *head_dim, table),
                (_, None) => q,
            }
        })
    }

    /// Normalises each of `heads` heads of `x`, `[num_tokens, heads * head_dim]`.
    fn normed(&self, x: Tensor<2>, heads: usize, weight: &WeightVector) -> Tensor<2> {
        let ([tokens, width], head_dim) = (x.dims(), self.heads.head_dim);
        let rows = x.reshape([tokens * heads, head_dim]);
        rms_norm(rows, weight, self.heads.eps).reshape([tokens, width])
    }

    /// Returns the bytes of weights that are pages of a file.
    pub(in crate::model) fn mapped_bytes(&self) -> u64 {
        let gate = self.gate.as_ref().map_or(0, Linear::mapped_bytes);
        let low_rank = self.low_rank.as_ref().map_or(0, LowRank::mapped_bytes);
        self.qkv_proj.mapped_bytes() + low_rank + gate + self.o_proj.mapped_bytes()
    }

    /// Loads the attention of the layer at `place`.
    pub(in crate::model) fn load(
        loader: &mut WeightLoader<'_>,
        place: LayerPlace<'_>,
        attention: &AttentionConfig,
        rotary: &mut RotaryTables<'_>,
    ) -> Result<Self, ModelError> {
        Self::of_inputs(loader, place, attention, rotary, place.config.hidden_size)
    }

    /// Loads attention whose queries, keys and values are projections of `inputs` elements.
    pub(in crate::model) fn of_inputs(
        loader: &mut WeightLoader<'_>,
        place: LayerPlace<'_>,
        attention: &AttentionConfig,
        rotary: &mut RotaryTables<'_>,
        inputs: usize,
    ) -> Result<Self, ModelError> {
        let names = place.names();
        let AttentionParts { qkv, gate, o } = AttentionParts::of(place, attention);
        // A module of gates alone has no bias.
        let is_apart = matches!(place.names().attention.qkv, QkvNames::Gated { .. });
        let gate_bias = attention.qkv_bias && !is_apart;
        let gate = gate.map(|part| Linear::load(loader, &[part], inputs, gate_bias));
        let slopes = attention
            .alibi
            .as_ref()
            .filter(|_| attention.is_causal)
            .map(|slopes| loader.on_device("the slopes of ALiBi", slopes.to_vec()));
        let sinks =
            attention.sinks.map(|sinks| loader.vector(&place.module(sinks), attention.num_heads));
        let output_norm = attention.output_norm.map(|name| {
            let kind = place.config.norm.kind.of_parts();
            let config = NormConfig { kind, ..place.config.norm };
            Norm::load(loader, &place.module(name), attention.o_size(), config)
        });
        let ones = || vec![1.0; attention.head_dim];
        let values_norm =
            attention.normalizes_values.then(|| loader.on_device("the norm of values", ones()));
        let positions = place.config.max_model_len;
        let distance_biases = match (attention.distance_biases, &attention.alibi) {
            (Some(biases), _) => {
                let num_heads = attention.num_heads;
                Some(relative_positions::load(loader, biases, num_heads, positions)?)
            }
            (None, Some(slopes)) if !attention.is_causal => {
                Some(relative_positions::of_slopes(loader, slopes, positions)?)
            }
            (None, _) => None,
        };
        let params = AttentionParams {
            mask: mask(attention),
            distance_biases,
            soft_cap: attention.soft_cap,
            alibi_slopes: slopes.transpose()?,
            rounds_alibi: attention.rounds_alibi,
            sinks: sinks.transpose()?,
            tensor_cores: loader.tensor_cores(),
            rounds_to_bf16: loader.dtype() == WeightDtype::Bf16,
            ..AttentionParams::new(attention.num_heads, attention.scale)
        };
        params
            .require_place(loader.device())
            .map_err(refused(&place.module(names.attention.o_proj)))?;
        let (heads, across) =
            (heads(loader, place, attention)?, norms_across(loader, place, attention)?);
        let qkv_proj = Linear::load(loader, &qkv, inputs, attention.qkv_bias)?;
        let qkv_proj = disentangled::with_biases(loader, place, attention, qkv_proj)?;
        let disentangled = disentangled::load(loader, place, attention, &qkv_proj)?;
        Ok(Self {
            heads,
            across,
            padding: Padding::of(attention),
            gate: gate.transpose()?,
            gate_form: attention.gate,
            gate_factors: ngpt::of_gates(loader, place, attention)?,
            query_factors: ngpt::of_queries(loader, place, attention)?,
            qkv_proj,
            low_rank: LowRank::load(loader, place, attention)?,
            disentangled,
            o_proj: Linear::load(loader, &[o], attention.o_size(), attention.o_bias)?,
            rotary: rotary.of(attention)?,
            params,
            temperature: attention.temperature,
            values_norm: values_norm.transpose()?,
            values_are_keys: attention.values_are_keys,
            values_padding: Padding::of_values(attention),
            output_norm: output_norm.transpose()?,
            value_scale: attention.value_scale,
            is_causal: attention.is_causal,
            always_causal: attention.always_causal,
            shares_keys: attention.kv_from.is_some(),
            kv_layer: place.kv_layer(),
        })
    }
}

/// Returns the keys that a query sees.
fn mask(attention: &AttentionConfig) -> AttentionMask {
    match (attention.sliding_window, attention.chunk) {
        (Some(window), _) if attention.is_causal => AttentionMask::Sliding(window),
        (Some(window), _) => AttentionMask::Around(window),
        (None, Some(chunk)) if attention.sees_chunk_before => AttentionMask::ChunkPairs(chunk),
        (None, Some(chunk)) => AttentionMask::Chunked(chunk),
        (None, None) if attention.is_causal => AttentionMask::Full,
        (None, None) => AttentionMask::Both,
    }
}

impl TemperatureConfig {
    /// Returns `q`, `[num_tokens, q_size]`, times the factor of each token's position.
    pub(super) fn scaled(self, q: Tensor<2>, positions: &[u32]) -> Tensor<2> {
        let factor = |position: &u32| {
            let steps = ((*position as f32 + self.addend) / self.floor).floor();
            steps.ln_1p() * self.scale + 1.0
        };
        scale_rows(q, &positions.iter().map(factor).collect::<Vec<f32>>())
    }
}
