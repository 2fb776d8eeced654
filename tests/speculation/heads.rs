//! Heads with random weights for the demo model. Their guesses are nearly always wrong, unless a
//! request allows few tokens.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use playhouse::config::{HeadMethod, SpeculativeConfig, SpeculativeMethod};
use safetensors::{Dtype, tensor::TensorView};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The sizes of the demo model.
const HIDDEN: usize = 256;
const VOCAB: usize = 3_072;
/// The inner width of the heads.
const INNER: usize = 64;
/// The tokens that the head of EAGLE-3 guesses.
const DRAFT_VOCAB: usize = 500;

/// A tensor: its name, its shape, and whether it is a norm's.
type Tensor = (String, Vec<usize>, bool);

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| {
    let folder = TempDir::new().unwrap();
    write_eagle3(&folder.path().join("eagle3"), |_| ());
    write_eagle3_of(&folder.path().join("narrow"), HIDDEN / 2, |_| ());
    write_mlp_speculator(&folder.path().join("mlp_speculator"));
    folder
});

/// Returns the settings of a head of EAGLE-3 that is narrower than the model.
pub(crate) fn narrow(num_speculative_tokens: usize) -> SpeculativeConfig {
    let (method, model) = (HeadMethod::Eagle3, Some(FOLDER.path().join("narrow")));
    SpeculativeConfig::new(SpeculativeMethod::Head { method, model }, num_speculative_tokens)
}

/// Returns a folder with a head of this method.
pub(crate) fn head(method: HeadMethod) -> PathBuf {
    match method {
        HeadMethod::Eagle3 => FOLDER.path().join("eagle3"),
        HeadMethod::MlpSpeculator => FOLDER.path().join("mlp_speculator"),
        // This one was trained.
        HeadMethod::Eagle => {
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("examples/demo-model/eagle")
        }
        HeadMethod::Mtp => {
            let heads = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fidelity/heads");
            heads.join("mtp-deepseek_v3")
        }
    }
}

/// Returns the settings of a head's method.
pub(crate) fn config(method: HeadMethod, num_speculative_tokens: usize) -> SpeculativeConfig {
    let method = SpeculativeMethod::Head { method, model: Some(head(method)) };
    SpeculativeConfig::new(method, num_speculative_tokens)
}

/// Writes a head of EAGLE-3 for the demo model. `change` changes its config.
pub(crate) fn write_eagle3(folder: &Path, change: impl FnOnce(&mut Value)) {
    write_eagle3_of(folder, HIDDEN, change);
}

/// Writes one of this width.
fn write_eagle3_of(folder: &Path, width: usize, change: impl FnOnce(&mut Value)) {
    let mut config = json!({
        "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "vocab_size": VOCAB,
        "hidden_size": width, "target_hidden_size": HIDDEN, "intermediate_size": INNER,
        "num_hidden_layers": 1,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
        "max_position_embeddings": 4096, "draft_vocab_size": DRAFT_VOCAB, "torch_dtype": "float32",
        "eagle_aux_hidden_state_layer_ids": [1, 3, 5],
    });
    change(&mut config);
    let matrix = |name: &str, shape: [usize; 2]| (name.to_owned(), shape.to_vec(), false);
    let norm = |name: &str| (name.to_owned(), vec![width], true);
    let mut tensors = vec![
        matrix("fc.weight", [width, 3 * HIDDEN]),
        matrix("midlayer.self_attn.q_proj.weight", [128, 2 * width]),
        matrix("midlayer.self_attn.k_proj.weight", [64, 2 * width]),
        matrix("midlayer.self_attn.v_proj.weight", [64, 2 * width]),
        matrix("midlayer.self_attn.o_proj.weight", [width, 128]),
        matrix("midlayer.mlp.gate_proj.weight", [INNER, width]),
        matrix("midlayer.mlp.up_proj.weight", [INNER, width]),
        matrix("midlayer.mlp.down_proj.weight", [width, INNER]),
        matrix("lm_head.weight", [DRAFT_VOCAB, width]),
        norm("midlayer.input_layernorm.weight"),
        norm("midlayer.hidden_norm.weight"),
        norm("midlayer.post_attention_layernorm.weight"),
        norm("norm.weight"),
    ];
    if width != HIDDEN {
        tensors.push(matrix("embed_tokens.weight", [VOCAB, width]));
    }
    // Every fifth token, from the token 300 on.
    let offsets: Vec<u8> =
        (0..DRAFT_VOCAB as i64).flat_map(|index| (300 + 4 * index).to_le_bytes()).collect();
    write(folder, &config, &tensors, Some(&offsets));
}

fn write_mlp_speculator(folder: &Path) {
    let config = json!({
        "architectures": ["MLPSpeculatorPreTrainedModel"], "model_type": "mlp_speculator",
        "emb_dim": HIDDEN, "inner_dim": INNER, "n_predict": 3, "vocab_size": VOCAB,
        "tie_weights": true, "scale_input": true,
    });
    let tensor = |name: &str, shape: &[usize], is_norm| {
        (format!("speculator.{name}"), shape.to_vec(), is_norm)
    };
    let tensors = [
        tensor("emb.0.weight", &[VOCAB, INNER], false),
        tensor("proj.0.weight", &[INNER, HIDDEN], false),
        tensor("proj.1.weight", &[INNER, INNER], false),
        tensor("head.0.weight", &[VOCAB, INNER], false),
        tensor("ln.0.weight", &[INNER], true),
        tensor("ln.0.bias", &[INNER], true),
    ];
    write(folder, &config, &tensors, None);
}

/// Writes a folder with a config and random weights.
fn write(folder: &Path, config: &Value, tensors: &[Tensor], offsets: Option<&[u8]>) {
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let mut state = 1_u64;
    let mut random = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    let values = tensors.iter().map(|(_, shape, is_norm)| {
        let scale = 1.7 / (*shape.last().unwrap() as f32).sqrt();
        let count = shape.iter().product();
        let value = || if *is_norm { 1.0 } else { random() * scale };
        std::iter::repeat_with(value).take(count).flat_map(f32::to_le_bytes).collect::<Vec<u8>>()
    });
    let values: Vec<Vec<u8>> = values.collect();
    let mut views: Vec<(&str, TensorView<'_>)> = tensors
        .iter()
        .zip(&values)
        .map(|((name, shape, _), values)| {
            (name.as_str(), TensorView::new(Dtype::F32, shape.clone(), values).unwrap())
        })
        .collect();
    if let Some(offsets) = offsets {
        let view = TensorView::new(Dtype::I64, vec![offsets.len() / 8], offsets).unwrap();
        views.push(("d2t", view));
    }
    let file = safetensors::serialize(views, None).unwrap();
    fs::write(folder.join("model.safetensors"), file).unwrap();
}
