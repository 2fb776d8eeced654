//! `POST /score`: how well the texts of pairs go together.

use axum::response::Response;
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::{
    answer::{Score, Scores},
    fields::PoolingFields,
    input::Inputs,
    items::{Item, items, sides},
    pair_variables::PairVariables,
    run::{Results, json},
    side_limits::SideLimits,
};
use crate::{
    config::LimitSettings,
    server::{
        exchange::Exchange,
        generate::usage::Usage,
        http::{error::ApiError, extract::JsonBody, limits::at_most, parts::FromParts},
    },
};

/// The texts to compare, or contents with images. Either name of each side may be used.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
pub(in crate::server) struct ScoreFields {
    text_1: Option<Value>,
    text_2: Option<Value>,
    queries: Option<Value>,
    documents: Option<Value>,
    items: Option<Value>,
    data_1: Option<Value>,
    data_2: Option<Value>,
}

/// The body of `POST /score`.
pub(in crate::server) struct ScoreRequest {
    queries: Vec<Item>,
    documents: Vec<Item>,
    limits: SideLimits,
    variables: PairVariables,
    fields: PoolingFields,
}

impl FromParts for ScoreRequest {
    type Parts = (ScoreFields, SideLimits, PairVariables, PoolingFields);

    fn from_parts((texts, limits, variables, fields): Self::Parts) -> Result<Self, ApiError> {
        let ScoreFields { text_1, text_2, queries, documents, items, data_1, data_2 } = texts;
        let one = [("queries", queries), ("text_1", text_1), ("data_1", data_1)];
        let other =
            [("documents", documents), ("text_2", text_2), ("data_2", data_2), ("items", items)];
        let (queries, documents) = (first_items(one)?, first_items(other)?);
        Ok(Self { queries, documents, limits, variables, fields })
    }

    fn check_limits(&self, limits: &LimitSettings) -> Result<(), ApiError> {
        at_most("queries", self.queries.len(), limits.max_pooling_prompts)?;
        at_most("documents", self.documents.len(), limits.max_pooling_prompts)
    }
}

/// Returns the items of the first field that is present.
fn first_items<const N: usize>(
    fields: [(&'static str, Option<Value>); N],
) -> Result<Vec<Item>, ApiError> {
    let missing = fields[0].0;
    let found = fields.into_iter().find_map(|(name, value)| Some((name, value?)));
    let (name, value) =
        found.ok_or_else(|| ApiError::validation(&format!("body.{missing}"), "Field required"))?;
    items(name, value)
}

/// `POST /score`
pub(in crate::server) async fn score(
    exchange: Exchange,
    JsonBody(request): JsonBody<ScoreRequest>,
) -> Result<Response, ApiError> {
    let ScoreRequest { queries, documents, limits, variables, fields } = request;
    let kwargs = variables.media_kwargs(&exchange.state)?;
    let variables = variables.checked(&exchange.state)?;
    let sides = limits.cut(&exchange.state, queries, documents).await?;
    let compared = exchange.compare("/score", &fields, sides, &variables, &kwargs).await?;
    let (results, scores) = compared;
    let Results { id, created, model, num_tokens, .. } = results;
    let data = scores.iter().enumerate();
    let data = data.map(|(index, &score)| Score { index, object: "score", score }).collect();
    let usage = Usage::new(num_tokens, 0);
    json(Scores { id, object: "list", created, model, data, usage }, scores.len()).await
}

impl Exchange {
    /// Compares texts, or contents with images. An item on one side alone is compared with each on
    /// the other side. `variables` are those of the template that writes a pair, and `kwargs` are
    /// settings of images.
    pub(super) async fn compare(
        &self,
        route: &'static str,
        fields: &PoolingFields,
        (queries, documents): (Vec<Item>, Vec<Item>),
        variables: &Map<String, Value>,
        kwargs: &Map<String, Value>,
    ) -> Result<(Results, Vec<f32>), ApiError> {
        if !variables.is_empty() {
            // Each pair has its own copy.
            let bytes = Value::Object(variables.clone()).to_string().len();
            let num_pairs = queries.len().max(documents.len());
            self.memory.grow(bytes.saturating_mul(num_pairs)).await?;
        }
        let model = fields.model(&self.state).await?;
        let queries = sides(self, "queries", queries, &model, kwargs).await?;
        let documents = sides(self, "documents", documents, &model, kwargs).await?;
        let copied = self.state.engine.copied_bytes(&queries, &documents);
        self.memory.grow(copied).await?;
        let (scoring, prompts) = self.state.engine.scoring_of(queries, documents, variables)?;
        let task = self.state.engine.pooling_task().unwrap_or_default();
        if scoring.is_listwise() && fields.cuts_prompts() {
            let message = "This model ranks all documents in one prompt, of which no token may be \
                           cut off; use `max_tokens_per_doc`.";
            return Err(ApiError::invalid("truncate_prompt_tokens", message));
        }
        let params = fields.params(&self.state, &model, task)?;
        let (prompts, media) = prompts.into_iter().unzip();
        let adds_special_tokens = scoring.adds_special_tokens();
        let end_token = scoring.end_token();
        let inputs = Inputs { prompts, media, adds_special_tokens, end_token };
        let results = self.pool(route, "score", fields, inputs, params).await?;
        let pairs = results.prompts.iter().zip(&results.results);
        let scores = scoring.scores(pairs.map(|(tokens, pooled)| (&**tokens, pooled)));
        Ok((results, scores))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(body: Value) -> Result<(usize, usize), Option<String>> {
        let texts = serde_json::from_value(body).unwrap();
        let (limits, variables) = (SideLimits::default(), PairVariables::default());
        let read = ScoreRequest::from_parts((texts, limits, variables, PoolingFields::default()));
        read.map(|read| (read.queries.len(), read.documents.len())).map_err(|error| error.param)
    }

    #[test]
    fn either_pair_of_names_is_taken() {
        for [one, other] in [
            ["text_1", "text_2"],
            ["queries", "documents"],
            ["queries", "items"],
            ["data_1", "data_2"],
        ] {
            assert_eq!(read(json!({one: "a", other: ["b", "c"]})), Ok((1, 2)));
        }
        let missing = |body| read(body).unwrap_err();
        assert_eq!(missing(json!({"text_1": "a"})).as_deref(), Some("body.documents"));
        assert_eq!(missing(json!({"text_2": "a"})).as_deref(), Some("body.queries"));
        let wrong = missing(json!({"text_1": 1, "text_2": "a"}));
        assert_eq!(wrong.as_deref(), Some("body.text_1"));
    }
}
