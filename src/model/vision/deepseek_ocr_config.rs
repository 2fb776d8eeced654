//! The tower of DeepSeek-OCR, and the images of its two versions, as the fields of `config.json`
//! and of their processors describe them. Published files leave most numbers to the code of the
//! authors and of vLLM.

use playhouse_kernels::Activation;

use super::VisionFamily;
use super::block::{BlockConfig, BlockNames, HeadNorms};
use super::pixels::PatchSize;
use super::sam::{NORM, SamConfig, SamNames, WINDOWS, features_on_side};
use super::vit_names::CLIP;
use crate::model::config::{ConfigError, Fields, NormConfig, SIZE_MAX};
use crate::model::family::NormKind;

/// `ImageEncoderViT` of the authors.
const SAM_NAMES: SamNames = SamNames {
    patches: "patch_embed.proj",
    layer: "blocks",
    norms: ["norm1", "norm2"],
    neck: ["neck.0", "neck.1", "neck.2", "neck.3"],
};
/// `NoTPTransformerBlock` of the authors.
const CLIP_BLOCK: BlockNames = BlockNames { qkv: &["self_attn.qkv_proj"], ..CLIP.block };
/// The module of CLIP's layers.
pub(super) const CLIP_LAYER: &str = "transformer.layers";
const CLIP_NORM: NormConfig = NormConfig { kind: NormKind::Layer { has_bias: true }, eps: 1e-5 };

/// Pixels on a side of a patch.
pub(super) const PATCH: usize = 16;
/// The largest side of a view in pixels.
const SIDE_MAX: usize = 2_048;
/// The most tiles that a config may ask for.
const TILES_MAX: usize = 64;

/// The sizes of an image's views: the image as a whole, and its tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OcrViews {
    /// Pixels on a side of the whole image.
    pub(crate) base: usize,
    /// Pixels on a side of a tile.
    pub(crate) tile: usize,
    /// The most tiles.
    pub(crate) most: usize,
    /// Whether each row of embeddings has an end, so that tiles are joined row by row. Without, the
    /// tiles follow each other.
    pub(crate) has_ends: bool,
}

impl OcrViews {
    /// The text of the token in the places of embeddings.
    pub(crate) const TOKEN: &str = "<image>";
    /// The least tiles of an image that is cut.
    pub(crate) const LEAST: usize = 2;

    /// Reads the fields of the processor of a model of `family`, one of the two versions. Published
    /// files leave all to the code of the authors and of vLLM.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] if a field has no valid value.
    pub(crate) fn read(family: VisionFamily, fields: &Fields) -> Result<Self, ConfigError> {
        const MOST: &str = "max_crops";
        for (field, only) in [("patch_size", PATCH), ("downsample_ratio", 4)] {
            if fields.size(field)?.is_some_and(|size| size != only) {
                return Err(fields.invalid(field, &only.to_string()));
            }
        }
        let side = |field: &str, default: usize| {
            let side = fields.size(field)?.unwrap_or(default);
            match side.is_multiple_of(PATCH) && (2 * PATCH..=SIDE_MAX).contains(&side) {
                true => Ok(side),
                false => {
                    let expected =
                        format!("a multiple of {PATCH} from {} on, up to {SIDE_MAX}", 2 * PATCH);
                    Err(fields.invalid(field, &expected))
                }
            }
        };
        let most = fields.size(MOST)?.unwrap_or(6);
        if !(Self::LEAST..=TILES_MAX).contains(&most) {
            return Err(fields.invalid(MOST, &format!("{} to {TILES_MAX}", Self::LEAST)));
        }
        let has_ends = family == VisionFamily::DeepseekOcr;
        let tile = side("image_size", if has_ends { 640 } else { 768 })?;
        Ok(Self { base: side("base_size", 1_024)?, tile, most, has_ends })
    }

    /// Returns the embeddings on a side of the whole image and of a tile.
    pub(super) fn squares(self) -> [usize; 2] {
        [self.base, self.tile].map(|side| features_on_side(side / PATCH))
    }

    /// Returns the embeddings of an image with tiles in these rows and columns.
    pub(crate) fn num_embeds(self, grid: Option<[usize; 2]>) -> usize {
        let [of_whole, of_tile] = self.squares();
        let end = usize::from(self.has_ends);
        let local = grid.map_or(0, |[rows, columns]| rows * of_tile * (columns * of_tile + end));
        local + of_whole * (of_whole + end) + 1
    }

    /// Returns the most embeddings of an image.
    pub(crate) fn most_embeds(self) -> usize {
        // Each row of tiles has ends of its own.
        self.num_embeds(Some([self.most, 1]))
    }
}

