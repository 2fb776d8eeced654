//! `POST /rerank`: documents in the order of their relevance to a query, in the shape of Jina and
//! Cohere.

use axum::Json;
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{
    answer::{Ranked, RankedText, Ranking, ShortUsage},
    fields::PoolingFields,
    items::{Item, items},
    pair_variables::PairVariables,
    run::Results,
    side_limits::SideLimits,
};
use crate::{
    config::LimitSettings,
    engine::{RankedDocument, ranked},
    server::{
        exchange::Exchange,
        http::{
            error::ApiError,
            extract::JsonBody,
            fields::{Int, flag},
            limits::at_most,
            parts::FromParts,
        },
    },
};

/// The query and the documents.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
pub(in crate::server) struct RerankFields {
    query: Option<Value>,
    documents: Option<Value>,
    top_n: Option<Int>,
    #[serde(rename = "return_documents", deserialize_with = "flag")]
    _return_documents: Option<bool>,
}

/// The body of `POST /rerank`.
pub(in crate::server) struct RerankRequest {
    query: Vec<Item>,
    documents: Vec<Item>,
    /// Number of documents in the answer.
    top_n: usize,
    limits: SideLimits,
    variables: PairVariables,
    fields: PoolingFields,
}

impl FromParts for RerankRequest {
    type Parts = (RerankFields, SideLimits, PairVariables, PoolingFields);

    fn from_parts((rerank, limits, variables, fields): Self::Parts) -> Result<Self, ApiError> {
        let required =
            |field: &str| ApiError::validation(&format!("body.{field}"), "Field required");
        let RerankFields { query, documents, top_n, .. } = rerank;
        let query = items("query", query.ok_or_else(|| required("query"))?)?;
        let documents = items("documents", documents.ok_or_else(|| required("documents"))?)?;
        if query.len() != 1 {
            let message = "Input should be one query";
            return Err(ApiError::validation("body.query", message));
        }
        let Int(top_n) = top_n.unwrap_or(Int(0));
        let top_n = usize::try_from(top_n).map_err(|_| {
            let message = "Input should be greater than or equal to 0";
            ApiError::validation("body.top_n", message)
        })?;
        if documents.is_empty() {
            let message = "At least one text_pair element must be given";
            return Err(ApiError::bad_request(message));
        }
        let top_n = if top_n == 0 { documents.len() } else { top_n.min(documents.len()) };
        Ok(Self { query, documents, top_n, limits, variables, fields })
    }

    fn check_limits(&self, limits: &LimitSettings) -> Result<(), ApiError> {
        at_most("documents", self.documents.len(), limits.max_pooling_prompts)
    }
}

/// `POST /rerank`
pub(in crate::server) async fn rerank(
    exchange: Exchange,
    JsonBody(request): JsonBody<RerankRequest>,
) -> Result<Json<Ranking>, ApiError> {
    let RerankRequest { query, documents, top_n, limits, variables, fields } = request;
    let kwargs = variables.media_kwargs(&exchange.state)?;
    let variables = variables.checked(&exchange.state)?;
    let sides = limits.cut(&exchange.state, query, documents.clone()).await?;
    let compared = exchange.compare("/rerank", &fields, sides, &variables, &kwargs).await?;
    let (Results { id, model, num_tokens, .. }, scores) = compared;
    let results = with_texts(ranked(&scores, Some(top_n)), documents);
    let usage = ShortUsage::new(num_tokens);
    Ok(Json(Ranking { id, model, usage, results }))
}

/// Returns the documents of a ranking with their texts, or with the parts of their contents.
fn with_texts(ranking: Vec<RankedDocument>, documents: Vec<Item>) -> Vec<Ranked> {
    let mut documents: Vec<Option<Item>> = documents.into_iter().map(Some).collect();
    let with_text = |RankedDocument { index, score }| {
        let document = match documents.get_mut(index).and_then(Option::take) {
            Some(Item::Text(text)) => RankedText { text: Some(text), multi_modal: None },
            Some(Item::Parts(parts)) => RankedText { text: None, multi_modal: Some(parts) },
            None => RankedText { text: None, multi_modal: None },
        };
        Ranked { index, document, relevance_score: score }
    };
    ranking.into_iter().map(with_text).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn top_n_of_nothing_is_all() {
        let read = |body: Value| {
            let fields = serde_json::from_value(body).unwrap();
            let read = RerankRequest::from_parts((
                fields,
                SideLimits::default(),
                PairVariables::default(),
                PoolingFields::default(),
            ));
            read.map(|read| read.top_n).map_err(|error| error.param)
        };
        let of = |top_n: i64| read(json!({"query": "q", "documents": ["a", "b"], "top_n": top_n}));
        assert_eq!([of(0), of(1), of(9)], [Ok(2), Ok(1), Ok(2)]);
        assert_eq!(of(-1), Err(Some("body.top_n".to_owned())));
        assert_eq!(read(json!({"documents": []})), Err(Some("body.query".to_owned())));
        assert_eq!(read(json!({"query": "q", "documents": []})), Err(None));
    }
}
