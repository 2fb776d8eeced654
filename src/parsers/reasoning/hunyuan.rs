//! `<think>…</think>` of Hunyuan 3 and 4, whose prompts open or close the thoughts. In some models
//! the tags have a suffix, as in `<think:6124c78e>`, which the prompt shows.

use super::{
    parser::{ReasoningParser, ReasoningStart},
    tagged::{Place, TaggedFormat, TaggedReasoning},
};

const FORMAT: TaggedFormat = TaggedFormat {
    markers: &["<think>", "</think>"],
    num_starts: 1,
    num_ends: 1,
    place: Place::Beginning,
    thinks_unless_told: false,
    thinks_unless_prompted: false,
    special_tokens: true,
};

/// Returns the suffix of the prompt's last tag of thoughts, with its colon.
fn suffix(prompt: &str) -> Option<&str> {
    prompt.rsplit('<').find_map(|tag| {
        let (name, _) = tag.split_once('>')?;
        let suffix = name.strip_prefix('/').unwrap_or(name).strip_prefix("think")?;
        let is_suffix = suffix.starts_with(':') && !suffix.contains(char::is_whitespace);
        (suffix.is_empty() || is_suffix).then_some(suffix)
    })
}

pub(in super::super) fn hunyuan(start: &ReasoningStart<'_>) -> impl ReasoningParser + use<> {
    let prompt = start.prompt.unwrap_or_default();
    let suffix = suffix(prompt).filter(|suffix| !suffix.is_empty());
    let Some(suffix) = suffix else { return TaggedReasoning::new(&FORMAT, start) };
    let end = prompt.trim_end().strip_suffix('>').and_then(|prompt| prompt.strip_suffix(suffix));
    let plain = end.map(|prompt| format!("{prompt}>"));
    let start = ReasoningStart { prompt: plain.as_deref().or(start.prompt), ..*start };
    let markers = vec![format!("<think{suffix}>"), format!("</think{suffix}>")];
    TaggedReasoning::with_markers(&FORMAT, markers.into(), &start)
}
