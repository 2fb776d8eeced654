//! Two hundred requests that make the model panic, among two thousand that do not. Only the two
//! hundred fail, with the reason.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{sync::atomic::Ordering, time::Duration};

use crate::common::{expected_text, request, spawn_with};
use playhouse_actors::{
    logic::request::{FinishReason, failure::Failure},
    message::input_processor::{Prompt, RawRequest},
    system::{ChoiceStream, SystemConfig},
};
use tokio::{task::JoinSet, time::timeout};

const GOOD: u32 = 2_000;
const POISONED: u32 = 200;
const TOKENS: u32 = 10;
/// No good prompt has this token.
const POISON: u32 = 996;
const PATIENCE: Duration = Duration::from_secs(240);

/// Returns a different prompt for every request, because the door refuses a prompt equal to a
/// convicted one.
fn prompt(number: u32) -> Vec<u32> {
    let own = [number % 30, number / 30];
    own.into_iter().chain((0..18).map(|i| (i * 7 + number) % POISON)).collect()
}

fn raw(prompt: Vec<u32>) -> RawRequest {
    RawRequest { prompt: Prompt::Tokens(prompt), ..request(0, 1, TOKENS).1 }
}

async fn read(mut stream: ChoiceStream) -> (String, Option<FinishReason>) {
    let (mut text, mut end) = (String::new(), None);
    while let Some(delta) = stream.next().await {
        text.push_str(&delta.text);
        end = delta.finish;
    }
    (text, end)
}

/// Hides the panic messages of device threads, which would fill pages.
fn hush_device_threads() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if std::thread::current().name() != Some("playhouse-device") {
            hook(panic);
        }
    }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_poisoned_fail_and_nobody_else() {
    hush_device_threads();
    let (system, faults) = spawn_with(256, |config: &mut SystemConfig| {
        config.tick = Duration::from_millis(20);
    })
    .await;
    faults.poison.store(u64::from(POISON), Ordering::Relaxed);
    let mut tasks = JoinSet::new();
    let every = (GOOD + POISONED) / POISONED;
    for number in 0..GOOD + POISONED {
        let is_poisoned = number % every == every / 2;
        let mut prompt = prompt(number);
        if is_poisoned {
            prompt[5] = POISON;
        }
        let mut submission = system.submit(raw(prompt.clone())).await.unwrap();
        let stream = submission.choices.remove(0);
        tasks.spawn(async move { (is_poisoned, prompt, read(stream).await) });
    }
    let ended = timeout(PATIENCE, tasks.join_all()).await.unwrap();
    let quarantined = FinishReason::Error(Failure::Quarantined);
    let mut convicts = 0;
    for (is_poisoned, prompt, (text, end)) in ended {
        if is_poisoned {
            assert_eq!((text.as_str(), end), ("", Some(quarantined.clone())));
            convicts += 1;
        } else {
            let expected = expected_text(&prompt, TOKENS as usize);
            assert_eq!((text, end), (expected, Some(FinishReason::Length)));
        }
    }
    assert_eq!(convicts, POISONED);
    let again = system.submit(raw(prompt(1))).await.unwrap().choices.remove(0);
    assert_eq!(read(again).await.0, expected_text(&prompt(1), TOKENS as usize));
    assert_eq!(system.directory().core.worker.restarts(), 0, "it costs threads, not actors");
    assert!(system.drain(PATIENCE).await, "nothing stays open");
    system.shutdown().await;
}
