//! Runners that hang, wake up late, or panic, and the runners that replace them.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::sync_channel,
    },
};

use burn::tensor::{Device, Tensor};
use parking_lot::Mutex;
use playhouse_actors::{
    logic::{
        kv_cache::KvSpec,
        request::{EngineRequest, ids::Epoch},
        scheduler::output::{NewRequestData, SchedulerOutput},
    },
    ports::{ExecuteError, ExecutorFactory, KvContent, ModelExecutor, ModelInfo},
};
use rayon::prelude::*;

use super::{ComputeThreads, Constraints, KvSettings, RunnerFactory};
use crate::{
    grammar::tests::store,
    model::{Adapters, Backbone, LoadOptions, Model, Positions, Step, load_model},
};

const BLOCK_SIZE: usize = 16;
/// The blocks of every request's tokens. All requests share them, so a write by one is visible to
/// the others.
const BLOCKS: [u32; 2] = [1, 2];

type Prank = Box<dyn FnOnce() + Send>;

/// The demo model's backbone with an injected action before its next forward pass.
struct Prankster {
    backbone: Arc<dyn Backbone>,
    prank: Arc<Mutex<Option<Prank>>>,
}

impl Backbone for Prankster {
    fn embed(&self, token_ids: &[u32], adapters: Adapters<'_>) -> Tensor<2> {
        self.backbone.embed(token_ids, adapters)
    }

    fn forward(
        &self,
        hidden: Tensor<2>,
        positions: Positions<'_>,
        step: &mut Step<'_>,
    ) -> Tensor<2> {
        let prank = self.prank.lock().take();
        if let Some(prank) = prank {
            prank();
        }
        self.backbone.forward(hidden, positions, step)
    }
}

/// A factory of runners of one demo model.
struct TestRunners {
    factory: RunnerFactory,
    prank: Arc<Mutex<Option<Prank>>>,
    epochs: AtomicU64,
}

impl TestRunners {
    /// Returns a factory with `count` compute threads. A runner that hangs occupies one.
    fn on_threads(count: usize) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/demo-model");
        let device = Device::flex();
        let options = LoadOptions { device: device.clone(), ..LoadOptions::default() };
        let model = load_model(&folder, &options, &mut |_| ()).unwrap();
        let info = ModelInfo {
            vocab_size: model.vocab_size as u32,
            max_model_len: 64,
            kv_spec: KvSpec::full(model.kv_layers.windows.len(), BLOCK_SIZE, 1),
            num_blocks: 4,
            eos_token_ids: Vec::new(),
            heads: Default::default(),
            max_item_embeds: 0,
            attends_within_items: false,
            attends_within_prompts: false,
            short_context: None,
        };
        let (dtype, prank) = (model.dtype.into(), Arc::default());
        let backbone = Arc::clone(&model.backbone);
        let backbone = Arc::new(Prankster { backbone, prank: Arc::clone(&prank) });
        let model = Arc::new(Model { backbone, ..(*model).clone() });
        let kv_settings = KvSettings { dtype, device, step_graph_bytes: 0 };
        let threads = ComputeThreads::own(count, false).unwrap();
        let factory =
            RunnerFactory::new(model, info, kv_settings, Constraints::of(store()), threads)
                .unwrap();
        Self { factory, prank, epochs: AtomicU64::new(1) }
    }

    /// Returns a runner of a new epoch.
    fn runner(&self) -> Box<dyn ModelExecutor> {
        let epoch = self.epochs.fetch_add(1, Ordering::Relaxed);
        self.factory.create(Epoch(epoch)).unwrap()
    }

    /// Reclaims the cache from all runners so far.
    fn reclaim(&self) -> Result<KvContent, ExecuteError> {
        let last = Epoch(self.epochs.load(Ordering::Relaxed) - 1);
        let content = self.factory.reclaim(last)?;
        self.factory.forgotten(last);
        Ok(content)
    }

    /// Injects an action before the next forward pass, while the runner holds the KV cache.
    fn before_forward(&self, prank: impl FnOnce() + Send + 'static) {
        *self.prank.lock() = Some(Box::new(prank));
    }
}

/// Returns a prompt that differs in every token from the prompts of other seeds.
fn prompt(seed: u32) -> Vec<u32> {
    (0..20).map(|i| 100 + seed * 200 + i * 7).collect()
}

/// Returns a step that computes `prompt` except for its first `computed` tokens.
fn step(prompt: &[u32], computed: usize) -> SchedulerOutput {
    let mut request = EngineRequest::for_test(1, prompt.iter().copied());
    request.sampling_mut().temperature = 0.0;
    request.sampling_mut().logprobs = Some(5);
    let count = prompt.len() - computed;
    let data = NewRequestData {
        request: Arc::new(request),
        output_token_ids: Vec::new(),
        block_ids: BLOCKS.to_vec().into(),
        num_computed_tokens: computed,
        num_scheduled_tokens: count,
    };
    SchedulerOutput {
        scheduled_new: vec![data],
        total_num_scheduled_tokens: count,
        ..SchedulerOutput::default()
    }
}

