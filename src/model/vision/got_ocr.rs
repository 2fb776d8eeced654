//! The tower of GOT-OCR 2 (HF `GotOcr2VisionEncoder`, `GotOcr2MultiModalProjector`): SAM, and a
//! projector that begins with two convolutions.
//!
//! | tensor | shape |
//! |---|---|
//! | pixels of an item | `[1, image_size, image_size, 3]` |
//! | embeddings | `[(side / 4)², text_hidden_size]`, the quotient rounded up |

use burn::tensor::Device;
use playhouse_kernels::{Activation, profile::timed};

use super::batch::rows;
use super::encoder::Tower;
use super::llava::{placeholder, side};
use super::pixels::{Images, PatchSize, Pixels};
use super::sam::{NORM, Sam, SamConfig, SamNames, WINDOWS, features_on_side};
use super::{VisionFamily, activation, stored};
use crate::model::config::{ConfigError, Fields, NormConfig};
use crate::model::layers::{Linear, Part};
use crate::model::weight_loader::WeightLoader;
use crate::model::{Adapters, EncoderOutput, MediaInput, ModelError};

/// The places of the parts, in checkpoints of different versions of transformers.
const TOWERS: &[&str] = &["vision_tower", "model.vision_tower"];
const PROJECTORS: &[&str] = &["multi_modal_projector", "model.multi_modal_projector"];
const CONVS: [&str; 2] = ["conv_upsampler1", "conv_upsampler2"];

/// HF `GotOcr2VisionEncoder`.
const NAMES: SamNames = SamNames {
    patches: "patch_embed.projection",
    layer: "layers",
    norms: ["layer_norm1", "layer_norm2"],
    neck: ["neck.conv1", "neck.layer_norm1", "neck.conv2", "neck.layer_norm2"],
};

/// The shape of a tower: HF `GotOcr2VisionConfig`.
#[derive(Debug, Clone)]
pub(super) struct GotConfig {
    sam: SamConfig,
    image_size: usize,
    /// The width of the text model.
    outputs: usize,
}

impl GotConfig {
    /// Reads the fields of `vision_config` for a text model of the width `outputs`.
    ///
    /// # Errors
    /// [`ConfigError`] if a field has no valid value.
    pub(super) fn read(fields: &Fields, outputs: usize) -> Result<Self, ConfigError> {
        const HEADS: &str = "num_attention_heads";
        const PATCH: &str = "patch_size";
        const WINDOW: &str = "window_size";
        const GLOBAL: &str = "global_attn_indexes";
        let size = |field: &str, default: usize| {
            Ok::<usize, ConfigError>(fields.size(field)?.unwrap_or(default))
        };
        let (hidden_size, num_heads) = (size("hidden_size", 768)?, size(HEADS, 12)?);
        if !hidden_size.is_multiple_of(num_heads) {
            return Err(fields.invalid(HEADS, &format!("a divisor of {hidden_size}")));
        }
        if fields.size("num_channels")?.is_some_and(|channels| channels != 3) {
            return Err(fields.invalid("num_channels", "3"));
        }
        for positions in ["use_abs_pos", "use_rel_pos"] {
            if !fields.flag_or(positions, true)? {
                return Err(fields.invalid(positions, "true"));
            }
        }
        let (image_size, patch) = (side(fields, "image_size", 1_024)?, side(fields, PATCH, 16)?);
        if !image_size.is_multiple_of(patch) || image_size / patch < 2 {
            let expected = format!("a divisor of image_size, {image_size}, and less than it");
            return Err(fields.invalid(PATCH, &expected));
        }
        let window = size(WINDOW, 14)?;
        if !WINDOWS.contains(&window) {
            let expected = format!("{} to {}", WINDOWS.start(), WINDOWS.end());
            return Err(fields.invalid(WINDOW, &expected));
        }
        let global_layers = match fields.value(GLOBAL) {
            None => vec![2, 5, 8, 11],
            Some(_) => fields.indices(GLOBAL)?,
        };
        let neck = size("output_channels", 256)?;
        let eps = fields.positive("layer_norm_eps")?.map_or(NORM.eps, |eps| eps as f32);
        let sam = SamConfig {
            names: &NAMES,
            hidden_size,
            mlp_size: size("mlp_dim", 3_072)?,
            num_layers: size("num_hidden_layers", 12)?,
            num_heads,
            qkv_bias: fields.flag_or("qkv_bias", true)?,
            norm: NormConfig { eps, ..NORM },
            activation: activation(fields, "hidden_act", Activation::Gelu)?,
            patch: PatchSize { side: patch, frames: 1 },
            positions_side: image_size / patch,
            window,
            global_layers,
            channels: [neck, 2 * neck, outputs],
        };
        Ok(Self { sam, image_size, outputs })
    }

