//! Log-probabilities in the shapes of the two APIs. A row holds first the token at the position,
//! then the most likely ones.
//!
//! Numbers are written as 64-bit floats, as vLLM writes them. A token's own number must equal that
//! among the likely tokens: clients compare them to learn whether the token is the likeliest.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::token_names::TokenNames;
use crate::api::{Logprob, SampledToken};

/// Stands for the logarithm of 0, as OpenAI writes it: JSON has no infinity.
const LOGPROB_MIN: f32 = -9999.0;

/// `choices[].logprobs` of a completion: four lists, one item a token.
#[derive(Debug, Default, PartialEq, Serialize, ToSchema)]
pub(in crate::server) struct CompletionLogprobs {
    /// Start of each token's text, characters from the start of the whole text.
    text_offset: Vec<usize>,
    token_logprobs: Vec<Option<f64>>,
    tokens: Vec<String>,
    top_logprobs: Vec<Option<Map<String, Value>>>,
}

/// Writes [`CompletionLogprobs`], in one piece or chunk by chunk.
pub(in crate::server) struct CompletionLogprobsWriter {
    names: TokenNames,
    num_top: usize,
    offset: usize,
    before: Vec<u32>,
    written: CompletionLogprobs,
}

impl CompletionLogprobsWriter {
    /// Returns a writer of the `num_top` most likely tokens for each position, beside the token
    /// there.
    pub(in crate::server) fn new(names: TokenNames, num_top: usize) -> Self {
        let written = CompletionLogprobs::default();
        Self { names, num_top, offset: 0, before: Vec::new(), written }
    }

    /// Writes an echoed prompt. Its first token has no log-probability.
    pub(in crate::server) fn push_prompt(&mut self, prompt: &[u32], rows: &[Vec<Logprob>]) {
        for (position, &token) in prompt.iter().enumerate() {
            let row = position.checked_sub(1).and_then(|row| rows.get(row));
            self.push_row(token, row.map(Vec::as_slice));
        }
        self.before.clear();
    }

    /// Writes the next token of the output.
    pub(in crate::server) fn push(&mut self, token: &SampledToken) {
        self.push_row(token.token_id, token.logprobs.as_deref());
    }

    /// Returns the rows since the last call.
    pub(in crate::server) fn take(&mut self) -> CompletionLogprobs {
        std::mem::take(&mut self.written)
    }

    fn push_row(&mut self, token: u32, row: Option<&[Logprob]>) {
        let name = self.names.name(token, &self.before);
        self.written.text_offset.push(self.offset);
        self.offset += name.chars().count();
        self.written.tokens.push(name);
        let own = row.and_then(|row| row.first());
        self.written.token_logprobs.push(own.map(|own| finite(own.logprob)));
        self.written.top_logprobs.push(row.map(|row| self.top(row)));
        self.before.push(token);
    }

    fn top(&self, row: &[Logprob]) -> Map<String, Value> {
        let entries = distinct(row).take(self.num_top + 1);
        let entry = |entry: &Logprob| {
            let name = self.names.name(entry.token_id, &self.before);
            (name, Value::from(finite(entry.logprob)))
        };
        entries.map(entry).collect()
    }
}

/// `choices[].logprobs` of a chat completion.
#[derive(Debug, Default, PartialEq, Serialize, ToSchema)]
pub(in crate::server) struct ChatLogprobs {
    pub(in crate::server) content: Vec<ChatLogprob>,
}

/// One token of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub(in crate::server) struct ChatLogprob {
    #[serde(flatten)]
    own: ChatLogprobEntry,
    top_logprobs: Vec<ChatLogprobEntry>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
struct ChatLogprobEntry {
    token: String,
    logprob: f64,
    /// The exact bytes of the token. Clients can join them to characters.
    bytes: Vec<u8>,
}

/// Writes [`ChatLogprobs`], in one piece or chunk by chunk.
pub(in crate::server) struct ChatLogprobsWriter {
    names: TokenNames,
    num_top: usize,
    before: Vec<u32>,
}

impl ChatLogprobsWriter {
    /// Returns a writer of at most `num_top` tokens in `top_logprobs`.
    pub(in crate::server) fn new(names: TokenNames, num_top: usize) -> Self {
        Self { names, num_top, before: Vec::new() }
    }

    /// Writes the next tokens of the output.
    pub(in crate::server) fn write(&mut self, tokens: &[SampledToken]) -> ChatLogprobs {
        ChatLogprobs { content: tokens.iter().map(|token| self.entry(token)).collect() }
    }

    fn entry(&mut self, token: &SampledToken) -> ChatLogprob {
        let row = token.logprobs.as_deref().unwrap_or_default();
        let named = |id: u32, logprob: Option<f32>| ChatLogprobEntry {
            token: self.names.name(id, &self.before),
            logprob: finite(logprob.unwrap_or(LOGPROB_MIN)),
            bytes: self.names.bytes(id),
        };
        let top = distinct(row).take(self.num_top);
        let written = ChatLogprob {
            own: named(token.token_id, row.first().map(|own| own.logprob)),
            top_logprobs: top.map(|entry| named(entry.token_id, Some(entry.logprob))).collect(),
        };
        self.before.push(token.token_id);
        written
    }
}

