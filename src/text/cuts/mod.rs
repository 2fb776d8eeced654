//! Places where a text may be cut so that its parts have the tokens of the whole.
//!
//! Each step of a tokenizer is examined for its effect at a cut. Tokens that were `added` are found
//! first. Then the text is brought into a form (`normalization`) and cut into words (`stages`,
//! `expression`, `lookarounds`, `classes`). A model joins the characters of a word (`merges`). No
//! cut is tried out: each is proven from the steps, and a tokenizer with any other kind of step has
//! none.

mod added;
mod classes;
mod expression;
mod lookarounds;
mod merges;
mod normalization;
mod stages;
#[cfg(test)]
mod tests;

use std::ops::Range;

use playhouse_actors::logic::input::fit::TruncationSide;
use playhouse_actors::logic::request::ids::TokenId;
use playhouse_actors::ports::TextError;
use tokenizers::Tokenizer;

use added::AddedTokens;
use classes::Class;
use merges::Merges;
use normalization::Normalization;
use stages::{Between, Stages};

/// Bytes of a part, if the text has cuts.
pub(super) const PIECE_BYTES: usize = 128 << 10;
/// Most bytes of text that are tokenized at once, if no cut makes them fewer.
pub(super) const UNCUT_BYTES_MAX: usize = 1 << 20;

/// The tokens that a tokenizer puts around the tokens of a text.
#[derive(Debug, Clone, Default)]
pub(super) struct Surround {
    pub(super) before: Vec<TokenId>,
    pub(super) after: Vec<TokenId>,
}

/// The steps of a tokenizer.
#[derive(Debug)]
pub(super) struct Cuts {
    normalization: Normalization,
    stages: Stages,
    added: AddedTokens,
    /// Present if the tokenizer joins characters across words.
    merges: Option<Merges>,
    pub(super) surround: Surround,
}

impl Cuts {
    /// Reads a tokenizer. Returns `None` if its texts cannot be cut.
    pub(super) fn read(tokenizer: &Tokenizer) -> Option<Self> {
        let normalizer = serde_json::to_value(tokenizer.get_normalizer()).ok()?;
        let pre_tokenizer = serde_json::to_value(tokenizer.get_pre_tokenizer()).ok()?;
        let normalization = Normalization::read(&normalizer)?;
        let stages = Stages::read(&pre_tokenizer, &normalization)?;
        // The character put before a part must be the one that the space before the part becomes.
        let is_space = |prepended| normalization.map(' ') == Some(prepended);
        if !normalization.prepended.is_none_or(is_space) {
            return None;
        }
        Some(Self {
            added: AddedTokens::read(tokenizer)?,
            merges: stages.may_be_open().then(|| Merges::read(tokenizer)).flatten(),
            surround: surround(tokenizer)?,
            normalization,
            stages,
        })
    }

    /// Returns whether `text` may be cut at byte `at`, which is neither its beginning nor its end.
    fn may_cut(&self, text: &str, at: usize) -> bool {
        let (left, right) = text.split_at(at);
        let Some(before) = left.chars().next_back() else { return false };
        let mut chars = right.chars();
        let Some(after) = chars.next() else { return false };
        let next = chars.next();
        if self.normalization.prepended.is_some() {
            let begins_text = |c: char| !c.is_whitespace() && !self.added.may_begin_with(c);
            if after != ' ' || !next.is_some_and(begins_text) {
                return false;
            }
            // Behind this token, the whole text has both the space's character and the one put
            // before a text.
            if self.added.may_end_unnormalized(before) {
                return false;
            }
        }
        let map = |c| self.normalization.map(c);
        let Some(normalized) = map(before).zip(map(after)) else { return false };
        // Marks behind the character after the cut would change it.
        let next = next.filter(|_| !self.normalization.takes_no_marks(after));
        let near = [Some(before), Some(after), next];
        let keeps_form = |c: char| c.is_ascii() || c == '▁' || Class::of(c).is_some();
        let is_kept = |c: char| keeps_form(c) && map(c).is_some_and(keeps_form);
        if self.normalization.is_composed && !near.into_iter().flatten().all(is_kept) {
            return false;
        }
        let is_known = |c: char| c.is_ascii() && map(c).is_some();
        if self.normalization.is_ascii_only && !near.into_iter().flatten().all(is_known) {
            return false;
        }
        let is_end = match self.stages.between(normalized.0, normalized.1) {
            Between::End => true,
            Between::Unknown => false,
            Between::Open { before, after } => {
                self.merges.as_ref().is_some_and(|merges| merges.part(before, after))
            }
        };
        is_end && self.added.may_be_cut(before, after, normalized)
    }

