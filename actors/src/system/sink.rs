//! The output that waits for a client. A sink merges new output until the client reads, so no actor
//! waits for a slow reader. It counts its tokens, so a streamer that is new, or repeats itself,
//! adds nothing twice. The waiting output leases its memory. When none is left, the readers with
//! the most waiting output are cut off.

mod delta;
mod poll;
mod unread;

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;
use tokio::sync::{Notify, futures::OwnedNotified};

pub use self::delta::OutputDelta;
use self::{
    delta::{row_bytes, token_bytes},
    unread::Unread,
};
use super::memory::{Lease, MemoryBudget, MemoryError};
use crate::{
    fault::{Bug, planted},
    logic::{
        request::{
            FinishReason,
            failure::Failure,
            ids::{Micros, RequestId},
        },
        text::text_stream::TextEntry,
    },
};

/// Size of the pieces in which waiting output leases memory, bytes. A reader that keeps up needs
/// none.
const LEASED_BYTES: usize = 16 << 10;

/// One choice's output on its way to one client.
#[derive(Debug)]
pub struct Sink {
    state: Mutex<SinkState>,
    news: Arc<Notify>,
    lease: Lease,
}

#[derive(Debug, Default)]
struct SinkState {
    /// Number of tokens and prompt rows received so far, read or not.
    num_tokens: usize,
    num_prompt_rows: usize,
    pending: OutputDelta,
    /// Length of the text of `pending` after each of its tokens.
    text_ends: Vec<usize>,
    /// Bytes of `pending`, and bytes leased for them.
    pending_bytes: usize,
    leased_bytes: usize,
    /// The part of `leased_bytes` that is held until the output has ended.
    reserved_bytes: usize,
    /// Since when the client could have read something.
    unread: Unread,
    finished: bool,
    /// Whether the client may take any time to read.
    waits_for_ever: bool,
    /// Whether it was cut off because there was no memory.
    is_cut: bool,
}

/// The result of an offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// The entry was added, or was known already.
    Taken,
    /// Tokens before the entry are missing.
    Gap,
}

impl SinkState {
    /// Ends the output of a client that is cut off. Waiting output is dropped.
    fn cut(&mut self, lease: &Lease, failure: Failure) {
        let finish = Some(FinishReason::Error(failure));
        self.pending = OutputDelta { finish, ..OutputDelta::default() };
        self.text_ends.clear();
        self.finished = true;
        self.release(lease);
    }

    /// Releases the memory of the output, because none waits.
    fn release(&mut self, lease: &Lease) {
        self.pending_bytes = 0;
        let kept = if self.finished { 0 } else { self.reserved_bytes };
        if self.leased_bytes > kept {
            lease.shrink(std::mem::replace(&mut self.leased_bytes, kept) - kept);
        }
    }

    /// Leases memory for the waiting output. Returns `false` if none is left.
    fn is_leased(&mut self, lease: &Lease) -> bool {
        if self.pending_bytes <= self.leased_bytes.max(LEASED_BYTES) {
            return true;
        }
        let wanted = self.pending_bytes.next_multiple_of(LEASED_BYTES);
        let is_leased = lease.add(wanted - self.leased_bytes).is_ok();
        if is_leased {
            self.leased_bytes = wanted;
        }
        is_leased
    }
}

/// The result of taking an exact part of an output.
enum Exact {
    Delta(OutputDelta),
    /// The output ended elsewhere.
    Differs,
}

impl SinkState {
    /// Removes the first tokens with their text from the waiting output. All else that is known
    /// goes with them.
    fn split(&mut self, num_tokens: usize) -> OutputDelta {
        let text_end = num_tokens.checked_sub(1).map_or(0, |last| self.text_ends[last]);
        let rest = self.pending.text.split_off(text_end);
        let text = std::mem::replace(&mut self.pending.text, rest);
        let rest = self.pending.tokens.split_off(num_tokens);
        let tokens = std::mem::replace(&mut self.pending.tokens, rest);
        self.text_ends.drain(..num_tokens);
        self.text_ends.iter_mut().for_each(|end| *end -= text_end);
        let delta = OutputDelta {
            text,
            tokens,
            pooled: None,
            prompt_logprobs: std::mem::take(&mut self.pending.prompt_logprobs),
            num_cached_tokens: self.pending.num_cached_tokens.take(),
            queue_time: self.pending.queue_time.take(),
            finish: None,
        };
        self.pending_bytes = self.pending_bytes.saturating_sub(delta.bytes());
        delta
    }
}

