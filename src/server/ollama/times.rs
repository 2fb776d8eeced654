//! The counts at the end of an answer.

use std::time::{Duration, Instant};

use super::line::Counts;
use crate::server::generate::choices::Choices;

/// Returns the counts of an answer that was asked for at `began` and is complete.
pub(super) fn counts(began: Instant, choices: &Choices) -> Counts {
    let metrics = choices.metrics();
    let nanoseconds = |milliseconds: Option<f64>| {
        let time = Duration::try_from_secs_f64(milliseconds.unwrap_or_default() / 1e3);
        nanoseconds(time.unwrap_or_default())
    };
    Counts {
        total_duration: Some(self::nanoseconds(began.elapsed())),
        load_duration: Some(0),
        prompt_eval_count: Some(choices.num_prompt_tokens()),
        prompt_eval_duration: Some(nanoseconds(metrics.time_to_first_token_ms)),
        eval_count: Some(choices.num_output_tokens()),
        eval_duration: Some(nanoseconds(metrics.generation_time_ms)),
    }
}

/// Returns a time as this API writes it.
pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
