//! Parameters of a function as XML, or as text between tags if that is not well-formed: MiniCPM5.

use std::collections::BTreeSet;

/// Deepest nesting of elements.
const MAX_DEPTH: usize = 60;

const CDATA: &str = "<![CDATA[";
const CDATA_END: &str = "]]>";

/// Names and texts of parameters, in the order of the text.
pub(super) type Params = Vec<(String, String)>;

/// Returns the parameters in a function's body, whose opening tag goes on with `attributes` after
/// its name. `None` if a parameter lacks its name.
pub(super) fn params(attributes: &str, body: &str) -> Option<Params> {
    let is_element = self::attributes(attributes).is_some();
    match is_element.then(|| elements(body)).flatten() {
        Some(params) => params.into_iter().map(|(name, text)| Some((name?, text))).collect(),
        None => tagged(body),
    }
}

/// An open element.
struct Open {
    tag: String,
    /// The name of a parameter, if it has one.
    name: Option<String>,
    /// The text before its first child.
    text: String,
    has_child: bool,
}

/// Reads XML elements. Returns the parameters among them: those of the function, or else those of
/// its element `arguments`. `None` if the text is not well-formed.
fn elements(body: &str) -> Option<Vec<(Option<String>, String)>> {
    let (mut direct, mut nested) = (Vec::new(), Vec::new());
    let mut open: Vec<Open> = Vec::new();
    let mut rest = body;
    while let Some(c) = rest.chars().next() {
        let mut text = String::new();
        if let Some(after) = rest.strip_prefix(CDATA) {
            let (words, after) = after.split_once(CDATA_END)?;
            text.push_str(words);
            rest = after;
        } else if let Some(after) = rest.strip_prefix("<!--") {
            rest = after.split_once("-->")?.1;
        } else if let Some(after) = rest.strip_prefix("</") {
            let (tag, after) = after.split_once('>')?;
            let element = open.pop().filter(|element| element.tag == tag.trim_end())?;
            close(element, &open, &mut direct, &mut nested);
            rest = after;
        } else if let Some(after) = rest.strip_prefix('<') {
            if let Some(parent) = open.last_mut() {
                parent.has_child = true;
            }
            let (element, is_closed, after) = opening(after)?;
            if is_closed {
                close(element, &open, &mut direct, &mut nested);
            } else {
                open.push(element);
            }
            rest = after;
        } else if let Some(after) = rest.strip_prefix('&') {
            let (name, after) = after.split_once(';')?;
            text.push(entity(name)?);
            rest = after;
        } else {
            let is_text = c >= ' ' || matches!(c, '\t' | '\n' | '\r');
            text.push(is_text.then_some(c)?);
            rest = &rest[c.len_utf8()..];
        }
        if let Some(element) = open.last_mut().filter(|element| !element.has_child) {
            element.text.push_str(&text);
        }
        if open.len() > MAX_DEPTH {
            return None;
        }
    }
    let params = if direct.is_empty() { nested } else { direct };
    open.is_empty().then_some(params)
}

/// Adds an element to the parameters, if it is one.
fn close(
    element: Open,
    parents: &[Open],
    direct: &mut Vec<(Option<String>, String)>,
    nested: &mut Vec<(Option<String>, String)>,
) {
    if element.tag == "param" {
        match parents {
            [] => direct.push((element.name, element.text)),
            [parent] if parent.tag == "arguments" => nested.push((element.name, element.text)),
            _ => {}
        }
    }
}

