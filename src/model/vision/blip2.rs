//! The tower of BLIP-2 (HF `Blip2VisionModel`, `Blip2QFormerModel`): learned queries see each other
//! and the states of an image, and become its embeddings.
//!
//! | tensor | shape |
//! |---|---|
//! | pixels of an item | `[1, image_size, image_size, 3]` |
//! | states of an image | `[patches + 1, hidden_size]` |
//! | queries | `[images · queries, qformer_hidden_size]` |
//! | embeddings | `[queries, text_hidden_size]` |

use burn::tensor::Tensor;
use playhouse_kernels::{Activation, profile::timed};

use super::block::{BlockConfig, HeadNorms};
use super::encoder::Tower;
use super::llava::side;
use super::pixels::{PatchSize, Pixels};
use super::qformer::{QFormer, QFormerConfig};
use super::two_towers::no_projector;
use super::vit::{Packing, Patches, VitConfig, VitTower};
use super::vit_names::BLIP2;
use super::{activation, token};
use crate::model::config::{ConfigError, Fields, NormConfig};
use crate::model::family::NormKind;
use crate::model::layers::{Linear, Part};
use crate::model::weight_loader::WeightLoader;
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
    former: QFormerConfig,
    /// The width of the text model.
    outputs: usize,
}

impl Blip2Config {
    /// Reads the fields of `outer` for a text model of the width `outputs`.
    ///
    /// # Errors
    /// [`ConfigError`] if a field has no valid value.
    pub(super) fn read(outer: &Fields, outputs: usize) -> Result<Self, ConfigError> {
        let nested = |name: &str| {
            let found = outer.nested(name)?.unwrap_or_else(|| Fields::empty_in(outer));
            Ok::<Fields, ConfigError>(found)
        };
        let (vision, former) = (nested("vision_config")?, nested("qformer_config")?);
        let vit = vit(&vision)?;
        let (seen, seen_name) = (vit.block.hidden_size, "hidden_size of vision_config");
        Ok(Self {
            images: Blip2Images::read(outer)?,
            vit,
            former: QFormerConfig::read(&former, seen, seen_name)?,
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
    former: QFormer,
    projector: Linear,
    config: Blip2Config,
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
        self.vit.mapped_bytes() + self.former.mapped_bytes() + self.projector.mapped_bytes()
    }
}

impl Blip2Tower {
    /// Returns the embeddings of images with these states.
    fn embeddings(&self, states: Tensor<2>) -> Tensor<2> {
        let [count, _] = states.dims();
        let images = count / self.config.vit.num_embeds();
        let hidden = self.former.forward(&states, images);
        self.projector.forward(hidden, Adapters::none())
    }

    /// Loads the tower.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        config: &Blip2Config,
        pixels: Pixels,
    ) -> Result<Self, ModelError> {
        let Blip2Config { images, ref vit, ref former, outputs } = *config;
        let projector = [Part::new(PROJECTOR.to_owned(), outputs)];
        let queries = (QUERIES, images.num_embeds);
        Ok(Self {
            vit: VitTower::load(loader, TOWER, PROJECTOR, None, vit, pixels)?,
            former: QFormer::load(loader, QFORMER, queries, former)?,
            projector: Linear::of_media(loader, &projector, former.width, true)?,
            config: config.clone(),
        })
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
        assert_eq!((config.vit.num_embeds(), config.former.width), (257, 768));
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
            (
                "qformer_config.position_embedding_type",
                json!({
                    "image_token_index": 7,
                    "qformer_config": { "position_embedding_type": "relative_key" },
                }),
            ),
        ] {
            let why = refused(config);
            assert!(why.contains(&format!("`{field}` is")), "{why}");
        }
    }
}
