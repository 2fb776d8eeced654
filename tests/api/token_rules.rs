//! Token rules of an embedding program, in Rust and over HTTP: accepted, rejected, and while
//! workers die.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::serving::Served;
use playhouse::{
    Engine, EngineConfig, StartError,
    api::{Failure, FinishReason, How, Prompt, RawRequest, RequestError, Role, TokenRuleCall},
    engine::EngineBuilder,
    server::ServerConfig,
    token_rules::{NextToken, RequestRule, TokenRule, TokensSoFar},
};
use reqwest::Client;
use serde_json::{Value, json};

/// The number of remainders that the rule `lanes` allows.
const LANES: u32 = 40;

/// A rule that allows a token if the sum of it and all tokens before it, modulo the argument, is
/// below [`LANES`]. Its answer therefore depends on every earlier token.
struct Lanes;

struct Modulus(u32);

impl TokenRule for Lanes {
    fn for_request(&self, argument: &Value) -> Result<Box<dyn RequestRule>, String> {
        match argument.as_u64().and_then(|modulus| u32::try_from(modulus).ok()) {
            Some(modulus @ 1..) => Ok(Box::new(Modulus(modulus))),
            _ => Err("a positive integer".to_owned()),
        }
    }
}

impl RequestRule for Modulus {
    fn restrict(&self, tokens: TokensSoFar<'_>, next: &mut NextToken) {
        let past = tokens.prompt.iter().chain(tokens.output);
        let sum = past.fold(0, |sum, token| (sum + token) % self.0);
        next.allow_only((300..2_000).filter(|token| (sum + token) % self.0 < LANES));
    }
}

/// A rule that forbids every token if its argument is true, and panics if it is null.
struct Stubborn;

struct Says(Option<bool>);

impl TokenRule for Stubborn {
    fn for_request(&self, argument: &Value) -> Result<Box<dyn RequestRule>, String> {
        Ok(Box::new(Says(argument.as_bool())))
    }
}

impl RequestRule for Says {
    fn restrict(&self, _: TokensSoFar<'_>, next: &mut NextToken) {
        if self.0.unwrap() {
            next.allow_only([]);
        }
    }
}

