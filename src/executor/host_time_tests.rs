//! What a step costs in the runner beside the model: laying out and handing results over.

use std::{path::Path, sync::Arc, time::Instant};

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

/// The aim is 100 µs for all of the host. The best of many, since tests run beside others; and
/// some room for builds that are not optimised.
#[test]
fn a_step_of_256_requests_costs_the_runner_little() {
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
    let factory = RunnerFactory::new(model, info, dtype, &Device::flex(), grammars).unwrap();
    let mut runner = factory.create(Epoch(1)).unwrap();
    let begin = SchedulerOutput {
        scheduled_new: (0..NUM_REQUESTS as u64).map(begin).collect(),
        total_num_scheduled_tokens: NUM_REQUESTS,
        ..SchedulerOutput::default()
    };
    runner.execute(&begin).unwrap();
    let mut micros: Vec<u128> = (0..400)
        .map(|number| {
            let step = decode(number);
            let since = Instant::now();
            let output = runner.execute(&step).unwrap();
            let micros = since.elapsed().as_micros();
            assert!(output.outputs.iter().all(|output| output.sampled.len() == 1));
            micros
        })
        .collect();
    micros.sort_unstable();
    let (best, median) = (micros[0], micros[micros.len() / 2]);
    let limit = if cfg!(debug_assertions) { 300 } else { 60 };
    assert!(best < limit, "{best} µs at best, {median} µs in the middle");
    // For `--nocapture`.
    println!("runner, {NUM_REQUESTS} requests: {best} µs at best, {median} µs in the middle");
}
