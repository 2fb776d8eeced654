//! The workload of one run, a function of the seed: settings, clients, requests and orders.

mod engines;
mod images;
mod lives;
mod orders;
mod poison;

use std::{sync::Arc, time::Duration};

pub use self::{
    engines::EnginesPlan,
    lives::LivesPlan,
    orders::Order,
    poison::{Effect, Poison},
};
use self::{
    images::{set_images, set_whole},
    orders::orders,
    poison::{poison, poison_within},
};
use super::{
    adapter,
    grammar::Nature,
    media, model,
    oracle::{self, Question},
    rng::Rng,
    vocabulary::{EOS_TOKENS, VOCAB_SIZE, Vocabulary},
};
use crate::{
    logic::{
        admission::{Quota, Tenant},
        kv_cache::{Demand, KvKind, KvSpec},
        recovery::restart::Intensity,
        request::{
            ids::TokenId,
            pooling_params::{ModelHeads, PoolingParams, PoolingTask},
            sampling_params::SamplingParams,
        },
        scheduler::{SchedulerConfig, SchedulingPolicy},
    },
    message::{
        Role,
        input_processor::{Prompt, RawRequest},
    },
    ports::{ModelInfo, TextCodec},
    system::{SystemConfig, config::Supervision},
};

/// The children of the root.
const BELOW_ROOT: [Role; 4] = [Role::Ledger, Role::Core, Role::Egress, Role::Ingress];

/// The workload of one run.
#[derive(Debug, Clone)]
pub struct Workload {
    /// The engine's settings.
    pub config: SystemConfig,
    /// The model's properties.
    pub info: ModelInfo,
    /// Seed for requests without a seed.
    pub door_seed: u64,
    /// The clients and their requests.
    pub clients: Vec<ClientPlan>,
    /// The operator's orders and their times.
    pub orders: Vec<(Duration, Order)>,
    /// The prompt that the model cannot compute.
    pub poison: Option<Poison>,
    /// Number of adapters that the memory holds.
    pub adapter_slots: usize,
    /// The engine processes. `None`: all actors run in one process.
    pub engines: Option<EnginesPlan>,
    /// The deaths of the whole system, which has a journal then.
    pub lives: Option<LivesPlan>,
}

/// One client.
#[derive(Debug, Clone)]
pub struct ClientPlan {
    /// Time of its arrival.
    pub arrival: Duration,
    /// Its request.
    pub raw: RawRequest,
    /// The prompt's tokens.
    pub prompt: Vec<TokenId>,
    /// Manner of reading, for each choice.
    pub manners: Vec<Manner>,
}

/// The manner in which a client reads a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// Reads everything at once.
    Patient,
    /// Reads everything, with a pause after each delta.
    Slow(Duration),
    /// Leaves when it has this many tokens.
    Leaves(usize),
    /// Leaves after this time.
    LeavesAfter(Duration),
    /// Aborts when it has this many tokens, then reads to the end.
    Aborts(usize),
}

