//! Writes the answer: in one piece, or chunk by chunk.

use super::{protocol::Style, response::Completion, stream::CompletionChunks};
use crate::server::generate::{
    answer::Head,
    choices::{Choices, FinishedChoice},
    choices_answer::ChoicesFormat,
    usage::{Usage, UsageReports},
};

/// Writes the choices of completions.
pub(in crate::server) struct CompletionFormat {
    pub(super) head: Head,
    pub(super) style: Style,
}

impl ChoicesFormat for CompletionFormat {
    type Chunks = CompletionChunks;
    type Whole = Completion;

    fn chunks(self, reports: UsageReports, choices: &Choices) -> CompletionChunks {
        CompletionChunks::new(self.head, self.style, reports, choices)
    }

    fn whole(self, choices: &Choices, finished: Vec<FinishedChoice>, usage: Usage) -> Completion {
        Completion::new(self.head, &self.style, choices, finished, usage)
    }
}
