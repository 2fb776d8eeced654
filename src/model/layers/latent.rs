//! Multi-head latent attention in its absorbed form (<https://arxiv.org/abs/2405.04434>): HF
//! `DeepseekV3Attention`.
//!
//! | tensor | shape |
//! |---|---|
//! | q, as projected | `[num_tokens, num_heads * (qk_nope_head_dim + qk_rope_head_dim)]` |
//! | q over latents | `[num_tokens, num_heads * (kv_lora_rank + qk_rope_head_dim)]` |
//! | keys in the cache | `[num_tokens, kv_lora_rank + qk_rope_head_dim]` |
//! | sums of latents | `[num_tokens, num_heads * kv_lora_rank]` |
//! | values | `[num_tokens, num_heads * v_head_dim]` |
//!
//! The matrix of `kv_b_proj` is cut at load into the keys' and the values' matrices of each head,
//! which stay floats. GGUF files have them one by one. The header of the kernels' `latent` explains
//! the form.

use std::sync::Arc;

use burn::tensor::Tensor;
use playhouse_kernels::{
    Activation, AttentionMask, AttentionParams, LatentNorm, LatentProjections, LinearWeight,
    RotaryTable, WeightView, activate, cache_keys, encoder_attention, latent_keys, latent_queries,
    latent_values, paged_attention, profile::timed, scale,
};

use super::arrangement::{Arrangement, Part, neighbours_apart};
use super::attention::times_by_head;
use super::rotary::RotaryTables;
use super::{LayerPlace, Linear, Norm};
use crate::model::adapters::SiteId;
use crate::model::config::{LatentConfig, Mixer, NormConfig, TemperatureConfig};
use crate::model::family::{KvNames, NormKind};
use crate::model::weight_loader::{WeightLoader, refused};
use crate::model::{Adapters, ModelError, Positions, Step};

/// The latent attention of one layer.
#[derive(Debug)]
pub(in crate::model) struct LatentAttention {
    queries: Queries,
    kv_a_proj: Linear,
    kv_a_norm: LatentNorm,
    /// The width of a latent.
    rank: usize,
    projections: LatentProjections,
    /// The gates of heads' outputs, before their sigmoid.
    gate: Option<Linear>,
    /// Where adapters change the matrices of heads, if these are of one module.
    sites: Option<HeadSites>,
    o_proj: Linear,
    rotary: Arc<RotaryTable>,
    params: AttentionParams,
    temperature: Option<TemperatureConfig>,
    /// Whether a token attends to no token after it.
    is_causal: bool,
    /// The layer of the KV cache that holds its latents.
    kv_layer: usize,
}

/// The sites of the matrices of each head: keys', and values'.
#[derive(Debug)]
struct HeadSites {
    keys: Vec<SiteId>,
    values: Vec<SiteId>,
}

/// The projections of queries.
#[derive(Debug)]
enum Queries {
    One(Box<Linear>),
    LowRank(Box<LowRank>),
}

/// A projection to a small width, a norm, and a projection to the queries of all heads.
#[derive(Debug)]
struct LowRank {
    a: Linear,
    norm: Norm,
    /// The factor of the norm.
    scale: f32,
    b: Linear,
}

impl Queries {
    fn forward(&self, x: Tensor<2>, adapters: Adapters<'_>) -> Tensor<2> {
        match self {
            Self::One(q_proj) => q_proj.forward(x, adapters),
            Self::LowRank(low) => {
                let latent = low.norm.forward(low.a.forward(x, adapters));
                let latent = if low.scale == 1.0 { latent } else { scale(latent, low.scale) };
                low.b.forward(latent, adapters)
            }
        }
    }

    fn mapped_bytes(&self) -> u64 {
        match self {
            Self::One(q_proj) => q_proj.mapped_bytes(),
            Self::LowRank(low) => low.a.mapped_bytes() + low.b.mapped_bytes(),
        }
    }
}

