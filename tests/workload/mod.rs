//! The requests of a chaos test's clients, and their expected answers, which no strike may change.
//! There are requests of every kind on the demo model, in a KV cache too small for all of them.

#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::{
    io::Cursor,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use playhouse::{
    Engine, EngineConfig,
    api::{
        ChoiceStream, FinishReason, How, MediaSource, Modality, Prompt, RawMedia, RawRequest,
        RequestError, Role, SampledToken, SamplingParams, SystemConfig, TokenLogprobs,
    },
    config::KvCacheDtype,
};
use tokio::{
    sync::OnceCell,
    task::JoinSet,
    time::{sleep, timeout},
};
use tracing::Level;

/// Clients that stream at any time. Each sends its own request again and again.
pub(crate) const CLIENTS: usize = 32;
/// Further clients, which leave in the middle of a stream.
const LEAVING_CLIENTS: usize = 4;
/// Longest wait. A test that waits longer has failed.
const PATIENCE: Duration = Duration::from_secs(60);
/// The time between two checks of a condition.
const LOOK: Duration = Duration::from_millis(5);

/// All that a client gets of one choice, except the number of tokens from the prefix cache.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Output {
    text: String,
    tokens: Vec<SampledToken>,
    prompt_logprobs: Vec<TokenLogprobs>,
    finish: Option<FinishReason>,
}

/// Returns the request of one client. There are eight kinds, each with four prompts that begin
/// alike.
fn request(client: usize) -> RawRequest {
    let (kind, family) = (client % 8, (client / 8) as u32);
    let shared = (0..40).map(|i| 300 + (i * 7 + family * 131) % 1_000);
    let own = (0..5 + client as u32).map(|i| 300 + (i * 11 + client as u32 * 17) % 1_000);
    let base = SamplingParams {
        temperature: 1.0,
        seed: Some(client as u64),
        ignore_eos: true,
        ..SamplingParams::default()
    };
    let params = match kind {
        0 => SamplingParams { temperature: 0.0, ..base },
        1 => SamplingParams { temperature: 0.7, top_k: 40, top_p: 0.9, ..base },
        2 => SamplingParams {
            presence_penalty: 0.5,
            frequency_penalty: 0.5,
            repetition_penalty: 1.2,
            ..base
        },
        3 => SamplingParams { logprobs: Some(5), prompt_logprobs: Some(2), ..base },
        4 => SamplingParams { stop: vec!["42".to_owned(), " a".to_owned()], min_tokens: 8, ..base },
        5 => SamplingParams { n: 2, logprobs: Some(1), ..base },
        6 => SamplingParams { min_p: 0.05, logit_bias: vec![(350, 2.0), (400, -9.0)], ..base },
        _ => SamplingParams { temperature: 0.0, logprobs: Some(0), min_tokens: 4, ..base },
    };
    let prompt = match kind {
        // This prompt goes through the tokenizer.
        2 | 6 => Prompt::Text(format!("Once upon a time, {}", "a lantern ".repeat(8 + client))),
        _ => Prompt::Tokens(shared.chain(own).collect()),
    };
    let max_tokens = Some(48 + (client as u32 * 5) % 48);
    RawRequest { params, max_tokens, ..RawRequest::new(prompt) }
}

/// Returns the request of a client about a picture, if the model takes pictures. Two requests in
/// three have one, and some have the same.
fn pictured(engine: &Engine, client: usize, raw: RawRequest) -> RawRequest {
    let placeholder = engine.codec().media().and_then(|it| it.placeholder(Modality::Image, 0));
    let Some(placeholder) = placeholder.filter(|_| !client.is_multiple_of(3)) else { return raw };
    let number = (client % 12) as u32;
    let (width, height) = (60 + 28 * (number % 4), 60 + 28 * (number % 3));
    let pixel = |x: u32, y: u32| image::Rgb([(x * number) as u8, (y * 3) as u8, number as u8]);
    let mut file = Cursor::new(Vec::new());
    let picture = image::RgbImage::from_fn(width, height, pixel);
    picture.write_to(&mut file, image::ImageFormat::Png).unwrap();
    let item = RawMedia {
        modality: Modality::Image,
        source: MediaSource::File(file.into_inner().into()),
        uuid: None,
        kwargs: Default::default(),
    };
    let text = format!("Once upon a time {placeholder} there was a lantern, {client}");
    RawRequest { prompt: Prompt::Text(text), media: [item].into(), ..raw }
}

