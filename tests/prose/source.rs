//! The comments of a source or settings file.

use super::sentences::Paragraph;

/// Returns the comments of `text`. A comment is a line that begins with one of `markers`, the
/// longest first; neighbouring lines with one marker are a paragraph. Code blocks within a comment,
/// lists and headings begin a paragraph of their own.
pub(crate) fn paragraphs(text: &str, markers: &[&str]) -> Vec<Paragraph> {
    let (mut found, mut current) = (Vec::new(), Paragraph::default());
    let (mut last, mut in_code) = (None, false);
    for (line, number) in text.lines().zip(1..) {
        let trimmed = line.trim_start();
        // A script's first line names its interpreter.
        let is_interpreter = number == 1 && line.starts_with("#!/");
        let is_marked = |marker: &&&str| !is_interpreter && trimmed.starts_with(**marker);
        let marker = markers.iter().find(is_marked);
        let prose = marker.map(|marker| trimmed[marker.len()..].trim());
        if marker != last {
            in_code = false;
        }
        let is_fence = prose.is_some_and(|prose| prose.starts_with("```"));
        in_code ^= is_fence;
        let begins = prose.is_none_or(|prose| {
            prose.is_empty() || is_fence || prose.starts_with(['#', '-', '*', '|'])
        });
        if (marker != last || begins) && !current.is_empty() {
            found.push(std::mem::take(&mut current));
        }
        last = marker;
        let Some(prose) = prose else { continue };
        // Settings that are commented out, and tables, are no prose.
        let is_setting = *marker.unwrap_or(&"") == "#" && prose.contains(" = ");
        if !(in_code || is_fence || prose.is_empty() || prose.starts_with('|') || is_setting) {
            current.push(number, prose, line.chars().count());
        }
    }
    if !current.is_empty() {
        found.push(current);
    }
    found
}
