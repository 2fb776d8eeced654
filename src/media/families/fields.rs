//! Fields of image processors, in the forms of transformers 4 and 5.

use serde_json::Value;

use super::resize::Filter;
use crate::model::ConfigError;
use crate::model::config::Fields;

/// A size in pixels, as a processor's field gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    /// The shorter side; the other one follows.
    Shortest(usize),
    /// The shorter side, less if the longer one would be too long.
    Bounded { shortest: usize, longest: usize },
    /// Both sides.
    Exact { height: usize, width: usize },
}

/// Returns the size that `field` gives, by default `default`. A number stands for the shorter side,
/// or for both sides if `is_square`. A list has the height and the width.
pub(super) fn size(
    fields: &Fields,
    field: &str,
    is_square: bool,
    default: Size,
) -> Result<Size, ConfigError> {
    const SIDES: [&str; 2] = ["height", "width"];
    let of_number = |side: usize| match is_square {
        true => Size::Exact { height: side, width: side },
        false => Size::Shortest(side),
    };
    match fields.value(field) {
        None => Ok(default),
        Some(Value::Object(_)) => {
            let Some(size) = fields.nested(field)? else { return Ok(default) };
            let edges = (size.size("shortest_edge")?, size.size("longest_edge")?);
            match (edges, size.size(SIDES[0])?, size.size(SIDES[1])?) {
                ((Some(shortest), Some(longest)), _, _) => Ok(Size::Bounded { shortest, longest }),
                ((Some(side), None), _, _) => Ok(Size::Shortest(side)),
                ((None, _), Some(height), Some(width)) => Ok(Size::Exact { height, width }),
                _ => {
                    Err(fields.invalid(field, "an object with shortest_edge, or height and width"))
                }
            }
        }
        Some(Value::Array(sides)) => {
            let side = |value: &Value| fields.with(field, value.clone()).size(field);
            let sides: Vec<Option<usize>> = sides.iter().map(side).collect::<Result<_, _>>()?;
            match *sides {
                [Some(height), Some(width)] => Ok(Size::Exact { height, width }),
                _ => Err(fields.invalid(field, "a height and a width")),
            }
        }
        Some(_) => Ok(fields.size(field)?.map_or(default, of_number)),
    }
}

/// Returns the filter of `resample`, by default `default`.
pub(super) fn filter(fields: &Fields, default: Filter) -> Result<Filter, ConfigError> {
    const FIELD: &str = "resample";
    let expected = "1 (Lanczos), 2 (bilinear) or 3 (bicubic)";
    match fields.count(FIELD)? {
        None => Ok(default),
        Some(1) => Ok(Filter::Lanczos),
        Some(2) => Ok(Filter::Bilinear),
        Some(3) => Ok(Filter::Bicubic),
        Some(_) => Err(fields.invalid(FIELD, expected)),
    }
}

/// Refuses a processor that leaves images in their own size.
pub(super) fn require_resize(fields: &Fields) -> Result<(), ConfigError> {
    const FIELD: &str = "do_resize";
    match fields.flag_or(FIELD, true)? {
        true => Ok(()),
        false => Err(fields.invalid(FIELD, "true")),
    }
}

/// Returns the processor's class without the ending of transformers 4.
pub(super) fn class(fields: &Fields) -> Result<Option<String>, ConfigError> {
    let name = fields.text("image_processor_type")?;
    let name = match name {
        // Checkpoints of old versions have the name of the feature extractor.
        None => fields.text("feature_extractor_type")?,
        name => name,
    };
    Ok(name.map(|name| name.strip_suffix("Fast").unwrap_or(name).to_owned()))
}
