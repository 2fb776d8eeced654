//! `quantization_config` of compressed-tensors: groups of modules, each with a scheme.

use serde_json::Value;

use super::super::ConfigError;
use super::super::file::Fields;
use super::block_size;
use crate::weights::{Quantization, ScaleSharing};

/// The numbers of a scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Numbers {
    Integers,
    /// Floats of eight bits.
    Floats,
    /// Floats of four bits.
    SmallFloats,
}

/// Checks that all groups of modules have schemes of integer weights, or of floats of 8 or 4 bits.
pub(super) fn compressed_tensors(config: &Fields) -> Result<Quantization, ConfigError> {
    refuse_online_transforms(config)?;
    let groups = config
        .nested("config_groups")?
        .ok_or_else(|| config.missing("config_groups", "an object of schemes"))?;
    let (mut stays_packed, mut sharing) = (false, Vec::new());
    for name in groups.names() {
        let group = groups.nested(&name)?.ok_or_else(|| groups.missing(&name, "a scheme"))?;
        let owner = if group.value("format").is_some() { &group } else { config };
        const FORMATS: &str = "\"pack-quantized\", \"int-quantized\", \"float-quantized\", \
            \"nvfp4-pack-quantized\" or \"mxfp4-pack-quantized\"";
        let numbers = match owner.text("format")? {
            Some("pack-quantized" | "int-quantized") => Numbers::Integers,
            Some("float-quantized") => Numbers::Floats,
            Some("nvfp4-pack-quantized" | "mxfp4-pack-quantized") => Numbers::SmallFloats,
            // The first name of the first two.
            Some("naive-quantized") => match group.nested("weights")? {
                Some(weights) if weights.text("type")? == Some("float") => Numbers::Floats,
                _ => Numbers::Integers,
            },
            Some(_) => return Err(owner.invalid("format", FORMATS)),
            None => return Err(owner.missing("format", FORMATS)),
        };
        // A group may have a scheme for activations only, for example those of attention.
        if let Some(weights) = group.nested("weights")? {
            let scheme = match numbers {
                Numbers::Integers => of_integers(&weights)?,
                Numbers::Floats => of_floats(&weights)?,
                Numbers::SmallFloats => of_small_floats(&weights)?,
            };
            stays_packed |= numbers != Numbers::Floats;
            if !sharing.contains(&scheme) {
                sharing.push(scheme);
            }
        }
    }
    Ok(match stays_packed || sharing.is_empty() {
        true => Quantization::CompressedTensors { sharing },
        false => Quantization::Float8 { sharing },
    })
}

/// Refuses rotations (QuIP, SpinQuant) of a layer's inputs or outputs, because they would have to
/// be computed. Rotations of weights alone are part of the stored weights.
fn refuse_online_transforms(config: &Fields) -> Result<(), ConfigError> {
    const OFFLINE: [&str; 2] = ["weight_input", "weight_output"];
    let transforms = config.nested("transform_config")?;
    let Some(transforms) = transforms.filter(|transforms| !transforms.is_empty()) else {
        return Ok(());
    };
    let schemes = transforms
        .nested("config_groups")?
        .ok_or_else(|| transforms.missing("config_groups", "an object of transforms"))?;
    for name in schemes.names() {
        let scheme = schemes.nested(&name)?.ok_or_else(|| schemes.missing(&name, "a transform"))?;
        let Some(places) = scheme.value("apply") else { continue };
        let is_offline = |place: &Value| {
            let location = place.get("location").and_then(Value::as_str);
            location.is_some_and(|location| OFFLINE.contains(&location))
        };
        if !places.as_array().is_some_and(|places| places.iter().all(is_offline)) {
            let expected = "transforms at \"weight_input\" or \"weight_output\" alone";
            return Err(scheme.invalid("apply", expected));
        }
    }
    Ok(())
}

