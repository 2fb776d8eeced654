//! The messages so far, and the request for the next answer.

use std::{path::Path, sync::Arc, time::Instant};

use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::{
    answer::{Answer, Cost},
    display::{Display, QUIET},
    remote::Remote,
    transcript,
};
use crate::api::{ChatPrompt, ChoiceStream, FinishReason, OutputDelta, Prompt, RawRequest};
use crate::{
    cli::{CliError, flags::SamplingFlags, interrupt::Interrupts},
    engine::Engine,
    parsers::{
        ReasoningEvent, ReasoningParser, ReasoningParserFactory, ReasoningStart,
        guess_reasoning_parser,
    },
};

/// A conversation with one model.
pub(super) struct Conversation {
    model: Model,
    sampling: SamplingFlags,
    system: Option<String>,
    /// Whether the model thinks. `None` leaves it to the model's template.
    thinking: Option<bool>,
    /// Questions and answers.
    turns: Vec<Value>,
    /// The question that failed, if it was the last one.
    failed: Option<String>,
    last: Option<Cost>,
}

/// Where the model runs.
pub(super) enum Model {
    /// In this process.
    Here(Box<Local>),
    /// Behind a server.
    There(Box<Remote>),
}

/// The engine of this process.
pub(super) struct Local {
    engine: Engine,
    /// The markers of the model's thoughts, if its chat template shows them.
    thoughts: Option<ReasoningParserFactory>,
}

impl Model {
    /// Returns the model of `engine`.
    pub(super) fn of_engine(engine: Engine) -> Self {
        let templates = &engine.loaded().chat_templates;
        let parser = templates.iter().find_map(|template| guess_reasoning_parser(template));
        let thoughts = parser.and_then(|name| engine.parsers().reasoning_parser(name).ok());
        Self::Here(Box::new(Local { engine, thoughts }))
    }

    /// Returns the model's name.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Here(local) => {
                local.engine.served_model_names().first().map_or("the model", String::as_str)
            }
            Self::There(remote) => remote.model(),
        }
    }

    /// Returns the most tokens of a conversation, if that is known.
    fn max_model_len(&self) -> Option<usize> {
        match self {
            Self::Here(local) => Some(local.engine.model_info().max_model_len),
            Self::There(remote) => remote.max_model_len(),
        }
    }
}

impl Conversation {
    pub(super) fn new(
        model: Model,
        sampling: SamplingFlags,
        system: Option<String>,
        thinking: Option<bool>,
    ) -> Self {
        let (turns, failed, last) = (Vec::new(), None, None);
        Self { model, sampling, system, thinking, turns, failed, last }
    }

    /// Returns the name of the model.
    pub(super) fn model_name(&self) -> &str {
        self.model.name()
    }

    /// Changes whether the model thinks.
    pub(super) fn set_thinking(&mut self, thinking: Option<bool>) {
        self.thinking = thinking;
    }

    /// Returns the system prompt.
    pub(super) fn system(&self) -> Option<&str> {
        self.system.as_deref()
    }

    /// Changes the system prompt.
    pub(super) fn set_system(&mut self, text: String) {
        self.system = Some(text);
    }

    /// Returns the sampling parameters of answers.
    pub(super) fn sampling(&mut self) -> &mut SamplingFlags {
        &mut self.sampling
    }

    /// Forgets all questions and answers.
    pub(super) fn clear(&mut self) {
        self.turns.clear();
        self.failed = None;
    }

    /// Removes the last question with its answer, if it has one. Returns the question.
    pub(super) fn take_back(&mut self) -> Option<String> {
        if let Some(question) = self.failed.take() {
            return Some(question);
        }
        let question = self.turns.iter().rposition(|turn| turn["role"] == "user")?;
        let text = self.turns[question]["content"].as_str()?.to_owned();
        self.turns.truncate(question);
        Some(text)
    }

    /// Writes the conversation to a new file.
    pub(super) fn save(&self, path: &Path) -> Result<(), CliError> {
        transcript::save(path, &self.messages())
    }

    /// Replaces the conversation with that of a file.
    pub(super) fn load(&mut self, path: &Path) -> Result<(), CliError> {
        (self.system, self.turns) = transcript::load(path)?;
        self.failed = None;
        Ok(())
    }

    /// Returns the cost of the last answer, and the fill of the context.
    pub(super) fn stats(&self) -> String {
        let Some(cost) = self.last else { return "no question was answered yet".to_owned() };
        let used = cost.prompt_tokens + cost.output_tokens;
        let most = self.model.max_model_len();
        let most = most.map_or(String::new(), |most| format!(" of {most}"));
        let questions = self.turns.iter().filter(|turn| turn["role"] == "user").count();
        format!("{cost}\ncontext    {used}{most} tokens, questions so far: {questions}")
    }

    /// Sends a question, shows the answer as it arrives, and remembers both. An answer that Ctrl-C
    /// stopped is remembered as far as it arrived. A question that fails is no part of the
    /// conversation, but can be taken back.
    pub(super) async fn ask(
        &mut self,
        question: &str,
        display: &mut Display,
    ) -> Result<Answer, CliError> {
        self.failed = None;
        self.turns.push(json!({ "role": "user", "content": question }));
        let outcome = self.answer(display).await;
        let shown = display.end();
        match outcome {
            Ok(answer) => {
                self.turns.push(answer.message());
                self.last = Some(answer.cost);
                shown.map(|()| answer)
            }
            Err(error) => {
                self.turns.pop();
                self.failed = Some(question.to_owned());
                shown.and_then(|()| display.end_line())?;
                Err(error)
            }
        }
    }

