//! The answer in one piece.

use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::protocol::Style;
use crate::api::Logprob;
use crate::server::{
    generate::{
        answer::{Head, StoppedBy},
        choices::{Choices, FinishedChoice},
        logprobs::{CompletionLogprobs, CompletionLogprobsWriter, prompt_logprobs},
        request_metrics::RequestMetrics,
        usage::Usage,
    },
    state::SYSTEM_FINGERPRINT,
};

/// The body of an answer that is not streamed.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::server) struct Completion {
    #[serde(flatten)]
    head: Head,
    choices: Vec<Choice>,
    service_tier: Option<String>,
    system_fingerprint: &'static str,
    usage: Usage,
    kv_transfer_params: Option<Value>,
    metrics: Option<RequestMetrics>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CompletionChoice)]
struct Choice {
    index: usize,
    text: String,
    logprobs: Option<CompletionLogprobs>,
    finish_reason: &'static str,
    stop_reason: Option<StoppedBy>,
    token_ids: Option<Vec<u32>>,
    prompt_logprobs: Option<Vec<Option<Map<String, Value>>>>,
    prompt_token_ids: Option<Vec<u32>>,
}

impl Completion {
    /// Returns the answer for `finished`, which are all of `choices`.
    pub(super) fn new(
        head: Head,
        style: &Style,
        choices: &Choices,
        finished: Vec<FinishedChoice>,
        usage: Usage,
    ) -> Self {
        let written = finished.into_iter().enumerate();
        Self {
            head,
            choices: written.map(|(index, done)| style.choice(index, choices, done)).collect(),
            service_tier: None,
            system_fingerprint: SYSTEM_FINGERPRINT,
            usage,
            kv_transfer_params: None,
            metrics: style.metrics.then(|| choices.metrics()),
        }
    }
}

impl Style {
    fn choice(&self, index: usize, choices: &Choices, done: FinishedChoice) -> Choice {
        let prompt = choices.prompt_of(index);
        let mut text = self.echoed(index, choices).unwrap_or_default();
        if !self.prompt_only {
            text.push_str(&done.text);
        }
        Choice {
            index,
            text,
            logprobs: self.logprobs(prompt, &done),
            finish_reason: done.finish.as_str(),
            stop_reason: StoppedBy::from(&done.finish),
            token_ids: self.token_ids.then(|| done.tokens.iter().map(|t| t.token_id).collect()),
            prompt_logprobs: self
                .prompt_logprobs
                .then(|| prompt_logprobs(&self.names, prompt, &done.prompt_logprobs)),
            prompt_token_ids: self.token_ids.then(|| prompt.to_vec()),
        }
    }

    /// Returns the prompt's text if the text is to begin with it.
    pub(super) fn echoed(&self, index: usize, choices: &Choices) -> Option<String> {
        if !self.echoes_text {
            return None;
        }
        let given = self
            .prompt_texts
            .as_ref()
            .and_then(|texts| texts.get(choices.prompt_index(index)).cloned());
        Some(given.unwrap_or_else(|| self.names.decode(choices.prompt_of(index))))
    }

    /// Returns a writer of `logprobs` if they are wanted.
    pub(super) fn logprobs_writer(&self) -> Option<CompletionLogprobsWriter> {
        let num_top = self.num_logprobs?;
        Some(CompletionLogprobsWriter::new(self.names.clone(), num_top))
    }

    fn logprobs(&self, prompt: &[u32], done: &FinishedChoice) -> Option<CompletionLogprobs> {
        let mut writer = self.logprobs_writer()?;
        self.write_prompt(&mut writer, prompt, &done.prompt_logprobs);
        if !self.prompt_only {
            done.tokens.iter().for_each(|token| writer.push(token));
        }
        Some(writer.take())
    }

    /// Writes the prompt's part of `logprobs`, which is there if the prompt is echoed.
    pub(super) fn write_prompt(
        &self,
        writer: &mut CompletionLogprobsWriter,
        prompt: &[u32],
        rows: &[Vec<Logprob>],
    ) {
        if self.echo {
            writer.push_prompt(prompt, rows);
        }
    }
}
