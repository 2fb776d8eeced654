//! A text's parts have the tokens of the whole, and each tokenizer is cut where it should be.

use std::ops::Range;
use std::path::Path;
use std::sync::OnceLock;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::gguf::GgufFile;
use crate::text::gguf_tokenizer;

mod segments;

fn byte_level(use_regex: bool) -> Value {
    json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": use_regex,
    })
}

fn added(id: u32, content: &str, normalized: bool, strip: [bool; 2], single_word: bool) -> Value {
    json!({
        "id": id, "content": content, "special": true, "normalized": normalized,
        "single_word": single_word, "lstrip": strip[0], "rstrip": strip[1],
    })
}

/// Returns a tokenizer with these steps and a vocabulary for each kind of model. Its added tokens
/// look like words, take white space, or hold some.
fn tokenizer(normalizer: Value, pre_tokenizer: Value, model: Value) -> Tokenizer {
    // With a character before every text, a token that is a word begins with no letter.
    let is_word = normalizer["type"] != "Sequence";
    let tokens = [
        added(9002, "<mask>", false, [true, true], false),
        added(9003, "two words", true, [false, false], false),
        added(9004, "ab", true, [false, false], is_word),
        added(9005, "a\nb", false, [false, false], false),
    ];
    with_added(&tokens, normalizer, pre_tokenizer, model)
}

/// Returns a tokenizer with these steps and these added tokens, besides those around a text.
fn with_added(
    tokens: &[Value],
    normalizer: Value,
    pre_tokenizer: Value,
    model: Value,
) -> Tokenizer {
    let around = ["<s>", "</s>"];
    let around = (9000..).zip(around).map(|(id, token)| added(id, token, false, [false; 2], false));
    let tokens: Vec<Value> = around.chain(tokens.iter().cloned()).collect();
    let template = |id: &str| json!({"SpecialToken": {"id": id, "type_id": 0}});
    let json = json!({
        "version": "1.0",
        "added_tokens": tokens,
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [template("<s>"), {"Sequence": {"id": "A", "type_id": 0}}, template("</s>")],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {
                "<s>": {"id": "<s>", "ids": [9000], "tokens": ["<s>"]},
                "</s>": {"id": "</s>", "ids": [9001], "tokens": ["</s>"]},
            },
        },
        "decoder": null,
        "model": model,
    });
    Tokenizer::from_bytes(json.to_string()).unwrap()
}

/// Returns merges of bytes, or of characters with bytes for unknown ones.
fn bpe(chars: &str, merges: &[(&str, &str)], flags: Value) -> Value {
    let mut tokens: Vec<String> = (0..=255).map(|byte| format!("<0x{byte:02X}>")).collect();
    tokens.push("<unk>".to_owned());
    tokens.extend(chars.chars().map(String::from));
    tokens.extend(merges.iter().map(|(left, right)| format!("{left}{right}")));
    let vocab: serde_json::Map<String, Value> =
        tokens.into_iter().enumerate().map(|(id, token)| (token, id.into())).collect();
    let mut model = json!({
        "type": "BPE", "vocab": vocab, "unk_token": "<unk>", "byte_fallback": true,
        "merges": merges.iter().map(|(left, right)| json!([left, right])).collect::<Vec<_>>(),
    });
    for (name, flag) in flags.as_object().unwrap() {
        model[name] = flag.clone();
    }
    model
}

fn of_bytes(flags: Value) -> Value {
    // Bytes as GPT-2 spells them: those of letters and punctuation, a space, a line feed.
    let chars: String = ('!'..='~').chain('¡'..='ÿ').chain(['Ġ', 'Ċ', 'ĉ', 'č']).collect();
    let merges =
        [("Ġ", "a"), ("a", "b"), ("Ġ", "Ġ"), ("Ċ", "Ċ"), ("ab", "c"), ("Ġa", "b"), (".", "Ċ")];
    bpe(&chars, &merges, flags)
}

fn of_chars(flags: Value) -> Value {
    let merges = [
        ("▁", "▁"),
        ("▁", "a"),
        ("a", "b"),
        ("▁▁", "▁▁"),
        ("▁a", "b"),
        ("é", "é"),
        ("b", "c"),
        ("a", "a"),
    ];
    bpe("▁abcdefgé.,中文0123<>/s\n", &merges, flags)
}

