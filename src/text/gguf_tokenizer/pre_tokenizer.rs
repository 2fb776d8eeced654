//! How a text is cut before the merges of a byte-level BPE, by the name in the file.
//!
//! The names are those that llama.cpp accepts (`llama_vocab::impl::load`). The expressions are
//! those of the models' own `tokenizer.json`.

use serde_json::{Value, json};

use super::expressions::{
    ASIAN, BAILING, BLOOM, CJK, DEEPSEEK, DEEPSEEK_WORDS, DIGITS_BY_THREE, EXAONE_MOE, GPT2, GPT4O,
    JAIS2, KIMI_K2, LLAMA3, NUMBERS_BY_THREE, QWEN2, QWEN35, SEED_CODER, TEKKEN, YOUTU,
    YOUTU_SCRIPTS,
};

/// One way to cut.
#[derive(Debug)]
pub(super) struct PreTokenizer {
    names: &'static [&'static str],
    /// Applied one after another, each to the pieces of the one before.
    expressions: &'static [&'static str],
    /// Applied after them, when each byte is a letter of its own.
    byte_expressions: &'static [&'static str],
    /// Whether the text is brought into Unicode's form C first.
    pub(super) nfc: bool,
    /// Whether a piece that is a token needs no merges.
    pub(super) ignore_merges: bool,
    /// Whether BOS stands before a text, where the metadata does not say.
    pub(super) add_bos: bool,
}

/// A way without peculiarities.
const PLAIN: PreTokenizer = PreTokenizer {
    names: &[],
    expressions: &[],
    byte_expressions: &[],
    nfc: false,
    ignore_merges: false,
    add_bos: false,
};

const PRE_TOKENIZERS: &[PreTokenizer] = &[
    PreTokenizer {
        names: &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
        ],
        expressions: &[LLAMA3],
        ignore_merges: true,
        add_bos: true,
        ..PLAIN
    },
    PreTokenizer { names: &["glm4", "glm5"], expressions: &[LLAMA3], ignore_merges: true, ..PLAIN },
    PreTokenizer { names: &["chatglm-bpe", "dbrx", "smaug-bpe"], expressions: &[LLAMA3], ..PLAIN },
    PreTokenizer { names: &["qwen2", "megrez"], expressions: &[QWEN2], nfc: true, ..PLAIN },
    PreTokenizer {
        names: &["deepseek-r1-qwen", "stablelm2", "hunyuan", "solar-open", "grok-2", "kormo"],
        expressions: &[QWEN2],
        ..PLAIN
    },
    PreTokenizer { names: &["qwen35"], expressions: &[QWEN35], nfc: true, ..PLAIN },
    PreTokenizer {
        names: &["tekken"],
        expressions: &[TEKKEN],
        ignore_merges: true,
        add_bos: true,
        ..PLAIN
    },
    PreTokenizer {
        names: &["gpt-4o", "llama4", "kanana2", "minimax-m2"],
        expressions: &[GPT4O],
        ..PLAIN
    },
    PreTokenizer { names: &["kimi-k2"], expressions: &[KIMI_K2], ..PLAIN },
    PreTokenizer {
        names: &["tiny_aya", "cohere2moe"],
        expressions: &[DIGITS_BY_THREE, GPT4O],
        ..PLAIN
    },
    PreTokenizer {
        names: &[
            "smollm",
            "starcoder",
            "refact",
            "command-r",
            "codeshell",
            "exaone",
            "minerva-7b",
            "mellum2",
        ],
        expressions: &[r"\p{N}", GPT2],
        ..PLAIN
    },
    PreTokenizer {
        names: &[
            "gpt-2",
            "phi-2",
            "olmo",
            "mpt",
            "exaone4",
            "jais",
            "trillion",
            "granite-docling",
            "gigachat",
            "mellum",
            "a.x-4.0",
            "roberta-bpe",
        ],
        expressions: &[GPT2],
        ..PLAIN
    },
    PreTokenizer {
        names: &["falcon"],
        expressions: &[r"[\p{P}\$\+<=>\^~\|`]+", GPT2],
        // The second byte of `½` becomes the letter `½`, which is a number.
        byte_expressions: &[r"\p{N}+", r"[0-9][0-9][0-9]"],
        ..PLAIN
    },
    PreTokenizer { names: &["jais-2"], expressions: &[JAIS2], ..PLAIN },
    PreTokenizer { names: &["exaone-moe"], expressions: &[EXAONE_MOE], ..PLAIN },
    PreTokenizer {
        names: &["youtu"],
        expressions: &[YOUTU_SCRIPTS, YOUTU],
        ignore_merges: true,
        ..PLAIN
    },
    PreTokenizer { names: &["afmoe"], expressions: &[NUMBERS_BY_THREE, ASIAN, DEEPSEEK], ..PLAIN },
    PreTokenizer { names: &["bloom", "gpt3-finnish", "poro-chat"], expressions: &[BLOOM], ..PLAIN },
    PreTokenizer { names: &["viking"], expressions: &[BLOOM, r"\p{N}"], ..PLAIN },
    PreTokenizer { names: &["seed-coder"], expressions: &[SEED_CODER], ..PLAIN },
    PreTokenizer {
        names: &["bailingmoe", "bailingmoe2", "llada-moe"],
        expressions: &[BAILING],
        ..PLAIN
    },
    PreTokenizer {
        names: &["deepseek-v3", "hunyuan-dense", "joyai-llm"],
        expressions: &[r"\p{N}{1,3}", CJK, DEEPSEEK],
        ..PLAIN
    },
    PreTokenizer {
        names: &["deepseek-llm"],
        expressions: &[
            r"[\r\n]",
            DEEPSEEK_WORDS,
            r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
            r"\s+$",
            r"[一-龥ࠀ-一가-퟿]+",
            r"\p{N}+",
        ],
        ..PLAIN
    },
    PreTokenizer {
        names: &["deepseek-coder"],
        expressions: &[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[一-龥ࠀ-一가-퟿]+", r"\p{N}"],
        ..PLAIN
    },
    PreTokenizer {
        names: &["default"],
        expressions: &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"],
        ..PLAIN
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
        steps.extend(self.byte_expressions.iter().map(split));
        json!({ "type": "Sequence", "pretokenizers": steps })
    }
}
