//! One request with thousands of choices beside others: with and without tenants, and with a core
//! that dies meanwhile.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{sync::atomic::Ordering, time::Duration};

use crate::common::{collect, expected_text, request, spawn_with};
use playhouse_actors::{
    error::RequestError,
    logic::admission::Tenant,
    message::input_processor::RawRequest,
    system::{ChoiceStream, System, SystemConfig},
};
use tokio::{task::JoinSet, time::timeout};

/// Number of choices of the large request: the maximum of one request in vLLM.
const CHOICES: u32 = 16_384;
/// Number of tokens of each choice.
const TOKENS: u32 = 12;
const PATIENCE: Duration = Duration::from_secs(120);

async fn system() -> System {
    let (system, faults) = spawn_with(256, |config: &mut SystemConfig| {
        config.admission.max_num_requests = 2 * CHOICES as usize;
    })
    .await;
    // The large request takes twenty seconds, so that others find it also on a loaded machine.
    faults.step_ms.store(2, Ordering::Relaxed);
    system
}

async fn large(system: &System, tenant: Option<Tenant>) -> Vec<ChoiceStream> {
    let (_, mut raw) = request(1, 20, TOKENS);
    raw.params.temperature = 1.0;
    raw.params.n = CHOICES;
    system.submit(RawRequest { tenant, ..raw }).await.unwrap().choices
}

/// Checks that all requests with one choice end while most of the large one waits.
async fn others_are_served(system: &System, tenant: Option<Tenant>, salt: u32) {
    for number in 0..20 {
        let (prompt, raw) = request(salt + number, 30, 8);
        let mut submission = system.submit(RawRequest { tenant, ..raw }).await.unwrap();
        let ended = timeout(PATIENCE, collect(submission.choices.remove(0))).await.unwrap();
        assert_eq!(ended, (expected_text(&prompt, 8), "length".to_owned()));
    }
    let stats = system.status().await.unwrap().scheduler;
    assert!(stats.num_waiting > CHOICES as usize / 2, "the large one is over: {stats:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_of_thousands_of_choices_holds_no_other_back() {
    for [alice, bob] in [[None, None], [Some(Tenant(0)), Some(Tenant(1))]] {
        let system = system().await;
        let choices = large(&system, alice).await;
        others_are_served(&system, bob, 100).await;
        // The order follows from the live requests, so a new scheduler keeps it.
        system.directory().core.scheduler.get().unwrap().kill();
        others_are_served(&system, bob, 200).await;
        drop(choices);
        assert!(system.drain(PATIENCE).await, "nothing stays open");
        system.shutdown().await;
    }
}

/// The choices make progress beside an endless sequence of other requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn choices_end_beside_others_and_are_what_they_are_alone() {
    let system = std::sync::Arc::new(system().await);
    let (prompt, mut raw) = request(1, 20, TOKENS);
    raw.params.temperature = 1.0;
    raw.params.n = 100;
    let choices = system.submit(raw).await.unwrap().choices;
    let mut others = JoinSet::new();
    for client in 0..20 {
        let system = std::sync::Arc::clone(&system);
        others.spawn(async move {
            for number in 0.. {
                let (_, raw) = request(1_000 + client * 100 + number % 50, 30, 8);
                let Ok(mut submission) = system.submit(raw).await else { return };
                collect(submission.choices.remove(0)).await;
            }
        });
    }
    let all = async {
        for choice in choices {
            let ended = collect(choice).await;
            assert_eq!(ended, (expected_text(&prompt, TOKENS as usize), "length".to_owned()));
        }
    };
    timeout(PATIENCE, all).await.unwrap();
    others.shutdown().await;
    system.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fills_the_engine() {
    let (system, _) = spawn_with(64, |config: &mut SystemConfig| {
        config.admission.max_num_requests = CHOICES as usize;
    })
    .await;
    let (_, mut raw) = request(1, 20, TOKENS);
    raw.params.temperature = 1.0;
    raw.params.n = CHOICES;
    let refused = system.submit(raw.clone()).await.unwrap_err();
    let share = (u64::from(CHOICES) * 8).div_ceil(9);
    let expected = format!("at most {share}, one client's share of max_num_requests");
    assert_eq!(refused, RequestError::invalid("n", CHOICES, expected), "waiting would not help");
    raw.params.temperature = 1.0;
    raw.params.n = CHOICES / 2;
    let choices = system.submit(raw).await.unwrap().choices;
    let (prompt, raw) = request(2, 30, 8);
    let mut submission = system.submit(raw).await.unwrap();
    let ended = timeout(PATIENCE, collect(submission.choices.remove(0))).await.unwrap();
    assert_eq!(ended.0, expected_text(&prompt, 8));
    drop(choices);
    assert!(system.drain(PATIENCE).await);
    system.shutdown().await;
}
