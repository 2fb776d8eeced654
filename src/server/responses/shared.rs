//! The bytes of stored responses that a conversation shows the model. Text is shared while it is
//! stored, and copied each time it is shown.

use std::sync::Arc;

use super::{items::Item, stored::Turn};
use crate::server::http::error::ApiError;

/// Bytes of stored items, each as often as it is shown. They may be at most as many as those of a
/// body.
pub(super) struct SharedBytes {
    before: usize,
    referenced: usize,
    limit: usize,
}

impl SharedBytes {
    /// Counts the turns before a request, whose own body may have `limit` bytes.
    ///
    /// # Errors
    /// 413 if they are more than `limit`.
    pub(super) fn new(history: &[Arc<Turn>], limit: usize) -> Result<Self, ApiError> {
        let items = history.iter().flat_map(|turn| turn.items());
        let before = items.map(|item| item.prompt_bytes()).fold(0, usize::saturating_add);
        Self { before, referenced: 0, limit }.checked()
    }

    /// Adds an item that the request refers to.
    ///
    /// # Errors
    /// 413 if that is more than the limit. The next item is not read then.
    pub(super) fn refer(&mut self, item: &Item) -> Result<(), ApiError> {
        let Self { before, referenced, limit } = *self;
        let referenced = referenced.saturating_add(item.prompt_bytes());
        *self = Self { before, referenced, limit }.checked()?;
        Ok(())
    }

    /// Returns their sum.
    pub(super) fn total(&self) -> usize {
        self.before.saturating_add(self.referenced)
    }

    fn checked(self) -> Result<Self, ApiError> {
        let Self { before, referenced, limit } = self;
        let total = self.total();
        if total <= limit {
            return Ok(self);
        }
        let message = format!(
            "the conversation shows the model {total} bytes of stored items: {before} of the \
             responses before it, and {referenced} by item_reference. That may be as much as a \
             request's body: {limit} bytes (body_limit_bytes)."
        );
        Err(ApiError::payload_too_large(message).with_param("input"))
    }
}
