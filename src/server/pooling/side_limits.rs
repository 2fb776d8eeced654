//! The longest query and the longest document of a pair, in tokens.

use serde::Deserialize;
use utoipa::ToSchema;

use super::items::Item;
use crate::server::{
    http::{error::ApiError, fields::Int},
    state::AppState,
};

const OF_QUERY: &str = "max_tokens_per_query";
const OF_DOCUMENT: &str = "max_tokens_per_doc";

/// The limits of each side, in tokens without special ones. 0 is none.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
pub(in crate::server) struct SideLimits {
    max_tokens_per_query: Option<Int>,
    max_tokens_per_doc: Option<Int>,
}

impl SideLimits {
    /// Returns the texts of both sides, each cut after its most tokens.
    ///
    /// # Errors
    /// 400 for a limit that is not valid, or one of a side with images.
    pub(super) async fn cut(
        &self,
        state: &AppState,
        queries: Vec<Item>,
        documents: Vec<Item>,
    ) -> Result<(Vec<Item>, Vec<Item>), ApiError> {
        let most = state.engine.model_info().max_model_len;
        let of_query = limit(OF_QUERY, self.max_tokens_per_query.as_ref(), most)?;
        let of_document = limit(OF_DOCUMENT, self.max_tokens_per_doc.as_ref(), most)?;
        let queries = cut(state, OF_QUERY, queries, of_query).await?;
        Ok((queries, cut(state, OF_DOCUMENT, documents, of_document).await?))
    }
}

/// Returns the number of tokens that a side keeps, if it has a limit.
fn limit(
    field: &str,
    value: Option<&Int>,
    max_model_len: usize,
) -> Result<Option<usize>, ApiError> {
    let Some(Int(value)) = value else { return Ok(None) };
    match usize::try_from(*value) {
        Ok(0) => Ok(None),
        Ok(count) if count < max_model_len => Ok(Some(count)),
        Ok(count) => Err(ApiError::bad_request(format!(
            "{field} ({count}) must be less than max_model_len ({max_model_len})."
        ))),
        Err(_) => Err(ApiError::bad_request(format!("{field} must be a non-negative integer"))),
    }
}

async fn cut(
    state: &AppState,
    field: &str,
    items: Vec<Item>,
    most_tokens: Option<usize>,
) -> Result<Vec<Item>, ApiError> {
    let Some(most_tokens) = most_tokens else { return Ok(items) };
    // A cut could leave a part of an image.
    let refused =
        |_| ApiError::invalid(field, format!("{field} cuts texts, and a content has images"));
    let texts = items.into_iter().map(|item| item.into_text().map_err(refused));
    let texts = texts.collect::<Result<Vec<String>, ApiError>>()?;
    let bytes = texts.iter().map(String::len).sum();
    let cut = state.engine.text_jobs().work(bytes, move |codec| {
        texts.iter().map(|text| codec.first_tokens(text, most_tokens)).collect::<Result<_, _>>()
    });
    let cut: Vec<String> = cut.await??;
    Ok(cut.into_iter().map(Item::Text).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_below_the_context() {
        let of = |value: i64| limit("max_tokens_per_doc", Some(&Int(value)), 8);
        assert_eq!((of(0).unwrap(), of(7).unwrap()), (None, Some(7)));
        let refused = |value| of(value).unwrap_err().message;
        assert_eq!(refused(-1), "max_tokens_per_doc must be a non-negative integer");
        assert_eq!(refused(8), "max_tokens_per_doc (8) must be less than max_model_len (8).");
        assert!(limit("max_tokens_per_doc", None, 8).unwrap().is_none());
    }
}
