//! The same models in a running engine: eight requests in flight, prompts in chunks of 16 tokens, a
//! KV cache so small that requests are preempted, and prefix cache hits. The greedy tokens always
//! equal transformers'. Sampled tokens equal those of a request that runs alone.

use std::time::Duration;

use playhouse::{
    Engine, EngineConfig,
    api::{
        ChoiceStream, FinishReason, OutputDelta, PauseMode, Prompt, RawRequest, SamplingParams,
        Status,
    },
    config::{Dtype, KvCacheDtype},
};
use playhouse_kernels::KvDtype;

use crate::{TOLERANCE, folder, golden::Golden};

/// Requests in flight.
const IN_FLIGHT: usize = 8;

/// KV cache formats that are tested with a model of float32.
const KV_DTYPES: [KvCacheDtype; 3] =
    [KvCacheDtype::Auto, KvCacheDtype::Bfloat16, KvCacheDtype::Int8PerTokenHead];

/// The output of one request.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Output {
    pub(crate) tokens: Vec<u32>,
    pub(crate) logprobs: Vec<f32>,
    text: String,
    pub(crate) num_cached_tokens: usize,
}

impl From<OutputDelta> for Output {
    fn from(delta: OutputDelta) -> Self {
        assert!(!matches!(delta.finish, Some(FinishReason::Error(_))), "ended: {:?}", delta.finish);
        Self {
            tokens: delta.tokens.iter().map(|token| token.token_id).collect(),
            logprobs: delta
                .tokens
                .iter()
                .map(|token| token.logprobs.as_ref().unwrap()[0].logprob)
                .collect(),
            text: delta.text,
            num_cached_tokens: delta.num_cached_tokens.unwrap_or_default(),
        }
    }
}

impl Output {
    /// Appends a later output.
    pub(crate) fn append(&mut self, later: Self) {
        self.tokens.extend(later.tokens);
        self.logprobs.extend(later.logprobs);
        self.text.push_str(&later.text);
        self.num_cached_tokens = self.num_cached_tokens.max(later.num_cached_tokens);
    }
}

pub(crate) fn config(name: &str, max_model_len: Option<usize>) -> EngineConfig {
    EngineConfig {
        allow_chaos: true,
        device: playhouse::config::Device::Cpu,
        dtype: Dtype::Float32,
        max_model_len,
        // All models have the same tokenizer, and few folders hold it.
        tokenizer: Some(folder("llama-tied")),
        ..EngineConfig::new(folder(name))
    }
}

pub(crate) fn request(prompt: &[u32], count: usize, temperature: f32, seed: u64) -> RawRequest {
    let params = SamplingParams {
        temperature,
        seed: Some(seed),
        ignore_eos: true,
        logprobs: Some(1),
        ..SamplingParams::default()
    };
    let prompt = Prompt::Tokens(prompt.to_vec());
    RawRequest { params, max_tokens: Some(count as u32), ..RawRequest::new(prompt) }
}

pub(crate) async fn collect(mut stream: ChoiceStream) -> Output {
    let mut output = Output::default();
    while let Some(delta) = stream.next().await {
        output.append(delta.into());
    }
    output
}

