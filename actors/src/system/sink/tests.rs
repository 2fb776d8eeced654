//! Tests of what a sink adds, ignores and holds.

use super::*;
use crate::logic::{
    request::outputs::SampledToken,
    text::text_stream::{TextEnd, TokenText},
};

fn entry(position: usize, pieces: &[&str], end: Option<&str>) -> TextEntry {
    let piece = |(i, text): (usize, &&str)| TokenText {
        token: SampledToken { token_id: (position + i) as u32, logprobs: None },
        text: (*text).to_owned(),
    };
    TextEntry {
        request: RequestId(1),
        position,
        tokens: pieces.iter().enumerate().map(piece).collect(),
        pooled: None,
        prompt_logprobs_start: 0,
        prompt_logprobs: Vec::new(),
        num_cached_tokens: None,
        queue_time: None,
        end: end.map(|text| TextEnd { text: text.to_owned(), reason: FinishReason::Length }),
    }
}

fn memory() -> Arc<MemoryBudget> {
    MemoryBudget::new(16 << 20, "m", "0")
}

#[test]
fn a_repeated_entry_adds_only_new_tokens() {
    let sink = Sink::new(memory().lease());
    assert_eq!(sink.offer(entry(0, &["a", "b"], None), 0), Offer::Taken);
    assert_eq!(sink.offer(entry(0, &["a", "b", "c"], Some("!")), 0), Offer::Taken);
    let delta = sink.take().unwrap();
    assert_eq!((delta.text.as_str(), delta.tokens.len()), ("abc!", 3));
    assert_eq!(sink.offer(entry(0, &["a", "b", "c"], Some("!")), 0), Offer::Taken);
    assert_eq!(sink.take(), None, "nothing follows the end");
}

#[test]
fn a_gap_is_refused() {
    let sink = Sink::new(memory().lease());
    assert_eq!(sink.offer(entry(1, &["b"], None), 0), Offer::Gap);
    assert_eq!(sink.take(), None);
}

#[tokio::test]
async fn a_late_reader_gets_merged_output() {
    let table = SinkTable::new(memory());
    let sink = table.open(RequestId(1));
    struct IgnoresAborts;
    impl Abandon for IgnoresAborts {
        fn abandon(&self, _: RequestId) {}
    }
    let owner: Arc<dyn Abandon> = Arc::new(IgnoresAborts);
    let mut stream = ChoiceStream::new(RequestId(1), Arc::clone(&sink), Arc::downgrade(&owner));
    sink.offer(entry(0, &["a"], None), 0);
    sink.offer(entry(1, &["b"], Some("c")), 0);
    assert_eq!(stream.next().await.map(|delta| delta.text), Some("abc".to_owned()));
    assert_eq!(stream.next().await, None);
}

/// Output arrives before the first poll, while a task waits, and after a poll that was given up.
#[tokio::test]
async fn a_choice_is_a_stream() {
    use std::task::{Context, Poll};

    use futures_core::Stream as _;

    let memory = memory();
    let sink = Arc::new(Sink::new(memory.lease()));
    let owner = Weak::<super::Nobody>::new();
    let mut stream = ChoiceStream::new(RequestId(1), Arc::clone(&sink), owner);
    let text = |delta: Option<OutputDelta>| delta.map(|delta| delta.text);
    let poll = |stream: &mut ChoiceStream| {
        let mut context = Context::from_waker(std::task::Waker::noop());
        Pin::new(stream).poll_next(&mut context)
    };
    assert_eq!(poll(&mut stream), Poll::Pending);
    sink.offer(entry(0, &["a"], None), 0);
    assert!(matches!(poll(&mut stream), Poll::Ready(Some(delta)) if delta.text == "a"));
    assert_eq!(poll(&mut stream), Poll::Pending);
    let reading = tokio::spawn(async move {
        let next = std::future::poll_fn(|context| Pin::new(&mut stream).poll_next(context)).await;
        (next, stream)
    });
    tokio::task::yield_now().await;
    sink.offer(entry(1, &["b"], Some("c")), 0);
    let (next, mut stream) = reading.await.unwrap();
    assert_eq!(text(next).as_deref(), Some("bc"));
    assert_eq!(poll(&mut stream), Poll::Ready(None));
}

