//! The fields of LLaVA-OneVision and LLaVA-NeXT-Video (HF `LlavaOnevisionConfig`,
//! `LlavaNextVideoConfig`), whose images are tiles as those of LLaVA-NeXT.

use super::vit::Packing;
use super::{VisionFamily, token};
use crate::model::config::{ConfigError, Fields};

/// The most tiles whose features an image may have.
const TILES_MAX: usize = 1_024;

/// Returns the form of an item's embeddings, of a tower with `side` patches on a side.
pub(super) fn packing(
    outer: &Fields,
    family: VisionFamily,
    side: usize,
) -> Result<Packing, ConfigError> {
    Ok(match family {
        VisionFamily::LlavaNextVideo => {
            require_pooling(outer, side)?;
            Packing::PooledFirst
        }
        VisionFamily::LlavaNext | VisionFamily::LlavaNextSiglip => Packing::EndedRows,
        VisionFamily::LlavaOnevision => Packing::Capped { most: most_tiles(outer)? },
        _ => Packing::Plain,
    })
}

/// Returns the number of tiles whose features an image of LLaVA-OneVision may have.
///
/// # Errors
/// [`ConfigError::Invalid`] if the field has another form.
pub(crate) fn most_tiles(outer: &Fields) -> Result<usize, ConfigError> {
    const RATIO: &str = "vision_aspect_ratio";
    let most = match outer.text(RATIO)? {
        None => Some(9),
        Some(name) => name.strip_prefix("anyres_max_").and_then(|most| most.parse().ok()),
    };
    let most = most.filter(|most| (1..=TILES_MAX).contains(most));
    most.ok_or_else(|| outer.invalid(RATIO, "\"anyres_max_9\", or another number of tiles"))
}

/// Refuses frames that are not pooled to the means of squares of four.
fn require_pooling(outer: &Fields, side: usize) -> Result<(), ConfigError> {
    const MODE: &str = "spatial_pool_mode";
    const STRIDE: &str = "spatial_pool_stride";
    if outer.text(MODE)?.is_some_and(|mode| mode != "average") {
        return Err(outer.invalid(MODE, "\"average\""));
    }
    if outer.size(STRIDE)?.unwrap_or(2) != 2 || !side.is_multiple_of(2) {
        let expected = format!("2, a divisor of {side}, the patches on a side");
        return Err(outer.invalid(STRIDE, &expected));
    }
    Ok(())
}

/// Returns the token in the places of a video's embeddings.
///
/// # Errors
/// [`ConfigError::Invalid`] if a field has another form.
pub(crate) fn video_placeholder(outer: &Fields, family: VisionFamily) -> Result<u32, ConfigError> {
    let default = if family == VisionFamily::LlavaNextVideo { 32_000 } else { 151_647 };
    Ok(match token(outer, "video_token_index")? {
        Some(token) => token,
        None => token(outer, "video_token_id")?.unwrap_or(default),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::config::fields;

    #[test]
    fn a_ratio_has_a_number_of_tiles() {
        let most = |ratio: Value| most_tiles(&fields(json!({ "vision_aspect_ratio": ratio })));
        assert_eq!(most(json!(null)).unwrap(), 9);
        assert_eq!(most(json!("anyres_max_4")).unwrap(), 4);
        for refused in ["anyres", "pad", "anyres_max_0", "anyres_max_1000000"] {
            let why = most(json!(refused)).unwrap_err().to_string();
            assert!(why.contains("`vision_aspect_ratio` is "), "{why}");
        }
    }

    #[test]
    fn the_token_of_videos_has_two_names() {
        let of = |config: Value| {
            video_placeholder(&fields(config), VisionFamily::LlavaOnevision).unwrap()
        };
        for name in ["video_token_index", "video_token_id"] {
            assert_eq!(of(json!({ name: 7 })), 7);
        }
        assert_eq!(of(json!({})), 151_647);
    }
}
