//! Responses to given outputs: how they progress and how they end.

use std::sync::Arc;

use futures_util::StreamExt;
use serde_json::{Value, json, to_value};

use crate::api::{Failure, FinishReason, Logprob, OutputDelta, SampledToken};
use crate::server::{
    generate::{
        choices::Choices, logprobs::ChatLogprobsWriter, request_log::RequestLog, run::Run,
        token_names::TokenNames,
    },
    responses::{
        ids::ItemIds,
        output::OutputWriter,
        response::{Asked, Response, Status},
        writer::{ResponseRun, ResponseWriter},
    },
};
use crate::turn::{
    ToolChoice, Turn, TurnReader, outputs::for_each_cut_output, test_codec::ByteCodec,
    tests::test_style,
};

/// Returns a response whose answer to a prompt of two tokens is `pieces`, a byte a token. Without
/// `finish` it never ends.
fn run(pieces: &[&str], finish: Option<FinishReason>, status: Status) -> ResponseRun {
    let reader = test_style("hermes", "qwen3", ToolChoice::Auto).reader("resp_r", 0, &[1, 2]);
    run_read_by(reader, pieces, finish, status)
}

fn run_read_by(
    reader: TurnReader,
    pieces: &[&str],
    finish: Option<FinishReason>,
    status: Status,
) -> ResponseRun {
    let token = |byte: u8| {
        let own = Logprob { token_id: byte.into(), logprob: -0.5, rank: 1 };
        SampledToken { token_id: byte.into(), logprobs: Some(vec![own]) }
    };
    let delta = |text: &&str| OutputDelta {
        text: (*text).to_owned(),
        tokens: text.bytes().map(token).collect(),
        num_cached_tokens: Some(1),
        ..OutputDelta::default()
    };
    let mut deltas: Vec<OutputDelta> = pieces.iter().map(delta).collect();
    let goes_on = finish.is_none();
    deltas.extend(finish.map(|finish| OutputDelta { finish: Some(finish), ..Default::default() }));
    let deltas = futures_util::stream::iter(deltas);
    let deltas = match goes_on {
        true => deltas.chain(futures_util::stream::pending()).boxed(),
        false => deltas.boxed(),
    };
    let choices = Choices::new(vec![([1, 2].into(), vec![deltas])]);
    let response = Response::new("resp_r".to_owned(), 1, status, Asked::default());
    let output = OutputWriter::new(ItemIds::new("resp_r"), Default::default());
    let logprobs = ChatLogprobsWriter::new(TokenNames::new(Arc::new(ByteCodec), false), 0);
    let writer = ResponseWriter::new(reader, output, Some(logprobs), response);
    Run::new(choices, writer, RequestLog::new("id".to_owned(), "/test", None))
}

