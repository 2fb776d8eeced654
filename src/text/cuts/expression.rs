//! Matches that are impossible for an expression that cuts texts into words.
//!
//! A match always ends between two characters, whatever stands around them, under three conditions:
//!
//! - no match can hold the first one directly before the second,
//! - one of the two is always in a match,
//! - no lookaround finds anything across the two.
//!
//! All three are read from the expression. The first condition ignores lookarounds, which only adds
//! matches. The second ignores parts with a lookaround.

use regex_syntax::hir::{self, ClassUnicode, ClassUnicodeRange, Hir, HirKind};

use super::classes::Class;
use super::lookarounds::{LOOKAROUNDS_MAX, Lookaround, marked_by, taken_out};

/// Syntax that the two libraries read differently, and syntax that may match less than it could.
const NOT_READ: [&str; 8] = ["++", "*+", "?+", "&&", "--", "~~", "[[", "(?>"];

/// The facts about an expression.
#[derive(Debug)]
pub(super) struct Expression {
    facts: Facts,
    /// Classes whose characters are always in a match.
    covered: u32,
    lookarounds: Vec<Lookaround>,
}

/// A bit for each class, then one for each lookaround.
const NUM_BITS: usize = Class::ALL.len() + LOOKAROUNDS_MAX;

/// Returns the bit of a lookaround.
fn lookaround_bit(number: usize) -> u32 {
    1 << (Class::ALL.len() + number)
}

/// The facts about a part of an expression. Sets of classes and lookarounds are bits.
#[derive(Debug, Clone)]
struct Facts {
    /// The first and the last characters that a match may have.
    first: u32,
    last: u32,
    /// For each class, the classes that may follow it within a match.
    followers: [u32; NUM_BITS],
    is_nullable: bool,
    /// Whether it can match nothing in every context.
    is_always_nullable: bool,
    /// The characters that it matches by themselves in every context.
    alone: ClassUnicode,
}

impl Expression {
    /// Reads an expression. Returns `None` if no cut can be proven for it.
    pub(super) fn read(expression: &str) -> Option<Self> {
        // `{1,3}+` takes all or nothing. `\p{L}+` does not.
        let counts = expression.match_indices("}+").map(|(at, _)| &expression[..at]);
        let mut counts =
            counts.filter(|before| before.ends_with(|c: char| c == ',' || c.is_ascii_digit()));
        let is_read = !NOT_READ.iter().any(|part| expression.contains(part));
        if !is_read || counts.next().is_some() {
            return None;
        }
        let (marked, lookarounds) = taken_out(expression)?;
        let facts = Facts::of(&regex_syntax::parse(&marked).ok()?)?;
        if facts.is_nullable {
            return None;
        }
        let is_covered = |class: &Class| {
            let mut missing = class_set(*class);
            missing.difference(&facts.alone);
            missing.ranges().is_empty()
        };
        let covered = Class::ALL.iter().filter(|class| is_covered(class)).map(|class| class.bit());
        let covered = covered.fold(0, |all, bit| all | bit);
        Some(Self { facts, covered, lookarounds })
    }

    /// Returns whether a match always ends between the two, and each side is matched as it is
    /// alone.
    pub(super) fn parts(&self, before: Class, after: Class) -> bool {
        let followers = self.facts.followers[before as usize];
        let is_covered = self.covered & (before.bit() | after.bit()) != 0;
        let mut lookarounds = self.lookarounds.iter().enumerate();
        followers & after.bit() == 0
            && is_covered
            && !lookarounds.any(|(number, look)| self.may_find(number, look, before, after))
    }

    /// Returns whether a lookaround may find something that lies on both sides. With one side alone
    /// it would not find that.
    fn may_find(&self, number: usize, look: &Lookaround, before: Class, after: Class) -> bool {
        let follows = |at: usize, bit: u32| self.facts.followers[at] & bit != 0;
        let is_sought = |at: usize, class: Class| {
            look.sought.get(at).is_some_and(|set| classes_in(set) & class.bit() != 0)
        };
        if look.is_behind {
            return follows(Class::ALL.len() + number, after.bit()) && is_sought(0, before);
        }
        let from_cut = follows(before as usize, lookaround_bit(number)) && is_sought(0, after);
        from_cut || (is_sought(0, before) && is_sought(1, after))
    }
}

