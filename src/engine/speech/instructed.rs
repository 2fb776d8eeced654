//! The prompts of GLM-ASR, Granite Speech and Qwen3-Omni: a chat with a sound and an instruction.
//! The instructions are those of vLLM's `GlmAsrForConditionalGeneration`,
//! `GraniteSpeechForConditionalGeneration` and `Qwen3OmniMoeThinkerForConditionalGeneration`.

use std::sync::Arc;

use serde_json::json;

use super::{SpeechOrder, SpeechTask, languages::name};
use crate::api::{ChatPrompt, TextCodec};

/// The text in the place of the instruction of a chat that is rendered.
const PLACE: &str = "Transcribe this audio.";

/// A chat with a sound and an instruction.
#[derive(Clone)]
pub(super) struct Instructed {
    codec: Arc<dyn TextCodec>,
    /// The text in the place of the sound.
    sound: String,
    /// The text around the instruction at the start.
    first: [String; 2],
}

impl Instructed {
    /// Returns the chat of the model's template, if it has one. `sound` is the text in the place of
    /// the sound.
    pub(super) fn of(codec: &Arc<dyn TextCodec>, sound: &str) -> Option<Self> {
        let first = around(codec, sound)?;
        Some(Self { codec: Arc::clone(codec), sound: sound.to_owned(), first })
    }

    /// Returns the prompt with an instruction. It is rendered anew, because a template may write
    /// the date.
    pub(super) fn prompt(&self, instruction: &str) -> String {
        let now = around(&self.codec, &self.sound);
        if now.is_none() {
            tracing::warn!("the chat template fails now: the prompt has its text of the start");
        }
        let [before, after] = now.as_ref().unwrap_or(&self.first);
        format!("{before}{instruction}{after}")
    }
}

/// Returns the text around the instruction.
fn around(codec: &Arc<dyn TextCodec>, sound: &str) -> Option<[String; 2]> {
    let message = json!({ "role": "user", "content": format!("{sound}{PLACE}") });
    let messages = vec![message];
    let chat = ChatPrompt { messages, add_generation_prompt: true, ..ChatPrompt::default() };
    let rendered = codec.render_chat(&chat).ok()?;
    let (before, after) = rendered.split_once(PLACE)?;
    Some([before.to_owned(), after.to_owned()])
}

/// Returns the instruction to GLM-ASR.
pub(super) fn of_glm_asr(order: &SpeechOrder<'_>) -> String {
    to_write(order, name)
}

/// Returns the instruction to Granite Speech. A language that is none of `languages` has no name.
pub(super) fn of_granite(order: &SpeechOrder<'_>, languages: &[&str]) -> String {
    to_write(order, |code| name(code).filter(|_| languages.contains(&code)))
}

/// Returns the instruction to write down a sound, or to translate it to a language with this name.
fn to_write(order: &SpeechOrder<'_>, name: impl Fn(&str) -> Option<&'static str>) -> String {
    match order.task {
        SpeechTask::Transcribe => "can you transcribe the speech into a written format?".to_owned(),
        SpeechTask::Translate => {
            let code = order.to_language.unwrap_or_default();
            format!("translate the speech to {}", name(code).unwrap_or(code))
        }
    }
}

/// Returns the instruction to Qwen3-Omni, with the client's text behind it.
pub(super) fn of_qwen3_omni(order: &SpeechOrder<'_>) -> String {
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
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::{
        api::{DecodeOptions, IncrementalDecoder, TextError},
        turn::test_codec::ByteCodec,
    };

    /// A tokenizer whose template writes how often it was rendered before.
    #[derive(Default)]
    struct Counting(AtomicUsize);

    impl TextCodec for Counting {
        fn vocab_size(&self) -> usize {
            ByteCodec.vocab_size()
        }

        fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<u32>, TextError> {
            ByteCodec.encode(text, add_special_tokens)
        }

        fn decode(&self, tokens: &[u32], skip_special_tokens: bool) -> Result<String, TextError> {
            ByteCodec.decode(tokens, skip_special_tokens)
        }

        fn token_text(&self, token: u32) -> String {
            ByteCodec.token_text(token)
        }

        fn token_bytes(&self, token: u32) -> Vec<u8> {
            ByteCodec.token_bytes(token)
        }

        fn token_piece(&self, token: u32) -> Option<String> {
            ByteCodec.token_piece(token)
        }

        fn eos_token(&self) -> Option<(String, u32)> {
            None
        }

        fn bos_token(&self) -> Option<(String, u32)> {
            None
        }

        fn is_special(&self, token: u32) -> bool {
            ByteCodec.is_special(token)
        }

        fn render_chat(&self, chat: &ChatPrompt) -> Result<String, TextError> {
            let count = self.0.fetch_add(1, Ordering::Relaxed);
            let content = chat.messages[0]["content"].as_str().unwrap_or_default();
            Ok(format!("{count}: {content}!"))
        }

        fn decoder(&self, prompt: &[u32], options: DecodeOptions) -> Box<dyn IncrementalDecoder> {
            ByteCodec.decoder(prompt, options)
        }
    }

    #[test]
    fn each_prompt_is_rendered_anew() {
        let codec: Arc<dyn TextCodec> = Arc::new(Counting::default());
        let chat = Instructed::of(&codec, "<sound>").unwrap();
        assert_eq!(chat.prompt("Write."), "1: <sound>Write.!");
        assert_eq!(chat.prompt("Write."), "2: <sound>Write.!");
        let without_template: Arc<dyn TextCodec> = Arc::new(ByteCodec);
        assert!(Instructed::of(&without_template, "").is_none());
    }

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
            assert_eq!(of_qwen3_omni(&order), expected);
        }
        let expected = "can you transcribe the speech into a written format?";
        assert_eq!(of_glm_asr(&transcribe), expected);
        for (to_language, expected) in [
            (Some("fr"), "translate the speech to French"),
            (Some("yue"), "translate the speech to yue"),
            (None, "translate the speech to "),
        ] {
            assert_eq!(of_glm_asr(&SpeechOrder { to_language, ..translate }), expected);
        }
        let languages = ["en", "fr"];
        assert_eq!(of_granite(&transcribe, &languages), of_glm_asr(&transcribe));
        for (to_language, expected) in
            [("fr", "translate the speech to French"), ("de", "translate the speech to de")]
        {
            let order = SpeechOrder { to_language: Some(to_language), ..translate };
            assert_eq!(of_granite(&order, &languages), expected);
        }
    }
}