    async fn answer(&self, display: &mut Display) -> Result<Answer, CliError> {
        match &self.model {
            Model::Here(local) => self.answer_here(local, display).await,
            Model::There(remote) => {
                let fields = self.sampling.fields();
                remote.ask(self.messages(), fields, template_kwargs(self.thinking), display).await
            }
        }
    }

    async fn answer_here(
        &self,
        Local { engine, thoughts }: &Local,
        display: &mut Display,
    ) -> Result<Answer, CliError> {
        let chat = ChatPrompt {
            messages: self.messages(),
            add_generation_prompt: true,
            chat_template_kwargs: template_kwargs(self.thinking),
            ..ChatPrompt::default()
        };
        let mut thoughts = thoughts.as_ref().map(|factory| {
            let prompt = engine.codec().render_chat(&chat).ok();
            factory(&ReasoningStart { prompt: prompt.as_deref(), thinking: self.thinking })
        });
        let mut request = RawRequest::new(Prompt::Chat(Arc::new(chat)));
        self.sampling.apply(engine.default_sampling(), &mut request);
        if thoughts.as_ref().is_some_and(|parser| parser.needs_special_tokens()) {
            request.params.skip_special_tokens = false;
        }
        let (mut interrupts, asked) = (Interrupts::new()?, Instant::now());
        let submission = engine.submit(request).await?;
        let mut answer = Answer::default();
        answer.cost.prompt_tokens = submission.num_input_tokens();
        // Returning drops the streams, which aborts requests in progress.
        for mut choice in submission.choices {
            while let Some(delta) = next(&mut choice, &mut interrupts, display).await {
                display.came();
                answer.cost.count(&delta, asked);
                show(&delta, &mut answer, &mut thoughts, display)?;
                match delta.finish {
                    Some(FinishReason::Error(failure)) => {
                        return Err(CliError::Ended(failure.to_string()));
                    }
                    finish => answer.finish = finish,
                }
            }
        }
        Ok(answer)
    }

    fn messages(&self) -> Vec<Value> {
        let system = self.system.iter().map(|text| json!({ "role": "system", "content": text }));
        system.chain(self.turns.iter().cloned()).collect()
    }
}

/// Returns the chat template's variables for thoughts, under the names that templates know.
fn template_kwargs(thinking: Option<bool>) -> Map<String, Value> {
    let names = thinking.map(|is_on| ["enable_thinking", "thinking"].map(|name| (name, is_on)));
    names.into_iter().flatten().map(|(name, is_on)| (name.to_owned(), is_on.into())).collect()
}

/// Returns the next piece of the answer. `None` at the end and after Ctrl-C.
async fn next(
    choice: &mut ChoiceStream,
    interrupts: &mut Interrupts,
    display: &mut Display,
) -> Option<OutputDelta> {
    let mut delta = std::pin::pin!(choice.next());
    loop {
        tokio::select! {
            delta = timeout(QUIET, &mut delta) => match delta {
                Ok(delta) => return delta,
                Err(_) => display.wait(),
            },
            () = interrupts.next() => return None,
        }
    }
}

/// Adds a piece to `answer`, and shows it.
fn show(
    delta: &OutputDelta,
    answer: &mut Answer,
    thoughts: &mut Option<Box<dyn ReasoningParser>>,
    display: &mut Display,
) -> Result<(), CliError> {
    let Some(parser) = thoughts else {
        answer.content.push_str(&delta.text);
        return display.content(&delta.text);
    };
    let mut parts = parser.push(&delta.text);
    if delta.finish.is_some() {
        parts.extend(parser.finish());
    }
    for part in parts {
        match part {
            ReasoningEvent::Reasoning(text) => {
                answer.reasoning.push_str(&text);
                display.thought(&text)?;
            }
            ReasoningEvent::Content(text) => {
                // The separator between thoughts and answer is not part of the answer.
                let text = match answer.content.is_empty() {
                    true => text.trim_start(),
                    false => &text,
                };
                answer.content.push_str(text);
                display.content(text)?;
            }
        }
    }
    Ok(())
}

impl Cost {
    fn count(&mut self, delta: &OutputDelta, asked: Instant) {
        let elapsed = asked.elapsed();
        if self.output_tokens == 0 {
            self.first_token = elapsed;
        }
        self.total = elapsed;
        self.output_tokens += delta.tokens.len();
        self.cached_tokens = delta.num_cached_tokens.unwrap_or(self.cached_tokens);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::chat::remote::tests::{PIECE, served};

    #[tokio::test]
    async fn a_question_that_failed_can_be_asked_again() {
        let whole = || format!("{PIECE}data: [DONE]\n\n");
        let (remote, server) = served(vec![whole(), PIECE.to_owned(), whole()]).await;
        let model = Model::There(Box::new(remote));
        let mut conversation = Conversation::new(model, SamplingFlags::default(), None, None);
        let mut display = Display::silent();
        conversation.ask("One?", &mut display).await.unwrap();
        conversation.ask("Two?", &mut display).await.unwrap_err();
        assert_eq!(conversation.turns.len(), 2, "the first question and its answer");
        assert_eq!(conversation.take_back().as_deref(), Some("Two?"));
        conversation.ask("Two?", &mut display).await.unwrap();
        assert_eq!(conversation.turns.len(), 4);
        assert_eq!(conversation.take_back().as_deref(), Some("Two?"));
        assert_eq!(conversation.take_back().as_deref(), Some("One?"));
        assert_eq!(conversation.take_back(), None);
        drop(conversation);
        server.await.unwrap();
    }
}
