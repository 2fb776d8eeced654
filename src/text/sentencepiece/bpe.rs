//! The BPE model: neighbours that make a piece are joined, the piece with the highest score first.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};
use std::ops::Range;

use super::{Part, SentencePiece};

/// A character or the result of joins. Its range is empty when it became part of its left
/// neighbour.
#[derive(Debug)]
struct Symbol {
    range: Range<usize>,
    left: Option<usize>,
    right: Option<usize>,
    /// Whether it is never joined.
    is_fixed: bool,
}

/// Two neighbours that make a piece.
#[derive(Debug, PartialEq)]
struct Pair {
    score: f32,
    left: usize,
    right: usize,
    range: Range<usize>,
}

impl Eq for Pair {}

impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Pair {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then(other.left.cmp(&self.left))
    }
}

/// The joins of a text that are left to make.
struct Joins<'a> {
    model: &'a SentencePiece,
    text: &'a str,
    symbols: Vec<Symbol>,
    pairs: BinaryHeap<Pair>,
    /// The end of the left part of pieces that are unused, so that they are cut again.
    cuts: HashMap<Range<usize>, usize>,
}

impl Joins<'_> {
    fn offer(&mut self, left: Option<usize>, right: Option<usize>) {
        let (Some(left), Some(right)) = (left, right) else { return };
        let (first, second) = (&self.symbols[left], &self.symbols[right]);
        if first.is_fixed || second.is_fixed {
            return;
        }
        let range = first.range.start..second.range.end;
        let Some(id) = self.model.pieces.get(self.text[range.clone()].as_bytes()) else { return };
        if self.model.is_unused(id) {
            self.cuts.insert(range.clone(), first.range.end);
        }
        let score = self.model.file.pieces[id as usize].score;
        self.pairs.push(Pair { score, left, right, range });
    }

    fn join(&mut self, Pair { left, right, range, .. }: &Pair) {
        let next = self.symbols[*right].right;
        self.symbols[*left].range = range.clone();
        self.symbols[*left].right = next;
        if let Some(next) = next {
            self.symbols[next].left = Some(*left);
        }
        self.symbols[*right].range = 0..0;
    }
}

impl SentencePiece {
    /// Returns the parts of a text in the model's form.
    pub(super) fn bpe(&self, text: &str) -> Vec<Part> {
        let symbols = self.symbols(text);
        let (pairs, cuts) = (BinaryHeap::new(), HashMap::new());
        let mut joins = Joins { model: self, text, symbols, pairs, cuts };
        for right in 1..joins.symbols.len() {
            joins.offer(Some(right - 1), Some(right));
        }
        while let Some(pair) = joins.pairs.pop() {
            let (left, right) = (&joins.symbols[pair.left], &joins.symbols[pair.right]);
            let is_there = !left.range.is_empty()
                && !right.range.is_empty()
                && left.range.len() + right.range.len() == pair.range.len();
            if !is_there {
                continue;
            }
            joins.join(&pair);
            let joined = &joins.symbols[pair.left];
            let (before, after) = (joined.left, joined.right);
            joins.offer(before, Some(pair.left));
            joins.offer(Some(pair.left), after);
        }
        let mut parts = Vec::new();
        for symbol in joins.symbols.iter().filter(|symbol| !symbol.range.is_empty()) {
            let mut rest = vec![symbol.range.clone()];
            while let Some(range) = rest.pop() {
                let id = self.pieces.get(text[range.clone()].as_bytes());
                match joins.cuts.get(&range).filter(|_| id.is_some_and(|id| self.is_unused(id))) {
                    Some(cut) => rest.extend([*cut..range.end, range.start..*cut]),
                    None => parts.push(Part { id, range }),
                }
            }
        }
        parts
    }

    /// Returns the characters of a text, and pieces that the model's trainer has defined.
    fn symbols(&self, text: &str) -> Vec<Symbol> {
        let (mut symbols, mut start) = (Vec::new(), 0);
        while let Some(c) = text[start..].chars().next() {
            let longest = self.user_defined.prefixes(&text.as_bytes()[start..]).last();
            let end = start + longest.map_or(c.len_utf8(), |(len, _)| len);
            let index = symbols.len();
            symbols.push(Symbol {
                range: start..end,
                left: index.checked_sub(1),
                right: (end < text.len()).then_some(index + 1),
                is_fixed: longest.is_some(),
            });
            start = end;
        }
        symbols
    }
}
