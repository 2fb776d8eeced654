//! The part of a head that rotates.

use crate::model::config::ConfigError;
use crate::model::config::file::Fields;
use crate::model::family::{Family, RotaryPart};

const FIELD: &str = "partial_rotary_factor";

/// Returns the pairs of a head that turn, if the parameters are proportional, in a family that has
/// them. Takes the part of a head from parameters in which it means nothing else: HF
/// `Gemma4TextRotaryEmbedding.compute_default_rope_parameters` does not read it.
pub(super) fn proportion(
    parameters: &mut Fields,
    family: &Family,
    head_dim: usize,
) -> Result<Option<usize>, ConfigError> {
    if family.rope.part != RotaryPart::Proportional {
        return Ok(None);
    }
    let kind = parameters.text("rope_type")?.unwrap_or("default").to_owned();
    let part = parameters.positive(FIELD)?.unwrap_or(1.0);
    if part > 1.0 && kind == "proportional" {
        return Err(parameters.invalid(FIELD, "a number above 0, and at most 1"));
    }
    if kind == "default" || kind == "proportional" {
        *parameters = parameters.without(&[FIELD]);
    }
    let turning = (part * head_dim as f64 / 2.0).floor() as usize;
    Ok((kind == "proportional").then_some(turning))
}

/// Returns the elements of a head that rotate, and the number of them before it is rounded up,
/// which is in the exponents of frequencies.
pub(super) fn rotating(
    config: &Fields,
    parameters: &mut Fields,
    family: &Family,
    head_dim: usize,
    percent: u32,
) -> Result<(usize, usize), ConfigError> {
    let (name, rounds_up) = match family.rope.part {
        RotaryPart::Whole => (Some(FIELD), false),
        RotaryPart::Proportional => (None, false),
        RotaryPart::Field { name, rounds_up } => (name, rounds_up),
    };
    // Null replaces the class's default, so whole heads rotate.
    let is_null = name.is_some_and(|name| config.has(name) && config.value(name).is_none());
    name.iter().for_each(|name| parameters.adopt(FIELD, config, name));
    let default = if is_null { 1.0 } else { f64::from(percent) / 100.0 };
    let given = parameters.positive(FIELD)?;
    let part = given.unwrap_or(default);
    let is_whole = matches!(family.rope.part, RotaryPart::Whole | RotaryPart::Proportional);
    if is_whole && part != 1.0 {
        return Err(parameters.invalid(FIELD, "1: whole heads rotate"));
    }
    let elements = (head_dim as f64 * part) as usize;
    let is_valid = part <= 1.0 && elements > 0 && (rounds_up || elements.is_multiple_of(2));
    let rotary_dim = elements.next_multiple_of(2);
    match given {
        _ if is_valid && rotary_dim <= head_dim => Ok((rotary_dim, elements)),
        Some(_) => {
            Err(parameters.invalid(FIELD, &format!("a part of the head, {head_dim}, that is even")))
        }
        None => {
            let field = if config.value("head_dim").is_some() { "head_dim" } else { "hidden_size" };
            let expected =
                format!("one that gives heads, now of width {head_dim}, an even part that rotates");
            Err(config.invalid(field, &expected))
        }
    }
}