fn class_set(class: Class) -> ClassUnicode {
    let ranges = class.ranges().iter().map(|&(low, high)| ClassUnicodeRange::new(low, high));
    ClassUnicode::new(ranges)
}

fn classes_in(set: &ClassUnicode) -> u32 {
    let holds_some = |class: &&Class| {
        let mut common = class_set(**class);
        common.intersect(set);
        !common.ranges().is_empty()
    };
    Class::ALL.iter().filter(holds_some).map(|class| class.bit()).fold(0, |all, bit| all | bit)
}

impl Facts {
    fn empty() -> Self {
        let (is_nullable, is_always_nullable) = (true, true);
        let (first, last, followers) = (0, 0, [0; NUM_BITS]);
        let alone = ClassUnicode::empty();
        Self { first, last, followers, is_nullable, is_always_nullable, alone }
    }

    fn of(part: &Hir) -> Option<Self> {
        Some(match part.kind() {
            HirKind::Empty => Self::empty(),
            HirKind::Literal(literal) => {
                let text = std::str::from_utf8(&literal.0).ok()?;
                text.chars().map(Self::of_char).fold(Self::empty(), |all, c| all.then(&c))
            }
            HirKind::Class(hir::Class::Unicode(set)) => Self::of_set(set.clone()),
            HirKind::Class(hir::Class::Bytes(_)) | HirKind::Look(_) => return None,
            HirKind::Repetition(repeated) => {
                Self::of(&repeated.sub)?.repeated(repeated.min, repeated.max)
            }
            HirKind::Capture(group) => Self::of(&group.sub)?,
            HirKind::Concat(parts) => {
                let mut all = Self::empty();
                for part in parts {
                    all = all.then(&Self::of(part)?);
                }
                all
            }
            HirKind::Alternation(parts) => {
                let mut parts = parts.iter().map(Self::of);
                let mut all = parts.next()??;
                for part in parts {
                    all = all.or(&part?);
                }
                all
            }
        })
    }

    fn of_char(c: char) -> Self {
        if let Some(number) = marked_by(c) {
            let (first, last) = (lookaround_bit(number), lookaround_bit(number));
            return Self { first, last, is_always_nullable: false, ..Self::empty() };
        }
        Self::of_set(ClassUnicode::new([ClassUnicodeRange::new(c, c)]))
    }

    fn of_set(alone: ClassUnicode) -> Self {
        let classes = classes_in(&alone);
        let (first, last) = (classes, classes);
        let (is_nullable, is_always_nullable) = (false, false);
        Self { first, last, alone, is_nullable, is_always_nullable, ..Self::empty() }
    }

    fn follow(followers: &mut [u32], last: u32, first: u32) {
        for (class, followers) in followers.iter_mut().enumerate() {
            if last & (1 << class) != 0 {
                *followers |= first;
            }
        }
    }

    /// Returns the facts about this part followed by `next`.
    fn then(mut self, next: &Self) -> Self {
        for (own, others) in self.followers.iter_mut().zip(next.followers) {
            *own |= others;
        }
        Self::follow(&mut self.followers, self.last, next.first);
        let mut alone = ClassUnicode::empty();
        if next.is_always_nullable {
            alone.union(&self.alone);
        }
        if self.is_always_nullable {
            alone.union(&next.alone);
        }
        Self {
            first: if self.is_nullable { self.first | next.first } else { self.first },
            last: if next.is_nullable { self.last | next.last } else { next.last },
            followers: self.followers,
            is_nullable: self.is_nullable && next.is_nullable,
            is_always_nullable: self.is_always_nullable && next.is_always_nullable,
            alone,
        }
    }

    /// Returns the facts about this part or `other`.
    fn or(mut self, other: &Self) -> Self {
        for (own, others) in self.followers.iter_mut().zip(other.followers) {
            *own |= others;
        }
        self.first |= other.first;
        self.last |= other.last;
        self.is_nullable |= other.is_nullable;
        self.is_always_nullable |= other.is_always_nullable;
        self.alone.union(&other.alone);
        self
    }

