//! Constrained requests among others: in a batch, in chunks, preempted, and after a crash.

use std::{sync::Arc, time::Duration};

use playhouse::{
    Engine, EngineConfig,
    api::{
        FinishReason, How, OutputFormat, PauseMode, Prompt, RawRequest, Role, StructuredOutput,
        Thinking,
    },
};

use crate::{Output, collect, config, run};

/// A list of numbers and words that is long enough for events in the meantime.
const LIST: &str = r#"{"type": "array", "items": {"enum": [17, 233, 4096, "word", null]},
    "minItems": 24, "maxItems": 30}"#;

fn request(index: u64, output: Option<StructuredOutput>) -> RawRequest {
    let text = "The quick brown fox jumps over the lazy dog. ".repeat(3);
    let mut request = RawRequest::new(Prompt::Text(format!("{index}. {text}")));
    request.params.structured_output = output.map(Arc::new);
    request.params.temperature = 0.9;
    request.params.seed = Some(index);
    request.max_tokens = Some(320);
    request
}

fn formats() -> Vec<Option<StructuredOutput>> {
    let choice = OutputFormat::Choice(["north", "south", "east"].map(str::to_owned).to_vec());
    let flexible = StructuredOutput {
        disable_any_whitespace: Some(false),
        ..OutputFormat::JsonSchema(LIST.to_owned()).into()
    };
    vec![
        Some(OutputFormat::JsonSchema(LIST.to_owned()).into()),
        None,
        Some(flexible),
        Some(OutputFormat::Regex("([a-f]{3}-){20}!".to_owned()).into()),
        Some(choice.into()),
        None,
        Some(OutputFormat::Grammar("root ::= \"(\" root \")\" | [0-9]{40}".to_owned()).into()),
        Some(OutputFormat::JsonSchema(LIST.to_owned()).into()),
    ]
}

fn requests() -> Vec<RawRequest> {
    (0..).zip(formats()).map(|(index, format)| request(index, format)).collect()
}

/// Returns the outputs of the requests, each run alone.
async fn alone() -> Vec<Output> {
    let engine = Engine::spawn(config(), |_| ()).await.unwrap();
    let mut outputs = Vec::new();
    for request in requests() {
        outputs.extend(run(&engine, vec![request]).await);
    }
    engine.shutdown().await;
    outputs
}

