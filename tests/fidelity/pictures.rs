//! Compares what models that pool make of texts and images with transformers in float32.
//! `make_pictures.py` and `make_embedders.py` made the models of two towers and those of late
//! interaction. They recorded all answers but those of `make_nemotron_vl.py`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use playhouse::{
    Engine, EngineConfig,
    api::{How, Modality, PoolingParams, PoolingTask, Prompt, RawMedia, RawRequest, Role},
    config::{Device, Dtype, JsonObject, PoolerConfig, PoolerTask, Runner},
    engine::{MediaText, PooledPrompt},
};
use serde::Deserialize;

use crate::media_engine::{drawn, png, raw};

/// Largest accepted difference of an element, relative to elements above 1.
const TOLERANCE: f32 = 1e-4;

/// The content of `golden.json`.
#[derive(Deserialize)]
struct Golden {
    /// The folder of the model, if it is another one.
    model: Option<PathBuf>,
    task: PoolingTask,
    #[serde(default)]
    settings: Settings,
    images: Vec<Size>,
    texts: Vec<Text>,
    prompts: Vec<Placed>,
    #[serde(default)]
    pairs: Vec<Pair>,
}

/// Two texts with their score.
#[derive(Deserialize)]
struct Pair {
    text_1: String,
    text_2: String,
    score: f32,
}

#[derive(Default, Deserialize)]
struct Settings {
    hf_overrides: Option<JsonObject>,
}

#[derive(Deserialize)]
struct Size {
    height: u32,
    width: u32,
}

#[derive(Deserialize)]
struct Text {
    text: String,
    token_ids: Vec<u32>,
    rows: Vec<Vec<f32>>,
}

/// A prompt with images.
#[derive(Deserialize)]
struct Placed {
    /// The tokens before expansion.
    placed_token_ids: Vec<u32>,
    token_ids: Vec<u32>,
    images: Vec<usize>,
    rows: Vec<Vec<f32>>,
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fidelity/pictures").join(name)
}

/// A request, with the tokens of its prompt and the rows of its result.
type Expected<'a> = (RawRequest, &'a [u32], &'a [Vec<f32>]);

impl Golden {
    fn read(name: &str) -> Self {
        let text = std::fs::read(folder(name).join("golden.json")).unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    async fn engine(&self, name: &str, change: impl FnOnce(&mut EngineConfig)) -> Engine {
        let task = match self.task {
            PoolingTask::Embed => PoolerTask::Embed,
            PoolingTask::TokenEmbed => PoolerTask::TokenEmbed,
            PoolingTask::Classify => PoolerTask::Classify,
            PoolingTask::TokenClassify => PoolerTask::TokenClassify,
        };
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let model = self.model.as_ref().map_or_else(|| folder(name), |model| root.join(model));
        // Prompts of tokens alone need no tokenizer of their own.
        let has_tokenizer = model.join("tokenizer.json").is_file();
        let mut config = EngineConfig {
            allow_chaos: true,
            device: Device::Cpu,
            dtype: Dtype::Float32,
            runner: Runner::Pooling,
            tokenizer: (!has_tokenizer).then(|| crate::folder("llama-tied")),
            kv_cache_memory_bytes: Some(16 << 20),
            pooler_config: Some(PoolerConfig { task: Some(task), ..PoolerConfig::default() }),
            hf_overrides: self.settings.hf_overrides.clone(),
            ..EngineConfig::new(model)
        };
        change(&mut config);
        Engine::start(config).await.unwrap()
    }

    /// Returns all requests, with the tokens of their prompts and the rows of their results.
    fn requests(&self) -> Vec<Expected<'_>> {
        let params = || PoolingParams::new(self.task);
        let of_text = |text: &Text| RawRequest::pool(Prompt::Text(text.text.clone()), params());
        let item = |index: &usize| {
            let Size { height, width } = self.images[*index];
            raw(Modality::Image, png(&drawn(height, width)))
        };
        let of_images = |prompt: &Placed| {
            let media: Arc<[RawMedia]> = prompt.images.iter().map(item).collect();
            let tokens = Prompt::Tokens(prompt.placed_token_ids.clone());
            RawRequest { media, ..RawRequest::pool(tokens, params()) }
        };
        let texts = self.texts.iter().map(|it| (of_text(it), &it.token_ids[..], &it.rows[..]));
        let images = self.prompts.iter().map(|it| (of_images(it), &it.token_ids[..], &it.rows[..]));
        texts.chain(images).collect()
    }
}

