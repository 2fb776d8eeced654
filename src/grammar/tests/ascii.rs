//! `\d`, `\w` and `\s` in all contexts, compared with a simple matcher of ASCII classes.

use std::{collections::BTreeSet, sync::LazyLock};

use proptest::prelude::*;
use serde_json::json;

use super::*;

/// The characters that one item of a class, or one place of a pattern, matches.
#[derive(Debug, Clone, Copy)]
enum Atom {
    Char(char),
    Digit { negated: bool },
    Word { negated: bool },
    Space { negated: bool },
}

#[derive(Debug, Clone)]
enum Pattern {
    Atom(Atom),
    Dot,
    Class { atoms: Vec<Atom>, negated: bool },
    Sequence(Vec<Pattern>),
    Choice(Vec<Pattern>),
    Star(Box<Pattern>),
}

impl Atom {
    fn text(self) -> String {
        let pick = |negated: bool, class: &str, other: &str| {
            if negated { other.to_owned() } else { class.to_owned() }
        };
        match self {
            Self::Char('\n') => r"\n".to_owned(),
            Self::Char(c) if c.is_ascii_punctuation() => format!(r"\{c}"),
            Self::Char(c) => c.to_string(),
            Self::Digit { negated } => pick(negated, r"\d", r"\D"),
            Self::Word { negated } => pick(negated, r"\w", r"\W"),
            Self::Space { negated } => pick(negated, r"\s", r"\S"),
        }
    }

    /// Returns whether it matches `c`, by the rules of Python's `re.ASCII`.
    fn matches(self, c: char) -> bool {
        match self {
            Self::Char(own) => own == c,
            Self::Digit { negated } => c.is_ascii_digit() != negated,
            Self::Word { negated } => (c.is_ascii_alphanumeric() || c == '_') != negated,
            Self::Space { negated } => " \t\n\r\u{b}\u{c}".contains(c) != negated,
        }
    }
}

impl Pattern {
    fn text(&self) -> String {
        match self {
            Self::Atom(atom) => atom.text(),
            Self::Dot => ".".to_owned(),
            Self::Class { atoms, negated } => {
                let atoms: String = atoms.iter().map(|atom| atom.text()).collect();
                format!("[{}{atoms}]", if *negated { "^" } else { "" })
            }
            Self::Sequence(parts) => parts.iter().map(Self::text).collect(),
            Self::Choice(parts) => {
                let parts: Vec<String> = parts.iter().map(Self::text).collect();
                format!("(?:{})", parts.join("|"))
            }
            Self::Star(part) => format!("(?:{})*", part.text()),
        }
    }

    /// Returns the ends of all matches that begin at `start`.
    fn ends(&self, text: &[char], start: usize) -> BTreeSet<usize> {
        let one = |is_it: &dyn Fn(char) -> bool| {
            text.get(start).filter(|c| is_it(**c)).map(|_| start + 1).into_iter().collect()
        };
        match self {
            Self::Atom(atom) => one(&|c| atom.matches(c)),
            Self::Dot => one(&|c| c != '\n'),
            Self::Class { atoms, negated } => {
                one(&|c| atoms.iter().any(|atom| atom.matches(c)) != *negated)
            }
            Self::Sequence(parts) => parts.iter().fold([start].into(), |starts, part| {
                starts.into_iter().flat_map(|start| part.ends(text, start)).collect()
            }),
            Self::Choice(parts) => parts.iter().flat_map(|part| part.ends(text, start)).collect(),
            Self::Star(part) => {
                let (mut all, mut open) = (BTreeSet::from([start]), vec![start]);
                while let Some(start) = open.pop() {
                    open.extend(part.ends(text, start).into_iter().filter(|end| all.insert(*end)));
                }
                all
            }
        }
    }

    fn matches(&self, text: &str) -> bool {
        let text: Vec<char> = text.chars().collect();
        self.ends(&text, 0).contains(&text.len())
    }
}

