//! While the breaker is open: tries from time to time, with a request of our own, whether the
//! engine serves again.

use std::{
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use super::{context::Context, door::Door};
use crate::{
    fault::{Bug, planted},
    logic::{breaker::BreakerState, request::FinishReason},
    message::input_processor::{Prompt, RawRequest},
};

/// How often it looks whether a canary is due.
const PERIOD: Duration = Duration::from_millis(50);

/// Runs until the system is shut down.
pub(super) async fn watch(context: Arc<Context>, door: Weak<Door>) {
    let mut number = 0_u64;
    while !context.is_stopped.load(Ordering::Acquire) {
        if context.breaker.lock().state(context.now()) == BreakerState::Closed {
            context.breaker_tripped.notified().await;
            continue;
        }
        tokio::time::sleep(PERIOD).await;
        let is_due = context.breaker.lock().canary_due(context.now());
        if let Some(door) = door.upgrade().filter(|_| is_due) {
            let limit = patience(&context);
            number += 1;
            let is_served = tokio::time::timeout(limit, is_served(&door, number)).await;
            let is_served = is_served.unwrap_or(false);
            let now = context.now();
            let mut breaker = context.breaker.lock();
            if is_served && !planted(Bug::DeafToCanary) {
                tracing::info!("the engine serves again");
                breaker.canary_succeeded(now);
            } else {
                breaker.canary_failed(now);
            }
        }
    }
}

/// How long a canary may take: on a slow device a step alone is longer than a call.
fn patience(context: &Context) -> Duration {
    let step = context.vault.step_time.lock().predict(1).map(Duration::from_micros);
    step.map_or(context.config.call_timeout, |step| context.config.call_timeout.max(10 * step))
}

/// One token after one token. Each is another request: one that a broken device has quarantined must
/// not be why the next is refused.
async fn is_served(door: &Arc<Door>, number: u64) -> bool {
    let mut canary = RawRequest::new(Prompt::Tokens(vec![0]));
    canary.cache_salt = Some(format!("canary {number}"));
    canary.max_tokens = Some(1);
    canary.params.ignore_eos = true;
    let Ok(mut submission) = door.admit(canary).await else { return false };
    for choice in &mut submission.choices {
        while let Some(delta) = choice.next().await {
            if delta.finish == Some(FinishReason::Length) {
                return true;
            }
        }
    }
    false
}