    /// Returns the embeddings of an image.
    fn num_embeds(&self) -> usize {
        features_on_side(self.sam.positions_side).pow(2)
    }
}

/// The facts about the images of GOT-OCR 2 that their processor needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GotImages {
    /// The token in the places of embeddings.
    pub(crate) placeholder: u32,
    /// The embeddings of an image.
    pub(crate) num_embeds: usize,
    /// Pixels on a side.
    pub(crate) image_size: usize,
}

impl GotImages {
    /// Reads the facts of a model whose `config.json` has the fields `outer`.
    ///
    /// # Errors
    /// [`ConfigError`] if a field has no valid value.
    pub(crate) fn read(outer: &Fields) -> Result<Self, ConfigError> {
        let vision = outer.nested("vision_config")?.unwrap_or_else(|| Fields::empty_in(outer));
        let config = GotConfig::read(&vision, 1)?;
        Ok(Self {
            placeholder: placeholder(outer, VisionFamily::GotOcr2)?,
            num_embeds: config.num_embeds(),
            image_size: config.image_size,
        })
    }
}

/// A tower with its projector.
#[derive(Debug)]
pub(super) struct GotTower {
    sam: Sam,
    projector: Linear,
    pixels: Pixels,
    config: GotConfig,
    device: Device,
}

/// The patches of an item's images.
#[derive(Debug)]
pub(super) struct Patches {
    count: usize,
    values: Vec<f32>,
}

impl Tower for GotTower {
    type Prepared = Patches;

    fn prepare(&self, item: &MediaInput<'_>) -> Result<Patches, String> {
        let images = Images::read(item.tensors.first())?;
        let GotConfig { ref sam, image_size, .. } = self.config;
        let values = self.pixels.tiles(images, sam.patch, image_size)?;
        Ok(Patches { count: images.count, values })
    }

    fn num_embeds(&self, item: &Patches) -> usize {
        item.count * self.config.num_embeds()
    }

    fn run(&self, items: Vec<Patches>) -> Result<Vec<EncoderOutput>, String> {
        let counts: Vec<usize> = items.iter().map(|item| self.num_embeds(item)).collect();
        let values: Vec<f32> = items.into_iter().flat_map(|item| item.values).collect();
        let patches = rows(values, self.config.sam.patch.len(), &self.device);
        let features = self.sam.forward(patches, 0);
        let all = timed("projector", || self.projector.forward(features, Adapters::none()));
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
        self.sam.mapped_bytes() + self.projector.mapped_bytes()
    }
}

impl GotTower {
    /// Loads the tower.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        config: &GotConfig,
        pixels: Pixels,
    ) -> Result<Self, ModelError> {
        let GotConfig { ref sam, outputs, .. } = *config;
        let module = stored(loader, TOWERS, "pos_embed");
        let projector = stored(loader, PROJECTORS, &format!("{}.weight", CONVS[0]));
        let behind = CONVS.map(|name| format!("{projector}.{name}"));
        let last = [Part::new(format!("{projector}.multimodal_projector"), outputs)];
        let sides = [sam.positions_side];
        Ok(Self {
            sam: Sam::load(loader, module, [&behind[0], &behind[1]], &sides, sam)?,
            projector: Linear::of_media(loader, &last, outputs, true)?,
            pixels,
            config: config.clone(),
            device: loader.device().clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::config::fields;

    #[test]
    fn a_page_has_256_embeddings() {
        let images = GotImages::read(&fields(json!({}))).unwrap();
        assert_eq!((images.placeholder, images.num_embeds), (151_859, 256));
    }

    #[test]
    fn fields_without_a_valid_value_are_named() {
        let refused = |config: Value| GotConfig::read(&fields(config), 32).unwrap_err().to_string();
        for (field, value) in [
            ("num_attention_heads", json!(7)),
            ("num_channels", json!(4)),
            ("use_rel_pos", json!(false)),
            ("use_abs_pos", json!(false)),
            ("patch_size", json!(15)),
            ("window_size", json!(1)),
            ("window_size", json!(129)),
            ("global_attn_indexes", json!([-1])),
            ("hidden_act", json!("new_act")),
        ] {
            let why = refused(json!({ field: value }));
            assert!(why.contains(&format!("`{field}` is")), "{why}");
        }
    }
}