fn split(expression: &str, behavior: &str) -> Value {
    json!({
        "type": "Split", "pattern": {"Regex": expression}, "behavior": behavior, "invert": false,
    })
}

fn sequence(stages: &[Value]) -> Value {
    json!({"type": "Sequence", "pretokenizers": stages})
}

const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const O200K: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Returns tokenizers of each family of models, and whether their texts can be cut.
fn tokenizers() -> Vec<(&'static str, Tokenizer, bool)> {
    let none = Value::Null;
    let (nfc, lowercase) = (json!({"type": "NFC"}), json!({"type": "Lowercase"}));
    let spaces = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
    let prefix = json!({"type": "Prepend", "prepend": "▁"});
    let llama2 = json!({"type": "Sequence", "normalizers": [prefix, spaces]});
    let lower_llama2 = json!({"type": "Sequence", "normalizers": [prefix, spaces, lowercase]});
    let bert_uncased = json!({
        "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
        "strip_accents": null, "lowercase": true,
    });
    let accents = json!({
        "type": "Sequence",
        "normalizers": [{"type": "NFD"}, lowercase, {"type": "StripAccents"}],
    });
    let isolated = |expression| sequence(&[split(expression, "Isolated"), byte_level(false)]);
    let digits = json!({"type": "Digits", "individual_digits": true});
    let metaspace = |scheme: &str, split: bool| json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split});
    let before_spaces = json!({
        "type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": false,
    });
    let unigram: Vec<Value> = ["<unk>", "▁", "a", "b", "c", "▁a", "ab", "▁ab", ".", "\n"]
        .into_iter()
        .enumerate()
        .map(|(at, piece)| json!([piece, -(at as f64)]))
        .collect();
    let unigram = json!({"type": "Unigram", "unk_id": 0, "vocab": unigram, "byte_fallback": false});
    let pieces = json!({"[UNK]": 0, "a": 1, "##b": 2, "##a": 3, "b": 4, ".": 5, "c": 6});
    let word_piece = json!({
        "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100, "vocab": pieces,
    });
    let bert = json!({"type": "BertPreTokenizer"});
    let plain = || json!({});
    let ignoring = json!({"ignore_merges": true});
    vec![
        ("gpt2", tokenizer(none.clone(), byte_level(true), of_bytes(plain())), true),
        ("llama3", tokenizer(none.clone(), isolated(LLAMA3), of_bytes(ignoring.clone())), true),
        ("qwen2", tokenizer(nfc.clone(), isolated(LLAMA3), of_bytes(plain())), true),
        ("o200k", tokenizer(none.clone(), isolated(O200K), of_bytes(plain())), true),
        (
            "smollm",
            tokenizer(none.clone(), sequence(&[digits, byte_level(true)]), of_bytes(plain())),
            true,
        ),
        (
            "llama2",
            tokenizer(llama2.clone(), none.clone(), of_chars(json!({"fuse_unk": true}))),
            true,
        ),
        ("gemma", tokenizer(spaces.clone(), before_spaces, of_chars(plain())), true),
        ("mistral", tokenizer(none.clone(), metaspace("first", false), of_chars(plain())), true),
        (
            "words",
            tokenizer(none.clone(), metaspace("always", true), of_chars(ignoring.clone())),
            true,
        ),
        (
            "no bytes",
            tokenizer(spaces, none.clone(), of_chars(json!({"byte_fallback": false}))),
            true,
        ),
        ("unigram", tokenizer(nfc, metaspace("always", true), unigram), true),
        ("ignoring", tokenizer(llama2, none.clone(), of_chars(ignoring)), false),
        ("lower", tokenizer(lowercase, byte_level(true), of_bytes(plain())), true),
        ("lower llama2", tokenizer(lower_llama2, none.clone(), of_chars(plain())), true),
        ("nfkc", tokenizer(json!({"type": "NFKC"}), byte_level(true), of_bytes(plain())), true),
        ("wordpiece", tokenizer(none.clone(), bert.clone(), word_piece.clone()), true),
        ("composed", tokenizer(json!({"type": "NFC"}), bert.clone(), word_piece.clone()), true),
        ("bert", tokenizer(bert_uncased, bert, word_piece.clone()), true),
        ("accents", tokenizer(accents, json!({"type": "Whitespace"}), word_piece), true),
        (
            "stripped",
            tokenizer(
                json!({"type": "Strip", "strip_left": true, "strip_right": true}),
                byte_level(true),
                of_bytes(plain()),
            ),
            false,
        ),
    ]
}

