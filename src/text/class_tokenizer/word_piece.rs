//! Classes with BERT's word pieces: `vocab.txt`, a token a line.

use serde_json::{Map, Value, json};
use tokenizers::Tokenizer;

use super::super::tokenizer_files::TokenizerFiles;
use super::vocabulary::{Around, Takes, Vocabulary, roles};
use super::{Class, ClassFolder, TextLoadError};

/// Reads the tokenizer: HF `BertTokenizer` and the classes made of it, or `MPNetTokenizer`. Its
/// case and accents are those of the class until [`BertClass`](super::super::bert_class::BertClass)
/// sets them.
pub(super) fn read(
    folder: &ClassFolder,
    files: &mut TokenizerFiles,
) -> Result<Tokenizer, TextLoadError> {
    let is_mpnet = folder.class == Class::MpNet;
    let of_bert = [("cls_token", "[CLS]"), ("sep_token", "[SEP]")];
    let of_mpnet = [("cls_token", "<s>"), ("sep_token", "</s>")];
    let [cls, sep] = roles(files, if is_mpnet { of_mpnet } else { of_bert });
    let [pad, mask] = match is_mpnet {
        false => roles(files, [("pad_token", "[PAD]"), ("mask_token", "[MASK]")]),
        true => roles(files, [("pad_token", "<pad>"), ("mask_token", "<mask>")]),
    };
    let [unk] = roles(files, [("unk_token", "[UNK]")]);
    let mut vocabulary = Vocabulary::new(tokens(&folder.file_text(0)?));
    for token in [&unk, &sep, &pad, &cls] {
        vocabulary.push_last(token);
        vocabulary.mark_special(token, Takes::Nothing);
    }
    vocabulary.push_last(&mask);
    vocabulary.mark_special(&mask, if is_mpnet { Takes::Before } else { Takes::Nothing });
    let (cls, sep) = (cls.as_str(), sep.as_str());
    let around = match is_mpnet {
        false => Around { before: vec![cls], between: vec![sep], after: vec![sep], second_type: 1 },
        true => {
            Around { before: vec![cls], between: vec![sep, sep], after: vec![sep], second_type: 0 }
        }
    };
    let parts = json!({
        "normalizer": {
            "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
            "strip_accents": null, "lowercase": true,
        },
        "pre_tokenizer": { "type": "BertPreTokenizer" },
        "decoder": { "type": "WordPiece", "prefix": "##", "cleanup": true },
        "model": {
            "type": "WordPiece", "unk_token": unk, "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
        },
    });
    vocabulary.tokenizer(folder, parts, &around)
}

/// Returns the tokens of `vocab.txt` with the numbers of their lines. Of equal ones the last
/// counts.
fn tokens(text: &str) -> Map<String, Value> {
    let lines = (0u32..).zip(text.lines());
    lines.map(|(id, line)| (line.trim_end().to_owned(), id.into())).collect()
}
