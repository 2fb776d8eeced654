//! Heads that guess tokens, compared with plain torch in float32 over whole texts. `make_heads.py`
//! made them. Their logits agree within the tolerance, however the rows are split, and in a batch.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use burn::tensor::{Device, Tensor};
use playhouse::model::{
    Adapters, DraftHead, Dtype, HeadInput, HeadMethod, HeadRows, LoadOptions, Model, Positions,
    Step, load_draft_head, load_model,
};
use playhouse_kernels::{AttentionMetadata, KvCache};
use serde::Deserialize;

use crate::folder;
use crate::gpu::gpu;

const BLOCK_SIZE: usize = 16;
const NUM_BLOCKS: usize = 64;
/// Of the logits, every fourth is recorded.
const STRIDE: usize = 4;
/// Largest accepted difference of a logit, as a share of the largest logit. A guess reads the
/// states of the guesses before it, so their differences add up.
const TOLERANCE: f32 = 2e-4;

#[derive(Deserialize)]
struct Golden {
    model: String,
    method: String,
    prompts: Vec<Prompt>,
}

#[derive(Deserialize)]
struct Prompt {
    prompt_token_ids: Vec<u32>,
    /// The token that the model draws after the prompt.
    drawn: u32,
    guesses: Vec<u32>,
    /// The logits of each guess; none for a token that the head never guesses.
    logits: Vec<Vec<Option<f32>>>,
}

/// A head with its model and the caches of both.
struct Bench {
    golden: Golden,
    model: Arc<Model>,
    head: Arc<DraftHead>,
    cache: KvCache,
    num_guesses: usize,
    device: Device,
}

/// A text that the head reads: its blocks, its tokens, and the rows that the model gave.
struct Text {
    blocks: Vec<u32>,
    token_ids: Vec<u32>,
    rows: Vec<f32>,
}

/// Returns the folder of a head.
fn head_folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fidelity/heads").join(name)
}

fn method(name: &str) -> HeadMethod {
    match name {
        "eagle" => HeadMethod::Eagle,
        "eagle3" => HeadMethod::Eagle3,
        "mtp" => HeadMethod::Mtp,
        _ => HeadMethod::MlpSpeculator,
    }
}

fn cache(shape: playhouse_kernels::KvCacheShape, device: &Device) -> KvCache {
    KvCache::new(shape, playhouse_kernels::KvDtype::F32, device).unwrap()
}

/// Returns the layout of texts, each with rows of these positions.
fn layout(texts: &[(&Text, std::ops::Range<usize>)]) -> AttentionMetadata {
    let mut meta = AttentionMetadata { query_start_loc: vec![0], ..AttentionMetadata::default() };
    for (text, rows) in texts {
        let slot = |position: usize| {
            text.blocks[position / BLOCK_SIZE] * BLOCK_SIZE as u32 + (position % BLOCK_SIZE) as u32
        };
        meta.positions.extend(rows.start as u32..rows.end as u32);
        meta.slot_mapping.extend(rows.clone().map(slot));
        meta.query_start_loc.push(meta.positions.len() as u32);
        meta.seq_lens.push(rows.end as u32);
        meta.block_tables.push(text.blocks[..rows.end.div_ceil(BLOCK_SIZE)].to_vec());
    }
    meta
}

fn values(tensor: Tensor<2>) -> Vec<f32> {
    tensor.into_data().try_to_vec().unwrap()
}

impl Bench {
    /// Returns the head in `folder` on a device, with the recorded guesses of the head `name`.
    fn new(name: &str, folder_of_head: &Path, device: &Device) -> Self {
        let golden = fs::read_to_string(head_folder(name).join("golden.json")).unwrap();
        let golden: Golden = serde_json::from_str(&golden).unwrap();
        let device = device.clone();
        let options = LoadOptions { dtype: Dtype::Float32, device, ..LoadOptions::default() };
        let model = load_model(&folder(&golden.model), &options, &mut |_| ()).unwrap();
        let method = method(&golden.method);
        let head = load_draft_head(folder_of_head, method, &model, &options, &mut |_| ());
        let head = head.unwrap();
        let cache = cache(head.kv_cache_shape(NUM_BLOCKS, BLOCK_SIZE), &options.device);
        let num_guesses = golden.prompts[0].guesses.len();
        Self { golden, model, head, cache, num_guesses, device: options.device }
    }

    /// Returns a text with the rows that the model computes for a prompt.
    fn text(&self, prompt: &Prompt, first_block: u32) -> Text {
        let mut token_ids = prompt.prompt_token_ids.clone();
        let blocks: Vec<u32> = (0..4).map(|block| first_block + block * 3).collect();
        let mut text = Text { blocks, token_ids: Vec::new(), rows: Vec::new() };
        let meta = layout(&[(&text, 0..token_ids.len())]);
        let mut kv = cache(self.model.kv_cache_shape(NUM_BLOCKS, BLOCK_SIZE), &self.device);
        let backbone = &self.model.backbone;
        let layers = match &self.head.input {
            HeadInput::Last => &[][..],
            HeadInput::BeforeLayers(layers) => layers,
        };
        let embedded = backbone.embed(&token_ids, Adapters::none());
        let (positions, mut step) = (Positions::of_text(&meta), Step::new(&meta, &mut kv));
        let (last, inputs) = backbone.forward_with_inputs(embedded, positions, &mut step, layers);
        text.rows = match inputs.is_empty() {
            true => values(last),
            false => values(Tensor::cat(inputs, 1)),
        };
        token_ids.push(prompt.drawn);
        text.token_ids = token_ids;
        text
    }

