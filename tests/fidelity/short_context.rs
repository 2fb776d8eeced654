//! Models whose frequencies depend on the length, in their whole context. A request that cannot
//! outgrow the context of the training gives transformers' answer for a text of that length.

use playhouse::Engine;

use crate::engine::{Output, collect, config, request, run};
use crate::golden::{Golden, Prompt};
use crate::{TOLERANCE, folder};

const NAMES: [&str; 5] =
    ["llama-longrope", "llama-dynamic", "phi3-partial", "minicpm-longrope", "minicpm3-one-query"];

/// Returns the prompts that were recorded in the short context, and those of the whole one.
fn prompts(name: &str) -> Vec<Prompt> {
    Golden::read(&folder(name)).runs.into_iter().flat_map(|run| run.prompts).collect()
}

fn check(name: &str, prompt: &Prompt, output: &Output) {
    assert_eq!(output.tokens, prompt.greedy_token_ids, "{name}, {} tokens", prompt.ids().len());
    let differences = output.logprobs.iter().zip(prompt.greedy_log_probs());
    let differences: Vec<_> =
        differences.map(|(got, want)| (f64::from(*got) - want).abs()).collect();
    assert!(differences.iter().all(|it| *it <= TOLERANCE), "{name}: {differences:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn short_and_long_requests_are_in_one_batch() {
    for name in NAMES {
        let prompts = prompts(name);
        let request =
            |prompt: &Prompt| request(prompt.ids(), prompt.greedy_token_ids.len(), 0.0, 0);
        let mut config = config(name, None);
        config.max_num_batched_tokens = 16;
        let (outputs, _) = run(config, prompts.iter().map(request).collect()).await;
        prompts.iter().zip(&outputs).for_each(|(prompt, output)| check(name, prompt, output));
    }
}

/// The prompts begin alike, and each fills whole blocks. Keys of short requests serve no long ones.
#[tokio::test(flavor = "multi_thread")]
async fn short_requests_share_no_prefix_with_long_ones() {
    for name in NAMES {
        let engine = Engine::spawn(config(name, None), |_| ()).await.unwrap();
        let mut cached = Vec::new();
        for prompt in &prompts(name) {
            let raw = request(prompt.ids(), prompt.greedy_token_ids.len(), 0.0, 0);
            let stream = engine.submit(raw).await.unwrap().choices.remove(0);
            let output = collect(stream).await;
            check(name, prompt, &output);
            cached.push((prompt.ids().len(), output.num_cached_tokens));
        }
        // The fourth is the first long one, and the fifth begins as it does.
        assert_eq!((cached[3].1, cached[4].1), (0, 64), "{name}: {cached:?}");
        engine.shutdown().await;
    }
}
