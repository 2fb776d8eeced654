//! A question about a picture, in a program of your own.
//!
//! ```sh
//! cargo run --release --example picture -- models/qwen2-vl cat.jpg
//! ```
//!
//! Without a file, the picture is a red circle. Without a model, the program says how to name one.
#![allow(clippy::print_stdout, reason = "the output is the example's result")]

use std::{env, error::Error, fs, io::Cursor, sync::Arc};

use image::{ImageFormat, Rgb, RgbImage};
use playhouse::{
    Engine, EngineConfig,
    api::{ChatPrompt, MediaSource, Modality, Prompt, RawMedia, RawRequest},
};
use serde_json::{Map, json};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let config = arguments.next().map_or_else(EngineConfig::default, EngineConfig::new);
    let file = match arguments.next() {
        Some(path) => fs::read(path)?,
        None => circle()?,
    };
    let engine = Engine::spawn(config, |_| ()).await?;
    let takes_images =
        engine.codec().media().is_some_and(|processor| processor.limit(Modality::Image) > 0);
    if !takes_images {
        println!("this model takes no images; name the folder of a model that does");
        engine.shutdown().await;
        return Ok(());
    }

    // The conversation has the place of the picture, and the request has its content.
    let parts = json!([{"type": "image"}, {"type": "text", "text": "What is this?"}]);
    let chat = ChatPrompt {
        messages: vec![json!({"role": "user", "content": parts})],
        add_generation_prompt: true,
        ..ChatPrompt::default()
    };
    let picture = RawMedia {
        modality: Modality::Image,
        source: MediaSource::File(file.into()),
        uuid: None,
        kwargs: Map::new(),
    };
    let mut request = RawRequest::new(Prompt::Chat(Arc::new(chat)));
    request.media = [picture].into();
    request.max_tokens = Some(64);

    let mut submission = engine.submit(request).await?;
    let tokens = submission.prompt_token_ids.len();
    println!("prompt: {tokens} tokens, and {} bytes of pixels", submission.media_bytes);
    while let Some(delta) = submission.choices[0].next().await {
        print!("{}", delta.text);
    }
    println!();
    if let Some(Some(cache)) = engine.encoder_caches().await.first() {
        println!("encoded: {} pictures", cache.num_encoded);
    }
    engine.shutdown().await;
    Ok(())
}

/// Returns a PNG of a red circle.
fn circle() -> Result<Vec<u8>, Box<dyn Error>> {
    let picture = RgbImage::from_fn(96, 96, |x, y| {
        let [x, y] = [x, y].map(|at| i64::from(at) - 48);
        if x * x + y * y < 1_600 { Rgb([200, 30, 30]) } else { Rgb([255; 3]) }
    });
    let mut file = Cursor::new(Vec::new());
    picture.write_to(&mut file, ImageFormat::Png)?;
    Ok(file.into_inner())
}