impl LatentAttention {
    /// Maps `[num_tokens, hidden]` to the same shape. Causal attention writes the latents of these
    /// tokens into the step's cache.
    pub(in crate::model) fn forward(
        &self,
        x: Tensor<2>,
        positions: Positions<'_>,
        step: &mut Step<'_>,
    ) -> Tensor<2> {
        let adapters = step.adapters();
        let gate = self.gate.as_ref().map(|gate| gate.forward(x.clone(), adapters));
        let in_sequence = positions.in_sequence();
        let (positions, rotary) = positions.of_own_table(&self.rotary);
        let (q, keys) = timed("qkv", || {
            (self.queries.forward(x.clone(), adapters), self.kv_a_proj.forward(x, adapters))
        });
        let q = match self.temperature {
            None => q,
            Some(temperature) => temperature.scaled(q, in_sequence),
        };
        let q = timed("absorb", || self.absorbed(q, positions, rotary, adapters));
        let keys = timed("qk_norm_rope", || latent_keys(keys, &self.kv_a_norm, positions, rotary));
        let latents = match self.is_causal {
            true => {
                let (meta, kv) = step.layer(self.kv_layer);
                timed("kv_write", || cache_keys(keys, kv, &meta.slot_mapping));
                timed("attention", || paged_attention(q, kv, meta, &self.params))
            }
            false => timed("attention", || self.of_whole(q, keys, step)),
        };
        let values = timed("expand", || self.expanded(latents, adapters));
        let values = match gate {
            None => values,
            Some(gate) => times_by_head(values, activate(gate, Activation::Sigmoid)),
        };
        timed("o", || self.o_proj.forward(values, adapters))
    }

    /// Returns the sums of latents, `[num_tokens, num_heads * kv_lora_rank]`, of attention to both
    /// sides. A value is the latent of its key, which begins the key.
    fn of_whole(&self, q: Tensor<2>, keys: Tensor<2>, step: &Step<'_>) -> Tensor<2> {
        let ([tokens, key], num_heads) = (keys.dims(), self.params.num_heads);
        let sums = encoder_attention(q, keys.clone(), keys, 1, step.batch(), &self.params);
        let sums = sums.reshape([tokens * num_heads, key]).narrow(1, 0, self.rank);
        sums.reshape([tokens, num_heads * self.rank])
    }

    /// Returns the queries over latents. The product of an adapter of `kv_b_proj` is that of the
    /// transposed matrices. It is added after the rotation, which leaves these elements alone.
    fn absorbed(
        &self,
        q: Tensor<2>,
        positions: &[u32],
        rotary: &RotaryTable,
        adapters: Adapters<'_>,
    ) -> Tensor<2> {
        let sites = self.sites.as_ref().filter(|sites| adapters.change_any(&sites.keys));
        let Some(HeadSites { keys, .. }) = sites else {
            return latent_queries(q, &self.projections, positions, rotary);
        };
        let y = latent_queries(q.clone(), &self.projections, positions, rotary);
        by_head(keys, y, q, adapters)
    }

    /// Returns the values of sums of latents.
    fn expanded(&self, latents: Tensor<2>, adapters: Adapters<'_>) -> Tensor<2> {
        let sites = self.sites.as_ref().filter(|sites| adapters.change_any(&sites.values));
        let Some(HeadSites { values, .. }) = sites else {
            return latent_values(latents, &self.projections);
        };
        let y = latent_values(latents.clone(), &self.projections);
        by_head(values, y, latents, adapters)
    }

    /// Returns the bytes of weights that are pages of a file.
    pub(in crate::model) fn mapped_bytes(&self) -> u64 {
        let projections = self.projections.mapped_bytes() as u64;
        let gate = self.gate.as_ref().map_or(0, Linear::mapped_bytes);
        let linears = self.kv_a_proj.mapped_bytes() + self.o_proj.mapped_bytes() + gate;
        self.queries.mapped_bytes() + projections + linears
    }

