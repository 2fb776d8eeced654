//! The prose of a Markdown document.

use super::sentences::Paragraph;

/// Returns the paragraphs of `text` without code blocks, tables, HTML comments and link targets.
pub(crate) fn paragraphs(text: &str) -> Vec<Paragraph> {
    let (mut found, mut current, mut in_code) = (Vec::new(), Paragraph::default(), false);
    for (line, number) in text.lines().zip(1..) {
        let prose = line.trim();
        let is_fence = prose.starts_with("```");
        in_code ^= is_fence;
        let is_list = prose.starts_with("- ")
            || prose.split_once(". ").is_some_and(|(number, _)| number.parse::<u32>().is_ok());
        let is_apart = prose.is_empty() || is_fence || prose.starts_with(['#', '|', '<']);
        if (is_list || is_apart || in_code) && !current.is_empty() {
            found.push(std::mem::take(&mut current));
        }
        if in_code || is_apart {
            continue;
        }
        current.push(number, &without_targets(prose), line.chars().count());
    }
    if !current.is_empty() {
        found.push(current);
    }
    found
}

/// Returns `prose` with `[text](target)` as `text`.
fn without_targets(prose: &str) -> String {
    let (mut kept, mut rest) = (String::new(), prose);
    while let Some((before, after)) = rest.split_once("](") {
        kept.push_str(before);
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    kept.push_str(rest);
    kept.replace('[', "")
}
