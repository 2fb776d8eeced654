//! Where a client's output waits for it. A sink merges what arrives until the client takes it, so
//! nobody waits for a slow reader; and it knows how many tokens it was given, so a streamer that is
//! new, or repeats itself, adds nothing twice.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{
    fault::{Bug, planted},
    logic::{
        failure::Failure,
        ids::{Micros, RequestId},
        outputs::{SampledToken, TokenLogprobs},
        request::FinishReason,
        text_stream::TextEntry,
    },
};

/// What became of one choice since its client last looked.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OutputDelta {
    /// Text that became final.
    pub text: String,
    /// Tokens committed.
    pub tokens: Vec<SampledToken>,
    /// Log-probabilities of further prompt tokens; the first row of all belongs to position 1.
    pub prompt_logprobs: Vec<TokenLogprobs>,
    /// Prompt tokens that came from the prefix cache, once known.
    pub num_cached_tokens: Option<usize>,
    /// Microseconds from its arrival until it was first scheduled, once known.
    pub queue_time: Option<Micros>,
    /// There with the last delta.
    pub finish: Option<FinishReason>,
}

/// One choice's output on its way to one client.
#[derive(Debug, Default)]
pub struct Sink {
    state: Mutex<SinkState>,
    news: Notify,
}

#[derive(Debug, Default)]
struct SinkState {
    /// Tokens and prompt rows received so far, taken or not.
    num_tokens: usize,
    num_prompt_rows: usize,
    pending: OutputDelta,
    /// Since when the client could have taken something.
    news_since: Option<Micros>,
    finished: bool,
}

/// What a sink says of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// Taken, or known already.
    Taken,
    /// Tokens before it are missing.
    Gap,
}

impl Sink {
    /// Takes what is new in `entry`.
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
            state.pending.text.push_str(&piece.text);
            state.pending.tokens.push(piece.token);
        }
        state.pending.num_cached_tokens =
            state.pending.num_cached_tokens.or(entry.num_cached_tokens);
        state.pending.queue_time = state.pending.queue_time.or(entry.queue_time);
        let known_rows = state.num_prompt_rows.saturating_sub(entry.prompt_logprobs_start);
        for row in entry.prompt_logprobs.into_iter().skip(known_rows) {
            state.num_prompt_rows += 1;
            state.pending.prompt_logprobs.push(row);
        }
        if let Some(end) = entry.end {
            state.pending.text.push_str(&end.text);
            state.pending.finish = Some(end.reason);
            state.finished = true;
        }
        state.news_since.get_or_insert(now);
        drop(state);
        self.news.notify_one();
        Offer::Taken
    }

    /// Whether anything ever came.
    pub fn has_heard(&self) -> bool {
        let state = self.state.lock();
        state.num_tokens > 0 || state.num_prompt_rows > 0 || state.finished
    }

    /// Ends the output, if nothing has: there is nobody left who would.
    fn end(&self) {
        let mut state = self.state.lock();
        if !std::mem::replace(&mut state.finished, true) {
            state.pending.finish = Some(FinishReason::Error(Failure::EngineStopped));
            state.news_since.get_or_insert(0);
        }
        drop(state);
        self.news.notify_one();
    }

    /// Ends the output of a client that has taken nothing for `patience`; what waits is dropped.
    fn cut_if_stalled(&self, now: Micros, patience: Micros) -> bool {
        let mut state = self.state.lock();
        let is_stalled =
            state.news_since.is_some_and(|since| now.saturating_sub(since) >= patience);
        if is_stalled {
            let finish = Some(FinishReason::Error(Failure::ReaderStalled));
            state.pending = OutputDelta { finish, ..OutputDelta::default() };
            state.finished = true;
        }
        is_stalled
    }

    fn take(&self) -> Option<OutputDelta> {
        let mut state = self.state.lock();
        state.news_since.take().map(|_| std::mem::take(&mut state.pending))
    }
}

/// The sinks of all open requests. Owned by the root: they outlive every actor.
#[derive(Debug, Default)]
pub struct SinkTable {
    sinks: Mutex<BTreeMap<RequestId, Arc<Sink>>>,
    /// Whether all have ended, and new ones end at once.
    has_ended: AtomicBool,
}

impl SinkTable {
    /// A sink for a new request.
    pub fn open(&self, request: RequestId) -> Arc<Sink> {
        let sink = Arc::new(Sink::default());
        let mut sinks = self.sinks.lock();
        sinks.insert(request, Arc::clone(&sink));
        if self.has_ended.load(Ordering::Acquire) {
            sink.end();
        }
        sink
    }

    /// Ends what has not ended, now and from now on: no actor is left.
    pub fn end_all(&self) {
        let sinks = self.sinks.lock();
        self.has_ended.store(true, Ordering::Release);
        sinks.values().for_each(|sink| sink.end());
    }

