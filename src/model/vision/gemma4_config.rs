//! The facts that both classes of Gemma 4 share: pixels, tokens, and which tokens see each other.

use super::config::{PixelScale, UNIT_SCALE, scale_of};
use super::encoder::ItemAttention;
use super::gemma4::Gemma4Config;
use super::gemma4_unified::UnifiedConfig;
use super::{VisionFamily, token};
use crate::model::config::{ConfigError, Fields};

/// The numbers of pixels before the tower's own.
pub(super) const SCALE: PixelScale = PixelScale { mean: [0.0; 3], std: [1.0; 3], ..UNIT_SCALE };

/// Returns how bytes become numbers, by the fields of a processor. `normalizes` is the default of
/// its class: that of images does not, and that of videos does.
pub(crate) fn scale(processor: &Fields, normalizes: bool) -> Result<PixelScale, ConfigError> {
    const NORMALIZES: &str = "do_normalize";
    match processor.value(NORMALIZES) {
        None => scale_of(&processor.with(NORMALIZES, normalizes.into()), SCALE),
        Some(_) => scale_of(processor, SCALE),
    }
}

/// Returns the tokens that attend to each other: those of an image in the larger models, in the
/// layers with a window.
pub(super) fn attention(
    family: VisionFamily,
    outer: &Fields,
) -> Result<ItemAttention, ConfigError> {
    const SIDES: &str = "use_bidirectional_attention";
    let text = outer.nested("text_config")?.unwrap_or_else(|| Fields::empty_in(outer));
    // The default of HF `Gemma4UnifiedTextConfig`.
    let by_default = family == VisionFamily::Gemma4Unified && !text.has(SIDES);
    Ok(match by_default || text.text(SIDES)? == Some("vision") {
        true => ItemAttention::WithinItems,
        false => ItemAttention::None,
    })
}

/// Reads the pixels on a side of a patch, and the patches on a side of a square.
///
/// # Errors
/// [`ConfigError::Invalid`] if squares are absurdly large, so that sizes of tensors may overflow.
pub(super) fn square(fields: &Fields) -> Result<[usize; 2], ConfigError> {
    const SQUARE_MAX: usize = 1 << 12;
    const POOLING: &str = "pooling_kernel_size";
    let patch = fields.size("patch_size")?.unwrap_or(16);
    let pooling = fields.size(POOLING)?.unwrap_or(3);
    match patch * pooling <= SQUARE_MAX {
        true => Ok([patch, pooling]),
        false => Err(fields.invalid(POOLING, &format!("squares of at most {SQUARE_MAX} pixels"))),
    }
}

/// The facts about the images of Gemma 4 that their processor needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gemma4Images {
    /// The tokens in the places of embeddings of images and of videos.
    pub(crate) placeholders: [u32; 2],
    /// The tokens before and after an image, or a frame.
    pub(crate) marks: [u32; 2],
    /// Pixels on a side of a patch.
    pub(crate) patch: usize,
    /// Patches on a side of a square, which is one embedding.
    pub(crate) pooling: usize,
    /// The most patches on a side of an image.
    pub(crate) num_positions: usize,
}

impl Gemma4Images {
    /// Reads the facts of a model whose `config.json` has the fields `outer`.
    ///
    /// # Errors
    /// [`ConfigError`] if a field has no valid value.
    pub(crate) fn read(family: VisionFamily, outer: &Fields) -> Result<Self, ConfigError> {
        let vision = outer.nested("vision_config")?.unwrap_or_else(|| Fields::empty_in(outer));
        let [patch, pooling, num_positions] = match family {
            VisionFamily::Gemma4Unified => {
                let config = UnifiedConfig::read(&vision, 1)?;
                [config.patch, config.pooling, config.num_positions * config.pooling]
            }
            _ => {
                let config = Gemma4Config::read(&vision, 1)?;
                [config.patch.side, config.pooling, config.num_positions]
            }
        };
        let token = |field: &str, default: u32| {
            Ok::<_, ConfigError>(token(outer, field)?.unwrap_or(default))
        };
        Ok(Self {
            placeholders: [token("image_token_id", 258_880)?, token("video_token_id", 258_884)?],
            marks: [token("boi_token_id", 255_999)?, token("eoi_token_id", 258_882)?],
            patch,
            pooling,
            num_positions,
        })
    }
}
