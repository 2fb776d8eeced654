//! The form of a text in which pieces are found: replaced characters, and spaces as `▁`.

use super::model_file::{ModelFile, ModelFileError};
use super::trie::Trie;

/// The character in the place of a space.
const SPACE: &str = "▁";

/// A text in the model's form.
#[derive(Debug)]
pub(super) struct Normalized {
    pub(super) text: String,
    /// The place in the original text of each byte, and of the end.
    pub(super) origins: Vec<usize>,
}

/// The rules of a model.
#[derive(Debug)]
pub(super) struct Normalizer {
    rules: Option<CharsMap>,
    add_dummy_prefix: bool,
    remove_extra_whitespaces: bool,
    escape_whitespaces: bool,
    space_is_suffix: bool,
}

impl Normalizer {
    pub(super) fn new(file: &ModelFile) -> Result<Self, ModelFileError> {
        let map = &file.precompiled_charsmap;
        Ok(Self {
            rules: if map.is_empty() { None } else { Some(CharsMap::read(map)?) },
            add_dummy_prefix: file.add_dummy_prefix,
            remove_extra_whitespaces: file.remove_extra_whitespaces,
            escape_whitespaces: file.escape_whitespaces,
            space_is_suffix: file.treat_whitespace_as_suffix,
        })
    }

    /// Returns the text in the model's form. `kept` has the pieces that no rule changes.
    pub(super) fn normalize(&self, text: &str, kept: &Trie) -> Normalized {
        let space = if self.escape_whitespaces { SPACE } else { " " };
        let mut to = Normalized { text: String::with_capacity(text.len()), origins: Vec::new() };
        let mut at = 0;
        if self.remove_extra_whitespaces {
            while let Some((" ", len)) = self.first(&text[at..], kept) {
                at += len;
            }
        }
        if at == text.len() {
            to.origins.push(at);
            return to;
        }
        if self.add_dummy_prefix && !self.space_is_suffix {
            to.push(space, at);
        }
        let mut is_behind_space = self.remove_extra_whitespaces;
        while let Some((mut found, len)) = self.first(&text[at..], kept) {
            if is_behind_space {
                found = found.trim_start_matches(' ');
            }
            for c in found.chars() {
                let mut utf8 = [0; 4];
                let c = if c == ' ' { space } else { c.encode_utf8(&mut utf8) };
                to.push(c, at);
            }
            if !found.is_empty() {
                is_behind_space = found.ends_with(' ');
            }
            is_behind_space &= self.remove_extra_whitespaces;
            at += len;
        }
        if self.remove_extra_whitespaces {
            while to.text.ends_with(space) {
                let len = to.text.len() - space.len();
                at = to.origins[len];
                to.text.truncate(len);
                to.origins.truncate(len);
            }
        }
        if self.add_dummy_prefix && self.space_is_suffix {
            to.push(space, at);
        }
        to.origins.push(at);
        to
    }

    /// Returns the form of the first characters, and their number of bytes. `None` at the end.
    fn first<'a>(&'a self, text: &'a str, kept: &Trie) -> Option<(&'a str, usize)> {
        let c = text.chars().next()?;
        if let Some((len, _)) = kept.prefixes(text.as_bytes()).last() {
            return Some((&text[..len], len));
        }
        let rule = self.rules.as_ref().and_then(|rules| rules.longest(text));
        Some(rule.unwrap_or((&text[..c.len_utf8()], c.len_utf8())))
    }
}

impl Normalized {
    fn push(&mut self, text: &str, origin: usize) {
        self.text.push_str(text);
        self.origins.resize(self.text.len(), origin);
    }
}

/// Replacements of characters. The file has them as a double array, whose values are places in
/// texts that end with NUL.
#[derive(Debug)]
struct CharsMap {
    units: Vec<u32>,
    texts: String,
}

impl CharsMap {
    fn read(bytes: &[u8]) -> Result<Self, ModelFileError> {
        let broken = || ModelFileError::Form("`precompiled_charsmap` is broken");
        let (size, rest) = bytes.split_first_chunk().ok_or_else(broken)?;
        let size = u32::from_le_bytes(*size) as usize;
        let (units, texts) = rest.split_at_checked(size).ok_or_else(broken)?;
        let (units, []) = units.as_chunks::<4>() else { return Err(broken()) };
        let texts = String::from_utf8(texts.to_vec()).map_err(|_| broken())?;
        Ok(Self { units: units.iter().map(|unit| u32::from_le_bytes(*unit)).collect(), texts })
    }

    /// Returns the replacement of the longest beginning that has one, and its number of bytes.
    fn longest(&self, text: &str) -> Option<(&str, usize)> {
        let (mut node, mut longest) = (offset(*self.units.first()?), None);
        for (at, byte) in text.bytes().enumerate() {
            node ^= usize::from(byte);
            let Some(&unit) = self.units.get(node) else { break };
            // A unit of a value has the highest bit, so it equals no byte.
            if unit & 0x8000_00ff != u32::from(byte) {
                break;
            }
            node ^= offset(unit);
            if unit & 0x100 != 0 {
                let value = self.units.get(node).map(|unit| (unit & 0x7fff_ffff) as usize);
                longest = value.map(|value| (value, at + 1)).or(longest);
            }
        }
        let (place, len) = longest?;
        // Rules replace whole characters.
        let rest = self.texts.get(place..).filter(|_| text.is_char_boundary(len))?;
        Some((rest.split('\0').next().unwrap_or(rest), len))
    }
}

/// Returns the distance from a unit to its children.
fn offset(unit: u32) -> usize {
    ((unit >> 10) << ((unit & 0x200) >> 6)) as usize
}