    /// Loads the latent attention of the layer at `place`.
    pub(in crate::model) fn load(
        loader: &mut WeightLoader<'_>,
        place: LayerPlace<'_>,
        latent: &LatentConfig,
        rotary: &mut RotaryTables<'_>,
    ) -> Result<Self, ModelError> {
        Self::of_inputs(loader, place, latent, rotary, place.config.hidden_size)
    }

    /// Loads attention whose queries, keys and values are projections of `inputs` elements.
    pub(in crate::model) fn of_inputs(
        loader: &mut WeightLoader<'_>,
        place: LayerPlace<'_>,
        latent: &LatentConfig,
        rotary: &mut RotaryTables<'_>,
        inputs: usize,
    ) -> Result<Self, ModelError> {
        let parts = LatentParts::of(place, latent);
        let LatentConfig { kv_lora_rank, bias, norm_eps: eps, .. } = *latent;
        let queries = match &parts.queries {
            QueryParts::One(part) => Queries::One(Box::new(Linear::load(
                loader,
                std::slice::from_ref(part),
                inputs,
                false,
            )?)),
            QueryParts::LowRank { a, norm, b } => {
                let config = NormConfig { kind: NormKind::Rms, eps };
                Queries::LowRank(Box::new(LowRank {
                    a: Linear::load(loader, std::slice::from_ref(a), inputs, bias)?,
                    norm: Norm::load(loader, norm, a.outputs, config)?,
                    scale: latent.norm_scales[0],
                    b: Linear::load(loader, std::slice::from_ref(b), a.outputs, false)?,
                }))
            }
        };
        let norm = format!("{}.weight", parts.kv_a_norm);
        let mut weight = loader.values(&norm, &[kv_lora_rank])?;
        weight.iter_mut().for_each(|weight| *weight *= latent.norm_scales[1]);
        let kv_a_norm = LatentNorm { weight: loader.on_device(&norm, weight)?, eps };
        let o_size = latent.num_heads * latent.v_head_dim;
        let gate = parts.gate.map(|part| Linear::load(loader, &[part], inputs, false));
        Ok(Self {
            queries,
            kv_a_proj: Linear::load(loader, &[parts.kv_a], inputs, bias)?,
            kv_a_norm,
            rank: kv_lora_rank,
            gate: gate.transpose()?,
            projections: projections(loader, latent, &parts.kv_b)?,
            sites: head_sites(loader, place, latent),
            o_proj: Linear::load(loader, &[parts.o], o_size, bias)?,
            rotary: rotary.with(&latent.rope)?,
            params: AttentionParams {
                mask: if latent.is_causal { AttentionMask::Full } else { AttentionMask::Both },
                ..AttentionParams::new(latent.num_heads, latent.scale)
            },
            temperature: latent.temperature,
            is_causal: latent.is_causal,
            kv_layer: place.index,
        })
    }
}

/// Adds the products of adapters to y, `[num_tokens, num_heads * outputs]`, head by head.
fn by_head(sites: &[SiteId], y: Tensor<2>, x: Tensor<2>, adapters: Adapters<'_>) -> Tensor<2> {
    let ([tokens, outputs], [_, inputs]) = (y.dims(), x.dims());
    let heads = sites.len();
    let of_heads = |tensor: Tensor<2>, width| tensor.reshape([tokens * heads, width / heads]);
    let y = adapters.add_by_head(sites, of_heads(y, outputs), of_heads(x, inputs));
    y.reshape([tokens, outputs])
}

