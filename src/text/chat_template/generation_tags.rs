//! `{% generation %}`: transformers' mark around the assistant's text, for training masks.
//!
//! The tag renders nothing, but its body is a scope of its own, as that of `{% with %}` is.

/// Returns the same template with `with` in place of `generation`.
pub(super) fn neutralise(template: &str) -> String {
    let mut neutral = String::with_capacity(template.len());
    let mut rest = template;
    while let Some(start) = rest.find("{%") {
        let (before, tag) = rest.split_at(start + 2);
        neutral.push_str(before);
        rest = tag;
        if let Some((name_start, name, replacement)) = generation_tag(tag) {
            neutral.push_str(&tag[..name_start]);
            neutral.push_str(replacement);
            rest = &tag[name_start + name.len()..];
        }
    }
    neutral.push_str(rest);
    neutral
}

/// Returns the position of the name in a tag (`- generation -%}…`), the name, and its replacement.
fn generation_tag(tag: &str) -> Option<(usize, &'static str, &'static str)> {
    let body = tag.strip_prefix(['-', '+']).unwrap_or(tag).trim_start();
    let name_start = tag.len() - body.len();
    [("generation", "with"), ("endgeneration", "endwith")]
        .into_iter()
        .find(|(name, _)| {
            body.strip_prefix(name).is_some_and(|after| {
                let end = after.trim_start();
                end.strip_prefix(['-', '+']).unwrap_or(end).starts_with("%}")
            })
        })
        .map(|(name, replacement)| (name_start, name, replacement))
}

#[cfg(test)]
mod tests {
    use super::neutralise;

    #[test]
    fn only_the_tags_change() {
        let template = "{%- generation -%}a{% endgeneration %}{% if generation %}{%generation%}";
        let neutral = "{%- with -%}a{% endwith %}{% if generation %}{%with%}";
        assert_eq!(neutralise(template), neutral);
        let other = "{% set generations = 1 %}{{ '{%' }} add_generation_prompt";
        assert_eq!(neutralise(other), other);
    }
}
