//! Stored responses: routes to retrieve, follow, cancel and delete them.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Query, State, rejection::QueryRejection},
    response::{IntoResponse, Response as HttpResponse},
};
use serde::{Deserialize, Serialize};

use super::{
    follow::follow,
    items::{Item, Items},
    response::Response,
};
use crate::server::{
    http::{caller::Caller, error::ApiError, extract::PathOf, fields::switch},
    memory::{RequestMemory, json::json_bytes},
    state::AppState,
};

/// Most items in one list.
const LIMIT_MAX: usize = 100;
const LIMIT_DEFAULT: usize = 20;

type Asked<T> = Result<Query<T>, QueryRejection>;

#[derive(Debug, Deserialize)]
pub(in crate::server) struct Retrieve {
    #[serde(default, deserialize_with = "switch")]
    stream: bool,
    starting_after: Option<usize>,
}

/// `GET /v1/responses/{id}`
pub(in crate::server) async fn retrieve(
    State(state): State<AppState>,
    caller: Caller,
    memory: RequestMemory,
    PathOf(id): PathOf<String>,
    query: Asked<Retrieve>,
) -> Result<HttpResponse, ApiError> {
    let Query(Retrieve { stream, starting_after }) = query.map_err(bad_query)?;
    let stored = state.responses.get(caller.tenant, &id)?;
    if !stream {
        return match starting_after {
            None => Ok(whole(&memory, stored.response()).await?.into_response()),
            Some(_) => {
                let message = "`starting_after` is only for `stream=true`";
                Err(ApiError::invalid("starting_after", message))
            }
        };
    }
    if !(stored.is_background() && stored.is_streamed()) {
        let message = "only a response that was created with `background=true` and `stream=true` \
                       can be streamed again";
        return Err(ApiError::invalid("stream", message));
    }
    Ok(follow(&stored, starting_after.map_or(0, |last| last.saturating_add(1))))
}

/// `POST /v1/responses/{id}/cancel`: the response as it ended, even if it had ended before.
pub(in crate::server) async fn cancel(
    State(state): State<AppState>,
    caller: Caller,
    memory: RequestMemory,
    PathOf(id): PathOf<String>,
) -> Result<Json<Response>, ApiError> {
    let stored = state.responses.get(caller.tenant, &id)?;
    if !stored.is_background() {
        let message = "Cannot cancel a synchronous response.";
        return Err(ApiError::invalid("response_id", message));
    }
    stored.cancel();
    let mut progress = stored.follow();
    let over = progress.wait_for(|progress| progress.response.status.is_over()).await;
    drop(over.map_err(|error| ApiError::internal(error.to_string()))?);
    whole(&memory, stored.response()).await
}

#[derive(Serialize)]
pub(in crate::server) struct Deleted {
    id: String,
    object: &'static str,
    deleted: bool,
}

/// `DELETE /v1/responses/{id}`: cancels a response that still runs.
pub(in crate::server) async fn delete(
    State(state): State<AppState>,
    caller: Caller,
    PathOf(id): PathOf<String>,
) -> Result<Json<Deleted>, ApiError> {
    state.responses.remove(caller.tenant, &id)?.cancel();
    Ok(Json(Deleted { id, object: "response", deleted: true }))
}

#[derive(Debug, Default, Deserialize)]
pub(in crate::server) struct ListItems {
    after: Option<String>,
    limit: Option<usize>,
    order: Option<Order>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Order {
    Asc,
    Desc,
}

#[derive(Debug, Serialize)]
pub(in crate::server) struct ItemList {
    object: &'static str,
    data: Items,
    first_id: Option<String>,
    last_id: Option<String>,
    has_more: bool,
}

/// `GET /v1/responses/{id}/input_items`: all items that the model was given, the latest first.
pub(in crate::server) async fn input_items(
    State(state): State<AppState>,
    caller: Caller,
    memory: RequestMemory,
    PathOf(id): PathOf<String>,
    query: Asked<ListItems>,
) -> Result<Json<ItemList>, ApiError> {
    let Query(asked) = query.map_err(bad_query)?;
    let stored = state.responses.get(caller.tenant, &id)?;
    whole(&memory, asked.list(stored.given().collect())?).await
}

/// Returns `value` as an answer in one piece. Its memory is leased before it is written.
async fn whole<T: Serialize>(memory: &RequestMemory, value: T) -> Result<Json<T>, ApiError> {
    memory.grow(json_bytes(&value)).await?;
    Ok(Json(value))
}

impl ListItems {
    fn list(&self, mut items: Vec<&Arc<Item>>) -> Result<ItemList, ApiError> {
        let limit = self.limit.unwrap_or(LIMIT_DEFAULT);
        if !(1..=LIMIT_MAX).contains(&limit) {
            let message = format!("limit must be in 1..={LIMIT_MAX}, got {limit}");
            return Err(ApiError::invalid("limit", message));
        }
        if self.order != Some(Order::Asc) {
            items.reverse();
        }
        let first = match &self.after {
            None => 0,
            Some(after) => {
                let place = items.iter().position(|item| item.id() == after);
                let missing = || ApiError::missing("after", format!("Item '{after}' not found."));
                place.ok_or_else(missing)? + 1
            }
        };
        let rest = &items[first..];
        let data: Items = rest.iter().take(limit).map(|item| Arc::clone(item)).collect();
        let id = |item: Option<&Arc<Item>>| item.map(|item| item.id().to_owned());
        Ok(ItemList {
            object: "list",
            first_id: id(data.first()),
            last_id: id(data.last()),
            has_more: data.len() < rest.len(),
            data,
        })
    }
}

fn bad_query(error: QueryRejection) -> ApiError {
    ApiError::validation("query", error.body_text())
}
