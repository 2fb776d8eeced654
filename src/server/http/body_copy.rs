//! A copy of a request's body, for handlers that need it beside its parsed form.

use std::sync::{Arc, OnceLock};

use axum::body::Bytes;

/// Gets the bytes of the body that is read after it was added to the request's extensions. The
/// lease of the body covers them.
#[derive(Debug, Clone, Default)]
pub(in crate::server) struct BodyCopy(Arc<OnceLock<Bytes>>);

impl BodyCopy {
    /// Sets the bytes, once.
    pub(in crate::server) fn set(&self, body: Bytes) {
        // A body is read once.
        let _ = self.0.set(body);
    }

    /// Returns the bytes. They are empty before the body was read.
    pub(in crate::server) fn get(&self) -> Bytes {
        self.0.get().cloned().unwrap_or_default()
    }
}
