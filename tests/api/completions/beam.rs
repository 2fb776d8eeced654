//! Beam search compared with a search by hand over plain completions.

use std::time::{Duration, Instant};

use playhouse::{
    api::{Prompt, RawRequest},
    engine::BeamSearchParams,
    server::ServerConfig,
};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{ask, post, serve};
use crate::serving::Served;

const PROMPT: [u32; 4] = [11, 22, 33, 44];
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the likeliest next tokens with their log-probabilities, read from a plain completion.
/// Those `allowed` are read instead, if there are any.
async fn next(served: &Served, tokens: &[u32], count: usize, allowed: &[u32]) -> Vec<(u32, f64)> {
    let mut body = json!({
        "prompt": tokens, "max_tokens": 1, "temperature": 0, "logprobs": count,
        "ignore_eos": true, "return_tokens_as_token_ids": true,
    });
    if !allowed.is_empty() {
        body["logprob_token_ids"] = json!(allowed);
    }
    let answer = ask(served, "/v1/completions", body).await;
    let top = answer["choices"][0]["logprobs"]["top_logprobs"][0].as_object().unwrap().clone();
    let parse = |(name, logprob): (&String, &Value)| {
        (name.strip_prefix("token_id:").unwrap().parse().unwrap(), logprob.as_f64().unwrap())
    };
    let mut next: Vec<(u32, f64)> = top.iter().map(parse).collect();
    next.retain(|(token, _)| allowed.is_empty() || allowed.contains(token));
    next.sort_by(|a, b| b.1.total_cmp(&a.1));
    next
}

async fn by_hand(served: &Served, width: usize, steps: usize, allowed: &[u32]) -> Vec<Vec<u32>> {
    let mut beams = vec![(Vec::new(), 0.0)];
    for _ in 0..steps {
        let mut candidates = Vec::new();
        for (tokens, cum) in &beams {
            let whole = [&PROMPT, tokens.as_slice()].concat();
            for (token, logprob) in next(served, &whole, 2 * width, allowed).await {
                candidates.push(([tokens.as_slice(), &[token]].concat(), cum + logprob));
            }
        }
        candidates.sort_by(|a, b| b.1.total_cmp(&a.1));
        candidates.truncate(width);
        beams = candidates;
    }
    beams.into_iter().map(|(tokens, _)| tokens).collect()
}

