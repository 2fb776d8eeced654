//! `Engine::chat` beside the chat route, which runs the same code over HTTP.

use playhouse::{
    ChatRequest, EngineConfig, Message, Tool, ToolChoice,
    api::{OutputFormat, SamplingParams},
    chat::{ChatError, ParserChoice, TurnEvent},
    server::ServerConfig,
};
use reqwest::Client;
use serde_json::{Value, json};

use crate::serving::Served;

async fn serve() -> Served {
    let config = EngineConfig {
        served_model_name: vec!["demo".to_owned()],
        max_model_len: Some(1024),
        kv_cache_memory_bytes: Some(64 << 20),
        device: playhouse::config::Device::Cpu,
        ..EngineConfig::new(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/demo-model"))
    };
    Served::start(config, ServerConfig::default()).await
}

/// Returns a request that always gets the same answer.
fn request(messages: impl IntoIterator<Item = Message>) -> ChatRequest {
    let mut request = ChatRequest::new(messages);
    request.params = Some(SamplingParams { temperature: 0.0, ..SamplingParams::default() });
    request.max_tokens = Some(48);
    request
}

fn add() -> (Tool, Value) {
    let number = json!({"type": "integer", "minimum": 0, "maximum": 999});
    let parameters = json!({
        "type": "object",
        "properties": {"a": number, "b": number},
        "required": ["a", "b"],
        "additionalProperties": false,
    });
    let function =
        json!({"name": "add", "description": "Adds two numbers", "parameters": parameters});
    let json = json!({"type": "function", "function": function});
    (Tool::new("add", "Adds two numbers", parameters), json)
}

/// Returns the answer of the chat route.
async fn over_http(served: &Served, mut body: Value) -> Value {
    body["temperature"] = json!(0);
    body["max_tokens"] = json!(48);
    let url = format!("{}/v1/chat/completions", served.url);
    Client::new().post(url).json(&body).send().await.unwrap().json().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_the_one_that_clients_of_the_route_get() {
    let served = serve().await;
    let question = "What is 120 plus 35?";
    let (tool, json_tool) = add();
    let messages = json!([{"role": "system", "content": "Be brief."},
        {"role": "user", "content": question}]);
    let ours = || [Message::system("Be brief."), Message::user(question)];
    let offers: [(Option<ToolChoice>, Value); 4] = [
        (Some(ToolChoice::None), json!("none")),
        (Some(ToolChoice::Auto), json!("auto")),
        (Some(ToolChoice::Required), json!("required")),
        (
            Some(ToolChoice::Named("add".to_owned())),
            json!({"type": "function", "function": {"name": "add"}}),
        ),
    ];
    for (choice, json_choice) in offers {
        let mut request = request(ours());
        request.tools = vec![tool.clone()];
        let is_forced = matches!(choice, Some(ToolChoice::Required | ToolChoice::Named(_)));
        request.tool_choice = choice;
        let answer = served.engine.chat(request).await.unwrap().answer().await.unwrap();
        let body = json!({"messages": messages, "tools": [json_tool], "tool_choice": json_choice});
        let theirs = over_http(&served, body).await;
        let (choice, turn) = (&theirs["choices"][0], &answer.turn);
        // The route has an empty text beside calls that must be made, as vLLM 0.33.
        let empty = is_forced.then(String::new);
        let content = turn.content.clone().or(empty);
        assert_eq!(json!(content), choice["message"]["content"], "{theirs}");
        assert_eq!(json!(turn.reasoning), choice["message"]["reasoning"], "{theirs}");
        assert_eq!(turn.finish_reason, choice["finish_reason"], "{theirs}");
        let calls = turn.tool_calls.iter().map(|call| json!([call.name, call.arguments]));
        let listed = choice["message"]["tool_calls"].as_array().into_iter().flatten();
        let listed =
            listed.map(|call| json!([call["function"]["name"], call["function"]["arguments"]]));
        assert_eq!(calls.collect::<Vec<_>>(), listed.collect::<Vec<_>>(), "{theirs}");
        assert_eq!(answer.usage.prompt_tokens, theirs["usage"]["prompt_tokens"]);
        assert_eq!(answer.usage.completion_tokens, theirs["usage"]["completion_tokens"]);
    }
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_adds_up_to_the_answer_and_a_conversation_goes_on() {
    use futures_util::StreamExt as _;

    let served = serve().await;
    let (tool, _) = add();
    let ask = || {
        let mut request = request([Message::user("What is 120 plus 35?")]);
        request.tools = vec![tool.clone()];
        request.tool_choice = Some(ToolChoice::Required);
        request
    };
    let answer = served.engine.chat(ask()).await.unwrap().answer().await.unwrap();
    let stream = served.engine.chat(ask()).await.unwrap();
    let events: Vec<_> = stream.map(Result::unwrap).collect().await;
    let mut arguments = String::new();
    for event in &events {
        if let TurnEvent::ToolCallArguments { delta, .. } = event {
            arguments.push_str(delta);
        }
    }
    assert!(matches!(&events[0], TurnEvent::ToolCallStart { name, .. } if name == "add"));
    assert_eq!(arguments, answer.turn.tool_calls[0].arguments);

    let id = answer.turn.tool_calls[0].id.clone();
    let mut next = ask();
    next.messages.extend([answer.message(), Message::tool(id, "155")]);
    next.tool_choice = Some(ToolChoice::None);
    let mut stream = served.engine.chat(next).await.unwrap();
    let mut text = String::new();
    while let Some(event) = stream.next().await {
        if let TurnEvent::Content(piece) = event.unwrap() {
            text.push_str(&piece);
        }
    }
    assert!(stream.finish_reason().is_some() && stream.usage().prompt_tokens > 0);
    assert!(!text.is_empty());

    let mut json = request([Message::user("Hi")]);
    json.response_format = Some(OutputFormat::Choice(vec!["yes".to_owned()]).into());
    let answer = served.engine.chat(json).await.unwrap().answer().await.unwrap();
    assert_eq!(answer.text(), "yes");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_without_an_answer_is_a_typed_error() {
    let served = serve().await;
    let engine = served.engine.clone();
    let error = async |request: ChatRequest| engine.chat(request).await.unwrap_err();
    let refused = error(request([])).await;
    assert!(matches!(refused, ChatError::Request(_)), "{refused}");
    let mut unknown = request([Message::user("Hi")]);
    unknown.tool_call_parser = ParserChoice::Named("no_such".to_owned());
    assert!(matches!(error(unknown).await, ChatError::Parser(_)));
    let mut grammar = request([Message::user("Hi")]);
    grammar.response_format = Some(OutputFormat::Regex("(".to_owned()).into());
    let failed = match engine.chat(grammar).await {
        Ok(stream) => stream.answer().await.unwrap_err(),
        Err(error) => error,
    };
    assert!(matches!(failed, ChatError::Failed(_) | ChatError::Request(_)), "{failed}");
    let dropped = engine.chat(request([Message::user("Hi")])).await.unwrap();
    let id = dropped.request();
    drop(dropped);
    assert!(!engine.is_live(id) || engine.drain(std::time::Duration::from_secs(10)).await);
    served.stop().await;
}

/// As in vLLM: `echo` repeats the tokens of the prompt, with as many likely ones as the answer's.
#[tokio::test(flavor = "multi_thread")]
async fn echo_reports_the_tokens_of_the_prompt() {
    let served = serve().await;
    let messages = json!([{"role": "user", "content": "What is 1 plus 2?"}]);
    for (fields, most) in [(json!({}), 1), (json!({"logprobs": true, "top_logprobs": 2}), 3)] {
        let mut body = json!({"messages": messages, "echo": true});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let answer = over_http(&served, body).await;
        let rows = answer["prompt_logprobs"].as_array().unwrap();
        assert_eq!(json!(rows.len()), answer["usage"]["prompt_tokens"], "{answer}");
        assert!(rows[0].is_null());
        let sizes = rows[1..].iter().map(|row| row.as_object().unwrap().len());
        assert!(sizes.clone().all(|size| (1..=most).contains(&size)), "{answer}");
    }
    let answer = over_http(&served, json!({"messages": messages})).await;
    assert!(answer["prompt_logprobs"].is_null(), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rendered_prompt_is_told() {
    // As vLLM 0.33: beside the choices, and only in the first chunk of a stream.
    let served = serve().await;
    let body = json!({"messages": [{"role": "user", "content": "Hi"}], "return_prompt_text": true});
    let prompt = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
    assert_eq!(over_http(&served, body.clone()).await["prompt_text"], prompt);
    let silent = json!({"messages": [{"role": "user", "content": "Hi"}]});
    assert_eq!(over_http(&served, silent).await["prompt_text"], Value::Null);

    let mut streamed = body;
    streamed["stream"] = json!(true);
    streamed["max_tokens"] = json!(3);
    let url = format!("{}/v1/chat/completions", served.url);
    let events = Client::new().post(url).json(&streamed).send().await.unwrap();
    let events = events.text().await.unwrap();
    let events = events.split("\n\n").filter_map(|event| event.strip_prefix("data: "));
    let chunks: Vec<Value> = events.filter_map(|event| serde_json::from_str(event).ok()).collect();
    assert_eq!(chunks[0]["prompt_text"], prompt);
    assert!(chunks[1..].iter().all(|chunk| chunk.get("prompt_text").is_none()), "{chunks:?}");
    served.stop().await;
}