/// ASCII and other digits, letters and spaces, and characters of one to four bytes.
const CHARS: [char; 14] =
    ['3', 'a', 'K', '_', ' ', '\n', '/', '-', '٣', 'é', '\u{a0}', '\u{2003}', '字', '😀'];

fn atom() -> impl Strategy<Value = Atom> {
    prop_oneof![
        prop::sample::select(&CHARS[..]).prop_map(Atom::Char),
        any::<bool>().prop_map(|negated| Atom::Digit { negated }),
        any::<bool>().prop_map(|negated| Atom::Word { negated }),
        any::<bool>().prop_map(|negated| Atom::Space { negated }),
    ]
}

fn pattern() -> impl Strategy<Value = Pattern> {
    let class = (prop::collection::vec(atom(), 1..4), any::<bool>());
    let leaf = prop_oneof![
        3 => atom().prop_map(Pattern::Atom),
        1 => Just(Pattern::Dot),
        3 => class.prop_map(|(atoms, negated)| Pattern::Class { atoms, negated }),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        let parts = prop::collection::vec(inner.clone(), 1..4);
        prop_oneof![
            parts.clone().prop_map(Pattern::Sequence),
            parts.prop_map(Pattern::Choice),
            inner.prop_map(|part| Pattern::Star(Box::new(part))),
        ]
    })
}

static STORE: LazyLock<GrammarStore> = LazyLock::new(store);

/// Returns whether `text` is an output of this format. A format that allows nothing is rejected, or
/// has no mask.
fn allows(format: OutputFormat, text: &str) -> bool {
    let Ok(mut matcher) = STORE.matcher(&format.into()) else { return false };
    for byte in text.bytes() {
        let is_allowed = matcher.mask().is_ok_and(|mask| mask.allows(byte.into()));
        if !is_allowed || matcher.consume(&[byte.into()]).is_err() {
            return false;
        }
    }
    matcher.mask().is_ok_and(|mask| mask.allows(EOS))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn classes_are_ascii_and_all_else_is_unicode(
        pattern in pattern(),
        texts in prop::collection::vec(
            prop::collection::vec(prop::sample::select(&CHARS[..]), 0..4), 6),
    ) {
        let regex = pattern.text();
        let schema = schema(json!({"type": "string", "pattern": format!("^(?:{regex})$")}));
        for text in texts {
            let text: String = text.into_iter().collect();
            let expected = pattern.matches(&text);
            let found = allows(OutputFormat::Regex(regex.clone()), &text);
            prop_assert_eq!(found, expected, "regex {} {:?}", regex, text);
            let lark = OutputFormat::Grammar(format!("start: X\nX: \"x\" /{regex}/"));
            prop_assert_eq!(allows(lark, &format!("x{text}")), expected, "lark {} {:?}", regex, text);
            let found = allows(schema.clone(), &json!(text).to_string());
            prop_assert_eq!(found, expected, "schema {} {:?}", regex, text);
        }
    }
}

#[test]
fn other_digits_letters_and_spaces_are_none() {
    check(OutputFormat::Regex(r"\d+".to_owned()), &["12"], &["1٣", "１"]);
    check(OutputFormat::Regex(r"\w[^\W\d]".to_owned()), &["1a", "__"], &["aé", "字a", "a1"]);
    check(OutputFormat::Regex(r"a\s\S".to_owned()), &["a\té", "a 😀"], &["a\u{a0}b", "a  "]);
    check(OutputFormat::Regex(r"(?u)\d".to_owned()), &["1", "٣"], &["a"]);
    let named = json!({"type": "object", "patternProperties": {r"^\s$": {"const": 1}},
                       "additionalProperties": {"const": 2}});
    check(schema(named), &["{\" \": 1}", "{\"\u{a0}\": 2}"], &["{\"\u{a0}\": 1}", "{\" \": 2}"]);
}
