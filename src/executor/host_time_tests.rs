//! What a step costs in the runner beside the model: laying out and handing results over.
#![cfg(target_os = "linux")]

use std::{path::Path, sync::Arc};

use burn::tensor::{Device, Tensor};
use playhouse_actors::{
    logic::{
        ids::{Epoch, RequestId},
        request::EngineRequest,
        sampling_params::SamplingParams,
        scheduler_output::{CachedRequestData, NewRequestData, SchedulerOutput},
    },
    ports::{ExecutorFactory, ModelInfo},
};
use playhouse_kernels::{KvCache, KvCacheShape, WeightDtype};

use super::RunnerFactory;
use crate::{
    grammar::tests::store,
    model::{CausalLm, ForwardBatch, LoadOptions, ModelConfig, load_model},
};

const BLOCK_SIZE: usize = 16;
const NUM_REQUESTS: usize = 256;
const PROMPT_TOKENS: usize = 1_000;

/// A model that takes no time: its hidden states are zeros, and it knows four tokens.
struct InstantModel(Arc<dyn CausalLm>);

impl CausalLm for InstantModel {
    fn config(&self) -> &ModelConfig {
        self.0.config()
    }

    fn dtype(&self) -> WeightDtype {
        self.0.dtype()
    }

    fn kv_cache_shape(&self, num_blocks: usize, block_size: usize) -> KvCacheShape {
        self.0.kv_cache_shape(num_blocks, block_size)
    }

    fn forward(&self, batch: &ForwardBatch<'_>, _: &mut KvCache) -> Tensor<2> {
        assert_eq!(batch.meta.block_tables.len(), NUM_REQUESTS);
        Tensor::zeros([batch.token_ids.len(), 1], &Device::flex())
    }

    fn logits(&self, _: Tensor<2>, rows: &[u32]) -> Tensor<2> {
        Tensor::zeros([rows.len(), 4], &Device::flex())
    }
}

fn begin(id: u64) -> NewRequestData {
    let request = EngineRequest {
        id: RequestId(id),
        prompt_token_ids: vec![1; PROMPT_TOKENS].into(),
        params: SamplingParams { temperature: 0.0, ..SamplingParams::default() },
        seed: 0,
        eos_token_ids: [].into(),
        arrival: 0,
        priority: 0,
        cache_salt: None,
        deadline: None,
        mm_features: [].into(),
    };
    NewRequestData {
        request: Arc::new(request),
        output_token_ids: Vec::new(),
        block_ids: (0..PROMPT_TOKENS.div_ceil(BLOCK_SIZE) as u32).collect(),
        num_computed_tokens: PROMPT_TOKENS - 1,
        num_scheduled_tokens: 1,
    }
}

/// The `number`-th decode step, from 0.
fn decode(number: usize) -> SchedulerOutput {
    let data = |id| CachedRequestData {
        request: RequestId(id),
        new_block_ids: match (PROMPT_TOKENS + number).is_multiple_of(BLOCK_SIZE) {
            true => vec![7],
            false => Vec::new(),
        },
        num_computed_tokens: PROMPT_TOKENS + number,
        num_scheduled_tokens: 1,
        new_token_ids: vec![0],
    };
    SchedulerOutput {
        scheduled_cached: (0..NUM_REQUESTS as u64).map(data).collect(),
        total_num_scheduled_tokens: NUM_REQUESTS,
        ..SchedulerOutput::default()
    }
}

/// What the processor spent on this thread so far, in µs: unlike the time that passed, it does not
/// depend on what else the machine does.
fn cpu_micros() -> u64 {
    let spent = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let nanos: u64 = spent.split_whitespace().next().unwrap().parse().unwrap();
    nanos / 1_000
}

/// The aim is 100 µs for all of the host; builds for tests, on machines that do other things as well,
/// get much room.
#[test]
fn a_step_of_256_requests_costs_the_runner_little() {
    const NUM_STEPS: usize = 400;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/demo-model");
    let model = load_model(&folder, &LoadOptions::default(), &mut |_| ()).unwrap();
    let info = ModelInfo {
        vocab_size: 4,
        max_model_len: 4_096,
        block_size: BLOCK_SIZE,
        num_blocks: 128,
        eos_token_ids: Vec::new(),
    };
    let (dtype, model) = (model.dtype(), Arc::new(InstantModel(model)));
    let grammars = Arc::new(store());
    let factory = RunnerFactory::new(model, info, dtype.into(), &Device::flex(), grammars).unwrap();
    let mut runner = factory.create(Epoch(1)).unwrap();
    let begin = SchedulerOutput {
        scheduled_new: (0..NUM_REQUESTS as u64).map(begin).collect(),
        total_num_scheduled_tokens: NUM_REQUESTS,
        ..SchedulerOutput::default()
    };
    runner.execute(&begin).unwrap();
    let steps: Vec<_> = (0..NUM_STEPS).map(decode).collect();
    let since = cpu_micros();
    for step in &steps {
        let output = runner.execute(step).unwrap();
        assert!(output.outputs.iter().all(|output| output.sampled.len() == 1));
    }
    let micros = (cpu_micros() - since) / NUM_STEPS as u64;
    let limit = if cfg!(debug_assertions) { 2_000 } else { 80 };
    assert!(micros < limit, "{micros} µs a step");
}
