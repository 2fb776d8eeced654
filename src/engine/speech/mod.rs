//! Models that write down what they hear: their prompts, and sounds in pieces that they take.

mod instructed;
mod languages;
mod pieces;
mod qwen3_asr;

use std::sync::Arc;

pub use self::pieces::{LiveSound, SoundPiece, SoundPieces, TooLong};
use crate::api::{Modality, TextCodec, TokenId};
use instructed::Instructed;
use languages::{FURTHER, GRANITE, GRANITE_PLUS, SUPPORTED, VOXTRAL};
use qwen3_asr::TagReader;

/// The classes of models that write down what they hear.
const WHISPER: &str = "WhisperForConditionalGeneration";
const VOXTRAL_CLASS: &str = "VoxtralForConditionalGeneration";
const GLM_ASR: &str = "GlmAsrForConditionalGeneration";
const GRANITE_SPEECH: &str = "GraniteSpeechForConditionalGeneration";
const GRANITE_SPEECH_PLUS: &str = "GraniteSpeechPlusForConditionalGeneration";
const QWEN3_ASR: &str = "Qwen3ASRForConditionalGeneration";
const QWEN3_OMNI: &str = "Qwen3OmniMoeForConditionalGeneration";

/// The token of a sound of GLM-ASR. As in vLLM, the prompt has no marks around it.
const GLM_ASR_SOUND: &str = "<|pad|>";

/// The languages whose words have no spaces between them.
const WITHOUT_SPACES: [&str; 2] = ["ja", "zh"];

/// The longest sound that Whisper takes at once, in seconds, if its files do not say.
const SECONDS_DEFAULT: u32 = 30;

/// The longest part of a live sound for a model that takes more at once, in seconds. So its text
/// does not wait for the end of a long sound.
const SECONDS_LIVE: u32 = 30;

/// The task of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpeechTask {
    /// The words in their own language.
    Transcribe,
    /// The words in English.
    Translate,
}

/// The order of a prompt.
#[derive(Debug, Clone, Copy)]
pub struct SpeechOrder<'a> {
    /// The task of the model.
    pub task: SpeechTask,
    /// The language of the sound.
    pub language: Option<&'a str>,
    /// The language of a translation.
    pub to_language: Option<&'a str>,
    /// Text that comes before the sound's.
    pub before: &'a str,
    /// Whether the text has times.
    pub has_timestamps: bool,
}

/// Finds the text in an output that arrives in parts.
#[derive(Debug, Clone)]
pub struct Transcript {
    /// `None`: all of it is text.
    tag: Option<TagReader>,
}

impl Transcript {
    /// Takes the next part of an output. Returns the text that a client reads next.
    pub fn push(&mut self, delta: &str, is_last: bool) -> String {
        match &mut self.tag {
            Some(tag) => tag.push(delta, is_last),
            None => delta.to_owned(),
        }
    }
}

/// A model that writes down what it hears.
#[derive(Clone)]
pub struct Speech {
    codec: Arc<dyn TextCodec>,
    form: Form,
    /// The longest sound that the model takes at once.
    seconds_of_a_piece: u32,
}

/// The form of a model's prompts.
#[derive(Clone)]
enum Form {
    /// HF `WhisperForConditionalGeneration`: the prompt is that of the decoder.
    Whisper {
        /// The token at the beginning of a sound.
        first_timestamp: TokenId,
        is_multilingual: bool,
    },
    /// HF `VoxtralForConditionalGeneration`: the sound is in the prompt. The form is that of
    /// mistral-common's `encode_transcription`.
    Voxtral {
        /// The text in the place of a sound.
        sound: String,
    },
    /// HF `GlmAsrForConditionalGeneration`: the sound and an instruction are in a chat.
    GlmAsr(Instructed),
    /// HF `GraniteSpeechForConditionalGeneration`: the sound and an instruction are in a chat.
    Granite {
        chat: Instructed,
        /// The languages that the model was trained for.
        languages: &'static [&'static str],
    },
    /// HF `Qwen3ASRForConditionalGeneration`: the sound is in a turn. The output names the language
    /// before its text.
    Qwen3Asr {
        /// The text in the place of a sound.
        sound: String,
    },
    /// HF `Qwen3OmniMoeForConditionalGeneration`: the sound and an instruction are in a chat.
    Qwen3Omni(Instructed),
}

/// A language is not among those that the model knows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Unsupported language: '{language}'.  Must be one of [{}].", quoted(.known))]
pub struct UnsupportedLanguage {
    /// The language.
    pub language: String,
    /// The languages that the model knows well.
    pub known: &'static [&'static str],
}

