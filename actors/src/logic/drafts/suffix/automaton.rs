//! A suffix automaton over token texts, built one token at a time, with the number of places at
//! which each substring ends.

use smallvec::SmallVec;

use crate::logic::request::ids::TokenId;

/// Index of a state. 0 is the empty substring.
type StateIndex = u32;

const ROOT: StateIndex = 0;
/// Most substrings that are counted again with each token, the longest first. A text of one
/// repeated token would otherwise take quadratic time.
const MAX_COUNTED: usize = 64;

/// Substrings that end at the same places, and continue alike.
#[derive(Debug, Clone)]
struct State {
    /// Length of the longest of them.
    len: u32,
    /// The state of the longest shorter substring that ends at more places. The root links to
    /// itself.
    link: StateIndex,
    /// Number of places at which they end.
    count: u32,
    /// The states after one more token, sorted by token.
    next: SmallVec<[(TokenId, StateIndex); 2]>,
}

/// All substrings of some texts.
#[derive(Debug, Clone)]
pub(super) struct Automaton {
    states: Vec<State>,
    /// The state of the whole current text.
    last: StateIndex,
    num_tokens: usize,
}

/// A substring of the texts: its state and its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Cursor {
    state: StateIndex,
    pub(super) len: usize,
}

impl Default for Automaton {
    fn default() -> Self {
        let root = State { len: 0, link: ROOT, count: 0, next: SmallVec::new() };
        Self { states: vec![root], last: ROOT, num_tokens: 0 }
    }
}

impl Cursor {
    /// Returns whether the substring is not empty.
    pub(super) fn is_match(self) -> bool {
        self.len > 0
    }
}

impl Automaton {
    /// Returns the number of tokens in all texts.
    pub(super) fn num_tokens(&self) -> usize {
        self.num_tokens
    }

    /// Begins another text.
    pub(super) fn begin_text(&mut self) {
        self.last = ROOT;
    }

    /// Appends a token to the current text.
    pub(super) fn push(&mut self, token: TokenId) {
        self.num_tokens += 1;
        let last = self.last;
        self.last = match self.step(last, token) {
            // Another text has this substring already.
            Some(there) => self.state_of_length(last, token, there),
            None => self.extend(last, token),
        };
        let mut state = self.last;
        for _ in 0..MAX_COUNTED {
            if state == ROOT {
                break;
            }
            self.states[state as usize].count += 1;
            state = self.states[state as usize].link;
        }
    }

    /// Appends a token. `end` is the longest end of the text that also ends earlier, at most `most`
    /// long. Returns the same after the token.
    pub(super) fn push_after(&mut self, end: Cursor, token: TokenId, most: usize) -> Cursor {
        let end = self.advance(end, token);
        self.push(token);
        self.cut(end, most)
    }

    /// Returns the last `most` tokens of a substring, in their own state.
    fn cut(&self, from: Cursor, most: usize) -> Cursor {
        let Cursor { mut state, len } = from;
        let len = len.min(most);
        loop {
            // A state may also have been split since the substring was found.
            let link = self.states[state as usize].link;
            if state == ROOT || (self.states[link as usize].len as usize) < len {
                return Cursor { state, len };
            }
            state = link;
        }
    }

    /// Returns a shorter end of a substring that occurs at more places.
    pub(super) fn shorter(&self, from: Cursor) -> Cursor {
        let state = self.states[from.state as usize].link;
        Cursor { state, len: self.states[state as usize].len as usize }
    }

    /// Returns the longest end of a substring and one more token that occurs in the texts.
    pub(super) fn advance(&self, from: Cursor, token: TokenId) -> Cursor {
        let Cursor { mut state, mut len } = from;
        loop {
            if let Some(next) = self.step(state, token) {
                return Cursor { state: next, len: len + 1 };
            }
            if state == ROOT {
                return Cursor::default();
            }
            state = self.states[state as usize].link;
            len = self.states[state as usize].len as usize;
        }
    }

    /// Returns the token that follows a substring most often, the substring with it, and the share
    /// of the continuations that begin with it.
    pub(super) fn likeliest(&self, from: Cursor) -> Option<(TokenId, Cursor, f64)> {
        let next = &self.states[from.state as usize].next;
        let count = |&(_, state): &(TokenId, StateIndex)| self.states[state as usize].count;
        let total: u32 = next.iter().map(count).sum();
        let &(token, state) = next.iter().max_by_key(|entry| count(entry))?;
        let share = f64::from(count(&(token, state))) / f64::from(total.max(1));
        Some((token, Cursor { state, len: from.len + 1 }, share))
    }

