//! Writes the answer: in one piece, or chunk by chunk.

use super::{protocol::Style, response::ChatCompletion, stream::ChatChunks};
use crate::server::generate::{
    answer::Head,
    choices::{Choices, FinishedChoice},
    choices_answer::ChoicesFormat,
    usage::{Usage, UsageReports},
};

/// Writes the choices of chat completions.
pub(in crate::server) struct ChatFormat {
    pub(super) id: String,
    /// Seconds since 1970.
    pub(super) created: u64,
    pub(super) model: String,
    pub(super) style: Style,
}

impl ChoicesFormat for ChatFormat {
    type Chunks = ChatChunks;
    type Whole = ChatCompletion;

    fn chunks(self, reports: UsageReports, choices: &Choices) -> ChatChunks {
        let head = Head::new(self.id, "chat.completion.chunk", self.model, self.created);
        ChatChunks::new(head, self.style, reports, choices)
    }

    fn whole(
        self,
        choices: &Choices,
        finished: Vec<FinishedChoice>,
        usage: Usage,
    ) -> ChatCompletion {
        let head = Head::new(self.id, "chat.completion", self.model, self.created);
        ChatCompletion::new(head, &self.style, choices, finished, usage)
    }
}
