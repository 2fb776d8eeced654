//! The prompts of Qwen3-Omni: a chat with a sound and an instruction. The instructions are those of
//! vLLM's `Qwen3OmniMoeThinkerForConditionalGeneration`.

use std::sync::Arc;

use serde_json::json;

use super::{SpeechOrder, SpeechTask, languages::name};
use crate::api::{ChatPrompt, TextCodec};

/// The instruction of the chat that is rendered at the start.
const TRANSCRIBE: &str = "Transcribe this audio.";

/// The text around the instruction of a chat.
#[derive(Debug, Clone)]
pub(super) struct Instructed {
    before: String,
    after: String,
}

impl Instructed {
    /// Returns the text of the model's chat template, if it has one. `sound` is the text in the
    /// place of the sound.
    pub(super) fn of(codec: &Arc<dyn TextCodec>, sound: &str) -> Option<Self> {
        let message = json!({ "role": "user", "content": format!("{sound}{TRANSCRIBE}") });
        let messages = vec![message];
        let chat = ChatPrompt { messages, add_generation_prompt: true, ..ChatPrompt::default() };
        let rendered = codec.render_chat(&chat).ok()?;
        let (before, after) = rendered.split_once(TRANSCRIBE)?;
        Some(Self { before: before.to_owned(), after: after.to_owned() })
    }

    /// Returns the prompt of an order.
    pub(super) fn prompt(&self, order: &SpeechOrder<'_>) -> String {
        format!("{}{}{}", self.before, instruction(order), self.after)
    }
}

/// Returns the instruction, with the client's text behind it.
fn instruction(order: &SpeechOrder<'_>) -> String {
    let SpeechOrder { task, language, to_language, before, .. } = *order;
    let part = |word: &str, code: &str| name(code).map(|name| format!(" {word} {name}"));
    let parts = match task {
        SpeechTask::Transcribe => ["Transcribe this audio".to_owned(), String::new()],
        SpeechTask::Translate => {
            let from = language.and_then(|code| part("from", code)).unwrap_or_default();
            ["Translate this audio".to_owned(), from]
        }
    };
    let into = match task {
        SpeechTask::Transcribe => language,
        SpeechTask::Translate => Some(to_language.unwrap_or("en")),
    };
    let into = into.and_then(|code| part("into", code)).unwrap_or_default();
    let text = if before.is_empty() { String::new() } else { format!(" {before}") };
    format!("{}{into}.{text}", parts.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_those_of_vllm() {
        let transcribe = SpeechOrder {
            task: SpeechTask::Transcribe,
            language: None,
            to_language: None,
            before: "",
            has_timestamps: false,
        };
        let translate = SpeechOrder { task: SpeechTask::Translate, ..transcribe };
        let german = Some("de");
        for (order, expected) in [
            (transcribe, "Transcribe this audio."),
            (SpeechOrder { language: german, ..transcribe }, "Transcribe this audio into German."),
            (SpeechOrder { language: Some("yue"), ..transcribe }, "Transcribe this audio."),
            (
                SpeechOrder { before: "Names: Ann", ..transcribe },
                "Transcribe this audio. Names: Ann",
            ),
            (translate, "Translate this audio into English."),
            (
                SpeechOrder { language: german, to_language: Some("fr"), ..translate },
                "Translate this audio from German into French.",
            ),
        ] {
            assert_eq!(instruction(&order), expected);
        }
    }
}
