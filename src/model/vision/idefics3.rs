//! The projector of Idefics 3 (HF `Idefics3Connector`), and of the classes with its images that
//! only pool (HF `ModernVBertConnector`, `UltraVBertConnector`). A square of patches becomes one
//! embedding. In UltraVBERT, a norm is behind the layer.

use super::projector::ProjectorConfig;
use crate::model::config::{ConfigError, Fields, INNER_TYPE, NormConfig};
use crate::model::family::NormKind;

/// Returns the projector of a model whose `config.json` has the fields `outer`. `plain` has the
/// parts that all projectors share.
pub(super) fn projector(
    outer: &Fields,
    plain: ProjectorConfig,
) -> Result<ProjectorConfig, ConfigError> {
    let inner = outer.text(INNER_TYPE)?;
    Ok(ProjectorConfig {
        layers: match inner {
            Some(_) => &["modality_projection"],
            None => &["modality_projection.proj"],
        },
        has_bias: false,
        merge: outer.size("scale_factor")?.unwrap_or(2),
        last_norm: match inner {
            Some("ultravbert") => last_norm(outer)?,
            _ => None,
        },
        ..plain
    })
}

/// Returns the norm behind the layer, whose epsilon is that of the text model. Checkpoints for
/// vLLM's class may have none.
fn last_norm(outer: &Fields) -> Result<Option<(&'static str, NormConfig)>, ConfigError> {
    if !outer.flag_or("connector_norm", true)? {
        return Ok(None);
    }
    let text = outer.nested("text_config")?.unwrap_or_else(|| Fields::empty_in(outer));
    let eps = text.positive("rms_norm_eps")?.unwrap_or(1e-6) as f32;
    Ok(Some(("norm", NormConfig { kind: NormKind::Rms, eps })))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::VisionFamily;
    use super::super::llava::vit;
    use super::*;
    use crate::model::config::fields;

    /// As HF `Idefics3VisionConfig` and `SiglipVisionConfig`.
    #[test]
    fn towers_have_the_defaults_of_their_classes() {
        let siglip = [768, 3_072, 12, 16, 224];
        for (outer, expected) in [
            (json!({}), [1_152, 3_072, 16, 32, 224]),
            (json!({ INNER_TYPE: "modernvbert" }), siglip),
            (json!({ INNER_TYPE: "ultravbert" }), siglip),
        ] {
            let outer = fields(outer);
            let read = vit(&outer, &fields(json!({})), 32, VisionFamily::Idefics3).unwrap();
            let (block, side) = (read.block, read.patch.side);
            let sizes = [block.hidden_size, block.intermediate_size, block.num_heads];
            assert_eq!([sizes[0], sizes[1], sizes[2], side, read.image_size], expected);
        }
    }
}
