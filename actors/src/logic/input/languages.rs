//! The languages of encoder-decoder models that translate: that of the text, and that of the
//! output.

use std::collections::BTreeMap;

use super::{encoder_text::EncoderText, fit::TruncationSide};
use crate::{error::RequestError, logic::request::ids::TokenId};

/// The request's fields.
const SOURCE: &str = "source_lang";
const TARGET: &str = "target_lang";
/// The most languages that an error lists.
const LISTED: usize = 12;

/// The languages of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Languages {
    /// The token of each language, by its code. At least one.
    pub tokens: BTreeMap<String, TokenId>,
    /// The places of these tokens.
    pub places: LanguagePlaces,
}

/// The places of the tokens of languages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LanguagePlaces {
    /// That of the text is among the special tokens around it, and that of the output begins the
    /// output. mBART, M2M100 and NLLB.
    TextAndOutput {
        /// The tokens before a text without a given language.
        before: Vec<TokenId>,
        /// The tokens after such a text.
        after: Vec<TokenId>,
    },
    /// That of the output is the first of the text. OPUS-MT.
    OutputBeforeText,
}

/// The languages that a request names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestLanguages {
    /// The language of the text.
    pub source: Option<String>,
    /// The language of the output.
    pub target: Option<String>,
}

/// The tokens around a text and before an output in the languages of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LanguageTokens {
    /// The special tokens before and after the text, in the place of the tokenizer's own.
    pub around: Option<(Vec<TokenId>, Vec<TokenId>)>,
    /// A token before the text and its special tokens.
    pub before_text: Option<TokenId>,
    /// The tokens with which the decoder begins.
    pub decoder_prompt: Vec<TokenId>,
}

impl RequestLanguages {
    /// Returns whether the request names none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.source.is_none() && self.target.is_none()
    }

    /// Returns an error for the first language that is named, with the accepted value.
    ///
    /// # Errors
    /// [`RequestError::InvalidParameter`] if one is named.
    pub fn refuse(&self, accepted: &str) -> Result<(), RequestError> {
        let named = [(SOURCE, &self.source), (TARGET, &self.target)];
        match named.into_iter().find_map(|(field, code)| Some((field, code.as_ref()?))) {
            Some((field, code)) => Err(RequestError::invalid(field, code, accepted)),
            None => Ok(()),
        }
    }

    /// Returns the tokens for a request to a model with the encoder `text`.
    ///
    /// # Errors
    /// [`RequestError::InvalidParameter`] for a language that the model lacks.
    pub fn tokens(&self, text: &EncoderText) -> Result<LanguageTokens, RequestError> {
        let mut found =
            LanguageTokens { decoder_prompt: text.decoder_prompt.clone(), ..Default::default() };
        let Some(languages) = &text.languages else {
            self.refuse("unset, because the model has no languages")?;
            return Ok(found);
        };
        let target = self.target.as_ref().map(|code| languages.token(TARGET, code)).transpose()?;
        match &languages.places {
            LanguagePlaces::OutputBeforeText => {
                let source = Self { target: None, ..self.clone() };
                source.refuse("unset, because the model finds the language of a text itself")?;
                found.before_text = target;
            }
            LanguagePlaces::TextAndOutput { before, after } => {
                if let Some(code) = &self.source {
                    let source = languages.token(SOURCE, code)?;
                    let with = |tokens: &[TokenId]| {
                        let is_language = |token| languages.has(token);
                        let swap = |token| if is_language(token) { source } else { token };
                        tokens.iter().copied().map(swap).collect()
                    };
                    found.around = Some((with(before), with(after)));
                }
                if let Some(target) = target {
                    // A model for one language begins with it, and others have it second.
                    found.decoder_prompt.pop_if(|token| languages.has(*token));
                    found.decoder_prompt.push(target);
                }
            }
        }
        Ok(found)
    }
}

impl LanguageTokens {
    /// Returns the tokens of a text with the tokens around it. The text has been tokenized without
    /// special tokens if [`LanguageTokens::around`] is set. If only `kept` tokens may stay, those
    /// of the text are dropped, at the end `dropped`.
    #[must_use]
    pub fn surround(
        &self,
        mut text: Vec<TokenId>,
        kept: Option<usize>,
        dropped: TruncationSide,
    ) -> Vec<TokenId> {
        if self.around.is_none() && self.before_text.is_none() {
            return text;
        }
        let (before, after) = self.around.clone().unwrap_or_default();
        let num_around = before.len() + after.len() + usize::from(self.before_text.is_some());
        let room = kept.map_or(text.len(), |kept| kept.saturating_sub(num_around));
        match dropped {
            TruncationSide::Right => text.truncate(room),
            TruncationSide::Left => drop(text.drain(..text.len().saturating_sub(room))),
        }
        self.before_text.into_iter().chain(before).chain(text).chain(after).collect()
    }
}

