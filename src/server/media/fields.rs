//! The fields of a request that change how its media are processed.

use serde_json::{Map, Value};

use crate::{
    api::MEDIA_IO_KWARGS,
    server::{http::error::ApiError, state::AppState},
};

type Object = Map<String, Value>;

/// Returns the settings of all items of a request: those of the model's processor, and under their
/// own name those of decoding.
///
/// # Errors
/// 400 if there are some and the server does not accept them.
pub(in crate::server) fn media_kwargs(
    state: &AppState,
    processor: Option<&Object>,
    io: Option<&Object>,
) -> Result<Object, ApiError> {
    let is_trusted = state.config.trust_request_mm_kwargs;
    let fields = [
        ("mm_processor_kwargs", "preprocessing", processor),
        ("media_io_kwargs", "media loading", io),
    ];
    let given = fields.iter().find(|(_, _, given)| given.is_some());
    if let Some((field, work, _)) = given.filter(|_| !is_trusted) {
        let message = format!(
            "Per-request {field} are disabled by default because they can change multimodal \
             {work} resource usage. Start the server with --trust-request-mm-kwargs only when \
             clients are trusted. (parameter={field})"
        );
        return Err(ApiError::invalid(field, message));
    }
    let mut kwargs = processor.cloned().unwrap_or_default();
    if let Some(io) = io {
        kwargs.insert(MEDIA_IO_KWARGS.to_owned(), Value::Object(io.clone()));
    }
    Ok(kwargs)
}
