//! A fake model and a fake tokenizer for actor systems. The next token depends on the whole
//! history, and a token's text is its number.

#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod kept;
pub(crate) mod linked;
pub(crate) mod wait;

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use playhouse_actors::{
    logic::{
        input::fit::TruncationSide,
        kv_cache::KvSpec,
        request::{
            ids::{Epoch, RequestId, TokenId},
            outputs::{DraftCounts, Produced, RequestOutput, RowFailure, SampledToken, StepOutput},
            sampling_params::SamplingParams,
            structured_output::{OutputFormat, StructuredOutput},
        },
        scheduler::{SchedulerConfig, output::SchedulerOutput},
    },
    message::input_processor::{Prompt, RawRequest},
    ports::{
        ChatPrompt, DecodeOptions, EncoderFactory, ExecuteError, ExecutorFactory, GrammarCompiler,
        GrammarError, IncrementalDecoder, KeptMemory, ModelExecutor, ModelInfo, TextCodec,
        TextError,
    },
    system::{ChoiceStream, System, SystemConfig},
};

/// Number of tokens in the fake vocabulary.
pub(crate) const VOCAB: u32 = 997;

/// Returns the token that follows a history: FNV-1a over all of it. So a token that is lost,
/// repeated or changed changes everything after it.
pub(crate) fn next_token(history: &[TokenId]) -> TokenId {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for token in history {
        hash = (hash ^ u64::from(*token)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    (hash >> 20) as u32 % VOCAB
}

/// Returns the text of `count` tokens in a run without faults.
pub(crate) fn expected_text(prompt: &[TokenId], count: usize) -> String {
    let mut history = prompt.to_vec();
    for _ in 0..count {
        history.push(next_token(&history));
    }
    history[prompt.len()..].iter().map(|token| spell(*token)).collect()
}

fn spell(token: TokenId) -> String {
    format!("<{token}>")
}

/// The switches of the fake model's faults, shared by all its executors.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// Number of the step, of all steps, that panics; 0: none.
    pub(crate) panic_at: AtomicU64,
    /// Number of the step that blocks its thread for four seconds; 0: none.
    pub(crate) hang_at: AtomicU64,
    /// Milliseconds that each step takes.
    pub(crate) step_ms: AtomicU64,
    /// Maximum number of tokens in a step. Larger steps run out of memory; 0: no limit.
    pub(crate) memory: AtomicU64,
    /// Token that makes every step panic if a prompt contains it; 0: none.
    pub(crate) poison: AtomicU64,
    /// Token that ends the engine process in every step if a prompt contains it; 0: none.
    pub(crate) deadly: AtomicU64,
    /// Whether the next decoder blocks for four seconds.
    pub(crate) block_decoder: AtomicBool,
    /// System whose ledger gets a message from a decoder right before the decoder blocks.
    pub(crate) disturbed: OnceLock<Arc<System>>,
    /// Whether all logits are not finite.
    pub(crate) has_no_numbers: AtomicBool,
    /// Length of a text's pieces, in bytes; 0: one piece.
    pub(crate) piece_bytes: AtomicU64,
    /// Number of pieces begun.
    pub(crate) pieces: AtomicU64,
    /// Whether the tokenizer waits at each piece.
    pub(crate) block_pieces: AtomicBool,
    /// Number of grammars compiled.
    pub(crate) compilations: AtomicU64,
    /// Number of times that the compiler was prepared.
    pub(crate) preparations: AtomicU64,
    /// Whether compilers wait.
    pub(crate) block_compiler: AtomicBool,
    /// The engine process that the grammar `deadly` ends: the last one that was started.
    pub(crate) process: parking_lot::Mutex<Option<Arc<linked::FakeProcess>>>,
    /// Number of steps executed.
    pub(crate) steps: AtomicU64,
    /// Number of executors created.
    pub(crate) executors: AtomicU64,
    /// Number of looks for the encoder, which the model lacks.
    pub(crate) encoder_looks: AtomicU64,
    /// Whether the next of these looks blocks its thread.
    pub(crate) block_encoder_look: AtomicBool,
    /// Whether such a look is blocked. It ends when this is unset.
    pub(crate) is_encoder_look_blocked: AtomicBool,
    /// Number of releases of the KV cache's memory.
    pub(crate) releases: AtomicU64,
    /// Whether releases wait.
    pub(crate) block_release: AtomicBool,
    /// Number of times that this memory was allocated again.
    pub(crate) restores: AtomicU64,
    /// Number of requests that came with output to executors.
    pub(crate) resumed: AtomicU64,
    /// Number of tokens computed for those in the first step.
    pub(crate) resumed_tokens: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct FakeFactory {
    info: ModelInfo,
    pub(crate) faults: Arc<Faults>,
    /// The process that has the model, if that is another one.
    process: Arc<OnceLock<Arc<linked::FakeProcess>>>,
    /// The memory that outlives the process.
    kept: Option<kept::OfProcess>,
}

impl FakeFactory {
    /// Returns a factory for a system without requests.
    pub(crate) fn small() -> Self {
        let info = ModelInfo {
            vocab_size: VOCAB,
            max_model_len: 64,
            kv_spec: KvSpec::full(1, 16, 1),
            num_blocks: 8,
            eos_token_ids: vec![],
            heads: Default::default(),
            max_item_embeds: 0,
            attends_within_items: false,
            attends_within_prompts: false,
            short_context: None,
        };
        Self::new(info, Arc::default())
    }

    fn new(info: ModelInfo, faults: Arc<Faults>) -> Self {
        Self { info, faults, process: Arc::default(), kept: None }
    }
}

impl ExecutorFactory for FakeFactory {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn keep_kv_cache(&self, num_words: usize) -> Option<Arc<dyn KeptMemory>> {
        let kept = self.kept.clone()?;
        kept.resize(num_words);
        Some(Arc::new(kept))
    }

    fn release_kv_cache(&self) -> Result<(), ExecuteError> {
        self.faults.releases.fetch_add(1, Ordering::Relaxed);
        block_while(&self.faults.block_release);
        Ok(())
    }

    fn restore_kv_cache(&self) -> Result<(), ExecuteError> {
        self.faults.restores.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn encoder(&self) -> Option<Arc<dyn EncoderFactory>> {
        self.faults.encoder_looks.fetch_add(1, Ordering::Relaxed);
        if self.faults.block_encoder_look.swap(false, Ordering::SeqCst) {
            self.faults.is_encoder_look_blocked.store(true, Ordering::SeqCst);
            block_while(&self.faults.is_encoder_look_blocked);
        }
        None
    }

    fn create(&self, _: Epoch) -> Result<Box<dyn ModelExecutor>, ExecuteError> {
        self.faults.executors.fetch_add(1, Ordering::Relaxed);
        let (faults, process) = (Arc::clone(&self.faults), Arc::clone(&self.process));
        Ok(Box::new(FakeExecutor { histories: BTreeMap::new(), faults, process }))
    }
}

#[derive(Debug)]
struct FakeExecutor {
    histories: BTreeMap<RequestId, Vec<TokenId>>,
    faults: Arc<Faults>,
    process: Arc<OnceLock<Arc<linked::FakeProcess>>>,
}

/// Blocks the thread while the switch is on, and for two minutes at most.
fn block_while(is_on: &AtomicBool) {
    for _ in 0..120_000 {
        if !is_on.load(Ordering::SeqCst) {
            return;
        }
        #[allow(clippy::disallowed_methods, reason = "this is the fault")]
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Blocks the thread for longer than any test waits.
fn block() {
    #[allow(clippy::disallowed_methods, reason = "this is the fault")]
    std::thread::sleep(Duration::from_secs(4));
}

impl FakeExecutor {
    fn check_poison(&self, prompt: &[TokenId]) -> Result<(), ExecuteError> {
        let contains = |token: &AtomicU64| {
            let token = token.load(Ordering::Relaxed);
            token != 0 && prompt.contains(&(token as u32))
        };
        assert!(!contains(&self.faults.poison), "poison");
        match self.process.get().filter(|_| contains(&self.faults.deadly)) {
            None => Ok(()),
            Some(process) => {
                process.end("SIGSEGV");
                Err(ExecuteError::Device("the process has ended".to_owned()))
            }
        }
    }
}

impl ModelExecutor for FakeExecutor {
    fn execute(&mut self, step: &SchedulerOutput) -> Result<StepOutput, ExecuteError> {
        let count = self.faults.steps.fetch_add(1, Ordering::Relaxed) + 1;
        assert!(self.faults.panic_at.load(Ordering::Relaxed) != count, "planted panic");
        if self.faults.hang_at.load(Ordering::Relaxed) == count {
            block();
        }
        let step_ms = self.faults.step_ms.load(Ordering::Relaxed);
        if step_ms > 0 {
            #[allow(clippy::disallowed_methods, reason = "it stands for computation")]
            std::thread::sleep(Duration::from_millis(step_ms));
        }
        let memory = self.faults.memory.load(Ordering::Relaxed);
        if memory > 0 && step.total_num_scheduled_tokens as u64 > memory {
            return Err(ExecuteError::OutOfMemory(format!("over {memory} tokens")));
        }
        for request in step.finished.iter().chain(&step.preempted) {
            self.histories.remove(request);
        }
        let mut outputs = Vec::new();
        for data in &step.scheduled_new {
            let mut history = data.request.prompt_token_ids.to_vec();
            self.check_poison(&history)?;
            history.extend(&data.output_token_ids);
            if !data.output_token_ids.is_empty() {
                let tokens = data.num_scheduled_tokens as u64;
                // A test that sees the request sees its tokens.
                self.faults.resumed_tokens.fetch_add(tokens, Ordering::Relaxed);
                self.faults.resumed.fetch_add(1, Ordering::Release);
            }
            let end = data.num_computed_tokens + data.num_scheduled_tokens;
            outputs.push(output(data.request.id, &history, end));
            self.histories.insert(data.request.id, history);
        }
        for data in &step.scheduled_cached {
            let unknown = || ExecuteError::InvalidStep(format!("{} unknown", data.request));
            let history = self.histories.get_mut(&data.request).ok_or_else(unknown)?;
            let end = data.num_computed_tokens + data.num_scheduled_tokens;
            outputs.push(output(data.request, history, end));
        }
        if self.faults.has_no_numbers.load(Ordering::Relaxed) {
            for row in &mut outputs {
                row.produced = Produced::default();
                row.failure = Some(RowFailure::NotANumber);
            }
        }
        for row in &outputs {
            let drawn = row.produced.tokens().iter().map(|token| token.token_id);
            self.histories.entry(row.request).or_default().extend(drawn);
        }
        Ok(StepOutput { epoch: step.epoch, step: step.step, outputs })
    }
}

fn output(request: RequestId, history: &[TokenId], end: usize) -> RequestOutput {
    let token = || SampledToken { token_id: next_token(history), logprobs: None };
    let produced = (end == history.len()).then(token).into_iter().collect();
    RequestOutput {
        request,
        produced,
        prompt_logprobs: None,
        drafts: DraftCounts::default(),
        failure: None,
    }
}

#[derive(Debug, Default)]
pub(crate) struct FakeCodec(Arc<Faults>);

impl TextCodec for FakeCodec {
    fn vocab_size(&self) -> usize {
        VOCAB as usize
    }

    fn encode(&self, text: &str, _: bool) -> Result<Vec<TokenId>, TextError> {
        Ok(text.bytes().map(u32::from).collect())
    }

    fn next_piece(
        &self,
        _: &str,
        rest: Range<usize>,
        dropped: TruncationSide,
    ) -> Result<Range<usize>, TextError> {
        let bytes = match self.0.piece_bytes.load(Ordering::Relaxed) {
            0 => rest.len(),
            bytes => rest.len().min(bytes as usize),
        };
        Ok(match dropped {
            TruncationSide::Right => rest.start..rest.start + bytes,
            TruncationSide::Left => rest.end - bytes..rest.end,
        })
    }

    fn encode_piece(&self, text: &str, piece: Range<usize>) -> Result<Vec<TokenId>, TextError> {
        self.0.pieces.fetch_add(1, Ordering::SeqCst);
        while self.0.block_pieces.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        self.encode(&text[piece], false)
    }

    fn decode(&self, tokens: &[TokenId], _: bool) -> Result<String, TextError> {
        Ok(tokens.iter().map(|token| spell(*token)).collect())
    }

    fn token_text(&self, token: TokenId) -> String {
        spell(token)
    }

    fn token_bytes(&self, token: TokenId) -> Vec<u8> {
        spell(token).into_bytes()
    }

    fn token_piece(&self, token: TokenId) -> Option<String> {
        Some(spell(token))
    }

    fn eos_token(&self) -> Option<(String, TokenId)> {
        None
    }

    fn bos_token(&self) -> Option<(String, TokenId)> {
        None
    }

    fn is_special(&self, _: TokenId) -> bool {
        false
    }

    fn render_chat(&self, _: &ChatPrompt) -> Result<String, TextError> {
        Err(TextError::NoChatTemplate)
    }

    fn decoder(&self, _: &[TokenId], _: DecodeOptions) -> Box<dyn IncrementalDecoder> {
        Box::new(Speller(Arc::clone(&self.0)))
    }
}

struct Speller(Arc<Faults>);

impl IncrementalDecoder for Speller {
    fn push(&mut self, token: TokenId) -> Result<String, TextError> {
        if self.0.block_decoder.swap(false, Ordering::Relaxed) {
            self.0.disturbed.get().into_iter().for_each(|system| system.abort(vec![]));
            block();
        }
        Ok(spell(token))
    }

    fn flush(&mut self) -> String {
        String::new()
    }
}

/// A compiler whose result depends on the text of the format.
#[derive(Debug, Default)]
pub(crate) struct FakeGrammars(Arc<Faults>);

impl GrammarCompiler for FakeGrammars {
    fn prepare(&self) {
        self.0.preparations.fetch_add(1, Ordering::Relaxed);
    }

    fn compile(&self, output: &StructuredOutput) -> Result<(), GrammarError> {
        self.0.compilations.fetch_add(1, Ordering::Relaxed);
        block_while(&self.0.block_compiler);
        match &output.format {
            OutputFormat::Regex(text) if text == "invalid" => {
                Err(GrammarError::Invalid("no regular expression".to_owned()))
            }
            #[allow(clippy::panic, reason = "this is the fault")]
            OutputFormat::Regex(text) if text == "panic" => panic!("planted"),
            OutputFormat::Regex(text) if text == "deadly" => {
                if let Some(process) = &*self.0.process.lock() {
                    process.end("SIGSEGV");
                }
                Err(GrammarError::System("the process has ended".to_owned()))
            }
            OutputFormat::Regex(text) if text == "hang" => {
                block();
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// Returns the prompt and the request of an output constrained by `text`.
pub(crate) fn constrained(salt: u32, count: u32, text: &str) -> (Vec<TokenId>, RawRequest) {
    let (prompt, mut raw) = request(salt, 40, count);
    raw.params.structured_output = Some(Arc::new(OutputFormat::Regex(text.to_owned()).into()));
    (prompt, raw)
}

/// Starts a system with the fake model.
pub(crate) async fn spawn(num_blocks: u32) -> (System, Arc<Faults>) {
    spawn_with(num_blocks, |_| {}).await
}

/// Starts a system with the fake model and changed settings.
pub(crate) async fn spawn_with(
    num_blocks: u32,
    change: impl FnOnce(&mut SystemConfig),
) -> (System, Arc<Faults>) {
    let (mut config, info) = settings(num_blocks);
    let faults = Arc::new(Faults::default());
    let factory = FakeFactory::new(info, Arc::clone(&faults));
    let codec = Arc::new(FakeCodec(Arc::clone(&faults)));
    change(&mut config);
    let grammars = Arc::new(FakeGrammars(Arc::clone(&faults)));
    let system = System::spawn(config, Arc::new(factory), codec, grammars, 0).await.unwrap();
    (system, faults)
}

/// Returns the settings of a system with the fake model, and the facts about the model.
fn settings(num_blocks: u32) -> (SystemConfig, ModelInfo) {
    let scheduler = SchedulerConfig {
        max_num_batched_tokens: 64,
        max_num_seqs: 16,
        max_model_len: 512,
        kv_spec: KvSpec::full(1, 16, 1),
        num_blocks,
        ..SchedulerConfig::default()
    };
    let info = ModelInfo {
        vocab_size: VOCAB,
        max_model_len: 512,
        kv_spec: scheduler.kv_spec.clone(),
        num_blocks: num_blocks as usize,
        eos_token_ids: vec![],
        heads: Default::default(),
        max_item_embeds: 0,
        attends_within_items: false,
        attends_within_prompts: false,
        short_context: None,
    };
    (SystemConfig::new(scheduler), info)
}

/// Returns a prompt of `len` tokens that depends on `salt`, and its request for `count` tokens.
pub(crate) fn request(salt: u32, len: usize, count: u32) -> (Vec<TokenId>, RawRequest) {
    let prompt: Vec<_> = (0..len as u32).map(|i| (i * 7 + salt) % VOCAB).collect();
    let params = SamplingParams { temperature: 0.0, ..SamplingParams::default() };
    let raw = RawRequest {
        max_tokens: Some(count),
        params,
        ..RawRequest::new(Prompt::Tokens(prompt.clone()))
    };
    (prompt, raw)
}

/// Returns all text of a stream and its finish reason. See [`wait::next`].
pub(crate) async fn collect(mut stream: ChoiceStream) -> (String, String) {
    let mut text = String::new();
    while let Some(delta) = wait::next(&mut stream, &text).await {
        text.push_str(&delta.text);
        if let Some(reason) = delta.finish {
            return (text, reason.as_str().to_owned());
        }
    }
    (text, "no end".to_owned())
}