/// Returns `prompt_logprobs`: for each prompt token, by token id. The first is `null`.
pub(in crate::server) fn prompt_logprobs(
    names: &TokenNames,
    prompt: &[u32],
    rows: &[Vec<Logprob>],
) -> Vec<Option<Map<String, Value>>> {
    let described = rows.iter().enumerate().map(|(row, entries)| {
        let before = prompt.get(..=row).unwrap_or(prompt);
        let describe = |entry: &Logprob| {
            let text = names.text(entry.token_id, before);
            let logprob = finite(entry.logprob);
            let value = json!({"logprob": logprob, "rank": entry.rank, "decoded_token": text});
            (entry.token_id.to_string(), value)
        };
        Some(distinct(entries).map(describe).collect())
    });
    std::iter::once(None).chain(described).collect()
}

/// Returns a log-probability that JSON can hold.
fn finite(logprob: f32) -> f64 {
    f64::from(logprob.max(LOGPROB_MIN))
}

/// Returns the entries of a row, each token once. The token at the position is often a likely one,
/// too.
fn distinct(row: &[Logprob]) -> impl Iterator<Item = &Logprob> {
    let own = row.first();
    let rest = row
        .iter()
        .skip(1)
        .filter(move |entry| own.is_none_or(|own| own.token_id != entry.token_id));
    own.into_iter().chain(rest)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::turn::test_codec::ByteCodec;

    fn names() -> TokenNames {
        TokenNames::new(Arc::new(ByteCodec), false)
    }

    fn row(entries: &[(u8, f32)]) -> Vec<Logprob> {
        let entry = |(rank, &(byte, logprob)): (usize, &(u8, f32))| Logprob {
            token_id: byte.into(),
            logprob,
            rank: rank as u32,
        };
        entries.iter().enumerate().map(entry).collect()
    }

    fn sampled(entries: &[(u8, f32)]) -> SampledToken {
        SampledToken { token_id: entries[0].0.into(), logprobs: Some(row(entries)) }
    }

    #[test]
    fn a_likely_token_counts_once() {
        let mut writer = CompletionLogprobsWriter::new(names(), 1);
        writer.push(&sampled(&[(b'a', -0.5), (b'a', -0.5)]));
        writer.push(&sampled(&[(b'b', -2.0), (b'c', -0.25)]));
        let written = serde_json::to_value(writer.take()).unwrap();
        let wanted = json!({
            "text_offset": [0, 1],
            "tokens": ["a", "b"],
            "token_logprobs": [-0.5, -2.0],
            "top_logprobs": [{"a": -0.5}, {"b": -2.0, "c": -0.25}],
        });
        assert_eq!(written, wanted);
    }

    /// The harness lm-eval compares the numbers in the text of the answer.
    #[test]
    fn a_token_and_its_entry_have_the_same_number() {
        let token = sampled(&[(b'a', -0.284_822_88), (b'a', -0.284_822_88)]);
        let mut writer = CompletionLogprobsWriter::new(names(), 1);
        writer.push(&token);
        let text = serde_json::to_string(&writer.take()).unwrap();
        assert!(text.contains(r#""token_logprobs":[-0.28482288122177124]"#), "{text}");
        assert!(text.contains(r#"{"a":-0.28482288122177124}"#), "{text}");
        let written = ChatLogprobsWriter::new(names(), 1).write(&[token]);
        let text = serde_json::to_string(&written).unwrap();
        assert_eq!(text.matches(r#""logprob":-0.28482288122177124"#).count(), 2, "{text}");
    }

    #[test]
    fn an_echoed_prompt_begins_without_a_logprob() {
        let mut writer = CompletionLogprobsWriter::new(names(), 0);
        writer.push_prompt(&[104, 105], &[row(&[(b'i', f32::NEG_INFINITY)])]);
        assert_eq!(
            serde_json::to_value(writer.take()).unwrap(),
            json!({
                "text_offset": [0, 1],
                "tokens": ["h", "i"],
                "token_logprobs": [null, -9999.0],
                "top_logprobs": [null, {"i": -9999.0}],
            })
        );
        writer.push(&sampled(&[(b'!', -1.0)]));
        assert_eq!(writer.take().text_offset, [2], "offsets go on from chunk to chunk");
    }

    #[test]
    fn offsets_count_characters() {
        let mut writer = CompletionLogprobsWriter::new(names(), 0);
        for byte in "é!".bytes() {
            writer.push(&sampled(&[(byte, -1.0)]));
        }
        let written = writer.take();
        assert_eq!(written.tokens, ["", "é", "!"]);
        assert_eq!(written.text_offset, [0, 0, 1]);
    }

    #[test]
    fn chat_lists_bytes_and_no_more_than_was_asked() {
        let token = sampled(&[(b'b', -2.0), (b'c', -0.25), (b'd', -0.5)]);
        let entry = |token: &str, logprob: f32| json!({"token": token, "logprob": logprob, "bytes": token.as_bytes()});
        let mut wanted = entry("b", -2.0);
        wanted["top_logprobs"] = json!([entry("b", -2.0), entry("c", -0.25)]);
        let written = ChatLogprobsWriter::new(names(), 2).write(std::slice::from_ref(&token));
        assert_eq!(serde_json::to_value(&written).unwrap(), json!({ "content": [wanted] }));
        let none = ChatLogprobsWriter::new(names(), 0).write(&[token]);
        assert!(none.content[0].top_logprobs.is_empty());
    }

    #[test]
    fn prompt_logprobs_are_keyed_by_token_id() {
        let described =
            prompt_logprobs(&names(), &[104, 105], &[row(&[(b'i', -3.0), (b'o', -1.0)])]);
        let entry = |text: &str, logprob: f32, rank: u32| json!({"logprob": logprob, "rank": rank, "decoded_token": text});
        let wanted = json!([null, {"105": entry("i", -3.0, 0), "111": entry("o", -1.0, 1)}]);
        assert_eq!(serde_json::to_value(described).unwrap(), wanted);
    }
}
