//! The tower of BLIP-2 (HF `Blip2VisionModel`, `Blip2QFormerModel`): learned queries see each other
//! and the states of an image, and become its embeddings.
//!
//! | tensor | shape |
//! |---|---|
//! | pixels of an item | `[1, image_size, image_size, 3]` |
//! | states of an image | `[patches + 1, hidden_size]` |
//! | queries | `[images · queries, qformer_hidden_size]` |
//! | embeddings | `[queries, text_hidden_size]` |

use burn::tensor::{Device, Tensor};
use playhouse_kernels::{
    Activation, AttentionMask, AttentionParams, activate, cross_attention, encoder_attention,
    profile::timed,
};

use super::batch::{rows, sequences};
use super::block::{BlockConfig, HeadNorms};
use super::encoder::Tower;
use super::llava::side;
use super::pixels::{PatchSize, Pixels};
use super::two_towers::no_projector;
use super::vit::{Packing, Patches, VitConfig, VitTower};
use super::vit_names::BLIP2;
use super::{activation, token};
use crate::model::config::{ConfigError, Fields, NormConfig};
use crate::model::family::NormKind;
use crate::model::layers::{Linear, Norm, Part};
use crate::model::weight_loader::{WeightLoader, refused};
use crate::model::{Adapters, EncoderOutput, MediaInput, ModelError};

const TOWER: &str = "vision_model";
const QFORMER: &str = "qformer";
const QUERIES: &str = "query_tokens";
const PROJECTOR: &str = "language_projection";

/// The facts about the images of BLIP-2 that their processor needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Blip2Images {
    /// The token in the places of embeddings.
    pub(crate) placeholder: u32,
    /// The embeddings of an image.
    pub(crate) num_embeds: usize,
    /// Pixels on a side.
    pub(crate) image_size: usize,
}

impl Blip2Images {
    /// Reads the facts of a model whose `config.json` has the fields `outer`.
    ///
    /// # Errors
    /// [`ConfigError`] if a field has no valid value.
    pub(crate) fn read(outer: &Fields) -> Result<Self, ConfigError> {
        const TOKEN: &str = "image_token_index";
        let vision = outer.nested("vision_config")?.unwrap_or_else(|| Fields::empty_in(outer));
        let placeholder = match token(outer, TOKEN)? {
            Some(placeholder) => Some(placeholder),
            None => token(outer, "image_token_id")?,
        };
        Ok(Self {
            placeholder: placeholder.ok_or_else(|| outer.missing(TOKEN, "a token id"))?,
            num_embeds: outer.size("num_query_tokens")?.unwrap_or(32),
            image_size: side(&vision, "image_size", 224)?,
        })
    }
}

/// The shape of a tower: HF `Blip2VisionConfig`, `Blip2QFormerConfig`.
#[derive(Debug, Clone)]
pub(super) struct Blip2Config {
    pub(super) images: Blip2Images,
    vit: VitConfig,
    /// The width of the queries.
    width: usize,
    num_heads: usize,
    inner_size: usize,
    num_layers: usize,
    /// The layers from one that sees an image to the next.
    every: usize,
    activation: Activation,
    norm: NormConfig,
    /// The width of the text model.
    outputs: usize,
}

impl Blip2Config {
    /// Reads the fields of `outer` for a text model of the width `outputs`.
    ///
    /// # Errors
    /// [`ConfigError`] if a field has no valid value.
    pub(super) fn read(outer: &Fields, outputs: usize) -> Result<Self, ConfigError> {
        const HEADS: &str = "num_attention_heads";
        const SEEN: &str = "encoder_hidden_size";
        let nested = |name: &str| {
            let found = outer.nested(name)?.unwrap_or_else(|| Fields::empty_in(outer));
            Ok::<Fields, ConfigError>(found)
        };
        let (vision, former) = (nested("vision_config")?, nested("qformer_config")?);
        let vit = vit(&vision)?;
        let size = |field: &str, default: usize| {
            Ok::<usize, ConfigError>(former.size(field)?.unwrap_or(default))
        };
        let (width, num_heads) = (size("hidden_size", 768)?, size(HEADS, 12)?);
        if !width.is_multiple_of(num_heads) {
            return Err(former.invalid(HEADS, &format!("a divisor of {width}")));
        }
        let seen = vit.block.hidden_size;
        if former.size(SEEN)?.is_some_and(|found| found != seen) {
            return Err(former.invalid(SEEN, &format!("{seen}, hidden_size of vision_config")));
        }
        let eps = former.positive("layer_norm_eps")?.unwrap_or(1e-12) as f32;
        Ok(Self {
            images: Blip2Images::read(outer)?,
            vit,
            width,
            num_heads,
            inner_size: size("intermediate_size", 3_072)?,
            num_layers: size("num_hidden_layers", 12)?,
            every: size("cross_attention_frequency", 2)?,
            activation: activation(&former, "hidden_act", Activation::Gelu)?,
            norm: NormConfig { kind: NormKind::Layer { has_bias: true }, eps },
            outputs,
        })
    }
}