impl Workload {
    /// Returns the workload of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::draw(seed, false)
    }

    /// Returns the workload of `seed` in one process that never dies.
    #[must_use]
    pub fn in_one_process(seed: u64) -> Self {
        Self::draw(seed, true)
    }

    fn draw(seed: u64, is_one_process: bool) -> Self {
        let rng = Rng::new(seed);
        let mut config = scheduler_config(&mut rng.fork(1));
        config.async_scheduling = rng.fork(11).percent(50);
        config.num_lookahead_tokens = rng.fork(15).pick(&[0, 0, 1, 2, 3, 8]);
        set_layout(&mut rng.fork(12), &mut config);
        let num_clients = rng.fork(2).pick(&[1, 1, 2, 2, 3, 4, 5, 6]);
        let mut clients: Vec<_> =
            (0..num_clients).map(|index| client(&mut rng.fork(100 + index), &config)).collect();
        crowd(&mut rng.fork(10), &mut config, &mut clients);
        let poison = poison(&mut rng.fork(3), &mut clients)
            .or_else(|| poison_within(&mut rng.fork(13), &mut config, &mut clients));
        let is_encoder = poison.is_none() && rng.fork(15).percent(12);
        if is_encoder {
            set_encoder(&mut config);
        }
        if poison.is_none() {
            set_images(&mut rng.fork(16), &mut config, &mut clients);
        }
        let attends_within_items = !is_encoder && set_whole(&mut rng.fork(17), &mut config);
        let info = ModelInfo {
            vocab_size: VOCAB_SIZE,
            max_model_len: config.max_model_len,
            kv_spec: config.kv_spec.clone(),
            num_blocks: config.num_blocks as usize,
            eos_token_ids: EOS_TOKENS.to_vec(),
            heads: ModelHeads { generates: !is_encoder, ..model::heads() },
            max_item_embeds: media::LARGEST,
            attends_within_items,
            attends_within_prompts: false,
            short_context: None,
        };
        let mut config = system_config(&mut rng.fork(4), config);
        set_quota(&mut rng.fork(7), &mut config, &mut clients);
        set_fragility(&mut rng.fork(8), &mut config);
        set_formats(&mut rng.fork(9), &mut config, &mut clients);
        set_poolings(&mut rng.fork(14), &mut clients, if is_encoder { 100 } else { 50 });
        let adapter_slots = set_adapters(&mut rng.fork(15), &mut config, &mut clients);
        let engines = EnginesPlan::of(&mut rng.fork(18)).filter(|_| !is_one_process);
        let has_lives = !is_one_process && poison.is_none() && rng.fork(20).percent(12);
        let has_lives = has_lives && clients.iter().all(|client| client.raw.media.is_empty());
        let lives = has_lives.then(|| LivesPlan::of(&mut rng.fork(21), &mut clients));
        let mut orders = orders(&mut rng.fork(5));
        if let Some(engines) = &engines {
            engines.add_drains(&mut rng.fork(19), &mut orders);
        }
        Self {
            config,
            info,
            door_seed: rng.fork(6).next_u64(),
            clients,
            orders,
            poison,
            adapter_slots,
            engines,
            lives,
        }
    }

    /// Returns whether some of its requests have constrained outputs.
    #[must_use]
    pub fn is_constrained(&self) -> bool {
        self.clients.iter().any(|client| client.raw.params.structured_output.is_some())
    }

    /// Returns the stream of one choice without faults.
    #[must_use]
    pub fn answer(&self, client: &ClientPlan, seed: u64) -> oracle::Answer {
        let poison = self.poison.as_ref().filter(|poison| poison.is_in(&client.prompt));
        question(&self.config.scheduler, client, seed, poison)
    }
}

fn question(
    config: &SchedulerConfig,
    client: &ClientPlan,
    seed: u64,
    poison: Option<&Poison>,
) -> oracle::Answer {
    let max_model_len = config.max_model_len;
    let room = max_model_len.saturating_sub(client.prompt.len()) as u32;
    let cache_tokens = Demand::new(&config.kv_cache()).num_tokens_max().unwrap_or(usize::MAX);
    let max_tokens = client.raw.max_tokens.map_or(room, |tokens| tokens.min(room));
    oracle::answer(&Question {
        prompt: &client.prompt,
        cache_salt: client.raw.cache_salt.as_deref(),
        images: &client.raw.media,
        lora: client.raw.lora.as_deref(),
        params: &SamplingParams { max_tokens, ..client.raw.params.clone() },
        pooling: client.raw.pooling.as_ref(),
        seed,
        max_model_len,
        cache_tokens,
        poison,
    })
}

fn scheduler_config(rng: &mut Rng) -> SchedulerConfig {
    let block_size = rng.pick(&[2, 4, 4, 4, 8]);
    let max_model_len = rng.pick(&[32, 48, 64, 96]);
    let enable_chunked_prefill = rng.percent(80);
    let tokens = rng.pick(&[3, 8, 16, 32, 64]);
    // The sizes go from a cache too small for the longest request to one that holds all requests.
    let blocks = max_model_len / block_size;
    let num_blocks = 1 + rng.pick(&[blocks / 2, blocks, blocks + 2, 2 * blocks, 4 * blocks]);
    SchedulerConfig {
        policy: rng.pick(&[SchedulingPolicy::Fcfs, SchedulingPolicy::Priority]),
        priority_age_bound: rng.pick(&[20_000, 30_000_000]),
        max_num_seqs: rng.pick(&[1, 2, 3, 4, 8]),
        max_num_batched_tokens: match enable_chunked_prefill {
            true => tokens,
            false => tokens.max(max_model_len),
        },
        max_model_len,
        long_prefill_token_threshold: rng.pick(&[0, 0, 5]),
        enable_chunked_prefill,
        reserve_full_isl: rng.percent(50),
        watermark: rng.pick(&[0.0, 0.0, 0.1]),
        prefill_schedule_interval: rng.pick(&[1, 1, 1, 3]),
        kv_spec: KvSpec::full(1, block_size, 1),
        num_blocks: num_blocks as u32,
        enable_prefix_caching: rng.percent(85),
        ..SchedulerConfig::default()
    }
}

