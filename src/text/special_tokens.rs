//! The special tokens according to all files of a tokenizer.
//!
//! transformers adds the tokens that the config declares to those of `tokenizer.json`, in the order
//! of their declared ids. A known token keeps its id, and a new one gets the next. Every token that
//! has a role (EOS, padding) becomes a special one.

use std::path::Path;

use tokenizers::{AddedToken, Tokenizer};

use super::error::TextLoadError;
use super::tokenizer_files::TokenizerFiles;

/// Adds the declared tokens and marks the special ones.
pub(super) fn apply(
    tokenizer: &mut Tokenizer,
    files: &TokenizerFiles,
    tokenizer_path: &Path,
) -> Result<(), TextLoadError> {
    let failed = |error: tokenizers::Error| TextLoadError::Tokenizer {
        path: tokenizer_path.to_owned(),
        reason: error.to_string(),
    };
    // The flags of the config replace those of a known token. A token of the vocabulary becomes an
    // added one. All are added at once, because each call prepares the search for all of them.
    let declared = files.declared_tokens.iter().filter(|declared| {
        declared.has_flags || tokenizer.token_to_id(&declared.token.content).is_none()
    });
    let declared: Vec<AddedToken> = declared.map(|declared| declared.token.clone()).collect();
    tokenizer.add_tokens(declared).map_err(failed)?;
    for declared in &files.declared_tokens {
        let content = &declared.token.content;
        if let Some(actual) = tokenizer.token_to_id(content).filter(|id| *id != declared.id) {
            tracing::warn!(
                path = %declared.path.display(),
                token = %content,
                declared = declared.id,
                actual,
                "a token has another id than the file declares"
            );
        }
    }
    for content in files.named_tokens.values().chain(&files.extra_special_tokens) {
        // A token that the vocabulary lacks can be neither read nor generated.
        if let Some(id) = tokenizer.token_to_id(content)
            && !is_special(tokenizer, content)
        {
            let known = tokenizer.get_added_vocabulary().get_added_tokens_decoder().get(&id);
            let mut token =
                known.cloned().unwrap_or_else(|| AddedToken::from(content.clone(), true));
            token.special = true;
            tokenizer.add_special_tokens([token]).map_err(failed)?;
        }
    }
    Ok(())
}

fn is_special(tokenizer: &Tokenizer, content: &str) -> bool {
    tokenizer.get_added_vocabulary().is_special_token(content)
}