/// The shape of a tower.
#[derive(Debug, Clone)]
pub(super) struct OcrConfig {
    pub(super) sam: SamConfig,
    pub(super) clip: BlockConfig,
    pub(super) clip_layers: usize,
    /// Places on a side of CLIP's grid of learned positions.
    pub(super) clip_side: usize,
    pub(super) views: OcrViews,
    /// The width of the text model.
    pub(super) outputs: usize,
}

impl OcrConfig {
    /// Reads the fields of `outer` and of its `vision_config` for a text model of the width
    /// `outputs`. `processor` are the fields of the processor.
    ///
    /// # Errors
    /// [`ConfigError`] if a field has no valid value.
    pub(super) fn read(
        outer: &Fields,
        vision: &Fields,
        processor: &Fields,
        outputs: usize,
    ) -> Result<Self, ConfigError> {
        require(outer, "tile_tag", "2D")?;
        require(vision, "model_name", "deeplip_b_l")?;
        let or_empty = |nested: Option<Fields>| nested.unwrap_or_else(|| Fields::empty_in(vision));
        let widths = or_empty(vision.nested("width")?);
        let sam = sam(vision, &or_empty(widths.nested("sam_vit_b")?))?;
        let of_clip = or_empty(widths.nested("clip-l-14-224")?);
        let (clip, clip_side) = clip(&of_clip)?;
        let [.., channels] = sam.channels;
        if channels != clip.hidden_size {
            let expected = format!("{channels}, the last of downsample_channels");
            return Err(of_clip.invalid("width", &expected));
        }
        require_projector(outer, [2 * channels, outputs])?;
        let clip_layers = of_clip.size("layers")?.unwrap_or(24);
        let views = OcrViews::read(VisionFamily::DeepseekOcr, processor)?;
        Ok(Self { sam, clip, clip_layers, clip_side, views, outputs })
    }
}

/// Refuses another projector than a linear layer of these inputs and outputs.
pub(super) fn require_projector(
    outer: &Fields,
    [inputs, outputs]: [usize; 2],
) -> Result<(), ConfigError> {
    let Some(projector) = outer.nested("projector_config")? else { return Ok(()) };
    require(&projector, "projector_type", "linear")?;
    for (field, size) in [("input_dim", inputs), ("n_embed", outputs)] {
        if projector.size(field)?.is_some_and(|found| found != size) {
            return Err(projector.invalid(field, &size.to_string()));
        }
    }
    Ok(())
}

/// Rejects another value of a field that has one.
pub(super) fn require(fields: &Fields, field: &str, accepted: &str) -> Result<(), ConfigError> {
    match fields.text(field)?.is_none_or(|text| text == accepted) {
        true => Ok(()),
        false => Err(fields.invalid(field, &format!("\"{accepted}\""))),
    }
}

/// Returns the sizes in `fields` of a tower's width, heads and layers.
fn sizes(fields: &Fields, defaults: [usize; 2]) -> Result<[usize; 2], ConfigError> {
    const HEADS: &str = "heads";
    let [width, heads] = defaults;
    let width = fields.size("width")?.unwrap_or(width);
    let heads = fields.size(HEADS)?.unwrap_or(heads);
    match width.is_multiple_of(heads) {
        true => Ok([width, heads]),
        false => Err(fields.invalid(HEADS, &format!("a divisor of {width}"))),
    }
}

/// Reads the shape of SAM: vLLM's `build_sam_vit_b`. `fields` are those of `vision` for it.
pub(super) fn sam(vision: &Fields, fields: &Fields) -> Result<SamConfig, ConfigError> {
    const CHANNELS: &str = "downsample_channels";
    const GLOBAL: &str = "global_attn_indexes";
    const IMAGE: &str = "image_size";
    const WINDOW: &str = "window_size";
    let [hidden_size, num_heads] = sizes(fields, [768, 12])?;
    let image_size = vision.size(IMAGE)?.unwrap_or(1_024);
    if !image_size.is_multiple_of(PATCH) {
        return Err(vision.invalid(IMAGE, &format!("a multiple of {PATCH}")));
    }
    let window = fields.size(WINDOW)?.unwrap_or(14);
    if !WINDOWS.contains(&window) {
        return Err(fields.invalid(WINDOW, &format!("{} to {}", WINDOWS.start(), WINDOWS.end())));
    }
    let neck = fields.size("output_channels")?.unwrap_or(256);
    let [outer, inner] = match fields.value(CHANNELS) {
        None => [512, 1_024],
        Some(_) => match *fields.indices(CHANNELS)? {
            [outer, inner] if outer.min(inner) > 0 && outer.max(inner) <= SIZE_MAX => {
                [outer, inner]
            }
            _ => return Err(fields.invalid(CHANNELS, "two sizes")),
        },
    };
    let global_layers = match fields.value(GLOBAL) {
        None => vec![2, 5, 8, 11],
        Some(_) => fields.indices(GLOBAL)?,
    };
    Ok(SamConfig {
        names: &SAM_NAMES,
        hidden_size,
        mlp_size: 4 * hidden_size,
        num_layers: fields.size("layers")?.unwrap_or(12),
        num_heads,
        qkv_bias: true,
        norm: NORM,
        activation: Activation::Gelu,
        patch: PatchSize { side: PATCH, frames: 1 },
        positions_side: image_size / PATCH,
        window,
        global_layers,
        channels: [neck, outer, inner],
    })
}

