//! The longest context of a model.

use super::file::{Fields, POSITIONS_MAX};
use super::{ConfigError, LayerConfig, Mixer, RopeScaling};

/// Returns the longest context in tokens: `requested`, which the model must allow, or by default
/// the longest that the model allows and that is supported.
///
/// The rule is vLLM's (`_get_and_verify_max_len`). Linear and dynamic scaling multiply
/// `max_position_embeddings` by their factor. YaRN multiplies its own
/// `original_max_position_embeddings`. For the other kinds, `max_position_embeddings` already
/// includes the scaling.
pub(super) fn resolve(
    config: &Fields,
    layers: &[LayerConfig],
    max_position_embeddings: usize,
    requested: Option<usize>,
) -> Result<usize, ConfigError> {
    within_limit(config, limit(layers, max_position_embeddings), requested)
}

/// Returns `requested`, which must be from 1 to `limit`. Without a request, returns `limit`, or the
/// longest supported context if that is shorter.
///
/// # Errors
/// [`ConfigError::MaxModelLen`] names the file that the limit comes from.
/// [`ConfigError::Positions`] names the longest context that is served.
pub(in crate::model) fn within_limit(
    config: &Fields,
    limit: usize,
    requested: Option<usize>,
) -> Result<usize, ConfigError> {
    match requested {
        None => Ok(limit.min(POSITIONS_MAX)),
        Some(requested) if limit.min(requested) > POSITIONS_MAX => {
            Err(ConfigError::Positions { requested, accepted: POSITIONS_MAX })
        }
        Some(length) if (1..=limit).contains(&length) => Ok(length),
        Some(requested) => {
            Err(ConfigError::MaxModelLen { path: config.path().to_owned(), requested, limit })
        }
    }
}

/// Returns the longest context that the model allows, in tokens. Attention to chosen tokens is
/// served for contexts in which all are chosen.
fn limit(layers: &[LayerConfig], max_position_embeddings: usize) -> usize {
    let chosen = layers.iter().filter_map(|layer| match &layer.mixer {
        Mixer::Latent(latent) => latent.index_topk,
        mixer => mixer.attention()?.indexed_context,
    });
    let lengths = layers.iter().filter_map(|layer| {
        let rope = match &layer.mixer {
            Mixer::Latent(latent) => Some(&latent.rope),
            mixer => mixer.attention()?.rope.as_ref(),
        };
        Some(match rope {
            Some(rope) => allowed(&rope.scaling, max_position_embeddings),
            None => max_position_embeddings,
        })
    });
    lengths.chain(chosen).min().unwrap_or(max_position_embeddings)
}

fn allowed(scaling: &RopeScaling, max_position_embeddings: usize) -> usize {
    let (length, factor) = match scaling {
        RopeScaling::Default | RopeScaling::Llama3(_) | RopeScaling::LongRope(_) => {
            (max_position_embeddings, 1.0)
        }
        RopeScaling::Linear { factor }
        | RopeScaling::Dynamic { factor }
        | RopeScaling::Ntk { factor }
        | RopeScaling::Proportional { factor, .. } => (max_position_embeddings, *factor),
        RopeScaling::Yarn(yarn) => (yarn.original_max_position_embeddings, yarn.factor),
    };
    ((length as f64 * factor) as usize).max(1)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::file::fields;
    use super::super::layer;
    use super::*;
    use crate::model::families::llama;

    fn resolve_with(rope: serde_json::Value, requested: Option<usize>) -> Result<usize, String> {
        let config = fields(json!({ "num_hidden_layers": 2, "num_attention_heads": 1,
            "hidden_size": 4, "intermediate_size": 8, "rope_parameters": rope }));
        let layers = layer::read(&config, &llama::FAMILY, 1024).unwrap();
        resolve(&config, &layers, 1024, requested).map_err(|error| error.to_string())
    }

    /// The expected lengths are those that vLLM derives from the same settings.
    #[test]
    fn scales_as_vllm_does() {
        let longrope = json!({ "rope_type": "longrope", "short_factor": [1, 1],
            "long_factor": [1, 1], "original_max_position_embeddings": 256 });
        let llama3 = json!({ "rope_type": "llama3", "factor": 8, "low_freq_factor": 1,
            "high_freq_factor": 4, "original_max_position_embeddings": 256 });
        let yarn = json!({ "rope_type": "yarn", "factor": 4,
            "original_max_position_embeddings": 512 });
        for (rope, expected) in [
            (json!({ "rope_type": "default" }), 1024),
            (json!({ "rope_type": "linear", "factor": 2.5 }), 2560),
            (json!({ "rope_type": "dynamic", "factor": 4 }), 4096),
            (yarn, 2048),
            (llama3, 1024),
            (longrope, 1024),
        ] {
            assert_eq!(resolve_with(rope.clone(), None), Ok(expected), "{rope}");
            assert_eq!(resolve_with(rope.clone(), Some(100)), Ok(100));
            assert_eq!(resolve_with(rope, Some(expected)), Ok(expected));
        }
    }

    #[test]
    fn refuses_more_than_the_model_allows() {
        for requested in [0, 1025] {
            let error = resolve_with(json!({ "rope_type": "default" }), Some(requested));
            assert_eq!(
                error.unwrap_err(),
                format!(
                    "max_model_len is {requested}; expected 1 to 1024, the longest context by \
                     config.json"
                )
            );
        }
    }
}
