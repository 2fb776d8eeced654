//! Files that are broken, and the parts of models that no recorded tokenizer has.

use std::path::Path;

use proptest::prelude::*;

use super::*;

fn file(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/text/class_tokenizer/testdata");
    std::fs::read(folder.join(name)).unwrap()
}

fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, bytes.len() as u8], bytes].concat()
}

/// A piece with its score and its type.
fn piece(text: &str, score: f32, kind: u8) -> Vec<u8> {
    let mut piece = field(1, text.as_bytes());
    piece.push(2 << 3 | 5);
    piece.extend(score.to_le_bytes());
    piece.extend([3 << 3, kind]);
    field(1, &piece)
}

fn pieces(model: &[u8], text: &str) -> Vec<String> {
    let model = SentencePiece::read(model).unwrap();
    model.encode(text).into_iter().map(|piece| piece.text).collect()
}

const NORMAL: u8 = 1;
const UNKNOWN: u8 = 2;
const USER_DEFINED: u8 = 4;
const UNUSED: u8 = 5;
const IS_BPE: [u8; 4] = [2 << 3 | 2, 2, 3 << 3, 2];

#[test]
fn a_piece_of_the_trainer_is_never_cut_or_joined() {
    let normal = |text| piece(text, -1.0, NORMAL);
    let texts = ["a", "b", "▁", "ab", "ba"].map(normal).concat();
    for kind in [&[][..], &IS_BPE] {
        let model =
            [&piece("<unk>", 0.0, UNKNOWN), &*texts, &piece("bab", -9.0, USER_DEFINED), kind];
        assert_eq!(pieces(&model.concat(), "abab a"), ["▁", "a", "bab", "▁", "a"]);
    }
}

#[test]
fn unused_pieces_are_cut_again() {
    let normal = |text| piece(text, -1.0, NORMAL);
    let texts = ["a", "b", "▁", "ab"].map(normal).concat();
    for kind in [&[][..], &IS_BPE] {
        let model = [&piece("<unk>", 0.0, UNKNOWN), &*texts, &piece("aba", -0.5, UNUSED), kind];
        assert_eq!(pieces(&model.concat(), "aba"), ["▁", "ab", "a"]);
    }
}

#[test]
fn unknown_text_is_one_piece_in_a_row() {
    let model = [piece("<unk>", 0.0, UNKNOWN), piece("a", -1.0, NORMAL)].concat();
    assert_eq!(pieces(&model, "ax y  a"), ["▁", "a", "x▁y▁", "a"]);
    assert_eq!(pieces(&model, "  "), [""; 0]);
    let found = SentencePiece::read(&model).unwrap().encode(" ax");
    assert_eq!(found[2], Piece { id: None, text: "x".to_owned(), origin: 2..3 });
}

#[test]
fn other_files_are_refused() {
    let error = |bytes: &[u8]| SentencePiece::read(bytes).unwrap_err().to_string();
    assert!(error(b"").contains("no pieces"));
    assert!(error(b"\xff\xff").contains("cut off"));
    let unknown = piece("<unk>", 0.0, UNKNOWN);
    let words = [&*unknown, &[2 << 3 | 2, 2, 3 << 3, 3]].concat();
    assert!(error(&words).contains("model_type` is 3"), "{}", error(&words));
    let fallback = [&*unknown, &[2 << 3 | 2, 3, 0x98, 0x02, 1]].concat();
    assert!(error(&fallback).contains("a piece for each byte"), "{}", error(&fallback));
    let map = [&*unknown, &field(3, &field(2, b"\x08\0\0\0abc"))].concat();
    assert!(error(&map).contains("precompiled_charsmap"), "{}", error(&map));
}

proptest! {
    #[test]
    fn a_changed_file_is_refused_or_cuts_texts(
        at in 0..7000usize, byte: u8, text in "[a-c \u{e9}\u{430}\u{4e2d}!.]{0,20}",
    ) {
        for name in ["unigram.model", "bpe.model"] {
            let mut bytes = file(name);
            bytes[at] = byte;
            if let Ok(model) = SentencePiece::read(&bytes) {
                let end = model.encode(&text).last().map_or(0, |piece| piece.origin.end);
                prop_assert!(end <= text.len());
            }
        }
    }

    #[test]
    fn pieces_follow_each_other(text in "\\PC{0,30}") {
        for name in ["unigram.model", "bpe.model", "t5.model"] {
            let model = SentencePiece::read(&file(name)).unwrap();
            let (mut end, pieces) = (0, model.encode(&text));
            for piece in pieces {
                prop_assert!(piece.origin.start >= end && text.get(piece.origin.clone()).is_some());
                end = piece.origin.end;
            }
        }
    }
}
