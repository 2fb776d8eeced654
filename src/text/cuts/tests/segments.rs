//! Tokenizers with one kind of added token each, so that none hides the effect of another.

use super::*;

/// Returns merges of characters, among them a full stop with the replacement of a space.
fn of_marks() -> Value {
    let merges = [(".", "▁"), ("▁", "a"), ("▁", "▁"), ("a", "b")];
    bpe("▁abcdef.0123<>/st\n", &merges, json!({}))
}

/// A tokenizer, and texts with the bytes where they must not be cut.
type Case = (&'static str, Tokenizer, Vec<(&'static str, usize)>);

fn cases() -> Vec<Case> {
    let none = || Value::Null;
    let spaces = || json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
    let prefix = json!({"type": "Prepend", "prepend": "▁"});
    let llama2 = json!({"type": "Sequence", "normalizers": [prefix, spaces()]});
    let metaspace = json!({
        "type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false,
    });
    let words = || split(LLAMA3, "Isolated");
    let taking = |strip: [bool; 2]| [added(9002, "<t>", false, strip, false)];
    let (before, behind) = (taking([true, false]), taking([false, true]));
    let of_prefix = vec![("a</s> c", 5), ("<s> c", 3), ("c <t> c", 5)];
    let of_behind = vec![("c<t>\n c", 5), ("c<t> c", 4), ("c<t>\n\n\n c", 7)];
    vec![
        (
            "prepend",
            with_added(&taking([false; 2]), llama2.clone(), none(), of_marks()),
            of_prefix.clone(),
        ),
        ("prepend, rstrip", with_added(&behind, llama2.clone(), none(), of_marks()), of_prefix),
        ("prepend, lstrip", with_added(&before, llama2, none(), of_marks()), vec![("</s> c", 4)]),
        ("rstrip", with_added(&behind, spaces(), none(), of_marks()), of_behind),
        (
            "lstrip",
            with_added(&before, spaces(), none(), of_marks()),
            vec![("c\n <t>", 2), ("c \n<t>", 3)],
        ),
        ("replaced", with_added(&[], spaces(), words(), of_marks()), vec![("c. c", 2)]),
        (
            "metaspace",
            with_added(&[], none(), sequence(&[metaspace, words()]), of_marks()),
            vec![("c. c", 2)],
        ),
    ]
}

/// Returns texts of words, white space and added tokens, close together.
fn texts() -> impl Strategy<Value = String> {
    let parts = [
        "a", "b", "c", "c d", " ", "  ", " c", " a", "\n", "\n ", " \n", "\t", ".", ". ", "1", "▁",
        "<s>", "</s>", "</s> ", "<t>", "<t> ", "<t>\n", " <t>", "\n<t>", ">", "<",
    ];
    let parts = prop::sample::select(parts.to_vec());
    prop::collection::vec(parts, 1..24).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn parts_between_added_tokens_have_the_tokens_of_the_whole(text in texts()) {
        for (name, tokenizer, _) in cases() {
            let cuts = Cuts::read(&tokenizer).unwrap();
            check(name, &tokenizer, &cuts, &text);
        }
    }
}

#[test]
fn no_cut_separates_an_added_token_from_its_white_space() {
    for (name, tokenizer, texts) in cases() {
        let cuts = Cuts::read(&tokenizer).unwrap();
        for (text, at) in texts {
            check(name, &tokenizer, &cuts, text);
            assert!(!cuts.may_cut(text, at), "{name}: {text:?} at {at}");
        }
    }
}

#[test]
fn texts_with_added_tokens_are_cut_elsewhere() {
    for (name, tokenizer, _) in cases() {
        let cuts = Cuts::read(&tokenizer).unwrap();
        if name != "metaspace" && name != "replaced" {
            assert!(cuts.may_cut("c c</s> c c", 1), "{name}");
            assert!(cuts.may_cut("c c</s> c c", 9), "{name}");
        }
    }
}
