//! Classes of characters that tokenizers' expressions distinguish.
//!
//! Each class holds only characters that are old in Unicode, so that two libraries agree on them.
//! Form C changes none of them, and none combines with the character before it.

/// The class of a character in an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// A letter of a common script.
    Letter,
    /// An ASCII digit.
    Digit,
    /// A space.
    Space,
    /// A line feed.
    Newline,
    /// Punctuation.
    Punctuation,
}

impl Class {
    /// All classes, in the order of their bits.
    pub(super) const ALL: [Self; 5] =
        [Self::Letter, Self::Digit, Self::Space, Self::Newline, Self::Punctuation];

    /// Returns the class of a character, if it has one.
    pub(super) fn of(c: char) -> Option<Self> {
        let holds =
            |class: &Self| class.ranges().iter().any(|&(low, high)| (low..=high).contains(&c));
        Self::ALL.into_iter().find(holds)
    }

    /// Returns the characters of the class, in order.
    pub(super) fn ranges(self) -> &'static [(char, char)] {
        match self {
            Self::Letter => &[
                ('A', 'Z'),
                ('a', 'z'),
                ('À', 'Ö'),
                ('Ø', 'ö'),
                ('ø', '\u{24F}'),
                ('Α', 'Ρ'),
                ('Σ', 'ω'),
                ('\u{400}', '\u{481}'),
                ('\u{48A}', '\u{4FF}'),
                ('\u{5D0}', '\u{5EA}'),
                ('\u{621}', '\u{63A}'),
                ('\u{641}', '\u{64A}'),
                ('\u{904}', '\u{939}'),
                ('\u{E01}', '\u{E30}'),
                ('\u{3041}', '\u{3096}'),
                ('\u{30A1}', '\u{30FA}'),
                ('\u{4E00}', '\u{9FA5}'),
                ('\u{AC00}', '\u{D7A3}'),
            ],
            Self::Digit => &[('0', '9')],
            Self::Space => &[(' ', ' ')],
            Self::Newline => &[('\n', '\n')],
            Self::Punctuation => {
                &[('!', '/'), (':', '@'), ('[', '`'), ('{', '~'), ('、', '。'), ('，', '，')]
            }
        }
    }

    /// Returns the class's bit in a set of classes.
    pub(super) fn bit(self) -> u32 {
        1 << self as u8
    }
}