#[test]
fn without_actors_every_output_ends() {
    let table = SinkTable::new(memory());
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

/// A megabyte of text goes to a reader that reads nothing, again and again.
#[test]
fn unread_output_is_bounded_and_its_largest_owners_are_cut_off() {
    let memory = memory();
    let table = SinkTable::new(Arc::clone(&memory));
    let sinks: Vec<_> = (0..32).map(|id| table.open(RequestId(id))).collect();
    let modest = table.open(RequestId(99));
    let megabyte = "x".repeat(1 << 20);
    modest.offer(entry(0, &["a"], None), 0);
    for round in 0..8 {
        for sink in &sinks {
            sink.offer(entry(round, &[&megabyte], None), 0);
            assert!(memory.in_use() <= 17 << 20, "{}", memory.in_use());
        }
    }
    modest.offer(entry(1, &["b"], None), 0);
    let cut = table.cut_stalled(0, 1);
    assert!(cut.len() >= 31 && !cut.contains(&RequestId(99)), "{cut:?}");
    let ended = sinks[cut[0].0 as usize].take().unwrap();
    assert_eq!(ended.finish, Some(FinishReason::Error(Failure::OutputMemory)));
    assert_eq!(modest.take().unwrap().text, "ab");
    assert!(table.cut_stalled(0, 1).is_empty(), "each stalled sink is cut off once");
    drop(sinks);
    drop(table);
    assert_eq!(memory.in_use(), 0);
}

#[test]
fn a_reader_that_keeps_up_leases_nothing() {
    let memory = memory();
    let sink = Sink::new(memory.lease());
    for position in 0..1_000 {
        sink.offer(entry(position, &["word "], None), 0);
        assert_eq!(memory.in_use(), 0);
        sink.take().unwrap();
    }
    let long = "x".repeat(LEASED_BYTES);
    sink.offer(entry(1_000, &[&long], None), 0);
    assert_eq!(memory.in_use(), 2 * LEASED_BYTES);
    sink.take().unwrap();
    assert_eq!(memory.in_use(), 0);
}

fn exact(sink: &Sink, num_tokens: usize, with_end: bool) -> Option<(String, usize, bool)> {
    match sink.take_exactly(num_tokens, with_end)? {
        Exact::Delta(delta) => Some((delta.text, delta.tokens.len(), delta.finish.is_some())),
        Exact::Differs => Some(("differs".to_owned(), 0, false)),
    }
}

#[test]
fn a_part_of_an_output_has_the_text_of_its_tokens() {
    let sink = Sink::new(memory().lease());
    sink.offer(entry(0, &["a", "", "bc"], None), 0);
    assert_eq!(exact(&sink, 4, false), None, "it is not there yet");
    assert_eq!(exact(&sink, 2, false), Some(("a".to_owned(), 2, false)));
    sink.offer(entry(3, &["d", "e"], Some("!")), 0);
    assert_eq!(exact(&sink, 2, false), Some(("bcd".to_owned(), 2, false)));
    assert_eq!(exact(&sink, 1, true), Some(("e!".to_owned(), 1, true)));
}

#[test]
fn an_end_without_a_token_is_a_part() {
    let sink = Sink::new(memory().lease());
    sink.offer(entry(0, &["a"], Some("!")), 0);
    assert_eq!(exact(&sink, 1, false), Some(("a".to_owned(), 1, false)));
    assert_eq!(exact(&sink, 0, true), Some(("!".to_owned(), 0, true)));
}

#[test]
fn an_output_that_ended_elsewhere_differs() {
    let whole = Sink::new(memory().lease());
    whole.offer(entry(0, &["a", "b"], Some("")), 0);
    assert!(!whole.lacks(2, true) && !whole.lacks(1, false));
    let differs = Some(("differs".to_owned(), 0, false));
    for (num_tokens, with_end) in [(3, false), (3, true), (1, true)] {
        let sink = Sink::new(memory().lease());
        sink.offer(entry(0, &["a"], None), 0);
        assert!(!sink.lacks(num_tokens, with_end), "it may still come");
        sink.offer(entry(1, &["b"], Some("")), 0);
        assert!(sink.lacks(num_tokens, with_end));
        assert_eq!(exact(&sink, num_tokens, with_end), differs, "{num_tokens} {with_end}");
    }
}

#[test]
fn a_client_that_is_expected_may_take_any_time() {
    let table = SinkTable::new(memory());
    let sink = table.open(RequestId(1));
    sink.wait_for_ever();
    sink.offer(entry(0, &["a", "b"], None), 0);
    assert_eq!(table.cut_stalled(1_000, 1), []);
    assert_eq!(exact(&sink, 1, false), Some(("a".to_owned(), 1, false)));
    assert_eq!(
        table.cut_stalled(2_000, 1),
        [],
        "its reader takes the parts of other choices first"
    );
    sink.expect_reader();
    assert_eq!(table.cut_stalled(3_000, 1), [], "it has just come");
    assert_eq!(table.cut_stalled(3_001, 1), [RequestId(1)]);
}

/// The client of a restored request has no place from which it continues, so its first read is an
/// ordinary one.
#[test]
fn a_restored_client_that_stops_reading_is_cut_off_like_others() {
    let table = SinkTable::new(memory());
    let sink = table.open(RequestId(1));
    sink.wait_for_ever();
    sink.offer(entry(0, &["a"], None), 0);
    assert_eq!(sink.take().unwrap().text, "a");
    sink.offer(entry(1, &["b"], None), 1_000);
    assert_eq!(table.cut_stalled(1_000, 1), []);
    assert_eq!(table.cut_stalled(2_000, 1), [RequestId(1)]);
}
