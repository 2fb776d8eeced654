//! Models with images against transformers in float32. Embeddings and log-probabilities agree, and
//! the bytes do not depend on the other images of a batch, or on the chunks of a prompt.
//! `make_vision.py`, `make_gemma4.py`, `make_kimi.py`, `make_aria.py`, `make_internvl_chat.py`,
//! `make_phi3_v.py`, `make_dots_ocr.py`, `make_deepseek_ocr.py` and `make_molmo2.py` made the
//! models and their answers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::tensor::Device;
use playhouse::model::{
    Adapters, Dtype, EncoderOutput, LoadOptions, MediaData, MediaInput, MediaRows, MediaTensorView,
    Model, Positions, Step, StepMedia, load_model,
};
use playhouse_kernels::{AttentionMetadata, KvCache, KvDtype};
use serde::Deserialize;

use crate::runner::log_softmax;

/// The largest accepted difference of an embedding, relative to the largest of its image.
const EMBEDDINGS: f32 = 2e-5;
/// The largest accepted difference of a log-probability.
const LOG_PROBS: f64 = 1e-4;
const BLOCK_SIZE: usize = 16;

/// The content of `golden.json`.
#[derive(Deserialize)]
struct Golden {
    images: Vec<Image>,
    prompts: Vec<Prompt>,
}

/// An image as the processor leaves it, and its embeddings.
#[derive(Deserialize)]
struct Image {
    shape: Vec<usize>,
    pixels: String,
    grid: Option<[u32; 3]>,
    /// The shape of a second tensor, without elements.
    tiles: Option<Vec<usize>>,
    /// The numbers of a third tensor: the whole image in the size of a tile.
    #[serde(default)]
    whole: Vec<f32>,
    /// Tiles of another size than the first tensor, behind the second one.
    #[serde(default)]
    local: Option<Local>,
    num_embeds: usize,
    embeddings: Vec<f32>,
    by_layer: Vec<Vec<f32>>,
}

/// Images of one size.
#[derive(Deserialize)]
struct Local {
    shape: Vec<usize>,
    pixels: String,
}

/// A prompt with images.
#[derive(Deserialize)]
pub(crate) struct Prompt {
    token_ids: Vec<u32>,
    /// The images in it, in order.
    images: Vec<usize>,
    positions: Option<Vec<[u32; 3]>>,
    last_log_probs: Vec<f64>,
}

