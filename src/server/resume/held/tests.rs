//! Tests of streams that several connections read, one after the other or at once.

use futures_util::stream::iter;

use super::*;
use crate::{
    api::MemoryBudget,
    server::{
        http::draws::Draws,
        resume::{
            exchange::{Exchange, Mode, Served},
            rendering::Rendering,
        },
    },
};

fn keeping(grace_ms: u64) -> Keeping {
    let exchange = Exchange {
        id: "s".to_owned(),
        owner: None,
        route: "/test".to_owned(),
        headers: Vec::new(),
        body: Vec::new(),
        draws: Draws::default(),
        mode: Mode::Stream,
        served: Served::default(),
        rendering: Rendering::default(),
        num_prompts: None,
        key: None,
        grace_ms,
        answer: None,
    };
    Keeping::of(None, exchange)
}

fn event(number: usize) -> Event {
    let bytes = Bytes::from(format!("{number};"));
    Event { position: Some(number.to_string()), bytes }
}

fn held(source: Source, grace_ms: u64, memory: usize) -> Arc<Held> {
    let lease = MemoryBudget::new(memory, "m", "0").lease();
    Held::new(source, keeping(grace_ms), [0; 32], None, lease)
}

async fn text(response: Response) -> String {
    let bytes = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test]
async fn any_number_of_readers_get_all_events_in_order() {
    let held = held(iter((0..5).map(|number| vec![event(number)])).boxed(), 0, 16 << 20);
    let readers = [held.follow(None).unwrap(), held.follow(None).unwrap()];
    let [first, second] = readers.map(text);
    let (first, second) = tokio::join!(first, second);
    assert_eq!((first.as_str(), second.as_str()), ("0;1;2;3;4;", "0;1;2;3;4;"));
    assert_eq!(text(held.follow(Some("2")).unwrap()).await, "3;4;");
    assert_eq!(text(held.follow(Some("4")).unwrap()).await, "");
    assert_eq!(held.follow(Some("9")).unwrap_err().status, 404);
    assert!(held.has_expired(Duration::ZERO, Instant::now()));
    assert!(!held.has_expired(Duration::from_secs(60), Instant::now()));
}

/// A source that sends one event, then nothing, and tells when it is dropped.
fn endless() -> (Source, tokio::sync::oneshot::Receiver<()>) {
    let (sender, dropped) = tokio::sync::oneshot::channel::<()>();
    let source = stream::unfold((0, sender), |(number, sender)| async move {
        if number > 0 {
            std::future::pending::<()>().await;
        }
        Some((vec![event(number)], (number + 1, sender)))
    });
    (source.boxed(), dropped)
}

async fn read_one(held: &Arc<Held>, position: Option<&str>) {
    let mut body = held.follow(position).unwrap().into_body().into_data_stream();
    assert_eq!(body.next().await.unwrap().unwrap(), "0;");
}

#[tokio::test]
async fn the_last_reader_ends_the_requests() {
    let (source, dropped) = endless();
    let held = held(source, 0, 16 << 20);
    read_one(&held, None).await;
    assert!(dropped.await.is_err(), "the source was dropped");
    assert_eq!(held.follow(Some("0")).unwrap_err().status, 404);
    assert!(held.has_expired(Duration::from_secs(60), Instant::now()));
}

/// A client that leaves before the first byte of a restored stream comes back for it.
#[tokio::test]
async fn a_restored_stream_waits_for_its_first_reader() {
    let (source, mut dropped) = endless();
    let held = held(source, 0, 16 << 20);
    held.await_reader();
    drop(held.follow(None).unwrap());
    tokio::task::yield_now().await;
    assert!(dropped.try_recv() == Err(tokio::sync::oneshot::error::TryRecvError::Empty));
    assert!(!held.has_expired(Duration::from_secs(60), Instant::now()));
    assert!(held.has_expired(Duration::from_secs(60), Instant::now() + Duration::from_secs(61)));
    read_one(&held, None).await;
    assert!(dropped.await.is_err(), "its reader has left");
}

#[tokio::test(start_paused = true)]
async fn a_stream_goes_on_alone_for_as_long_as_its_client_asked() {
    let (source, mut dropped) = endless();
    let held = held(source, 5_000, 16 << 20);
    read_one(&held, None).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(dropped.try_recv() == Err(tokio::sync::oneshot::error::TryRecvError::Empty));
    read_one(&held, None).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(dropped.try_recv() == Err(tokio::sync::oneshot::error::TryRecvError::Empty));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(dropped.await.is_err());
}

#[tokio::test]
async fn without_memory_the_newest_events_are_still_sent() {
    let large = |number: usize| {
        let bytes = Bytes::from(vec![b'x'; 1 << 20]);
        vec![Event { position: Some(number.to_string()), bytes }]
    };
    let held = held(iter((0..64).map(large)).boxed(), 0, 16 << 20);
    let all = axum::body::to_bytes(held.follow(None).unwrap().into_body(), 1 << 30).await.unwrap();
    assert_eq!(all.len(), 64 << 20);
    assert_eq!(held.follow(Some("0")).unwrap_err().status, 404, "it is kept no longer");
    assert!(held.follow(Some("63")).is_ok());
}

/// A process before an upgrade hands its streams over.
#[tokio::test]
async fn a_stream_that_has_ended_moves_to_another_process() {
    let old = held(iter((0..3).map(|number| vec![event(number)])).boxed(), 0, 16 << 20);
    assert!(old.ended(Instant::now()).is_none(), "it runs");
    assert_eq!(text(old.follow(None).unwrap()).await, "0;1;2;");
    let (stream, _) = old.ended(Instant::now()).unwrap();
    let lease = || MemoryBudget::new(16 << 20, "m", "0").lease();
    let new = Held::of_another(stream, [0; 32], Instant::now(), lease()).unwrap();
    assert_eq!(text(new.follow(None).unwrap()).await, "0;1;2;");
    assert_eq!(text(new.follow(Some("0")).unwrap()).await, "1;2;");
    let later = Instant::now() + Duration::from_secs(9);
    assert!(new.has_expired(Duration::from_secs(9), later));
}