impl Sink {
    /// Returns an empty sink, whose output waits on `lease`.
    #[must_use]
    pub fn new(lease: Lease) -> Self {
        Self { state: Mutex::default(), news: Arc::default(), lease }
    }

    /// Leases memory for an output of `bytes` before it is computed. It is released when the
    /// client has the output.
    ///
    /// # Errors
    /// [`MemoryError`] if it is more than a request may hold, or not free in time.
    pub async fn reserve(&self, bytes: usize) -> Result<(), MemoryError> {
        self.lease.grow(bytes).await?;
        let mut state = self.state.lock();
        state.leased_bytes += bytes;
        state.reserved_bytes += bytes;
        Ok(())
    }

    /// Adds the new part of `entry`.
    pub fn offer(&self, entry: TextEntry, now: Micros) -> Offer {
        let mut state = self.state.lock();
        if state.finished {
            return Offer::Taken;
        }
        let Some(known) = state.num_tokens.checked_sub(entry.position) else {
            return Offer::Gap;
        };
        let known = if planted(Bug::NoPosition) { 0 } else { known };
        for piece in entry.tokens.into_iter().skip(known) {
            state.num_tokens += 1;
            state.pending_bytes += piece.text.len() + token_bytes(&piece.token);
            state.pending.text.push_str(&piece.text);
            state.pending.tokens.push(piece.token);
            let text_end = state.pending.text.len();
            state.text_ends.push(text_end);
        }
        state.pending.num_cached_tokens =
            state.pending.num_cached_tokens.or(entry.num_cached_tokens);
        state.pending.queue_time = state.pending.queue_time.or(entry.queue_time);
        let known_rows = state.num_prompt_rows.saturating_sub(entry.prompt_logprobs_start);
        for row in entry.prompt_logprobs.into_iter().skip(known_rows) {
            state.num_prompt_rows += 1;
            state.pending_bytes += row_bytes(&row);
            state.pending.prompt_logprobs.push(row);
        }
        if let Some(pooled) = entry.pooled {
            state.pending_bytes += pooled.bytes();
            state.pending.pooled = Some(pooled);
        }
        if let Some(end) = entry.end {
            state.pending.text.push_str(&end.text);
            state.pending.finish = Some(end.reason);
            state.finished = true;
        }
        if !state.is_leased(&self.lease) {
            state.cut(&self.lease, Failure::OutputMemory);
            state.is_cut = true;
        }
        state.unread.add(now);
        drop(state);
        self.news.notify_one();
        Offer::Taken
    }

    /// Returns whether anything was ever added.
    pub fn has_heard(&self) -> bool {
        let state = self.state.lock();
        state.num_tokens > 0 || state.num_prompt_rows > 0 || state.finished
    }

    /// Ends the output, if it has not ended, because no actor is left that would end it.
    fn end(&self) {
        self.fail(Failure::EngineStopped);
    }

    /// Ends the output with a failure, if it has not ended.
    fn fail(&self, failure: Failure) {
        let mut state = self.state.lock();
        if !std::mem::replace(&mut state.finished, true) {
            state.pending.finish = Some(FinishReason::Error(failure));
            state.unread.add(0);
        }
        drop(state);
        self.news.notify_one();
    }

    /// Ends the output of a client that has read nothing for `patience`. Waiting output is dropped.
    /// Returns whether the client is cut off.
    fn cut_if_stalled(&self, now: Micros, patience: Micros) -> bool {
        let mut state = self.state.lock();
        let is_stalled = state.unread.has_waited(now, patience) && !state.waits_for_ever;
        if is_stalled && !state.is_cut {
            state.cut(&self.lease, Failure::ReaderStalled);
        }
        is_stalled || state.is_cut
    }