fn token_ids(answer: &Value) -> Vec<Vec<u32>> {
    let ids = |choice: &Value| serde_json::from_value(choice["token_ids"].clone()).unwrap();
    answer["choices"].as_array().unwrap().iter().map(ids).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_finds_the_results_of_a_search_by_hand() {
    let served = serve(ServerConfig::default()).await;
    let body = json!({
        "prompt": [PROMPT, PROMPT], "use_beam_search": true, "n": 3, "max_tokens": 5,
        "ignore_eos": true, "return_token_ids": true, "logprobs": 2, "temperature": 0,
    });
    let answer = ask(&served, "/v1/completions", body).await;
    let expected = by_hand(&served, 3, 5, &[]).await;
    assert_eq!(token_ids(&answer), [expected.clone(), expected].concat(), "for both prompts");
    let usage = json!({
        "prompt_tokens": 8, "completion_tokens": 30, "total_tokens": 38,
        "prompt_tokens_details": null, "completion_tokens_details": null,
    });
    assert_eq!(answer["usage"], usage);
    let logprobs = &answer["choices"][1]["logprobs"];
    assert_eq!(logprobs["token_logprobs"].as_array().unwrap().len(), 5);
    assert_eq!(answer["choices"][0]["finish_reason"], "length");

    let chat = json!({
        "messages": [{"role": "user", "content": "hi"}], "use_beam_search": true, "n": 2,
        "max_tokens": 3, "ignore_eos": true,
    });
    let answer = ask(&served, "/v1/chat/completions", chat).await;
    assert_eq!(answer["choices"].as_array().unwrap().len(), 2);
    assert_eq!(answer["usage"]["completion_tokens"], 6);
    served.stop().await;
}

/// As in vLLM, a search keeps to the allowed tokens, with the model's own log-probabilities.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_search_keeps_to_the_allowed_tokens() {
    let served = serve(ServerConfig::default()).await;
    let allowed = [5, 17, 29, 41, 53, 65, 77];
    let body = json!({
        "prompt": PROMPT, "use_beam_search": true, "n": 2, "max_tokens": 4, "ignore_eos": true,
        "return_token_ids": true, "allowed_token_ids": allowed, "logprobs": 1,
    });
    let answer = ask(&served, "/v1/completions", body).await;
    assert_eq!(token_ids(&answer), by_hand(&served, 2, 4, &allowed).await);
    let top = &answer["choices"][0]["logprobs"]["top_logprobs"][0];
    assert!(top.as_object().unwrap().len() <= 2, "{top}");
    for wrong in [json!([]), json!(vec![5; 129])] {
        let body = json!({"prompt": PROMPT, "use_beam_search": true, "allowed_token_ids": wrong});
        let (status, error) = post(&served, "/v1/completions", body).await;
        assert_eq!((status, &error["error"]["param"]), (400, &json!("allowed_token_ids")));
    }
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parameters_that_a_search_cannot_use_are_rejected_by_name() {
    let served = serve(ServerConfig::default()).await;
    let cases = [
        ("stream", json!(true)),
        ("stop", json!(["x"])),
        ("logit_bias", json!({"5": 1})),
        ("n", json!(11)),
        ("n", json!(0)),
        ("length_penalty", json!(1e300)),
        ("max_tokens", json!(600)),
    ];
    for (field, value) in cases {
        let mut body = json!({"prompt": PROMPT, "use_beam_search": true});
        body[field] = value;
        let (status, error) = post(&served, "/v1/completions", body).await;
        assert_eq!(status, 400, "{field}");
        assert_eq!(error["error"]["param"], field, "{error}");
    }
    let body = json!({
        "prompt": PROMPT, "use_beam_search": true, "structured_outputs": {"regex": "a*"},
    });
    let (status, error) = post(&served, "/v1/completions", body).await;
    assert_eq!((status, &error["error"]["param"]), (400, &json!("use_beam_search")), "{error}");
    served.stop().await;
}

/// Polls a search until one of its requests is open.
async fn begin<F: Future + Unpin>(served: &Served, search: &mut F) {
    let limit = Instant::now() + PATIENCE;
    while served.engine.open_requests() == 0 {
        tokio::select! {
            _ = &mut *search => panic!("it ended before it began"),
            () = tokio::task::yield_now() => {}
        }
        assert!(Instant::now() < limit, "no request of the search is open after {PATIENCE:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_search_goes_on_while_the_engine_drains_and_ends_when_it_is_dropped() {
    let served = serve(ServerConfig::default()).await;
    let search = |max_tokens| {
        let params = BeamSearchParams {
            max_tokens: Some(max_tokens),
            ignore_eos: true,
            ..BeamSearchParams::new(2)
        };
        served.engine.beam_search(RawRequest::new(Prompt::Tokens(PROMPT.to_vec())), params)
    };
    let mut dropped = Box::pin(search(500));
    begin(&served, &mut dropped).await;
    drop(dropped);
    let nothing_left = async {
        while served.engine.open_requests() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, nothing_left).await.unwrap();

    let mut found = Box::pin(search(20));
    begin(&served, &mut found).await;
    served.engine.begin_drain();
    let beams = found.await.unwrap().beams;
    assert_eq!(beams.iter().map(|beam| beam.tokens.len()).collect::<Vec<_>>(), [20, 20]);
    assert!(beams[0].score >= beams[1].score);
    assert!(search(1).await.is_err(), "a new one is refused");
    served.stop().await;
}