fn values(results: &[PooledPrompt]) -> Vec<Vec<f32>> {
    results.iter().map(|result| result.pooled.values.to_vec()).collect()
}

/// Checks results against the recorded ones, and that each split of the work gives the same bytes.
async fn check(name: &str) {
    let golden = Golden::read(name);
    let requests = || golden.requests().into_iter().map(|(request, ..)| request);
    let whole = golden.engine(name, |_| ()).await;
    let mut alone = Vec::new();
    for (index, (request, token_ids, rows)) in golden.requests().into_iter().enumerate() {
        let result = whole.pool([request]).await.unwrap().remove(0);
        assert_eq!(*result.prompt_token_ids, *token_ids, "{name}: {index}");
        let found: Vec<_> = result.pooled.rows().collect();
        assert_eq!(found.len(), rows.len(), "{name}: {index}");
        for (row, expected) in found.iter().zip(rows) {
            assert_eq!(row.len(), expected.len(), "{name}: {index}");
            for (value, expected) in row.iter().zip(expected) {
                let difference = (value - expected).abs();
                let most = TOLERANCE * expected.abs().max(1.0);
                assert!(difference <= most, "{name}: {index}: {value} {expected}");
            }
        }
        alone.push(result);
    }
    for Pair { text_1, text_2, score } in &golden.pairs {
        let found = whole.score(std::slice::from_ref(text_1), std::slice::from_ref(text_2)).await;
        let difference = (found.unwrap()[0] - score).abs();
        assert!(difference <= TOLERANCE, "{name}: {text_2}: {difference}");
    }
    let batched = whole.pool(requests().collect::<Vec<_>>()).await.unwrap();
    assert_eq!(values(&batched), values(&alone), "{name}: in one batch");
    whole.shutdown().await;
    let outlived = golden.engine(name, |config| config.max_num_seqs = 3).await;
    let killer = async {
        for role in [Role::EncoderWorker, Role::Worker, Role::EncoderCacheManager, Role::Scheduler]
        {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            let _ = outlived.chaos().strike(role, 0, How::Kill);
        }
    };
    let (results, ()) = tokio::join!(outlived.pool(requests().collect::<Vec<_>>()), killer);
    assert_eq!(values(&results.unwrap()), values(&alone), "{name}: after deaths");
    outlived.shutdown().await;
}

macro_rules! pictures {
    ($($test:ident: $folder:literal,)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() { check($folder).await; }
        )*

        #[test]
        fn every_folder_has_a_test() {
            let mut tested = vec![$($folder),*];
            let folders = std::fs::read_dir(folder("")).unwrap();
            let mut found: Vec<String> =
                folders.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            tested.sort_unstable();
            found.sort_unstable();
            assert_eq!(found, tested);
        }
    };
}

pictures! {
    clip: "clip",
    clip_wide: "clip-wide",
    siglip: "siglip",
    siglip_narrow: "siglip-narrow",
    qwen2_vl_last: "qwen2_vl-last",
    qwen2_5_vl_last: "qwen2_5_vl-last",
    qwen3_vl_last: "qwen3_vl-last",
    llava_next_last: "llava_next-last",
    qwen3_vl_tokens: "qwen3_vl-tokens",
    qwen3_vl_reranker: "qwen3_vl-reranker",
    qwen2_vl_reranker: "qwen2_vl-reranker",
    colqwen2: "colqwen2",
    colqwen2_5: "colqwen2_5",
    colpali: "colpali",
    colmodernvbert: "colmodernvbert",
    modernvbert: "modernvbert",
    modernvbert_class: "modernvbert-class",
    colultravbert: "colultravbert",
    colultravbert_older: "colultravbert-older",
    ultravbert: "ultravbert",
    ultravbert_tokens: "ultravbert-tokens",
    embedding_gemma2: "embedding_gemma2",
    embedding_gemma2_tokens: "embedding_gemma2-tokens",
    embedding_gemma2_text: "embedding_gemma2-text",
    colqwen3: "colqwen3",
    colqwen3_ops: "colqwen3-ops",
    colqwen3_5: "colqwen3_5",
    nemotron_col_embed: "nemotron_col_embed",
    nemotron_col_embed_one: "nemotron_col_embed-one",
    nemotron_embed_vl: "nemotron_embed_vl",
    nemotron_embed_vl_last: "nemotron_embed_vl-last",
    nemotron_rerank_vl: "nemotron_rerank_vl",
    nemotron_rerank_vl_classes: "nemotron_rerank_vl-classes",
    jina_ranker: "jina-ranker",
    clip_sentences: "clip-sentences",
    qwen2_5_vl_classes: "qwen2_5_vl-classes",
}

