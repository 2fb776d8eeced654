//! The outputs of rows, and of steps that fail.

use super::{DeviceFault, Row, Span};
use crate::{
    logic::request::{
        ids::RequestId,
        outputs::{DraftCounts, Produced, RequestOutput, RowFailure, StepOutput},
    },
    ports::ExecuteError,
    sim::model::pooled,
};

/// Returns an output without a result.
pub(super) fn empty(request: RequestId) -> RequestOutput {
    let produced = Produced::default();
    let drafts = DraftCounts::default();
    RequestOutput { request, produced, prompt_logprobs: None, drafts, failure: None }
}

/// Returns the output of a pooling request. As for tokens, garbage is reported with the result.
pub(super) fn pool(row: &mut Row, span: Span, is_nan: bool) -> RequestOutput {
    row.computed.extend(&row.digests[span.start + 1..=span.end]);
    let params = row.request.pooling().filter(|_| span.end == row.tokens.len());
    match params {
        Some(_) if is_nan => {
            RequestOutput { failure: Some(RowFailure::NotANumber), ..empty(span.request) }
        }
        Some(params) => {
            let produced = Produced::Pooled(pooled(params, &row.computed));
            RequestOutput { produced, ..empty(span.request) }
        }
        None => empty(span.request),
    }
}

/// Fails as planned. A planned panic does not call the panic hook; see [`super::record`].
pub(super) fn fail(fault: DeviceFault) -> Result<StepOutput, ExecuteError> {
    match fault {
        DeviceFault::Panic => {
            std::panic::resume_unwind(Box::new("planned: the device thread panics".to_owned()));
        }
        DeviceFault::OutOfMemory => Err(ExecuteError::OutOfMemory("planned".to_owned())),
        _ => Err(ExecuteError::Device("planned: the driver gave up".to_owned())),
    }
}