/// Reads the tower of images.
fn vit(vision: &Fields) -> Result<VitConfig, ConfigError> {
    const HEADS: &str = "num_attention_heads";
    const PATCH: &str = "patch_size";
    let size = |field: &str, default: usize| {
        Ok::<usize, ConfigError>(vision.size(field)?.unwrap_or(default))
    };
    let (hidden_size, num_heads) = (size("hidden_size", 1_408)?, size(HEADS, 16)?);
    if !hidden_size.is_multiple_of(num_heads) {
        return Err(vision.invalid(HEADS, &format!("a divisor of {hidden_size}")));
    }
    let (image_size, patch) = (side(vision, "image_size", 224)?, side(vision, PATCH, 14)?);
    if patch > image_size {
        return Err(vision.invalid(PATCH, &format!("at most image_size, {image_size}")));
    }
    let eps = vision.positive("layer_norm_eps")?.unwrap_or(1e-6) as f32;
    let norm = NormConfig { kind: NormKind::Layer { has_bias: true }, eps };
    Ok(VitConfig {
        names: &BLIP2,
        block: BlockConfig {
            names: &BLIP2.block,
            hidden_size,
            intermediate_size: size("intermediate_size", 6_144)?,
            num_heads,
            num_kv_heads: num_heads,
            norm,
            activation: activation(vision, "hidden_act", Activation::Gelu)?,
            qkv_bias: vision.flag_or("qkv_bias", true)?,
            o_bias: true,
            mlp_bias: true,
            head_norms: HeadNorms::None,
            has_neighbour_pairs: false,
        },
        image_size,
        patch: PatchSize { side: patch, frames: 1 },
        feature_layers: vec![size("num_hidden_layers", 39)?],
        last_norm: Some(norm),
        drops_first: false,
        keeps_class_alone: false,
        packing: Packing::Plain,
        projector: no_projector(hidden_size),
    })
}

/// A tower with its queries.
#[derive(Debug)]
pub(super) struct Blip2Tower {
    vit: VitTower,
    /// `[queries, width]`.
    queries: Vec<f32>,
    first_norm: Norm,
    layers: Vec<QueryLayer>,
    params: AttentionParams,
    projector: Linear,
    config: Blip2Config,
    device: Device,
}

impl Tower for Blip2Tower {
    type Prepared = Patches;

    fn prepare(&self, item: &MediaInput<'_>) -> Result<Patches, String> {
        self.vit.prepare(item)
    }

    fn num_embeds(&self, item: &Patches) -> usize {
        item.count() * self.config.images.num_embeds
    }

    fn run(&self, items: Vec<Patches>) -> Result<Vec<EncoderOutput>, String> {
        let counts: Vec<usize> = items.iter().map(|item| self.num_embeds(item)).collect();
        let states = self.vit.run(items)?.into_iter().map(|output| output.embeddings);
        let states = Tensor::cat(states.collect(), 0);
        let all = timed("queries", || self.embeddings(states));
        let ([_, width], mut first) = (all.dims(), 0);
        let of_item = |count: usize| {
            let (from, to) = (first, first + count);
            first = to;
            let embeddings = all.clone().slice([from..to, 0..width]);
            EncoderOutput { embeddings, by_layer: Vec::new() }
        };
        Ok(counts.into_iter().map(of_item).collect())
    }

    fn mapped_bytes(&self) -> u64 {
        let layers = self.layers.iter().map(QueryLayer::mapped_bytes).sum::<u64>();
        self.vit.mapped_bytes() + layers + self.projector.mapped_bytes()
    }
}

impl Blip2Tower {
    /// Returns the embeddings of images with these states.
    fn embeddings(&self, states: Tensor<2>) -> Tensor<2> {
        let Blip2Config { ref vit, width, .. } = self.config;
        let [count, _] = states.dims();
        let images = count / vit.num_embeds();
        let queries = rows(self.queries.repeat(images), width, &self.device);
        let mut hidden = self.first_norm.forward(queries);
        for layer in &self.layers {
            hidden = layer.forward(hidden, &states, images, &self.params);
        }
        self.projector.forward(hidden, Adapters::none())
    }

