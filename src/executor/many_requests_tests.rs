//! Many requests in the runner over a model that takes no time, to test the layout of batches and
//! the transfer of results.

use std::{path::Path, sync::Arc, time::Instant};

use burn::tensor::{Device, Tensor};
use playhouse_actors::{
    logic::{
        kv_cache::{BlockIds, KvSpec},
        request::ids::{Epoch, RequestId},
        scheduler::output::{CachedRequestData, NewRequestData, SchedulerOutput},
    },
    ports::{ExecutorFactory, ModelInfo},
};

use super::{ComputeThreads, Constraints, KvSettings, RunnerFactory, tests};
use crate::{
    grammar::tests::store,
    model::{Adapters, Backbone, LmHead, LoadOptions, Model, Positions, Step, load_model},
};

const BLOCK_SIZE: usize = 16;
const NUM_REQUESTS: usize = 256;
const PROMPT_TOKENS: usize = 1_000;

/// A model that takes no time. Its hidden states are zeros, and it has four tokens.
struct InstantModel;

impl Backbone for InstantModel {
    fn embed(&self, token_ids: &[u32], _: Adapters<'_>) -> Tensor<2> {
        Tensor::zeros([token_ids.len(), 1], &Device::flex())
    }

    fn forward(&self, hidden: Tensor<2>, _: Positions<'_>, step: &mut Step<'_>) -> Tensor<2> {
        assert_eq!(step.layer(0).0.block_tables.len(), NUM_REQUESTS);
        hidden
    }
}

impl LmHead for InstantModel {
    fn logits(&self, _: Tensor<2>, rows: &[u32], _: Adapters<'_>) -> Tensor<2> {
        Tensor::zeros([rows.len(), 4], &Device::flex())
    }
}

fn begin(id: u64) -> NewRequestData {
    let blocks: Vec<u32> = (0..PROMPT_TOKENS.div_ceil(BLOCK_SIZE) as u32).collect();
    tests::new(id, &[1; PROMPT_TOKENS], &blocks, PROMPT_TOKENS - 1, 1)
}

/// Returns the `number`-th decode step, from 0.
fn decode(number: usize) -> SchedulerOutput {
    let data = |id| CachedRequestData {
        request: RequestId(id),
        new_block_ids: match (PROMPT_TOKENS + number).is_multiple_of(BLOCK_SIZE) {
            true => vec![7].into(),
            false => BlockIds::default(),
        },
        num_computed_tokens: PROMPT_TOKENS + number,
        num_scheduled_tokens: 1,
        num_lookahead_tokens: 0,
    };
    SchedulerOutput {
        scheduled_cached: (0..NUM_REQUESTS as u64).map(data).collect(),
        total_num_scheduled_tokens: NUM_REQUESTS,
        ..SchedulerOutput::default()
    }
}

/// 256 requests keep their places over steps that reuse buffers, across the borders of blocks. The
/// time of a step is printed but not compared with a limit, because benchmarks measure time.
#[test]
fn each_of_256_requests_gets_its_token_in_every_step() {
    const NUM_STEPS: usize = 400;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/demo-model");
    let model = load_model(&folder, &LoadOptions::default(), &mut |_| ()).unwrap();
    let info = ModelInfo {
        vocab_size: 4,
        max_model_len: 4_096,
        kv_spec: KvSpec::full(model.kv_layers.windows.len(), BLOCK_SIZE, 1),
        num_blocks: 128,
        eos_token_ids: Vec::new(),
        heads: Default::default(),
        max_item_embeds: 0,
        attends_within_items: false,
        attends_within_prompts: false,
        short_context: None,
    };
    let dtype = model.dtype;
    let (backbone, lm_head) = (Arc::new(InstantModel), Arc::new(InstantModel));
    let model = Arc::new(Model { backbone, lm_head: Some(lm_head), ..(*model).clone() });
    let constraints = Constraints::of(store());
    let (dtype, device) = (dtype.into(), Device::flex());
    let kv_settings = KvSettings { dtype, device, step_graph_bytes: 0 };
    let threads = ComputeThreads::common().unwrap();
    let factory = RunnerFactory::new(model, info, kv_settings, constraints, threads).unwrap();
    let mut runner = factory.create(Epoch(1)).unwrap();
    let begin = SchedulerOutput {
        scheduled_new: (0..NUM_REQUESTS as u64).map(begin).collect(),
        total_num_scheduled_tokens: NUM_REQUESTS,
        ..SchedulerOutput::default()
    };
    runner.execute(&begin).unwrap();
    let steps: Vec<_> = (0..NUM_STEPS).map(decode).collect();
    let began = Instant::now();
    for step in &steps {
        let output = runner.execute(step).unwrap();
        let served =
            output.outputs.iter().map(|output| (output.request.0, output.produced.tokens().len()));
        assert!(served.eq((0..NUM_REQUESTS as u64).map(|id| (id, 1))));
    }
    println!("{} µs a step", began.elapsed().as_micros() / NUM_STEPS as u128);
}
