//! The lookarounds of an expression, which the library that reads expressions does not know.
//!
//! Each lookaround is replaced by a marker: a character of no class, in a group of its own. Outside
//! a group, the library would join the marker with its neighbours to a set of characters.

use regex_syntax::hir::{self, ClassUnicode, ClassUnicodeRange, Hir, HirKind};

/// Most lookarounds of an expression.
pub(super) const LOOKAROUNDS_MAX: usize = 16;
/// The marker of the first lookaround. The others follow in order.
const FIRST_MARKER: u32 = 0x10_FF00;
/// The openings of lookarounds, and whether they look behind.
const OPENINGS: [(&str, bool); 4] =
    [("(?<!", true), ("(?<=", true), ("(?!", false), ("(?=", false)];

/// The characters that a lookaround seeks. Whether it is negated does not matter at a cut.
#[derive(Debug)]
pub(super) struct Lookaround {
    pub(super) is_behind: bool,
    /// The sought characters in a row: at most two ahead, or one behind.
    pub(super) sought: Vec<ClassUnicode>,
}

/// Returns the number of the lookaround that `c` stands for.
pub(super) fn marked_by(c: char) -> Option<usize> {
    let number = u32::from(c).checked_sub(FIRST_MARKER)? as usize;
    (number < LOOKAROUNDS_MAX).then_some(number)
}

/// Returns the expression with markers, and their lookarounds. `None` if one is not understood.
pub(super) fn taken_out(expression: &str) -> Option<(String, Vec<Lookaround>)> {
    let (mut marked, mut found) = (String::with_capacity(expression.len()), Vec::new());
    let mut at = 0;
    let mut is_in_set = false;
    while let Some(c) = expression.get(at..)?.chars().next() {
        let rest = &expression[at..];
        if marked_by(c).is_some() {
            return None;
        }
        let opening = OPENINGS.iter().find(|(opening, _)| !is_in_set && rest.starts_with(opening));
        if let Some(&(opening, is_behind)) = opening {
            let end = opening.len() + rest[opening.len()..].find(')')?;
            let sought = sought(&rest[opening.len()..end])?;
            let after = &rest[end + 1..];
            let begins = marked.is_empty() || marked.ends_with(['|', '(']);
            let ends = after.is_empty() || after.starts_with(['|', ')']);
            let is_repeated = after.starts_with(['*', '+', '?', '{']);
            let is_too_long = sought.len() > if is_behind { 1 } else { 2 };
            if (begins && ends) || is_repeated || is_too_long || found.len() == LOOKAROUNDS_MAX {
                return None;
            }
            let marker = char::from_u32(FIRST_MARKER + found.len() as u32)?;
            marked.extend(['(', marker, ')']);
            found.push(Lookaround { is_behind, sought });
            at += end + 1;
            continue;
        }
        let is_group = !is_in_set && rest.starts_with("(?");
        if is_group && !(rest.starts_with("(?:") || rest.starts_with("(?i:")) {
            return None;
        }
        match c {
            '\\' => {
                marked.push(c);
                at += 1;
                let escaped = expression[at..].chars().next()?;
                marked.push(escaped);
                at += escaped.len_utf8();
                continue;
            }
            // The libraries read a set within a set differently.
            '[' if is_in_set || rest.starts_with("[]") || rest.starts_with("[^]") => return None,
            '[' => is_in_set = true,
            ']' => is_in_set = false,
            _ => {}
        }
        marked.push(c);
        at += c.len_utf8();
    }
    Some((marked, found))
}

/// Returns the sets of characters in a row that a lookaround's expression consists of. The
/// expression ends at its first `)`, so one that holds another group does not parse.
fn sought(expression: &str) -> Option<Vec<ClassUnicode>> {
    let parsed = regex_syntax::parse(expression).ok()?;
    match parsed.kind() {
        HirKind::Concat(parts) => {
            let parts = parts.iter().map(characters).collect::<Option<Vec<_>>>()?;
            Some(parts.concat())
        }
        _ => characters(&parsed),
    }
}

fn characters(part: &Hir) -> Option<Vec<ClassUnicode>> {
    let only = |c| ClassUnicode::new([ClassUnicodeRange::new(c, c)]);
    match part.kind() {
        HirKind::Literal(literal) => {
            Some(std::str::from_utf8(&literal.0).ok()?.chars().map(only).collect())
        }
        HirKind::Class(hir::Class::Unicode(set)) => Some(vec![set.clone()]),
        _ => None,
    }
}
