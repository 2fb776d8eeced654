//! Compares encoder-decoder models for text with transformers in float32. `make_texts.py` made the
//! models and their answers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::tensor::Device;
use playhouse::model::{
    Dtype, EncoderOutput, LoadOptions, MediaData, MediaInput, MediaTensorView, Model, load_model,
};
use serde::Deserialize;

use crate::TOLERANCE;
use crate::runner::{Chunking, Runner, log_softmax};

/// The models, two or more of each family.
pub(crate) const NAMES: [&str; 17] = [
    "bart",
    "bart-wide",
    "bart-untied",
    "mbart",
    "mbart-wide",
    "marian",
    "marian-two-tables",
    "pegasus",
    "pegasus-wide",
    "blenderbot",
    "blenderbot-wide",
    "m2m_100",
    "m2m_100-wide",
    "t5",
    "t5-gated",
    "mt5",
    "mt5-relu",
];

/// The answers of transformers about one text.
#[derive(Deserialize)]
pub(crate) struct Recorded {
    pub(crate) text: String,
    /// With the special tokens around the text.
    pub(crate) text_token_ids: Vec<u32>,
    last_state: Vec<f64>,
    last_key: Vec<f64>,
    last_value: Vec<f64>,
    /// The decoder's prompt.
    pub(crate) prompt_token_ids: Vec<u32>,
    pub(crate) greedy_token_ids: Vec<u32>,
    pub(crate) greedy_log_probs: Vec<f64>,
    /// The log-probabilities of all tokens, after the tokens `rows`.
    log_probs: Vec<Vec<f64>>,
    rows: Vec<usize>,
}

pub(crate) fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fidelity/texts").join(name)
}

/// Returns the folders of all models.
pub(crate) fn folders() -> impl Iterator<Item = PathBuf> {
    NAMES.into_iter().map(folder)
}

/// Returns the answers about all texts.
pub(crate) fn recorded(name: &str) -> Vec<Recorded> {
    let golden = std::fs::read(folder(name).join("golden.json")).unwrap();
    serde_json::from_slice(&golden).unwrap()
}

fn model(name: &str) -> Arc<Model> {
    model_at(&folder(name))
}

fn model_at(path: &Path) -> Arc<Model> {
    let options = LoadOptions { dtype: Dtype::Float32, ..LoadOptions::default() };
    load_model(path, &options, &mut |_| ()).unwrap()
}

fn encoded(model: &Model, texts: &[&[u32]]) -> Vec<Result<EncoderOutput, String>> {
    let bytes: Vec<Vec<u8>> = texts
        .iter()
        .map(|tokens| tokens.iter().flat_map(|token| token.to_le_bytes()).collect())
        .collect();
    let shapes: Vec<[usize; 1]> = texts.iter().map(|tokens| [tokens.len()]).collect();
    let inputs: Vec<_> = bytes
        .iter()
        .zip(&shapes)
        .map(|(bytes, shape)| MediaInput {
            tensors: vec![MediaTensorView { shape, data: MediaData::TokenIds(bytes) }],
            num_embeds: shape[0],
            grid: None,
        })
        .collect();
    model.media.as_ref().unwrap().encode(&inputs)
}

fn last_row(tensor: &burn::tensor::Tensor<2>) -> Vec<f32> {
    let width = tensor.dims()[1];
    let all: Vec<f32> = tensor.clone().into_data().try_to_vec().unwrap();
    all[all.len() - width..].to_vec()
}

fn assert_close(what: &str, got: &[f32], expected: &[f64]) {
    assert_eq!(got.len(), expected.len(), "{what}");
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        let difference = (f64::from(*got) - expected).abs();
        assert!(difference <= TOLERANCE, "{what}: [{i}] is {got}, not {expected}");
    }
}

/// Checks states, keys, values, log-probabilities and tokens, and that no byte depends on the batch
/// or on how a prompt is cut.
fn check(name: &str) {
    check_model(name, model(name));
}