fn builder() -> EngineBuilder {
    let config = EngineConfig {
        allow_chaos: true,
        served_model_name: vec!["demo".to_owned()],
        kv_cache_memory_bytes: Some(64 << 20),
        device: playhouse::config::Device::Cpu,
        ..EngineConfig::new(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/demo-model"))
    };
    Engine::builder(config)
        .token_rule("lanes", |_| Ok(Box::new(Lanes)))
        .token_rule("stubborn", |_| Ok(Box::new(Stubborn)))
}

fn rule(name: &str, argument: Value) -> TokenRuleCall {
    TokenRuleCall { name: name.to_owned(), argument: argument.to_string() }
}

fn request(rules: Vec<TokenRuleCall>, max_tokens: u32) -> RawRequest {
    let mut request = RawRequest::new(Prompt::Text("Once upon a time".to_owned()));
    request.params.seed = Some(7);
    request.params.ignore_eos = true;
    request.params.token_rules = rules;
    request.max_tokens = Some(max_tokens);
    request
}

/// Returns the tokens of a request, and why it ended. `look` receives the number of tokens so far,
/// each time that new ones arrive.
async fn output(
    engine: &Engine,
    request: RawRequest,
    mut look: impl FnMut(usize),
) -> (Vec<u32>, FinishReason) {
    let mut submission = engine.submit(request).await.unwrap();
    let mut tokens = Vec::new();
    loop {
        let delta = submission.choices[0].next().await.unwrap();
        tokens.extend(delta.tokens.iter().map(|token| token.token_id));
        if let Some(finish) = delta.finish {
            return (tokens, finish);
        }
        look(tokens.len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_gives_the_same_tokens_while_workers_die() {
    let engine = builder().start().await.unwrap();
    let ruled = || request(vec![rule("lanes", json!(97))], 240);
    let (in_peace, _) = output(&engine, ruled(), |_| ()).await;
    assert_eq!(in_peace.len(), 240);
    let prompt = engine.codec().encode("Once upon a time", true).unwrap();
    let mut sum: u32 = prompt.iter().sum();
    for token in &in_peace {
        sum += token;
        assert!(sum % 97 < LANES, "the rule was not obeyed");
    }
    let (free, _) = output(&engine, request(Vec::new(), 240), |_| ()).await;
    assert_ne!(free, in_peace);

    let (epoch, mut kills) = (engine.epoch(), 0);
    let among_kills = output(&engine, ruled(), |tokens| {
        if kills < 4 && tokens > 40 * (kills + 1) {
            let role = [Role::Worker, Role::Scheduler][kills % 2];
            engine.chaos().strike(role, 0, How::Panic).unwrap();
            kills += 1;
        }
    });
    assert_eq!(among_kills.await.0, in_peace);
    assert_eq!(kills, 4);
    assert!(engine.epoch() > epoch);
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_rules_fail_their_requests_alone() {
    let engine = builder().start().await.unwrap();
    let refused = engine.submit(request(vec![rule("lane", json!(1))], 8)).await.err().unwrap();
    let RequestError::InvalidParameter { field, value, accepted } = &refused else {
        panic!("{refused}")
    };
    assert_eq!((field.as_str(), value.as_str()), ("token_rules", "lane"));
    assert!(accepted.contains("lanes, stubborn"), "{accepted}");

    let good = || output(&engine, request(vec![rule("lanes", json!(97))], 60), |_| ());
    let (alone, _) = good().await;
    let silent = output(&engine, request(vec![rule("stubborn", json!(true))], 60), |_| ());
    let panics = output(&engine, request(vec![rule("stubborn", Value::Null)], 60), |_| ());
    let (beside, silent, panics) = tokio::join!(good(), silent, panics);
    assert_eq!(beside.0, alone);
    let FinishReason::Error(Failure::InvalidGrammar(why)) = silent.1 else {
        panic!("{:?}", silent.1)
    };
    assert!(why.contains("leave no token"), "{why}");
    assert_eq!(panics.1, FinishReason::Error(Failure::Quarantined));
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_ask_for_rules_in_vllm_xargs() {
    let served = Served::of(builder().start().await.unwrap(), ServerConfig::default()).await;
    let post = async |route: &str, rules: Value| {
        let body = json!({
            "prompt": "Once upon a time", "messages": [{"role": "user", "content": "Hi"}],
            "seed": 7, "max_tokens": 12, "ignore_eos": true, "return_token_ids": true,
            "temperature": 1, "top_p": 1, "top_k": 0, "min_p": 0, "repetition_penalty": 1,
            "vllm_xargs": rules,
        });
        let answer = Client::new().post(format!("{}{route}", served.url)).json(&body).send();
        let answer = answer.await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    let (status, answer) = post("/v1/completions", json!({"lanes": 97})).await;
    let ids = answer["choices"][0]["token_ids"].as_array().unwrap();
    let ids: Vec<u32> = ids.iter().map(|id| id.as_u64().unwrap() as u32).collect();
    let ruled = request(vec![rule("lanes", json!(97))], 12);
    assert_eq!((status, ids), (200, output(&served.engine, ruled, |_| ()).await.0));
    assert_eq!(post("/v1/chat/completions", json!({})).await.0, 200);
    for route in ["/v1/completions", "/v1/chat/completions"] {
        let (status, error) = post(route, json!({"lane": 97})).await;
        let error = &error["error"];
        assert_eq!((status, error["param"].as_str()), (400, Some("vllm_xargs")), "{error}");
        assert!(error["message"].as_str().unwrap().contains("lanes, stubborn"), "{error}");
        let (status, error) = post(route, json!({"lanes": "x"})).await;
        let param = error["error"]["param"].as_str();
        assert_eq!((status, param), (400, Some("vllm_xargs.lanes")), "{error}");
        let (status, error) = post(route, json!({"stubborn": true})).await;
        assert_eq!(status, 400, "{error}");
    }
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_is_registered_twice_is_an_error() {
    let error = builder().token_rule("lanes", |_| Ok(Box::new(Lanes))).start().await.err().unwrap();
    assert!(matches!(error, StartError::DuplicateTokenRule(_)), "{error}");
    let parser = |_: &playhouse::parsers::Tools| -> Box<dyn playhouse::parsers::ToolParser> {
        Box::new(playhouse::parsers::required_call_parser())
    };
    let error = builder().tool_parser("hermes", parser).start().await.err().unwrap();
    assert_eq!(error.to_string(), "there is a tool parser 'hermes' already");
    let error = builder().token_rule("broken", |_| Err("no such table".into())).start().await;
    let error = error.err().unwrap().to_string();
    assert_eq!(error, "the token rule 'broken' could not be made: no such table");
}
