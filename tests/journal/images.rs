//! A stream about a picture, which outlives the process. The model stands beside the repository.
//! Without it, the test prints a note and passes.
#![allow(clippy::print_stdout, reason = "a skipped test says so")]

use std::{io::Cursor, path::Path};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use reqwest::Client;
use serde_json::json;

use crate::{
    client::{Ask, Reader, post, read, said},
    server::Server,
};

fn ask() -> Ask {
    let picture = image::RgbImage::from_fn(112, 84, |x, y| image::Rgb([x as u8, y as u8, 7]));
    let mut file = Cursor::new(Vec::new());
    picture.write_to(&mut file, image::ImageFormat::Png).unwrap();
    let url = format!("data:image/png;base64,{}", STANDARD.encode(file.into_inner()));
    let content = json!([
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "text", "text": "What is this?"},
    ]);
    let body = json!({
        "model": "demo", "messages": [{"role": "user", "content": content}], "max_tokens": 300,
        "temperature": 1, "seed": 5, "stream": true, "ignore_eos": true, "return_token_ids": true,
    });
    Ask { path: "/v1/chat/completions", body }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_about_a_picture_goes_on_in_the_next_process() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let model = root.join("../shared/conformance2/models/qwen2_5_vl");
    if !model.is_dir() {
        println!("skipped: no ../shared/conformance2 beside the repository");
        return;
    }
    let flags = ["--model", model.to_str().unwrap(), "--dtype", "float32"];
    let (journal, client, ask) = (tempfile::tempdir().unwrap(), Client::new(), ask());
    let undisturbed = Server::start(None, &flags);
    let mut expected = Reader::default();
    read(post(&client, &undisturbed.url, &ask, None).await, &mut expected, |_| false).await;
    undisturbed.kill();
    assert!(expected.is_complete());

    let server = Server::start(Some(journal.path()), &flags);
    let mut reader = Reader::default();
    let response = post(&client, &server.url, &ask, None).await;
    let connection = read(response, &mut reader, |reader| reader.events.len() > 20).await;
    server.kill();
    drop(connection);
    reader.lose_connection();
    let last = reader.last_id().unwrap().to_owned();
    let server = Server::start(Some(journal.path()), &flags);
    let response = post(&client, &server.url, &ask, Some(&last)).await;
    read(response, &mut reader, |_| false).await;
    assert!(reader.is_complete());
    assert_eq!(said(&reader.events), said(&expected.events));
    server.terminate();
}
