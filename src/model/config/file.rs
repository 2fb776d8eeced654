//! A JSON file read field by field, so that each error can name the field and its value.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::ConfigError;
use crate::model_files::{self, ModelFileError};

/// The largest size, count or position in any field. Up to it, positions are exact in f32, which
/// rotary embeddings compute in. Products of two sizes cannot overflow.
pub(in crate::model) const SIZE_MAX: usize = 1 << 24;

/// The longest context: twice the longest of any existing model. It is bounded because tables of
/// cosines and sines cover all of it before the first request. They have two numbers for each
/// position and pair of a head.
pub(in crate::model) const POSITIONS_MAX: usize = 1 << 23;

/// A JSON object of a configuration file, or one nested in it. A field that is `null` counts as
/// absent, as it does for transformers.
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
        let object = serde_json::from_slice(&text).map_err(|error| ConfigError::Json {
            path: path.to_owned(),
            reason: error.to_string(),
        })?;
        Ok(Self::translated(path, object, Vec::new()))
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

    /// Returns an object without fields, whose errors name fields as those of `outer`.
    pub(super) fn empty_in(outer: &Self) -> Self {
        Self { object: Map::new(), ..outer.clone() }
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
    pub(super) fn value(&self, field: &str) -> Option<&Value> {
        self.object.get(field).filter(|value| !value.is_null())
    }

    /// Returns whether a field is present, even if it is null.
    pub(super) fn has(&self, field: &str) -> bool {
        self.object.contains_key(field)
    }

    /// Sets a field, for example to a value from an enclosing object.
    pub(super) fn set(&mut self, field: &str, value: Value) {
        self.object.insert(field.to_owned(), value);
    }

    /// Sets a field if it is absent or null.
    pub(super) fn set_default(&mut self, field: &str, value: Option<&Value>) {
        if self.value(field).is_none()
            && let Some(value) = value
        {
            self.set(field, value.clone());
        }
    }

    pub(super) fn size(&self, field: &str) -> Result<Option<usize>, ConfigError> {
        self.size_up_to(field, SIZE_MAX)
    }

    /// Returns a number of positions.
    pub(super) fn positions(&self, field: &str) -> Result<Option<usize>, ConfigError> {
        self.size_up_to(field, POSITIONS_MAX)
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

    pub(super) fn flag(&self, field: &str) -> Result<Option<bool>, ConfigError> {
        self.parse(field, "true or false", Value::as_bool)
    }

    pub(super) fn number(&self, field: &str) -> Result<Option<f64>, ConfigError> {
        self.parse(field, "a finite number", |value| value.as_f64().filter(|x| x.is_finite()))
    }

    pub(super) fn integer(&self, field: &str) -> Result<Option<i64>, ConfigError> {
        self.parse(field, "an integer", Value::as_i64)
    }

    pub(super) fn positive(&self, field: &str) -> Result<Option<f64>, ConfigError> {
        self.parse(field, "a number above 0", positive)
    }

    pub(super) fn required_positive(&self, field: &str) -> Result<f64, ConfigError> {
        self.positive(field)?.ok_or_else(|| self.missing(field, "a number above 0"))
    }

    pub(super) fn text(&self, field: &str) -> Result<Option<&str>, ConfigError> {
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
    pub(super) fn token_ids(&self, field: &str) -> Result<Vec<u32>, ConfigError> {
        let token_id = |value: &Value| u32::try_from(value.as_u64()?).ok();
        let ids = self.parse(field, "a token id or a list of token ids", |value| match value {
            Value::Array(ids) => ids.iter().map(token_id).collect(),
            id => token_id(id).map(|id| vec![id]),
        })?;
        Ok(ids.unwrap_or_default())
    }

    /// Returns the object under `field`.
    pub(super) fn nested(&self, field: &str) -> Result<Option<Self>, ConfigError> {
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

    pub(super) fn missing(&self, field: &str, expected: &str) -> ConfigError {
        ConfigError::Missing {
            path: self.path.clone(),
            field: self.shown_name(field),
            expected: expected.to_owned(),
        }
    }

    pub(super) fn invalid(&self, field: &str, expected: &str) -> ConfigError {
        ConfigError::Invalid {
            path: self.path.clone(),
            field: self.shown_name(field),
            value: self.shown_value(field),
            expected: expected.to_owned(),
        }
    }

    /// Returns the error that the model's family is none of `supported`.
    pub(crate) fn unsupported_family(&self, field: &str, supported: &str) -> ConfigError {
        ConfigError::UnsupportedFamily {
            path: self.path.clone(),
            field: self.shown_name(field),
            value: self.shown_value(field),
            supported: supported.to_owned(),
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

fn positive(value: &Value) -> Option<f64> {
    value.as_f64().filter(|x| x.is_finite() && *x > 0.0)
}

#[cfg(test)]
pub(super) fn fields(json: Value) -> Fields {
    let Value::Object(object) = json else { panic!("{json} is no object") };
    Fields::translated(Path::new("config.json"), object, Vec::new())
}
