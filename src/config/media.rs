//! The numbers of images, videos and sounds that a prompt may have, and the adapters for them.

use std::collections::BTreeMap;

use playhouse_actors::logic::request::media::Modality;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Map, Value, json};

use super::JsonObject;

/// Items of a kind if its options have no `count`, as in vLLM.
const COUNT_DEFAULT: usize = 999;

/// The largest number of items of a kind in one prompt. Kinds without a number have vLLM's default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MediaLimits(pub BTreeMap<Modality, usize>);

impl Serialize for MediaLimits {
    /// Writes the numbers as text, as the flag takes them.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let limits = self.0.iter().map(|(kind, count)| (kind.as_str().to_owned(), json!(count)));
        JsonObject(limits.collect()).serialize(to)
    }
}

impl<'de> Deserialize<'de> for MediaLimits {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let JsonObject(given) = JsonObject::deserialize(from)?;
        limits(&given).map(Self).map_err(de::Error::custom)
    }
}

/// The adapters of requests with items of a kind: vLLM's `--default-mm-loras`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MediaLoras(pub BTreeMap<Modality, String>);

impl Serialize for MediaLoras {
    /// Writes the paths as text, as the flag takes them.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let paths = self.0.iter().map(|(kind, path)| (kind.as_str().to_owned(), json!(path)));
        JsonObject(paths.collect()).serialize(to)
    }
}

impl<'de> Deserialize<'de> for MediaLoras {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let JsonObject(given) = JsonObject::deserialize(from)?;
        let of = |(name, value): (&String, &Value)| {
            let path = value.as_str().filter(|path| !path.is_empty());
            let path = path.ok_or_else(|| format!("{name} must be the path of an adapter"))?;
            Ok((kind_of(name)?, path.to_owned()))
        };
        let paths: Result<_, String> = given.iter().map(of).collect();
        paths.map(Self).map_err(de::Error::custom)
    }
}

/// Returns the kind of this name.
fn kind_of(name: &str) -> Result<Modality, String> {
    let kind = Modality::ALL.into_iter().find(|kind| kind.as_str() == name);
    kind.ok_or_else(|| format!("{name:?} is none of image, audio and video"))
}

/// Reads a number for each kind, or vLLM's options.
fn limits(given: &Map<String, Value>) -> Result<BTreeMap<Modality, usize>, String> {
    let limit = |(name, value): (&String, &Value)| {
        let kind = kind_of(name)?;
        let count = match value {
            Value::Object(options) => count_of(name, kind, options)?,
            count => number(count).ok_or_else(|| format!("{name} must be a number of items"))?,
        };
        Ok((kind, count))
    };
    given.iter().map(limit).collect()
}

/// Returns the number of items in the options of a kind. The other options are sizes of items for
/// which vLLM plans its memory. They are checked, and have no effect here.
fn count_of(name: &str, kind: Modality, options: &Map<String, Value>) -> Result<usize, String> {
    let sizes: &[&str] = match kind {
        Modality::Image => &["width", "height"],
        Modality::Video => &["num_frames", "width", "height"],
        Modality::Audio => &["length"],
        Modality::Text => &[],
    };
    for (option, value) in options.iter().filter(|(option, _)| *option != "count") {
        if !sizes.contains(&option.as_str()) {
            let known = sizes.join(", ");
            return Err(format!("{name}.{option} is no option; expected count, {known}"));
        }
        if !value.is_null() && number(value).is_none_or(|size| size == 0) {
            return Err(format!("{name}.{option} must be an integer above 0"));
        }
    }
    match options.get("count") {
        None => Ok(COUNT_DEFAULT),
        Some(count) => {
            number(count).ok_or_else(|| format!("{name}.count must be a number of items"))
        }
    }
}

fn number(value: &Value) -> Option<usize> {
    usize::try_from(value.as_u64()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adapters_are_read_by_kind() {
        let read = |text: &str| serde_json::from_value::<MediaLoras>(json!(text));
        let loras = read(r#"{"image": "a/b"}"#).unwrap();
        assert_eq!(loras.0, [(Modality::Image, "a/b".to_owned())].into());
        assert_eq!(serde_json::to_value(&loras).unwrap(), json!(r#"{"image":"a/b"}"#));
        for wrong in [r#"{"picture": "a"}"#, r#"{"image": ""}"#, r#"{"image": 1}"#, "a"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn limits_are_read_as_vllm_reads_them() {
        let read = |text: &str| serde_json::from_value::<MediaLimits>(json!(text));
        let limits = read(r#"{"image": 2, "video": {"count": 0, "num_frames": 9}}"#).unwrap();
        assert_eq!(limits.0, [(Modality::Image, 2), (Modality::Video, 0)].into());
        assert_eq!(serde_json::to_value(&limits).unwrap(), json!(r#"{"image":2,"video":0}"#));
        let limits = read(r#"{"image": {"width": 512}, "audio": {"length": null}}"#).unwrap();
        assert_eq!(limits.0, [(Modality::Image, 999), (Modality::Audio, 999)].into());
        for wrong in [
            r#"{"picture": 1}"#,
            r#"{"image": -1}"#,
            r#"{"image": {"count": null}}"#,
            r#"{"image": {"num_frames": 2}}"#,
            r#"{"video": {"width": 0}}"#,
            "2",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