/// Does the same for `model`, whose weights are those of the model `name`.
fn check_model(name: &str, model: Arc<Model>) {
    let texts = recorded(name);
    let tokens: Vec<&[u32]> = texts.iter().map(|text| &*text.text_token_ids).collect();
    let all: Vec<EncoderOutput> =
        encoded(&model, &tokens).into_iter().map(Result::unwrap).collect();
    for (text, output) in texts.iter().zip(&all) {
        assert_close(name, &last_row(&output.embeddings), &text.last_state);
        let [.., keys, values] = &output.by_layer[..] else { unreachable!("{name}") };
        assert_close(name, &last_row(keys), &text.last_key);
        assert_close(name, &last_row(values), &text.last_value);
        let alone = encoded(&model, &[&text.text_token_ids]).remove(0).unwrap();
        let bits = |output: &EncoderOutput| {
            let tensors = output.by_layer.iter().chain([&output.embeddings]);
            let values = tensors.flat_map(|it| it.clone().into_data().try_to_vec::<f32>().unwrap());
            values.map(f32::to_bits).collect::<Vec<_>>()
        };
        assert_eq!(bits(&alone), bits(output), "{name}: a text alone");
    }
    let prompts: Vec<&[u32]> = texts.iter().map(|text| &*text.prompt_token_ids).collect();
    let attended: Vec<_> = all.into_iter().map(|output| Some(Arc::new(output))).collect();
    let runner = Runner::new(model, &Device::flex());
    let whole = runner.answer_about(&prompts, &attended, Chunking::Whole);
    for (text, answer) in texts.iter().zip(&whole) {
        assert_eq!(answer.greedy, text.greedy_token_ids, "{name}: {}", text.text);
        let rows: Vec<_> = answer.prompt_rows.iter().chain(&answer.greedy_rows[1..]).collect();
        for (row, expected) in text.rows.iter().zip(&text.log_probs) {
            let found: Vec<f32> = log_softmax(rows[*row]).iter().map(|x| *x as f32).collect();
            assert_close(name, &found, expected);
        }
    }
    let together = runner.answer_about(&prompts, &attended, Chunking::Ragged);
    for (answer, expected) in together.iter().zip(&whole) {
        assert!(answer.bits().eq(expected.bits()), "{name}: other bytes in a batch");
    }
    // Sequences without a text beside those with one.
    let mixed = attended.iter().enumerate().map(|(at, it)| it.clone().filter(|_| at != 1));
    let together = runner.answer_about(&prompts, &mixed.collect::<Vec<_>>(), Chunking::Ragged);
    assert!(together[0].bits().eq(whole[0].bits()), "{name}: beside one without a text");
    let alone = runner.answer(&prompts[1..2], Chunking::Whole);
    assert!(together[1].bits().eq(alone[0].bits()), "{name}: one without a text beside others");
    assert!(!alone[0].bits().eq(whole[1].bits()), "{name}: the text is not attended to");
}

#[test]
fn bart() {
    ["bart", "bart-wide", "bart-untied"].into_iter().for_each(check);
}

#[test]
fn mbart() {
    ["mbart", "mbart-wide"].into_iter().for_each(check);
}

#[test]
fn marian() {
    ["marian", "marian-two-tables"].into_iter().for_each(check);
}

#[test]
fn pegasus() {
    ["pegasus", "pegasus-wide"].into_iter().for_each(check);
}

#[test]
fn blenderbot() {
    ["blenderbot", "blenderbot-wide"].into_iter().for_each(check);
}

#[test]
fn m2m_100() {
    ["m2m_100", "m2m_100-wide"].into_iter().for_each(check);
}

#[test]
fn t5() {
    ["t5", "t5-gated", "mt5", "mt5-relu"].into_iter().for_each(check);
}

/// The files are of llama.cpp's converter, with all weights in float32.
#[test]
fn t5_in_gguf_files() {
    for name in ["t5", "mt5"] {
        let file = format!("tests/formats/converted_texts/{name}.gguf");
        let model = model_at(&Path::new(env!("CARGO_MANIFEST_DIR")).join(file));
        assert_eq!(model.architecture, "T5ForConditionalGeneration");
        check_model(name, model);
    }
}

#[test]
fn every_recorded_model_is_tested() {
    let entries = std::fs::read_dir(folder("")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let (mut recorded, mut tested) = (names.collect::<Vec<_>>(), NAMES.map(str::to_owned));
    recorded.sort();
    tested.sort();
    assert_eq!(recorded, tested);
}

#[test]
fn a_text_of_another_form_is_refused() {
    let model = model("bart");
    let refused = |tokens: &[u32]| encoded(&model, &[tokens]).remove(0).unwrap_err();
    assert_eq!(refused(&[]), "a text of 0 tokens; expected 1 to 64");
    assert_eq!(refused(&[5; 65]), "a text of 65 tokens; expected 1 to 64");
    assert_eq!(refused(&[5, 9_999]), "the token 9999 is outside the vocabulary");
    let sound = MediaTensorView { shape: &[1], data: MediaData::F32(&[0; 4]) };
    for tensors in [vec![sound], Vec::new()] {
        let inputs = [MediaInput { tensors, ..MediaInput::default() }];
        let result = model.media.as_ref().unwrap().encode(&inputs).remove(0);
        assert_eq!(result.unwrap_err(), "a text is one list of token ids");
    }
}
