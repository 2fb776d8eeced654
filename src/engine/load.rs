//! The stages of a start: files, tokenizer and weights, a first step, the KV cache.

use std::{panic::resume_unwind, path::Path, sync::Arc, thread};

use playhouse_actors::{
    logic::kv_cache::KvSpec,
    ports::{ModelInfo, TextCodec},
};
use playhouse_kernels::{ComputeDevice, KvDtype, ThreadPool, device_memory};

use super::{
    DefaultSampling, LoadedModel, StartError, StartProgress, device, drafts, encoder_exchange,
    kv_blocks, media, pooling,
    start::{PoolerFacts, generation_config, kv_cache_dtype, quantization},
};
use crate::{
    config::{Convert, EngineConfig, Runner, SpeculativeMethod},
    executor::{
        AdapterStore, ComputeThreads, Constraints, DraftWeights, KvSettings, RunnerFactory, warm_up,
    },
    files,
    gguf::is_gguf,
    grammar::GrammarStore,
    model::{
        GenerationConfig, HeadMethod, LoadOptions, Model, ModelError, ModelRegistry,
        has_own_adapter, load_model, serves_text_alone,
    },
    model_files,
    text::HfTextCodec,
    token_rules::{TokenRuleRegistry, TokenRules, Vocabulary},
};

/// Everything that the actors need.
pub(super) struct Loaded {
    pub(super) model: LoadedModel,
    pub(super) executors: Arc<RunnerFactory>,
    /// The adapters, if requests may have some.
    pub(super) adapters: Option<Arc<AdapterStore>>,
    /// The grammars and token rules by which the executors constrain outputs. The grammars are
    /// compiled before an executor needs them.
    pub(super) constraints: Constraints,
}

/// The program's parts that the load uses.
pub(super) struct LoadRegistries {
    pub(super) families: ModelRegistry,
    pub(super) token_rules: TokenRuleRegistry,
}

/// Loads everything that the actors need. It blocks until the load ends.
///
/// # Errors
/// [`StartError`] of the first stage that fails.
pub(super) fn load(
    config: &EngineConfig,
    registries: LoadRegistries,
    progress: &mut dyn FnMut(StartProgress),
) -> Result<Loaded, StartError> {
    let LoadRegistries { families, token_rules } = registries;
    let mut start = Start::new(config, families, progress)?;
    let (codec, model) = start.read()?;
    let codec = codec.with_media_if(model.media.is_some());
    let generation = start.check(&codec, &model)?;
    let kv_cache_dtype = kv_cache_dtype(config.kv_cache_dtype, model.dtype);
    start.warm_up(&model, kv_cache_dtype)?;
    let kv_spec = kv_blocks::spec(&model, config.block_size, kv_cache_dtype);
    let draft = start.draft(&codec, &model, &kv_spec)?;
    let draft_block_bytes = draft.as_ref().map_or(0, |draft| {
        draft.kv_cache_shape(1, kv_spec.block_size).bytes(kv_cache_dtype) as u64
    });
    let device = &start.device;
    let num_blocks =
        kv_blocks::count(config, &model, &kv_spec, draft_block_bytes, kv_cache_dtype, device)?;
    let cache = KvCache { dtype: kv_cache_dtype, spec: kv_spec, num_blocks };
    let loaded = start.describe(codec, &model, &generation, cache);
    let token_rules = Arc::new(made(&token_rules, &loaded)?);
    let constraints = Constraints { grammars: start.grammars(&loaded), token_rules };
    let adapters = adapter_store(config, &model)?;
    let has_adapters = !config.lora_modules.is_empty() || config.default_mm_loras.is_some();
    if model.media.is_some() && !has_adapters && has_own_adapter(&config.model) {
        tracing::warn!(
            "the model was trained with an adapter for prompts with sounds (has_lora_adapter), \
             and none is loaded: set --lora-modules or default_mm_loras"
        );
    }
    let executors = start.executors(&loaded, model, draft, &constraints, &adapters)?;
    Ok(Loaded { model: loaded, executors, adapters, constraints })
}

/// The KV cache that the model gets.
struct KvCache {
    dtype: KvDtype,
    spec: KvSpec,
    num_blocks: usize,
}

/// The state that all stages of a start share.
struct Start<'a> {
    config: &'a EngineConfig,
    families: ModelRegistry,
    device: ComputeDevice,
    threads: ComputeThreads,
    progress: &'a mut dyn FnMut(StartProgress),
}