async fn read(mut stream: ChoiceStream) -> Output {
    let mut output =
        Output { text: String::new(), tokens: vec![], prompt_logprobs: vec![], finish: None };
    while let Some(delta) = stream.next().await {
        output.text.push_str(&delta.text);
        output.tokens.extend(delta.tokens);
        output.prompt_logprobs.extend(delta.prompt_logprobs);
        output.finish = delta.finish;
    }
    output
}

async fn ask(engine: &Engine, client: usize) -> Result<Vec<Output>, RequestError> {
    let adapters = engine.lora_adapters();
    // The first of so many kinds has none.
    let lora = (client % (adapters.len() + 1)).checked_sub(1).map(|index| adapters[index].clone());
    let raw = pictured(engine, client, RawRequest { lora, ..request(client) });
    let submission = engine.submit(raw).await?;
    let mut outputs = Vec::new();
    for choice in submission.choices {
        outputs.push(read(choice).await);
    }
    Ok(outputs)
}

/// Starts an engine that detects faults quickly, and whose KV cache holds half of the clients.
pub(crate) async fn engine() -> Engine {
    engine_with(|_| ()).await
}

/// Returns what the engine gave. If it refused, the test fails and tells why no client is let in.
fn admitted<T>(engine: &Engine, given: Result<T, RequestError>) -> T {
    given.unwrap_or_else(|error| panic!("{error:?}, breaker: {:?}", engine.breaker_reason()))
}

/// Starts an engine like [`engine`], with other settings.
pub(crate) async fn engine_with(change: impl FnOnce(&mut EngineConfig)) -> Engine {
    // Only the first test sets it.
    let _ = tracing_subscriber::fmt().with_test_writer().with_max_level(Level::ERROR).try_init();
    let mut config = EngineConfig {
        allow_chaos: true,
        max_model_len: Some(512),
        max_num_seqs: CLIENTS,
        max_num_batched_tokens: 128,
        num_gpu_blocks_override: Some(120),
        ..EngineConfig::default()
    };
    change(&mut config);
    // Other models read pictures, which takes longer.
    let input_timeout = match config.model == EngineConfig::default().model {
        true => Duration::from_millis(500),
        false => Duration::from_secs(5),
    };
    let impatient = |config: &mut SystemConfig| {
        config.tick = Duration::from_millis(20);
        config.call_timeout = Duration::from_millis(500);
        config.input_timeout = input_timeout;
        config.egress_timeout = Duration::from_millis(250);
        config.hang_timeout = Duration::from_millis(500);
    };
    Engine::spawn_with(config, |_| (), impatient).await.unwrap()
}

/// Returns the answers that clients get without strikes.
pub(crate) async fn expected() -> &'static [Vec<Output>] {
    static EXPECTED: OnceCell<Vec<Vec<Output>>> = OnceCell::const_new();
    EXPECTED.get_or_init(|| fault_free(KvCacheDtype::Auto)).await
}

/// Returns the answers that clients get without strikes, with this KV cache format.
pub(crate) async fn fault_free(kv_cache_dtype: KvCacheDtype) -> Vec<Vec<Output>> {
    answers_of(engine_with(|config| config.kv_cache_dtype = kv_cache_dtype).await).await
}

/// Starts an engine like [`engine`], with more adapters than may be in use.
pub(crate) async fn engine_with_adapters() -> Engine {
    let engine = engine_with(|config| {
        config.enable_lora = true;
        config.max_loras = 2;
    });
    let engine = engine.await;
    let pirate = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/demo-model/pirate");
    for name in ["first", "second", "third"] {
        engine.load_lora_adapter(name, pirate, false).await.unwrap();
    }
    engine
}

/// Returns the answers that clients of an engine get without strikes.
pub(crate) async fn answers_of(engine: Engine) -> Vec<Vec<Output>> {
    let outputs = outputs_of(engine).await;
    let stopped = |output: &Output| matches!(output.finish, Some(FinishReason::Stop(Some(_))));
    assert!(outputs.iter().flatten().any(stopped), "no stop string was found");
    outputs
}

