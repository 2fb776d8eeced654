//! Classes with the byte-level BPE of GPT-2: `vocab.json` and `merges.txt`.

use serde_json::{Value, json};
use tokenizers::Tokenizer;

use super::super::gguf_tokenizer::QWEN2;
use super::super::tokenizer_files::TokenizerFiles;
use super::vocabulary::{Around, Takes, Vocabulary, roles};
use super::{Class, ClassFolder, TextLoadError};

/// Reads the tokenizer: HF `RobertaTokenizer`, which is that of BART, too, or
/// `BlenderbotTokenizer`.
pub(super) fn read(
    folder: &ClassFolder,
    files: &mut TokenizerFiles,
) -> Result<Tokenizer, TextLoadError> {
    let mut vocabulary = Vocabulary::new(folder.vocab(0)?);
    let is_blenderbot = folder.class == Class::Blenderbot;
    let [bos, eos, unk, pad, mask, cls, sep] = roles(
        files,
        [
            ("bos_token", "<s>"),
            ("eos_token", "</s>"),
            ("unk_token", "<unk>"),
            ("pad_token", "<pad>"),
            ("mask_token", "<mask>"),
            ("cls_token", "<s>"),
            ("sep_token", "</s>"),
        ],
    );
    for token in [&bos, &eos, &unk, &pad, &cls, &sep] {
        vocabulary.mark_special(token, Takes::Nothing);
    }
    let takes_before = files.takes_before.get("mask_token").copied().unwrap_or(is_blenderbot);
    vocabulary.mark_special(&mask, if takes_before { Takes::Before } else { Takes::Nothing });
    let (eos, cls, sep) = (eos.as_str(), cls.as_str(), sep.as_str());
    let around = match is_blenderbot {
        true => Around { after: vec![eos], ..Around::default() },
        false => Around {
            before: vec![cls],
            between: vec![sep, sep],
            after: vec![sep],
            ..Around::default()
        },
    };
    let parts = json!({
        "pre_tokenizer": {
            "type": "ByteLevel", "add_prefix_space": folder.flag("add_prefix_space")?,
            "trim_offsets": true, "use_regex": true,
        },
        "decoder": {
            "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true,
        },
        "model": { "type": "BPE", "merges": merges(folder)? },
    });
    vocabulary.tokenizer(folder, parts, &around)
}

/// Reads the tokenizer of a decoder: HF `GPT2Tokenizer` or `Qwen2Tokenizer`.
pub(super) fn of_decoder(
    folder: &ClassFolder,
    files: &mut TokenizerFiles,
) -> Result<Tokenizer, TextLoadError> {
    const END: &str = "<|endoftext|>";
    let is_qwen = folder.class == Class::Qwen2;
    let third = if is_qwen { "pad_token" } else { "bos_token" };
    let mut vocabulary = Vocabulary::new(folder.vocab(0)?);
    for token in roles(files, [("unk_token", END), ("eos_token", END), (third, END)]) {
        // Declared tokens get their ids later.
        if files.declared_tokens.iter().all(|declared| declared.token.content != token) {
            vocabulary.push_last(&token);
        }
        vocabulary.mark_special(&token, Takes::Nothing);
    }
    let around = super::ends(folder, files, false)?;
    let add_prefix_space = folder.flag("add_prefix_space")?;
    let pre_tokenizer = match is_qwen {
        true => json!({ "type": "Sequence", "pretokenizers": [
            { "type": "Split", "pattern": { "Regex": QWEN2 }, "behavior": "Isolated",
              "invert": false },
            { "type": "ByteLevel", "add_prefix_space": add_prefix_space, "trim_offsets": true,
              "use_regex": false },
        ] }),
        false => json!({
            "type": "ByteLevel", "add_prefix_space": add_prefix_space, "trim_offsets": true,
            "use_regex": true,
        }),
    };
    let parts = json!({
        "normalizer": is_qwen.then(|| json!({ "type": "NFC" })),
        "pre_tokenizer": pre_tokenizer,
        "decoder": {
            "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true,
        },
        "model": { "type": "BPE", "merges": merges(folder)? },
    });
    vocabulary.tokenizer(folder, parts, &around.as_around())
}

/// Returns the pairs of `merges.txt`. Its first line may be a comment.
fn merges(folder: &ClassFolder) -> Result<Vec<Value>, TextLoadError> {
    let (path, text) = (folder.path(1), folder.file_text(1)?);
    let lines = (1..).zip(text.lines());
    let pairs = lines.filter(|(number, line)| {
        !(line.is_empty() || *number == 1 && line.starts_with("#version"))
    });
    let pair = |(number, line): (usize, &str)| match line.split(' ').collect::<Vec<_>>()[..] {
        [first, second] => Ok(json!([first, second])),
        _ => Err(TextLoadError::Tokenizer {
            path: path.clone(),
            reason: format!("line {number} is not two tokens with a space between them"),
        }),
    };
    pairs.map(pair).collect()
}