impl<'a> Start<'a> {
    /// Finds the model's files and the device, and starts the compute threads.
    fn new(
        config: &'a EngineConfig,
        families: ModelRegistry,
        progress: &'a mut dyn FnMut(StartProgress),
    ) -> Result<Self, StartError> {
        let is_folder = model_files::exists(&config.model) && !config.model.is_file();
        if !is_folder && !is_gguf(&config.model) {
            return Err(StartError::NoModel(config.model.clone()));
        }
        let device = device::choose(config.device)?;
        let threads = compute_threads(config)?;
        Ok(Self { config, families, device, threads, progress })
    }

    /// Reads the tokenizer and the weights at the same time, because a large vocabulary takes about
    /// as long as a gigabyte of weights.
    fn read(&mut self) -> Result<(HfTextCodec, Arc<Model>), StartError> {
        let (config, options) = (self.config, self.load_options());
        let (threads, progress) = (&self.threads, &mut *self.progress);
        let (codec, model) = thread::scope(|scope| {
            let reader = thread::Builder::new().name("playhouse-tokenizer".to_owned());
            let codec = reader.spawn_scoped(scope, || load_codec(config))?;
            let model = threads.on_queue(|| {
                load_model(&config.model, &options, &mut |p| progress(StartProgress::Weights(p)))
            });
            progress(StartProgress::Tokenizer);
            Ok((codec.join().unwrap_or_else(|panic| resume_unwind(panic)), model))
        })
        .map_err(StartError::Threads)?;
        // The fault of a model tells more than the tokenizer that its folder lacks.
        let model = model?;
        Ok((codec?, model))
    }

    /// Loads the draft model or the head, if the settings name one and the model can have guesses.
    fn draft(
        &mut self,
        codec: &HfTextCodec,
        model: &Arc<Model>,
        kv_spec: &KvSpec,
    ) -> Result<Option<DraftWeights>, StartError> {
        let has_guesses = drafts::has_guesses(kv_spec, self.device.kind);
        let Some(config) = &self.config.speculative_config else {
            if self.config.jump_forward == Some(true) && !has_guesses {
                tracing::warn!("no token is forced: a GPU takes no guess out of a state");
            }
            return Ok(None);
        };
        if let SpeculativeMethod::Head { method, model: path } = &config.method {
            return self.head(*method, path.as_deref(), model, kv_spec).map(Some);
        }
        if !has_guesses {
            tracing::warn!("no token is guessed: a GPU takes no guess out of a state");
            return Ok(None);
        }
        let SpeculativeMethod::DraftModel { model: path } = &config.method else {
            return Ok(None);
        };
        if !drafts::has_table(kv_spec) {
            tracing::warn!("the draft model is not loaded, because no layer reads all tokens");
            return Ok(None);
        }
        let options = self.draft_options();
        let progress = &mut *self.progress;
        let draft = self.threads.on_queue(|| {
            drafts::load(path, &options, &mut |p| progress(StartProgress::Weights(p)))
        })?;
        drafts::check(path, &draft, model, codec)?;
        Ok(Some(DraftWeights::Model(draft)))
    }

    /// Loads a head. One that does not fit the model is an error, because it was made for a model.
    fn head(
        &mut self,
        method: HeadMethod,
        path: Option<&Path>,
        model: &Arc<Model>,
        kv_spec: &KvSpec,
    ) -> Result<DraftWeights, StartError> {
        let path = path.unwrap_or(&self.config.model);
        let options = self.draft_options();
        let progress = &mut *self.progress;
        let head = self.threads.on_queue(|| {
            let progress = &mut |p| progress(StartProgress::Weights(p));
            drafts::load_head(path, method, model, &options, progress)
        })?;
        if !drafts::has_table(kv_spec) && !head.kv_layers.windows.is_empty() {
            let what = "no layer of the model reads all tokens, as the head does".to_owned();
            return Err(ModelError::DraftHead { path: path.to_owned(), what }.into());
        }
        Ok(DraftWeights::Head(head))
    }

    /// Returns the options of the draft model or the head. It is not quantized at load.
    fn draft_options(&self) -> LoadOptions {
        LoadOptions {
            quantization: None,
            max_model_len: {
                let speculative = self.config.speculative_config.as_ref();
                speculative.and_then(|config| config.max_model_len)
            },
            runner: Runner::Generate,
            convert: Convert::None,
            pooler: None,
            ..self.load_options()
        }
    }