/// Reads an opening tag after its `<`. Returns the element, whether it ends at once, and the text
/// after the tag.
fn opening(text: &str) -> Option<(Open, bool, &str)> {
    // A quoted value may hold the end of a tag.
    let mut quote = None;
    let end = text.find(|c: char| {
        match quote {
            Some(open) if c == open => quote = None,
            None if matches!(c, '"' | '\'') => quote = Some(c),
            _ => {}
        }
        c == '>' && quote.is_none()
    })?;
    let (tag, after) = (&text[..end], &text[end + 1..]);
    let (tag, is_closed) = match tag.strip_suffix('/') {
        Some(tag) => (tag, true),
        None => (tag, false),
    };
    let name_end = tag.find(char::is_whitespace).unwrap_or(tag.len());
    let (tag, rest) = tag.split_at(name_end);
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':' | '-' | '.');
    let begins = tag.starts_with(|c: char| c.is_alphabetic() || matches!(c, '_' | ':'));
    if !begins || !tag.chars().all(is_name) {
        return None;
    }
    let name = attributes(rest)?.into_iter().find(|(key, _)| key == "name");
    let name = name.map(|(_, name)| name).filter(|name| !name.is_empty());
    Some((
        Open { tag: tag.to_owned(), name, text: String::new(), has_child: false },
        is_closed,
        after,
    ))
}

/// Reads the attributes of a tag. `None` if they are not well-formed.
fn attributes(text: &str) -> Option<Vec<(String, String)>> {
    let (mut found, mut known) = (Vec::new(), BTreeSet::new());
    let mut rest = text;
    loop {
        let begin = rest.trim_start();
        if begin.is_empty() {
            return Some(found);
        }
        if begin.len() == rest.len() {
            return None;
        }
        let (key, after) = begin.split_once('=')?;
        let (key, after) = (key.trim_end(), after.trim_start());
        let quote = after.chars().next().filter(|c| matches!(c, '"' | '\''))?;
        let (value, after) = after[1..].split_once(quote)?;
        let is_name = !key.is_empty() && !key.contains(char::is_whitespace);
        if !is_name || value.contains('<') || !known.insert(key) {
            return None;
        }
        found.push((key.to_owned(), unescaped(value)?));
        rest = after;
    }
}

/// Returns `text` with its entities replaced.
fn unescaped(text: &str) -> Option<String> {
    let mut parts = text.split('&');
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, after) = part.split_once(';')?;
        whole.push(entity(name)?);
        whole.push_str(after);
    }
    Some(whole)
}

/// Returns the character that an entity stands for.
fn entity(name: &str) -> Option<char> {
    match name {
        "lt" => Some('<'),
        "gt" => Some('>'),
        "amp" => Some('&'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        _ => {
            let digits = name.strip_prefix('#')?;
            let code = match digits.strip_prefix('x') {
                Some(digits) => u32::from_str_radix(digits, 16),
                None => digits.parse(),
            };
            code.ok()
                .and_then(char::from_u32)
                .filter(|c| *c >= ' ' || matches!(c, '\t' | '\n' | '\r'))
        }
    }
}

/// Reads parameters between tags, in text that is no XML. White space around a value is layout.
fn tagged(body: &str) -> Option<Params> {
    const TAG: &str = "<param";
    const NAME: &str = "name=";
    let mut found = Vec::new();
    let mut next = 0;
    let mut has_end = true;
    let (mut tag_ends, mut names) = (Places::new(body, ">"), Places::new(body, NAME));
    for (begin, _) in body.match_indices(TAG) {
        let begin_of_rest = begin + TAG.len();
        let Some(end) = tag_ends.first_from(begin_of_rest) else { break };
        let name = names.first_from(begin_of_rest);
        if name.is_none_or(|name| name + NAME.len() > end) {
            return None;
        }
        // One within a value is text.
        if begin < next || !has_end {
            continue;
        }
        let Some(name) = quoted_name(&body[begin_of_rest..end]) else { continue };
        let Some((value, rest)) = body[end + 1..].split_once("</param>") else {
            has_end = false;
            continue;
        };
        let raw = value.strip_prefix(CDATA).and_then(|value| value.strip_suffix(CDATA_END));
        found.push((name.to_owned(), raw.unwrap_or(value.trim()).to_owned()));
        next = body.len() - rest.len();
    }
    Some(found)
}

/// The places of a word in a text, each found once.
struct Places<'a> {
    text: &'a str,
    word: &'static str,
    /// The last place found. `None`: there is no further one.
    place: Option<usize>,
}

impl<'a> Places<'a> {
    fn new(text: &'a str, word: &'static str) -> Self {
        Self { text, word, place: text.find(word) }
    }

