//! Reads a request's body. Its memory is leased piece by piece as it arrives, whatever length it
//! announces. The lease includes the memory that its text will take ([`TEXT_FACTOR`]).

mod seats;

use std::time::Duration;

use axum::{
    body::{Body, BodyDataStream},
    http::{Extensions, HeaderMap, header::CONTENT_LENGTH},
};
use futures_util::StreamExt;
use tokio::time::timeout;

pub(in crate::server) use self::seats::WaitingSeats;
use super::error::ApiError;
use crate::server::{
    ServerConfig,
    memory::{RequestMemory, TEXT_FACTOR},
};

/// Bytes that are read and dropped of a body that is too large. An answer while the client still
/// writes would reset the connection, and the client would never read the reason.
const DISCARD_MAX: usize = 256 << 20;
/// Time that this may take.
const DISCARD_TIME: Duration = Duration::from_secs(5);
/// Size of the first piece of a body, bytes. Each later piece is as large as all before it.
const SEGMENT_MIN: usize = 4 << 10;
const SEGMENT_MAX: usize = 1 << 20;

/// How a body is read.
#[derive(Debug, Clone)]
pub(in crate::server) struct BodyLimits {
    /// Most bytes.
    pub(in crate::server) bytes: usize,
    /// How long it may take to arrive.
    pub(in crate::server) time: Duration,
    /// The connection's seats for bodies that wait for memory.
    pub(in crate::server) seats: WaitingSeats,
}

impl BodyLimits {
    /// Returns the limits of a request with these extensions.
    pub(in crate::server) fn of(extensions: &Extensions, config: &ServerConfig) -> Self {
        Self {
            bytes: config.body_limit_bytes,
            time: Duration::from_secs(config.body_timeout_secs),
            seats: extensions.get::<WaitingSeats>().cloned().unwrap_or_default(),
        }
    }
}

/// Returns the bytes of `body`. The lease of `memory` for them stays with the request.
///
/// # Errors
/// - 413 for a body that is larger than its limit, or than the memory of one request.
/// - 408 for one that takes too long.
/// - 503 if there is no memory for it, or if too many bodies of its connection wait. Also if it
///   makes no progress while others need its memory.
pub(in crate::server) async fn read(
    headers: &HeaderMap,
    body: Body,
    limits: BodyLimits,
    memory: &RequestMemory,
) -> Result<Vec<u8>, ApiError> {
    let mut chunks = body.into_data_stream();
    let collected = collect(headers, &mut chunks, &limits, memory);
    let (error, is_heard_out) = match timeout(limits.time, collected).await {
        Ok(Ok(bytes)) => return Ok(bytes),
        Ok(Err(Unread::Refused(error))) => (error, true),
        Ok(Err(Unread::Ended(error))) => (error, false),
        Err(_) => (ApiError::timeout(limits.time), false),
    };
    let lease = memory.lease();
    lease.shrink(lease.bytes());
    if is_heard_out {
        // A body that takes longer is reset.
        let _ = timeout(DISCARD_TIME, discard(chunks)).await;
    }
    Err(error)
}

/// Why a body was not read.
enum Unread {
    /// The client may still read the reason.
    Refused(ApiError),
    /// The client is not expected to send more.
    Ended(ApiError),
}

impl<E: Into<ApiError>> From<E> for Unread {
    fn from(error: E) -> Self {
        Self::Refused(error.into())
    }
}

async fn collect(
    headers: &HeaderMap,
    chunks: &mut BodyDataStream,
    limits: &BodyLimits,
    memory: &RequestMemory,
) -> Result<Vec<u8>, Unread> {
    let lease = memory.lease();
    let announced = announced_length(headers).unwrap_or(0);
    if announced > limits.bytes {
        return Err(ApiError::too_large(limits.bytes).into());
    }
    let most = lease.budget().request_limit() / TEXT_FACTOR;
    if announced > most {
        return Err(ApiError::too_large_for_memory(announced, most).into());
    }
    let arriving = lease.body();
    let mut segments = Segments::default();
    loop {
        let chunk = tokio::select! {
            chunk = chunks.next() => chunk,
            short = arriving.must_end() => return Err(Unread::Ended(short.into())),
        };
        let Some(chunk) = chunk else { return Ok(segments.joined()) };
        let chunk = chunk.map_err(|error| ApiError::bad_request(error.to_string()))?;
        arriving.arrived(chunk.len());
        if segments.len + chunk.len() > limits.bytes {
            return Err(ApiError::too_large(limits.bytes).into());
        }
        let more = segments.more_for(chunk.len());
        tokio::select! {
            grown = limits.seats.hold(memory.grow_for_text(more)) => grown?,
            short = arriving.must_end() => return Err(short.into()),
        }
        segments.push(&chunk, more);
    }
}

/// Reads on and drops the bytes, so that the client reads the answer.
async fn discard(mut chunks: BodyDataStream) {
    let mut most = DISCARD_MAX;
    while let Some(Ok(chunk)) = chunks.next().await {
        let Some(left) = most.checked_sub(chunk.len()) else { return };
        most = left;
    }
}

/// A body in pieces, so that it is never copied while it grows.
#[derive(Debug, Default)]
struct Segments {
    full: Vec<Vec<u8>>,
    last: Vec<u8>,
    /// Bytes that have arrived.
    len: usize,
}

impl Segments {
    /// Returns the bytes to allocate so that `len` more fit.
    fn more_for(&self, len: usize) -> usize {
        let room = self.last.capacity() - self.last.len();
        match len.checked_sub(room).filter(|missing| *missing > 0) {
            Some(missing) => missing.max(self.len.clamp(SEGMENT_MIN, SEGMENT_MAX)),
            None => 0,
        }
    }

    /// Appends `chunk`, in a new piece of `more` bytes if the last one is full.
    fn push(&mut self, chunk: &[u8], more: usize) {
        let room = self.last.capacity() - self.last.len();
        let (head, tail) = chunk.split_at(chunk.len().min(room));
        self.last.extend_from_slice(head);
        if more > 0 {
            let next = Vec::with_capacity(more);
            self.full.push(std::mem::replace(&mut self.last, next));
            self.last.extend_from_slice(tail);
        }
        self.len += chunk.len();
    }

    fn joined(self) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.len);
        // Each piece is freed as soon as it is copied.
        for piece in self.full.into_iter().chain([self.last]) {
            all.extend_from_slice(&piece);
        }
        all
    }
}

fn announced_length(headers: &HeaderMap) -> Option<usize> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

#[cfg(test)]
mod tests;
