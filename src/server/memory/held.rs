//! The body of an answer, with the lease of its request until it was sent.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};

use super::RequestMemory;

/// A body with the lease of its request.
pub(super) struct Held {
    body: Body,
    _memory: RequestMemory,
}

impl Held {
    pub(super) fn new(body: Body, memory: RequestMemory) -> Self {
        Self { body, _memory: memory }
    }
}

impl HttpBody for Held {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
