//! How a text is cut before the merges of a byte-level BPE, by the name in the file.
//!
//! The names are those that llama.cpp accepts (`llama_vocab::impl::load`). The expressions are
//! those of the models' own `tokenizer.json`.

use serde_json::{Value, json};

/// GPT-2's expression.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// Llama 3's: contractions in any case, digits in groups of three.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Qwen2's: Llama 3's with single digits.
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Mistral's tekken: words are cut where lower case turns into upper case.
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// One way to cut.
#[derive(Debug)]
pub(super) struct PreTokenizer {
    names: &'static [&'static str],
    /// Applied one after another, each to the pieces of the one before.
    expressions: &'static [&'static str],
    /// Whether the text is brought into Unicode's form C first.
    pub(super) nfc: bool,
    /// Whether a piece that is a token needs no merges.
    pub(super) ignore_merges: bool,
    /// Whether BOS stands before a text, where the metadata does not say.
    pub(super) add_bos: bool,
}

const PRE_TOKENIZERS: [PreTokenizer; 7] = [
    PreTokenizer {
        names: &["llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral"],
        expressions: &[LLAMA3],
        nfc: false,
        ignore_merges: true,
        add_bos: true,
    },
    PreTokenizer {
        names: &["qwen2", "megrez"],
        expressions: &[QWEN2],
        nfc: true,
        ignore_merges: false,
        add_bos: false,
    },
    PreTokenizer {
        names: &["deepseek-r1-qwen"],
        expressions: &[QWEN2],
        nfc: false,
        ignore_merges: false,
        add_bos: false,
    },
    PreTokenizer {
        names: &["tekken"],
        expressions: &[TEKKEN],
        nfc: false,
        ignore_merges: true,
        add_bos: true,
    },
    PreTokenizer {
        names: &["smollm", "starcoder", "refact", "command-r"],
        expressions: &[r"\p{N}", GPT2],
        nfc: false,
        ignore_merges: false,
        add_bos: false,
    },
    PreTokenizer {
        names: &["gpt-2", "phi-2", "olmo", "mpt", "exaone4"],
        expressions: &[GPT2],
        nfc: false,
        ignore_merges: false,
        add_bos: false,
    },
    PreTokenizer {
        names: &["default"],
        expressions: &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"],
        nfc: false,
        ignore_merges: false,
        add_bos: false,
    },
];

impl PreTokenizer {
    pub(super) fn by_name(name: &str) -> Option<&'static Self> {
        PRE_TOKENIZERS.iter().find(|known| known.names.contains(&name))
    }

    /// Returns all known names.
    pub(super) fn names() -> String {
        let names = PRE_TOKENIZERS.iter().flat_map(|known| known.names);
        names.copied().collect::<Vec<_>>().join(", ")
    }

    /// Returns `pre_tokenizer` of a `tokenizer.json`.
    pub(super) fn json(&self) -> Value {
        let split = |expression: &&str| {
            json!({
                "type": "Split", "pattern": { "Regex": expression }, "behavior": "Isolated",
                "invert": false,
            })
        };
        let mut steps: Vec<Value> = self.expressions.iter().map(split).collect();
        steps.push(json!({
            "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false,
            "use_regex": false,
        }));
        json!({ "type": "Sequence", "pretokenizers": steps })
    }
}
