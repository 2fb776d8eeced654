//! Models that write down what they hear: their prompts, and sounds in pieces that they take.

mod languages;
mod pieces;

use std::sync::Arc;

pub use self::pieces::{LiveSound, SoundPiece, SoundPieces, TooLong};
use crate::api::{TextCodec, TokenId};
use languages::{FURTHER, SUPPORTED};

/// The classes of models that write down what they hear.
const ARCHITECTURES: [&str; 1] = ["WhisperForConditionalGeneration"];

/// The languages whose words have no spaces between them.
const WITHOUT_SPACES: [&str; 2] = ["ja", "zh"];

/// The longest sound that Whisper takes at once, in seconds, if its files do not say.
const SECONDS_DEFAULT: u32 = 30;

/// The task of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpeechTask {
    /// The words in their own language.
    Transcribe,
    /// The words in English.
    Translate,
}

/// A model that writes down what it hears: HF `WhisperForConditionalGeneration`.
#[derive(Clone)]
pub struct Speech {
    codec: Arc<dyn TextCodec>,
    /// The token at the beginning of a sound.
    first_timestamp: TokenId,
    is_multilingual: bool,
    /// The longest sound that the model takes at once.
    seconds_of_a_piece: u32,
}

/// A language is not among those that the model knows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Unsupported language: '{language}'.  Must be one of [{}].", quoted())]
pub struct UnsupportedLanguage {
    /// The language.
    pub language: String,
}

/// Returns the names of all supported languages.
fn quoted() -> String {
    SUPPORTED.map(|code| format!("'{code}'")).join(", ")
}

impl Speech {
    /// Returns the model of this architecture with this tokenizer, if it is one for speech.
    #[must_use]
    pub fn of(architecture: &str, codec: &Arc<dyn TextCodec>) -> Option<Self> {
        if !ARCHITECTURES.contains(&architecture) {
            return None;
        }
        let first_timestamp = token(codec, "<|0.00|>")?;
        let is_multilingual = token(codec, "<|transcribe|>").is_some();
        let seconds_of_a_piece =
            codec.media().and_then(|media| media.sound_seconds()).unwrap_or(SECONDS_DEFAULT);
        let codec = Arc::clone(codec);
        Some(Self { codec, first_timestamp, is_multilingual, seconds_of_a_piece })
    }

    /// Returns the longest sound that the model takes at once, in seconds.
    #[must_use]
    pub fn seconds_of_a_piece(&self) -> u32 {
        self.seconds_of_a_piece
    }

    /// Returns the samples a second that the model takes.
    #[must_use]
    pub fn sampling_rate(&self) -> u32 {
        16_000
    }

    /// Returns the number of times at which the model hears a sound of so many seconds.
    #[must_use]
    pub fn num_audio_tokens(&self, seconds: f64) -> usize {
        const TIMES_A_SECOND: f64 = 100.0;
        (seconds * TIMES_A_SECOND).ceil() as usize
    }

    /// Returns the language that a client asks for.
    ///
    /// # Errors
    /// If the model has no such language.
    pub fn language(&self, code: &str) -> Result<&'static str, UnsupportedLanguage> {
        let known = SUPPORTED.iter().find(|known| **known == code).copied();
        let further = || FURTHER.iter().find(|known| **known == code).copied();
        let has = |code: &&str| !self.is_multilingual || self.token_of(code).is_some();
        let found = known.or_else(further).filter(has);
        found.ok_or_else(|| UnsupportedLanguage { language: code.to_owned() })
    }

    /// Returns the tokens of the languages that a sound may be in. A model of one language has
    /// none.
    #[must_use]
    pub fn languages(&self) -> Vec<(&'static str, TokenId)> {
        let tokens = SUPPORTED.iter().filter_map(|code| Some((*code, self.token_of(code)?)));
        if self.is_multilingual { tokens.collect() } else { Vec::new() }
    }

    fn token_of(&self, language: &str) -> Option<TokenId> {
        token(&self.codec, &format!("<|{language}|>"))
    }

    /// Returns the prompt whose first token is the language of a sound.
    #[must_use]
    pub fn language_prompt(&self) -> &'static str {
        "<|startoftranscript|>"
    }

    /// Returns the prompt of a task. `before` is text that comes before the sound's.
    #[must_use]
    pub fn prompt(
        &self,
        task: SpeechTask,
        language: &str,
        before: &str,
        has_timestamps: bool,
    ) -> String {
        let before = match before {
            "" => String::new(),
            // vLLM's form. Its mark is text and no token, unlike Whisper's own `<|startofprev|>`.
            before => format!("<|startoftranscript|><|prev|>{before}"),
        };
        let task = match (self.is_multilingual, task) {
            (false, _) => String::new(),
            (true, SpeechTask::Transcribe) => format!("<|{language}|><|transcribe|>"),
            (true, SpeechTask::Translate) => format!("<|{language}|><|translate|>"),
        };
        let times = if has_timestamps { "<|0.00|>" } else { "<|notimestamps|>" };
        format!("{before}<|startoftranscript|>{task}{times}")
    }

    /// Returns the text between the pieces of a sound.
    #[must_use]
    pub fn joint(&self, language: &str) -> &'static str {
        if WITHOUT_SPACES.contains(&language) { "" } else { " " }
    }

    /// Returns the token at the beginning of a sound.
    #[must_use]
    pub fn first_timestamp(&self) -> TokenId {
        self.first_timestamp
    }

    /// Returns the time that a token stands for, in units of [`Speech::SECONDS_OF_A_STEP`].
    #[must_use]
    pub fn timestamp(&self, token: TokenId) -> Option<u32> {
        token.checked_sub(self.first_timestamp)
    }

    /// Seconds from one timestamp to the next.
    pub const SECONDS_OF_A_STEP: f64 = 0.02;
}

/// Returns the token that `text` is, if it is one.
fn token(codec: &Arc<dyn TextCodec>, text: &str) -> Option<TokenId> {
    match codec.encode(text, false).ok()?[..] {
        [token] => Some(token),
        _ => None,
    }
}
