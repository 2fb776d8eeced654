//! Recorded and replayed steps of a runner on a GPU, compared with the same steps launched kernel
//! by kernel.

use std::path::Path;

use playhouse_actors::{
    logic::{
        kv_cache::{BlockIds, KvSpec},
        request::{
            ids::{Epoch, RequestId},
            outputs::StepOutput,
        },
        scheduler::output::{CachedRequestData, SchedulerOutput},
    },
    ports::{ExecutorFactory, ModelInfo},
};
use playhouse_kernels::{ComputeDevice, DeviceKind, devices};

use super::{ComputeThreads, Constraints, KvSettings, RunnerFactory, tests};
use crate::{
    grammar::tests::store,
    model::{LoadOptions, load_model},
};

const BLOCK_SIZE: usize = 16;
const NUM_STEPS: usize = 6;
const NUM_REQUESTS_MAX: usize = 40;

/// Returns a GPU, if there is one. Without a GPU, the test prints the reason and passes, unless
/// `PLAYHOUSE_TEST_REQUIRE_GPU=1` makes it fail.
fn gpu() -> Option<ComputeDevice> {
    let found = devices().into_iter().find(|device| device.kind != DeviceKind::Cpu);
    if found.is_none() {
        let is_required =
            std::env::var("PLAYHOUSE_TEST_REQUIRE_GPU").is_ok_and(|value| value == "1");
        assert!(
            !is_required,
            "PLAYHOUSE_TEST_REQUIRE_GPU=1, but there is no device beside the CPU"
        );
        eprintln!("skipped: there is no device beside the CPU");
    }
    found
}

fn factory(device: &ComputeDevice, step_graph_bytes: u64) -> RunnerFactory {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/demo-model");
    let threads = ComputeThreads::common().unwrap();
    let device = device.device.clone();
    let options = LoadOptions { device: device.clone(), ..LoadOptions::default() };
    let model = threads.on_queue(|| load_model(&folder, &options, &mut |_| ()).unwrap());
    let info = ModelInfo {
        vocab_size: model.vocab_size as u32,
        max_model_len: 64,
        kv_spec: KvSpec::full(model.kv_layers.windows.len(), BLOCK_SIZE, 1),
        num_blocks: 1 + 2 * NUM_REQUESTS_MAX,
        eos_token_ids: Vec::new(),
        heads: Default::default(),
        max_item_embeds: 0,
        attends_within_items: false,
        attends_within_prompts: false,
        short_context: None,
    };
    let kv_settings = KvSettings { dtype: model.dtype.into(), device, step_graph_bytes };
    RunnerFactory::new(model, info, kv_settings, Constraints::of(store()), threads).unwrap()
}

/// Returns the tokens of this many prompts, which then get one token in each step. Two of three
/// requests end early.
fn tokens(factory: &RunnerFactory, epoch: u64, num_requests: usize) -> Vec<Vec<u32>> {
    let mut runner = factory.create(Epoch(epoch)).unwrap();
    let mut lens: Vec<usize> = [3, 14, 5].into_iter().cycle().take(num_requests).collect();
    let begin = (0..num_requests).map(|i| {
        let prompt: Vec<u32> = (0..lens[i] as u32).map(|token| 40 + token * 7 + i as u32).collect();
        tests::new(i as u64, &prompt, &[2 * i as u32 + 1, 2 * i as u32 + 2], 0, lens[i])
    });
    let mut step = SchedulerOutput {
        scheduled_new: begin.collect(),
        total_num_scheduled_tokens: lens.iter().sum(),
        ..SchedulerOutput::default()
    };
    let mut drawn = vec![Vec::new(); num_requests];
    for number in 0..NUM_STEPS {
        let StepOutput { outputs, .. } = runner.execute(&step).unwrap();
        step = SchedulerOutput::default();
        if number == 2 {
            let ended = (0..num_requests as u64).filter(|i| i % 3 != 1);
            step.finished = ended.map(RequestId).collect();
        }
        for output in outputs {
            let [sampled] = output.produced.tokens() else { panic!("{output:?}") };
            let i = output.request.0 as usize;
            drawn[i].push(sampled.token_id);
            if !step.finished.contains(&output.request) {
                step.scheduled_cached.push(CachedRequestData {
                    request: output.request,
                    new_block_ids: BlockIds::default(),
                    num_computed_tokens: lens[i],
                    num_scheduled_tokens: 1,
                    num_lookahead_tokens: 0,
                });
                step.total_num_scheduled_tokens += 1;
                lens[i] += 1;
            }
        }
    }
    drawn
}

#[test]
fn recorded_steps_draw_the_tokens_of_those_that_are_not() {
    let Some(device) = gpu() else { return };
    for num_requests in [3, NUM_REQUESTS_MAX] {
        let (eager, recorded) = (factory(&device, 0), factory(&device, 1 << 30));
        let tokens = |factory, epoch| tokens(factory, epoch, num_requests);
        let expected = tokens(&eager, 1);
        let counts = [3, NUM_STEPS, 3].into_iter().cycle().take(num_requests);
        assert!(expected.iter().map(Vec::len).eq(counts));
        assert_eq!(tokens(&recorded, 1), expected);
        let first = recorded.step_graph_stats();
        assert_eq!((first.recorded, first.replayed), (2, 3), "of all rows, and of a third");
        // The next runner finds the steps that the last one recorded.
        assert_eq!(tokens(&recorded, 2), expected);
        let second = recorded.step_graph_stats();
        assert_eq!((second.recorded, second.replayed), (2, 8));
        assert_eq!((second.kept, second.bytes), (2, first.bytes));
        assert_eq!(eager.step_graph_stats(), Default::default());
        // A step whose recording was freed with the memory is recorded again.
        recorded.release_kv_cache().unwrap();
        assert_eq!(tokens(&recorded, 3), expected);
        assert_eq!(recorded.step_graph_stats().recorded, 2);
    }
}