    /// Reads rows of texts in one pass, and returns their states.
    fn read(&mut self, texts: &[(&Text, std::ops::Range<usize>)]) -> Tensor<2> {
        let (meta, width) = (layout(texts), self.head.row_width());
        let (mut token_ids, mut rows) = (Vec::new(), Vec::new());
        for (text, range) in texts {
            token_ids.extend_from_slice(&text.token_ids[range.start + 1..range.end + 1]);
            rows.extend_from_slice(&text.rows[range.start * width..range.end * width]);
        }
        let states = self.head.rows(rows);
        let rows = HeadRows { num_guesses: 0, token_ids: &token_ids, states };
        self.head.forward(rows, &meta, &mut self.cache)
    }

    /// Guesses after each text, whose last rows are rows `last` of `states`. Returns for each text
    /// and guess the logits.
    fn guess(&mut self, texts: &mut [Text], states: Tensor<2>, last: &[u32]) -> Vec<Vec<Vec<f32>>> {
        let (mut states, mut last) = (states, last.to_vec());
        let mut found = vec![Vec::new(); texts.len()];
        let vocab_size = self.model.vocab_size;
        for num_guesses in 0..self.num_guesses {
            let logits = values(self.head.logits(num_guesses, states.clone(), &last));
            for ((text, logits), found) in
                texts.iter_mut().zip(logits.chunks(vocab_size)).zip(&mut found)
            {
                let best = (0..vocab_size).max_by(|a, b| logits[*a].total_cmp(&logits[*b]));
                text.token_ids.push(best.unwrap() as u32);
                found.push(logits.to_vec());
            }
            let ends: Vec<_> = texts.iter().map(|text| text.token_ids.len() - 1).collect();
            let rows = texts.iter().zip(&ends).map(|(text, end)| (text, end - 1..*end));
            let meta = layout(&rows.collect::<Vec<_>>());
            let token_ids: Vec<u32> =
                texts.iter().map(|text| *text.token_ids.last().unwrap()).collect();
            let chosen = playhouse_kernels::select_rows(states, &last);
            let rows =
                HeadRows { num_guesses: num_guesses + 1, token_ids: &token_ids, states: chosen };
            states = self.head.forward(rows, &meta, &mut self.cache);
            last = (0..texts.len() as u32).collect();
        }
        found
    }
}

/// Compares the guesses after a prompt with the recorded ones.
fn check(name: &str, prompt: &Prompt, text: &Text, found: &[Vec<f32>]) {
    let guessed = &text.token_ids[prompt.prompt_token_ids.len() + 1..];
    assert_eq!(guessed, prompt.guesses, "{name}");
    for (index, (found, expected)) in found.iter().zip(&prompt.logits).enumerate() {
        let largest = expected.iter().flatten().fold(1.0_f32, |most, logit| most.max(logit.abs()));
        for (found, expected) in found.iter().step_by(STRIDE).zip(expected) {
            match expected {
                Some(expected) => {
                    let difference = (found - expected).abs();
                    let tolerance = TOLERANCE * largest;
                    assert!(difference < tolerance, "{name}, guess {index}: {found} {expected}");
                }
                None => assert_eq!(*found, f32::NEG_INFINITY, "{name}, guess {index}"),
            }
        }
    }
}

/// Checks a head: each prompt alone, in one pass and in two, then all prompts in one batch.
fn check_head(name: &str) {
    check_head_in(name, &head_folder(name), &Device::flex());
}

/// Checks the head in `folder`, on a device, against what is recorded of the head `name`.
fn check_head_in(name: &str, folder: &Path, device: &Device) {
    let mut bench = Bench::new(name, folder, device);
    let prompts = std::mem::take(&mut bench.golden.prompts);
    for prompt in &prompts {
        for split in [0, 2] {
            let text = bench.text(prompt, 5);
            let len = prompt.prompt_token_ids.len();
            if split > 0 {
                drop(bench.read(&[(&text, 0..split)]));
            }
            let states = bench.read(&[(&text, split..len)]);
            let mut texts = [text];
            let found = bench.guess(&mut texts, states, &[(len - split - 1) as u32]);
            check(name, prompt, &texts[0], &found[0]);
        }
    }
    let mut texts: Vec<Text> =
        (0..).zip(&prompts).map(|(place, prompt)| bench.text(prompt, 1 + 20 * place)).collect();
    let rows: Vec<_> =
        texts.iter().zip(&prompts).map(|(text, p)| (text, 0..p.prompt_token_ids.len())).collect();
    let states = bench.read(&rows);
    let mut num_rows = 0;
    let last = prompts.iter().map(|prompt| {
        num_rows += prompt.prompt_token_ids.len() as u32;
        num_rows - 1
    });
    let last: Vec<u32> = last.collect();
    let found = bench.guess(&mut texts, states, &last);
    for ((prompt, text), found) in prompts.iter().zip(&texts).zip(&found) {
        check(name, prompt, text, found);
    }
}

