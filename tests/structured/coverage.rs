//! Generates outputs at temperature 1 for every schema of the table. Python's `jsonschema` checks
//! them.
//!
//! `PLAYHOUSE_SCHEMA_GENERATIONS` is the number of outputs, by default 150. The table is used again
//! and again, with other seeds.

use std::io::Write;

use playhouse::{
    Engine,
    api::{FinishReason, OutputFormat, Prompt, RawRequest},
};
use serde_json::{Value, json};

use crate::{config, python, run, schemas::SCHEMAS};

/// Requests in flight.
const IN_FLIGHT: usize = 32;
/// Enough for nearly all outputs, with the bias below.
const MAX_TOKENS: u32 = 600;

fn num_generations() -> usize {
    std::env::var("PLAYHOUSE_SCHEMA_GENERATIONS").map_or(150, |count| count.parse().unwrap())
}

/// Returns biases for tokens that close strings, lists and objects, and for tokens that end the
/// output. Without a bias, the weights would take hundreds of tokens to write one of them by
/// chance. Quotation marks have a larger one, because in a string the others close nothing. The
/// weights decide the rest.
fn closing(engine: &Engine) -> Vec<(u32, f32)> {
    let codec = engine.codec();
    let ends = engine.model_info().eos_token_ids.iter().map(|end| (*end, 6.0));
    let bias = |token: u32| {
        let text = codec.token_text(token);
        let is_closing = !text.is_empty() && text.chars().all(|c| "\"]}".contains(c));
        is_closing.then_some((token, if text.starts_with('"') { 10.0 } else { 6.0 }))
    };
    (0..codec.vocab_size() as u32).filter_map(bias).chain(ends).collect()
}

fn request(index: usize, bias: &[(u32, f32)]) -> RawRequest {
    let mut request = RawRequest::new(Prompt::Text(format!("Number {index}:")));
    let schema = OutputFormat::JsonSchema(SCHEMAS[index % SCHEMAS.len()].to_owned());
    request.params.structured_output = Some(std::sync::Arc::new(schema.into()));
    request.params.temperature = 1.0;
    request.params.seed = Some(index as u64);
    request.params.logit_bias = bias.to_vec();
    request.max_tokens = Some(MAX_TOKENS);
    request
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn generated_outputs_are_valid() {
    let engine = Engine::spawn(config(), |_| ()).await.unwrap();
    let (count, bias) = (num_generations(), closing(&engine));
    let mut outputs = Vec::new();
    for first in (0..count).step_by(IN_FLIGHT) {
        let requests = (first..count.min(first + IN_FLIGHT)).map(|index| request(index, &bias));
        outputs.extend(run(&engine, requests.collect()).await);
    }
    engine.shutdown().await;

    let mut file = tempfile::NamedTempFile::new().unwrap();
    let (mut num_ended, mut num_cut) = (0, 0);
    for (index, output) in outputs.iter().enumerate() {
        let schema: Value = serde_json::from_str(SCHEMAS[index % SCHEMAS.len()]).unwrap();
        match output.finish {
            Some(FinishReason::Stop(_)) => num_ended += 1,
            // A string, number or list that the weights made longer than the limit.
            Some(FinishReason::Length) => {
                num_cut += 1;
                continue;
            }
            ref other => panic!("{schema}: ended with {other:?}"),
        }
        writeln!(file, "{}", json!({"schema": schema, "text": output.text})).unwrap();
    }
    println!("{num_ended} of {count} generations ended, {num_cut} were cut by max_tokens");
    assert!(num_cut * 20 <= count, "{num_cut} of {count} did not end");

    let judged = python::run("structured/validate.py", &[file.path().to_str().unwrap()]).await;
    if let Some(said) = judged {
        assert!(said.contains(&format!("{num_ended} valid")), "{said}");
    }
}
