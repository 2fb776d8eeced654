//! Host time of one decode step: planning it with the KV cache manager, and taking its output.

use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use playhouse_actors::logic::{
    kv_cache::KvCacheManager,
    request::{
        EngineRequest,
        outputs::{DraftCounts, RequestOutput, SampledToken, StepOutput},
    },
    scheduler::{Scheduler, SchedulerConfig, driver::schedule, output::SchedulerOutput},
};

/// Number of steps until new requests replace the old ones, which is not measured.
const NUM_STEPS: usize = 512;

fn request(id: u64) -> EngineRequest {
    // Lengths differ, so that requests cross block boundaries in different steps.
    let prompt_len = 16 + id as usize % 16;
    let prompt = std::iter::repeat_n(id as u32, prompt_len);
    let mut request = EngineRequest::for_test(id, prompt);
    (request.seed, request.arrival, request.eos_token_ids) = (id, id, Arc::from([2]));
    request.sampling_mut().max_tokens = 4096;
    request.sampling_mut().ignore_eos = true;
    request
}

fn answer(step: &SchedulerOutput) -> StepOutput {
    let outputs = step.num_scheduled_tokens().map(|(request, _)| RequestOutput {
        request,
        produced: [SampledToken { token_id: 7, logprobs: None }].into_iter().collect(),
        prompt_logprobs: None,
        drafts: DraftCounts::default(),
        failure: None,
    });
    StepOutput { epoch: step.epoch, step: step.step, outputs: outputs.collect() }
}

struct Engine {
    scheduler: Scheduler,
    kv_cache: KvCacheManager,
}

impl Engine {
    /// Returns an engine in which all prompts are computed.
    fn decoding(num_requests: usize) -> Self {
        let config = SchedulerConfig {
            max_num_seqs: num_requests,
            max_num_batched_tokens: 64 * num_requests,
            max_model_len: 8192,
            num_blocks: 64 * num_requests as u32 + 1,
            ..SchedulerConfig::default()
        };
        let kv_cache = KvCacheManager::new(&config.kv_cache());
        let mut engine = Self { scheduler: Scheduler::new(config), kv_cache };
        for id in 0..num_requests as u64 {
            engine.scheduler.add(Arc::new(request(id)));
        }
        let output = engine.plan();
        engine.update(answer(&output));
        engine
    }

    fn plan(&mut self) -> SchedulerOutput {
        schedule(&mut self.scheduler, &mut self.kv_cache, 0)
            .map(|step| step.output)
            .unwrap_or_default()
    }

    fn update(&mut self, output: StepOutput) {
        let num_rows = output.outputs.len();
        assert_eq!(self.scheduler.update_from_output(output, 0).len(), num_rows);
    }
}

/// The output is created outside the measured time, because it is the worker's work.
fn decode_step(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("scheduler_step");
    for num_requests in [1, 64, 256, 1024] {
        group.bench_function(BenchmarkId::from_parameter(num_requests), |bencher| {
            let mut engine = Engine::decoding(num_requests);
            bencher.iter_custom(|iterations| {
                let mut spent = std::time::Duration::ZERO;
                for iteration in 0..iterations {
                    if iteration as usize % NUM_STEPS == NUM_STEPS - 1 {
                        engine = Engine::decoding(num_requests);
                    }
                    let begin = std::time::Instant::now();
                    let output = engine.plan();
                    spent += begin.elapsed();
                    let answer = answer(&output);
                    let begin = std::time::Instant::now();
                    engine.update(answer);
                    spent += begin.elapsed();
                }
                spent
            });
        });
    }
    group.finish();
}

criterion_group!(benches, decode_step);
criterion_main!(benches);