/// Gives one run in two layers of several kinds, or windows or states alone. Some windows are
/// shorter than a block, and some chunks begin within one.
fn set_layout(rng: &mut Rng, config: &mut SchedulerConfig) {
    if !rng.percent(50) {
        return;
    }
    let num_layers = rng.within(1, 4);
    let tokens = |rng: &mut Rng| rng.pick(&[1, 2, 3, 4, 6, 8, 11, 16, 30]);
    let kinds: Vec<_> = (0..num_layers)
        .map(|_| match rng.below(7) {
            0 | 1 => KvKind::Full,
            2 | 3 => KvKind::Sliding { window: tokens(rng) },
            4 => KvKind::ChunkedLocal { chunk: tokens(rng) },
            _ => KvKind::State,
        })
        .collect();
    config.kv_spec = KvSpec::of_layers(&kinds, config.kv_spec.block_size, 1);
    config.num_blocks = 1 + (config.num_blocks - 1) * config.kv_spec.groups.len() as u32;
}

fn system_config(rng: &mut Rng, scheduler: SchedulerConfig) -> SystemConfig {
    let mut config = SystemConfig::new(scheduler);
    config.num_input_processors = rng.within(1, 2);
    config.num_egress_shards = rng.within(1, 2);
    if rng.percent(3) {
        config.admission.max_num_requests = 3;
    }
    config
}

/// Returns a prompt. Prompts of a family share their beginning, up to about a block boundary.
fn prompt(rng: &mut Rng, config: &SchedulerConfig) -> Vec<TokenId> {
    let num_tokens = u64::from(VOCAB_SIZE);
    let family = rng.below(3);
    let borders = rng.within(0, 5) * config.kv_spec.block_size;
    let num_shared = (borders + rng.within(0, 2)).saturating_sub(1);
    let mut of_family = Rng::new(family);
    let shared: Vec<_> = (0..num_shared).map(|_| of_family.below(num_tokens)).collect();
    let own = rng.within(0, 2 * config.kv_spec.block_size);
    let own: Vec<_> = (0..own).map(|_| rng.below(num_tokens)).collect();
    let mut prompt: Vec<_> = shared.into_iter().chain(own).map(|token| token as TokenId).collect();
    // One in a hundred is empty, and one in a hundred is too long.
    match rng.below(100) {
        0 => prompt.clear(),
        1 => prompt.resize(config.max_model_len, 7),
        _ if prompt.is_empty() => prompt.push(5),
        _ => prompt.truncate(config.max_model_len * 2 / 3),
    }
    prompt
}

fn client(rng: &mut Rng, config: &SchedulerConfig) -> ClientPlan {
    let arrival = Duration::from_millis(rng.pick(&[0, 0, 1, 5, 20, 60]));
    let mut prompt = prompt(rng, config);
    let mut raw = RawRequest::new(Prompt::Tokens(prompt.clone()));
    if rng.percent(10) {
        let text = "once upon a time there was a playhouse"[..rng.within(1, 30)].to_owned();
        prompt = Vocabulary.encode(&text, true).unwrap_or_default();
        raw.prompt = Prompt::Text(text);
    }
    let room = config.max_model_len.saturating_sub(prompt.len()).max(1);
    let most = rng.pick(&[1, 4, 8, 12, 16, 24, 40]).min(room);
    let max_tokens = rng.within(1, most) as u32;
    // A wish for all the room may be one for the whole context: the output ends where that does.
    let wish = if max_tokens as usize == room { config.max_model_len as u32 } else { max_tokens };
    raw.max_tokens = (!rng.percent(5)).then_some(wish);
    raw.priority = rng.pick(&[0, 0, -1, 2]);
    raw.cache_salt = rng.percent(15).then(|| rng.pick(&["tenant-a", "tenant-b"]).to_owned());
    raw.params = params(rng, max_tokens);
    let manners = (0..raw.params.n).map(|_| manner(rng)).collect();
    let mut client = ClientPlan { arrival, raw, prompt, manners };
    add_stops(rng, config, &mut client);
    client.raw.timeout = rng.percent(8).then(|| Duration::from_millis(rng.within(1, 300) as u64));
    client
}

