//! The prompts of Qwen3-ASR, and the texts in what it writes: `language German<asr_text>Guten Tag`.
//! The forms are those of vLLM's `Qwen3ASRForConditionalGeneration`.

use super::{SpeechOrder, SpeechTask, languages::name};

/// The mark between the language of a sound and its text.
const TAG: &str = "<asr_text>";

/// The text before the name of a language.
const LANGUAGE: &str = "language ";

/// Characters of an output that may wait for the mark.
const WAITING_MAX: usize = 50;

/// The tokens of a turn, without which a tokenizer is not that of the model.
pub(super) const MARKERS: [&str; 2] = ["<|im_start|>", "<|im_end|>"];

/// Returns the prompt of an order. `sound` is the text in the place of the sound.
pub(super) fn prompt(order: &SpeechOrder<'_>, sound: &str) -> String {
    let before = match without_markers(order.before) {
        before if before.is_empty() => before,
        before => format!("<|im_start|>system\n{before}<|im_end|>\n"),
    };
    let language = match order.task {
        SpeechTask::Transcribe => order.language,
        SpeechTask::Translate => order.to_language,
    };
    // vLLM leaves the code of a language without a name.
    let named = |code: &str| format!("{LANGUAGE}{}{TAG}", name(code).unwrap_or(code));
    let language = language.map(named);
    let language = language.unwrap_or_default();
    format!("{before}<|im_start|>user\n{sound}<|im_end|>\n<|im_start|>assistant\n{language}")
}

/// Returns a client's text without marks of turns (`<|…|>`) and of texts. Removals make no new
/// mark: each end of a mark is looked up in the text that is kept.
fn without_markers(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    for character in text.chars() {
        kept.push(character);
        if character != '>' {
            continue;
        }
        let start = kept.strip_suffix("|>").and_then(|before| {
            let bar = before.rfind('|')?;
            let is_mark = before[..bar].ends_with('<') && bar + 1 < before.len();
            is_mark.then(|| bar - 1)
        });
        let tag = || kept.strip_suffix(TAG).map(str::len);
        if let Some(start) = start.or_else(tag) {
            kept.truncate(start);
        }
    }
    kept
}

/// Returns the text in a whole output.
pub(super) fn text(output: &str) -> &str {
    output.rsplit_once(TAG).map_or(output, |(_, text)| text)
}

/// Finds the text in an output that arrives in parts.
#[derive(Debug, Clone)]
pub(super) enum TagReader {
    /// The output so far may be a language before the mark.
    Waiting(String),
    /// It has no mark: all of it is text.
    Plain,
    /// The mark has come.
    Text {
        /// The last characters, in which another mark may begin.
        tail: String,
        /// Characters of text since the mark.
        num_chars: usize,
    },
}

impl Default for TagReader {
    fn default() -> Self {
        Self::Waiting(String::new())
    }
}

impl TagReader {
    /// Takes the next part of an output. Returns the text that a client reads next.
    pub(super) fn push(&mut self, delta: &str, is_last: bool) -> String {
        match self {
            Self::Plain => delta.to_owned(),
            Self::Waiting(waiting) => {
                waiting.push_str(delta);
                // Parts may be joined on their way, so the text before the mark decides.
                let before = waiting.split_once(TAG).map(|(before, _)| before);
                let is_complete = before.is_some() || is_last;
                let has_language = may_be_language(before.unwrap_or(waiting.as_str()));
                if has_language && !is_complete {
                    return String::new();
                }
                if !has_language || before.is_none() {
                    let text = std::mem::take(waiting);
                    *self = Self::Plain;
                    return text;
                }
                let text = text(waiting).to_owned();
                *self =
                    Self::Text { tail: tail(&text).to_owned(), num_chars: text.chars().count() };
                text
            }
            Self::Text { tail: before, num_chars } => {
                before.push_str(delta);
                let new = match before.rsplit_once(TAG) {
                    None => {
                        *num_chars += delta.chars().count();
                        delta.to_owned()
                    }
                    // As in vLLM, as many characters behind another mark count as sent.
                    Some((_, text)) => {
                        let new: String = text.chars().skip(*num_chars).collect();
                        *num_chars = text.chars().count();
                        new
                    }
                };
                *before = tail(before).to_owned();
                new
            }
        }
    }
}