/// Returns tokenizers of models, and of GGUF files of each kind.
fn of_models() -> &'static [(&'static str, Tokenizer)] {
    const GGUF: [&str; 4] = ["gpt-2", "llama", "llama-bpe", "smollm"];
    static TOKENIZERS: OnceLock<Vec<(&str, Tokenizer)>> = OnceLock::new();
    TOKENIZERS.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let of_gguf = |name: &'static str| {
            let path = root.join(format!("tests/formats/fixtures/tokenizers/{name}.gguf"));
            (name, gguf_tokenizer::read(&GgufFile::open(&path).unwrap()).unwrap().0)
        };
        let demo = Tokenizer::from_file(root.join("examples/demo-model/tokenizer.json")).unwrap();
        GGUF.into_iter().map(of_gguf).chain([("demo", demo)]).collect()
    })
}

/// Returns all cuts of a text.
fn all_cuts(cuts: &Cuts, text: &str) -> Vec<usize> {
    (1..text.len()).filter(|&at| text.is_char_boundary(at) && cuts.may_cut(text, at)).collect()
}

fn in_parts(tokenizer: &Tokenizer, cuts: &Cuts, text: &str, at: &[usize]) -> Vec<u32> {
    let ends = at.iter().copied().chain([text.len()]);
    let starts = [0].into_iter().chain(at.iter().copied());
    let encode = |part: Range<usize>| {
        let part = &text[cuts.begin_of(part.start)..part.end];
        tokenizer.encode_fast(part, false).unwrap().get_ids().to_vec()
    };
    let mut tokens = cuts.surround.before.clone();
    tokens.extend(starts.zip(ends).flat_map(|(start, end)| encode(start..end)));
    tokens.extend(&cuts.surround.after);
    tokens
}

/// Checks that the parts have the tokens of the whole, at each cut alone and at all cuts.
fn check(name: &str, tokenizer: &Tokenizer, cuts: &Cuts, text: &str) {
    let whole = tokenizer.encode_fast(text, true).unwrap().get_ids().to_vec();
    let all = all_cuts(cuts, text);
    assert_eq!(in_parts(tokenizer, cuts, text, &all), whole, "{name}: {text:?} at {all:?}");
    for at in all {
        assert_eq!(in_parts(tokenizer, cuts, text, &[at]), whole, "{name}: {text:?} at {at}");
    }
}

/// Returns texts whose neighbouring pieces affect each other: white space, characters of several
/// bytes, marks, added tokens.
fn texts() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        8 => prop::sample::select(vec![
            "a", "b", "c", "ab", "abc", " ", " a", " ab", "\n", "\r\n", "\t", ".", ". ", "'s", "'S", "1",
            "1234", "é", "e\u{301}", "\u{301}", "中", "文", "。", "한", "\u{1112}\u{1161}\u{11AB}", "🙂",
            "👩‍👩‍👧", "İ", "Σ", "=", "\u{338}", "=\u{338}", "\u{AD}", "\u{1F}", "中\u{301}", "K", "\u{200D}", "\u{3000}", "\u{A0}", "▁", "▁a", "<s>", "</s>", "<mask>", "two words",
            "two", "words", "A", "aB", "Ab", "ﬁ", "\u{0}", "<", "ſ", "/", "¾", "²", "Ⅷ", "क्षि", "سلام",
        ]).prop_map(str::to_owned),
        1 => (prop::sample::select(vec![" ", "\n", "a", "中", ".", "1"]), 2usize..40)
            .prop_map(|(unit, times)| unit.repeat(times)),
        1 => any::<char>().prop_map(String::from),
    ];
    prop::collection::vec(part, 1..40).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn parts_have_the_tokens_of_the_whole(text in texts()) {
        for (name, tokenizer, _) in tokenizers() {
            if let Some(cuts) = Cuts::read(&tokenizer) {
                check(name, &tokenizer, &cuts, &text);
            }
        }
    }

    #[test]
    fn parts_have_the_tokens_of_the_whole_in_models(text in texts(), words in "[ -~\n]{0,80}") {
        for (name, tokenizer) in of_models() {
            let cuts = Cuts::read(tokenizer).unwrap();
            check(name, tokenizer, &cuts, &text);
            check(name, tokenizer, &cuts, &words);
        }
    }
}