fn params(rng: &mut Rng, max_tokens: u32) -> SamplingParams {
    let is_greedy = rng.percent(40);
    SamplingParams {
        n: if is_greedy || rng.percent(80) { 1 } else { rng.pick(&[2, 3]) },
        temperature: if is_greedy { 0.0 } else { 0.8 },
        seed: rng.percent(60).then(|| rng.next_u64()),
        min_tokens: if rng.percent(15) { rng.below(u64::from(max_tokens) + 1) as u32 } else { 0 },
        ignore_eos: rng.percent(30),
        logprobs: rng.percent(20).then(|| rng.below(4) as u32),
        prompt_logprobs: rng.percent(12).then(|| rng.below(3) as u32),
        include_stop_str_in_output: rng.percent(30),
        skip_special_tokens: rng.percent(80),
        ..SamplingParams::default()
    }
}

fn manner(rng: &mut Rng) -> Manner {
    match rng.below(20) {
        0 | 1 => Manner::Leaves(rng.within(0, 12)),
        2 => Manner::LeavesAfter(Duration::from_millis(rng.below(200))),
        3 => Manner::Aborts(rng.within(0, 12)),
        4 | 5 => Manner::Slow(Duration::from_millis(rng.within(1, 200) as u64)),
        _ => Manner::Patient,
    }
}

/// Adds stop strings and stop tokens that the output will meet, and some that it will not.
fn add_stops(rng: &mut Rng, config: &SchedulerConfig, client: &mut ClientPlan) {
    if client.prompt.is_empty() || !rng.percent(30) {
        return;
    }
    let seed = client.raw.params.seed.unwrap_or(0);
    let answer = question(config, client, seed, None);
    if rng.percent(70) {
        let starts: Vec<_> = answer.text.char_indices().map(|(start, _)| start).collect();
        let first = rng.below(starts.len() as u64) as usize;
        let end = first + rng.within(1, 5);
        if let Some(&start) = starts.get(first) {
            let end = starts.get(end).copied().unwrap_or(answer.text.len());
            client.raw.params.stop.push(answer.text[start..end].to_owned());
        }
    }
    if rng.percent(40) {
        client.raw.params.stop.push("END".to_owned());
    }
    if rng.percent(30) {
        let index = rng.below(answer.tokens.len() as u64) as usize;
        client.raw.params.stop_token_ids.extend(answer.tokens.get(index).map(|t| t.token_id));
    }
}

/// Adds returning clients and others between them to one run in four, with a cache that hardly
/// holds one of them. So blocks are reallocated while others look for their content.
fn crowd(rng: &mut Rng, config: &mut SchedulerConfig, clients: &mut Vec<ClientPlan>) {
    if !rng.percent(25) {
        return;
    }
    let blocks = config.max_model_len / config.kv_spec.block_size;
    config.enable_prefix_caching = true;
    let num_blocks = (blocks + rng.within(0, 3)) * config.kv_spec.groups.len();
    config.num_blocks = num_blocks as u32 + 1;
    config.max_num_seqs = config.max_num_seqs.max(3);
    for _ in 0..rng.within(6, 12) {
        let arrival = Duration::from_millis(rng.below(250));
        let again =
            rng.percent(70).then(|| clients[rng.below(clients.len() as u64) as usize].clone());
        let client = again.unwrap_or_else(|| client(rng, config));
        clients.push(ClientPlan { arrival, ..client });
    }
}

/// Adds tenants to one run in twelve.
fn set_quota(rng: &mut Rng, config: &mut SystemConfig, clients: &mut [ClientPlan]) {
    if !rng.percent(8) {
        return;
    }
    config.admission.quota = Quota {
        max_open_requests: rng.pick(&[None, Some(1), Some(2)]),
        tokens_per_minute: rng.pick(&[None, Some(60), Some(400)]),
    };
    for client in clients {
        client.raw.tenant = rng.percent(80).then(|| Tenant(rng.below(2) as u32));
    }
}

