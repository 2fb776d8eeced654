//! Embeddings in the place of images. `embeds/make.py` has computed them with transformers. The
//! models stand beside the repository. Without them, the tests print a note and pass.

use std::{
    fs,
    path::{Path, PathBuf},
};

use playhouse::{EngineConfig, server::ServerConfig};
use reqwest::Client;
use serde_json::{Value, json};

use crate::{
    images::{base64, data_url, served_model},
    serving::Served,
};

/// Difference of log-probabilities between this encoder and that of transformers.
const TOLERANCE: f64 = 2e-3;

fn file(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/api/embeds");
    fs::read(folder.join(name)).unwrap()
}

fn stored(name: &str) -> Value {
    json!(base64(&file(name)))
}

fn enabled(engine: &mut EngineConfig, _: &mut ServerConfig) {
    engine.enable_mm_embeds = true;
}

async fn ask(served: &Served, part: Value) -> (u16, Value) {
    let parts = json!([part, {"type": "text", "text": "What is this?"}]);
    let body = json!({
        "messages": [{"role": "user", "content": parts}], "max_tokens": 8, "temperature": 0,
        "logprobs": true, "ignore_eos": true,
    });
    let request = Client::new().post(format!("{}/v1/chat/completions", served.url)).json(&body);
    let response = request.send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

fn embeds(tensors: Value) -> Value {
    json!({"type": "image_embeds", "image_embeds": tensors})
}

/// Returns the tokens of an answer with their log-probabilities.
fn tokens(answer: &Value) -> Vec<(String, f64)> {
    let tokens = answer["choices"][0]["logprobs"]["content"].as_array().unwrap();
    let token = |token: &Value| {
        (token["token"].as_str().unwrap().to_owned(), token["logprob"].as_f64().unwrap())
    };
    tokens.iter().map(token).collect()
}

/// Holds the answer about the embeddings of transformers against that about the picture itself.
async fn check(model: &str, tensors: Value) {
    let Some(served) = served_model(model, enabled).await else { return };
    let url = data_url(&file("picture.png"));
    let (status, of_image) =
        ask(&served, json!({"type": "image_url", "image_url": {"url": url}})).await;
    assert_eq!(status, 200, "{of_image}");
    let (status, of_embeds) = ask(&served, embeds(tensors)).await;
    assert_eq!(status, 200, "{of_embeds}");
    assert_eq!(of_embeds["usage"], of_image["usage"]);
    let (expected, found) = (tokens(&of_image), tokens(&of_embeds));
    assert_eq!(found.len(), 8);
    for ((token, logprob), (expected, other)) in found.iter().zip(&expected) {
        assert_eq!(token, expected, "{model}: {found:?}");
        assert!((logprob - other).abs() < TOLERANCE, "{model}: {logprob} and {other}");
    }
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn embeddings_of_transformers_answer_as_the_picture_does() {
    check("llava", stored("llava.pt")).await;
    for model in ["qwen2_5_vl", "qwen3_vl"] {
        let grid = stored(&format!("{model}_grid.pt"));
        let embeds = stored(&format!("{model}.pt"));
        check(model, json!({"image_embeds": embeds, "image_grid_thw": grid})).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn embeddings_are_taken_only_where_they_are_allowed() {
    let Some(served) = served_model("llava", |_, _| ()).await else { return };
    let (status, answer) = ask(&served, embeds(stored("llava.pt"))).await;
    let message = "You must set `--enable-mm-embeds` to input `image_embeds` \
                   (parameter=image_embeds)";
    assert_eq!((status, &answer["error"]["message"]), (400, &json!(message)));
    assert_eq!(answer["error"]["param"], "image_embeds");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_embeddings_are_refused_with_both_shapes() {
    let no_images = |engine: &mut EngineConfig, server: &mut ServerConfig| {
        enabled(engine, server);
        engine.limit_mm_per_prompt = serde_json::from_value(json!(r#"{"image": 0}"#)).unwrap();
    };
    let Some(served) = served_model("llava", no_images).await else { return };
    let (status, answer) = ask(&served, embeds(stored("llava.pt"))).await;
    assert_eq!(status, 200, "a limit of zero leaves embeddings: {answer}");
    for (tensors, reason) in [
        (stored("qwen3_vl.pt"), "the shape [12, 384], and the model takes [num_embeds, 128]"),
        (stored("qwen2_5_vl_grid.pt"), "the shape [1, 3]"),
        (stored("make.py"), "neither a tensor of torch.save nor a safetensors file"),
        (json!("%%%"), "Non-base64 digit found"),
        (json!({"image_embeds": 3}), "Input should be a valid string"),
        (json!([1.0, 2.0]), "Input should be a valid string or a dictionary of strings"),
        (json!({}), "image_embeds has no tensor of this name"),
    ] {
        let (status, answer) = ask(&served, embeds(tensors)).await;
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(status == 400 && message.contains(reason), "{reason}: {status} {answer}");
    }
    let (status, answer) =
        ask(&served, json!({"type": "audio_embeds", "audio_embeds": stored("llava.pt")})).await;
    let message = answer["error"]["message"].as_str().unwrap_or_default();
    assert!(status == 400 && message.contains("takes no audio_embeds"), "{answer}");

    let mut named = embeds(stored("llava.pt"));
    named["uuid"] = json!("pic");
    let (_, first) = ask(&served, named).await;
    let (status, again) =
        ask(&served, json!({"type": "image_embeds", "image_embeds": null, "uuid": "pic"})).await;
    assert_eq!((status, &again["choices"]), (200, &first["choices"]));
    served.stop().await;
}

/// Asks a server with this part in the exchange about the picture. Returns the tokens, and the
/// number of results that it did not compute.
async fn exchanged(role: &str, folder: &Path) -> Option<(Vec<(String, f64)>, u64)> {
    let config = json!({
        "ec_connector": "ECExampleConnector",
        "ec_role": role,
        "ec_connector_extra_config": {"shared_storage_path": folder},
    });
    let change = |engine: &mut EngineConfig, _: &mut ServerConfig| {
        engine.ec_transfer_config = serde_json::from_value(config).unwrap();
    };
    let served = served_model("qwen3_vl", change).await?;
    let url = data_url(&file("picture.png"));
    let image = json!({"type": "image_url", "image_url": {"url": url}, "uuid": role});
    let (status, answer) = ask(&served, image).await;
    assert_eq!(status, 200, "{answer}");
    let num_received = served.engine.encoder_caches().await[0].unwrap().num_received;
    served.stop().await;
    Some((tokens(&answer), num_received))
}

/// Returns the stored files.
fn stored_files(folder: &Path) -> Vec<PathBuf> {
    let inside = |folder: &Path| {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
    };
    inside(folder).iter().flat_map(|folder| inside(folder)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_takes_what_another_has_encoded_unless_it_is_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let Some((expected, received)) = exchanged("ec_producer", folder.path()).await else { return };
    assert_eq!(received, 0);
    let files = stored_files(folder.path());
    assert_eq!(files.len(), 1, "{files:?}");
    let taken = exchanged("ec_consumer", folder.path()).await.unwrap();
    assert_eq!(taken, (expected.clone(), 1), "the same tokens and numbers");
    let mut damaged = fs::read(&files[0]).unwrap();
    *damaged.last_mut().unwrap() ^= 1;
    fs::write(&files[0], damaged).unwrap();
    let computed = exchanged("ec_both", folder.path()).await.unwrap();
    assert_eq!(computed, (expected.clone(), 0), "computed again, and stored again");
    assert_eq!(exchanged("ec_both", folder.path()).await.unwrap(), (expected, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_beam_search_sees_the_picture_in_every_step() {
    let Some(served) = served_model("qwen2_5_vl", |_, _| ()).await else { return };
    let search = async |number: u8, n: u32| {
        let picture = image::RgbImage::from_pixel(84, 56, image::Rgb([number, 9, 200 - number]));
        let mut file = std::io::Cursor::new(Vec::new());
        picture.write_to(&mut file, image::ImageFormat::Png).unwrap();
        let url = data_url(&file.into_inner());
        let parts = json!([
            {"type": "image_url", "image_url": {"url": url}},
            {"type": "text", "text": "What is this?"},
        ]);
        let mut body = json!({
            "messages": [{"role": "user", "content": parts}], "max_tokens": 8, "temperature": 0,
            "logprobs": true, "ignore_eos": true,
        });
        if n > 0 {
            body["use_beam_search"] = true.into();
            body["n"] = n.into();
        }
        let url = format!("{}/v1/chat/completions", served.url);
        let response = Client::new().post(url).json(&body).send().await.unwrap();
        let status = response.status().as_u16();
        let answer: Value = response.json().await.unwrap();
        assert_eq!(status, 200, "{answer}");
        tokens(&answer)
    };
    let sum = |tokens: &[(String, f64)]| tokens.iter().map(|(_, logprob)| logprob).sum::<f64>();
    for number in [10, 190] {
        let greedy = search(number, 0).await;
        let one_beam = search(number, 1).await;
        let names = |tokens: &[(String, f64)]| {
            tokens.iter().map(|(token, _)| token.clone()).collect::<Vec<_>>()
        };
        assert_eq!(names(&one_beam), names(&greedy), "one beam is the greedy output");
        assert!((sum(&one_beam) - sum(&greedy)).abs() < TOLERANCE);
        let best = search(number, 4).await;
        assert!(sum(&best) >= sum(&greedy) - TOLERANCE, "four beams find no worse output");
    }
    served.stop().await;
}