    fn take(&self) -> Option<OutputDelta> {
        let mut state = self.state.lock();
        // Its reader is there.
        state.waits_for_ever = false;
        state.unread.take().then_some(())?;
        state.release(&self.lease);
        state.text_ends.clear();
        Some(std::mem::take(&mut state.pending))
    }

    /// Lets the client take any time to read, because it is not there yet.
    pub(crate) fn wait_for_ever(&self) {
        self.state.lock().waits_for_ever = true;
    }

    /// Expects the client to read from now on.
    fn expect_reader(&self) {
        let mut state = self.state.lock();
        state.waits_for_ever = false;
        state.unread.renew();
    }

    /// Returns whether the output has ended without this part.
    fn lacks(&self, num_tokens: usize, with_end: bool) -> bool {
        let state = self.state.lock();
        let there = state.pending.tokens.len();
        match &state.pending.finish {
            None | Some(FinishReason::Error(_)) => false,
            Some(_) => there < num_tokens || (with_end && there > num_tokens),
        }
    }

    /// Returns the next `num_tokens` tokens with their text, and the end if `with_end`. `None`
    /// while they are not there.
    fn take_exactly(&self, num_tokens: usize, with_end: bool) -> Option<Exact> {
        let mut state = self.state.lock();
        if matches!(state.pending.finish, Some(FinishReason::Error(_))) {
            // The failure is the news, whatever the part.
            return Some(Exact::Delta(std::mem::take(&mut state.pending)));
        }
        let there = state.pending.tokens.len();
        if there < num_tokens || (with_end && state.pending.finish.is_none()) {
            return state.pending.finish.is_some().then_some(Exact::Differs);
        }
        let is_all = there == num_tokens && (with_end || state.pending.finish.is_none());
        if with_end && there > num_tokens {
            return Some(Exact::Differs);
        }
        if is_all {
            state.unread.take();
            state.release(&self.lease);
            state.text_ends.clear();
            return Some(Exact::Delta(std::mem::take(&mut state.pending)));
        }
        Some(Exact::Delta(state.split(num_tokens)))
    }
}

/// The sinks of all open requests. The root owns them, so they outlive every actor.
#[derive(Debug)]
pub struct SinkTable {
    memory: Arc<MemoryBudget>,
    sinks: Mutex<BTreeMap<RequestId, Arc<Sink>>>,
    /// Whether all outputs have ended, and new ones end at once.
    has_ended: AtomicBool,
}

impl SinkTable {
    /// Returns a table without sinks, whose outputs wait in this memory.
    #[must_use]
    pub fn new(memory: Arc<MemoryBudget>) -> Self {
        Self { memory, sinks: Mutex::default(), has_ended: AtomicBool::new(false) }
    }

    /// Returns a sink for a new request.
    pub fn open(&self, request: RequestId) -> Arc<Sink> {
        let sink = Arc::new(Sink::new(self.memory.lease()));
        let mut sinks = self.sinks.lock();
        sinks.insert(request, Arc::clone(&sink));
        if self.has_ended.load(Ordering::Acquire) {
            sink.end();
        }
        sink
    }

    /// Ends all outputs that have not ended, and all new ones, because no actor is left.
    pub fn end_all(&self) {
        let sinks = self.sinks.lock();
        self.has_ended.store(true, Ordering::Release);
        sinks.values().for_each(|sink| sink.end());
    }

    /// Returns the sink of a request, if its client is still there.
    pub fn get(&self, request: RequestId) -> Option<Arc<Sink>> {
        self.sinks.lock().get(&request).cloned()
    }

    /// Removes a sink: the client left, or has read all output.
    pub fn close(&self, request: RequestId) {
        self.sinks.lock().remove(&request);
    }

    /// Returns whether the client is still there.
    pub fn is_open(&self, request: RequestId) -> bool {
        self.sinks.lock().contains_key(&request)
    }