/// Runs all requests at once: none starts before the last has arrived. Returns the outputs and the
/// number of preemptions.
async fn together(config: EngineConfig) -> (Vec<Output>, u64) {
    let engine = Engine::spawn(config, |_| ()).await.unwrap();
    engine.pause(PauseMode::Keep).await.unwrap();
    let mut streams = Vec::new();
    for request in requests() {
        streams.extend(engine.submit(request).await.unwrap().choices);
    }
    let wait = async {
        while engine.status().await.unwrap().scheduler.num_waiting < streams.len() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let all_wait = tokio::time::timeout(Duration::from_secs(60), wait).await;
    assert!(all_wait.is_ok(), "not all requests wait: {:?}", engine.status().await);
    engine.resume();
    let mut outputs = Vec::new();
    for stream in streams {
        outputs.push(collect(stream).await);
    }
    let num_preemptions = engine.status().await.unwrap().scheduler.num_preemptions;
    engine.shutdown().await;
    (outputs, num_preemptions)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_do_not_depend_on_the_batch() {
    let expected = alone().await;
    for (output, format) in expected.iter().zip(formats()) {
        if format.is_some() {
            assert!(matches!(output.finish, Some(FinishReason::Stop(_))), "{output:?}");
        }
    }
    let list: serde_json::Value = serde_json::from_str(&expected[0].text).unwrap();
    assert!((24..=30).contains(&list.as_array().unwrap().len()));
    assert!(["north", "south", "east"].contains(&&*expected[4].text));

    assert_eq!(together(config()).await.0, expected, "in company");
    let chunks = EngineConfig { max_num_batched_tokens: 16, ..config() };
    assert_eq!(together(chunks).await.0, expected, "in chunks");
    // There is room for all prompts, and for about two of the eight at their ends.
    let tight =
        EngineConfig { num_gpu_blocks_override: Some(25), max_model_len: Some(384), ..config() };
    let (outputs, num_preemptions) = together(tight).await;
    assert_eq!(outputs, expected, "preempted");
    assert!(num_preemptions > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_choices_of_a_prompt_each_have_their_own_way() {
    let engine = Engine::spawn(config(), |_| ()).await.unwrap();
    let format = OutputFormat::Regex("[a-z]{12}".to_owned());
    let mut request = request(1, Some(format.into()));
    request.params.n = 4;
    let outputs = run(&engine, vec![request]).await;
    engine.shutdown().await;
    assert_eq!(outputs.len(), 4);
    for output in &outputs {
        assert!(output.text.len() == 12 && output.text.bytes().all(|b| b.is_ascii_lowercase()));
    }
    assert!(outputs.iter().any(|output| output.text != outputs[0].text), "{outputs:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_dies_changes_nothing() {
    let expected = alone().await;
    let engine = Engine::spawn(config(), |_| ()).await.unwrap();
    let mut streams = Vec::new();
    for request in requests() {
        streams.extend(engine.submit(request).await.unwrap().choices);
    }
    let collected: Vec<_> = streams.into_iter().map(|s| tokio::spawn(collect(s))).collect();
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(60)).await;
        engine.chaos().strike(Role::Worker, 0, How::Panic).unwrap();
    }
    for (output, expected) in collected.into_iter().zip(expected) {
        assert_eq!(output.await.unwrap(), expected);
    }
    engine.shutdown().await;
}

/// The mask decides which token is drawn. It does not change the reported log-probabilities.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_probabilities_are_those_of_the_model() {
    let engine = Engine::spawn(config(), |_| ()).await.unwrap();
    let request = |format: Option<OutputFormat>| {
        let mut request = request(1, format.map(Into::into));
        request.params.temperature = 0.0;
        request.params.logprobs = Some(3);
        request.max_tokens = Some(4);
        request
    };
    let digits = OutputFormat::Regex("[0-9]{40}".to_owned());
    let outputs = run(&engine, vec![request(None), request(Some(digits))]).await;
    engine.shutdown().await;
    let (free, held) = (&outputs[0].logprobs[0], &outputs[1].logprobs[0]);
    assert_eq!(free[1..], held[1..], "the likeliest of the first position");
    assert!(held[0].1 <= held[1].1, "the drawn one need not be among them");
    assert!(outputs[1].text.bytes().all(|b| b.is_ascii_digit()), "{:?}", outputs[1].text);
}

/// The output keeps to the format, whatever other parameters the request has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_grammar_has_the_last_word() {
    let engine = Engine::spawn(config(), |_| ()).await.unwrap();
    let yes = || Some(OutputFormat::Choice(vec!["yes".to_owned()]).into());
    let mut longer = request(1, yes());
    longer.params.min_tokens = 20;
    let mut others = request(2, yes());
    others.params.allowed_token_ids = Some(vec![300, 301]);
    let mut biased = request(3, yes());
    biased.params.logit_bias = vec![(300, 100.0)];
    let mut endless = request(4, yes());
    (endless.params.ignore_eos, endless.max_tokens) = (true, Some(9));
    let outputs = run(&engine, vec![longer, others, biased, endless]).await;
    engine.shutdown().await;
    for output in &outputs {
        assert_eq!(output.text, "yes", "{output:?}");
    }
    assert_eq!(outputs[0].finish, Some(FinishReason::Stop(None)));
    assert_eq!(outputs[3].finish, Some(FinishReason::Stop(None)), "a format ends what it holds");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_answer_follows_thoughts_that_keep_to_their_budget() {
    let engine = Engine::spawn(config(), |_| ()).await.unwrap();
    let encode = |text: &str| engine.codec().encode(text, false).unwrap();
    let (begin, end) = (encode("[THINK]"), encode("[/THINK]"));
    assert!(end.len() > 1, "the demo model has no token for it");
    let mut request = request(1, Some(OutputFormat::Choice(vec!["yes".to_owned()]).into()));
    request.prompt = Prompt::Tokens([encode("Well?"), begin.clone()].concat());
    let thinking = Thinking { begin, end: end.clone(), budget: Some(5) };
    request.params.thinking = Some(Arc::new(thinking));
    // Without this minimum, the model would end here.
    request.params.min_tokens = 5;
    let output = run(&engine, vec![request]).await.remove(0);
    engine.shutdown().await;
    assert!(output.tokens.len() > 5, "{output:?}");
    let (thoughts, rest) = output.tokens.split_at(5);
    assert!(!thoughts.ends_with(&end[..1]), "no coincidence");
    assert!(rest.starts_with(&end), "{output:?}");
    assert!(output.text.ends_with("[/THINK]yes"), "{output:?}");
}

/// A grammar that does not compile fails its own request and no other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_grammar_fails_alone() {
    let engine = Engine::spawn(config(), |_| ()).await.unwrap();
    let bad = request(1, Some(OutputFormat::Regex("[a-".to_owned()).into()));
    let good = request(2, Some(OutputFormat::Regex("[ab]{3}".to_owned()).into()));
    let good = engine.submit(good).await.unwrap().choices.remove(0);
    // The engine rejects the request at once, or its stream ends with an error.
    if let Ok(mut submission) = engine.submit(bad).await {
        let output = collect(submission.choices.remove(0)).await;
        assert!(matches!(output.finish, Some(FinishReason::Error(_))), "{output:?}");
        assert!(output.tokens.is_empty());
    }
    assert_eq!(collect(good).await.text.len(), 3);
    engine.shutdown().await;
}