/// Reads the layers of CLIP, and the places on a side of its grid of positions.
fn clip(fields: &Fields) -> Result<(BlockConfig, usize), ConfigError> {
    const SIDE: &str = "patch_size";
    let [hidden_size, num_heads] = sizes(fields, [1_024, 16])?;
    let image_size = fields.size("image_size")?.unwrap_or(224);
    let patch = fields.size(SIDE)?.unwrap_or(14);
    if patch > image_size {
        return Err(fields.invalid(SIDE, &format!("at most image_size, {image_size}")));
    }
    let block = BlockConfig {
        names: &CLIP_BLOCK,
        hidden_size,
        intermediate_size: 4 * hidden_size,
        num_heads,
        num_kv_heads: num_heads,
        norm: CLIP_NORM,
        activation: Activation::QuickGelu,
        qkv_bias: true,
        o_bias: true,
        mlp_bias: true,
        head_norms: HeadNorms::None,
        has_neighbour_pairs: false,
    };
    Ok((block, image_size / patch))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::config::fields;

    #[test]
    fn views_have_the_embeddings_of_vllm() {
        let none = fields(json!({}));
        let views = OcrViews::read(VisionFamily::DeepseekOcr, &none).unwrap();
        assert_eq!(views, OcrViews { base: 1_024, tile: 640, most: 6, has_ends: true });
        assert_eq!(views.num_embeds(None), 273);
        assert_eq!(views.num_embeds(Some([3, 2])), 30 * 21 + 273);
        assert_eq!(views.most_embeds(), 60 * 11 + 273);
        let views = OcrViews::read(VisionFamily::DeepseekOcr2, &none).unwrap();
        assert_eq!(views, OcrViews { base: 1_024, tile: 768, most: 6, has_ends: false });
        assert_eq!(views.num_embeds(None), 257);
        assert_eq!(views.num_embeds(Some([3, 2])), 6 * 144 + 257);
    }

    #[test]
    fn sizes_without_whole_patches_are_refused() {
        let refused = |config: Value| {
            let read = OcrViews::read(VisionFamily::DeepseekOcr, &fields(config));
            read.unwrap_err().to_string()
        };
        for (field, value) in [
            ("base_size", 1_000),
            ("image_size", 16),
            ("image_size", 4_096),
            ("max_crops", 1),
            ("patch_size", 14),
            ("downsample_ratio", 2),
        ] {
            let why = refused(json!({ field: value }));
            assert!(why.contains(&format!("`{field}` is {value}")), "{why}");
        }
    }

    #[test]
    fn the_parts_of_a_tower_fit_each_other() {
        let read = |change: Value| {
            let vision = fields(json!({ "width": change }));
            let none = fields(json!({}));
            OcrConfig::read(&none, &vision, &none, 1_280).map_err(|error| error.to_string())
        };
        let whole = read(json!({})).unwrap();
        assert_eq!((whole.sam.channels, whole.clip_side), ([256, 512, 1_024], 16));
        for (part, field, value) in [
            ("clip-l-14-224", "width", json!(512)),
            ("clip-l-14-224", "heads", json!(7)),
            ("sam_vit_b", "heads", json!(7)),
            ("sam_vit_b", "window_size", json!(1)),
            ("sam_vit_b", "window_size", json!(129)),
            ("sam_vit_b", "downsample_channels", json!([512])),
            ("sam_vit_b", "global_attn_indexes", json!("all")),
        ] {
            let why = read(json!({ part: { field: value } })).unwrap_err();
            assert!(why.contains(field), "{why}");
        }
    }
}