    fn repeated(mut self, min: u32, max: Option<u32>) -> Self {
        if max != Some(1) {
            Self::follow(&mut self.followers, self.last, self.first);
        }
        if min > 1 && !self.is_always_nullable {
            self.alone = ClassUnicode::empty();
        }
        self.is_nullable |= min == 0;
        self.is_always_nullable |= min == 0;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPT2: &str =
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
    const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

    fn parts(expression: &str, pair: &str) -> bool {
        let classes: Vec<Class> = pair.chars().filter_map(Class::of).collect();
        let &[before, after] = classes.as_slice() else { panic!("{pair:?}") };
        Expression::read(expression).is_some_and(|known| known.parts(before, after))
    }

    #[test]
    fn words_end_before_a_space_and_where_the_kind_of_character_changes() {
        for expression in [GPT2, LLAMA3] {
            for pair in ["a ", "a\n", "1 ", ". ", "a1", "1a", "a."] {
                assert!(parts(expression, pair), "{expression} {pair:?}");
            }
            // A space goes with the word behind it, and spaces go together.
            for pair in [" a", "  ", " \n", "\n\n", "aa", "..", ".a"] {
                assert!(!parts(expression, pair), "{expression} {pair:?}");
            }
        }
        assert!(parts(GPT2, ".\n") && !parts(LLAMA3, ".\n"), "a line feed goes with a full stop");
    }

    /// The demo model's expression looks both ways.
    #[test]
    fn no_lookaround_finds_anything_across_the_end_of_a_word() {
        let demo = r#"'(?:ll|re|ve|[sdmt])(?!\p{L})|[a-z_]+(?="[:,}\]])| \p{L}+|\p{Lu}\p{Ll}+|(?<!["'\-\p{L}])\p{Ll}+|\p{L}|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"#;
        for pair in ["a ", "a\n", ". ", "1 ", ".\n", "1a", "a1"] {
            assert!(parts(demo, pair), "{pair:?}");
        }
        for pair in ["a.", ".a", "aa", " a"] {
            assert!(!parts(demo, pair), "{pair:?}");
        }
        assert!(parts(r"\p{L}|\p{N}", "a1"));
        assert!(!parts(r"\p{L}|(?<=\p{L})\p{N}", "a1"));
        assert!(!parts(r"\p{L}|\p{N}(?=\p{L}\p{N})", "a1"));
        // Alternatives that differ only in their lookarounds.
        let rest = r"\p{L}+|\d|\s";
        for looking in [r"(?:\s+(?!\S)|\s+(?=\d))", r"\s+(?:(?=\d)|[^a\d])", r"\s+(?:(?=\d)|b)"] {
            assert!(!parts(&format!("{looking}|{rest}"), " 1"), "{looking}");
        }
        assert!(parts(&format!(r"\s+|{rest}"), " 1"));
    }

    #[test]
    fn unknown_syntax_gives_no_cut() {
        for expression in [
            r"\p{L}++",
            r"\p{N}{1,3}+|\s+",
            r"^\p{L}+|\s+",
            r"\b\w+|\s",
            r"\p{L}*",
            r"(?=a|bc)\p{L}|\s",
            r"(?=a+)\p{L}|\s",
            r"(?<=ab)\p{L}|\s",
            r"(?!abc)\p{L}|\s",
            r"[\p{L}[0-9]]|\s",
            r"(?!a)|\p{L}|\s",
            r"(?!\S)+a|\s",
            r"(?m:.)",
            r"(\p{L})\1",
            "a(",
        ] {
            assert!(Expression::read(expression).is_none(), "{expression}");
        }
        assert!(!parts(r"x+", "a "), "neither is in a match");
        assert!(!parts(r"\p{L}+(?!\S)|\p{L}|\d", "a1"), "the end of a text looks like a space");
        assert!(!parts(r"\p{L}\p{L}|\s", "a1"), "a single letter may be in no match");
    }
}
