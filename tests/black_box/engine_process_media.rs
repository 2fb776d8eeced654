//! Answers about pictures with the model in a process of its own: the same as in one process, and
//! also when the engine process is killed. The model stands beside the repository. Without it, the
//! test prints a note and passes.
#![cfg(unix)]
#![allow(clippy::print_stdout, reason = "the figures of the test")]

use std::{io::Cursor, path::Path, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use reqwest::Client;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    engine_process::{Arrivals, Ask, difference, kill, replay},
    server::Server,
};

/// Kills of the engine process.
const KILLS: usize = 3;

/// Returns a picture in base64.
fn picture(number: u32) -> String {
    let pixel = |x: u32, y: u32| image::Rgb([(x * number) as u8, (y * 3) as u8, number as u8]);
    let picture = image::RgbImage::from_fn(56 + 28 * (number % 3), 84, pixel);
    let mut file = Cursor::new(Vec::new());
    picture.write_to(&mut file, image::ImageFormat::Png).unwrap();
    STANDARD.encode(file.into_inner())
}

pub(crate) fn asks() -> Vec<Ask> {
    let chat = |number: u32, more: Value| {
        let url = format!("data:image/png;base64,{}", picture(number));
        let parts = json!([
            {"type": "image_url", "image_url": {"url": url}},
            {"type": "text", "text": "What is this?"},
        ]);
        let mut fields = json!({"messages": [{"role": "user", "content": parts}]});
        for (name, value) in more.as_object().unwrap() {
            fields[name] = value.clone();
        }
        ("/v1/chat/completions", fields)
    };
    let source = json!({"type": "base64", "media_type": "image/png", "data": picture(5)});
    let blocks =
        json!([{"type": "image", "source": source}, {"type": "text", "text": "And this?"}]);
    vec![
        chat(1, json!({"temperature": 0})),
        chat(2, json!({"temperature": 0.8})),
        chat(1, json!({"temperature": 0.8, "n": 2})),
        chat(3, json!({"logprobs": true, "top_logprobs": 2})),
        chat(
            4,
            json!({"use_beam_search": true, "n": 2, "max_tokens": 24, "stream": false,
            "temperature": 0, "seed": null}),
        ),
        ("/v1/messages", json!({"messages": [{"role": "user", "content": blocks}]})),
        ("/v1/completions", json!({"prompt": "Once upon a time", "temperature": 0.7})),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_about_pictures_survive_the_engine_process() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let model = root.join("../shared/conformance2/models/qwen2_5_vl");
    if !model.is_dir() {
        println!("skipped: no ../shared/conformance2 beside the repository");
        return;
    }
    let flags = ["--model", model.to_str().unwrap(), "--dtype", "float32"];
    let (client, arrivals, asks) = (Client::new(), Arrivals::new(), asks());
    let one_process = Server::start(&[&flags[..], &["--single-process"]].concat());
    let expected = replay(&client, &one_process.url, &asks, &arrivals).await;
    let (code, log) = one_process.end();
    assert_eq!(code, Some(0), "{log}");

    let server = Server::start(&flags);
    let check = |answers: Vec<String>| {
        for (index, (expected, actual)) in expected.iter().zip(answers).enumerate() {
            let difference = difference(expected, &actual);
            assert_eq!(difference, None, "request {index}: {}", asks[index].0);
        }
    };
    check(replay(&client, &server.url, &asks, &arrivals).await);
    let mut kills = 0;
    while kills < KILLS {
        let run = {
            let (client, url, asks) = (client.clone(), server.url.clone(), asks.clone());
            let arrivals = arrivals.clone();
            tokio::spawn(async move { replay(&client, &url, &asks, &arrivals).await })
        };
        while !run.is_finished() && kills < KILLS {
            sleep(Duration::from_millis(200)).await;
            let [serves, goes_on] = kill(&client, &server.url, "SIGKILL", &arrivals).await;
            println!("the next process serves after {serves:?}, a stream after {goes_on:?}");
            kills += 1;
        }
        check(run.await.unwrap());
    }
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
}
