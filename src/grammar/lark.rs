//! Pieces of llguidance's grammar language, a kind of Lark.

use super::{ascii_classes::with_ascii_classes, vocabulary::Vocabulary};

/// Returns `text` as a string literal.
pub(super) fn quoted(text: &str) -> String {
    let mut literal = String::with_capacity(text.len() + 2);
    literal.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => literal.extend(['\\', c]),
            '\0'..='\x1f' | '\x7f' => literal.push_str(&format!("\\u{:04x}", c as u32)),
            c => literal.push(c),
        }
    }
    literal.push('"');
    literal
}

/// Returns `text` as a sequence of literals and special tokens, because a special token is no text,
/// whatever its spelling. The result is never empty: for an empty text it is the literal `""`.
pub(super) fn spelled(text: &str, vocabulary: &Vocabulary) -> String {
    let mut parts = Vec::new();
    // `start` begins the text that is not written yet, and `rest` the text that is not examined
    // yet.
    let (mut start, mut rest) = (0, text);
    while let Some(c) = rest.chars().next() {
        let place = text.len() - rest.len();
        let Some((len, token)) = vocabulary.special_at(rest) else {
            rest = &rest[c.len_utf8()..];
            continue;
        };
        if start < place {
            parts.push(quoted(&text[start..place]));
        }
        parts.push(format!("<[{token}]>"));
        (start, rest) = (place + len, &rest[len..]);
    }
    if start < text.len() || parts.is_empty() {
        parts.push(quoted(&text[start..]));
    }
    parts.join(" ")
}

/// Returns a regular expression as a literal, with ASCII classes.
pub(super) fn regex(pattern: &str) -> String {
    // An empty regular expression would begin a comment.
    match pattern {
        "" => "\"\"".to_owned(),
        pattern => {
            let ascii = with_ascii_classes(pattern);
            format!("/{}/", llguidance::regex_to_lark(&ascii, ""))
        }
    }
}