/// Steps of few tokens cut prompts between and within their images.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chunks_of_a_prompt_give_the_same_bytes() {
    for name in ["qwen2_vl-last", "qwen3_vl-tokens", "qwen3_vl-reranker", "clip"] {
        let golden = Golden::read(name);
        let mut results = Vec::new();
        for most in [512, 7] {
            let engine = golden
                .engine(name, |config| {
                    (config.max_num_batched_tokens, config.max_num_seqs) = (most, 4);
                })
                .await;
            let requests: Vec<_> = golden.requests().into_iter().map(|(it, ..)| it).collect();
            results.push(values(&engine.pool(requests).await.unwrap()));
            engine.shutdown().await;
        }
        assert_eq!(results[0], results[1], "{name}");
    }
}

/// The score of a text and an image is the cosine of their vectors, which transformers made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn texts_and_images_are_compared() {
    let golden = Golden::read("clip");
    let engine = golden.engine("clip", |_| ()).await;
    let image = |prompt: &Placed| {
        let Size { height, width } = golden.images[prompt.images[0]];
        MediaText::from(raw(Modality::Image, png(&drawn(height, width))))
    };
    let images: Vec<MediaText> = golden.prompts.iter().map(image).collect();
    let cosine = |one: &[f32], other: &[f32]| {
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
        dot(one, other) / (dot(one, one) * dot(other, other)).sqrt()
    };
    for text in &golden.texts {
        let found = engine.score_media(vec![text.text.as_str().into()], images.clone()).await;
        let exact = golden.prompts.iter().map(|it| cosine(&text.rows[0], &it.rows[0]));
        let exact: Vec<f32> = exact.collect();
        for (found, exact) in found.unwrap().iter().zip(&exact) {
            assert!((found - exact).abs() <= TOLERANCE, "{}: {found} {exact}", text.text);
        }
        let query = text.text.as_str().into();
        let best = engine.rerank_media(query, images.clone(), Some(1)).await.unwrap();
        let largest = exact.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        assert!((exact[best[0].index] - largest).abs() <= TOLERANCE, "{}: {exact:?}", text.text);
    }
    let params = PoolingParams::new(PoolingTask::Embed);
    let requests = images.iter().map(|image| image.clone().request(params.clone()));
    let alone = engine.pool(requests.collect::<Vec<_>>()).await.unwrap();
    for (result, prompt) in alone.iter().zip(&golden.prompts) {
        let score = cosine(&result.pooled.values, &prompt.rows[0]);
        assert!((score - 1.0).abs() <= TOLERANCE, "{score}");
    }
    engine.shutdown().await;
}

/// vLLM refuses the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_of_two_towers_takes_a_text_or_an_image() {
    let golden = Golden::read("clip");
    let engine = golden.engine("clip", |_| ()).await;
    let pool = async |prompt: Prompt, num_images: usize| {
        let image = raw(Modality::Image, png(&drawn(30, 40)));
        let media: Arc<[RawMedia]> = vec![image; num_images].into();
        let params = PoolingParams::new(PoolingTask::Embed);
        let request = RawRequest { media, ..RawRequest::pool(prompt, params) };
        engine.pool([request]).await.map_err(|error| error.to_string())
    };
    let text = |text: &str| Prompt::Text(text.to_owned());
    let alone = pool(Prompt::Tokens(Vec::new()), 1).await.unwrap();
    for prompt in [text(""), text("<image>")] {
        assert_eq!(values(&pool(prompt, 1).await.unwrap()), values(&alone));
    }
    let both = pool(text("a kettle"), 1).await.unwrap_err();
    assert!(both.contains("not both"), "{both}");
    let two = pool(text("<image><image>"), 2).await.unwrap_err();
    assert!(two.contains("At most 1 image"), "{two}");
    // Without an image, it is a text.
    assert_ne!(values(&pool(text("<image>"), 0).await.unwrap()), values(&alone));
    engine.shutdown().await;
}
