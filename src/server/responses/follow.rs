//! Sends the events of a response that runs in the background.

use std::sync::Arc;

use axum::response::Response;
use futures_util::stream;

use super::stored::Stored;
use crate::server::http::sse;

/// Returns event `first` and those after it, as they come. A client that leaves ends nothing.
pub(super) fn follow(stored: &Arc<Stored>, first: usize) -> Response {
    let progress = stored.follow();
    let batches = stream::unfold((progress, first), |(mut progress, next)| async move {
        let is_news = progress
            .wait_for(|progress| progress.frames.len() > next || progress.response.status.is_over())
            .await;
        let news = is_news.ok()?.frames.get(next..).unwrap_or_default().to_vec();
        let seen = next + news.len();
        (!news.is_empty()).then_some((news, (progress, seen)))
    });
    sse::batches(batches)
}
