//! Host time of a decode step: from the end of one step on the device to the start of the next. The
//! path goes through worker, scheduler, KV cache manager and back. Meanwhile ledger, detokenizers,
//! streamers and clients work on the other threads. One mode plans each step after the one before,
//! the other plans it while that one is computed.

#![allow(clippy::disallowed_methods, reason = "its device sleeps on its own thread")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use common::{FakeCodec, FakeGrammars, VOCAB};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use playhouse_actors::{
    logic::{
        kv_cache::KvSpec,
        request::{
            ids::Epoch,
            outputs::{DraftCounts, RequestOutput, SampledToken, StepOutput},
        },
        scheduler::{SchedulerConfig, output::SchedulerOutput},
    },
    ports::{ExecuteError, ExecutorFactory, ModelExecutor, ModelInfo},
    system::{System, SystemConfig},
};
use tokio::runtime::Runtime;

const PROMPT_TOKENS: usize = 32;

/// Times in which the device was idle between full steps.
#[derive(Debug, Default)]
struct Gaps {
    nanos: AtomicU64,
    count: AtomicU64,
}

/// Time of a step on the device, in which the processor is free. It is shorter than any model needs
/// for this many requests. It is long enough for the clients to read the results of the step
/// before.
const ON_DEVICE: Duration = Duration::from_millis(2);

/// A model on its own device.
#[derive(Debug)]
struct RemoteModel {
    info: ModelInfo,
    num_requests: usize,
    gaps: Arc<Gaps>,
}

#[derive(Debug)]
struct RemoteExecutor {
    num_requests: usize,
    gaps: Arc<Gaps>,
    /// End of the last step, if it was a full one.
    idle_since: Option<Instant>,
}

impl ExecutorFactory for RemoteModel {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn create(&self, _: Epoch) -> Result<Box<dyn ModelExecutor>, ExecuteError> {
        let (num_requests, gaps) = (self.num_requests, Arc::clone(&self.gaps));
        Ok(Box::new(RemoteExecutor { num_requests, gaps, idle_since: None }))
    }
}

impl ModelExecutor for RemoteExecutor {
    fn execute(&mut self, step: &SchedulerOutput) -> Result<StepOutput, ExecuteError> {
        let is_full = step.scheduled_cached.len() == self.num_requests;
        if let Some(since) = self.idle_since.filter(|_| is_full) {
            self.gaps.nanos.fetch_add(since.elapsed().as_nanos() as u64, Ordering::Relaxed);
            self.gaps.count.fetch_add(1, Ordering::Relaxed);
        }
        std::thread::sleep(ON_DEVICE);
        let new = step.scheduled_new.iter().map(|data| data.request.id);
        let requests = new.chain(step.scheduled_cached.iter().map(|data| data.request));
        let outputs = requests.map(|request| RequestOutput {
            request,
            produced: [SampledToken { token_id: 7, logprobs: None }].into_iter().collect(),
            prompt_logprobs: None,
            drafts: DraftCounts::default(),
            failure: None,
        });
        let output = StepOutput { epoch: step.epoch, step: step.step, outputs: outputs.collect() };
        self.idle_since = is_full.then(Instant::now);
        Ok(output)
    }
}

async fn system(num_requests: usize, async_scheduling: bool, gaps: &Arc<Gaps>) -> System {
    let (block_size, max_model_len) = (16, 8_192);
    let num_blocks = num_requests * max_model_len / block_size + 1;
    let scheduler = SchedulerConfig {
        max_num_seqs: num_requests,
        max_num_batched_tokens: 64 * num_requests,
        max_model_len,
        kv_spec: KvSpec::full(1, block_size, 1),
        num_blocks: num_blocks as u32,
        async_scheduling,
        ..SchedulerConfig::default()
    };
    let info = ModelInfo {
        vocab_size: VOCAB,
        max_model_len,
        kv_spec: scheduler.kv_spec.clone(),
        num_blocks,
        eos_token_ids: Vec::new(),
        heads: Default::default(),
        max_item_embeds: 0,
        attends_within_items: false,
        attends_within_prompts: false,
        short_context: None,
    };
    let model = RemoteModel { info, num_requests, gaps: Arc::clone(gaps) };
    let (codec, grammars) = (Arc::new(FakeCodec::default()), Arc::new(FakeGrammars::default()));
    let config = SystemConfig::new(scheduler);
    let spawned = System::spawn(config, Arc::new(model), codec, grammars, 0).await;
    let system = spawned.unwrap_or_else(|error| unreachable!("{error}"));
    system.ready().await.unwrap_or_else(|error| unreachable!("{error}"));
    system
}

/// Runs `num_requests` requests at once, with `num_tokens` tokens each. Their clients read
/// everything.
async fn generate(system: &System, num_requests: usize, num_tokens: u32) {
    let mut clients = Vec::new();
    for salt in 0..num_requests as u32 {
        // Lengths differ, so that requests cross block boundaries in different steps.
        let len = PROMPT_TOKENS + salt as usize % 16;
        let (_, request) = common::request(salt, len, num_tokens);
        let accepted = system.submit(request).await;
        let accepted = accepted.unwrap_or_else(|error| unreachable!("{error}"));
        for mut stream in accepted.choices {
            clients.push(tokio::spawn(async move { while stream.next().await.is_some() {} }));
        }
    }
    for client in clients {
        drop(client.await);
    }
}

fn bench(criterion: &mut Criterion) {
    let Ok(runtime) = Runtime::new() else { return };
    let mut group = criterion.benchmark_group("host_step");
    group.sample_size(10);
    let modes = [("in turn", false), ("ahead", true)];
    for (mode, num_requests) in modes.into_iter().flat_map(|mode| [1, 32, 256].map(|n| (mode, n))) {
        let (mode, async_scheduling) = mode;
        let gaps = Arc::new(Gaps::default());
        let system = runtime.block_on(system(num_requests, async_scheduling, &gaps));
        group.bench_function(BenchmarkId::new(mode, num_requests), |bencher| {
            bencher.iter_custom(|iterations| {
                // Outputs are so long that the first still runs when the last begins.
                let num_tokens = iterations.clamp(128, 512) as u32;
                let taken = || [&gaps.nanos, &gaps.count].map(|gap| gap.load(Ordering::Relaxed));
                let before = taken();
                runtime.block_on(generate(&system, num_requests, num_tokens));
                let after = taken();
                let [nanos, count] = [0, 1].map(|i| after[i] - before[i]);
                Duration::from_nanos(nanos * iterations / count.max(1))
            });
        });
        runtime.block_on(system.shutdown());
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
