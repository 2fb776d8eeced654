//! A JSON file read field by field, so that each error can name the field and its value.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::ConfigError;
use crate::config::JsonObject;
use crate::model_files::{self, ModelFileError};

/// The largest size, count or position in any field. Up to it, positions are exact in f32, which
/// rotary embeddings compute in. Products of two sizes cannot overflow.
pub(in crate::model) const SIZE_MAX: usize = 1 << 24;

/// The longest context that is served, also of a model that allows more. Tables of cosines and
/// sines cover it before the first request: two numbers for each position and pair of a head.
pub(in crate::model) const POSITIONS_MAX: usize = 1 << 23;

/// The sizes that no model is without.
const SIZES: [&str; 3] = ["hidden_size", "num_hidden_layers", "num_attention_heads"];

/// A JSON object of a configuration file, or one nested in it.
///
/// Most readers treat a field that is `null` as absent. transformers does so only where a class
/// has no default, as a null replaces the default. [`Fields::flag_or`] and [`Fields::has`] tell
/// the two apart.
#[derive(Debug, Clone)]
pub(crate) struct Fields {
    path: PathBuf,
    /// The dotted name of this object in the file, ending in a dot; empty for the file itself.
    prefix: String,
    object: Map<String, Value>,
    /// The names that errors use for fields whose values come from somewhere else: pairs of a
    /// dotted name and that name.
    origins: Arc<[(String, String)]>,
}