    /// Cuts off all clients that have read nothing for `patience`. Returns the clients that were
    /// cut off since the last call, including those without memory for their output.
    pub fn cut_stalled(&self, now: Micros, patience: Micros) -> Vec<RequestId> {
        let mut cut = Vec::new();
        self.sinks.lock().retain(|&request, sink| {
            let is_stalled = sink.cut_if_stalled(now, patience);
            if is_stalled {
                cut.push(request);
            }
            !is_stalled
        });
        cut
    }

    /// Returns the number of clients that have not left.
    pub fn len(&self) -> usize {
        self.sinks.lock().len()
    }

    /// Returns whether no client is there.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The receiver of the news that a client left before its output was complete.
pub(crate) trait Abandon: Send + Sync {
    /// Aborts the request, which its client no longer wants.
    fn abandon(&self, request: RequestId);
}

/// The owner of requests that no actor has.
struct Nobody;

impl Abandon for Nobody {
    fn abandon(&self, _: RequestId) {}
}

/// One choice's output, for the client to read. Dropping it early aborts the request.
pub struct ChoiceStream {
    request: RequestId,
    sink: Arc<Sink>,
    owner: Weak<dyn Abandon>,
    done: bool,
    /// The wait for news of the last poll that found none.
    waiting: Option<Pin<Box<OwnedNotified>>>,
}

impl std::fmt::Debug for ChoiceStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChoiceStream").field("request", &self.request).finish_non_exhaustive()
    }
}

impl ChoiceStream {
    pub(crate) fn new(request: RequestId, sink: Arc<Sink>, owner: Weak<dyn Abandon>) -> Self {
        Self { request, sink, owner, done: false, waiting: None }
    }

    /// Returns the stream of a request that has failed and that no actor has.
    #[must_use]
    pub fn failed(request: RequestId, failure: Failure, lease: Lease) -> Self {
        let sink = Sink::new(lease);
        sink.fail(failure);
        let nobody = Weak::<Nobody>::new();
        Self { request, sink: Arc::new(sink), owner: nobody, done: false, waiting: None }
    }

    /// Returns the engine's id of this choice.
    #[must_use]
    pub fn request(&self) -> RequestId {
        self.request
    }

    /// Returns new output as soon as there is some, and `None` after the delta that carries
    /// `finish`. Cancel safe: a dropped call loses nothing.
    pub async fn next(&mut self) -> Option<OutputDelta> {
        while !self.done {
            let news = self.sink.news.notified();
            if let Some(delta) = self.sink.take() {
                self.done = delta.finish.is_some();
                return Some(delta);
            }
            news.await;
        }
        None
    }

    /// Expects the client to read from now on, as other clients must. Until then, the client of a
    /// restored request may take any time.
    pub fn expect_reader(&self) {
        self.sink.expect_reader();
    }

    /// Returns whether the unread output has ended, and [`Self::next_exactly`] would not find this
    /// part. A failure has no parts, so it lacks none.
    #[must_use]
    pub fn lacks(&self, num_tokens: usize, with_end: bool) -> bool {
        self.sink.lacks(num_tokens, with_end)
    }

    /// Returns the next `num_tokens` tokens as one delta, once they are there, and the end if
    /// `with_end`. Cancel safe, as [`Self::next`].
    ///
    /// # Errors
    /// [`OutputDiffers`] if the output has ended and has no such part.
    pub async fn next_exactly(
        &mut self,
        num_tokens: usize,
        with_end: bool,
    ) -> Result<OutputDelta, OutputDiffers> {
        loop {
            let news = self.sink.news.notified();
            match self.sink.take_exactly(num_tokens, with_end) {
                Some(Exact::Delta(delta)) => {
                    self.done = delta.finish.is_some();
                    return Ok(delta);
                }
                Some(Exact::Differs) => return Err(OutputDiffers),
                None => news.await,
            }
        }
    }
}

/// The error for an output that was computed again and is another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the output differs from the one that was computed before")]
pub struct OutputDiffers;

impl Drop for ChoiceStream {
    fn drop(&mut self) {
        if let Some(owner) = self.owner.upgrade() {
            owner.abandon(self.request);
        }
    }
}

#[cfg(test)]
mod tests;
