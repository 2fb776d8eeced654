//! The projector of Gemma 3.

use playhouse_kernels::Activation;

use super::projector::{Merging, ProjectorConfig, ProjectorNorm};
use crate::model::config::{ConfigError, Fields, NormConfig};
use crate::model::family::NormKind;

/// Reads the projector, for a tower with `side` patches on a side. A square of patches
/// becomes their mean.
pub(super) fn projector(
    outer: &Fields,
    side: usize,
    outputs: usize,
    eps: f32,
) -> Result<ProjectorConfig, ConfigError> {
    const TOKENS: &str = "mm_tokens_per_image";
    let tokens = outer.size(TOKENS)?.unwrap_or(256);
    let squares = tokens.isqrt();
    if squares == 0 || squares * squares != tokens || !side.is_multiple_of(squares) {
        let expected = format!("the square of a divisor of {side}, the patches on a side");
        return Err(outer.invalid(TOKENS, &expected));
    }
    let norm = NormConfig { kind: NormKind::RmsPlusOne, eps };
    Ok(ProjectorConfig {
        layers: &[],
        inner: None,
        is_gated: false,
        activation: Activation::Gelu,
        has_bias: false,
        merge: side / squares,
        averages: true,
        norm: ProjectorNorm::OfSquare("mm_soft_emb_norm", norm),
        merging: Some(Merging::ByInput("mm_input_projection_weight")),
        last_norm: None,
        outputs,
    })
}
