//! Entries of several lines, in an editor and in a pipe. A line continues in the next one after a
//! `\` at its end, and everything between `"""` and `"""` is one entry.

const FENCE: &str = "\"\"\"";

/// Returns the text of `typed`, without the marks that join its lines. `None` if the entry
/// continues.
pub(super) fn complete(typed: &str) -> Option<String> {
    if let Some(inner) = typed.trim_start().strip_prefix(FENCE) {
        let text = inner.trim_end().strip_suffix(FENCE)?;
        return Some(text.trim_matches('\n').to_owned());
    }
    match typed.ends_with('\\') {
        true => None,
        false => Some(typed.replace("\\\n", "\n")),
    }
}

/// Returns the text of an incomplete entry at the end of input.
pub(super) fn cut_off(typed: &str) -> String {
    let text = typed.trim().trim_start_matches(FENCE).trim_end_matches('\\');
    text.replace("\\\n", "\n").trim_matches('\n').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_complete_unless_it_says_otherwise() {
        assert_eq!(complete("hello").as_deref(), Some("hello"));
        assert_eq!(complete("one \\"), None);
        assert_eq!(complete("one \\\ntwo").as_deref(), Some("one \ntwo"));
        assert_eq!(complete("one\\\ntwo\\\nthree").as_deref(), Some("one\ntwo\nthree"));
        assert_eq!(complete("C:\\dir").as_deref(), Some("C:\\dir"));
    }

    #[test]
    fn a_fence_holds_lines_together() {
        assert_eq!(complete("\"\"\""), None);
        assert_eq!(complete("\"\"\"one\n\ntwo\\"), None);
        assert_eq!(complete("\"\"\"\none\n\ntwo\n\"\"\"").as_deref(), Some("one\n\ntwo"));
        assert_eq!(complete("\"\"\"one\"\"\"").as_deref(), Some("one"));
    }

    #[test]
    fn the_end_of_input_ends_an_entry() {
        assert_eq!(cut_off("\"\"\"one\ntwo\n"), "one\ntwo");
        assert_eq!(cut_off("one \\\ntwo\\"), "one \ntwo");
    }
}