    /// The sink of a request whose client is still there.
    pub fn get(&self, request: RequestId) -> Option<Arc<Sink>> {
        self.sinks.lock().get(&request).cloned()
    }

    /// The client left, or has all of it.
    pub fn close(&self, request: RequestId) {
        self.sinks.lock().remove(&request);
    }

    /// Whether the client is still there.
    pub fn is_open(&self, request: RequestId) -> bool {
        self.sinks.lock().contains_key(&request)
    }

    /// Cuts off all clients that have taken nothing for `patience`, and tells which.
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

    /// Clients that have not left.
    pub fn len(&self) -> usize {
        self.sinks.lock().len()
    }

    /// Whether no client is there.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Told when a client leaves before its output is complete.
pub(crate) trait Abandon: Send + Sync {
    /// The request is not wanted any more.
    fn abandon(&self, request: RequestId);
}

/// One choice's output, for the client to read. Dropping it early aborts the request.
pub struct ChoiceStream {
    request: RequestId,
    sink: Arc<Sink>,
    owner: Weak<dyn Abandon>,
    done: bool,
}

impl std::fmt::Debug for ChoiceStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChoiceStream").field("request", &self.request).finish_non_exhaustive()
    }
}

impl ChoiceStream {
    pub(crate) fn new(request: RequestId, sink: Arc<Sink>, owner: Weak<dyn Abandon>) -> Self {
        Self { request, sink, owner, done: false }
    }

    /// The engine's id of this choice.
    #[must_use]
    pub fn request(&self) -> RequestId {
        self.request
    }

    /// What is new, as soon as there is something; `None` after the delta that carries `finish`.
    /// Cancel safe: a dropped call loses nothing.
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
}

impl Drop for ChoiceStream {
    fn drop(&mut self) {
        if let Some(owner) = self.owner.upgrade() {
            owner.abandon(self.request);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logic::text_stream::{TextEnd, TokenText};

    fn entry(position: usize, pieces: &[&str], end: Option<&str>) -> TextEntry {
        let piece = |(i, text): (usize, &&str)| TokenText {
            token: SampledToken { token_id: (position + i) as u32, logprobs: None },
            text: (*text).to_owned(),
        };
        TextEntry {
            request: RequestId(1),
            position,
            tokens: pieces.iter().enumerate().map(piece).collect(),
            prompt_logprobs_start: 0,
            prompt_logprobs: Vec::new(),
            num_cached_tokens: None,
            queue_time: None,
            end: end.map(|text| TextEnd { text: text.to_owned(), reason: FinishReason::Length }),
        }
    }

    #[test]
    fn a_repeated_entry_adds_only_what_is_new() {
        let sink = Sink::default();
        assert_eq!(sink.offer(entry(0, &["a", "b"], None), 0), Offer::Taken);
        assert_eq!(sink.offer(entry(0, &["a", "b", "c"], Some("!")), 0), Offer::Taken);
        let delta = sink.take().unwrap();
        assert_eq!((delta.text.as_str(), delta.tokens.len()), ("abc!", 3));
        assert_eq!(sink.offer(entry(0, &["a", "b", "c"], Some("!")), 0), Offer::Taken);
        assert_eq!(sink.take(), None, "nothing follows the end");
    }

    #[test]
    fn a_gap_is_refused() {
        let sink = Sink::default();
        assert_eq!(sink.offer(entry(1, &["b"], None), 0), Offer::Gap);
        assert_eq!(sink.take(), None);
    }

    #[tokio::test]
    async fn a_reader_that_comes_late_gets_it_merged() {
        let table = SinkTable::default();
        let sink = table.open(RequestId(1));
        struct Nobody;
        impl Abandon for Nobody {
            fn abandon(&self, _: RequestId) {}
        }
        let owner: Arc<dyn Abandon> = Arc::new(Nobody);
        let mut stream = ChoiceStream::new(RequestId(1), Arc::clone(&sink), Arc::downgrade(&owner));
        sink.offer(entry(0, &["a"], None), 0);
        sink.offer(entry(1, &["b"], Some("c")), 0);
        assert_eq!(stream.next().await.map(|delta| delta.text), Some("abc".to_owned()));
        assert_eq!(stream.next().await, None);
    }

    #[test]
    fn without_actors_every_output_ends() {
        let table = SinkTable::default();
        let [running, done] = [1, 2].map(|id| table.open(RequestId(id)));
        done.offer(entry(0, &["a"], Some("b")), 0);
        running.offer(entry(0, &["a"], None), 0);
        table.end_all();
        let late = table.open(RequestId(3));
        let stopped = Some(FinishReason::Error(Failure::EngineStopped));
        let taken = running.take().unwrap();
        assert_eq!((taken.text.as_str(), taken.finish), ("a", stopped.clone()));
        assert_eq!(late.take().unwrap().finish, stopped);
        assert_ne!(done.take().unwrap().finish, stopped);
        assert!(running.take().is_none());
    }
}
