//! Classes with a sentencepiece model.

use std::collections::HashMap;

use serde_json::{Map, Value, json};
use tokenizers::{Token, Tokenizer};

use super::super::sentencepiece::{Piece, PieceType, SentencePiece};
use super::super::tokenizer_files::TokenizerFiles;
use super::vocabulary::{Around, Takes, Vocabulary, roles};
use super::{Class, ClassFolder, TextLoadError, languages};

/// A sentencepiece model, and the token of each of its pieces.
#[derive(Debug)]
pub(in crate::text) struct PieceTokenizer {
    model: SentencePiece,
    /// By the piece's place in the model.
    ids: Vec<u32>,
    /// The token of a text that the model does not know, where a file lists tokens by their text.
    by_text: HashMap<String, u32>,
    unknown: u32,
    /// Whether a text may begin with a token of its language: `>>fra<<`.
    reads_language_codes: bool,
}

impl PieceTokenizer {
    /// Returns the tokenizer whose tokens are the pieces of `model`. Other text is `unknown`.
    pub(in crate::text) fn of_pieces(model: SentencePiece, unknown: u32) -> Self {
        let ids = (0..num_pieces(&model)).collect();
        Self { model, ids, by_text: HashMap::new(), unknown, reads_language_codes: false }
    }

    /// Returns the parts of a `tokenizer.json` beside the vocabulary. Its model only looks tokens
    /// up.
    pub(in crate::text) fn parts(model: &SentencePiece, unknown: &str) -> Value {
        let decoder = match model.file().has_byte_fallback {
            false => json!({ "type": "Metaspace", "replacement": "▁", "prepend_scheme": "always" }),
            true => json!({ "type": "Sequence", "decoders": [
                { "type": "Replace", "pattern": { "String": "▁" }, "content": " " },
                { "type": "ByteFallback" }, { "type": "Fuse" },
                { "type": "Strip", "content": " ", "start": 1, "stop": 0 },
            ] }),
        };
        json!({ "decoder": decoder, "model": { "type": "WordLevel", "unk_token": unknown } })
    }

    /// Returns the tokens of a text between special tokens.
    pub(in crate::text) fn tokens(&self, text: &str) -> Vec<Token> {
        let mut tokens = Vec::new();
        let mut begin = 0;
        if self.reads_language_codes
            && text.starts_with(">>")
            && let Some(end) = text.find("<<")
        {
            begin = end + 2;
            let code = &text[..begin];
            let id = self.by_text.get(code).copied().unwrap_or(self.unknown);
            tokens.push(Token { id, value: code.to_owned(), offsets: (0, begin) });
        }
        let pieces = self.model.encode(&text[begin..]);
        tokens.extend(pieces.into_iter().map(|Piece { id, text, origin }| Token {
            id: match id {
                Some(id) => self.ids.get(id as usize).copied().unwrap_or(self.unknown),
                None => self.by_text.get(&text).copied().unwrap_or(self.unknown),
            },
            value: text,
            offsets: (begin + origin.start, begin + origin.end),
        }));
        tokens
    }
}

/// Reads the tokenizer.
pub(super) fn read(
    folder: &ClassFolder,
    files: &mut TokenizerFiles,
) -> Result<(Tokenizer, PieceTokenizer), TextLoadError> {
    if let Some(Value::Object(kwargs)) = folder.config.get("sp_model_kwargs")
        && kwargs.get("enable_sampling") == Some(&Value::Bool(true))
    {
        let found = &kwargs["enable_sampling"];
        return Err(folder.refused("sp_model_kwargs.enable_sampling", found, "false"));
    }
    if folder.flag("separate_vocabs")? {
        let expected = "false: one vocabulary for both sides";
        return Err(folder.refused("separate_vocabs", &Value::Bool(true), expected));
    }
    let model = SentencePiece::read(&folder.bytes(0)?).map_err(|error| {
        TextLoadError::Tokenizer { path: folder.path(0), reason: error.to_string() }
    })?;
    match folder.class {
        Class::Marian | Class::M2m100 => listed(folder, files, model),
        Class::T5 => t5(folder, files, model),
        Class::Pegasus => pegasus(folder, files, model),
        Class::InternLm => internlm(folder, files, model),
        Class::MBart => fairseq(folder, files, model, &[languages::MBART], "en_XX"),
        Class::Nllb => fairseq(folder, files, model, &[languages::NLLB], "eng_Latn"),
        Class::XlmRoberta => fairseq(folder, files, model, &[], ""),
        _ => {
            let codes = [languages::MBART, languages::MBART_50];
            fairseq(folder, files, model, &codes, "en_XX")
        }
    }
}