/// One long text in the pieces that are tokenized.
#[test]
fn pieces_have_the_tokens_of_the_whole() {
    let unit = "Once upon a time, in 1234 BC — été, 中文。 It's <s> fine.\n\n  \tok\n";
    let text = unit.repeat(3 * PIECE_BYTES / unit.len()) + &"z".repeat(PIECE_BYTES) + unit;
    for (name, tokenizer) in of_models() {
        let cuts = Cuts::read(tokenizer).unwrap();
        let whole = tokenizer.encode_fast(text.as_str(), true).unwrap().get_ids().to_vec();
        for dropped in [TruncationSide::Left, TruncationSide::Right] {
            let mut at = Vec::new();
            let mut rest = 0..text.len();
            while !rest.is_empty() {
                let piece = next_piece(Some(&cuts), &text, rest.clone(), dropped).unwrap();
                match dropped {
                    TruncationSide::Right => rest.start = piece.end,
                    TruncationSide::Left => rest.end = piece.start,
                }
                at.extend([piece.start, piece.end]);
            }
            at.sort_unstable();
            at.dedup();
            at.retain(|at| (1..text.len()).contains(at));
            assert!(at.len() >= 4, "{name}: {at:?}");
            assert!(in_parts(tokenizer, &cuts, &text, &at) == whole, "{name}");
        }
    }
}

#[test]
fn texts_of_words_are_cut_where_the_tokenizer_is_understood() {
    let text = "b c d. e 1 f\nb, c d e f b c d";
    for (name, tokenizer, is_cut) in tokenizers() {
        let num_cuts = Cuts::read(&tokenizer).map_or(0, |cuts| all_cuts(&cuts, text).len());
        assert_eq!(num_cuts >= 5, is_cut, "{name}: {num_cuts} cuts");
    }
}

#[test]
fn tokens_around_a_text_are_known() {
    for (name, tokenizer, _) in tokenizers() {
        let Some(surround) = surround(&tokenizer) else { panic!("{name}") };
        assert_eq!((surround.before, surround.after), (vec![9000], vec![9001]), "{name}");
    }
}

fn pieces(
    cuts: Option<&Cuts>,
    text: &str,
    dropped: TruncationSide,
) -> Result<Vec<usize>, TextError> {
    let (mut rest, mut lengths) = (0..text.len(), Vec::new());
    while !rest.is_empty() {
        let piece = next_piece(cuts, text, rest.clone(), dropped)?;
        match dropped {
            TruncationSide::Right => rest.start = piece.end,
            TruncationSide::Left => rest.end = piece.start,
        }
        lengths.push(piece.len());
    }
    Ok(lengths)
}

#[test]
fn a_long_text_comes_in_pieces_and_one_without_cuts_is_refused() {
    let tokenizer = &tokenizers()[0].1;
    let cuts = Cuts::read(tokenizer);
    let cuts = cuts.as_ref();
    let long = "éa b c. ".repeat(UNCUT_BYTES_MAX / 4);
    for dropped in [TruncationSide::Left, TruncationSide::Right] {
        let lengths = pieces(cuts, &long, dropped).unwrap();
        assert_eq!(lengths.iter().sum::<usize>(), long.len());
        assert!(lengths.iter().all(|&bytes| (1..=PIECE_BYTES).contains(&bytes)), "{lengths:?}");
        assert!(lengths.len() < 2 * long.len() / PIECE_BYTES);
        // The part that cannot be cut is one piece, and the rest is cut as usual.
        let blob = format!("b c {} b c", "é".repeat(UNCUT_BYTES_MAX / 2 - 100));
        assert!(pieces(cuts, &blob, dropped).unwrap().len() <= 3);
        let blob = "a".repeat(UNCUT_BYTES_MAX + 1);
        let refused = TextError::Uncuttable { text_bytes: blob.len(), max_bytes: UNCUT_BYTES_MAX };
        assert_eq!(pieces(cuts, &blob, dropped), Err(refused.clone()));
        assert_eq!(pieces(None, &blob, dropped), Err(refused));
        assert_eq!(pieces(None, &blob[1..], dropped), Ok(vec![UNCUT_BYTES_MAX]));
    }
}
