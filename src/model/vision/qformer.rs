//! Learned queries that see each other and the states of an item: HF `Blip2QFormerModel`
//! (<https://arxiv.org/abs/2301.12597>).
//!
//! | tensor | shape |
//! |---|---|
//! | states of groups, all of the same number | `[groups · states, seen]` |
//! | queries | `[groups · queries, width]` |

use burn::tensor::{Device, Tensor};
use playhouse_kernels::{
    Activation, AttentionMask, AttentionParams, activate, cross_attention, encoder_attention,
};

use super::activation;
use super::batch::{rows, sequences};
use crate::model::config::{ConfigError, Fields, NormConfig};
use crate::model::family::NormKind;
use crate::model::layers::{Linear, Norm, Part};
use crate::model::weight_loader::{WeightLoader, refused};
use crate::model::{Adapters, ModelError};

/// The sizes of the layers: HF `Blip2QFormerConfig`.
#[derive(Debug, Clone)]
pub(in crate::model) struct QFormerConfig {
    /// The width of the queries.
    pub(in crate::model) width: usize,
    num_heads: usize,
    inner_size: usize,
    num_layers: usize,
    /// The layers from one that sees states to the next.
    every: usize,
    activation: Activation,
    norm: NormConfig,
    /// The width of the states.
    seen: usize,
}

impl QFormerConfig {
    /// Reads the fields of the Q-Former. Its states have the width `seen`, which is `seen_name` in
    /// errors.
    ///
    /// # Errors
    /// [`ConfigError`] if a field has no valid value.
    pub(in crate::model) fn read(
        former: &Fields,
        seen: usize,
        seen_name: &str,
    ) -> Result<Self, ConfigError> {
        const HEADS: &str = "num_attention_heads";
        const SEEN: &str = "encoder_hidden_size";
        const POSITIONS: &str = "position_embedding_type";
        let size = |field: &str, default: usize| {
            Ok::<usize, ConfigError>(former.size(field)?.unwrap_or(default))
        };
        let (width, num_heads) = (size("hidden_size", 768)?, size(HEADS, 12)?);
        if !width.is_multiple_of(num_heads) {
            return Err(former.invalid(HEADS, &format!("a divisor of {width}")));
        }
        if former.size(SEEN)?.is_some_and(|found| found != seen) {
            return Err(former.invalid(SEEN, &format!("{seen}, {seen_name}")));
        }
        // The class of transformers 5 adds no positions. That of earlier versions knew others.
        if former.text(POSITIONS)?.is_some_and(|kind| kind != "absolute") {
            return Err(former.invalid(POSITIONS, "\"absolute\""));
        }
        let eps = former.positive("layer_norm_eps")?.unwrap_or(1e-12) as f32;
        Ok(Self {
            width,
            num_heads,
            inner_size: size("intermediate_size", 3_072)?,
            num_layers: size("num_hidden_layers", 12)?,
            every: size("cross_attention_frequency", 2)?,
            activation: activation(former, "hidden_act", Activation::Gelu)?,
            norm: NormConfig { kind: NormKind::Layer { has_bias: true }, eps },
            seen,
        })
    }
}

/// Queries with their layers.
#[derive(Debug)]
pub(in crate::model) struct QFormer {
    /// `[queries, width]`.
    queries: Vec<f32>,
    width: usize,
    first_norm: Norm,
    layers: Vec<QueryLayer>,
    params: AttentionParams,
    device: Device,
}

impl QFormer {
    /// Loads the layers of `module`, and the tensor `queries` with `num_queries` of them.
    pub(in crate::model) fn load(
        loader: &mut WeightLoader<'_>,
        module: &str,
        (queries, num_queries): (&str, usize),
        config: &QFormerConfig,
    ) -> Result<Self, ModelError> {
        let QFormerConfig { width, num_heads, norm, .. } = *config;
        let params = AttentionParams {
            mask: AttentionMask::Both,
            tensor_cores: loader.tensor_cores(),
            ..AttentionParams::new(num_heads, ((width / num_heads) as f32).powf(-0.5))
        };
        params.require_place(loader.device()).map_err(refused(module))?;
        Ok(Self {
            queries: loader.values(queries, &[1, num_queries, width])?,
            width,
            first_norm: Norm::load(loader, &format!("{module}.layernorm"), width, norm)?,
            layers: (0..config.num_layers)
                .map(|index| QueryLayer::load(loader, module, index, config))
                .collect::<Result<_, _>>()?,
            params,
            device: loader.device().clone(),
        })
    }

    /// Returns the queries of `groups` groups of `states` after the last layer. A group has its own
    /// queries, which see its states alone.
    pub(in crate::model) fn forward(&self, states: &Tensor<2>, groups: usize) -> Tensor<2> {
        let queries = rows(self.queries.repeat(groups), self.width, &self.device);
        let hidden = self.first_norm.forward(queries);
        let layers = self.layers.iter();
        layers.fold(hidden, |hidden, layer| layer.forward(hidden, states, groups, &self.params))
    }

