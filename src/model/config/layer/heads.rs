//! The number and the width of attention heads.

use crate::model::config::ConfigError;
use crate::model::config::SIZE_MAX;
use crate::model::config::file::Fields;
use crate::model::family::{Family, PositionRule};

/// The most heads of a layer, far above any real number. The limit prevents absurd allocations.
const HEADS_MAX: usize = 4_096;

/// Reads the number of query heads.
pub(super) fn num_heads(config: &Fields) -> Result<usize, ConfigError> {
    let heads = config.required_size("num_attention_heads")?;
    if heads > HEADS_MAX {
        let expected = format!("an integer from 1 to {HEADS_MAX}");
        return Err(config.invalid("num_attention_heads", &expected));
    }
    Ok(heads)
}

/// Reads the number of query heads, the number of key-value heads, and the width of a head.
pub(super) fn read(config: &Fields, family: &Family) -> Result<(usize, usize, usize), ConfigError> {
    let heads = num_heads(config)?;
    // Null means as many key-value heads as query heads, and heads as wide as the hidden size
    // together. Only a config without the field takes the default.
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
    let default = family.defaults.head_dim.filter(|_| !config.has("head_dim"));
    let head_dim = match config.size("head_dim")?.or(default) {
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
    let is_whole = matches!(family.positions, PositionRule::Rotary { percent: 100, .. });
    if is_whole && !head_dim.is_multiple_of(2) {
        return Err(odd_rotary(config, heads, head_dim));
    }
    // Stored matrices may have their rows in another order, which is a list of all rows.
    if heads * head_dim > SIZE_MAX {
        let expected = format!("at most {SIZE_MAX} elements in all heads together");
        return Err(config.invalid("head_dim", &expected));
    }
    Ok((heads, kv_heads, head_dim))
}

/// Returns the error that heads of an odd width cannot rotate. It names the field that the width
/// comes from.
fn odd_rotary(config: &Fields, heads: usize, head_dim: usize) -> ConfigError {
    if config.value("head_dim").is_some() {
        return config.invalid("head_dim", "an even number: rotary embeddings rotate pairs");
    }
    let expected = format!(
        "an even multiple of num_attention_heads, {heads}: rotary embeddings rotate pairs, and \
         heads have {head_dim} elements"
    );
    config.invalid("hidden_size", &expected)
}