#[test]
fn eagle_guesses_as_torch_does() {
    check_head("eagle");
    check_head("eagle-biases");
    check_head("eagle-mistral");
    check_head("eagle-llama4");
}

#[test]
fn eagle3_guesses_as_torch_does() {
    check_head("eagle3");
    check_head("eagle3-last");
    check_head("eagle3-after");
    check_head("eagle3-narrow");
    check_head("eagle3-norms");
    check_head("eagle3-qwen3");
    check_head("eagle3-deepseek_v3");
}

#[test]
fn layers_after_the_last_guess_as_transformers_layers_do() {
    check_head("mtp-deepseek_v3");
    check_head("mtp-glm4_moe");
    check_head("mtp-hy_v3");
}

#[test]
fn modules_beside_the_layers_guess_as_transformers_layers_do() {
    check_head("mtp-qwen3_next");
    check_head("mtp-qwen3_5");
    check_head("mtp-qwen3_5_moe");
    check_head("mtp-mimo");
    check_head("mtp-exaone_moe");
    check_head("mtp-exaone_moe-full");
    check_head("mtp-ernie4_5_moe");
    check_head("mtp-nemotron_h");
    check_head("mtp-longcat_flash");
}

#[test]
fn a_class_with_images_has_the_head_of_its_text_model() {
    for (name, class, model_type) in [
        ("mtp-qwen3_5", "Qwen3_5ForConditionalGeneration", "qwen3_5"),
        ("mtp-qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let own = head_folder(name);
        let config = fs::read_to_string(own.join("config.json")).unwrap();
        let mut text: serde_json::Value = serde_json::from_str(&config).unwrap();
        text["rope_parameters"]["mrope_section"] = serde_json::json!([1, 1, 0]);
        let wrapped = serde_json::json!({
            "architectures": [class], "model_type": model_type, "text_config": text,
            "dtype": "bfloat16", "tie_word_embeddings": false,
        });
        fs::write(folder.path().join("config.json"), wrapped.to_string()).unwrap();
        fs::copy(own.join("model.safetensors"), folder.path().join("model.safetensors")).unwrap();
        check_head_in(name, folder.path(), &Device::flex());
    }
}

/// Copies the head `name`, with another value of a field of its config.
fn with_field(name: &str, field: &str, value: serde_json::Value) -> tempfile::TempDir {
    let (folder, own) = (tempfile::tempdir().unwrap(), head_folder(name));
    let config = fs::read_to_string(own.join("config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&config).unwrap();
    config[field] = value;
    fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    fs::copy(own.join("model.safetensors"), folder.path().join("model.safetensors")).unwrap();
    folder
}

/// As in vLLM, whose heads have the model's length: rotations do not depend on the field.
#[test]
fn a_head_guesses_in_texts_beyond_its_own_positions() {
    for name in ["eagle", "eagle3"] {
        let short = with_field(name, "max_position_embeddings", 8.into());
        let bench = Bench::new(name, short.path(), &Device::flex());
        assert_eq!(bench.head.max_model_len, bench.model.max_model_len, "{name}");
        check_head_in(name, short.path(), &Device::flex());
    }
}

/// vLLM's `max_model_len` of the speculative config.
#[test]
fn the_settings_may_give_a_head_a_length() {
    let options = LoadOptions { dtype: Dtype::Float32, ..LoadOptions::default() };
    for (name, model, method) in [
        ("eagle", "llama-llama3", HeadMethod::Eagle),
        ("mtp-glm4_moe", "glm4_moe", HeadMethod::Mtp),
        ("mlp_speculator", "llama-tied", HeadMethod::MlpSpeculator),
    ] {
        let model = load_model(&folder(model), &options, &mut |_| ()).unwrap();
        let short = LoadOptions { max_model_len: Some(9), ..options.clone() };
        let head = load_draft_head(&head_folder(name), method, &model, &short, &mut |_| ());
        assert_eq!(head.unwrap().max_model_len, 9, "{name}");
    }
}

#[test]
fn mlp_speculators_guess_as_torch_does() {
    check_head("mlp_speculator");
    check_head("mlp_speculator-tied");
}

/// A head of each method, with the parts that others do not have: a table of tokens, latent
/// attention, experts, norms with biases.
#[test]
fn heads_guess_on_a_gpu_as_torch_does() {
    let Some(gpu) = gpu() else { return };
    let names = ["eagle-biases", "eagle3", "mtp-deepseek_v3", "mtp-qwen3_5_moe", "mlp_speculator"];
    for name in names {
        check_head_in(name, &head_folder(name), &gpu.device);
    }
}