/// Returns the same, whatever the model says.
pub(crate) async fn outputs_of(engine: Engine) -> Vec<Vec<Output>> {
    let mut tasks = JoinSet::new();
    for client in 0..CLIENTS {
        let engine = engine.clone();
        tasks.spawn(async move { (client, ask(&engine, client).await.unwrap()) });
    }
    let mut outputs = tasks.join_all().await;
    outputs.sort_by_key(|(client, _)| *client);
    let scheduler = engine.status().await.unwrap().scheduler;
    assert!(scheduler.num_preemptions > 0, "the KV cache is too large for the test");
    engine.shutdown().await;
    outputs.into_iter().map(|(_, outputs)| outputs).collect()
}

/// An engine under load.
pub(crate) struct BusyEngine {
    pub(crate) engine: Engine,
    is_over: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    clients: JoinSet<()>,
}

impl BusyEngine {
    /// Starts the clients.
    pub(crate) async fn open(engine: Engine) -> Self {
        Self::open_expecting(engine, expected().await.to_vec()).await
    }

    /// Starts the clients, which must get the answers `expected`.
    pub(crate) async fn open_expecting(engine: Engine, expected: Vec<Vec<Output>>) -> Self {
        let mut busy = Self {
            engine,
            is_over: Arc::default(),
            answered: Arc::default(),
            clients: JoinSet::new(),
        };
        for (client, expected) in expected.into_iter().enumerate() {
            let (engine, is_over) = (busy.engine.clone(), Arc::clone(&busy.is_over));
            let answered = Arc::clone(&busy.answered);
            busy.clients.spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    let outputs = admitted(&engine, ask(&engine, client).await);
                    assert!(outputs == expected, "client {client} got another answer");
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for client in 0..LEAVING_CLIENTS {
            let (engine, is_over) = (busy.engine.clone(), Arc::clone(&busy.is_over));
            busy.clients.spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    let submission = engine.submit(request(client)).await;
                    let mut submission = admitted(&engine, submission);
                    submission.choices[0].next().await;
                    submission.choices[0].next().await;
                }
            });
        }
        busy.until("the first answers", || busy.answered() >= CLIENTS as u64).await;
        busy
    }

    /// Returns how many requests have been answered. Every answer was as expected.
    pub(crate) fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Returns how often actors of this role were replaced.
    pub(crate) fn restarts(&self, role: Role) -> u64 {
        let actors = self.engine.actors();
        actors.iter().filter(|actor| actor.role == role).map(|actor| actor.restarts).sum()
    }

    /// Strikes an actor. Waits until it is replaced and requests are answered again.
    pub(crate) async fn strike(&self, role: Role, index: usize, how: How) {
        let before = self.restarts(role);
        self.engine.chaos().strike(role, index, how).unwrap();
        let what = format!("the replacement of {role:?} after a {}", how.as_str());
        self.until(&what, || self.restarts(role) > before).await;
        let answered = self.answered();
        self.until("answers after a strike", || self.answered() > answered).await;
    }

    /// Strikes actors of these roles in turn, one every `pause`. Returns how many were replaced.
    pub(crate) async fn storm(&self, strikes: &[(Role, How)], pause: Duration) -> u64 {
        let total = || strikes.iter().map(|(role, _)| self.restarts(*role)).sum::<u64>();
        let before = total();
        for (turn, &(role, how)) in strikes.iter().enumerate() {
            let actors = self.engine.actors();
            let count = actors.iter().filter(|actor| actor.role == role).count();
            self.engine.chaos().strike(role, turn % count, how).unwrap();
            sleep(pause).await;
        }
        total() - before
    }

    /// Waits until `holds` returns true.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let look = async {
            while !holds() {
                sleep(LOOK).await;
            }
        };
        assert!(timeout(PATIENCE, look).await.is_ok(), "{what}: waited too long");
    }

    /// Waits for the clients, and checks that no request is open and no block is held.
    pub(crate) async fn close(mut self) -> Engine {
        self.engine.chaos().calm();
        self.is_over.store(true, Ordering::Relaxed);
        let all = async {
            while let Some(ended) = self.clients.join_next().await {
                ended.unwrap();
            }
        };
        assert!(timeout(PATIENCE, all).await.is_ok(), "the clients still wait for answers");
        self.until("the end of all requests", || self.engine.open_requests() == 0).await;
        let free = async {
            // The reset fails while a request holds a block, or while an actor is being replaced.
            while !self.engine.reset_prefix_cache(false).await.unwrap_or(false) {
                sleep(LOOK).await;
            }
        };
        assert!(
            timeout(PATIENCE, free).await.is_ok(),
            "KV cache blocks are held without a request"
        );
        self.engine
    }
}
