//! The outputs of an adopted answer up to the last event that its client has.

use std::collections::VecDeque;

use super::choices::ChoiceDelta;
use crate::{
    api::ChoiceStream,
    server::{
        http::error::ApiError,
        resume::{Batch, Position},
    },
};

/// The outputs of all choices, of which the first pieces are cut at given tokens.
pub(super) struct Replay {
    choices: Vec<ChoiceStream>,
    steps: VecDeque<Step>,
}

/// One piece: so many tokens of a choice, perhaps with its end.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    choice: usize,
    num_tokens: usize,
    with_end: bool,
}

impl Replay {
    /// Returns the outputs of `choices`. The pieces end where the events up to `after` end.
    ///
    /// # Errors
    /// 400 if `after` is of a stream with other choices.
    pub(super) fn new(
        choices: Vec<ChoiceStream>,
        after: Option<&Position>,
    ) -> Result<Self, ApiError> {
        let steps = steps(choices.len(), after)?;
        Ok(Self { choices, steps })
    }

    /// Returns the next piece, once it is there, and `None` after the last. Cancel safe.
    ///
    /// # Errors
    /// 500 if the output is another one than the client has seen.
    pub(super) async fn next(&mut self) -> Result<Option<ChoiceDelta>, ApiError> {
        let Some(step) = self.steps.front() else { return Ok(None) };
        let index = step.choice;
        let choice = self.choices.get_mut(index);
        let choice = choice.ok_or_else(|| ApiError::internal("a choice is missing"))?;
        let delta = choice.next_exactly(step.num_tokens, step.with_end).await;
        let delta = delta.map_err(|error| ApiError::internal(error.to_string()))?;
        self.steps.pop_front();
        if self.steps.is_empty() {
            self.choices.iter().for_each(ChoiceStream::expect_reader);
        }
        Ok(Some(ChoiceDelta { index, delta }))
    }

    /// Returns the choices, whose further outputs come as they are.
    pub(super) fn into_choices(self) -> Vec<ChoiceStream> {
        self.choices
    }
}

fn steps(num_choices: usize, after: Option<&Position>) -> Result<VecDeque<Step>, ApiError> {
    let Some(Batch::Output { choice, after, before }) = after.map(|after| &after.batch) else {
        return Ok(VecDeque::new());
    };
    if before.len() != num_choices {
        let (found, message) = (before.len(), "the id of the event is of a stream with");
        let message = format!("{message} {found} choices, this one has {num_choices}");
        return Err(ApiError::invalid("Last-Event-ID", message));
    }
    let shown = before.iter().enumerate().map(|(choice, progress)| Step {
        choice,
        num_tokens: progress.num_tokens,
        with_end: progress.has_ended,
    });
    let shown = shown.filter(|step| step.num_tokens > 0 || step.with_end);
    let from = before[*choice].num_tokens;
    let last =
        Step { choice: *choice, num_tokens: after.num_tokens - from, with_end: after.has_ended };
    Ok(shown.chain([last]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(after: &str) -> Vec<(usize, usize, bool)> {
        let after = after.parse().unwrap();
        let steps = steps(3, Some(&after)).unwrap();
        steps.iter().map(|step| (step.choice, step.num_tokens, step.with_end)).collect()
    }

    #[test]
    fn the_last_piece_is_that_of_the_last_event() {
        assert_eq!(pieces("9.1.1-7.4,5,0"), [(0, 4, false), (1, 5, false), (1, 2, false)]);
        assert_eq!(pieces("9.0.2-0e.4e,0,0"), [(0, 4, true), (2, 0, true)]);
        assert_eq!(pieces("0.0.b"), []);
        assert_eq!(pieces("9.1.e"), []);
    }

    #[test]
    fn a_place_in_another_stream_is_refused() {
        let after = "9.1.1-7.4,5".parse().unwrap();
        let error = steps(3, Some(&after)).unwrap_err();
        assert!(error.message.ends_with("with 2 choices, this one has 3"), "{}", error.message);
    }
}
