//! The sizes and the form of a tower of sounds, as `audio_config` has them.

use super::audio_tower::{TowerConfig, TowerForm};
use super::hearing::AudioFamily;
use super::qwen3::TIMES;
use crate::model::config::{ConfigError, Fields};
use crate::model::encoder_decoder::{StackConfig, activation_in};

/// The states of a part of a sound of Qwen2.5-Omni, which sees no other part.
pub(super) const WINDOW: &str = "n_window";

/// Reads the form of the layers.
fn tower_form(
    family: AudioFamily,
    fields: &Fields,
    head_dim: usize,
) -> Result<TowerForm, ConfigError> {
    match family {
        AudioFamily::GlmAsr => {}
        AudioFamily::Qwen2_5Omni | AudioFamily::Qwen3Asr | AudioFamily::Qwen3Omni => {
            return Ok(TowerForm::Omni);
        }
        _ => return Ok(TowerForm::Whisper),
    }
    const PART: &str = "partial_rotary_factor";
    let rope = match fields.nested("rope_scaling")? {
        Some(rope) if !rope.object().is_empty() => rope,
        _ => fields.nested("rope_parameters")?.unwrap_or_else(|| Fields::empty_in(fields)),
    };
    for name in ["rope_type", "type"] {
        if rope.text(name)?.is_some_and(|kind| kind != "default") {
            return Err(rope.invalid(name, "\"default\""));
        }
    }
    let theta = rope.positive("rope_theta")?.or(fields.positive("rope_theta")?);
    let part = match rope.positive(PART)? {
        Some(part) => part,
        None => fields.positive(PART)?.unwrap_or(0.5),
    };
    let rotary_dim = (head_dim as f64 * part) as usize;
    if part > 1.0 || rotary_dim == 0 || !rotary_dim.is_multiple_of(2) {
        let expected = format!("a part of {head_dim}, the width of a head, that is even");
        return Err(rope.invalid(PART, &expected));
    }
    Ok(TowerForm::GlmAsr { theta: theta.unwrap_or(10_000.0), rotary_dim })
}

/// Reads the sizes of a tower, whose fields have the names of Whisper or of other classes.
pub(super) fn tower_config(
    family: AudioFamily,
    fields: &Fields,
) -> Result<TowerConfig, ConfigError> {
    let size = |name: &str, other: &str, default: usize| {
        Ok::<_, ConfigError>(fields.size(name)?.or(fields.size(other)?).unwrap_or(default))
    };
    const HEADS: [&str; 2] = ["encoder_attention_heads", "num_attention_heads"];
    let [width, heads, layers, inner] = match family {
        AudioFamily::Qwen3Asr => [1_024, 16, 24, 4_096],
        _ => [1_280, 20, 32, 5_120],
    };
    let hidden_size = size("d_model", "hidden_size", width)?;
    let num_heads = size(HEADS[0], HEADS[1], heads)?;
    if !hidden_size.is_multiple_of(2 * num_heads) {
        let field = if fields.value(HEADS[0]).is_some() { HEADS[0] } else { HEADS[1] };
        let expected = format!("a number of heads of even width: a divisor of {hidden_size}/2");
        return Err(fields.invalid(field, &expected));
    }
    let head_dim = hidden_size / num_heads;
    let (act, positions) = match family {
        AudioFamily::GlmAsr => {
            for (field, only) in [("num_key_value_heads", num_heads), ("head_dim", head_dim)] {
                if fields.size(field)?.is_some_and(|size| size != only) {
                    return Err(fields.invalid(field, &only.to_string()));
                }
            }
            ("hidden_act", "max_position_embeddings")
        }
        _ => ("activation_function", "max_source_positions"),
    };
    let positions_max = fields.size(positions)?.unwrap_or(1_500);
    let num_frames = match family {
        AudioFamily::Qwen2_5Omni => fields.size(WINDOW)?.unwrap_or(100),
        AudioFamily::Qwen3Asr | AudioFamily::Qwen3Omni => TIMES / 2,
        _ => positions_max,
    };
    if num_frames > positions_max {
        let expected = format!("{positions_max} at most, the tower's {positions}");
        return Err(fields.invalid(WINDOW, &expected));
    }
    // Sines have two periods at least.
    let has_sines =
        matches!(family, AudioFamily::Qwen2_5Omni | AudioFamily::Qwen3Asr | AudioFamily::Qwen3Omni);
    if has_sines && hidden_size < 4 {
        return Err(fields.invalid("d_model", "4 or more"));
    }
    Ok(TowerConfig {
        hidden_size,
        num_mel_bins: fields.size("num_mel_bins")?.unwrap_or(128),
        num_frames,
        stack: StackConfig {
            num_layers: size("encoder_layers", "num_hidden_layers", layers)?,
            num_heads,
            intermediate_size: size("encoder_ffn_dim", "intermediate_size", inner)?,
        },
        activation: activation_in(fields, act)?,
        form: tower_form(family, fields, head_dim)?,
    })
}
