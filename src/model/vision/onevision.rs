//! The fields of LLaVA-OneVision (HF `LlavaOnevisionConfig`), whose images are tiles as those of
//! LLaVA-NeXT.

use super::vit::Packing;
use super::{VisionFamily, token};
use crate::model::config::{ConfigError, Fields};

/// The most tiles whose features an image may have.
const TILES_MAX: usize = 1_024;

/// Returns the form of an item's embeddings.
pub(super) fn packing(outer: &Fields, family: VisionFamily) -> Result<Packing, ConfigError> {
    Ok(match family {
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

/// Returns the token in the places of a video's embeddings.
///
/// # Errors
/// [`ConfigError::Invalid`] if a field has another form.
pub(crate) fn video_placeholder(outer: &Fields) -> Result<u32, ConfigError> {
    Ok(match token(outer, "video_token_index")? {
        Some(token) => token,
        None => token(outer, "video_token_id")?.unwrap_or(151_647),
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
        for name in ["video_token_index", "video_token_id"] {
            assert_eq!(video_placeholder(&fields(json!({ name: 7 }))).unwrap(), 7);
        }
        assert_eq!(video_placeholder(&fields(json!({}))).unwrap(), 151_647);
    }
}