    /// Returns the first byte to tokenize for the part of a text from byte `at` on.
    pub(super) fn begin_of(&self, at: usize) -> usize {
        // The tokenizer puts the character of that space before every text.
        at + usize::from(at > 0 && self.normalization.prepended.is_some())
    }

    /// Returns the first cut in `within` if `first`, otherwise the last.
    fn find(&self, text: &str, within: Range<usize>, first: bool) -> Option<usize> {
        let mut chars = text.get(within.clone())?.char_indices().map(|(at, _)| within.start + at);
        let may_cut = |at: &usize| self.may_cut(text, *at);
        if first { chars.find(may_cut) } else { chars.rfind(may_cut) }
    }
}

/// Returns the part of `text` that is tokenized next, when only `rest` is left.
///
/// # Errors
/// [`TextError::Uncuttable`] if too many bytes would be tokenized at once.
pub(super) fn next_piece(
    cuts: Option<&Cuts>,
    text: &str,
    rest: Range<usize>,
    dropped: TruncationSide,
) -> Result<Range<usize>, TextError> {
    if rest.len() <= PIECE_BYTES {
        return Ok(rest);
    }
    let after = |bytes: usize| text.floor_char_boundary(rest.end.min(rest.start + bytes));
    let before =
        |bytes: usize| text.ceil_char_boundary(rest.start.max(rest.end.saturating_sub(bytes)));
    let piece = cuts.and_then(|cuts| match dropped {
        TruncationSide::Right => {
            let near = cuts.find(text, after(1)..after(PIECE_BYTES), false);
            let cut =
                near.or_else(|| cuts.find(text, after(PIECE_BYTES)..after(UNCUT_BYTES_MAX), true));
            cut.map(|cut| rest.start..cut)
        }
        TruncationSide::Left => {
            let near = cuts.find(text, before(PIECE_BYTES)..rest.end, true);
            let cut = near
                .or_else(|| cuts.find(text, before(UNCUT_BYTES_MAX)..before(PIECE_BYTES), false));
            cut.map(|cut| cut..rest.end)
        }
    });
    // A cut at the end of `rest` divides nothing, and one at its beginning leaves an empty piece.
    if let Some(piece) = piece.filter(|piece| !piece.is_empty()) {
        return Ok(piece);
    }
    if rest.len() <= UNCUT_BYTES_MAX {
        return Ok(rest);
    }
    Err(TextError::Uncuttable { text_bytes: rest.len(), max_bytes: UNCUT_BYTES_MAX })
}

/// Returns the tokens that the tokenizer puts around a text, or `None` if it does anything else.
fn surround(tokenizer: &Tokenizer) -> Option<Surround> {
    const SAMPLES: [&str; 4] = ["a", "0", ".", " "];
    let has_tokens = |sample: &&str| {
        tokenizer.encode_fast(*sample, false).is_ok_and(|encoding| !encoding.is_empty())
    };
    let sample = SAMPLES.into_iter().find(has_tokens)?;
    let bare = tokenizer.encode_fast(sample, false).ok()?;
    let whole = tokenizer.encode_fast(sample, true).ok()?;
    let is_added = |at: &usize| whole.get_special_tokens_mask().get(*at) == Some(&1);
    let ids = whole.get_ids();
    let num_before = (0..ids.len()).take_while(is_added).count();
    let (before, rest) = ids.split_at(num_before);
    let (body, after) = rest.split_at_checked(bare.get_ids().len())?;
    (body == bare.get_ids()).then(|| Surround { before: before.to_vec(), after: after.to_vec() })
}