    /// Returns the bytes of weights that are pages of a file.
    pub(in crate::model) fn mapped_bytes(&self) -> u64 {
        self.layers.iter().map(QueryLayer::mapped_bytes).sum()
    }
}

/// One layer of the queries: HF `Blip2QFormerLayer`. Each part ends with a norm of its sum.
#[derive(Debug)]
struct QueryLayer {
    /// The attention of queries to each other.
    own: Attention,
    /// Their attention to the states of a group, if the layer has it.
    seen: Option<Attention>,
    inner: Linear,
    activation: Activation,
    down: Linear,
    norm: Norm,
}

/// One attention.
#[derive(Debug)]
struct Attention {
    q: Linear,
    /// Keys, then values.
    kv: Linear,
    o: Linear,
    norm: Norm,
}

impl Attention {
    fn load(
        loader: &mut WeightLoader<'_>,
        module: &str,
        inputs: usize,
        config: &QFormerConfig,
    ) -> Result<Self, ModelError> {
        let QFormerConfig { width, norm, .. } = *config;
        let part = |name: &str| Part::new(format!("{module}.{name}"), width);
        let kv = [part("attention.key"), part("attention.value")];
        Ok(Self {
            q: Linear::of_media(loader, &[part("attention.query")], width, true)?,
            kv: Linear::of_media(loader, &kv, inputs, true)?,
            o: Linear::of_media(loader, &[part("output.dense")], width, true)?,
            norm: Norm::load(loader, &format!("{module}.output.LayerNorm"), width, norm)?,
        })
    }

    /// Returns the queries, and the keys and values of `states`.
    fn parts(&self, x: Tensor<2>, states: Tensor<2>) -> [Tensor<2>; 3] {
        let q = self.q.forward(x, Adapters::none());
        let kv = self.kv.forward(states, Adapters::none());
        let [count, both] = kv.dims();
        let k = kv.clone().slice([0..count, 0..both / 2]);
        [q, k, kv.slice([0..count, both / 2..both])]
    }

    /// Returns the norm of `x` with the output for `attended`.
    fn output(&self, attended: Tensor<2>, x: Tensor<2>) -> Tensor<2> {
        self.norm.add_forward(self.o.forward(attended, Adapters::none()), Some(x)).0
    }

    fn mapped_bytes(&self) -> u64 {
        [&self.q, &self.kv, &self.o].into_iter().map(Linear::mapped_bytes).sum()
    }
}

impl QueryLayer {
    fn load(
        loader: &mut WeightLoader<'_>,
        module: &str,
        index: usize,
        config: &QFormerConfig,
    ) -> Result<Self, ModelError> {
        let QFormerConfig { width, inner_size, every, norm, seen, .. } = *config;
        let full = |name: &str| format!("{module}.encoder.layer.{index}.{name}");
        let part = |name: &str, outputs: usize| [Part::new(full(name), outputs)];
        let sees = index.is_multiple_of(every);
        let seen = sees.then(|| Attention::load(loader, &full("crossattention"), seen, config));
        let (inner, down) = (part("intermediate_query.dense", inner_size), "output_query.dense");
        Ok(Self {
            seen: seen.transpose()?,
            own: Attention::load(loader, &full("attention"), width, config)?,
            inner: Linear::of_media(loader, &inner, width, true)?,
            activation: config.activation,
            down: Linear::of_media(loader, &part(down, width), inner_size, true)?,
            norm: Norm::load(loader, &full("output_query.LayerNorm"), width, norm)?,
        })
    }

    /// Returns the queries of `groups` groups with these states.
    fn forward(
        &self,
        x: Tensor<2>,
        states: &Tensor<2>,
        groups: usize,
        params: &AttentionParams,
    ) -> Tensor<2> {
        let heads = params.num_heads;
        let [count, width] = x.dims();
        let queries = count / groups;
        let [q, k, v] = self.own.parts(x.clone(), x.clone());
        let sequences = sequences(std::iter::repeat_n(queries, groups));
        let attended = encoder_attention(q, k, v, heads, &sequences, params);
        let mut x = self.own.output(attended, x);
        if let Some(seen) = &self.seen {
            let [q, k, v] = seen.parts(x.clone(), states.clone());
            let places = k.dims()[0] / groups;
            let of_group = |group: usize| {
                let part = |x: &Tensor<2>, len: usize| {
                    x.clone().slice([group * len..(group + 1) * len, 0..width])
                };
                let (k, v) = (part(&k, places), part(&v, places));
                cross_attention(part(&q, queries), k, v, heads, params)
            };
            x = seen.output(Tensor::cat((0..groups).map(of_group).collect(), 0), x);
        }
        let none = Adapters::none();
        let inner = activate(self.inner.forward(x.clone(), none), self.activation);
        self.norm.add_forward(self.down.forward(inner, none), Some(x)).0
    }

    fn mapped_bytes(&self) -> u64 {
        let attentions = std::iter::once(&self.own).chain(&self.seen).map(Attention::mapped_bytes);
        attentions.sum::<u64>() + self.inner.mapped_bytes() + self.down.mapped_bytes()
    }
}