/// Classes whose tokens `vocab.json` lists: HF `MarianTokenizer` and `M2M100Tokenizer`.
fn listed(
    folder: &ClassFolder,
    files: &mut TokenizerFiles,
    model: SentencePiece,
) -> Result<(Tokenizer, PieceTokenizer), TextLoadError> {
    let is_marian = folder.class == Class::Marian;
    let listed = folder.vocab(1)?;
    let count = listed.len() as u32;
    let mut vocabulary = Vocabulary::new(listed.clone());
    let [eos, unk, pad] =
        roles(files, [("eos_token", "</s>"), ("unk_token", "<unk>"), ("pad_token", "<pad>")]);
    let mut special = vec![eos.clone(), unk.clone(), pad];
    let mut language = None;
    if !is_marian {
        let [bos, sep] = roles(files, [("bos_token", "<s>"), ("sep_token", "</s>")]);
        special.extend([bos, sep]);
        let codes = match folder.text("language_codes")? {
            None | Some("m2m100") => languages::M2M100,
            Some("wmt21") => languages::WMT21,
            Some(other) => {
                let found = Value::from(other);
                return Err(folder.refused("language_codes", &found, "\"m2m100\" or \"wmt21\""));
            }
        };
        for (id, code) in (count..).zip(codes.split_whitespace()) {
            vocabulary.push(&format!("__{code}__"), id);
        }
        language = Some(format!("__{}__", source(folder, codes, "en")?));
    }
    for token in &special {
        vocabulary.mark_special(token, Takes::Nothing);
    }
    let around = Around {
        before: language.iter().map(String::as_str).collect(),
        after: vec![&eos],
        ..Around::default()
    };
    let id = |value: &Value| value.as_u64().unwrap_or_default() as u32;
    let by_text: HashMap<String, u32> =
        listed.iter().map(|(token, value)| (token.clone(), id(value))).collect();
    let unknown = unknown_id(folder, &vocabulary, &unk)?;
    let of_piece = |text: &String| by_text.get(text).copied().unwrap_or(unknown);
    let ids = model.file().pieces.iter().map(|piece| of_piece(&piece.text)).collect();
    let tokenizer = vocabulary.tokenizer(folder, PieceTokenizer::parts(&model, &unk), &around)?;
    Ok((
        tokenizer,
        PieceTokenizer { model, ids, by_text, unknown, reads_language_codes: is_marian },
    ))
}

/// HF `T5Tokenizer`: the model's own ids, and then sentinels from the last to the first.
fn t5(
    folder: &ClassFolder,
    files: &mut TokenizerFiles,
    model: SentencePiece,
) -> Result<(Tokenizer, PieceTokenizer), TextLoadError> {
    const LEGACY: &str = "legacy";
    if folder.config.get(LEGACY) == Some(&Value::Bool(false)) {
        let expected = "true, or a tokenizer.json";
        return Err(folder.refused(LEGACY, &Value::Bool(false), expected));
    }
    let [eos, unk, pad] =
        roles(files, [("eos_token", "</s>"), ("unk_token", "<unk>"), ("pad_token", "<pad>")]);
    let mut vocabulary = own_vocabulary(&model, 0);
    for token in [&eos, &unk, &pad] {
        vocabulary.mark_special(token, Takes::Nothing);
    }
    let (count, sentinels) = (num_pieces(&model), folder.count("extra_ids", 100)?);
    for number in 0..sentinels {
        let token = format!("<extra_id_{number}>");
        vocabulary.push(&token, count + sentinels - 1 - number);
        vocabulary.mark_special(&token, Takes::BothSides);
    }
    let around = Around { between: vec![&eos], after: vec![&eos], ..Around::default() };
    let unknown = unknown_id(folder, &vocabulary, &unk)?;
    with_own_ids(folder, vocabulary, model, unknown, &unk, &around, 0)
}

