//! Drafts: the executors' settings, and the draft model or the head.

use std::{path::Path, sync::Arc};

use playhouse_actors::{
    logic::kv_cache::{KvKind, KvSpec},
    ports::TextCodec,
};
use playhouse_kernels::DeviceKind;

use super::StartError;
use crate::{
    config::{EngineConfig, SpeculativeMethod},
    executor::{DraftMethod, DraftSettings},
    gguf::is_gguf,
    model::{
        DraftHead, HeadMethod, KvWindow, LoadOptions, LoadProgress, Model, load_draft_head,
        load_model,
    },
    model_files,
    text::HfTextCodec,
};

/// Returns the settings of the executors.
pub(super) fn settings(config: &EngineConfig, device: DeviceKind) -> DraftSettings {
    let method = match config.speculative_config.as_ref().map(|config| &config.method) {
        None => DraftMethod::None,
        Some(SpeculativeMethod::Ngram(lookup)) => DraftMethod::Ngram(*lookup),
        Some(SpeculativeMethod::Suffix(suffix)) => DraftMethod::Suffix(*suffix),
        Some(SpeculativeMethod::DraftModel { .. } | SpeculativeMethod::Head { .. }) => {
            DraftMethod::Loaded
        }
    };
    DraftSettings {
        method,
        num_speculative_tokens: config.num_speculative_tokens(),
        num_jump_forward_tokens: config.num_jump_forward_tokens(device == DeviceKind::Cpu),
    }
}

/// Returns whether a model's tokens may be guessed. A wrong guess would stay in a state on a GPU,
/// whose kernels keep all tokens.
pub(super) fn has_guesses(kv_spec: &KvSpec, device: DeviceKind) -> bool {
    let has_states = kv_spec.groups.iter().any(|group| group.kind == KvKind::State);
    device == DeviceKind::Cpu || !has_states
}

/// Returns whether some layers have block tables of all tokens, which a drafter with a KV cache
/// needs.
pub(super) fn has_table(kv_spec: &KvSpec) -> bool {
    kv_spec.groups.iter().any(|group| group.kind == KvKind::Full)
}

/// Loads the draft model.
///
/// # Errors
/// [`StartError::NoDraftModel`] if it does not exist, and the errors of a model that cannot be
/// loaded.
pub(super) fn load(
    path: &Path,
    options: &LoadOptions,
    progress: &mut dyn FnMut(LoadProgress),
) -> Result<Arc<Model>, StartError> {
    let is_folder = model_files::exists(path) && !path.is_file();
    if !is_folder && !is_gguf(path) {
        return Err(StartError::NoDraftModel(path.to_owned()));
    }
    Ok(load_model(path, options, progress)?)
}

/// Loads a head for `model`. `path` is its folder, by default that of the model.
///
/// # Errors
/// [`StartError::NoDraftModel`] if it does not exist, and the errors of a head that does not fit.
pub(super) fn load_head(
    path: &Path,
    method: HeadMethod,
    model: &Arc<Model>,
    options: &LoadOptions,
    progress: &mut dyn FnMut(LoadProgress),
) -> Result<Arc<DraftHead>, StartError> {
    if !model_files::exists(path) {
        return Err(StartError::NoDraftModel(path.to_owned()));
    }
    Ok(load_draft_head(path, method, model, options, progress)?)
}

/// Checks that a draft model guesses tokens of `model`.
///
/// # Errors
/// [`StartError::DraftModel`] if the vocabularies differ, or if the draft model has layers with
/// states. [`StartError::Text`] if it has a tokenizer that cannot be loaded.
pub(super) fn check(
    path: &Path,
    draft: &Model,
    model: &Model,
    codec: &HfTextCodec,
) -> Result<(), StartError> {
    let refuse = |what: String| Err(StartError::DraftModel { path: path.to_owned(), what });
    let (own, of_model) = (draft.vocab_size, model.vocab_size);
    if own != of_model {
        return refuse(format!("its vocabulary has {own} tokens, and the model's {of_model}"));
    }
    if draft.kv_layers.windows.iter().any(|window| matches!(window, KvWindow::State(_))) {
        return refuse("it has layers with states, which cannot take guesses back".to_owned());
    }
    // A draft model may have no tokenizer of its own.
    if !path.is_file() && !HfTextCodec::is_in(path) {
        return Ok(());
    }
    let own = HfTextCodec::load(path)?;
    let num_tokens = u32::try_from(of_model).unwrap_or(u32::MAX);
    let differs = |&token: &u32| own.token_piece(token) != codec.token_piece(token);
    match (0..num_tokens).find(differs) {
        Some(token) => {
            let [own, of_model] =
                [own.token_piece(token), codec.token_piece(token)].map(Option::unwrap_or_default);
            refuse(format!("its token {token} is {own:?}, and the model's {of_model:?}"))
        }
        None => Ok(()),
    }
}