/// Returns the five likeliest next tokens with the exact bits of their log-probabilities.
fn next(runner: &mut dyn ModelExecutor, step: &SchedulerOutput) -> Vec<(u32, u32)> {
    let output = runner.execute(step).unwrap();
    let sampled = output.outputs[0].produced.tokens()[0].clone();
    let entries = sampled.logprobs.unwrap();
    entries.into_iter().map(|entry| (entry.token_id, entry.logprob.to_bits())).collect()
}

fn is_superseded(result: Result<impl Sized, ExecuteError>) -> bool {
    matches!(result, Err(ExecuteError::Device(why)) if why.starts_with("superseded"))
}

#[test]
fn a_runner_from_before_a_reclaim_is_refused_and_the_content_kept() {
    let runners = TestRunners::on_threads(1);
    let mut old = runners.runner();
    let whole = next(&mut *old, &step(&prompt(1), 0));
    assert_eq!(runners.reclaim(), Ok(KvContent::Kept));
    let mut new = runners.runner();
    assert!(is_superseded(old.execute(&step(&prompt(2), 0))));
    assert_eq!(next(&mut *new, &step(&prompt(1), 19)), whole, "19 tokens were in the cache");
}

#[test]
fn what_a_hung_runner_writes_late_is_seen_by_nobody() {
    let runners = TestRunners::on_threads(1);
    let mut hung = runners.runner();
    let (began, has_begun) = sync_channel(1);
    let (wake, is_woken) = sync_channel::<()>(1);
    runners.before_forward(move || {
        began.send(()).unwrap();
        is_woken.recv().unwrap();
    });
    std::thread::scope(|scope| {
        let zombie = scope.spawn(move || {
            let late = hung.execute(&step(&prompt(2), 0)).map(drop);
            (late, hung.execute(&step(&prompt(2), 0)).map(drop))
        });
        has_begun.recv().unwrap();
        assert_eq!(runners.reclaim(), Ok(KvContent::Lost));
        // The hung runner has the only thread, so this runner computes on others.
        let mut new = runners.runner();
        let whole = next(&mut *new, &step(&prompt(1), 0));
        wake.send(()).unwrap();
        let (late, later) = zombie.join().unwrap();
        assert!(is_superseded(late), "its result would be thrown away");
        assert!(is_superseded(later));
        assert_eq!(next(&mut *new, &step(&prompt(1), 19)), whole, "the cache was written over");
    });
}

#[test]
fn a_lost_cache_is_empty() {
    let runners = TestRunners::on_threads(1);
    let mut old = runners.runner();
    let whole = next(&mut *old, &step(&prompt(1), 0));
    let (began, has_begun) = sync_channel(1);
    let (wake, is_woken) = sync_channel::<()>(1);
    runners.before_forward(move || {
        began.send(()).unwrap();
        is_woken.recv().unwrap();
    });
    std::thread::scope(|scope| {
        scope.spawn(move || old.execute(&step(&prompt(2), 0)).map(drop));
        has_begun.recv().unwrap();
        assert_eq!(runners.reclaim(), Ok(KvContent::Lost));
        let mut new = runners.runner();
        assert_ne!(next(&mut *new, &step(&prompt(1), 19)), whole);
        assert_eq!(next(&mut *new, &step(&prompt(1), 0)), whole);
        wake.send(()).unwrap();
    });
}

#[test]
fn a_panic_in_a_step_leaves_cache_and_threads_to_the_next_runner() {
    let runners = TestRunners::on_threads(2);
    let whole = next(&mut *runners.runner(), &step(&prompt(1), 0));
    for threads in ["its own", "a piece's"] {
        let mut unlucky = runners.runner();
        runners.before_forward(move || match threads {
            "its own" => panic!("on purpose"),
            _ => (0..64).into_par_iter().for_each(|i| assert_ne!(i, 13, "on purpose")),
        });
        let panicked =
            catch_unwind(AssertUnwindSafe(|| unlucky.execute(&step(&prompt(2), 0)).map(drop)));
        assert!(panicked.is_err(), "the worker's thread is to see it, {threads}");
        assert_eq!(runners.reclaim(), Ok(KvContent::Kept), "the lock is free");
        assert!(is_superseded(unlucky.execute(&step(&prompt(2), 0)).map(drop)));
        let mut new = runners.runner();
        assert_eq!(next(&mut *new, &step(&prompt(1), 0)), whole, "{threads}");
    }
}