macro_rules! models {
    ($($test:ident: $folder:literal,)*) => {
        const MODELS: &[&str] = &[$($folder),*];
        $(#[test] fn $test() { check($folder); })*
    };
}

models! {
    llava: "llava",
    llava_full: "llava-full",
    llava_siglip: "llava-siglip",
    llava_siglip_rest: "llava-siglip-rest",
    llava_qwen3: "llava-qwen3",
    qwen2_vl: "qwen2_vl",
    qwen2_5_vl: "qwen2_5_vl",
    qwen2_5_vl_wide: "qwen2_5_vl-wide",
    qwen3_vl: "qwen3_vl",
    qwen3_vl_one: "qwen3_vl-one",
    qwen3_5: "qwen3_5",
    qwen4_exp: "qwen4_exp",
    exaone4_5: "exaone4_5",
    exaone4_5_one: "exaone4_5-one",
    dots_ocr: "dots_ocr",
    dots_ocr_bias: "dots_ocr-bias",
    deepseek_ocr: "deepseek_ocr",
    deepseek_ocr_windows: "deepseek_ocr-windows",
    deepseek_ocr2: "deepseek_ocr2",
    deepseek_ocr2_windows: "deepseek_ocr2-windows",
    blip2: "blip2",
    blip2_wide: "blip2-wide",
    ovis2: "ovis2",
    ovis2_odd: "ovis2-odd",
    got_ocr2: "got_ocr2",
    got_ocr2_windows: "got_ocr2-windows",
    pixtral: "pixtral",
    mistral3: "mistral3",
    mistral3_bias: "mistral3-bias",
    llava_next: "llava_next",
    llava_next_wide: "llava_next-wide",
    granite_vision: "granite_vision",
    granite_vision_one: "granite_vision-one",
    llava_next_video: "llava_next_video",
    llava_next_video_wide: "llava_next_video-wide",
    llava_onevision: "llava_onevision",
    llava_onevision_odd: "llava_onevision-odd",
    idefics3: "idefics3",
    idefics3_whole: "idefics3-whole",
    smolvlm: "smolvlm",
    smolvlm_one: "smolvlm-one",
    gemma3: "gemma3",
    gemma3_wide: "gemma3-wide",
    gemma4: "gemma4",
    gemma4_vision: "gemma4-vision",
    gemma4_unified: "gemma4_unified",
    gemma4_unified_causal: "gemma4_unified-causal",
    glm4v: "glm4v",
    glm4v_pairs: "glm4v-pairs",
    glm4v_moe: "glm4v_moe",
    llama4: "llama4",
    llama4_wide: "llama4-wide",
    internvl: "internvl",
    internvl_norms: "internvl-norms",
    internvl_experts: "internvl-experts",
    internvl_sinks: "internvl-sinks",
    interns1: "interns1",
    interns1_experts: "interns1-experts",
    internvl_chat: "internvl_chat",
    internvl_chat_internlm2: "internvl_chat-internlm2",
    internvl_chat_phi3: "internvl_chat-phi3",
    glm_ocr: "glm_ocr",
    glm_ocr_tied: "glm_ocr-tied",
    lighton_ocr: "lighton_ocr",
    lighton_ocr_rest: "lighton_ocr-rest",
    lighton_ocr_mistral3: "lighton_ocr-mistral3",
    lighton_ocr_mistral3_untied: "lighton_ocr-mistral3-untied",
    paddleocr_vl: "paddleocr_vl",
    paddleocr_vl_bias: "paddleocr_vl-bias",
    aya_vision: "aya_vision",
    aya_vision_one: "aya_vision-one",
    cohere2_vision: "cohere2_vision",
    cohere2_vision_one: "cohere2_vision-one",
    lfm2_vl: "lfm2_vl",
    lfm2_vl_wide: "lfm2_vl-wide",
    minicpmv4_6: "minicpmv4_6",
    minicpmv4_6_wide: "minicpmv4_6-wide",
    aria: "aria",
    aria_layer: "aria-layer",
    molmo2: "molmo2",
    molmo2_olmo: "molmo2-olmo",
    kimi_vl: "kimi_vl",
    kimi_vl_wide: "kimi_vl-wide",
    kimi_k25: "kimi_k25",
    kimi_k25_authors: "kimi_k25-authors",
    paligemma: "paligemma",
    paligemma_two: "paligemma-two",
    phi3_v: "phi3_v",
    phi3_v_wide: "phi3_v-wide",
}

#[test]
fn every_recorded_model_is_tested() {
    let entries = std::fs::read_dir(folder("")).unwrap();
    let mut recorded: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    recorded.sort();
    let mut tested = MODELS.to_vec();
    tested.sort_unstable();
    assert_eq!(recorded, tested);
}

/// Returns the folders of the recorded models.
pub(crate) fn folders() -> impl Iterator<Item = PathBuf> {
    MODELS.iter().map(|name| folder(name))
}

/// Returns the folder of a recorded model.
pub(crate) fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fidelity/vision").join(name)
}

/// The content of `videos.json`.
#[derive(Deserialize)]
struct Videos {
    videos: Vec<Image>,
    prompts: Vec<Prompt>,
}

fn check(name: &str) {
    check_folder(name, &folder(name));
}

/// Compares the model in `folder` with the recorded answers beside it.
pub(crate) fn check_folder(name: &str, folder: &Path) {
    let golden = std::fs::read(folder.join("golden.json")).unwrap();
    let golden: Golden = serde_json::from_slice(&golden).unwrap();
    let options = LoadOptions { dtype: Dtype::Float32, ..LoadOptions::default() };
    let model = load_model(folder, &options, &mut |_| {}).unwrap();
    let outputs = check_images(name, &model, &golden.images);
    for prompt in &golden.prompts {
        check_prompt(name, &model, prompt, &outputs);
    }
    if let Ok(golden) = std::fs::read(folder.join("pan_and_scan.json")) {
        let golden: Golden = serde_json::from_slice(&golden).unwrap();
        let outputs = check_images(name, &model, &golden.images);
        for prompt in &golden.prompts {
            check_prompt(name, &model, prompt, &outputs);
        }
    }
    if let Ok(golden) = std::fs::read(folder.join("videos.json")) {
        let golden: Videos = serde_json::from_slice(&golden).unwrap();
        let outputs = check_images(name, &model, &golden.videos);
        for prompt in &golden.prompts {
            check_prompt(name, &model, prompt, &outputs);
        }
    }
}

