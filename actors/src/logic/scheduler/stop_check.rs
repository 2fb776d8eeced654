//! Whether the last token ends a request.

use crate::logic::{
    ids::TokenId,
    request::{EngineRequest, FinishReason, StopReason},
    stop::{self, StopConditions, StopKind},
};

/// Why the request ends with the last of `output_token_ids`, if it does.
pub(super) fn check_stop(
    request: &EngineRequest,
    output_token_ids: &[TokenId],
    max_model_len: usize,
) -> Option<FinishReason> {
    let params = &request.params;
    let conditions = StopConditions {
        eos_token_ids: &request.eos_token_ids,
        ignore_eos: params.ignore_eos,
        stop_token_ids: &params.stop_token_ids,
        max_tokens: params.max_tokens as usize,
        max_model_len,
        repetition_detection: params.repetition_detection,
    };
    let num_tokens = request.num_prompt_tokens() + output_token_ids.len();
    Some(match stop::check_stop(&conditions, output_token_ids, num_tokens)? {
        StopKind::Eos => FinishReason::Stop(None),
        StopKind::StopToken(token) => FinishReason::Stop(Some(StopReason::Token(token))),
        StopKind::Length => FinishReason::Length,
        StopKind::Repetition => FinishReason::Repetition,
    })
}
