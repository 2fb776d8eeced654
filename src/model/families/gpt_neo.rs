//! GPT-Neo, and TinyStories: HF `GPTNeoForCausalLM`.
//!
//! GPT-2 whose scores have no factor. Every other layer has a sliding window
//! (<https://doi.org/10.5281/zenodo.5297715>).

use serde_json::Value;

use super::{
    AttentionNames, Bias, ConfigError, Defaults, Family, Fields, ModelConfig, QkvNames,
    WeightNames, gpt2,
};

pub(super) const FAMILY: Family = Family {
    architecture: "GPTNeoForCausalLM",
    model_type: "gpt_neo",
    models: "GPT-Neo, TinyStories",
    aliases: &[("num_layers", "num_hidden_layers"), ("num_heads", "num_attention_heads")],
    defaults: Defaults { max_position_embeddings: 2_048, ..gpt2::FAMILY.defaults },
    qkv_bias: Bias::Never,
    names: WeightNames {
        attention: AttentionNames {
            qkv: QkvNames::Separate([
                "attn.attention.q_proj",
                "attn.attention.k_proj",
                "attn.attention.v_proj",
            ]),
            o_proj: "attn.attention.out_proj",
            ..gpt2::FAMILY.names.attention
        },
        is_transposed: false,
        ..gpt2::FAMILY.names
    },
    adjust,
    ..gpt2::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    config.embedding.learned_positions = Some(0);
    let window = fields.size("window_size")?.unwrap_or(256) as u32;
    let is_local = local_layers(fields, config.layers.len())?;
    for (attention, is_local) in config.attentions().zip(is_local) {
        attention.scale = 1.0;
        attention.sliding_window = is_local.then_some(window);
    }
    Ok(())
}

/// Returns for each of `count` layers whether it has a window: the field `attention_layers`, or
/// `attention_types`, pairs of a list of kinds and the number of its repetitions. By default the
/// kinds alternate.
fn local_layers(fields: &Fields, count: usize) -> Result<Vec<bool>, ConfigError> {
    const KINDS: [&str; 2] = ["global", "local"];
    if let Some(layers) = fields.flags("attention_layers", KINDS, count)? {
        return Ok(layers);
    }
    const FIELD: &str = "attention_types";
    let layers = match fields.value(FIELD) {
        Some(types) => expanded(types, count),
        None => Some((0..count).map(|layer| layer % 2 == 1).collect()),
    };
    layers.filter(|layers: &Vec<bool>| layers.len() == count).ok_or_else(|| {
        let expected = format!(
            "pairs of a list of \"global\" or \"local\" and a number, {count} \
             (num_layers) layers in all"
        );
        fields.invalid(FIELD, &expected)
    })
}

/// Returns the layers that `types` stands for, or none if they are malformed or more than `most`.
fn expanded(types: &Value, most: usize) -> Option<Vec<bool>> {
    let mut layers = Vec::new();
    for pair in types.as_array()? {
        let [kinds, times] = pair.as_array()?.as_slice() else { return None };
        for _ in 0..times.as_u64()? {
            for kind in kinds.as_array()? {
                layers.push(match kind.as_str()? {
                    "global" => false,
                    "local" => true,
                    _ => return None,
                });
            }
            if layers.len() > most || kinds.as_array()?.is_empty() {
                return None;
            }
        }
    }
    Some(layers)
}