impl Languages {
    fn has(&self, token: TokenId) -> bool {
        self.tokens.values().any(|known| *known == token)
    }

    fn token(&self, field: &str, code: &str) -> Result<TokenId, RequestError> {
        self.tokens.get(code).copied().ok_or_else(|| {
            let listed: Vec<&str> = self.tokens.keys().take(LISTED).map(String::as_str).collect();
            let rest = match self.tokens.len().saturating_sub(LISTED) {
                0 => String::new(),
                more => format!(", and {more} more"),
            };
            let accepted = format!("a language of the model: {}{rest}", listed.join(", "));
            RequestError::invalid(field, format!("{code:?}"), accepted)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `</s>` is 2, and languages are 5 to 20.
    fn text(places: LanguagePlaces, decoder_prompt: &[TokenId]) -> EncoderText {
        let codes = (5..=20).map(|token| (format!("l{token:02}"), token));
        EncoderText {
            max_tokens: 8,
            vocab_size: 30,
            decoder_prompt: decoder_prompt.to_vec(),
            languages: Some(Languages { tokens: codes.collect(), places }),
        }
    }

    fn behind() -> LanguagePlaces {
        LanguagePlaces::TextAndOutput { before: vec![], after: vec![2, 5] }
    }

    fn named(source: Option<&str>, target: Option<&str>) -> RequestLanguages {
        RequestLanguages { source: source.map(str::to_owned), target: target.map(str::to_owned) }
    }

    #[test]
    fn the_source_is_beside_the_text_and_the_target_first_in_the_output() {
        let found = named(Some("l07"), Some("l08")).tokens(&text(behind(), &[2])).unwrap();
        assert_eq!(found.around, Some((vec![], vec![2, 7])));
        assert_eq!((found.before_text, found.decoder_prompt), (None, vec![2, 8]));
        let before = LanguagePlaces::TextAndOutput { before: vec![5], after: vec![2] };
        let found = named(Some("l07"), None).tokens(&text(before, &[2, 6])).unwrap();
        assert_eq!((found.around, found.decoder_prompt), (Some((vec![7], vec![2])), vec![2, 6]));
    }

    #[test]
    fn a_text_is_cut_and_its_languages_stay() {
        let found = named(Some("l07"), None).tokens(&text(behind(), &[2])).unwrap();
        let cut = |kept, side| found.surround(vec![20, 21, 22], kept, side);
        assert_eq!(cut(None, TruncationSide::Right), [20, 21, 22, 2, 7]);
        assert_eq!(cut(Some(4), TruncationSide::Right), [20, 21, 2, 7]);
        assert_eq!(cut(Some(3), TruncationSide::Left), [22, 2, 7]);
        assert_eq!(cut(Some(1), TruncationSide::Left), [2, 7]);
    }

    #[test]
    fn a_target_takes_the_place_of_the_models() {
        let tokens = |prompt: &[_]| named(None, Some("l08")).tokens(&text(behind(), prompt));
        assert_eq!(tokens(&[2, 6]).unwrap().decoder_prompt, [2, 8]);
        assert_eq!(tokens(&[6]).unwrap().decoder_prompt, [8]);
        assert_eq!(tokens(&[2]).unwrap().around, None);
    }

    #[test]
    fn a_target_may_be_before_the_text() {
        let text = text(LanguagePlaces::OutputBeforeText, &[9]);
        let found = named(None, Some("l08")).tokens(&text).unwrap();
        assert_eq!((found.before_text, found.decoder_prompt), (Some(8), vec![9]));
        let error = named(Some("l08"), None).tokens(&text).unwrap_err().to_string();
        assert!(error.contains("source_lang") && error.contains("itself"), "{error}");
    }

    #[test]
    fn other_languages_are_refused() {
        let error = |languages: RequestLanguages, text: &EncoderText| {
            languages.tokens(text).unwrap_err().to_string()
        };
        let many = text(behind(), &[2]);
        let unknown = error(named(None, Some("klingon")), &many);
        assert!(unknown.contains("target_lang") && unknown.contains("\"klingon\""), "{unknown}");
        assert!(unknown.contains("l05, l06") && unknown.contains("and 4 more"), "{unknown}");
        assert!(error(named(Some("x"), Some("l08")), &many).contains("source_lang"));
        let none = EncoderText { languages: None, ..many };
        assert!(error(named(Some("l07"), None), &none).contains("no languages"));
        assert_eq!(named(None, None).tokens(&none).unwrap().decoder_prompt, [2]);
    }
}
