//! The whole engine on the demo model: from a request to its last token, alone and in company.
//! The model is tiny, so this is what the engine itself costs.

// A benchmark that cannot run should say so and stop.
#![allow(clippy::unwrap_used)]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use playhouse::{
    Engine, EngineConfig,
    actors::{
        logic::sampling_params::SamplingParams,
        message::input_processor::{Prompt, RawRequest},
    },
};
use tokio::runtime::Runtime;

const PROMPT_TOKENS: u32 = 32;
const OUTPUT_TOKENS: u32 = 32;

async fn generate(engine: &Engine, requests: u32) {
    let mut streams = Vec::new();
    for request in 0..requests {
        let prompt = (0..PROMPT_TOKENS).map(|i| 300 + (i * 7 + request * 13) % 1_000).collect();
        let raw = RawRequest {
            params: SamplingParams {
                temperature: 0.0,
                ignore_eos: true,
                ..SamplingParams::default()
            },
            max_tokens: Some(OUTPUT_TOKENS),
            ..RawRequest::new(Prompt::Tokens(prompt))
        };
        streams.extend(engine.submit(raw).await.unwrap().choices);
    }
    for mut stream in streams {
        while stream.next().await.is_some() {}
    }
}

fn bench(criterion: &mut Criterion) {
    let runtime = Runtime::new().unwrap();
    let engine = runtime.block_on(Engine::spawn(EngineConfig::default(), |_| ())).unwrap();
    let mut group = criterion.benchmark_group("end_to_end");
    group.sample_size(10);
    for requests in [1, 8, 32] {
        group.throughput(Throughput::Elements(u64::from(requests * OUTPUT_TOKENS)));
        group.bench_function(BenchmarkId::new("requests", requests), |bencher| {
            bencher.iter(|| runtime.block_on(generate(&engine, requests)));
        });
    }
    group.bench_function("start", |bencher| {
        bencher.iter(|| {
            runtime.block_on(async {
                let engine = Engine::spawn(EngineConfig::default(), |_| ()).await.unwrap();
                engine.shutdown().await;
            });
        });
    });
    group.finish();
    runtime.block_on(engine.shutdown());
}

criterion_group!(benches, bench);
criterion_main!(benches);