    /// Loads the tower.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        config: &Blip2Config,
        pixels: Pixels,
    ) -> Result<Self, ModelError> {
        let Blip2Config { images, ref vit, width, num_heads, norm, outputs, .. } = *config;
        let projector = [Part::new(PROJECTOR.to_owned(), outputs)];
        let params = AttentionParams {
            mask: AttentionMask::Both,
            tensor_cores: loader.tensor_cores(),
            ..AttentionParams::new(num_heads, ((width / num_heads) as f32).powf(-0.5))
        };
        params.require_place(loader.device()).map_err(refused(QFORMER))?;
        Ok(Self {
            vit: VitTower::load(loader, TOWER, PROJECTOR, None, vit, pixels)?,
            queries: loader.values(QUERIES, &[1, images.num_embeds, width])?,
            first_norm: Norm::load(loader, &format!("{QFORMER}.layernorm"), width, norm)?,
            layers: (0..config.num_layers)
                .map(|index| QueryLayer::load(loader, index, config))
                .collect::<Result<_, _>>()?,
            params,
            projector: Linear::of_media(loader, &projector, width, true)?,
            config: config.clone(),
            device: loader.device().clone(),
        })
    }
}

/// One layer of the queries: HF `Blip2QFormerLayer`. Each part ends with a norm of its sum.
#[derive(Debug)]
struct QueryLayer {
    /// The attention of queries to each other.
    own: Attention,
    /// Their attention to the states of an image, if the layer has it.
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
        config: &Blip2Config,
    ) -> Result<Self, ModelError> {
        let Blip2Config { width, norm, .. } = *config;
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
        index: usize,
        config: &Blip2Config,
    ) -> Result<Self, ModelError> {
        let Blip2Config { ref vit, width, inner_size, every, norm, .. } = *config;
        let full = |name: &str| format!("{QFORMER}.encoder.layer.{index}.{name}");
        let part = |name: &str, outputs: usize| [Part::new(full(name), outputs)];
        let sees = index.is_multiple_of(every);
        let seen = sees.then(|| {
            Attention::load(loader, &full("crossattention"), vit.block.hidden_size, config)
        });
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

    /// Returns the queries of `images` images with these states.
    fn forward(
        &self,
        x: Tensor<2>,
        states: &Tensor<2>,
        images: usize,
        params: &AttentionParams,
    ) -> Tensor<2> {
        let heads = params.num_heads;
        let [count, width] = x.dims();
        let queries = count / images;
        let [q, k, v] = self.own.parts(x.clone(), x.clone());
        let sequences = sequences(std::iter::repeat_n(queries, images));
        let attended = encoder_attention(q, k, v, heads, &sequences, params);
        let mut x = self.own.output(attended, x);
        if let Some(seen) = &self.seen {
            let [q, k, v] = seen.parts(x.clone(), states.clone());
            let places = k.dims()[0] / images;
            let of_image = |image: usize| {
                let part = |x: &Tensor<2>, len: usize| {
                    x.clone().slice([image * len..(image + 1) * len, 0..width])
                };
                let (k, v) = (part(&k, places), part(&v, places));
                cross_attention(part(&q, queries), k, v, heads, params)
            };
            x = seen.output(Tensor::cat((0..images).map(of_image).collect(), 0), x);
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::config::fields;

    #[test]
    fn a_tower_has_the_numbers_of_its_class() {
        let config = Blip2Config::read(&fields(json!({ "image_token_index": 7 })), 2_560).unwrap();
        assert_eq!((config.images.placeholder, config.images.num_embeds), (7, 32));
        assert_eq!((config.vit.num_embeds(), config.width), (257, 768));
    }

    #[test]
    fn fields_without_a_valid_value_are_named() {
        let refused =
            |config: Value| Blip2Config::read(&fields(config), 32).unwrap_err().to_string();
        for (field, config) in [
            ("image_token_index", json!({})),
            ("vision_config.patch_size", json!({ "vision_config": { "patch_size": 225 } })),
            (
                "vision_config.num_attention_heads",
                json!({
                    "vision_config": { "num_attention_heads": 7 },
                }),
            ),
            (
                "qformer_config.hidden_act",
                json!({ "image_token_index": 7, "qformer_config": { "hidden_act": "new" } }),
            ),
        ] {
            let why = refused(config);
            assert!(why.contains(&format!("`{field}` is")), "{why}");
        }
    }
}
