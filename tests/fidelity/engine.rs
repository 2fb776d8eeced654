//! The same models behind a running engine: eight requests in flight, prompts in chunks of 16
//! tokens, a KV cache so small that requests are preempted, prefixes hit. The tokens are those of
//! transformers each time; sampled ones are those of a request that has the engine for itself.

use playhouse::{
    Engine, EngineConfig,
    actors::{
        logic::sampling_params::SamplingParams,
        message::input_processor::{Prompt, RawRequest},
        shell::{ChoiceStream, OutputDelta, Status},
    },
    config::Dtype,
};

use crate::{TOLERANCE, folder, golden::Golden};

/// Requests in flight.
const IN_FLIGHT: usize = 8;

/// What one request gave.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Output {
    pub(crate) tokens: Vec<u32>,
    pub(crate) logprobs: Vec<f32>,
    text: String,
    num_cached_tokens: usize,
}

impl From<OutputDelta> for Output {
    fn from(delta: OutputDelta) -> Self {
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
    /// With what came later.
    pub(crate) fn append(&mut self, later: Self) {
        self.tokens.extend(later.tokens);
        self.logprobs.extend(later.logprobs);
        self.text.push_str(&later.text);
        self.num_cached_tokens = self.num_cached_tokens.max(later.num_cached_tokens);
    }
}

fn config(name: &str, max_model_len: Option<usize>) -> EngineConfig {
    EngineConfig { dtype: Dtype::Float32, max_model_len, ..EngineConfig::new(folder(name)) }
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

/// Runs all requests at once on an engine of their own.
pub(crate) async fn run(config: EngineConfig, requests: Vec<RawRequest>) -> (Vec<Output>, Status) {
    let engine = Engine::spawn(config, |_| ()).await.unwrap();
    let mut streams = Vec::new();
    for request in requests {
        streams.push(engine.submit(request).await.unwrap().choices.remove(0));
    }
    let mut outputs = Vec::new();
    for stream in streams {
        outputs.push(collect(stream).await);
    }
    let status = engine.status().await.unwrap();
    engine.shutdown().await;
    (outputs, status)
}

/// All recorded prompts of a model, over and over until eight are in flight.
async fn check(name: &str, change: impl Fn(&mut EngineConfig)) {
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
    for name in crate::MODELS {
        check(name, |_| ()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn prompts_in_chunks_of_16_tokens() {
    for name in crate::MODELS {
        check(name, |config| config.max_num_batched_tokens = 16).await;
    }
}

/// The longest recorded prompt of a model that has room for its output.
pub(crate) fn long_prompt(name: &str) -> (Vec<u32>, Vec<u32>) {
    let prompts = Golden::read(&folder(name)).runs.remove(0).prompts;
    let prompt = prompts.iter().max_by_key(|prompt| prompt.ids().len()).unwrap();
    (prompt.ids().to_vec(), prompt.greedy_token_ids.clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn preempted_requests_give_the_same_tokens() {
    for name in ["qwen3-layer-types", "mistral-window"] {
        let (prompt, greedy) = long_prompt(name);
        let mut config = config(name, None);
        // Three prompts fit to the last block, so that none of them can grow.
        let blocks = prompt.len().div_ceil(config.block_size);
        config.num_gpu_blocks_override = Some(3 * blocks + 1);
        config.enable_prefix_caching = false;
        let requests = (0..IN_FLIGHT).map(|_| request(&prompt, greedy.len(), 0.0, 0));
        let (outputs, status) = run(config, requests.collect()).await;
        assert!(status.scheduler.num_preemptions > 0, "{name}: nothing was preempted");
        for output in outputs {
            assert_eq!(output.tokens, greedy, "{name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn prefix_hits_give_the_same_bytes() {
    let name = "qwen3-layer-types";
    let (prompt, greedy) = long_prompt(name);
    let engine = Engine::spawn(config(name, None), |_| ()).await.unwrap();
    let mut outputs = Vec::new();
    for _ in 0..2 {
        let raw = request(&prompt, greedy.len(), 0.0, 0);
        outputs.push(collect(engine.submit(raw).await.unwrap().choices.remove(0)).await);
    }
    let [first, second] = &outputs[..] else { unreachable!() };
    assert_eq!((first.num_cached_tokens, &first.tokens), (0, &greedy));
    assert_eq!(second.num_cached_tokens, (prompt.len() - 1) / 16 * 16);
    let bits = |output: &Output| output.logprobs.iter().map(|p| p.to_bits()).collect::<Vec<_>>();
    assert_eq!((bits(first), &first.text), (bits(second), &second.text));
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sampled_tokens_do_not_depend_on_company_chunks_or_preemption() {
    let name = "qwen3-layer-types";
    let (prompt, _) = long_prompt(name);
    let sampled = |seed| request(&prompt, 24, 0.9, seed);
    let mut alone = Vec::new();
    for seed in 0..IN_FLIGHT as u64 {
        alone.extend(run(config(name, None), vec![sampled(seed)]).await.0);
    }
    let bits = |outputs: &[Output]| -> Vec<_> {
        let one = |o: &Output| (o.tokens.clone(), o.logprobs.iter().map(|p| p.to_bits()).collect());
        outputs.iter().map(one).collect::<Vec<(Vec<u32>, Vec<u32>)>>()
    };
    assert_ne!(alone[0].tokens, alone[1].tokens, "seeds matter");
    let blocks = prompt.len().div_ceil(16);
    let together: [&dyn Fn(&mut EngineConfig); 3] =
        [&|_| (), &|config| config.max_num_batched_tokens = 16, &|config| {
            config.num_gpu_blocks_override = Some(3 * blocks + 1);
            config.enable_prefix_caching = false;
        }];
    for change in together {
        let mut config = config(name, None);
        change(&mut config);
        let requests = (0..IN_FLIGHT as u64).map(sampled).collect();
        assert_eq!(bits(&run(config, requests).await.0), bits(&alone));
    }
}