    fn load_options(&self) -> LoadOptions {
        let config = self.config;
        LoadOptions {
            load_format: config.load_format,
            dtype: config.dtype,
            quantization: quantization(config),
            activation_quantization: config.activation_quantization,
            max_model_len: config.max_model_len,
            device: self.device.device.clone(),
            tensor_cores: device::tensor_cores(config),
            weights_cache: config.weights_cache.clone(),
            runner: config.runner,
            convert: config.convert,
            pooler: config.pooler_config.clone(),
            hf_overrides: config.hf_overrides.clone(),
            tokenizer: config.tokenizer.clone(),
            families: self.families.clone(),
        }
    }

    /// Checks that the tokenizer and the settings fit the model. Returns its sampling defaults and
    /// end-of-sequence tokens.
    fn check(&self, codec: &HfTextCodec, model: &Model) -> Result<GenerationConfig, StartError> {
        codec.check_vocab(model.vocab_size)?;
        self.config.validate_for(model.max_model_len)?;
        if model.kv_layers.windows.is_empty() {
            self.config.validate_for_whole_prompts(model.max_model_len)?;
        }
        generation_config(self.config)
    }

    /// Runs first steps if the device needs them.
    fn warm_up(&mut self, model: &Model, dtype: KvDtype) -> Result<(), StartError> {
        let (config, device, progress) = (self.config, &self.device, &mut *self.progress);
        let mut warmed =
            |steps, steps_total| progress(StartProgress::WarmUp { steps, steps_total });
        let warm_up = || warm_up(config, model, dtype, device, &mut warmed);
        let failed = |error: playhouse_kernels::KernelError| StartError::WarmUp {
            device: device.id.clone(),
            why: error.to_string(),
        };
        self.threads.run(warm_up).map_err(failed)
    }

    /// Collects the facts about the loaded model.
    fn describe(
        &self,
        codec: HfTextCodec,
        model: &Model,
        generation: &GenerationConfig,
        cache: KvCache,
    ) -> LoadedModel {
        let config = self.config;
        let kv_cache_bytes = cache.num_blocks as u64 * cache.spec.block_bytes();
        LoadedModel {
            info: ModelInfo {
                vocab_size: model.vocab_size as u32,
                max_model_len: model.max_model_len,
                kv_spec: cache.spec,
                num_blocks: cache.num_blocks,
                eos_token_ids: eos_token_ids(
                    codec.eos_token().map(|(_, id)| id),
                    &model.eos_token_ids,
                    generation,
                ),
                heads: pooling::heads(model),
                max_item_embeds: media::max_item_embeds(&codec),
                short_context: model.backbone.short_context(),
                attends_within_items: {
                    model.media.as_ref().is_some_and(|media| media.attends_within_items())
                },
                attends_within_prompts: {
                    model.media.as_ref().is_some_and(|media| media.attends_within_prompts())
                },
            },
            root: config.model_root(),
            architecture: model.architecture.clone(),
            serves_text_alone: serves_text_alone(&model.architecture),
            dtype: model.dtype,
            quantized_weights: model.quantized_weights.clone(),
            device: self.device.id.clone(),
            device_kind: self.device.kind,
            kv_cache_dtype: cache.dtype,
            kv_cache_bytes,
            default_sampling: DefaultSampling::from(generation),
            chat_templates: codec.chat_templates(),
            pooler: model.pooler.as_deref().map(PoolerFacts::of),
            codec: Arc::new(codec),
        }
    }

    /// Prepares the vocabulary for grammars.
    fn grammars(&mut self, loaded: &LoadedModel) -> Arc<GrammarStore> {
        (self.progress)(StartProgress::Grammars);
        let (codec, info) = (Arc::clone(&loaded.codec), &loaded.info);
        let grammars = GrammarStore::new(codec, info.vocab_size, info.eos_token_ids.clone())
            .with_any_whitespace_disabled(self.config.disable_any_whitespace)
            .with_additional_properties_disabled(self.config.disable_additional_properties);
        Arc::new(grammars)
    }

