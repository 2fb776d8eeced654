//! The whole engine on the demo model: from a request to its last token, alone and in a batch.
//! The model is tiny, so this measures the cost of the engine itself.

// A benchmark that cannot run should say so and stop.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use playhouse::{
    Engine, EngineConfig,
    api::{OutputFormat, Prompt, RawRequest, SamplingParams},
};
use tokio::runtime::Runtime;

const PROMPT_TOKENS: u32 = 32;
const OUTPUT_TOKENS: u32 = 32;

/// Generates `requests` outputs of `tokens` tokens at once, in `format` if there is one.
async fn generate(engine: &Engine, requests: u32, tokens: u32, format: Option<OutputFormat>) {
    let structured_output = format.map(|format| Arc::new(format.into()));
    let mut streams = Vec::new();
    for request in 0..requests {
        let prompt = (0..PROMPT_TOKENS).map(|i| 300 + (i * 7 + request * 13) % 1_000).collect();
        let raw = RawRequest {
            params: SamplingParams {
                temperature: 0.0,
                ignore_eos: true,
                structured_output: structured_output.clone(),
                ..SamplingParams::default()
            },
            max_tokens: Some(tokens),
            ..RawRequest::new(Prompt::Tokens(prompt))
        };
        streams.extend(engine.submit(raw).await.unwrap().choices);
    }
    for mut stream in streams {
        while stream.next().await.is_some() {}
    }
}

/// Returns a typical schema of a client. Another title makes it another schema.
fn order(title: &str) -> OutputFormat {
    let schema = r#"{"title": "TITLE", "type": "object", "properties": {
        "id": {"type": "integer"}, "state": {"enum": ["open", "paid", "sent"]},
        "items": {"type": "array", "minItems": 20, "items": {"type": "object", "properties": {
            "name": {"type": "string"}, "count": {"type": "integer", "minimum": 1},
            "price": {"anyOf": [{"type": "number"}, {"type": "null"}]}},
            "required": ["name", "count", "price"], "additionalProperties": false}}},
        "required": ["id", "state", "items"], "additionalProperties": false}"#;
    OutputFormat::JsonSchema(schema.replace("TITLE", title))
}

fn bench(criterion: &mut Criterion) {
    let runtime = Runtime::new().unwrap();
    let engine = runtime.block_on(Engine::spawn(EngineConfig::default(), |_| ())).unwrap();
    let mut group = criterion.benchmark_group("end_to_end");
    group.sample_size(10);
    for requests in [1, 8, 32] {
        group.throughput(Throughput::Elements(u64::from(requests * OUTPUT_TOKENS)));
        group.bench_function(BenchmarkId::new("requests", requests), |bencher| {
            bencher.iter(|| runtime.block_on(generate(&engine, requests, OUTPUT_TOKENS, None)));
        });
    }
    // Minus the same figure without a format, per token: the cost of a mask per step and request.
    for requests in [1, 8, 32] {
        group.throughput(Throughput::Elements(u64::from(requests * OUTPUT_TOKENS)));
        group.bench_function(BenchmarkId::new("structured", requests), |bencher| {
            let generate = || generate(&engine, requests, OUTPUT_TOKENS, Some(order("")));
            bencher.iter(|| runtime.block_on(generate()));
        });
    }
    // One token, with a schema that is compiled already, and with a new one.
    let mut num_titles = 0;
    for is_new in [false, true] {
        let name = if is_new { "new" } else { "known" };
        group.bench_function(BenchmarkId::new("first_token_of_a_schema", name), |bencher| {
            bencher.iter(|| {
                num_titles += u32::from(is_new);
                let format = order(&num_titles.to_string());
                runtime.block_on(generate(&engine, 1, 1, Some(format)));
            });
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