impl Fields {
    /// Reads the JSON object in the file `path`.
    pub(super) fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = model_files::read(path).map_err(ModelFileError::read(path))?;
        let text = plain_json(&text);
        let object = serde_json::from_slice(&text).map_err(|error| ConfigError::Json {
            path: path.to_owned(),
            reason: error.to_string(),
        })?;
        Ok(Self::translated(path, object, Vec::new()))
    }

    /// Replaces fields by those of the settings.
    pub(crate) fn override_with(&mut self, overrides: &JsonObject) {
        overrides.merge_into(&mut self.object);
    }

    /// Returns fields that are translated from another form in `path`. `origins` pairs their dotted
    /// names with the names that errors use.
    pub(super) fn translated(
        path: &Path,
        object: Map<String, Value>,
        origins: Vec<(String, String)>,
    ) -> Self {
        Self { path: path.to_owned(), prefix: String::new(), object, origins: origins.into() }
    }

    /// Returns the fields with those of other names, pairs of that name and the usual one, under
    /// their usual names. A field that has the usual name beside one with the other name is not
    /// read, unless a pair of it twice comes later. Errors name fields as the file does. A null for
    /// a size that every model has stands for an older name without a value.
    pub(crate) fn with_aliases(&self, aliases: &[(&str, &str)]) -> Self {
        let (mut fields, mut origins) = (self.clone(), self.origins.to_vec());
        for (alias, usual) in aliases {
            let is_old = alias == usual || SIZES.contains(usual) && self.has(usual);
            let counts = |value: &&Value| !value.is_null() || !is_old;
            if let Some(value) = self.object.get(*alias).filter(counts) {
                fields.object.insert((*usual).to_owned(), value.clone());
                let known = format!("{}{usual}", self.prefix);
                origins.retain(|(other, _)| *other != known);
                origins.push((known, self.shown_name(alias)));
            }
        }
        fields.origins = origins.into();
        fields
    }

    /// Returns for each of `count` layers whether it has rotary embeddings: the field
    /// `no_rope_layers`, which is 1 where there are, or all but every `no_rope_layer_interval`th.
    pub(crate) fn rope_layers(&self, count: usize) -> Result<Vec<bool>, ConfigError> {
        const FIELD: &str = "no_rope_layers";
        // transformers treats an empty list as absent.
        let is_empty = |list: &&Value| list.as_array().is_none_or(|list| !list.is_empty());
        if let Some(list) = self.value(FIELD).filter(is_empty) {
            let flag = |value: &Value| match value.as_u64() {
                Some(0) => Some(false),
                Some(1) => Some(true),
                _ => value.as_bool(),
            };
            let list = list.as_array().filter(|list| list.len() == count);
            let flags = list.and_then(|list| list.iter().map(flag).collect());
            return flags.ok_or_else(|| self.invalid(FIELD, &format!("a list of {count} 0 or 1")));
        }
        let interval = self.size("no_rope_layer_interval")?.unwrap_or(4);
        Ok((1..=count).map(|layer| !layer.is_multiple_of(interval)).collect())
    }

    /// Returns the kind of each layer, as an index of `kinds`. Names of transformers 4 count, too.
    pub(crate) fn layer_kinds(
        &self,
        field: &str,
        kinds: &[&str],
    ) -> Result<Option<Vec<usize>>, ConfigError> {
        let kind = |value: &Value| {
            let name = match value.as_str()? {
                "mamba" => "linear_attention",
                "attention" => "full_attention",
                name => name,
            };
            kinds.iter().position(|kind| *kind == name)
        };
        self.parse(field, &format!("a list of {}", kinds.join(", ")), |value| {
            value.as_array()?.iter().map(kind).collect()
        })
    }

    /// Returns a list of strings; an empty one if the field is absent.
    pub(crate) fn texts(&self, field: &str) -> Result<Vec<&str>, ConfigError> {
        let list = self.parse(field, "a list of strings", |value| {
            value.as_array()?.iter().map(Value::as_str).collect::<Option<Vec<_>>>()
        })?;
        Ok(list.unwrap_or_default())
    }

    /// Returns a list of indices of layers; an empty one if the field is absent.
    pub(crate) fn indices(&self, field: &str) -> Result<Vec<usize>, ConfigError> {
        let list = self.parse(field, "a list of layers", |value| {
            let index = |value: &Value| usize::try_from(value.as_u64()?).ok();
            value.as_array()?.iter().map(index).collect::<Option<Vec<_>>>()
        })?;
        Ok(list.unwrap_or_default())
    }

    /// Returns a size for each of `count` layers: one for all, or a list.
    pub(crate) fn sizes(
        &self,
        field: &str,
        count: usize,
    ) -> Result<Option<Vec<usize>>, ConfigError> {
        let Some(list) = self.value(field).and_then(Value::as_array) else {
            return Ok(self.size(field)?.map(|size| vec![size; count]));
        };
        let size = |value: &Value| {
            let size = usize::try_from(value.as_u64()?).ok()?;
            (1..=SIZE_MAX).contains(&size).then_some(size)
        };
        let sizes: Option<Vec<usize>> = list.iter().map(size).collect();
        sizes.filter(|sizes| sizes.len() == count).map(Some).ok_or_else(|| {
            let expected = format!("a size, or a list of {count} (num_hidden_layers) sizes");
            self.invalid(field, &expected)
        })
    }

    /// Returns for each of `count` layers whether a list names the second of `names`, and not the
    /// first.
    pub(crate) fn flags(
        &self,
        field: &str,
        names: [&str; 2],
        count: usize,
    ) -> Result<Option<Vec<bool>>, ConfigError> {
        let [no, yes] = names;
        let flag = |value: &Value| match value.as_str() {
            Some(name) if name == no => Some(false),
            Some(name) if name == yes => Some(true),
            _ => None,
        };
        let expected = format!("a list of {count} (num_hidden_layers) of {no:?} or {yes:?}");
        self.parse(field, &expected, |value| {
            let list = value.as_array().filter(|list| list.len() == count)?;
            list.iter().map(flag).collect()
        })
    }

    /// Returns a number of pixels, which may be larger than a size.
    pub(crate) fn pixels(&self, field: &str) -> Result<Option<usize>, ConfigError> {
        const MAX: usize = 1 << 32;
        self.parse(field, &format!("an integer from 1 to {MAX}"), |value| {
            usize::try_from(value.as_u64()?).ok().filter(|count| (1..=MAX).contains(count))
        })
    }

    /// Returns a size or count that may be 0.
    pub(crate) fn count(&self, field: &str) -> Result<Option<usize>, ConfigError> {
        self.parse(field, &format!("an integer from 0 to {SIZE_MAX}"), |value| {
            usize::try_from(value.as_u64()?).ok().filter(|count| *count <= SIZE_MAX)
        })
    }

    /// Returns an object without fields, whose errors name fields as those of `outer`.
    pub(crate) fn empty_in(outer: &Self) -> Self {
        Self { object: Map::new(), ..outer.clone() }
    }

    /// Returns the fields without some of them.
    pub(crate) fn without(&self, fields: &[&str]) -> Self {
        let mut left = self.clone();
        fields.iter().for_each(|field| drop(left.object.remove(*field)));
        left
    }

    /// Returns the fields with another value of one of them.
    pub(crate) fn with(&self, field: &str, value: Value) -> Self {
        let mut fields = self.clone();
        fields.set(field, value);
        fields
    }

    /// Returns a list of `length` numbers, which may be infinite: `Infinity`, as Python writes it,
    /// or `{"__float__": "Infinity"}`, as transformers 5 does.
    pub(crate) fn numbers(
        &self,
        field: &str,
        length: usize,
    ) -> Result<Option<Vec<f64>>, ConfigError> {
        let number = |value: &Value| match value.get("__float__").and_then(Value::as_str) {
            Some("Infinity") => Some(f64::INFINITY),
            Some("-Infinity") => Some(f64::NEG_INFINITY),
            Some(_) => None,
            None => value.as_f64(),
        };
        self.parse(field, &format!("a list of {length} numbers"), |value| {
            let list: Option<Vec<f64>> = value.as_array()?.iter().map(number).collect();
            list.filter(|list| list.len() == length)
        })
    }

    /// Returns all fields.
    pub(crate) fn object(&self) -> &Map<String, Value> {
        &self.object
    }

    pub(super) fn is_empty(&self) -> bool {
        self.object.is_empty()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the names of all fields.
    pub(super) fn names(&self) -> Vec<String> {
        self.object.keys().cloned().collect()
    }

    /// Returns the value of a field that is present and not null.
    pub(crate) fn value(&self, field: &str) -> Option<&Value> {
        self.object.get(field).filter(|value| !value.is_null())
    }

    /// Returns whether a field is present, even if it is null.
    pub(crate) fn has(&self, field: &str) -> bool {
        self.object.contains_key(field)
    }

    /// Sets a field, for example to a value from an enclosing object.
    pub(super) fn set(&mut self, field: &str, value: Value) {
        self.object.insert(field.to_owned(), value);
    }

    /// Sets a field that is absent or null to the field `name` of `from`, as which errors name it.
    pub(crate) fn adopt(&mut self, field: &str, from: &Self, name: &str) {
        if self.value(field).is_none() {
            self.replace(field, from, name);
        }
    }

    /// Sets a field to the field `name` of `from`, if there is one. Errors name it as that field.
    pub(crate) fn replace(&mut self, field: &str, from: &Self, name: &str) {
        let Some(value) = from.value(name) else { return };
        let origin = (format!("{}{field}", self.prefix), from.shown_name(name));
        let others = self.origins.iter().filter(|(known, _)| *known != origin.0).cloned();
        self.origins = others.chain([origin.clone()]).collect();
        self.set(field, value.clone());
    }

    /// Sets a field if it is absent or null.
    pub(super) fn set_default(&mut self, field: &str, value: Option<&Value>) {
        if self.value(field).is_none()
            && let Some(value) = value
        {
            self.set(field, value.clone());
        }
    }

    pub(crate) fn size(&self, field: &str) -> Result<Option<usize>, ConfigError> {
        self.size_up_to(field, SIZE_MAX)
    }

    /// Returns a number of positions, which may be more than the longest context.
    pub(super) fn positions(&self, field: &str) -> Result<Option<usize>, ConfigError> {
        self.size_up_to(field, u32::MAX as usize)
    }

    fn size_up_to(&self, field: &str, most: usize) -> Result<Option<usize>, ConfigError> {
        self.parse(field, &format!("an integer from 1 to {most}"), |value| {
            let size = usize::try_from(value.as_u64()?).ok()?;
            (1..=most).contains(&size).then_some(size)
        })
    }

    pub(crate) fn required_size(&self, field: &str) -> Result<usize, ConfigError> {
        self.size(field)?.ok_or_else(|| self.missing(field, "a positive integer"))
    }

    pub(crate) fn flag(&self, field: &str) -> Result<Option<bool>, ConfigError> {
        self.parse(field, "true or false", Value::as_bool)
    }

    /// Returns a boolean that is `default` if the field is absent. Null is false, as in Python.
    pub(crate) fn flag_or(&self, field: &str, default: bool) -> Result<bool, ConfigError> {
        Ok(self.flag(field)?.unwrap_or(default && !self.has(field)))
    }

    pub(crate) fn number(&self, field: &str) -> Result<Option<f64>, ConfigError> {
        self.parse(field, "a finite number", |value| value.as_f64().filter(|x| x.is_finite()))
    }

    pub(crate) fn integer(&self, field: &str) -> Result<Option<i64>, ConfigError> {
        self.parse(field, "an integer", Value::as_i64)
    }

    pub(crate) fn positive(&self, field: &str) -> Result<Option<f64>, ConfigError> {
        self.parse(field, "a number above 0", positive)
    }

    pub(crate) fn required_positive(&self, field: &str) -> Result<f64, ConfigError> {
        self.positive(field)?.ok_or_else(|| self.missing(field, "a number above 0"))
    }

    pub(crate) fn text(&self, field: &str) -> Result<Option<&str>, ConfigError> {
        self.parse(field, "a string", Value::as_str)
    }

    /// Returns a required list of exactly `length` positive numbers.
    pub(super) fn positive_list(
        &self,
        field: &str,
        length: usize,
    ) -> Result<Vec<f32>, ConfigError> {
        let expected = format!("a list of {length} numbers above 0");
        let list = self.parse(field, &expected, |value| {
            let list: Option<Vec<f32>> =
                value.as_array()?.iter().map(|x| positive(x).map(|x| x as f32)).collect();
            list.filter(|list| list.len() == length)
        })?;
        list.ok_or_else(|| self.missing(field, &expected))
    }

    /// Returns token ids, which the file gives as one integer or a list.
    pub(in crate::model) fn token_ids(&self, field: &str) -> Result<Vec<u32>, ConfigError> {
        let token_id = |value: &Value| u32::try_from(value.as_u64()?).ok();
        let ids = self.parse(field, "a token id or a list of token ids", |value| match value {
            Value::Array(ids) => ids.iter().map(token_id).collect(),
            id => token_id(id).map(|id| vec![id]),
        })?;
        Ok(ids.unwrap_or_default())
    }

    /// Returns the object under `field`.
    pub(crate) fn nested(&self, field: &str) -> Result<Option<Self>, ConfigError> {
        let object = self.parse(field, "an object", Value::as_object)?;
        Ok(object.map(|object| Self {
            path: self.path.clone(),
            prefix: format!("{}{field}.", self.prefix),
            object: object.clone(),
            origins: Arc::clone(&self.origins),
        }))
    }

    /// Returns the name of a field in errors: its dotted name, or the origin of its value.
    fn shown_name(&self, field: &str) -> String {
        let name = format!("{}{field}", self.prefix);
        let origin = self.origins.iter().find(|(known, _)| *known == name);
        origin.map_or(name, |(_, origin)| origin.clone())
    }

    pub(crate) fn missing(&self, field: &str, expected: &str) -> ConfigError {
        ConfigError::Missing {
            path: self.path.clone(),
            field: self.shown_name(field),
            expected: expected.to_owned(),
        }
    }

    pub(crate) fn invalid(&self, field: &str, expected: &str) -> ConfigError {
        ConfigError::Invalid {
            path: self.path.clone(),
            field: self.shown_name(field),
            value: self.shown_value(field),
            expected: expected.to_owned(),
        }
    }

    /// Returns the error that `name`, a value of `field`, is none of the `supported` families.
    pub(crate) fn unsupported_family(
        &self,
        field: &str,
        name: &str,
        supported: &[&str],
    ) -> ConfigError {
        let (path, field) = (self.path.clone(), self.shown_name(field));
        let (value, supported) = (format!("{name:?}"), nearest(name, supported));
        match self.value("auto_map") {
            // transformers would run the code, which computes what no field says.
            Some(_) => ConfigError::CustomCode { path, value, supported },
            None => ConfigError::UnsupportedFamily { path, field, value, supported },
        }
    }

    fn shown_value(&self, field: &str) -> String {
        const SHOWN_CHARS: usize = 200;
        let value = self.object.get(field).unwrap_or(&Value::Null).to_string();
        value.chars().take(SHOWN_CHARS).collect()
    }

    fn parse<'a, T>(
        &'a self,
        field: &str,
        expected: &str,
        parse: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, ConfigError> {
        match self.value(field) {
            None => Ok(None),
            Some(value) => parse(value).map(Some).ok_or_else(|| self.invalid(field, expected)),
        }
    }
}