/// Compares the embeddings of each image, and those of all images at once.
fn check_images(name: &str, model: &Model, images: &[Image]) -> Vec<Arc<EncoderOutput>> {
    let pixels: Vec<Vec<u8>> = images.iter().map(|image| bytes(&image.pixels)).collect();
    let of_whole = |image: &Image| {
        let bytes = image.whole.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        (!bytes.is_empty()).then(|| ([3, image.shape[1], image.shape[2]], bytes))
    };
    let wholes: Vec<Option<([usize; 3], Vec<u8>)>> = images.iter().map(of_whole).collect();
    let locals: Vec<Option<(&[usize], Vec<u8>)>> = images
        .iter()
        .map(|image| image.local.as_ref().map(|local| (&*local.shape, bytes(&local.pixels))))
        .collect();
    let views: Vec<Vec<MediaTensorView<'_>>> = images
        .iter()
        .zip(&pixels)
        .zip(&wholes)
        .zip(&locals)
        .map(|(((image, pixels), whole), local)| {
            let pixels = MediaTensorView { shape: &image.shape, data: MediaData::U8(pixels) };
            let tiles = image.tiles.iter();
            let tiles = tiles.map(|shape| MediaTensorView { shape, data: MediaData::U8(&[]) });
            let whole = whole.iter();
            let whole =
                whole.map(|(shape, data)| MediaTensorView { shape, data: MediaData::F32(data) });
            let local = local.iter();
            let local =
                local.map(|(shape, data)| MediaTensorView { shape, data: MediaData::U8(data) });
            std::iter::once(pixels).chain(tiles).chain(whole).chain(local).collect()
        })
        .collect();
    let inputs: Vec<MediaInput<'_>> = images
        .iter()
        .zip(&views)
        .map(|(image, views)| MediaInput {
            tensors: views.clone(),
            num_embeds: image.num_embeds,
            grid: image.grid,
        })
        .collect();
    let media = model.media.as_ref().unwrap();
    let together = media.encode(&inputs);
    let mut outputs = Vec::new();
    for ((image, input), together) in images.iter().zip(&inputs).zip(together) {
        let alone = media.encode(std::slice::from_ref(input)).remove(0).unwrap();
        let together = together.unwrap();
        for (alone, together) in states(&alone).iter().zip(states(&together)) {
            assert!(alone.iter().map(|x| x.to_bits()).eq(together.iter().map(|x| x.to_bits())));
        }
        let expected: Vec<&Vec<f32>> =
            std::iter::once(&image.embeddings).chain(&image.by_layer).collect();
        assert_eq!(states(&alone).len(), expected.len(), "{name}");
        for (found, expected) in states(&alone).iter().zip(expected) {
            let difference = difference(found, expected);
            assert!(difference <= EMBEDDINGS, "{name}: embeddings differ by {difference}");
        }
        outputs.push(Arc::new(alone));
    }
    outputs
}

/// Returns the embeddings, and the states for single layers.
fn states(output: &EncoderOutput) -> Vec<Vec<f32>> {
    let all = std::iter::once(&output.embeddings).chain(&output.by_layer);
    all.map(|tensor| tensor.clone().into_data().try_to_vec::<f32>().unwrap()).collect()
}

/// Returns the largest difference, relative to the largest number.
pub(crate) fn difference(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len());
    let largest = expected.iter().fold(0.0_f32, |a, b| a.max(b.abs()));
    let differences = found.iter().zip(expected).map(|(a, b)| (a - b).abs() / largest);
    // `f32::max` would lose a NaN.
    differences.fold(0.0, |a, b| if a > b { a } else { b })
}

