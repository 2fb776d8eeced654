//! The form of a request: a file beside fields of text (`multipart/form-data`). Requests of this
//! process have an object in its place, with the URL of the file, as vLLM's batches do.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{FromRequest, Multipart, Request},
};
use serde_json::{Map, Value};

use crate::server::{
    http::{
        body::{self, BodyLimits},
        error::ApiError,
    },
    memory::RequestMemory,
    state::AppState,
};

/// Most fields of a form.
const FIELDS_MAX: usize = 64;

/// Largest text of a field, bytes.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// Marks a request of this process, whose body is an object.
#[derive(Debug, Clone, Copy)]
pub(in crate::server) struct ObjectBody;

/// The fields of a form, as the client wrote them.
#[derive(Debug, Default)]
pub(super) struct SpeechForm {
    /// The sound.
    pub(super) file: Option<Arc<[u8]>>,
    /// The other fields. A name may occur more than once.
    pub(super) fields: Vec<(String, String)>,
}

impl SpeechForm {
    /// Returns the last text of the field `name`. An empty one counts as absent.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        let named = self.fields.iter().rev().find(|(field, _)| field == name);
        named.map(|(_, text)| text.as_str()).filter(|text| !text.is_empty())
    }

    /// Returns the field `name` as a number.
    ///
    /// # Errors
    /// 400 with the field's place.
    pub(super) fn number(&self, name: &str) -> Result<Option<Value>, ApiError> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let text = text.trim();
        let integer = text.parse::<i64>().ok().map(Value::from);
        let number = integer.or_else(|| text.parse::<f64>().ok().map(Value::from));
        number.filter(Value::is_number).map(Some).ok_or_else(|| {
            let message = "Input should be a valid number, unable to parse string as a number";
            ApiError::validation(&format!("body.{name}"), message)
        })
    }

    /// Returns the field `name` as an integer.
    ///
    /// # Errors
    /// 400 with the field's place.
    pub(super) fn integer(&self, name: &str) -> Result<Option<i64>, ApiError> {
        let Some(number) = self.number(name)? else { return Ok(None) };
        number.as_i64().map(Some).ok_or_else(|| {
            let message = "Input should be a valid integer, unable to parse string as an integer";
            ApiError::validation(&format!("body.{name}"), message)
        })
    }

    /// Returns the field `name` as a flag; false if it is absent.
    ///
    /// # Errors
    /// 400 with the field's place.
    pub(super) fn flag(&self, name: &str) -> Result<bool, ApiError> {
        let text = self.text(name).unwrap_or("false").trim().to_ascii_lowercase();
        match text.as_str() {
            "true" | "1" | "yes" | "y" | "on" | "t" => Ok(true),
            "false" | "0" | "no" | "n" | "off" | "f" => Ok(false),
            _ => {
                let message = "Input should be a valid boolean, unable to interpret input";
                Err(ApiError::validation(&format!("body.{name}"), message))
            }
        }
    }
}

impl FromRequest<AppState> for SpeechForm {
    type Rejection = ApiError;

    /// Reads the body. One that is no form has no fields, except an object of this process.
    async fn from_request(request: Request, state: &AppState) -> Result<Self, ApiError> {
        let memory = RequestMemory::of(request.extensions(), state);
        let (parts, body) = request.into_parts();
        let limits = BodyLimits::of(&parts.extensions, &state.config);
        let bytes = body::read(&parts.headers, body, limits, &memory).await?;
        if parts.extensions.get::<ObjectBody>().is_some() {
            return of_object(&bytes, state, &memory).await;
        }
        let request = Request::from_parts(parts, Body::from(bytes));
        match Multipart::from_request(request, state).await {
            Ok(form) => read(form).await,
            Err(_) => Ok(Self::default()),
        }
    }
}

/// Reads an object with the fields of a form. In place of the file it has `file_url`.
async fn of_object(
    bytes: &[u8],
    state: &AppState,
    memory: &RequestMemory,
) -> Result<SpeechForm, ApiError> {
    let fields = serde_json::from_slice::<Map<String, Value>>(bytes);
    let fields = fields.map_err(|error| ApiError::bad_request(error.to_string()))?;
    let mut form = SpeechForm::default();
    for (name, value) in fields {
        if name == "file" {
            let message = "The 'file' field is not supported in batch requests. Use 'file_url' \
                           instead.";
            return Err(ApiError::invalid("file", message));
        }
        match value {
            Value::String(url) if name == "file_url" => {
                form.file = Some(state.media.sound(&url, memory).await?);
            }
            Value::Null => {}
            Value::String(text) => form.fields.push((name, text)),
            Value::Array(items) => {
                let text = |item: &Value| match item {
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                form.fields.extend(items.iter().map(|item| (name.clone(), text(item))));
            }
            other => form.fields.push((name, other.to_string())),
        }
    }
    match form.file {
        Some(_) => Ok(form),
        None => Err(ApiError::validation("body.file_url", "Field required")),
    }
}

async fn read(mut multipart: Multipart) -> Result<SpeechForm, ApiError> {
    let broken = |error: axum::extract::multipart::MultipartError| {
        ApiError::bad_request(format!("There was an error parsing the body: {}", error.body_text()))
    };
    let mut form = SpeechForm::default();
    while let Some(field) = multipart.next_field().await.map_err(broken)? {
        let name = field.name().unwrap_or_default().to_owned();
        let is_file = field.file_name().is_some();
        let bytes = field.bytes().await.map_err(broken)?;
        if name == "file" && is_file {
            form.file = Some(bytes.as_ref().into());
            continue;
        }
        if form.fields.len() == FIELDS_MAX || bytes.len() > TEXT_BYTES_MAX {
            let message = format!(
                "a form has at most {FIELDS_MAX} fields of {TEXT_BYTES_MAX} bytes beside its file"
            );
            return Err(ApiError::validation(&format!("body.{name}"), message));
        }
        let text = String::from_utf8(bytes.to_vec()).map_err(|_| {
            ApiError::validation(&format!("body.{name}"), "Input should be valid UTF-8")
        })?;
        form.fields.push((name, text));
    }
    Ok(form)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(fields: &[(&str, &str)]) -> SpeechForm {
        let owned = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
        SpeechForm { file: None, fields: fields.iter().map(owned).collect() }
    }

    #[test]
    fn texts_become_numbers_and_flags() {
        let form =
            form(&[("a", "1"), ("b", "0.5"), ("c", "x"), ("d", "True"), ("e", ""), ("a", "2")]);
        assert_eq!(form.number("a").unwrap(), Some(2.into()));
        assert_eq!(form.integer("a").unwrap(), Some(2));
        assert_eq!(form.number("b").unwrap(), Some(0.5.into()));
        assert_eq!(form.number("e").unwrap(), None);
        assert!(form.flag("d").unwrap() && !form.flag("e").unwrap() && !form.flag("z").unwrap());
        let place = |error: ApiError| error.param.unwrap();
        assert_eq!(place(form.number("c").unwrap_err()), "body.c");
        assert_eq!(place(form.integer("b").unwrap_err()), "body.b");
        assert_eq!(place(form.flag("c").unwrap_err()), "body.c");
    }

    #[test]
    fn numbers_that_json_lacks_are_refused() {
        for text in ["nan", "inf", "-inf"] {
            assert!(form(&[("temperature", text)]).number("temperature").is_err(), "{text}");
        }
    }
}