/// Runs all requests at once on an engine of their own. The engine starts to schedule only after it
/// has all requests, so that none is far ahead, however slowly they are sent. Returns the outputs,
/// and the engine's status after the last of them.
pub(crate) async fn run(config: EngineConfig, requests: Vec<RawRequest>) -> (Vec<Output>, Status) {
    let engine = Engine::spawn(config, |_| ()).await.unwrap();
    engine.pause(PauseMode::Keep).await.unwrap();
    let mut streams = Vec::new();
    for request in requests {
        streams.push(engine.submit(request).await.unwrap().choices.remove(0));
    }
    let wait = async {
        while engine.status().await.unwrap().scheduler.num_waiting < streams.len() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let all_wait = tokio::time::timeout(Duration::from_secs(60), wait).await;
    assert!(all_wait.is_ok(), "not all requests wait: {:?}", engine.status().await);
    engine.resume();
    let mut outputs = Vec::new();
    for stream in streams {
        outputs.push(collect(stream).await);
    }
    let status = engine.status().await.unwrap();
    engine.shutdown().await;
    (outputs, status)
}

/// Runs the recorded prompts of a model, repeated until eight are in flight. Compares tokens and
/// log-probabilities with the recording.
pub(crate) async fn check(name: &str, change: impl Fn(&mut EngineConfig)) {
    for recorded in Golden::read(&folder(name)).runs {
        let prompts: Vec<_> = recorded.prompts.iter().cycle().take(IN_FLIGHT).collect();
        let request = |prompt: &&crate::golden::Prompt| {
            request(prompt.ids(), prompt.greedy_token_ids.len(), 0.0, 0)
        };
        let mut config = config(name, recorded.max_model_len);
        change(&mut config);
        let (outputs, _) = run(config, prompts.iter().map(request).collect()).await;
        for (prompt, output) in prompts.iter().zip(&outputs) {
            assert_eq!(output.tokens, prompt.greedy_token_ids, "{name}");
            let differences = output.logprobs.iter().zip(prompt.greedy_log_probs());
            let worst = differences.map(|(got, want)| (f64::from(*got) - want).abs());
            assert!(
                worst.clone().all(|d| d <= TOLERANCE),
                "{name}: {:?}",
                worst.max_by(f64::total_cmp)
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_in_flight() {
    for name in crate::served() {
        check(name, |_| ()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn prompts_in_chunks_of_16_tokens() {
    for name in crate::served() {
        check(name, |config| config.max_num_batched_tokens = 16).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_planned_ahead_in_chunks_of_16_tokens() {
    for name in crate::served() {
        check(name, |config| {
            config.async_scheduling = Some(true);
            config.max_num_batched_tokens = 16;
        })
        .await;
    }
}

/// Returns the longest recorded prompt of a model, and its greedy tokens.
pub(crate) fn long_prompt(name: &str) -> (Vec<u32>, Vec<u32>) {
    let prompts = Golden::read(&folder(name)).runs.remove(0).prompts;
    let prompt = prompts.iter().max_by_key(|prompt| prompt.ids().len()).unwrap();
    (prompt.ids().to_vec(), prompt.greedy_token_ids.clone())
}

/// Makes requests preempt each other: few blocks, which a request may take before all of its prompt
/// fits.
pub(crate) fn shrink(config: &mut EngineConfig, num_blocks: usize) {
    config.num_gpu_blocks_override = Some(num_blocks);
    config.max_num_batched_tokens = 16;
    config.scheduler_reserve_full_isl = false;
    config.enable_prefix_caching = false;
}

/// Runs requests that preempt each other. Compares their tokens with the recording.
pub(crate) async fn check_preemption(
    name: &str,
    num_blocks: usize,
    change: impl Fn(&mut EngineConfig),
) {
    let (prompt, greedy) = long_prompt(name);
    let mut config = config(name, None);
    shrink(&mut config, num_blocks);
    change(&mut config);
    let requests = (0..IN_FLIGHT).map(|_| request(&prompt, greedy.len(), 0.0, 0));
    let (outputs, status) = run(config, requests.collect()).await;
    assert!(status.scheduler.num_preemptions > 0, "{name}: nothing was preempted");
    for output in outputs {
        assert_eq!(output.tokens, greedy, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn preempted_requests_give_the_same_tokens() {
    // A request has 11 blocks in a group that reads all tokens, and about three in a window.
    for (name, num_blocks) in [("qwen3-layer-types", 49), ("mistral-window", 11)] {
        check_preemption(name, num_blocks, |_| ()).await;
    }
}

/// 450 tokens lie in 29 blocks. A window of 24 tokens and steps of 16 need no more than six. Two
/// windows of 20 beside a layer that reads all tokens need 29 and twice six.
#[tokio::test(flavor = "multi_thread")]
async fn a_window_needs_no_more_blocks_for_a_longer_text() {
    for (name, num_blocks) in [("mistral-window", 7), ("qwen3-layer-types", 42)] {
        let (prompt, greedy) = long_prompt(name);
        let request = request(&prompt, 300, 0.0, 0);
        let mut few = config(name, None);
        few.num_gpu_blocks_override = Some(num_blocks);
        few.max_num_batched_tokens = 16;
        let (in_few, _) = run(few, vec![request.clone()]).await;
        let (in_many, _) = run(config(name, None), vec![request]).await;
        assert_eq!((in_few[0].tokens.len(), &in_few[0].tokens[..24]), (300, &greedy[..]));
        assert_eq!(bits(&in_few[0]), bits(&in_many[0]), "{name}");
    }
}

/// Sends a prompt twice. The second answer comes from the prefix cache and has the same bytes.
pub(crate) async fn check_prefix_hits(name: &str, change: impl Fn(&mut EngineConfig)) {
    let (prompt, greedy) = long_prompt(name);
    let mut config = config(name, None);
    change(&mut config);
    let is_exact = config.kv_cache_dtype == KvCacheDtype::Auto;
    let engine = Engine::spawn(config, |_| ()).await.unwrap();
    let block_size = engine.loaded().info.kv_spec.block_size;
    let mut outputs = Vec::new();
    for _ in 0..2 {
        let raw = request(&prompt, greedy.len(), 0.0, 0);
        outputs.push(collect(engine.submit(raw).await.unwrap().choices.remove(0)).await);
    }
    let [first, second] = &outputs[..] else { unreachable!() };
    assert_eq!(first.num_cached_tokens, 0);
    assert!(!is_exact || first.tokens == greedy);
    let num_cached = (prompt.len() - 1) / block_size * block_size;
    assert!(num_cached > 0, "{name}: a block has {block_size} tokens");
    assert_eq!(second.num_cached_tokens, num_cached);
    assert_eq!((bits(first), &first.text), (bits(second), &second.text));
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn prefix_hits_give_the_same_bytes() {
    for kv_cache_dtype in KV_DTYPES {
        check_prefix_hits("qwen3-layer-types", |config| config.kv_cache_dtype = kv_cache_dtype)
            .await;
    }
}

/// A change of the settings.
type Change<'a> = &'a dyn Fn(&mut EngineConfig);

/// Returns the tokens, and the bits of their log-probabilities.
pub(crate) fn bits(output: &Output) -> (Vec<u32>, Vec<u32>) {
    (output.tokens.clone(), output.logprobs.iter().map(|p| p.to_bits()).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn sampled_tokens_do_not_depend_on_company_chunks_or_preemption() {
    let name = "qwen3-layer-types";
    let (prompt, _) = long_prompt(name);
    let sampled = |seed| request(&prompt, 24, 0.9, seed);
    let is_full = |config: &mut EngineConfig| shrink(config, 49);
    // Each change comes with a flag: whether all requests fit.
    let together: [(bool, Change<'_>); 4] = [
        (true, &|_| ()),
        (true, &|config| config.max_num_batched_tokens = 16),
        (false, &is_full),
        (false, &|config| {
            is_full(config);
            config.async_scheduling = Some(true);
        }),
    ];
    for kv_cache_dtype in KV_DTYPES {
        let config = || EngineConfig { kv_cache_dtype, ..config(name, None) };
        let mut alone = Vec::new();
        for seed in 0..IN_FLIGHT as u64 {
            alone.extend(run(config(), vec![sampled(seed)]).await.0);
        }
        assert_ne!(alone[0].tokens, alone[1].tokens, "seeds matter");
        let alone: Vec<_> = alone.iter().map(bits).collect();
        for (has_room, change) in together {
            let mut config = config();
            change(&mut config);
            let requests = (0..IN_FLIGHT as u64).map(sampled).collect();
            let (outputs, status) = run(config, requests).await;
            let outputs: Vec<_> = outputs.iter().map(bits).collect();
            assert_eq!(outputs, alone, "{kv_cache_dtype:?}");
            assert!(has_room || status.scheduler.num_preemptions > 0, "nothing was preempted");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_memory_holds_more_tokens_of_fewer_bits() {
    const BYTES: u64 = 4 << 20;
    let mut num_blocks = Vec::new();
    for (kv_cache_dtype, kept_in) in [
        (KvCacheDtype::Auto, KvDtype::F32),
        (KvCacheDtype::Bfloat16, KvDtype::Bf16),
        (KvCacheDtype::Int8PerTokenHead, KvDtype::Int8),
    ] {
        let config = EngineConfig {
            kv_cache_dtype,
            kv_cache_memory_bytes: Some(BYTES),
            ..config("qwen3-layer-types", None)
        };
        let engine = Engine::spawn(config, |_| ()).await.unwrap();
        let loaded = engine.loaded();
        let (blocks, bytes) = (loaded.info.num_blocks as u64, loaded.kv_cache_bytes);
        assert_eq!(loaded.kv_cache_dtype, kept_in);
        assert!(bytes <= BYTES && bytes + bytes / blocks > BYTES, "{bytes} in {blocks} blocks");
        num_blocks.push(blocks);
        engine.shutdown().await;
    }
    let [f32, bf16, int8] = num_blocks[..] else { unreachable!() };
    assert!(bf16 / 2 == f32 && int8 > bf16 * 3 / 2 && int8 < bf16 * 2, "{num_blocks:?}");
}