fn bytes(hex: &str) -> Vec<u8> {
    let pairs = hex.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// Compares the log-probabilities after a prompt, which is computed at once and in chunks.
pub(crate) fn check_prompt(
    name: &str,
    model: &Model,
    prompt: &Prompt,
    outputs: &[Arc<EncoderOutput>],
) {
    let whole = last_logits(model, prompt, outputs, usize::MAX);
    let found = log_softmax(&whole);
    let pairs = found.iter().zip(&prompt.last_log_probs);
    let difference = pairs.fold(0.0, |most: f64, (a, b)| {
        let difference = (a - b).abs();
        if most > difference { most } else { difference }
    });
    let images = &prompt.images;
    assert!(
        difference <= LOG_PROBS,
        "{name}, {images:?}: log-probabilities differ by {difference}"
    );
    for chunk in [1, 7, 16] {
        let chunked = last_logits(model, prompt, outputs, chunk);
        let is_equal = chunked.iter().map(|x| x.to_bits()).eq(whole.iter().map(|x| x.to_bits()));
        assert!(is_equal, "{name}, {images:?}: other bytes in chunks of {chunk}");
    }
}

/// Returns the logits after the last token of `prompt`.
fn last_logits(
    model: &Model,
    prompt: &Prompt,
    outputs: &[Arc<EncoderOutput>],
    chunk: usize,
) -> Vec<f32> {
    let tokens = &prompt.token_ids;
    let blocks = tokens.len().div_ceil(BLOCK_SIZE);
    let shape = model.kv_cache_shape(blocks, BLOCK_SIZE);
    let mut kv = KvCache::new(shape, KvDtype::F32, &Device::flex()).unwrap();
    let rows = media_rows(model, prompt, outputs);
    let mut logits = Vec::new();
    let mut end = 0;
    while end < tokens.len() {
        let start = end;
        end = start.saturating_add(chunk).min(tokens.len());
        let visible_ends = visible_ends(model, tokens);
        if let Some(seen) = visible_ends.get(end - 1) {
            // A chunk has all tokens that see each other.
            end = *seen as usize;
        }
        let meta = AttentionMetadata {
            query_start_loc: vec![0, (end - start) as u32],
            seq_lens: vec![end as u32],
            block_tables: vec![(0..blocks as u32).collect()],
            slot_mapping: (start as u32..end as u32).collect(),
            positions: (start as u32..end as u32).collect(),
            visible_ends: visible_ends.get(start..end).unwrap_or_default().to_vec(),
            num_guesses: Vec::new(),
        };
        let media = StepMedia { rows: within(&rows, start, end), attended: Vec::new() };
        let positions = Positions::of_text(&meta);
        let positions = match &prompt.positions {
            None => positions,
            Some(axes) => positions.with_axes(&axes[start..end]),
        };
        let mut step = Step::new(&meta, &mut kv).with_media(&media);
        let hidden = model.backbone.embed(&tokens[start..end], Adapters::none());
        let hidden = model.backbone.forward(media.placed(hidden), positions, &mut step);
        let head = model.lm_head.as_ref().unwrap();
        let last = [(end - start) as u32 - 1];
        logits = head.logits(hidden, &last, Adapters::none()).into_data().try_to_vec().unwrap();
    }
    logits
}

/// Returns the number of tokens that each one sees, if those of an image or of a prompt see each
/// other.
fn visible_ends(model: &Model, tokens: &[u32]) -> Vec<u32> {
    let media = model.media.as_ref().unwrap();
    if media.attends_within_prompts() && tokens.iter().any(|token| media.is_placeholder(*token)) {
        return vec![tokens.len() as u32; tokens.len()];
    }
    let mut ends: Vec<u32> = Vec::new();
    while media.attends_within_items() && ends.len() < tokens.len() {
        let run = tokens[ends.len()..].iter().take_while(|token| media.is_placeholder(**token));
        let (len, at) = (run.count().max(1), ends.len());
        ends.extend(std::iter::repeat_n((at + len) as u32, len));
    }
    ends
}

/// Returns the rows of the whole prompt that take embeddings.
fn media_rows(model: &Model, prompt: &Prompt, outputs: &[Arc<EncoderOutput>]) -> Vec<MediaRows> {
    let media = model.media.as_ref().unwrap();
    let (mut rows, mut row, mut first_embed) = (Vec::new(), 0, 0);
    let mut images = prompt.images.iter().map(|image| outputs[*image].clone());
    let mut output = images.next();
    while row < prompt.token_ids.len() {
        let rest = &prompt.token_ids[row..];
        let mut len = rest.iter().take_while(|token| media.is_placeholder(**token)).count();
        if len > 0 {
            let item = output.clone().unwrap();
            let embeds = item.embeddings.dims()[0];
            // The placeholders of two images may have no token between them.
            len = len.min(embeds - first_embed);
            rows.push(MediaRows { row, len, first_embed, output: item });
            first_embed += len;
            if first_embed == embeds {
                (output, first_embed) = (images.next(), 0);
            }
        }
        row += len.max(1);
    }
    assert!(output.is_none(), "placeholders and images disagree");
    rows
}

/// Returns the parts of `rows` from token `start` to token `end`.
fn within(rows: &[MediaRows], start: usize, end: usize) -> Vec<MediaRows> {
    let part = |rows: &MediaRows| {
        let (from, to) = (rows.row.max(start), (rows.row + rows.len).min(end));
        (from < to).then(|| MediaRows {
            row: from - start,
            len: to - from,
            first_embed: rows.first_embed + from - rows.row,
            output: rows.output.clone(),
        })
    };
    rows.iter().filter_map(part).collect()
}
