//! The projectors of Cohere's models with images (HF `AyaVisionMultiModalProjector`,
//! `Cohere2VisionMultiModalProjector`): a square of patches becomes one embedding, through a layer
//! whose second half gates the first.

use playhouse_kernels::Activation;

use super::VisionFamily;
use super::llava::feature_layers;
use super::projector::{ProjectorConfig, ProjectorNorm};
use crate::model::config::{ConfigError, Fields, NormConfig};
use crate::model::family::NormKind;

/// Reads the projector. `plain` has the fields that other families share.
pub(super) fn projector(
    outer: &Fields,
    plain: ProjectorConfig,
    family: VisionFamily,
) -> Result<ProjectorConfig, ConfigError> {
    const INNER: &str = "alignment_intermediate_size";
    const EPS: &str = "adapter_layer_norm_eps";
    let is_aya = family == VisionFamily::AyaVision;
    let inner = match outer.size(INNER)? {
        Some(inner) if !inner.is_multiple_of(2) => {
            return Err(outer.invalid(INNER, "an even number"));
        }
        Some(inner) => inner,
        None if is_aya => plain.outputs,
        None => 36_864,
    };
    let norm = match is_aya {
        true => {
            let eps = outer.positive(EPS)?.unwrap_or(1e-6) as f32;
            let norm = NormConfig { kind: NormKind::Layer { has_bias: true }, eps };
            ProjectorNorm::OfSquare("layernorm", norm)
        }
        false => ProjectorNorm::None,
    };
    Ok(ProjectorConfig {
        inner: Some(inner),
        is_gated: true,
        activation: Activation::Silu,
        has_bias: true,
        merge: outer.size("downsample_factor")?.unwrap_or(2),
        norm,
        ..plain
    })
}

/// Refuses a tower whose images are no whole squares of patches.
pub(super) fn require_squares(
    outer: &Fields,
    side: usize,
    merge: usize,
) -> Result<(), ConfigError> {
    match side.is_multiple_of(merge) {
        true => Ok(()),
        false => {
            let expected = format!("a divisor of {side}, the patches on a side");
            Err(outer.invalid("downsample_factor", &expected))
        }
    }
}

/// Returns the only layer whose states are features.
pub(super) fn feature_layer(outer: &Fields, num_layers: usize) -> Result<Vec<usize>, ConfigError> {
    let layers = feature_layers(outer, num_layers, -1)?;
    match layers.len() {
        1 => Ok(layers),
        _ => Err(outer.invalid("vision_feature_layer", "one layer, as wide as the projector")),
    }
}

/// Refuses a tower without its first patch, whose images are no squares.
pub(super) fn keeps_all(outer: &Fields) -> Result<(), ConfigError> {
    const STRATEGY: &str = "vision_feature_select_strategy";
    match outer.text(STRATEGY)? {
        None | Some("full") => Ok(()),
        Some(_) => Err(outer.invalid(STRATEGY, "\"full\"")),
    }
}
