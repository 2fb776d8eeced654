//! Bodies that arrive piece by piece.

use std::{convert::Infallible, sync::Arc};

use axum::{body::Bytes, http::HeaderValue};
use futures_util::{Stream, stream};

use super::*;
use crate::api::MemoryBudget;

const MIB: usize = 1 << 20;

fn limits() -> BodyLimits {
    let seats = WaitingSeats::default();
    BodyLimits { bytes: 8 * MIB, time: Duration::from_secs(60), seats }
}

fn budget() -> Arc<MemoryBudget> {
    MemoryBudget::new(64 * MIB, "m", "0")
}

fn chunks(len: usize, each: usize) -> impl Stream<Item = Result<Bytes, Infallible>> + use<> {
    let piece = Bytes::from(vec![b'x'; each]);
    stream::iter((0..len / each).map(move |_| Ok(piece.clone())))
}

fn announcing(len: usize) -> HeaderMap {
    HeaderMap::from_iter([(CONTENT_LENGTH, HeaderValue::from(len))])
}

#[tokio::test]
async fn a_body_comes_as_it_was_sent_and_is_leased() {
    let budget = budget();
    for (len, each) in [(0, 1), (10, 10), (100_000, 1_000), (3 * MIB, 64 << 10)] {
        let memory = RequestMemory::new(&budget);
        let body = Body::from_stream(chunks(len, each));
        let read = read(&HeaderMap::new(), body, limits(), &memory).await.unwrap();
        assert_eq!(read.len(), len);
        assert!(read.iter().all(|byte| *byte == b'x'));
        let leased = memory.lease().bytes() / TEXT_FACTOR;
        assert!((len..=2 * len + SEGMENT_MIN).contains(&leased), "{leased} for {len}");
    }
    assert_eq!(budget.in_use(), 0);
}

#[tokio::test]
async fn an_announced_length_leases_nothing_and_arrived_bytes_are_leased() {
    let budget = budget();
    let memory = RequestMemory::new(&budget);
    let begun = chunks(1_000, 1_000).chain(stream::pending());
    let body = Body::from_stream(begun);
    let headers = announcing(5 * MIB);
    let mut reading = std::pin::pin!(read(&headers, body, limits(), &memory));
    assert!(timeout(Duration::from_millis(50), &mut reading).await.is_err());
    assert_eq!(budget.in_use(), SEGMENT_MIN * TEXT_FACTOR);
}

#[tokio::test]
async fn a_body_beyond_the_memory_is_rejected_with_the_numbers() {
    let budget = MemoryBudget::new(16 * MIB, "m", "0");
    let refused = async |headers: HeaderMap, len| {
        let memory = RequestMemory::new(&budget);
        let body = Body::from_stream(chunks(len, 1 << 10));
        let error = read(&headers, body, limits(), &memory).await.unwrap_err();
        assert_eq!(error.status, 413);
        assert_eq!(budget.in_use(), 0);
        error.message
    };
    let most = budget.request_limit() / TEXT_FACTOR;
    let message = refused(announcing(4 * MIB), 4 * MIB).await;
    assert!(message.contains(&(4 * MIB).to_string()), "{message}");
    assert!(message.contains(&most.to_string()), "{message}");
    let message = refused(HeaderMap::new(), 4 * MIB).await;
    assert!(message.contains(&budget.request_limit().to_string()), "{message}");
    let message = refused(announcing(9 * MIB), 9 * MIB).await;
    assert!(message.contains(&limits().bytes.to_string()), "{message}");
}

#[tokio::test(start_paused = true)]
async fn a_stalled_body_is_ended_and_others_wait_or_learn_when_to_retry() {
    let budget = budget();
    let (stalled, second) = (RequestMemory::new(&budget), RequestMemory::new(&budget));
    let begun = Body::from_stream(chunks(4 * MIB, 64 << 10).chain(stream::pending()));
    let whole = Body::from_stream(chunks(4 * MIB, 64 << 10));
    let headers = HeaderMap::new();
    let first = read(&headers, begun, limits(), &stalled);
    let reading = read(&headers, whole, limits(), &second);
    let (first, reading) = tokio::join!(first, reading);
    let error = first.unwrap_err();
    assert_eq!(error.status, 503);
    assert!(error.retry_after.is_some());
    assert_eq!(reading.unwrap().len(), 4 * MIB);
    assert_eq!(stalled.lease().bytes(), 0);
    // The second has arrived: no body is ended for a third.
    let third = RequestMemory::new(&budget);
    let body = Body::from_stream(chunks(4 * MIB, 64 << 10));
    let error = read(&headers, body, limits(), &third).await.unwrap_err();
    assert_eq!((error.status.as_u16(), error.retry_after.is_some()), (503, true));
    drop(second);
    let body = Body::from_stream(chunks(4 * MIB, 64 << 10));
    assert!(read(&headers, body, limits(), &third).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_waiting_bodies_of_a_connection_are_limited() {
    let budget = budget();
    let holder = budget.lease();
    holder.set(budget.request_limit(), None);
    let seats = WaitingSeats::new(2);
    let wait = async || {
        let memory = RequestMemory::new(&budget);
        let began = tokio::time::Instant::now();
        let body = Body::from_stream(chunks(MIB, 64 << 10));
        let limits = BodyLimits { seats: seats.clone(), ..limits() };
        let error = read(&HeaderMap::new(), body, limits, &memory).await.unwrap_err();
        assert_eq!((error.status.as_u16(), error.retry_after.is_some()), (503, true));
        (began.elapsed(), error.message)
    };
    let (first, second, third) = tokio::join!(wait(), wait(), wait());
    assert!(first.0.min(second.0) >= Duration::from_secs(1), "{first:?}, {second:?}");
    assert_eq!(third.0, Duration::ZERO);
    assert!(third.1.contains("2 bodies of this connection"), "{}", third.1);
    drop(holder);
    let memory = RequestMemory::new(&budget);
    let body = Body::from_stream(chunks(MIB, 64 << 10));
    let limits = BodyLimits { seats: WaitingSeats::new(0), ..limits() };
    let whole = read(&HeaderMap::new(), body, limits, &memory).await;
    assert_eq!(whole.unwrap().len(), MIB, "one that need not wait needs no seat");
}