/// Returns the events until the end.
async fn events(run: &mut ResponseRun) -> Vec<Value> {
    let mut events = run.writer.begin();
    while let Some(news) = run.next().await {
        events.extend(news);
    }
    assert!(run.next().await.is_none(), "nothing follows the end");
    events.iter().map(|event| to_value(event).unwrap()).collect()
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_response_is_complete_or_cut_off() {
    let stop = Some(FinishReason::Stop(None));
    let mut complete = run(&["a", "b"], stop, Status::InProgress);
    let told = events(&mut complete).await;
    assert_eq!(kinds(&told)[..2], ["response.created", "response.in_progress"]);
    let last = told.last().unwrap();
    assert_eq!(
        (&last["type"], &last["response"]["status"]),
        (&json!("response.completed"), &json!("completed"))
    );
    assert_eq!(last["response"]["output"][0]["content"][0]["text"], "ab");
    let usage = json!({
        "input_tokens": 2,
        "input_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 0},
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 4,
    });
    assert_eq!(last["response"]["usage"], usage);
    let first = &told[0]["response"];
    assert_eq!((&first["output"], &first["usage"]), (&json!([]), &Value::Null));

    let mut cut = run(&["a"], Some(FinishReason::Length), Status::InProgress);
    let told = events(&mut cut).await;
    let last = told.last().unwrap();
    assert_eq!(last["type"], "response.completed", "as in vLLM");
    let response = &last["response"];
    assert_eq!(response["status"], "incomplete");
    assert_eq!(response["incomplete_details"], json!({"reason": "max_output_tokens"}));
    assert_eq!(
        (&response["output"][0]["status"], &response["completed_at"]),
        (&json!("incomplete"), &Value::Null)
    );
}

#[tokio::test]
async fn thoughts_and_calls_are_read() {
    let pieces = [
        "<think>h",
        "m</think>",
        "<tool_call>{\"name\": \"now\", ",
        "\"arguments\": {}}</tool_call>",
    ];
    let mut called = run(&pieces, Some(FinishReason::Stop(None)), Status::InProgress);
    events(&mut called).await;
    let output = to_value(&*called.writer.response.output).unwrap();
    assert_eq!(
        (&output[0]["type"], &output[0]["content"][0]["text"]),
        (&json!("reasoning"), &json!("hm"))
    );
    assert_eq!(
        (&output[1]["type"], &output[1]["name"], &output[1]["arguments"]),
        (&json!("function_call"), &json!("now"), &json!("{}"))
    );
    let usage = to_value(called.writer.response.usage).unwrap();
    assert_eq!(usage["output_tokens_details"]["reasoning_tokens"], 2);
}

#[tokio::test]
async fn a_token_is_reported_with_its_text() {
    let stop = Some(FinishReason::Stop(None));
    // The parser holds back text that may become a call until it knows that it does not.
    let pieces = ["<think>h</think>", "a", "<tool", "b"];
    let mut said = run(&pieces, stop, Status::InProgress);
    let told = events(&mut said).await;
    let text = |rows: &Value| -> String {
        rows.as_array().unwrap().iter().map(|row| row["token"].as_str().unwrap()).collect()
    };
    let deltas: Vec<&Value> =
        told.iter().filter(|event| event["type"] == "response.output_text.delta").collect();
    let of_deltas: String = deltas.iter().map(|event| text(&event["logprobs"])).collect();
    let part = to_value(&*said.writer.response.output).unwrap()[1]["content"][0].clone();
    assert_eq!(part["text"], "a<toolb");
    assert_eq!(text(&part["logprobs"]), of_deltas);
    assert!(of_deltas.ends_with("a<toolb"), "{of_deltas}");
    assert!(!of_deltas.contains('h'), "thoughts have none: {of_deltas}");
}

#[tokio::test]
async fn a_failure_is_reported() {
    let failure = FinishReason::Error(Failure::NumericalGarbage);
    let mut failed = run(&["a"], Some(failure), Status::InProgress);
    let told = events(&mut failed).await;
    let last = told.last().unwrap();
    assert_eq!(
        (&last["type"], &last["response"]["status"]),
        (&json!("response.failed"), &json!("failed"))
    );
    assert_eq!(
        last["response"]["error"],
        json!({"code": "server_error", "message": "numerical_garbage"})
    );
    assert_eq!(kinds(&told)[told.len() - 2], "response.output_item.done");
    assert_eq!(failed.writer.outcome().unwrap_err().status, 500);
}

#[tokio::test]
async fn a_waiting_response_begins_and_a_cancelled_one_keeps_its_output() {
    let mut cancelled = run(&["a"], None, Status::Queued);
    let begun: Vec<Value> =
        cancelled.writer.begin().iter().map(|event| to_value(event).unwrap()).collect();
    assert_eq!(kinds(&begun), ["response.created", "response.queued"]);
    assert_eq!(begun[1]["response"]["status"], "queued");
    let news = cancelled.next().await.unwrap();
    let news: Vec<Value> = news.iter().map(|event| to_value(event).unwrap()).collect();
    assert_eq!((kinds(&news)[0], news.len()), ("response.in_progress", 4));
    cancelled.cancel();
    assert!(cancelled.next().await.is_none());
    let response = to_value(&cancelled.writer.response).unwrap();
    assert_eq!(response["status"], "cancelled");
    assert_eq!(response["output"][0]["content"][0]["text"], "a");
    assert_eq!(response["output"][0]["status"], "incomplete");
}

/// Returns the text of each item that a client builds of the deltas.
fn added_up(events: &[Value]) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    for event in events {
        if event["type"] == "response.output_item.added" {
            texts.push(String::new());
        }
        if let Some(delta) = event["delta"].as_str() {
            texts[event["output_index"].as_u64().unwrap() as usize].push_str(delta);
        }
    }
    texts
}

#[test]
fn the_events_add_up_to_the_whole_response_wherever_it_ends() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    for_each_cut_output(|cut| {
        let pieces = cut.pieces(30);
        let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
        let reader = || cut.style.reader("resp_r", 0, &[1, 2]);
        let finish = Some(cut.finish.clone());
        let mut told = run_read_by(reader(), &pieces, finish, Status::InProgress);
        let events = runtime.block_on(events(&mut told));
        let text = |item: &Value| match item["type"].as_str().unwrap() {
            "function_call" => item["arguments"].as_str().unwrap().to_owned(),
            _ => item["content"][0]["text"].as_str().unwrap().to_owned(),
        };
        let output = to_value(&*told.writer.response.output).unwrap();
        let items = output.as_array().unwrap();
        let place = format!("{}: {:?}", cut.label, cut.text);
        assert_eq!(added_up(&events), items.iter().map(text).collect::<Vec<_>>(), "{place}");

        let mut choices = run(&pieces, Some(cut.finish.clone()), Status::InProgress).choices;
        let done = runtime.block_on(choices.finish()).unwrap().remove(0);
        let turn = Turn::read(reader(), &done);
        let all = |kind: &str| -> Vec<String> {
            items.iter().filter(|item| item["type"] == kind).map(text).collect()
        };
        assert_eq!(all("message").concat(), turn.content.unwrap_or_default(), "{place}");
        assert_eq!(all("reasoning").concat(), turn.reasoning.unwrap_or_default(), "{place}");
        let arguments: Vec<String> = turn.tool_calls.into_iter().map(|c| c.arguments).collect();
        assert_eq!(all("function_call"), arguments, "{place}");
        if cut.finish == FinishReason::Length {
            assert_eq!(told.writer.response.status, Status::Incomplete, "{place}");
        }
    });
}
