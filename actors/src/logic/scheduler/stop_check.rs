//! Decides whether the last token ends a request, with the reasons that the ledger uses.

use crate::logic::{
    request::{EngineRequest, FinishReason, StopReason, ids::TokenId, work::Work},
    text::stop::{StopConditions, StopKind, check_stop},
};

/// Returns the conditions that [`finish_reason`] needs, once for each request. They do not contain
/// the end-of-sequence tokens, because a request may have several.
pub(super) fn stop_conditions(request: &EngineRequest, max_model_len: usize) -> StopConditions {
    let params = match &request.work {
        Work::Generate(params) => params,
        Work::Pool(_) => return of_pooling(max_model_len),
    };
    StopConditions {
        eos_token_id: None,
        ignore_eos: params.ignore_eos,
        stop_token_ids: params.stop_token_ids.clone(),
        max_tokens: params.max_tokens as usize,
        max_model_len,
        repetition_detection: params.repetition_detection,
    }
}

/// Returns the conditions of a request that ends with its first result, so that no step is planned
/// behind it.
fn of_pooling(max_model_len: usize) -> StopConditions {
    StopConditions {
        eos_token_id: None,
        ignore_eos: true,
        stop_token_ids: Vec::new(),
        max_tokens: 1,
        max_model_len,
        repetition_detection: None,
    }
}

/// Returns the reason why the last token ends the request, or `None`. The checks are in vLLM's
/// order: end-of-sequence token, stop token, length, repetition.
pub(super) fn finish_reason(
    request: &EngineRequest,
    conditions: &StopConditions,
    output_token_ids: &[TokenId],
) -> Option<FinishReason> {
    let last = output_token_ids.last()?;
    if !conditions.ignore_eos && request.eos_token_ids.contains(last) {
        return Some(FinishReason::Stop(None));
    }
    let num_tokens = request.num_prompt_tokens() + output_token_ids.len();
    Some(match check_stop(conditions, output_token_ids, num_tokens)? {
        StopKind::Eos => FinishReason::Stop(None),
        StopKind::StopToken(token) => FinishReason::Stop(Some(StopReason::Token(token))),
        StopKind::Length => FinishReason::Length,
        StopKind::Repetition => FinishReason::Repetition,
    })
}
