//! Drafts: the executors' settings, and the draft model or the head.

use std::{path::Path, sync::Arc};

use playhouse_actors::{
    logic::kv_cache::{KvKind, KvSpec},
    ports::TextCodec,
};
use playhouse_kernels::DeviceKind;

use super::StartError;
use crate::{
    config::{EngineConfig, SpeculativeConfig, SpeculativeMethod},
    executor::{DraftMethod, DraftSettings},
    gguf::is_gguf,
    model::{
        DraftHead, DrafterFacts, HeadMethod, KvWindow, LoadOptions, LoadProgress, Model,
        load_draft_head, load_model,
    },
    model_files,
    text::HfTextCodec,
};

/// Returns the settings with the facts that the config of a draft model or a head decides, as in
/// vLLM: its form where its name does not tell it, and the number of guesses where the settings
/// have none.
///
/// # Errors
/// [`StartError::DraftModel`] without a number of guesses, and the errors of a malformed config.
pub(super) fn resolved(mut config: EngineConfig) -> Result<EngineConfig, StartError> {
    let EngineConfig { model: target, speculative_config: Some(speculative), .. } = &mut config
    else {
        return Ok(config);
    };
    let path = match &speculative.method {
        SpeculativeMethod::DraftModel { model }
        | SpeculativeMethod::Head { model: Some(model), .. } => model.clone(),
        SpeculativeMethod::Ngram(_)
        | SpeculativeMethod::Suffix(_)
        | SpeculativeMethod::Head { model: None, .. } => return Ok(config),
    };
    let facts = DrafterFacts::read(&path)?;
    let mut num_guesses = facts.num_guesses;
    if let SpeculativeMethod::DraftModel { .. } = speculative.method {
        let has_own_layer = facts.has_mtp && path == *target;
        if let Some(method) = facts.head.or(has_own_layer.then_some(HeadMethod::Mtp)) {
            num_guesses = num_guesses.or((method == HeadMethod::Mtp).then_some(1));
            speculative.method = SpeculativeMethod::Head { method, model: Some(path.clone()) };
        }
    }
    if speculative.num_speculative_tokens == 0 {
        let most = SpeculativeConfig::MAX_SPECULATIVE_TOKENS;
        speculative.num_speculative_tokens = match num_guesses {
            Some(number) if (1..=most).contains(&number) => number,
            other => {
                let has = other.map_or("no number".to_owned(), |number| number.to_string());
                let what = format!(
                    "num_speculative_tokens is missing, and must be 1 to {most}; its config.json \
                     has {has}"
                );
                return Err(StartError::DraftModel { path, what });
            }
        };
    }
    Ok(config)
}

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

/// Checks that a draft model guesses tokens of `model`. Special tokens may differ. vLLM compares
/// the numbers of tokens alone.
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
    // Versions of a tokenizer name special tokens otherwise, and tokens that only fill the
    // vocabulary have no piece. A wrong one makes wrong guesses.
    let is_special = |token| own.is_special(token) || codec.is_special(token);
    let differs = |&token: &u32| match (own.token_piece(token), codec.token_piece(token)) {
        (Some(own), Some(of_model)) => own != of_model && !is_special(token),
        _ => false,
    };
    match (0..num_tokens).find(differs) {
        Some(token) => {
            let [own, of_model] =
                [own.token_piece(token), codec.token_piece(token)].map(Option::unwrap_or_default);
            refuse(format!("its token {token} is {own:?}, and the model's {of_model:?}"))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drafter(config: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.json"), config).unwrap();
        folder
    }

    fn resolved_with(
        model: &Path,
        draft: &Path,
        num_speculative_tokens: usize,
    ) -> Result<SpeculativeConfig, String> {
        let method = SpeculativeMethod::DraftModel { model: draft.to_owned() };
        let mut config = EngineConfig::new(model);
        config.speculative_config = Some(SpeculativeConfig::new(method, num_speculative_tokens));
        let config = resolved(config).map_err(|error| error.to_string())?;
        Ok(config.speculative_config.unwrap())
    }

    /// The rules of vLLM's `SpeculativeConfig.__post_init__`.
    #[test]
    fn the_config_of_a_drafter_has_its_form_and_its_number() {
        let head = drafter(
            r#"{"speculators_model_type": "eagle3",
                "speculators_config": {"proposal_methods": [{"speculative_tokens": 4}]}}"#,
        );
        let of =
            |method, model: &Path| SpeculativeMethod::Head { method, model: Some(model.into()) };
        let eagle3 = of(HeadMethod::Eagle3, head.path());
        let model = Path::new("m");
        assert_eq!(
            resolved_with(model, head.path(), 0),
            Ok(SpeculativeConfig::new(eagle3.clone(), 4))
        );
        assert_eq!(resolved_with(model, head.path(), 2), Ok(SpeculativeConfig::new(eagle3, 2)));
        let own = drafter(r#"{"model_type": "deepseek_v3", "num_nextn_predict_layers": 1}"#);
        let mtp = of(HeadMethod::Mtp, own.path());
        assert_eq!(resolved_with(own.path(), own.path(), 0), Ok(SpeculativeConfig::new(mtp, 1)));
        let plain = drafter(r#"{"model_type": "llama"}"#);
        let draft = SpeculativeMethod::DraftModel { model: plain.path().to_owned() };
        assert_eq!(resolved_with(model, plain.path(), 3), Ok(SpeculativeConfig::new(draft, 3)));
        let error = resolved_with(model, plain.path(), 0).unwrap_err();
        assert!(error.contains("num_speculative_tokens is missing"), "{error}");
        let large = drafter(r#"{"model_type": "mlp_speculator", "n_predict": 129}"#);
        let error = resolved_with(model, large.path(), 0).unwrap_err();
        assert!(error.contains("must be 1 to 128; its config.json has 129"), "{error}");
    }
}