    /// Makes the executors' factory, which allocates the KV cache.
    fn executors(
        self,
        loaded: &LoadedModel,
        model: Arc<Model>,
        draft: Option<DraftWeights>,
        constraints: &Constraints,
        adapters: &Option<Arc<AdapterStore>>,
    ) -> Result<Arc<RunnerFactory>, StartError> {
        let device = self.device.device;
        let total_bytes = device_memory(&device).and_then(|memory| memory.total_bytes);
        let kv_settings = KvSettings {
            dtype: loaded.kv_cache_dtype,
            device,
            step_graph_bytes: self.config.step_graph_bytes(total_bytes),
        };
        (self.progress)(StartProgress::KvCache { bytes: loaded.kv_cache_bytes });
        let (info, constraints) = (loaded.info.clone(), constraints.clone());
        let of_draft = kv_settings.clone();
        let executors = RunnerFactory::new(model, info, kv_settings, constraints, self.threads)?;
        let executors = executors.with_adapters(adapters.clone());
        let executors = executors.with_exchange(encoder_exchange::open(self.config, loaded)?);
        let executors = executors.with_drafts(drafts::settings(self.config, loaded.device_kind));
        Ok(Arc::new(match draft {
            Some(draft) => executors.with_draft(draft, &of_draft)?,
            None => executors,
        }))
    }
}

/// Returns the store of adapters, if requests may have some.
fn adapter_store(
    config: &EngineConfig,
    model: &Model,
) -> Result<Option<Arc<AdapterStore>>, StartError> {
    if !config.enable_lora {
        return Ok(None);
    }
    if let Some(why) = model.adapter_sites.refusal() {
        let (setting, value) = ("enable_lora", "true");
        return Err(ModelError::Heads { setting, value, why }.into());
    }
    let capacity = config.max_cpu_loras.unwrap_or(config.max_loras);
    let sites = Arc::clone(&model.adapter_sites);
    Ok(Some(Arc::new(AdapterStore::new(sites, config.max_lora_rank, capacity))))
}

/// Makes the token rules for the loaded model.
fn made(rules: &TokenRuleRegistry, loaded: &LoadedModel) -> Result<TokenRules, StartError> {
    let LoadedModel { codec, info, .. } = loaded;
    let (vocab_size, eos_token_ids) = (info.vocab_size, &info.eos_token_ids[..]);
    Ok(rules.make(&Vocabulary { codec, vocab_size, eos_token_ids })?)
}

/// Returns the number of threads that compute in one engine: its part of all, at least one.
pub(crate) fn engine_threads(config: &EngineConfig) -> usize {
    let all = config.threads.unwrap_or_else(|| ThreadPool::common().num_threads());
    (all / config.data_parallel_size.max(1)).max(1)
}

fn compute_threads(config: &EngineConfig) -> Result<ComputeThreads, StartError> {
    if config.data_parallel_size > 1 {
        // Pinned ones of two engines would share a core.
        let count = engine_threads(config);
        return ComputeThreads::own(count, false).map_err(StartError::Threads);
    }
    if config.threads.is_none() && !config.pin_threads {
        return ComputeThreads::common().map_err(StartError::Threads);
    }
    let count = config.threads.unwrap_or_else(|| ThreadPool::common().num_threads());
    ComputeThreads::own(count, config.pin_threads).map_err(StartError::Threads)
}

/// Loads the tokenizer, with the processor of the model's images and sounds.
pub(super) fn load_codec(config: &EngineConfig) -> Result<HfTextCodec, StartError> {
    let codec = media::with_media(config, HfTextCodec::load(config.tokenizer_path())?)?;
    let codec = media::with_encoder_text(config, codec)?;
    let Some(path) = &config.chat_template else { return Ok(codec) };
    let source = files::read_to_string(path)
        .map_err(|source| StartError::File { path: path.clone(), source })?;
    Ok(codec.with_chat_template(source))
}

/// Returns the end-of-sequence tokens. That of the tokenizer, `own`, is first. As in vLLM, an
/// output that ends with it has no stop reason. Those of `config.json`, `model`, count only
/// without a file of generation settings.
fn eos_token_ids(own: Option<u32>, model: &[u32], generation: &GenerationConfig) -> Vec<u32> {
    let mut ids: Vec<u32> = own.into_iter().collect();
    let of_model: &[u32] = if generation.is_of_file { &[] } else { model };
    for &id in of_model.iter().chain(&generation.eos_token_ids) {
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rule is that of vLLM 0.33 (`try_get_generation_config`).
    #[test]
    fn a_file_of_generation_settings_replaces_the_ends_of_the_config() {
        let of = |is_of_file: bool, ends: &[u32]| {
            let eos_token_ids = ends.to_vec();
            let file =
                GenerationConfig { is_of_file, eos_token_ids, ..GenerationConfig::default() };
            super::eos_token_ids(Some(2), &[2, 5], &file)
        };
        assert_eq!(of(false, &[]), [2, 5]);
        assert_eq!(of(true, &[]), [2]);
        assert_eq!(of(true, &[7, 2]), [2, 7]);
    }
}
