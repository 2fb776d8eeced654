//! Sentencepiece models: texts become pieces exactly as in the library
//! (<https://github.com/google/sentencepiece>, <https://arxiv.org/abs/1808.06226>).
//!
//! `model_file` reads the file. `normalizer` brings a text into the model's form. `unigram` or
//! `bpe` cuts it into pieces, and `trie` finds pieces that begin at a place.

mod bpe;
mod model_file;
mod normalizer;
#[cfg(test)]
mod tests;
mod trie;
mod unigram;

use std::ops::Range;

pub(super) use self::model_file::{ModelFile, PieceType, VocabularyPiece};
use self::normalizer::Normalizer;
use self::trie::Trie;
use self::unigram::Scores;

/// The reason why a file is not a usable model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ModelFileError {
    /// The bytes do not have the file's form.
    #[error("not a sentencepiece model: {0}")]
    Form(&'static str),
    /// The model is of a kind that is not read.
    #[error("`trainer_spec.model_type` is {0}; expected 1 (unigram) or 2 (BPE)")]
    Kind(u64),
}

/// A piece of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    /// The piece's place in the model. `None` for text that the model does not know.
    pub(super) id: Option<u32>,
    /// The text, in the model's form.
    pub(super) text: String,
    /// The bytes of the original text.
    pub(super) origin: Range<usize>,
}

/// A model.
#[derive(Debug)]
pub(super) struct SentencePiece {
    file: ModelFile,
    normalizer: Normalizer,
    /// All pieces that texts may have.
    pieces: Trie,
    /// Pieces that are found before a text is normalized.
    user_defined: Trie,
    /// The piece of each byte, if unknown text becomes bytes.
    bytes: Option<Box<[u32; 256]>>,
    scores: Scores,
}

/// A part of a text in the model's form, before unknown parts are joined.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Part {
    id: Option<u32>,
    range: Range<usize>,
}

impl SentencePiece {
    /// Reads the content of a `.model` or `.spm` file.
    ///
    /// # Errors
    /// [`ModelFileError`].
    pub(super) fn read(bytes: &[u8]) -> Result<Self, ModelFileError> {
        Self::of(ModelFile::read(bytes)?)
    }

    /// Returns the model of a file that was read.
    ///
    /// # Errors
    /// [`ModelFileError`].
    pub(super) fn of(file: ModelFile) -> Result<Self, ModelFileError> {
        let (mut pieces, mut user_defined) = (Trie::default(), Trie::default());
        for (id, piece) in (0u32..).zip(&file.pieces) {
            let is_user_defined = piece.kind == PieceType::UserDefined;
            if is_user_defined || matches!(piece.kind, PieceType::Normal | PieceType::Unused) {
                pieces.insert(piece.text.as_bytes(), id);
            }
            if is_user_defined {
                user_defined.insert(piece.text.as_bytes(), id);
            }
        }
        let normalizer = Normalizer::new(&file)?;
        let bytes = if file.has_byte_fallback { Some(byte_pieces(&file)?) } else { None };
        let scores = Scores::of(&file);
        Ok(Self { normalizer, pieces, user_defined, bytes, scores, file })
    }

    /// Returns the pieces and their types.
    pub(super) fn file(&self) -> &ModelFile {
        &self.file
    }

    /// Returns the pieces of a text. Text that the model does not know is one piece in a row, or
    /// one piece for each byte.
    pub(super) fn encode(&self, text: &str) -> Vec<Piece> {
        let normalized = self.normalizer.normalize(text, &self.user_defined);
        let whole = normalized.text.as_str();
        let parts = if self.file.is_bpe { self.bpe(whole) } else { self.unigram(whole) };
        let mut pieces: Vec<Piece> = Vec::with_capacity(parts.len());
        for Part { id, range } in parts {
            let origin = normalized.origins[range.start]..normalized.origins[range.end];
            let text = &whole[range];
            if let (None, Some(of_bytes)) = (id, &self.bytes) {
                pieces.extend(text.bytes().map(|byte| Piece {
                    id: Some(of_bytes[usize::from(byte)]),
                    text: format!("<0x{byte:02X}>"),
                    origin: origin.clone(),
                }));
                continue;
            }
            match pieces.last_mut() {
                Some(last) if id.is_none() && last.id.is_none() => {
                    last.text.push_str(text);
                    last.origin.end = origin.end;
                }
                _ => pieces.push(Piece { id, text: text.to_owned(), origin }),
            }
        }
        pieces
    }

    fn is_unused(&self, id: u32) -> bool {
        self.file.pieces[id as usize].kind == PieceType::Unused
    }
}

/// Returns the piece of each byte.
fn byte_pieces(file: &ModelFile) -> Result<Box<[u32; 256]>, ModelFileError> {
    let mut found = [None; 256];
    for (id, piece) in (0u32..).zip(&file.pieces).filter(|(_, it)| it.kind == PieceType::Byte) {
        let digits = piece.text.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
        if let Some(byte) = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            found[usize::from(byte)] = Some(id);
        }
    }
    let mut all = Box::new([0; 256]);
    for (id, found) in all.iter_mut().zip(found) {
        *id = found.ok_or(ModelFileError::Form("`byte_fallback` without a piece for each byte"))?;
    }
    Ok(all)
}