/// `InternLM2Tokenizer` of its folders' own code: the model's own ids.
fn internlm(
    folder: &ClassFolder,
    files: &mut TokenizerFiles,
    model: SentencePiece,
) -> Result<(Tokenizer, PieceTokenizer), TextLoadError> {
    let [unk, bos, eos] =
        roles(files, [("unk_token", "<unk>"), ("bos_token", "<s>"), ("eos_token", "</s>")]);
    let mut vocabulary = own_vocabulary(&model, 0);
    for token in [&unk, &bos, &eos] {
        vocabulary.mark_special(token, Takes::Nothing);
    }
    let ends = super::ends(folder, files, true)?;
    let unknown = unknown_id(folder, &vocabulary, &unk)?;
    with_own_ids(folder, vocabulary, model, unknown, &unk, &ends.as_around(), 0)
}

/// HF `PegasusTokenizer`: tokens that only pre-training has, and then the model's.
fn pegasus(
    folder: &ClassFolder,
    files: &mut TokenizerFiles,
    model: SentencePiece,
) -> Result<(Tokenizer, PieceTokenizer), TextLoadError> {
    let [pad, eos, mask, unk] = roles(
        files,
        [
            ("pad_token", "<pad>"),
            ("eos_token", "</s>"),
            ("mask_token", "<mask_2>"),
            ("unk_token", "<unk>"),
        ],
    );
    let offset = folder.count("offset", 103)?;
    let mut vocabulary = Vocabulary::new(Map::new());
    let sentence_mask = folder.text("mask_token_sent")?.unwrap_or("<mask_1>").to_owned();
    let mut special = vec![pad, eos.clone()];
    if folder.config.get("mask_token_sent") != Some(&Value::Null) {
        special.extend([sentence_mask, mask]);
    }
    special.extend((2..offset).map(|number| format!("<unk_{number}>")));
    for (id, token) in (0..).zip(&special) {
        vocabulary.push(token, id);
    }
    for (id, piece) in (0u32..).zip(&model.file().pieces).skip(2) {
        vocabulary.push(&piece.text, id + offset);
    }
    special.push(unk.clone());
    for token in &special {
        vocabulary.mark_special(token, Takes::Nothing);
    }
    let around = Around { after: vec![&eos], ..Around::default() };
    let unknown = unknown_id(folder, &vocabulary, &unk)?;
    with_own_ids(folder, vocabulary, model, unknown, &unk, &around, offset)
}