    /// Returns the first place at `begin` or behind. `begin` must not become smaller.
    fn first_from(&mut self, begin: usize) -> Option<usize> {
        if self.place? < begin {
            let found = self.text.get(begin..).and_then(|rest| rest.find(self.word));
            self.place = found.map(|place| begin + place);
        }
        self.place
    }
}

/// Returns the name in a tag that has no other attribute.
fn quoted_name(tag: &str) -> Option<&str> {
    let quoted = tag.strip_prefix(char::is_whitespace)?.trim_start().strip_prefix("name=")?;
    let is_quote = |c: char| matches!(c, '"' | '\'');
    let name = quoted.strip_prefix(is_quote)?.strip_suffix(is_quote)?.trim();
    (!name.is_empty() && !name.contains(is_quote)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Option<Vec<(String, String)>> {
        params("", body)
    }

    /// The outcomes are those of Python's `xml.etree`, and of vLLM's expressions where it fails.
    #[test]
    fn parameters_are_elements_or_text_between_tags() {
        type Read<'a> = Option<&'a [(&'a str, &'a str)]>;
        let table: &[(&str, Read<'_>)] = &[
            ("", Some(&[])),
            (
                "<param name=\"a\"> b\n</param>\n<param name='c'/>",
                Some(&[("a", " b\n"), ("c", "")]),
            ),
            ("<param name=\"a\">1 &lt; 2 &amp;&#65;&#x42;</param>", Some(&[("a", "1 < 2 &AB")])),
            ("<param name=\"a\"><![CDATA[<b>&]]></param>", Some(&[("a", "<b>&")])),
            ("<param name=\"a\">x<b>y</b>z</param>", Some(&[("a", "x")])),
            ("<arguments><param name=\"a\">b</param></arguments>", Some(&[("a", "b")])),
            ("<!-- c --><param kind=\">\" name=\"a\">b</param>", Some(&[("a", "b")])),
            ("<param>b</param>", None),
            // No XML.
            ("<param name=\"a\"> 1 < 2 & 3 </param>", Some(&[("a", "1 < 2 & 3")])),
            ("<param name=\"a\"><![CDATA[ b ]]></param> & ", Some(&[("a", " b ")])),
            (
                "& <param kind=\"x\" name=\"a\">b</param><param name='c'>d</param>",
                Some(&[("c", "d")]),
            ),
            ("& <param>b</param>", None),
            ("<param name=\"a\">b", Some(&[])),
            ("<param name=\"a\">b</PARAM>", Some(&[])),
        ];
        for (body, expected) in table {
            let found = read(body);
            let found: Option<Vec<(&str, &str)>> = found
                .as_ref()
                .map(|found| found.iter().map(|(name, text)| (&**name, &**text)).collect());
            assert_eq!(found.as_deref(), *expected, "{body}");
        }
        let deep = |depth: usize| format!("{}{}", "<a>".repeat(depth), "</a>".repeat(depth));
        assert!(elements(&deep(MAX_DEPTH)).is_some() && elements(&deep(MAX_DEPTH + 1)).is_none());
    }

    /// A reader of quadratic time would need hours for these.
    #[test]
    fn long_bodies_are_read_in_linear_time() {
        const BYTES: usize = 1 << 20;
        let many = |part: &str| part.repeat(BYTES / part.len());
        let without_end = many("<param name='a'>");
        assert_eq!(read(&without_end), Some(Vec::new()));
        let without_name = format!("{without_end}<param>");
        assert_eq!(read(&without_name), None);
        let in_one_tag = format!("{}>", many("<param name='a'"));
        assert_eq!(read(&in_one_tag), Some(Vec::new()));
        let late_name = format!("{} name='a'>", many("<param"));
        assert_eq!(read(&late_name), Some(Vec::new()));
        let keys: String = (0..BYTES / 16).map(|key| format!(" k{key}='1'")).collect();
        let spaces = many(" ");
        assert_eq!(attributes(&format!("{keys}{spaces}")).unwrap().len(), BYTES / 16);
        assert_eq!(attributes(&format!("{keys} k0='1'")), None);
    }
}
