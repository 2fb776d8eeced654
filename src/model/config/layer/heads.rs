//! The number and the width of attention heads.

use crate::model::config::ConfigError;
use crate::model::config::file::Fields;
use crate::model::family::Family;

/// Reads the number of query heads, the number of key-value heads, and the width of a head.
pub(super) fn read(config: &Fields, family: &Family) -> Result<(usize, usize, usize), ConfigError> {
    let heads = config.required_size("num_attention_heads")?;
    // Null means as many as query heads. Only a config without the field takes the default.
    let kv_heads = match (config.size("num_key_value_heads")?, family.defaults.num_key_value_heads)
    {
        (Some(kv_heads), _) => kv_heads,
        (None, Some(default)) if !config.has("num_key_value_heads") => default,
        (None, _) => heads,
    };
    if !heads.is_multiple_of(kv_heads) {
        let expected = format!("a divisor of num_attention_heads, {heads}");
        return Err(config.invalid("num_key_value_heads", &expected));
    }
    let head_dim = match config.size("head_dim")?.or(family.defaults.head_dim) {
        Some(head_dim) => head_dim,
        None => {
            let hidden = config.required_size("hidden_size")?;
            if !hidden.is_multiple_of(heads) {
                let expected = format!("a multiple of num_attention_heads, {heads}, or a head_dim");
                return Err(config.invalid("hidden_size", &expected));
            }
            hidden / heads
        }
    };
    if !head_dim.is_multiple_of(2) {
        return Err(config.invalid("head_dim", "an even number: rotary embeddings turn pairs"));
    }
    Ok((heads, kv_heads, head_dim))
}
