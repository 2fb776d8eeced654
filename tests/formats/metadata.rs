//! GGUF files with more metadata than their writer gave them, and its effect on the model.

use std::fs;
use std::path::Path;

use playhouse::model::ModelConfig;
use playhouse::model::config::RopeScaling;
use tempfile::TempDir;

use crate::fixture;

/// A key with its value, to be added.
pub(crate) enum Entry {
    Number(&'static str, f32),
    Integer(&'static str, u32),
    Text(&'static str, &'static str),
    Texts(&'static str, &'static [&'static str]),
}

/// The numbers of value types in a file.
const U32: u32 = 4;
const F32: u32 = 6;
const TEXT: u32 = 8;
const LIST: u32 = 9;

/// The place of the number of entries, after magic, version and the number of tensors.
const COUNT_AT: usize = 4 + 4 + 8;
/// The alignment of tensors, in bytes.
const ALIGNMENT: usize = 32;

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}

/// Returns a list, which begins with the type and the number of its values.
fn texts(values: &[&str]) -> Vec<u8> {
    let mut list = [&TEXT.to_le_bytes()[..], &(values.len() as u64).to_le_bytes()].concat();
    values.iter().for_each(|value| list.extend(text(value)));
    list
}

fn entry(key: &str, kind: u32, value: &[u8]) -> Vec<u8> {
    [&text(key)[..], &kind.to_le_bytes(), value].concat()
}

/// Returns the config of the fixture `name`, whose metadata then begins with `entries`.
pub(crate) fn config(name: &str, entries: &[Entry]) -> Result<ModelConfig, String> {
    let mut added: Vec<u8> = Vec::new();
    for more in entries {
        added.extend(match *more {
            Entry::Number(key, value) => entry(key, F32, &value.to_le_bytes()),
            Entry::Integer(key, value) => entry(key, U32, &value.to_le_bytes()),
            Entry::Text(key, value) => entry(key, TEXT, &text(value)),
            Entry::Texts(key, values) => entry(key, LIST, &texts(values)),
        });
    }
    // A filler keeps the tensors aligned.
    let unfilled = added.len() + entry("filler", TEXT, &text("")).len();
    let filler = " ".repeat(unfilled.next_multiple_of(ALIGNMENT) - unfilled);
    added.extend(entry("filler", TEXT, &text(&filler)));

    let mut file = fs::read(fixture(name)).unwrap();
    let (count, _) = file[COUNT_AT..].split_first_chunk::<8>().unwrap();
    let count = u64::from_le_bytes(*count) + entries.len() as u64 + 1;
    file[COUNT_AT..COUNT_AT + 8].copy_from_slice(&count.to_le_bytes());
    file.splice(COUNT_AT + 8..COUNT_AT + 8, added);
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("more.gguf");
    fs::write(&path, file).unwrap();
    ModelConfig::of_model(&path, None).map_err(|error| error.to_string())
}

const TYPE: &str = "qwen3.rope.scaling.type";
const FACTOR: &str = "qwen3.rope.scaling.factor";
const OLD_FACTOR: &str = "qwen3.rope.scale_linear";

/// Returns how positions are scaled, and the longest context. The file's own context is 256.
fn scaling(entries: &[Entry]) -> (RopeScaling, usize) {
    let config = config("qwen3.gguf", entries).unwrap();
    let attention = config.layers[0].mixer.attention().unwrap();
    (attention.rope.as_ref().unwrap().scaling.clone(), config.max_model_len)
}

#[test]
fn a_factor_without_a_type_is_one_of_linear_scaling() {
    use Entry::{Number, Text};
    let none = (RopeScaling::Default, 256);
    let by = |factor: f64| (RopeScaling::Linear { factor }, (256.0 * factor) as usize);
    assert_eq!(scaling(&[]), none);
    assert_eq!(scaling(&[Number(FACTOR, 4.0)]), by(4.0));
    assert_eq!(scaling(&[Number(OLD_FACTOR, 2.0)]), by(2.0));
    assert_eq!(scaling(&[Text(TYPE, "linear"), Number(OLD_FACTOR, 2.0)]), by(2.0));
    assert_eq!(scaling(&[Number(FACTOR, 4.0), Number(OLD_FACTOR, 2.0)]), by(4.0));
    // These entries have no effect.
    assert_eq!(scaling(&[Number(FACTOR, 0.0), Number(OLD_FACTOR, 2.0)]), none);
    assert_eq!(scaling(&[Number(FACTOR, 1.0)]), none);
    assert_eq!(scaling(&[Text(TYPE, "none"), Number(FACTOR, 4.0)]), none);
    assert_eq!(scaling(&[Text(TYPE, "yarn"), Number(FACTOR, 1.0)]), none);
}

#[test]
fn yarn_is_read_with_its_factor() {
    use Entry::{Number, Text};
    let (scaling, max_model_len) = scaling(&[Text(TYPE, "yarn"), Number(FACTOR, 4.0)]);
    let RopeScaling::Yarn(yarn) = scaling else { panic!("{scaling:?}") };
    assert_eq!((yarn.factor, yarn.original_max_position_embeddings), (4.0, 256));
    assert_eq!(max_model_len, 1024);
}

#[test]
fn scalings_that_would_be_left_out_are_refused_by_key() {
    use Entry::{Number, Text};
    let attention = "qwen3.rope.scaling.attn_factor";
    assert!(config("qwen3.gguf", &[Number(attention, 1.0)]).is_ok());
    for (file, entry, expected) in [
        ("qwen3.gguf", Number(attention, 1.25), "`qwen3.rope.scaling.attn_factor` is 1.25;"),
        ("qwen3.gguf", Text(TYPE, "longrope"), "`qwen3.rope.scaling.type` is \"longrope\";"),
        ("qwen3.gguf", Number(FACTOR, -2.0), "`qwen3.rope.scaling.factor` is -2.0; expected"),
        ("qwen3.gguf", Number(OLD_FACTOR, -2.0), "`qwen3.rope.scale_linear` is -2.0; expected"),
        (
            "llama.gguf",
            Number("llama.rope.scaling.factor", 2.0),
            "`llama.rope.scaling.type` is missing; expected \"none\" beside a tensor rope_freqs",
        ),
    ] {
        let error = config(file, &[entry]).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn keys_of_the_architecture_that_nothing_reads_are_refused_unless_they_change_nothing() {
    use Entry::{Integer, Number, Text};
    let other = "in the architecture qwen3";
    for (entry, expected) in [
        (
            Number("qwen3.logit_scale", 0.5),
            format!("`qwen3.logit_scale` is 0.5; expected 0 {other}"),
        ),
        (
            Integer("qwen3.expert_count", 8),
            format!("`qwen3.expert_count` is 8; expected 0 {other}"),
        ),
        (
            Integer("qwen3.attention.sliding_window", 64),
            format!("`qwen3.attention.sliding_window` is 64; expected 0 {other}"),
        ),
        (
            Text("qwen3.made_up", "x"),
            "`qwen3.made_up` is \"x\"; expected no such key: it is not supported".to_owned(),
        ),
    ] {
        let error = config("qwen3.gguf", &[entry]).unwrap_err();
        assert!(error.contains(&expected), "{error}");
    }
    for entry in [
        Number("qwen3.logit_scale", 1.0),
        Integer("qwen3.expert_count", 0),
        Integer("qwen3.vocab_size", 288),
        Text("qwen3.tensor_data_layout", "any"),
        Text("general.made_up", "any"),
        Text("qwen3moe.made_up", "any"),
    ] {
        config("qwen3.gguf", &[entry]).unwrap();
    }
}

#[test]
fn llama_with_a_window_is_mistral_and_with_experts_mixtral() {
    let with = |entry| config("llama.gguf", &[entry]).unwrap();
    let mistral = with(Entry::Integer("llama.attention.sliding_window", 16));
    assert_eq!(mistral.architecture(), "MistralForCausalLM");
    let attention = mistral.layers[0].mixer.attention().unwrap();
    assert_eq!(attention.sliding_window, Some(16));
    let mixtral = with(Entry::Integer("llama.expert_count", 4));
    assert_eq!(mixtral.architecture(), "MixtralForCausalLM");
    let llama = with(Entry::Integer("llama.attention.sliding_window", 0));
    assert_eq!(llama.architecture(), "LlamaForCausalLM");
}

/// Returns the tokens that end an output of a model with these tokens and keys.
fn ends(tokens: &'static [&'static str], keys: Vec<Entry>) -> Vec<u32> {
    let mut entries = keys;
    entries.push(Entry::Texts("tokenizer.ggml.tokens", tokens));
    config("llama.gguf", &entries).unwrap().eos_token_ids
}

#[test]
fn tokens_end_an_output_by_their_texts_as_in_llama_cpp() {
    let eos = |id| vec![Entry::Integer("tokenizer.ggml.eos_token_id", id)];
    // The converter names one of Gemma 4's ends.
    assert_eq!(ends(&["<eos>", "a", "<turn|>"], eos(0)), [0, 2]);
    assert_eq!(ends(&["<|im_end|>", "a", "</s>"], eos(1)), [1, 0, 2]);
    // These vocabularies have a token that does not end an output there.
    assert_eq!(ends(&["<|end|>", "<|return|>", "<|call|>"], eos(1)), [1, 2]);
    assert_eq!(ends(&["<|end|>", "<|calls|>", "<|flush|>"], eos(2)), [2, 1]);
    assert_eq!(ends(&["<|end|>", "<|return|>", "a"], eos(1)), [1, 0]);
    assert_eq!(ends(&["</s>", "<eos>", "<|tool_response>"], eos(1)), [1, 2]);
    // Of the texts for padding between files, the first one counts, unless there is a key.
    let code = &["a", "<|fim_pad|>", "<PAD>", "<|file_sep|>", "b"];
    assert_eq!(ends(code, eos(4)), [4, 1, 3]);
    let pad = Entry::Integer("tokenizer.ggml.fim_pad_token_id", 2);
    assert_eq!(ends(code, vec![pad]), [2, 3]);
}

#[test]
fn an_architecture_that_is_not_read_is_refused_with_those_that_are() {
    let mut file = fs::read(fixture("qwen3.gguf")).unwrap();
    let key = b"general.architecture";
    let at = file.windows(key.len()).position(|window| window == key).unwrap();
    let value = at + key.len() + 4 + 8;
    assert_eq!(&file[value..value + 5], b"qwen3");
    file[value..value + 5].copy_from_slice(b"rwkv7");
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("other.gguf");
    fs::write(&path, file).unwrap();
    let error = ModelConfig::of_model(&path, None).unwrap_err().to_string();
    let expected = "other.gguf: a model with `general.architecture` \"rwkv7\" is not supported";
    assert!(error.contains(expected), "{error}");
    assert!(error.contains("supported are llama, qwen2, qwen3, apertus,"), "{error}");
}

/// Returns the config of the converted model `name` after `change`.
pub(crate) fn changed(
    name: &str,
    change: impl FnOnce(&mut Vec<u8>),
) -> Result<ModelConfig, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats/converted");
    let mut file = fs::read(folder.join(name)).unwrap();
    change(&mut file);
    let folder = TempDir::new().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, file).unwrap();
    ModelConfig::of_model(&path, None).map_err(|error| error.to_string())
}

/// Returns the place of the name `key` of a value or a tensor, after its length.
pub(crate) fn place(file: &[u8], key: &str) -> usize {
    let stored = text(key);
    let at = file.windows(stored.len()).position(|window| window == stored).unwrap();
    at + stored.len() - key.len()
}

/// Returns the error for the converted model `name` whose value `index` under `key` is `value`. An
/// index of a list has a place after the list's own type and length. The value of a tensor is its
/// last side.
fn error_with(name: &str, key: &str, index: Option<usize>, value: u32) -> String {
    let changed = changed(name, |file| {
        let after = index.map_or(0, |index| 4 + 8 + 4 * index);
        let start = place(file, key) + key.len() + 4 + after;
        file[start..start + 4].copy_from_slice(&value.to_le_bytes());
    });
    changed.unwrap_err()
}

/// Returns the config of the converted model `name`, whose `key` belongs to another architecture.
pub(crate) fn without(name: &str, key: &str) -> Result<ModelConfig, String> {
    changed(name, |file| {
        let at = place(file, key);
        file[at] = b'-';
    })
}

/// Renames the tensor `name` to `new`, of the same length.
fn rename(file: &mut [u8], name: &str, new: &str) {
    let at = place(file, name);
    file[at..at + new.len()].copy_from_slice(new.as_bytes());
}

#[test]
fn sizes_that_contradict_each_other_are_refused_by_key() {
    for (name, key, index, value, expected) in [
        (
            "lfm2.gguf",
            "lfm2.attention.head_count_kv",
            Some(1),
            3,
            "expected a list of 4 numbers, all the same or 0",
        ),
        (
            "jamba.gguf",
            "jamba.attention.head_count_kv",
            Some(0),
            2,
            "expected layers of this kind at the same place of each period",
        ),
        (
            "qwen3_next.gguf",
            "qwen3next.ssm.inner_size",
            None,
            50,
            "is 50; expected a multiple of 4, the heads",
        ),
        (
            "deepseek_v3.gguf",
            "deepseek2.attention.key_length_mla",
            None,
            8,
            "is 8; expected more than 8, the elements that rotate",
        ),
        (
            "deepseek_v3.gguf",
            "deepseek2.attention.key_length",
            None,
            33,
            "is 33; expected 32, the width of a key",
        ),
        (
            "deepseek_v3.gguf",
            "deepseek2.attention.value_length",
            None,
            23,
            "is 23; expected 24, the width of a latent",
        ),
        (
            "deepseek_v3.gguf",
            "deepseek2.attention.head_count_kv",
            None,
            2,
            "is 2; expected 1, the number of key heads",
        ),
        (
            "deepseek_v3.gguf",
            "deepseek2.expert_gating_func",
            None,
            3,
            "is 3; expected 1, the softmax, or 2, the sigmoid",
        ),
        (
            "gpt_oss.gguf",
            "gpt-oss.attention.head_count_kv",
            None,
            3,
            "is 3; expected a divisor of num_attention_heads, 4",
        ),
        (
            "gemma4.gguf",
            "gemma4.feed_forward_length",
            Some(3),
            96,
            "expected one width, and twice that in the last 2 layers",
        ),
        (
            "gemma4-experts.gguf",
            "gemma4.attention.head_count_kv",
            Some(2),
            4,
            "expected the same number in all layers of a kind",
        ),
        (
            "gemma4.gguf",
            "gemma4.attention.value_length_swa",
            None,
            4,
            "is 4; expected 8, the width of a head",
        ),
        (
            "gemma4.gguf",
            "gemma4.rope.dimension_count",
            None,
            8,
            "is 8; expected 16, the width of a head",
        ),
        (
            "gemma4.gguf",
            "rope_freqs.weight",
            None,
            4,
            "has 4 numbers; expected half of `gemma4.attention.key_length`, 16",
        ),
        (
            "afmoe.gguf",
            "afmoe.attention.sliding_window",
            None,
            0,
            "is 0; expected a positive integer: layers without a window have no positions",
        ),
        (
            "hy_v3.gguf",
            "hy_v3.expert_shared_feed_forward_length",
            None,
            40,
            "is 40; expected a multiple of 32, the width of an expert",
        ),
        (
            "glm_moe_dsa.gguf",
            "glm-dsa.expert_gating_func",
            None,
            1,
            "is 1; expected 2, the sigmoid",
        ),
        (
            "gpt_bigcode.gguf",
            "starcoder.attention.head_count_kv",
            None,
            4,
            "is 4; expected 1, the head that all queries share",
        ),
    ] {
        let error = error_with(name, key, index, value);
        assert!(error.contains(expected), "{error}");
        assert!(error.contains(&format!("`{key}`")), "{error}");
    }
}

#[test]
fn files_that_lack_what_an_architecture_needs_are_refused() {
    let window = "afmoe.attention.sliding_window";
    let error = without("afmoe.gguf", window).unwrap_err();
    let expected = format!("`{window}` is missing; expected a positive integer");
    assert!(error.contains(&expected), "{error}");
    let biased = changed("olmo.gguf", |file| {
        rename(file, "blk.0.attn_q.weight", "blk.100.attn_q.bias");
    });
    let error = biased.unwrap_err();
    assert!(error.contains("tensor `blk.100.attn_q.bias` is not in the order of"), "{error}");
}

#[test]
fn keys_that_are_absent_have_the_defaults_of_llama_cpp() {
    let rope = |config: &ModelConfig, layer: usize| {
        let attention = config.layers[layer].mixer.attention().unwrap();
        attention.rope.as_ref().unwrap().theta
    };
    // The class's own default is 500,000.
    let command_r = without("cohere.gguf", "command-r.rope.freq_base").unwrap();
    assert_eq!(rope(&command_r, 0), 10_000.0);
    let olmo3 = changed("olmo3.gguf", |file| {
        for key in ["olmo2.rope.freq_base", "olmo2.rope.freq_base_swa"] {
            let at = place(file, key);
            file[at] = b'-';
        }
    });
    let olmo3 = olmo3.unwrap();
    assert!((0..olmo3.layers.len()).all(|layer| rope(&olmo3, layer) == 10_000.0));

    // Every fourth layer has no window, which the class says of all layers.
    let mellum = changed("mellum.gguf", |file| {
        let at = place(file, "mellum.attention.sliding_window_pattern");
        file[at] = b'-';
        let at = place(file, "mellum.block_count") + "mellum.block_count".len() + 4;
        file[at..at + 4].copy_from_slice(&5u32.to_le_bytes());
    });
    let mellum = mellum.unwrap();
    let windows: Vec<_> =
        mellum.layers.iter().map(|layer| layer.mixer.attention().unwrap().sliding_window).collect();
    assert_eq!(windows, [Some(6), Some(6), Some(6), None, Some(6)]);
}

/// Bamba has none of Granite's factors, so that a file with them would compute something else.
#[test]
fn a_file_of_bamba_with_factors_is_refused() {
    let path = Path::new("tests/formats/converted/granite_hybrid-dense.gguf");
    let mut file = fs::read(path).unwrap();
    let key = b"granitehybrid.rope.scaling.finetuned";
    let at = file.windows(key.len()).position(|bytes| bytes == key).unwrap();
    // The type of the value comes before it.
    file[at + key.len() + 4] = 1;
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("bamba.gguf");
    fs::write(&path, file).unwrap();
    let error = ModelConfig::of_model(&path, None).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("granitehybrid.attention.scale"), "{error}");
}

#[test]
fn an_architecture_of_folders_alone_is_refused_with_the_reason() {
    let mut file = fs::read("tests/formats/converted_encoders/jina-bert-mean.gguf").unwrap();
    let key = "general.architecture";
    // The type of the value and its length come before it.
    let at = place(&file, key) + key.len() + 4 + 8;
    assert_eq!(&file[at..at + 12], b"jina-bert-v2");
    file[at..at + 12].copy_from_slice(b"jina-bert-v3");
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("jina.gguf");
    fs::write(&path, file).unwrap();
    let error = ModelConfig::of_model(&path, None).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("`general.architecture` is \"jina-bert-v3\""), "{error}");
    assert!(error.contains("the matrices of its tasks are not in the file"), "{error}");
}

/// Vectors would be others than those of the model.
#[test]
fn a_file_of_embedding_gemma_without_the_layers_behind_its_pooling_is_refused() {
    let path = Path::new("tests/formats/converted_encoders/gemma3-published.gguf");
    let mut file = fs::read(path).unwrap();
    rename(&mut file, "dense_2.weight", "dense_4.weight");
    rename(&mut file, "dense_3.weight", "dense_5.weight");
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("gemma.gguf");
    fs::write(&path, file).unwrap();
    let error = ModelConfig::of_model(&path, None).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("`dense_2.weight` and `dense_3.weight` are missing"), "{error}");
    assert!(error.contains("--sentence-transformers-dense-modules"), "{error}");
}
