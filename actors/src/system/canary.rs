//! The canary, a request of the engine's own. While the breaker is open, it tries from time to time
//! whether the engine serves again. When the model is suspect, it tries whether the logits are
//! finite.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use super::{context::Context, submit::Door};
use crate::{
    fault::{Bug, planted},
    logic::{
        recovery::{breaker::BreakerState, sanity::ModelState},
        request::{FinishReason, failure::Failure},
    },
    message::{
        LedgerMessage,
        input_processor::{Prompt, RawRequest},
    },
};

/// Pause after a probe without a result.
const PROBE_PAUSE: Duration = Duration::from_secs(1);
/// Time between two checks whether a canary is due.
const PERIOD: Duration = Duration::from_millis(50);

/// Runs until the system is shut down or its door is gone.
pub(crate) async fn watch(context: Arc<Context>, door: Weak<Door>) {
    let mut number = 0_u64;
    while !context.is_stopped() {
        let is_closed = context.clients.gate.breaker().state(context.now()) == BreakerState::Closed;
        if is_closed && context.ledger().model_state() == ModelState::Suspect {
            number += 1;
            let Some(door) = door.upgrade() else { return };
            probe(&context, &door, number).await;
            continue;
        }
        if is_closed {
            context.clients.gate.canary_called().await;
            continue;
        }
        tokio::time::sleep(PERIOD).await;
        let is_due = context.clients.gate.breaker().canary_due(context.now());
        let Some(door) = door.upgrade() else { return };
        if is_due {
            number += 1;
            let end = send(&context, &door, number).await;
            let now = context.now();
            let mut breaker = context.clients.gate.breaker();
            if end == End::Served && !planted(Bug::DeafToCanary) {
                tracing::info!("the engine serves again");
                breaker.canary_succeeded(now);
            } else {
                breaker.canary_failed(now);
            }
        }
    }
}

/// The end of a canary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Served,
    NonFiniteLogits,
    Failed,
}

/// Finds out whether the suspect model computes finite logits for a request that no client wrote.
/// If so, the commit of its token has acquitted the model.
async fn probe(context: &Context, door: &Arc<Door>, number: u64) {
    match send(context, door, number).await {
        End::Served => {}
        End::NonFiniteLogits => {
            // Without an answer the model may still be suspect, and the next probe reports again.
            let (ledger, limit) = (&context.directory.ledger, context.config.call_timeout);
            if ledger.call("probe_failed", limit, LedgerMessage::ProbeFailed).await.is_err() {
                tokio::time::sleep(PROBE_PAUSE).await;
            }
        }
        // This end says nothing about the model.
        End::Failed => tokio::time::sleep(PROBE_PAUSE).await,
    }
}

async fn send(context: &Context, door: &Arc<Door>, number: u64) -> End {
    let served = tokio::time::timeout(patience(context), is_served(door, number));
    served.await.unwrap_or(End::Failed)
}

/// Returns how long a canary may take. On a slow device, a step alone takes longer than a call may.
fn patience(context: &Context) -> Duration {
    let step = context.predicted_step().map(Duration::from_micros);
    step.map_or(context.config.call_timeout, |step| context.config.call_timeout.max(10 * step))
}

/// Asks for one token after one token, or pools it in a model that does not generate. Each canary
/// is another request, so a canary that a broken device has quarantined does not cause the refusal
/// of the next.
async fn is_served(door: &Arc<Door>, number: u64) -> End {
    let mut canary = RawRequest::new(Prompt::Tokens(vec![0]));
    canary.pooling = door.canary_pooling();
    canary.cache_salt = Some(format!("canary {number}"));
    canary.max_tokens = Some(1);
    canary.params.ignore_eos = true;
    let Ok(mut submission) = door.admit(canary).await else { return End::Failed };
    for choice in &mut submission.choices {
        while let Some(delta) = choice.next().await {
            match delta.finish {
                Some(FinishReason::Length) => return End::Served,
                Some(FinishReason::Stop(_)) if delta.pooled.is_some() => return End::Served,
                Some(FinishReason::Error(Failure::NumericalGarbage)) => {
                    return End::NonFiniteLogits;
                }
                _ => {}
            }
        }
    }
    End::Failed
}
