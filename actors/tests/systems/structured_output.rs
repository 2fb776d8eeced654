//! Constrained outputs wait for their grammar, and other requests do not. A grammar that is
//! invalid, makes the compiler panic or takes too long fails only the requests that ask for it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::{sync::atomic::Ordering, time::Duration};

use crate::common::{collect, constrained, expected_text, request, spawn_with};
use playhouse_actors::{
    logic::request::{FinishReason, failure::Failure},
    message::input_processor::RawRequest,
    system::{System, SystemConfig},
};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(60);
/// The limit of a system where a grammar hangs. Other grammars are compiled in this time, on a
/// loaded machine too.
const LIMIT: Duration = Duration::from_secs(1);
const TOKENS: u32 = 20;

fn impatient(config: &mut SystemConfig) {
    config.tick = Duration::from_millis(10);
    config.num_grammar_threads = 1;
    config.grammar_timeout = LIMIT;
}

fn patient(config: &mut SystemConfig) {
    impatient(config);
    config.grammar_timeout = PATIENCE;
}

/// Returns the failure of a request that must not generate a single token.
async fn failure(system: &System, raw: RawRequest) -> Failure {
    let mut stream = system.submit(raw).await.unwrap().choices.remove(0);
    loop {
        let delta = timeout(PATIENCE, stream.next()).await.unwrap().unwrap();
        assert_eq!((delta.text.as_str(), delta.tokens.len()), ("", 0));
        match delta.finish {
            None => {}
            Some(FinishReason::Error(failure)) => return failure,
            Some(other) => panic!("ended by {other:?}"),
        }
    }
}

async fn is_served(system: &System, salt: u32, text: &str) {
    let (prompt, raw) = constrained(salt, TOKENS, text);
    let stream = system.submit(raw).await.unwrap().choices.remove(0);
    let (text, _) = timeout(PATIENCE, collect(stream)).await.unwrap();
    assert_eq!(text, expected_text(&prompt, TOKENS as usize));
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_without_a_grammar_do_not_wait_and_identical_grammars_are_compiled_once() {
    let (system, faults) = spawn_with(64, patient).await;
    faults.block_compiler.store(true, Ordering::Relaxed);
    let mut waiting = Vec::new();
    for salt in 0..4 {
        let (prompt, raw) = constrained(salt, TOKENS, "[0-9]+");
        waiting.push((prompt, system.submit(raw).await.unwrap().choices.remove(0)));
    }
    let (prompt, raw) = request(9, 40, TOKENS);
    let passing = system.submit(raw).await.unwrap().choices.remove(0);
    let (text, _) = timeout(PATIENCE, collect(passing)).await.unwrap();
    assert_eq!(text, expected_text(&prompt, TOKENS as usize));
    // An actor that lacked a processor for long was replaced. Its successor sets the requests aside
    // again.
    let set_aside = async {
        loop {
            let stats = system.status().await.unwrap().scheduler;
            let waiting = (stats.num_waiting, stats.num_skipped_waiting);
            if stats.num_running == 0 && waiting == (0, 4) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, set_aside).await.unwrap();
    faults.block_compiler.store(false, Ordering::Relaxed);
    for (prompt, stream) in waiting {
        let (text, _) = timeout(PATIENCE, collect(stream)).await.unwrap();
        assert_eq!(text, expected_text(&prompt, TOKENS as usize));
    }
    // The successor of an actor that was replaced compiles again.
    let restarts = system.directory().restarts();
    let compilations = faults.compilations.load(Ordering::Relaxed);
    assert!((1..=1 + restarts).contains(&compilations), "{compilations}, {restarts} restarts");
    system.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_grammar_fails_its_request_alone() {
    let (system, _) = spawn_with(64, patient).await;
    let invalid = failure(&system, constrained(1, TOKENS, "invalid").1).await;
    assert_eq!(invalid, Failure::InvalidGrammar("no regular expression".to_owned()));
    is_served(&system, 2, "[0-9]+").await;
    assert_eq!(system.directory().restarts(), 0);
    assert!(system.drain(PATIENCE).await, "nothing stays open");
    system.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_in_the_compiler_fails_its_request_alone() {
    let (system, _) = spawn_with(64, patient).await;
    let failed = failure(&system, constrained(1, TOKENS, "panic").1).await;
    assert_eq!(failed, Failure::GrammarCompiler("planted".to_owned()));
    is_served(&system, 2, "[0-9]+").await;
    assert_eq!(system.directory().restarts(), 0, "it costs neither thread nor actor");
    system.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grammar_that_takes_too_long_is_refused_and_its_thread_replaced() {
    let (system, _) = spawn_with(64, impatient).await;
    let failed = failure(&system, constrained(1, TOKENS, "hang").1).await;
    let why = "the grammar takes longer to compile than the limit of 1 s";
    assert_eq!(failed, Failure::InvalidGrammar(why.to_owned()));
    is_served(&system, 2, "[0-9]+").await;
    assert_eq!(system.directory().restarts(), 0);
    system.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn threads_are_bounded_and_come_back() {
    let (system, faults) = spawn_with(64, |config| {
        impatient(config);
        config.grammar_timeout = Duration::from_millis(100);
    })
    .await;
    faults.block_compiler.store(true, Ordering::Relaxed);
    // One thread works, and eight may be abandoned. The next job finds none.
    for _ in 0..9 {
        let failed = failure(&system, constrained(1, TOKENS, "[a-z]+").1).await;
        assert!(matches!(failed, Failure::InvalidGrammar(_)), "{failed:?}");
    }
    let failed = failure(&system, constrained(2, TOKENS, "[0-9]+").1).await;
    assert!(matches!(failed, Failure::GrammarCompiler(_)), "{failed:?}");
    faults.block_compiler.store(false, Ordering::Relaxed);
    // A thread may take a moment to end, and so may a grammar within its short limit.
    let (prompt, raw) = constrained(3, TOKENS, "[0-9]+");
    let served = async {
        loop {
            let stream = system.submit(raw.clone()).await.unwrap().choices.remove(0);
            let (text, finish) = collect(stream).await;
            if finish != "error" {
                return text;
            }
        }
    };
    assert_eq!(timeout(PATIENCE, served).await.unwrap(), expected_text(&prompt, TOKENS as usize));
    system.shutdown().await;
}
