//! Llama Nemotron Super and Ultra: `DeciLMForCausalLM` of their folders' own code, and of vLLM.
//!
//! Llama whose layers a search has changed one by one (<https://arxiv.org/abs/2411.19146>). Some
//! have no attention or no MLP. Each has its own number of key heads and its own inner width, which
//! `block_configs` has.

use serde_json::Value;

use super::{
    ConfigError, Family, FeedForward, Fields, LayerConfig, LayerRule, Mixer, SIZE_MAX, gemma4,
    llama, read_alike,
};

pub(super) const FAMILY: Family = Family {
    architecture: "DeciLMForCausalLM",
    model_type: "nemotron-nas",
    models: "Llama Nemotron Super and Ultra",
    layers: LayerRule::Own(layers),
    ..llama::FAMILY
};

const BLOCKS: &str = "block_configs";

/// The parts of a layer.
struct Block {
    /// Key heads. `None`: the layer has no attention.
    num_kv_heads: Option<usize>,
    /// The inner width. `None`: the layer has no MLP.
    intermediate_size: Option<usize>,
}

fn layers(
    fields: &Fields,
    family: &Family,
    max_position_embeddings: usize,
) -> Result<Vec<LayerConfig>, ConfigError> {
    if let Some("mistral_yarn" | "rope_llama4") = fields.text("position_embedding_type")? {
        let expected = "null: a rotary pair is an element of each half of a head";
        return Err(fields.invalid("position_embedding_type", expected));
    }
    if fields.value("parallel_blocks").is_some() {
        return Err(fields.invalid("parallel_blocks", "null"));
    }
    let blocks = blocks(fields)?;
    // Layers without an MLP get the width 1, and lose their MLP below.
    let widths = blocks.iter().map(|block| Value::from(block.intermediate_size.unwrap_or(1)));
    let alike = fields
        .without(&["num_key_value_heads"])
        .with("intermediate_size", widths.collect::<Vec<_>>().into());
    let mut layers = read_alike(&alike, family, max_position_embeddings)?;
    for (layer, block) in layers.iter_mut().zip(&blocks) {
        match (block.num_kv_heads, layer.mixer.attention_mut()) {
            (Some(heads), Some(attention)) => attention.num_kv_heads = heads,
            _ => layer.mixer = Mixer::None,
        }
        if block.intermediate_size.is_none() {
            layer.feed_forward = FeedForward::None;
        }
    }
    gemma4::cache_alike(&mut layers);
    Ok(layers)
}

/// Reads the parts of each layer.
fn blocks(fields: &Fields) -> Result<Vec<Block>, ConfigError> {
    let count = fields.required_size("num_hidden_layers")?;
    let expected = format!("a list of {count} (num_hidden_layers) objects");
    let listed = fields.value(BLOCKS).ok_or_else(|| fields.missing(BLOCKS, &expected))?;
    let listed = listed.as_array().filter(|listed| listed.len() == count);
    let listed = listed.ok_or_else(|| fields.invalid(BLOCKS, &expected))?;
    let named = |(index, value): (usize, &Value)| {
        let name = format!("{BLOCKS}.{index}");
        let block = Fields::empty_in(fields).with(&name, value.clone()).nested(&name)?;
        block.ok_or_else(|| fields.invalid(BLOCKS, &expected))
    };
    let blocks = listed.iter().enumerate().map(named);
    blocks.map(|block| Block::read(fields, &block?)).collect()
}

impl Block {
    /// Reads the object of a layer.
    fn read(fields: &Fields, block: &Fields) -> Result<Self, ConfigError> {
        let part = |name: &str| {
            let part = block.nested(name)?;
            part.ok_or_else(|| block.missing(name, "an object"))
        };
        Ok(Self {
            num_kv_heads: num_kv_heads(fields, &part("attention")?)?,
            intermediate_size: intermediate_size(fields, &part("ffn")?)?,
        })
    }
}

/// Returns whether a layer lacks a part. Rejects parts of other kinds.
fn is_absent(part: &Fields) -> Result<bool, ConfigError> {
    if part.flag("replace_with_linear")?.unwrap_or(false) {
        return Err(part.invalid("replace_with_linear", "false"));
    }
    for field in ["sparsify", "window_length", "num_sink_tokens"] {
        if part.value(field).is_some() {
            return Err(part.invalid(field, "null"));
        }
    }
    Ok(part.flag("no_op")?.unwrap_or(false))
}

fn num_kv_heads(fields: &Fields, attention: &Fields) -> Result<Option<usize>, ConfigError> {
    const FIELD: &str = "n_heads_in_group";
    if is_absent(attention)? {
        return Ok(None);
    }
    let (heads, group) =
        (fields.required_size("num_attention_heads")?, attention.required_size(FIELD)?);
    if !heads.is_multiple_of(group) {
        let expected = format!("a divisor of num_attention_heads, {heads}");
        return Err(attention.invalid(FIELD, &expected));
    }
    Ok(Some(heads / group))
}

/// Reads the inner width: a number, or a factor of the hidden size whose result is rounded up to a
/// multiple of 256.
fn intermediate_size(fields: &Fields, ffn: &Fields) -> Result<Option<usize>, ConfigError> {
    const FACTOR: &str = "ffn_mult";
    if is_absent(ffn)? {
        return Ok(None);
    }
    let activation = fields.text("hidden_act")?.unwrap_or("silu");
    if ffn.text("hidden_act")?.is_some_and(|own| own != activation) {
        return Err(ffn.invalid("hidden_act", &format!("\"{activation}\", as all layers have")));
    }
    let Some(factor) = ffn.positive(FACTOR)? else {
        return ffn.required_size("intermediate_size").map(Some);
    };
    let width = (2.0 * factor * fields.required_size("hidden_size")? as f64 / 3.0) as usize;
    match (1..=SIZE_MAX - 256).contains(&width) {
        true => Ok(Some(width.next_multiple_of(256))),
        false => {
            let expected = format!("a factor that gives widths from 1 to {SIZE_MAX}");
            Err(ffn.invalid(FACTOR, &expected))
        }
    }
}