/// fairseq's order: four special tokens, the model's pieces without its first three, languages and
/// a mask. HF `MBartTokenizer`, `MBart50Tokenizer` and `NllbTokenizer`, and `XLMRobertaTokenizer`
/// without languages.
fn fairseq(
    folder: &ClassFolder,
    files: &mut TokenizerFiles,
    model: SentencePiece,
    codes: &[&str],
    default: &str,
) -> Result<(Tokenizer, PieceTokenizer), TextLoadError> {
    const OFFSET: u32 = 1;
    const UNKNOWN: u32 = 3;
    let codes = codes.join(" ");
    let [bos, pad, eos, unk, _, _, mask] = roles(
        files,
        [
            ("bos_token", "<s>"),
            ("pad_token", "<pad>"),
            ("eos_token", "</s>"),
            ("unk_token", "<unk>"),
            ("sep_token", "</s>"),
            ("cls_token", "<s>"),
            ("mask_token", "<mask>"),
        ],
    );
    let mut vocabulary = Vocabulary::new(Map::new());
    for (id, token) in (0..).zip([&bos, &pad, &eos, &unk]) {
        vocabulary.push(token, id);
        vocabulary.mark_special(token, Takes::Nothing);
    }
    for (id, piece) in (0u32..).zip(&model.file().pieces).skip(3) {
        vocabulary.push(&piece.text, id + OFFSET);
    }
    let mut next = num_pieces(&model) + OFFSET;
    for code in codes.split_whitespace() {
        vocabulary.push(code, next);
        vocabulary.mark_special(code, Takes::Nothing);
        next += 1;
    }
    vocabulary.push(&mask, next);
    vocabulary.mark_special(&mask, Takes::Before);
    if folder.class == Class::XlmRoberta {
        let (before, after) = (vec![bos.as_str()], vec![eos.as_str()]);
        let between = vec![eos.as_str(); 2];
        let around = Around { before, between, after, second_type: 0 };
        return with_own_ids(folder, vocabulary, model, UNKNOWN, &unk, &around, OFFSET);
    }
    let language = source(folder, &codes, default)?;
    let is_behind = folder.class == Class::MBart
        || folder.class == Class::Nllb && folder.flag("legacy_behaviour")?;
    let around = match is_behind {
        true => Around { after: vec![&eos, &language], ..Around::default() },
        false => Around { before: vec![&language], after: vec![&eos], ..Around::default() },
    };
    with_own_ids(folder, vocabulary, model, UNKNOWN, &unk, &around, OFFSET)
}

/// Returns the language of texts: `src_lang`, or that of the class.
fn source(folder: &ClassFolder, codes: &str, default: &str) -> Result<String, TextLoadError> {
    let source = folder.text("src_lang")?.unwrap_or(default);
    match codes.split_whitespace().any(|code| code == source) {
        true => Ok(source.to_owned()),
        false => {
            let expected = "a language of the class, for example en, en_XX or eng_Latn";
            Err(folder.refused("src_lang", &Value::from(source), expected))
        }
    }
}

/// Returns the model's pieces with their own ids, from `offset` on.
fn own_vocabulary(model: &SentencePiece, offset: u32) -> Vocabulary {
    let mut vocabulary = Vocabulary::default();
    for (id, piece) in (offset..).zip(&model.file().pieces) {
        vocabulary.push(&piece.text, id);
    }
    vocabulary
}

/// Returns the tokenizer of a class whose tokens are the model's pieces, `offset` further.
fn with_own_ids(
    folder: &ClassFolder,
    vocabulary: Vocabulary,
    model: SentencePiece,
    unknown: u32,
    unk: &str,
    around: &Around<'_>,
    offset: u32,
) -> Result<(Tokenizer, PieceTokenizer), TextLoadError> {
    let pieces = (0u32..).zip(&model.file().pieces);
    let ids = pieces.map(|(id, piece)| match piece.kind {
        PieceType::Unknown => unknown,
        _ => id + offset,
    });
    let ids = ids.collect();
    let tokenizer = vocabulary.tokenizer(folder, PieceTokenizer::parts(&model, unk), around)?;
    let by_text = HashMap::new();
    Ok((tokenizer, PieceTokenizer { model, ids, by_text, unknown, reads_language_codes: false }))
}

fn num_pieces(model: &SentencePiece) -> u32 {
    model.file().pieces.len() as u32
}

/// Returns the token of unknown text.
fn unknown_id(
    folder: &ClassFolder,
    vocabulary: &Vocabulary,
    unk: &str,
) -> Result<u32, TextLoadError> {
    vocabulary.id(unk).ok_or_else(|| TextLoadError::Tokenizer {
        path: folder.vocab_path(),
        reason: format!("the vocabulary lacks the special token {unk}"),
    })
}