/// Registers the matrices of heads, which are rows of one module of a Hugging Face folder.
fn head_sites(
    loader: &mut WeightLoader<'_>,
    place: LayerPlace<'_>,
    latent: &LatentConfig,
) -> Option<HeadSites> {
    let original = place.original();
    let Mixer::Latent(known) = &original.layer().mixer else { return None };
    let KvParts::One(Part { module, outputs, .. }) = LatentParts::of(original, known).kv_b else {
        return None;
    };
    let LatentConfig { num_heads, kv_lora_rank: rank, qk_nope_head_dim: nope, .. } = *latent;
    let (value, rope) = (latent.v_head_dim, latent.qk_rope_head_dim);
    let part = |first: usize, count: usize| {
        let rows = first as u32..(first + count) as u32;
        Part::some_rows(module.clone(), rows, outputs)
    };
    let sites = loader.adapter_sites();
    let mut of_head = |head: usize| {
        let first = head * (nope + value);
        let values = sites.add(&[part(first + nope, value)], rank);
        (sites.add_turned(part(first, nope), rank, rope), values)
    };
    let (keys, values) = (0..num_heads).map(&mut of_head).unzip();
    Some(HeadSites { keys, values })
}

/// Loads the matrices of heads.
fn projections(
    loader: &mut WeightLoader<'_>,
    latent: &LatentConfig,
    parts: &KvParts,
) -> Result<LatentProjections, ModelError> {
    match parts {
        KvParts::One(part) => cut(loader, latent, part),
        KvParts::Halves([keys, values]) => halves(loader, latent, [keys, values]),
    }
}

/// Loads the matrices of heads from two modules that have them one by one.
fn halves(
    loader: &mut WeightLoader<'_>,
    latent: &LatentConfig,
    modules: [&Part; 2],
) -> Result<LatentProjections, ModelError> {
    let LatentConfig { num_heads, kv_lora_rank: rank, qk_nope_head_dim: nope, .. } = *latent;
    let mut matrices = |part: &Part, inputs: usize| {
        let load = |head| {
            let part = part.clone().of(head, num_heads);
            let shape = [part.outputs, inputs];
            loader.packed(&part.unique_name(), shape, |loader| {
                let elements = values(loader, &part, inputs)?;
                let views = [WeightView::F32(&elements)];
                LinearWeight::pack(&views, inputs, loader.dtype(), loader.device())
                    .map_err(refused(&part.module))
            })
        };
        (0..num_heads).map(load).collect::<Result<Vec<_>, ModelError>>()
    };
    let [keys, values] = modules;
    let (keys, values) = (matrices(keys, nope)?, matrices(values, rank)?);
    let module = &modules[0].module;
    LatentProjections::new(keys, values, latent.qk_rope_head_dim).map_err(refused(module))
}

/// Cuts the matrix of `part`, `[num_heads * (nope + value), rank]`, into those of heads.
fn cut(
    loader: &mut WeightLoader<'_>,
    latent: &LatentConfig,
    part: &Part,
) -> Result<LatentProjections, ModelError> {
    let LatentConfig { num_heads, kv_lora_rank: rank, .. } = *latent;
    let (nope, value) = (latent.qk_nope_head_dim, latent.v_head_dim);
    // With a cache of packed weights, the matrix may not be needed.
    let mut matrix: Option<Vec<f32>> = None;
    let mut head = |loader: &mut WeightLoader<'_>, head: usize, is_key: bool| {
        let (kind, shape) = if is_key { ("keys", [rank, nope]) } else { ("values", [value, rank]) };
        loader.packed(&format!("{}.{kind}.{head}", part.module), shape, |loader| {
            let matrix = match &mut matrix {
                Some(matrix) => matrix,
                none => none.insert(values(loader, part, rank)?),
            };
            let rows = &matrix[head * (nope + value) * rank..][..(nope + value) * rank];
            let (key, value) = rows.split_at(nope * rank);
            let turned: Vec<f32>;
            let elements = match is_key {
                false => value,
                true => {
                    let column = |i: usize| key.iter().skip(i).step_by(rank).copied();
                    turned = (0..rank).flat_map(column).collect();
                    &turned
                }
            };
            let views = [WeightView::F32(elements)];
            LinearWeight::pack(&views, shape[1], loader.dtype(), loader.device())
                .map_err(refused(&part.module))
        })
    };
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    for index in 0..num_heads {
        keys.push(head(loader, index, true)?);
        values.push(head(loader, index, false)?);
    }
    LatentProjections::new(keys, values, latent.qk_rope_head_dim).map_err(refused(&part.module))
}