/// Returns JSON in which `Infinity`, as Python writes it outside of strings, is the object that
/// transformers 5 writes for it. All else is as it was.
fn plain_json(text: &[u8]) -> Cow<'_, [u8]> {
    const INFINITY: &[u8] = b"Infinity";
    if !text.windows(INFINITY.len()).any(|window| window == INFINITY) {
        return Cow::Borrowed(text);
    }
    let (mut plain, mut is_in_string, mut at) = (Vec::new(), false, 0);
    while at < text.len() {
        let rest = &text[at..];
        let sign = usize::from(rest[0] == b'-');
        if !is_in_string && rest[sign..].starts_with(INFINITY) {
            let len = sign + INFINITY.len();
            plain.extend_from_slice(br#"{"__float__":""#);
            plain.extend_from_slice(&rest[..len]);
            plain.extend_from_slice(br#""}"#);
            at += len;
            continue;
        }
        let len = if is_in_string && rest[0] == b'\\' { rest.len().min(2) } else { 1 };
        is_in_string ^= rest[0] == b'"';
        plain.extend_from_slice(&rest[..len]);
        at += len;
    }
    Cow::Owned(plain)
}

/// Returns the names of `supported` that are most like `name`, in words.
fn nearest(name: &str, supported: &[&str]) -> String {
    const SHOWN: usize = 3;
    let distance = |known: &&&str| strsim::damerau_levenshtein(known, name);
    let mut by_distance: Vec<&&str> = supported.iter().collect();
    by_distance.sort_by_key(distance);
    let shown: Vec<&str> = by_distance.into_iter().take(SHOWN).copied().collect();
    format!("{} and those that `playhouse models` lists", shown.join(", "))
}

fn positive(value: &Value) -> Option<f64> {
    value.as_f64().filter(|x| x.is_finite() && *x > 0.0)
}

#[cfg(test)]
pub(in crate::model) fn fields(json: Value) -> Fields {
    let Value::Object(object) = json else { panic!("{json} is no object") };
    Fields::translated(Path::new("config.json"), object, Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_infinite_number_of_python_is_read() {
        let text = br#"{"a": [0.0, Infinity], "b\" Infinity": "-Infinity", "c": [-Infinity, 1]}"#;
        let value: Value = serde_json::from_slice(&plain_json(text)).unwrap();
        let fields = fields(value);
        assert_eq!(fields.numbers("a", 2).unwrap(), Some(vec![0.0, f64::INFINITY]));
        assert_eq!(fields.numbers("c", 2).unwrap(), Some(vec![f64::NEG_INFINITY, 1.0]));
        assert_eq!(fields.text("b\" Infinity").unwrap(), Some("-Infinity"));
        assert!(fields.numbers("a", 3).is_err() && fields.numbers("d", 2).unwrap().is_none());
    }
}
