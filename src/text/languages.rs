//! The tokens of languages in a tokenizer. Their spelling shows the class.

use std::collections::{BTreeMap, HashMap};

use playhouse_actors::logic::input::languages::{LanguagePlaces, Languages};
use playhouse_actors::ports::TextCodec;

/// Returns the languages of a tokenizer with these tokens, if one of them is beside each text or
/// may begin it. Tokens from `vocab_size` on do not
/// count.
pub(super) fn find(
    codec: &impl TextCodec,
    vocab: impl IntoIterator<Item = (String, u32)>,
    vocab_size: u32,
) -> Option<Languages> {
    let known = vocab.into_iter().filter(|(_, id)| *id < vocab_size);
    let vocab: HashMap<String, u32> = known.collect();
    // OPUS-MT: >>fra<<.
    let tokens = codes(&vocab, |token, _| {
        token.strip_prefix(">>")?.strip_suffix("<<").filter(|code| is_code(code))
    });
    if !tokens.is_empty() {
        return Some(Languages { tokens, places: LanguagePlaces::OutputBeforeText });
    }
    // M2M100: __fr__.
    let of_m2m100 = codes(&vocab, |token, _| {
        token.strip_prefix("__")?.strip_suffix("__").filter(|code| is_code(code))
    });
    // mBART: fr_XX. NLLB: fra_Latn.
    let with_region = codes(&vocab, |token, id| {
        (codec.is_special(id) && is_code_with_region(token)).then_some(token)
    });
    let (before, after) = around(codec)?;
    let is_around = |tokens: &BTreeMap<String, u32>| {
        before.iter().chain(&after).any(|token| tokens.values().any(|known| known == token))
    };
    let tokens = [of_m2m100, with_region].into_iter().find(is_around)?;
    Some(Languages { tokens, places: LanguagePlaces::TextAndOutput { before, after } })
}

fn codes<'v>(
    vocab: &'v HashMap<String, u32>,
    code: impl Fn(&'v str, u32) -> Option<&'v str>,
) -> BTreeMap<String, u32> {
    vocab.iter().filter_map(|(token, id)| Some((code(token, *id)?.to_owned(), *id))).collect()
}

/// Returns whether a text may be the code of a language: `fr`, `fra`, `cmn_Hans` or `pt_BR`.
fn is_code(text: &str) -> bool {
    let (language, rest) = text.split_once('_').unwrap_or((text, ""));
    (2..=3).contains(&language.len())
        && language.bytes().all(|byte| byte.is_ascii_lowercase())
        && rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Returns whether a text is a code with a region or a script.
fn is_code_with_region(text: &str) -> bool {
    let Some((_, rest)) = text.split_once('_') else { return false };
    is_code(text)
        && matches!(rest.len(), 2 | 4)
        && rest.starts_with(|c: char| c.is_ascii_uppercase())
        && rest.bytes().all(|byte| byte.is_ascii_alphabetic())
}

/// Returns the special tokens before and after a text.
fn around(codec: &impl TextCodec) -> Option<(Vec<u32>, Vec<u32>)> {
    const SAMPLE: &str = "a";
    let bare = codec.encode(SAMPLE, false).ok()?;
    let whole = codec.encode(SAMPLE, true).ok()?;
    let place = whole.windows(bare.len().max(1)).position(|window| window == bare)?;
    Some((whole[..place].to_vec(), whole[place + bare.len()..].to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_told_from_other_tokens() {
        for code in ["en", "fra", "cmn_Hans", "pt_BR", "zlm_Latn"] {
            assert!(is_code(code), "{code}");
        }
        for other in ["", "a", "Fra", "french", "extra_id", "_a", "12", "é"] {
            assert!(!is_code(other), "{other}");
        }
        for code in ["en_XX", "fra_Latn", "zh_CN"] {
            assert!(is_code_with_region(code), "{code}");
        }
        for other in ["en", "en_xx", "en_X", "fra_latn", "mask_1", "unk_Toke1"] {
            assert!(!is_code_with_region(other), "{other}");
        }
    }
}