/// Returns the elements of a matrix, row-major.
fn values(
    loader: &mut WeightLoader<'_>,
    part: &Part,
    inputs: usize,
) -> Result<Vec<f32>, ModelError> {
    let matrix = loader.part(part, inputs)?;
    let values = matrix.values(loader.dtype()).view().to_f32();
    loader.release(&matrix);
    loader.count(matrix.tensor_count, matrix.size_bytes);
    Ok(values)
}

/// The modules of a latent attention in the checkpoint.
pub(in crate::model) struct LatentParts {
    pub(in crate::model) queries: QueryParts,
    pub(in crate::model) kv_a: Part,
    pub(in crate::model) kv_a_norm: String,
    pub(in crate::model) kv_b: KvParts,
    pub(in crate::model) gate: Option<Part>,
    pub(in crate::model) o: Part,
}

/// The modules of the projection from the latent.
pub(in crate::model) enum KvParts {
    One(Part),
    /// The keys of all heads, then their values, each a matrix for each head.
    Halves([Part; 2]),
}

/// The modules of the projections of queries.
pub(in crate::model) enum QueryParts {
    One(Part),
    LowRank { a: Part, norm: String, b: Part },
}

impl LatentParts {
    /// Returns the modules of the layer at `place`. Rotating rows of neighbours come apart, because
    /// the kernels' pairs are an element of each half.
    pub(in crate::model) fn of(place: LayerPlace<'_>, latent: &LatentConfig) -> Self {
        let names = latent.names;
        let LatentConfig { num_heads, kv_lora_rank, qk_nope_head_dim, .. } = *latent;
        let part = |name, outputs| Part::new(place.module(name), outputs);
        let with_rope = |name, heads: usize, kept: usize| {
            let outputs = heads * (kept + latent.qk_rope_head_dim);
            let arrangement = arrangement(latent, heads, kept);
            Part { arrangement, ..part(name, outputs) }
        };
        let queries = match latent.q_lora_rank {
            None => QueryParts::One(with_rope(names.q_proj, num_heads, qk_nope_head_dim)),
            Some(rank) => QueryParts::LowRank {
                a: part(names.q_a_proj, rank),
                norm: place.module(names.q_a_norm),
                b: with_rope(names.q_b_proj, num_heads, qk_nope_head_dim),
            },
        };
        Self {
            queries,
            kv_a: with_rope(names.kv_a_proj, 1, kv_lora_rank),
            kv_a_norm: place.module(names.kv_a_norm),
            kv_b: match names.kv_b_proj {
                KvNames::One(name) => KvParts::One(part(name, latent.kv_size())),
                KvNames::Halves([keys, values]) => KvParts::Halves(
                    [(keys, kv_lora_rank), (values, latent.v_head_dim)]
                        .map(|(name, outputs)| part(name, outputs).of(0, num_heads)),
                ),
            },
            gate: latent.gate.map(|name| part(name, num_heads)),
            o: part(place.names().attention.o_proj, place.config.hidden_size),
        }
    }
}

/// Returns the order of the rows of heads that have `kept` elements before the rotating ones.
fn arrangement(latent: &LatentConfig, heads: usize, kept: usize) -> Arrangement {
    let Some(turned) = neighbours_apart(&latent.rope) else { return Arrangement::AsStored };
    let (kept, width) = (kept as u32, kept + latent.qk_rope_head_dim);
    let head = || (0..kept).chain(turned.iter().map(move |row| kept + row));
    let rows = (0..heads).flat_map(|index| head().map(move |row| (index * width) as u32 + row));
    Arrangement::Rows(rows.collect())
}