/// Reads a scheme of 8-bit floats.
fn of_floats(weights: &Fields) -> Result<ScaleSharing, ConfigError> {
    if weights.text("type")? != Some("float") {
        return Err(weights.invalid("type", "\"float\""));
    }
    if !matches!(weights.size("num_bits")?, None | Some(8)) {
        return Err(weights.invalid("num_bits", "8"));
    }
    require_static(weights)?;
    match weights.text("strategy")? {
        Some("block") => block_structure(weights).map(ScaleSharing::Block),
        None | Some("tensor" | "channel") => of_rows(weights),
        Some(_) => Err(weights.invalid("strategy", "\"tensor\", \"channel\" or \"block\"")),
    }
}

/// Reads a scheme of 4-bit floats in groups.
fn of_small_floats(weights: &Fields) -> Result<ScaleSharing, ConfigError> {
    if weights.text("type")? != Some("float") {
        return Err(weights.invalid("type", "\"float\""));
    }
    if weights.size("num_bits")? != Some(4) {
        return Err(weights.invalid("num_bits", "4"));
    }
    if weights.flag("symmetric")? == Some(false) {
        return Err(weights.invalid("symmetric", "true"));
    }
    require_static(weights)?;
    match weights.text("strategy")? {
        None | Some("tensor_group" | "group") => group(weights),
        Some(_) => Err(weights.invalid("strategy", "\"tensor_group\" or \"group\"")),
    }
}

/// Reads a scheme of integers.
fn of_integers(weights: &Fields) -> Result<ScaleSharing, ConfigError> {
    if !matches!(weights.text("type")?, None | Some("int")) {
        return Err(weights.invalid("type", "\"int\""));
    }
    if !matches!(weights.size("num_bits")?, None | Some(4 | 8)) {
        return Err(weights.invalid("num_bits", "4 or 8"));
    }
    require_static(weights)?;
    match weights.text("strategy")? {
        Some("group") => group(weights),
        None if has_group_size(weights) => group(weights),
        None | Some("tensor" | "channel") => of_rows(weights),
        Some(_) => Err(weights.invalid("strategy", "\"tensor\", \"channel\" or \"group\"")),
    }
}

const GROUP_SIZE: &str = "group_size";

fn group(weights: &Fields) -> Result<ScaleSharing, ConfigError> {
    let size = weights.size(GROUP_SIZE)?;
    let size =
        size.ok_or_else(|| weights.missing(GROUP_SIZE, "the number of inputs in a group"))?;
    Ok(ScaleSharing::Group(size))
}

/// Returns whether the groups of a scheme are smaller than a row: -1 stands for a row.
fn has_group_size(weights: &Fields) -> bool {
    weights.value(GROUP_SIZE).is_some_and(|size| size.as_i64() != Some(-1))
}

/// Reads a strategy without groups. Without a name, `group_size` tells rows from tensors.
fn of_rows(weights: &Fields) -> Result<ScaleSharing, ConfigError> {
    if has_group_size(weights) {
        return Err(weights.invalid(GROUP_SIZE, "-1 or null beside this strategy"));
    }
    Ok(match (weights.text("strategy")?, weights.value(GROUP_SIZE)) {
        (Some("channel"), _) | (None, Some(_)) => ScaleSharing::Row,
        _ => ScaleSharing::Tensor,
    })
}

/// Reads the size of blocks: two numbers, or the text "128x128" of the first versions.
fn block_structure(weights: &Fields) -> Result<[usize; 2], ConfigError> {
    const FIELD: &str = "block_structure";
    const EXPECTED: &str = "two numbers above 0";
    let value = weights.value(FIELD).ok_or_else(|| weights.missing(FIELD, EXPECTED))?;
    let of_text = |text: &str| {
        let (height, width) = text.split_once('x')?;
        let size = |size: &str| size.parse::<usize>().ok().filter(|size| *size > 0);
        Some([size(height)?, size(width)?])
    };
    let block = value.as_str().map_or_else(|| block_size(value), of_text);
    block.ok_or_else(|| weights.invalid(FIELD, EXPECTED))
}

fn require_static(weights: &Fields) -> Result<(), ConfigError> {
    match weights.value("dynamic") {
        Some(dynamic) if *dynamic != Value::Bool(false) => Err(weights.invalid("dynamic", "false")),
        _ => Ok(()),
    }
}
