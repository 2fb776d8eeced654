//! The tokens that begin and end a sequence, by the rules of llama.cpp (`llama_vocab::impl::load`).

use super::metadata::Metadata;
use crate::gguf::GgufError;

/// The keys of tokens that end a turn.
const END_KEYS: [&str; 3] = ["eos_token_id", "eot_token_id", "eom_token_id"];
/// The texts of tokens that end an output in any model that has them, whatever their type.
const END_TOKENS: [&str; 22] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
];
/// The keys of tokens between files of code, which end an output, too. In files without a key, the
/// first token with one of these texts counts.
const BETWEEN_FILES: [(&str, &[&str]); 3] = [
    ("fim_pad_token_id", &["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"]),
    ("fim_rep_token_id", &["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"]),
    ("fim_sep_token_id", &["<|file_sep|>"]),
];

impl Metadata<'_> {
    /// Sets the tokens that begin and end a sequence.
    pub(super) fn tokens(&mut self) -> Result<(), GgufError> {
        let file = self.file;
        let id = |name: &str| file.unsigned(&format!("tokenizer.ggml.{name}"));
        if let Some(bos) = id("bos_token_id")? {
            self.set("bos_token_id", "tokenizer.ggml.bos_token_id".to_owned(), bos);
        }
        let tokens = file.texts("tokenizer.ggml.tokens")?.unwrap_or_default();
        let mut found: Vec<u64> = Vec::new();
        for key in END_KEYS {
            found.extend(id(key)?);
        }
        for (key, texts) in BETWEEN_FILES {
            let by_text = tokens.iter().position(|token| texts.contains(token));
            found.extend(id(key)?.or(by_text.map(|place| place as u64)));
        }
        for (place, token) in tokens.iter().enumerate() {
            if END_TOKENS.contains(token) {
                found.push(place as u64);
            }
        }
        let mut ends: Vec<u64> = Vec::new();
        for id in found {
            if !ends.contains(&id) {
                ends.push(id);
            }
        }
        let text = |id: u64| tokens.get(id as usize).copied().unwrap_or_default();
        let has = |wanted: &str| ends.iter().any(|id| text(*id) == wanted);
        // In these vocabularies, a message of an answer ends by it, and the answer goes on.
        let has_calls = has("<|call|>") || has("<|calls|>");
        let ends_messages = has_calls && (has("<|return|>") || has("<|flush|>"));
        // In these, it is a piece of markup.
        let is_markup = has("<|tool_response>") || has("<|plamo:eos|>");
        ends.retain(|id| match text(*id) {
            "<|end|>" => !ends_messages,
            "</s>" => !is_markup,
            _ => true,
        });
        self.set("eos_token_id", "tokenizer.ggml.eos_token_id".to_owned(), ends);
        Ok(())
    }
}
