//! Keys of an architecture that nothing reads. A key that may change the results is refused by its
//! name.

use super::metadata::Metadata;
use crate::gguf::GgufError;

/// Keys that no result depends on, and the beginnings of others, which end in a dot.
const HARMLESS: [&str; 11] = [
    "vocab_size",
    // A note about the order of rows, which the architecture implies.
    "tensor_data_layout",
    // The use of a model for embeddings.
    "pooling_type",
    // These count beside a scaling, which reads them.
    "rope.scaling.original_context_length",
    "rope.scaling.finetuned",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    // These describe the tensors of experts, which show their sizes.
    "expert_shared_count",
    "expert_shared_feed_forward_length",
    // These are the parts of a model for images.
    "vision.",
    "mm.",
];

/// Keys whose number changes nothing if it is one of these.
const NEUTRAL: [(&str, &[f64]); 22] = [
    ("expert_count", &[0.0]),
    ("expert_used_count", &[0.0]),
    ("expert_group_count", &[0.0, 1.0]),
    ("expert_group_used_count", &[0.0, 1.0]),
    ("expert_feed_forward_length", &[0.0]),
    ("expert_weights_scale", &[0.0, 1.0]),
    ("expert_gating_func", &[0.0, 1.0]),
    ("leading_dense_block_count", &[0.0]),
    ("interleave_moe_layer_step", &[0.0, 1.0]),
    ("attention.sliding_window", &[0.0]),
    ("attention.clamp_kqv", &[0.0]),
    ("attention.max_alibi_bias", &[0.0]),
    ("attention.scale", &[0.0]),
    ("attn_logit_softcapping", &[0.0]),
    ("final_logit_softcapping", &[0.0]),
    ("router_logit_softcapping", &[0.0]),
    ("logit_scale", &[0.0, 1.0]),
    ("embedding_scale", &[0.0, 1.0]),
    ("residual_scale", &[0.0, 1.0]),
    ("rope.scaling.alpha", &[0.0]),
    ("rope.scaling.yarn_log_multiplier", &[0.0]),
    ("rope.scaling.yarn_ext_factor", &[-1.0, 1.0]),
];

/// Refuses the first key of the architecture that would be ignored.
pub(super) fn refuse(metadata: &Metadata<'_>) -> Result<(), GgufError> {
    let name = metadata.architecture.name;
    for key in metadata.file.keys() {
        let Some(rest) = key.strip_prefix(name).and_then(|rest| rest.strip_prefix('.')) else {
            continue;
        };
        let is_harmless = HARMLESS.iter().any(|known| match known.ends_with('.') {
            true => rest.starts_with(known),
            false => rest == *known,
        });
        if is_harmless || metadata.read.contains(key) || is_neutral(metadata, key, rest)? {
            continue;
        }
        let expected = neutral(rest).map_or_else(
            || format!("no such key: it is not supported in the architecture {name}"),
            |numbers| format!("{} in the architecture {name}", numbers[0]),
        );
        return Err(metadata.file.unexpected(key, expected));
    }
    Ok(())
}

fn neutral(name: &str) -> Option<&'static [f64]> {
    NEUTRAL.iter().find(|(known, _)| *known == name).map(|(_, numbers)| *numbers)
}

fn is_neutral(metadata: &Metadata<'_>, key: &str, name: &str) -> Result<bool, GgufError> {
    if name == "attention.causal" {
        return Ok(metadata.file.flag(key)? == Some(true));
    }
    let Some(numbers) = neutral(name) else { return Ok(false) };
    let value = match metadata.file.is_list(key) {
        true => metadata.file.same_in_all_layers(key)?.map(|value| value as f64),
        false => metadata.file.number(key)?,
    };
    Ok(value.is_some_and(|value| numbers.contains(&value)))
}