    fn step(&self, state: StateIndex, token: TokenId) -> Option<StateIndex> {
        let next = &self.states[state as usize].next;
        let place = next.binary_search_by_key(&token, |&(token, _)| token).ok()?;
        Some(next[place].1)
    }

    fn set_step(&mut self, state: StateIndex, token: TokenId, to: StateIndex) {
        let next = &mut self.states[state as usize].next;
        match next.binary_search_by_key(&token, |&(token, _)| token) {
            Ok(place) => next[place].1 = to,
            Err(place) => next.insert(place, (token, to)),
        }
    }

    fn add(&mut self, state: State) -> StateIndex {
        self.states.push(state);
        (self.states.len() - 1) as StateIndex
    }

    /// Adds the state of the text `last` with `token`, which no text has yet.
    fn extend(&mut self, last: StateIndex, token: TokenId) -> StateIndex {
        let len = self.states[last as usize].len + 1;
        let new = self.add(State { len, link: ROOT, count: 0, next: SmallVec::new() });
        let mut at = last;
        loop {
            if let Some(there) = self.step(at, token) {
                let link = self.state_of_length(at, token, there);
                self.states[new as usize].link = link;
                return new;
            }
            self.set_step(at, token, new);
            if at == ROOT {
                return new;
            }
            at = self.states[at as usize].link;
        }
    }

    /// Returns the state whose longest substring is that of `from` with `token`. `there` is the
    /// state after them, which is split if it has longer substrings.
    fn state_of_length(
        &mut self,
        from: StateIndex,
        token: TokenId,
        there: StateIndex,
    ) -> StateIndex {
        let len = self.states[from as usize].len + 1;
        if self.states[there as usize].len == len {
            return there;
        }
        let split = State { len, ..self.states[there as usize].clone() };
        let split = self.add(split);
        self.states[there as usize].link = split;
        let mut at = from;
        while self.step(at, token) == Some(there) {
            self.set_step(at, token, split);
            if at == ROOT {
                break;
            }
            at = self.states[at as usize].link;
        }
        split
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of_texts(texts: &[Vec<TokenId>]) -> Automaton {
        let mut automaton = Automaton::default();
        for text in texts {
            automaton.begin_text();
            text.iter().for_each(|&token| automaton.push(token));
        }
        automaton
    }

    fn occurrences(texts: &[Vec<TokenId>], part: &[TokenId]) -> usize {
        texts.iter().map(|text| text.windows(part.len()).filter(|at| at == &part).count()).sum()
    }

    proptest! {
        #[test]
        fn counts_and_matches_are_those_of_a_search(
            texts in prop::collection::vec(prop::collection::vec(0..3_u32, 1..14), 1..4),
            sought in prop::collection::vec(0..3_u32, 1..9),
        ) {
            let automaton = of_texts(&texts);
            let mut cursor = Cursor::default();
            for end in 1..=sought.len() {
                cursor = automaton.advance(cursor, sought[end - 1]);
                let lens = (1..=end).filter(|len| occurrences(&texts, &sought[end - len..end]) > 0);
                prop_assert_eq!(cursor.len, lens.max().unwrap_or(0));
                if cursor.is_match() {
                    let part = &sought[end - cursor.len..end];
                    let count = automaton.states[cursor.state as usize].count as usize;
                    prop_assert_eq!(count, occurrences(&texts, part));
                }
            }
            prop_assert!(automaton.states.len() <= 2 * automaton.num_tokens() + 1);
        }

        #[test]
        fn the_end_of_a_text_is_found_earlier_in_it(
            text in prop::collection::vec(0..3_u32, 1..20),
        ) {
            let (mut automaton, mut end) = (Automaton::default(), Cursor::default());
            for &token in &text {
                end = automaton.push_after(end, token, 5);
            }
            let before = [text[..text.len() - 1].to_vec()];
            let is_earlier = |len: &usize| occurrences(&before, &text[text.len() - len..]) > 0;
            let len = (1..text.len().min(6)).filter(is_earlier).max().unwrap_or(0);
            prop_assert_eq!(end.len, len);
            if end.is_match() {
                let count = automaton.states[end.state as usize].count as usize;
                let found = occurrences(std::slice::from_ref(&text), &text[text.len() - len..]);
                prop_assert_eq!(count, found);
            }
        }
    }

    #[test]
    fn a_text_of_one_token_takes_no_quadratic_time() {
        let (mut automaton, mut end) = (Automaton::default(), Cursor::default());
        (0..100_000).for_each(|_| end = automaton.push_after(end, 5, 24));
        assert_eq!((end.len, automaton.likeliest(end).unwrap().0), (24, 5));
    }
}
