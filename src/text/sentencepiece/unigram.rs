//! The unigram model: the pieces with the largest sum of scores (Viterbi's algorithm).
//!
//! Sums are rounded to f32 after each piece, as in the library, because rounding decides between
//! equal sums.

use super::{ModelFile, Part, PieceType, SentencePiece};

/// The score of unknown text, below the lowest of a piece.
const UNKNOWN_PENALTY: f32 = 10.0;

/// The best pieces up to a place.
#[derive(Debug, Clone, Copy, Default)]
struct Best {
    score: f32,
    /// The beginning of the last piece. `None`: no pieces end here.
    start: Option<usize>,
    id: Option<u32>,
}

impl Best {
    fn offer(&mut self, score: f32, start: usize, id: Option<u32>) {
        if self.start.is_none() || score > self.score {
            *self = Self { score, start: Some(start), id };
        }
    }
}

/// The scores that follow from those of all normal pieces.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scores {
    /// Of unknown text.
    unknown: f32,
    /// The highest, from which those of user-defined pieces follow.
    highest: f32,
}

impl Scores {
    pub(super) fn of(file: &ModelFile) -> Self {
        let normal = file.pieces.iter().filter(|piece| piece.kind == PieceType::Normal);
        let (lowest, highest) = normal.fold((f32::MAX, f32::MIN_POSITIVE), |(low, high), piece| {
            (low.min(piece.score), high.max(piece.score))
        });
        Self { unknown: lowest - UNKNOWN_PENALTY, highest }
    }
}

impl SentencePiece {
    /// Returns the parts of a text in the model's form.
    pub(super) fn unigram(&self, text: &str) -> Vec<Part> {
        let Scores { unknown, highest } = self.scores;
        let mut best = vec![Best::default(); text.len() + 1];
        for (start, c) in text.char_indices() {
            let before = best[start].score;
            let mut has_char = false;
            for (len, id) in self.pieces.prefixes(&text.as_bytes()[start..]) {
                let piece = &self.file.pieces[id as usize];
                let sum = match piece.kind {
                    PieceType::Unused => continue,
                    // Such a piece always wins.
                    PieceType::UserDefined => {
                        (f64::from(len as f32 * highest) - 0.1 + f64::from(before)) as f32
                    }
                    _ => piece.score + before,
                };
                best[start + len].offer(sum, start, Some(id));
                has_char |= len == c.len_utf8();
            }
            if !has_char {
                best[start + c.len_utf8()].offer(unknown + before, start, None);
            }
        }
        let (mut parts, mut end) = (Vec::new(), text.len());
        while let Some(start) = best[end].start {
            parts.push(Part { id: best[end].id, range: start..end });
            end = start;
        }
        parts.reverse();
        parts
    }
}