/// Returns whether an output without a mark may be the beginning of a language.
fn may_be_language(output: &str) -> bool {
    let output = output.trim_start();
    let is_short = || output.chars().count() < WAITING_MAX && !output.contains('\n');
    LANGUAGE.starts_with(output) || output.starts_with(LANGUAGE) && is_short()
}

/// Returns the last characters of a text, in which a mark may begin.
fn tail(text: &str) -> &str {
    let most = TAG.len() - 1;
    let start = (text.len().saturating_sub(most)..text.len()).find(|at| text.is_char_boundary(*at));
    start.and_then(|start| text.get(start..)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order<'a>(task: SpeechTask, language: Option<&'a str>, before: &'a str) -> SpeechOrder<'a> {
        SpeechOrder { task, language, to_language: Some("fr"), before, has_timestamps: false }
    }

    #[test]
    fn prompts_are_those_of_vllm() {
        let turn = "<|im_start|>user\n[]<|im_end|>\n<|im_start|>assistant\n";
        let of = |task, language, before| prompt(&order(task, language, before), "[]");
        assert_eq!(of(SpeechTask::Transcribe, None, ""), turn);
        let german = of(SpeechTask::Transcribe, Some("de"), "");
        assert_eq!(german, format!("{turn}language German<asr_text>"));
        // Languages that vLLM has no name of.
        let other = of(SpeechTask::Transcribe, Some("yue"), "");
        assert_eq!(other, format!("{turn}language yue<asr_text>"));
        let french = of(SpeechTask::Translate, Some("de"), "");
        assert_eq!(french, format!("{turn}language French<asr_text>"));
        let names = of(SpeechTask::Transcribe, None, "Ann, <|im_end|>Bo");
        assert_eq!(names, format!("<|im_start|>system\nAnn, Bo<|im_end|>\n{turn}"));
        assert_eq!(of(SpeechTask::Transcribe, None, "<asr_text>"), turn);
    }

    #[test]
    fn removals_make_no_marks() {
        for (text, kept) in [
            ("a < b | c > d", "a < b | c > d"),
            ("<|im_start|>system", "system"),
            ("<|im<|x|>_end|>end", "end"),
            ("<asr_te<asr_text>xt>text", "text"),
            ("<|im_<asr_text>end|>", ""),
            ("<||>", "<||>"),
            ("<|a|b|>", "<|a|b|>"),
            ("|>", "|>"),
            ("ü<|ü|>", "ü"),
        ] {
            assert_eq!(without_markers(text), kept, "{text}");
        }
    }

    /// Returns what a client reads of parts of an output.
    fn read(parts: &[&str]) -> Vec<String> {
        let mut reader = TagReader::default();
        let last = parts.len() - 1;
        parts.iter().enumerate().map(|(index, part)| reader.push(part, index == last)).collect()
    }

    #[test]
    fn texts_begin_behind_the_mark() {
        assert_eq!(text("language English<asr_text>Hi"), "Hi");
        assert_eq!(text("a<asr_text>b<asr_text>c"), "c");
        assert_eq!(text("Hi"), "Hi");
        let parts = ["lang", "uage Eng", "lish<asr", "_text>Good", " day", ""];
        assert_eq!(read(&parts), ["", "", "", "Good", " day", ""]);
        assert_eq!(read(&["language None<asr_text>"]), [""]);
    }

    #[test]
    fn an_output_without_a_mark_is_all_text() {
        assert_eq!(read(&["Good", " day"]), ["Good", " day"]);
        assert_eq!(
            read(&[" ", "lang", "uid days", "<asr_text>x"]),
            ["", "", " languid days", "<asr_text>x"]
        );
        assert_eq!(read(&["language ", "lessons"]), ["", "language lessons"]);
        // As in vLLM, which reads each token by itself, wherever a part ends.
        assert_eq!(read(&["Good<asr_text>x"]), ["Good<asr_text>x"]);
        assert_eq!(read(&["Good<asr_text>x", "y"]), ["Good<asr_text>x", "y"]);
        assert_eq!(read(&["language a\n", "b"]), ["language a\n", "b"]);
        let long = format!("language {}", "x".repeat(41));
        assert_eq!(read(&[long.as_str(), "y"]), [long.clone(), "y".to_owned()]);
    }

    #[test]
    fn another_mark_starts_the_text_anew() {
        let parts = ["language x<asr_text>abc", "<asr_", "text>defghijkl", "m"];
        assert_eq!(read(&parts), ["abc", "<asr_", "l", "m"]);
    }
}
