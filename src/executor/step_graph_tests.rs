//! Steps of a runner on a GPU, recorded and replayed, against the same ones launched kernel by kernel.

use std::{path::Path, sync::Arc};

use playhouse_actors::{
    logic::{
        ids::{Epoch, RequestId},
        outputs::StepOutput,
        scheduler_output::{CachedRequestData, SchedulerOutput},
    },
    ports::{ExecutorFactory, ModelInfo},
};
use playhouse_kernels::{ComputeDevice, DeviceKind, devices};

use super::{ComputeThreads, KvSettings, RunnerFactory, tests};
use crate::{
    grammar::tests::store,
    model::{LoadOptions, load_model},
};

const BLOCK_SIZE: usize = 16;
const NUM_STEPS: usize = 6;

/// A test that gets none has nothing to test: it prints why, and passes, unless
/// `PLAYHOUSE_TEST_REQUIRE_GPU=1` asks it to fail.
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

fn factory(device: &ComputeDevice, enforce_eager: bool) -> RunnerFactory {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/demo-model");
    let threads = ComputeThreads::default();
    let device = device.device.clone();
    let options = LoadOptions { device: device.clone(), ..LoadOptions::default() };
    let model = threads.on_queue(|| load_model(&folder, &options, &mut |_| ()).unwrap());
    let info = ModelInfo {
        vocab_size: model.config().vocab_size as u32,
        max_model_len: 64,
        block_size: BLOCK_SIZE,
        num_blocks: 8,
        eos_token_ids: Vec::new(),
    };
    let kv_settings = KvSettings { dtype: model.dtype().into(), device, enforce_eager };
    RunnerFactory::new(model, info, kv_settings, Arc::new(store()), threads).unwrap()
}

/// Three prompts, then a token each in every step; two requests end on the way.
fn tokens(factory: &RunnerFactory, epoch: u64) -> Vec<Vec<u32>> {
    let mut runner = factory.create(Epoch(epoch)).unwrap();
    let mut lens = [3, 14, 5];
    let begin = (0..3).map(|i| {
        let prompt: Vec<u32> = (0..lens[i] as u32).map(|token| 40 + token * 7).collect();
        tests::new(i as u64, &prompt, &[2 * i as u32 + 1, 2 * i as u32 + 2], 0, lens[i])
    });
    let mut step = SchedulerOutput {
        scheduled_new: begin.collect(),
        total_num_scheduled_tokens: lens.iter().sum(),
        ..SchedulerOutput::default()
    };
    let mut drawn = vec![Vec::new(); 3];
    for number in 0..NUM_STEPS {
        let StepOutput { outputs, .. } = runner.execute(&step).unwrap();
        step = SchedulerOutput::default();
        if number == 2 {
            step.finished = vec![RequestId(0), RequestId(2)];
        }
        for output in outputs {
            let [sampled] = &output.sampled[..] else { panic!("{output:?}") };
            let i = output.request.0 as usize;
            drawn[i].push(sampled.token_id);
            if !step.finished.contains(&output.request) {
                step.scheduled_cached.push(CachedRequestData {
                    request: output.request,
                    new_block_ids: Vec::new(),
                    num_computed_tokens: lens[i],
                    num_scheduled_tokens: 1,
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
    let (eager, recorded) = (factory(&device, true), factory(&device, false));
    let expected = tokens(&eager, 1);
    assert_eq!(expected.iter().map(Vec::len).collect::<Vec<_>>(), [3, NUM_STEPS, 3]);
    assert_eq!(tokens(&recorded, 1), expected);
    let first = recorded.step_graph_stats();
    assert_eq!((first.recorded, first.replayed), (2, 3), "of four rows, and of one");
    // The next runner finds what the last one recorded.
    assert_eq!(tokens(&recorded, 2), expected);
    let second = recorded.step_graph_stats();
    assert_eq!((second.recorded, second.replayed), (2, 8));
    assert_eq!(eager.step_graph_stats(), Default::default());
    // Nor is it lost with the memory: it is recorded anew.
    recorded.release_kv_cache().unwrap();
    assert_eq!(tokens(&recorded, 3), expected);
    assert_eq!(recorded.step_graph_stats().recorded, 2);
}