/// Adds constrained outputs to one run in four. Some of them cannot be produced.
fn set_formats(rng: &mut Rng, config: &mut SystemConfig, clients: &mut [ClientPlan]) {
    if !rng.percent(25) {
        return;
    }
    config.num_grammar_threads = rng.within(1, 2);
    for client in clients {
        if rng.percent(30) {
            continue;
        }
        let nature = match rng.below(16) {
            0 | 1 => Nature::Bad,
            2 => Nature::Panics,
            3 => Nature::Hangs,
            _ => Nature::Good,
        };
        let params = &mut client.raw.params;
        params.structured_output = Some(Arc::new(nature.format(rng.below(4))));
        params.stop.clear();
        params.stop_token_ids.clear();
        add_stops(rng, &config.scheduler, client);
    }
}

/// Gives a model that has no KV cache, because its attention is to both sides.
fn set_encoder(config: &mut SchedulerConfig) {
    config.kv_spec.groups.clear();
    (config.enable_chunked_prefill, config.enable_prefix_caching) = (false, false);
    config.max_num_batched_tokens = config.max_num_batched_tokens.max(config.max_model_len);
}

/// Lets this share of the clients pool their prompts instead: of one run in three, or of every run
/// if all of them do.
fn set_poolings(rng: &mut Rng, clients: &mut [ClientPlan], share: u64) {
    if share < 100 && !rng.percent(33) {
        return;
    }
    for client in clients {
        if !rng.percent(share) {
            continue;
        }
        let tasks = [PoolingTask::Embed, PoolingTask::Classify, PoolingTask::TokenEmbed];
        let dimensions = rng.percent(20).then(|| rng.within(1, model::POOLED_WIDTH) as u32);
        client.raw.params = SamplingParams::default();
        client.raw.max_tokens = None;
        client.raw.pooling =
            Some(PoolingParams { dimensions, ..PoolingParams::new(rng.pick(&tasks)) });
        set_chunks(rng, client);
        client.manners.truncate(1);
    }
}

/// Lets one vector in three be two, of the prompt's chunks.
fn set_chunks(rng: &mut Rng, client: &mut ClientPlan) {
    let num_tokens = client.prompt.len();
    let Some(params) = client.raw.pooling.as_mut() else { return };
    let is_tokens = matches!(client.raw.prompt, Prompt::Tokens(_));
    if params.task == PoolingTask::Embed && is_tokens && num_tokens > 1 && rng.percent(33) {
        params.chunk_ends = vec![rng.within(1, num_tokens - 1) as u32, num_tokens as u32];
    }
}

/// Gives the requests of one run in three adapters, more than may be in use or than the memory
/// holds. Returns the number that it holds.
fn set_adapters(rng: &mut Rng, config: &mut SystemConfig, clients: &mut [ClientPlan]) -> usize {
    config.scheduler.max_loras = rng.within(1, 2);
    let slots = config.scheduler.max_loras + rng.within(0, 1);
    if !rng.percent(33) {
        return slots;
    }
    let count = rng.pick(&[1, 2, 4, 8]);
    for client in clients {
        if rng.percent(70) {
            client.raw.lora = Some(Arc::new(adapter::adapter(rng.below(count))));
            client.raw.params.stop.clear();
            client.raw.params.stop_token_ids.clear();
            if client.raw.pooling.is_none() {
                add_stops(rng, &config.scheduler, client);
            }
        }
    }
    slots
}

/// Sets how often actors may die. In most runs this limit is never reached, because the test is
/// that they restart. In one run of sixteen they soon die too often, which ends their supervisor,
/// but never the root.
fn set_fragility(rng: &mut Rng, config: &mut SystemConfig) {
    let often = Intensity::new(1_000, 1);
    config.supervision = Supervision::uniform(often);
    if rng.percent(6) {
        let seldom = Intensity::new(rng.below(3) as usize, 10);
        config.supervision = BELOW_ROOT
            .into_iter()
            .fold(Supervision::uniform(seldom), |all, role| all.with(role, often));
    }
}
