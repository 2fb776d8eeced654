//! Prompts that take long to tokenize. Other prompts pass them, and only they are cut, rejected or
//! given up.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use crate::common::{Faults, collect, expected_text, request, spawn_with};
use playhouse_actors::{
    error::RequestError,
    logic::{input::fit::TruncationSide, request::ids::TokenId},
    message::{
        Role,
        input_processor::{Prompt, RawRequest},
    },
    supervision::directory::ActorStats,
    system::{System, SystemConfig},
};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(60);
/// Length of a text that counts as long.
const LONG_BYTES: usize = 300_000;
const PIECE_BYTES: usize = 1_000;
const KEPT_TOKENS: usize = 40;

/// Returns the kept tokens of a long prompt and its request. `side` says whether the first or the
/// last tokens are dropped.
fn long(salt: usize, side: TruncationSide) -> (Vec<TokenId>, RawRequest) {
    let text: String =
        (0..LONG_BYTES).map(|at| char::from(b'a' + ((at * 7 + salt) % 26) as u8)).collect();
    let kept = match side {
        TruncationSide::Left => &text[LONG_BYTES - KEPT_TOKENS..],
        TruncationSide::Right => &text[..KEPT_TOKENS],
    };
    let tokens = kept.bytes().map(TokenId::from).collect();
    let mut raw = RawRequest::new(Prompt::Text(text));
    raw.max_tokens = Some(5);
    raw.truncate_prompt_tokens = Some(KEPT_TOKENS as i64);
    raw.truncation_side = side;
    (tokens, raw)
}

async fn spawn(change: impl FnOnce(&mut SystemConfig)) -> (Arc<System>, Arc<Faults>) {
    let (system, faults) = spawn_with(128, change).await;
    faults.piece_bytes.store(PIECE_BYTES as u64, Ordering::Relaxed);
    (Arc::new(system), faults)
}

/// Waits until `count` pieces were begun.
async fn pieces_begun(faults: &Faults, count: u64) {
    let begun = async {
        while faults.pieces.load(Ordering::SeqCst) < count {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, begun).await.unwrap();
}

async fn is_served(system: &System, prompt: &[TokenId], raw: RawRequest) {
    let mut submission = timeout(PATIENCE, system.submit(raw)).await.unwrap().unwrap();
    assert_eq!(&*submission.prompt_token_ids, prompt);
    let (text, _) = timeout(PATIENCE, collect(submission.choices.remove(0))).await.unwrap();
    assert_eq!(text, expected_text(prompt, 5));
}

fn restarts(system: &System) -> u64 {
    let actors = system.actors();
    actors.iter().filter(|actor| actor.role == Role::InputProcessor).map(|a| a.restarts).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn short_prompts_pass_long_ones_that_take_for_ever() {
    let (system, faults) = spawn(|config| config.hang_timeout = Duration::from_millis(300)).await;
    faults.block_pieces.store(true, Ordering::SeqCst);
    let waiting: Vec<_> = (0..64)
        .map(|salt| {
            let system = Arc::clone(&system);
            let side = if salt % 2 == 0 { TruncationSide::Left } else { TruncationSide::Right };
            let (prompt, raw) = long(salt, side);
            tokio::spawn(async move { is_served(&system, &prompt, raw).await })
        })
        .collect();
    pieces_begun(&faults, 1).await;
    for salt in 0..20 {
        let (prompt, raw) = request(salt, 40, 5);
        is_served(&system, &prompt, raw).await;
        let mut raw = RawRequest::new(Prompt::Text("a short one".to_owned()));
        raw.max_tokens = Some(5);
        let prompt: Vec<_> = b"a short one".iter().map(|&byte| TokenId::from(byte)).collect();
        is_served(&system, &prompt, raw).await;
    }
    // A processor may just be handling a ping.
    let idle = async {
        let is_busy =
            |actor: &ActorStats| actor.role == Role::InputProcessor && actor.busy_for.is_some();
        while system.actors().iter().any(is_busy) {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, idle).await.expect("jobs run beside the actors");
    // Each job takes one turn, then lets the next one run.
    let begun = faults.pieces.load(Ordering::SeqCst);
    assert!(begun <= std::thread::available_parallelism().unwrap().get() as u64, "{begun} at once");
    faults.block_pieces.store(false, Ordering::SeqCst);
    for served in waiting {
        served.await.unwrap();
    }
    assert_eq!(faults.pieces.load(Ordering::SeqCst), 64, "only the piece that is kept");
    assert_eq!(restarts(&system), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_ends_its_job() {
    let (system, faults) = spawn(|_| ()).await;
    faults.block_pieces.store(true, Ordering::SeqCst);
    let (_, mut raw) = long(0, TruncationSide::Left);
    raw.truncate_prompt_tokens = Some(500);
    let mut all = raw.clone();
    faults.piece_bytes.store(1, Ordering::Relaxed);
    let leaving = tokio::spawn({
        let system = Arc::clone(&system);
        async move { system.submit(raw).await.map(drop) }
    });
    pieces_begun(&faults, 1).await;
    leaving.abort();
    assert!(leaving.await.unwrap_err().is_cancelled());
    faults.block_pieces.store(false, Ordering::SeqCst);
    all.truncate_prompt_tokens = Some(KEPT_TOKENS as i64);
    assert!(timeout(PATIENCE, system.submit(all)).await.unwrap().is_ok());
    let pieces = faults.pieces.load(Ordering::SeqCst);
    assert_eq!(pieces, 1 + KEPT_TOKENS as u64, "no further piece of the abandoned job");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_survives_the_death_of_its_processor() {
    let (system, faults) = spawn(|_| ()).await;
    faults.block_pieces.store(true, Ordering::SeqCst);
    let (prompt, raw) = long(3, TruncationSide::Left);
    let waiting = tokio::spawn({
        let system = Arc::clone(&system);
        async move { is_served(&system, &prompt, raw).await }
    });
    pieces_begun(&faults, 1).await;
    for processor in &system.directory().input_processors {
        if let Some(processor) = processor.get() {
            processor.kill();
        }
    }
    faults.block_pieces.store(false, Ordering::SeqCst);
    waiting.await.unwrap();
    assert!(restarts(&system) > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_takes_too_long_is_given_up_and_not_repeated() {
    // The second job has this time too, on a loaded machine.
    let limit = Duration::from_secs(3);
    let (system, faults) = spawn(|config| config.input_timeout = limit).await;
    faults.block_pieces.store(true, Ordering::SeqCst);
    let (_, raw) = long(4, TruncationSide::Right);
    let refused = timeout(PATIENCE, system.submit(raw)).await.unwrap();
    assert_eq!(refused.err(), Some(RequestError::InputTimeout { limit }));
    assert_eq!(faults.pieces.load(Ordering::SeqCst), 1);
    faults.block_pieces.store(false, Ordering::SeqCst);
    let (prompt, raw) = long(5, TruncationSide::Right);
    is_served(&system, &prompt, raw).await;
    assert_eq!(restarts(&system), 0);
}

/// The context has 512 tokens.
#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_that_does_not_fit_is_rejected_as_soon_as_that_is_known() {
    let (system, faults) = spawn(|_| ()).await;
    faults.piece_bytes.store(100, Ordering::Relaxed);
    let (_, mut raw) = long(6, TruncationSide::Left);
    raw.truncate_prompt_tokens = None;
    let refused = system.submit(raw).await.err();
    let expected = RequestError::PromptTooLong { max_model_len: 512, min_prompt_tokens: 600 };
    assert_eq!(refused, Some(expected));
    assert_eq!(faults.pieces.load(Ordering::SeqCst), 6);
}
