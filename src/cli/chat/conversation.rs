//! The messages so far, and how the next answer is made.

use playhouse_actors::{
    logic::request::FinishReason,
    message::input_processor::{Prompt, RawRequest},
    ports::ChatPrompt,
};
use serde_json::{Value, json};

use crate::{
    cli::{CliError, flags::SamplingFlags, output},
    engine::Engine,
};

/// How an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// The model, or a limit, ended it.
    Complete,
    /// Ctrl-C did.
    Stopped,
}

/// A conversation with one engine.
pub(super) struct Conversation {
    engine: Engine,
    sampling: SamplingFlags,
    system: Option<String>,
    /// Questions and answers.
    turns: Vec<Value>,
}

impl Conversation {
    pub(super) fn new(engine: Engine, sampling: SamplingFlags, system: Option<String>) -> Self {
        Self { engine, sampling, system, turns: Vec::new() }
    }

    /// What the model is told before the conversation.
    pub(super) fn system(&self) -> Option<&str> {
        self.system.as_deref()
    }

    /// Changes that.
    pub(super) fn set_system(&mut self, text: String) {
        self.system = Some(text);
    }

    /// Forgets all questions and answers.
    pub(super) fn clear(&mut self) {
        self.turns.clear();
    }

    /// Asks, streams the answer to standard output, and remembers both; also an answer that Ctrl-C
    /// stopped, as far as it came. A question that fails is forgotten.
    pub(super) async fn ask(&mut self, question: &str) -> Result<Answer, CliError> {
        self.turns.push(json!({ "role": "user", "content": question }));
        let mut text = String::new();
        let outcome = self.stream(&mut text).await;
        match outcome {
            Ok(_) => self.turns.push(json!({ "role": "assistant", "content": text })),
            Err(_) => drop(self.turns.pop()),
        }
        outcome
    }

    async fn stream(&self, text: &mut String) -> Result<Answer, CliError> {
        let submission = self.engine.submit(self.request()).await?;
        // Returning drops the streams, which aborts what is still being computed.
        for mut choice in submission.choices {
            loop {
                let delta = tokio::select! {
                    delta = choice.next() => delta,
                    _ = tokio::signal::ctrl_c() => return Ok(Answer::Stopped),
                };
                let Some(delta) = delta else { break };
                text.push_str(&delta.text);
                output::show(&delta.text)?;
                if let Some(FinishReason::Error(failure)) = delta.finish {
                    return Err(CliError::Ended(failure.to_string()));
                }
            }
        }
        Ok(Answer::Complete)
    }

    fn request(&self) -> RawRequest {
        let chat = ChatPrompt {
            messages: self.messages(),
            add_generation_prompt: true,
            ..ChatPrompt::default()
        };
        let mut request = RawRequest::new(Prompt::Chat(Box::new(chat)));
        self.sampling.apply(self.engine.default_sampling(), &mut request);
        request
    }

    fn messages(&self) -> Vec<Value> {
        let system = self.system.iter().map(|text| json!({ "role": "system", "content": text }));
        system.chain(self.turns.iter().cloned()).collect()
    }
}