/// Returns the names of languages.
fn quoted(languages: &[&str]) -> String {
    let quoted: Vec<String> = languages.iter().map(|code| format!("'{code}'")).collect();
    quoted.join(", ")
}

impl Speech {
    /// Returns the model of this architecture with this tokenizer, if it is one for speech.
    #[must_use]
    pub fn of(architecture: &str, codec: &Arc<dyn TextCodec>) -> Option<Self> {
        let form = match architecture {
            WHISPER => Form::Whisper {
                first_timestamp: token(codec, "<|0.00|>")?,
                is_multilingual: token(codec, "<|transcribe|>").is_some(),
            },
            VOXTRAL_CLASS => {
                // Without them, the model answers in chats alone.
                for marker in ["<s>", "[INST]", "[/INST]", "[TRANSCRIBE]"] {
                    token(codec, marker)?;
                }
                let media = codec.media().filter(|media| media.limit(Modality::Audio) > 0)?;
                Form::Voxtral { sound: media.placeholder(Modality::Audio, 0)? }
            }
            GLM_ASR => {
                codec.media().filter(|media| media.limit(Modality::Audio) > 0)?;
                Form::GlmAsr(Instructed::of(codec, GLM_ASR_SOUND)?)
            }
            GRANITE_SPEECH | GRANITE_SPEECH_PLUS => {
                let media = codec.media().filter(|media| media.limit(Modality::Audio) > 0)?;
                let chat = Instructed::of(codec, &media.placeholder(Modality::Audio, 0)?)?;
                let is_plus = architecture == GRANITE_SPEECH_PLUS;
                let languages: &'static [&'static str] =
                    if is_plus { &GRANITE_PLUS } else { &GRANITE };
                Form::Granite { chat, languages }
            }
            QWEN3_ASR => {
                for marker in qwen3_asr::MARKERS {
                    token(codec, marker)?;
                }
                let media = codec.media().filter(|media| media.limit(Modality::Audio) > 0)?;
                Form::Qwen3Asr { sound: media.placeholder(Modality::Audio, 0)? }
            }
            QWEN3_OMNI => {
                let media = codec.media().filter(|media| media.limit(Modality::Audio) > 0)?;
                Form::Qwen3Omni(Instructed::of(codec, &media.placeholder(Modality::Audio, 0)?)?)
            }
            _ => return None,
        };
        let seconds_of_a_piece =
            codec.media().and_then(|media| media.sound_seconds()).unwrap_or(SECONDS_DEFAULT);
        Some(Self { codec: Arc::clone(codec), form, seconds_of_a_piece })
    }

    /// Returns whether the model answers in chats, too.
    #[must_use]
    pub fn does_chat(&self) -> bool {
        !matches!(self.form, Form::Whisper { .. })
    }

    /// Returns whether the model has a task.
    #[must_use]
    pub fn has_task(&self, task: SpeechTask) -> bool {
        match self.form {
            Form::Voxtral { .. } => task == SpeechTask::Transcribe,
            _ => true,
        }
    }

    /// Returns whether the model can say when it heard a word.
    #[must_use]
    pub fn has_timestamps(&self) -> bool {
        self.first_timestamp().is_some()
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

    /// Returns the longest part of a sound that arrives while it is spoken, in seconds.
    #[must_use]
    pub fn seconds_of_a_live_piece(&self) -> u32 {
        match self.form {
            Form::Whisper { .. } => self.seconds_of_a_piece,
            _ => self.seconds_of_a_piece.min(SECONDS_LIVE),
        }
    }

    /// Returns the number of times at which the model hears a sound of so many seconds, beside the
    /// tokens of its prompt.
    #[must_use]
    pub fn num_audio_tokens(&self, seconds: f64) -> usize {
        const TIMES_A_SECOND: f64 = 100.0;
        match self.form {
            Form::Whisper { .. } => (seconds * TIMES_A_SECOND).ceil() as usize,
            _ => 0,
        }
    }

    /// Returns the language that a client asks for.
    ///
    /// # Errors
    /// If the model has no such language.
    pub fn language(&self, code: &str) -> Result<&'static str, UnsupportedLanguage> {
        let known: &'static [&'static str] = match self.form {
            Form::Voxtral { .. } => &VOXTRAL,
            Form::Granite { languages, .. } => languages,
            _ => &SUPPORTED,
        };
        let has = |code: &&str| match self.form {
            Form::Whisper { is_multilingual, .. } => {
                !is_multilingual || self.token_of(code).is_some()
            }
            _ => true,
        };
        let mut all = known.iter().chain(&SUPPORTED).chain(&FURTHER).copied();
        let found = all.find(|known| *known == code).filter(has);
        found.ok_or_else(|| UnsupportedLanguage { language: code.to_owned(), known })
    }

    /// Returns the tokens of the languages that a sound may be in, one of which its prompt needs.
    /// A model that needs none has none.
    #[must_use]
    pub fn languages(&self) -> Vec<(&'static str, TokenId)> {
        match self.form {
            Form::Whisper { is_multilingual: true, .. } => {
                SUPPORTED.iter().filter_map(|code| Some((*code, self.token_of(code)?))).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns the language of a sound whose client names none, if the model need not find it.
    #[must_use]
    pub fn language_default(&self) -> Option<&'static str> {
        match self.form {
            Form::Whisper { .. } => Some("en"),
            // It hears it itself.
            _ => None,
        }
    }

    fn token_of(&self, language: &str) -> Option<TokenId> {
        token(&self.codec, &format!("<|{language}|>"))
    }

    /// Returns the prompt whose first token is the language of a sound.
    #[must_use]
    pub fn language_prompt(&self) -> &'static str {
        "<|startoftranscript|>"
    }

    /// Returns the prompt of a task. Those of Voxtral, GLM-ASR and Granite Speech have no place for
    /// a text before the sound's.
    #[must_use]
    pub fn prompt(&self, order: &SpeechOrder<'_>) -> String {
        let SpeechOrder { task, language, before, has_timestamps, .. } = *order;
        let is_multilingual = match &self.form {
            Form::Whisper { is_multilingual, .. } => *is_multilingual,
            Form::Voxtral { sound } => {
                let language = language.map(|code| format!("lang:{code}")).unwrap_or_default();
                return format!("<s>[INST]{sound}[/INST]{language}[TRANSCRIBE]");
            }
            Form::GlmAsr(chat) => return chat.prompt(&instructed::of_glm_asr(order)),
            Form::Granite { chat, languages } => {
                return chat.prompt(&instructed::of_granite(order, languages));
            }
            Form::Qwen3Asr { sound } => return qwen3_asr::prompt(order, sound),
            Form::Qwen3Omni(chat) => return chat.prompt(&instructed::of_qwen3_omni(order)),
        };
        let before = match before {
            "" => String::new(),
            // vLLM's form. Its mark is text and no token, unlike Whisper's own `<|startofprev|>`.
            before => format!("<|startoftranscript|><|prev|>{before}"),
        };
        let language = language.unwrap_or("en");
        let task = match (is_multilingual, task) {
            (false, _) => String::new(),
            (true, SpeechTask::Transcribe) => format!("<|{language}|><|transcribe|>"),
            (true, SpeechTask::Translate) => format!("<|{language}|><|translate|>"),
        };
        let times = if has_timestamps { "<|0.00|>" } else { "<|notimestamps|>" };
        format!("{before}<|startoftranscript|>{task}{times}")
    }

    /// Returns the text in a whole output.
    #[must_use]
    pub fn text<'o>(&self, output: &'o str) -> &'o str {
        match self.form {
            Form::Qwen3Asr { .. } => qwen3_asr::text(output),
            _ => output,
        }
    }

    /// Returns a reader of the text in an output that arrives in parts.
    #[must_use]
    pub fn transcript(&self) -> Transcript {
        let has_tag = matches!(self.form, Form::Qwen3Asr { .. });
        Transcript { tag: has_tag.then(TagReader::default) }
    }

    /// Returns the text between the pieces of a sound.
    #[must_use]
    pub fn joint(&self, language: Option<&str>) -> &'static str {
        if language.is_some_and(|code| WITHOUT_SPACES.contains(&code)) { "" } else { " " }
    }

    /// Returns the token at the beginning of a sound, if the model has tokens for times.
    #[must_use]
    pub fn first_timestamp(&self) -> Option<TokenId> {
        match self.form {
            Form::Whisper { first_timestamp, .. } => Some(first_timestamp),
            _ => None,
        }
    }

    /// Returns the time that a token stands for, in units of [`Speech::SECONDS_OF_A_STEP`].
    #[must_use]
    pub fn timestamp(&self, token: TokenId) -> Option<u32> {
        token.checked_sub(self.first_timestamp()?)
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
