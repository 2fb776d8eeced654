//! Folders of models with images that lack a part, or have one that is not served.

use std::path::Path;

use playhouse::model::{LoadOptions, MediaData, MediaInput, MediaTensorView, Model, load_model};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::vision::folder;

/// Loads a copy of the recorded model `name` whose `config.json` was changed by `change`, without
/// the files `left_out`.
fn load(
    name: &str,
    left_out: &[&str],
    change: impl FnOnce(&mut Value),
) -> Result<std::sync::Arc<Model>, String> {
    load_changed(name, left_out, "config.json", change)
}

/// Does the same, and changes another file than `config.json`.
fn load_changed(
    name: &str,
    left_out: &[&str],
    changed: &str,
    change: impl FnOnce(&mut Value),
) -> Result<std::sync::Arc<Model>, String> {
    let copy = TempDir::new().unwrap();
    for entry in std::fs::read_dir(folder(name)).unwrap() {
        let entry = entry.unwrap();
        let file = entry.file_name().into_string().unwrap();
        if !left_out.contains(&&*file) {
            std::fs::copy(entry.path(), copy.path().join(file)).unwrap();
        }
    }
    edit(&copy.path().join(changed), change);
    let options = LoadOptions::default();
    load_model(copy.path(), &options, &mut |_| {}).map_err(|error| error.to_string())
}

fn edit(path: &Path, change: impl FnOnce(&mut Value)) {
    let mut config: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    change(&mut config);
    std::fs::write(path, config.to_string()).unwrap();
}

#[test]
fn without_an_image_processor_or_a_known_tower_the_model_takes_text() {
    let model = load("llava", &["preprocessor_config.json"], |_| {}).unwrap();
    assert!(model.media.is_none());
    let unknown = |config: &mut Value| config["vision_config"]["model_type"] = json!("new_tower");
    assert!(load("llava", &[], unknown).unwrap().media.is_none());
    assert!(load("llava", &[], |_| {}).unwrap().media.is_some());
}

#[test]
fn a_field_of_the_tower_without_a_valid_value_is_named() {
    let cases: [(&str, &str, Value); 73] = [
        ("llava", "/vision_config/num_attention_heads", json!(7)),
        ("llava", "/vision_feature_layer", json!(-9)),
        ("llava", "/vision_config/hidden_act", json!("new_act")),
        ("qwen2_5_vl", "/vision_config/window_size", json!(4)),
        ("qwen3_vl", "/vision_config/deepstack_visual_indexes", json!([2, 0])),
        ("qwen3_vl", "/text_config/rope_parameters/mrope_section", json!([1, 1])),
        ("glm4v", "/vision_config/num_heads", json!(5)),
        ("glm4v", "/vision_config/image_size", json!(7)),
        ("glm4v", "/vision_config/rope_parameters/rope_type", json!("linear")),
        ("glm_ocr", "/vision_config/in_channels", json!(4)),
        ("lighton_ocr", "/text_config/model_type", json!("llama")),
        ("paddleocr_vl", "/vision_config/num_attention_heads", json!(5)),
        ("paddleocr_vl", "/vision_config/image_size", json!(7)),
        ("llava_onevision", "/vision_feature_select_strategy", json!("default")),
        ("llava_onevision", "/vision_aspect_ratio", json!("pad")),
        ("llava_next_video", "/spatial_pool_mode", json!("max")),
        ("llava_next_video", "/spatial_pool_stride", json!(4)),
        ("exaone4_5", "/vision_config/num_key_value_heads", json!(3)),
        ("gemma4", "/vision_config/head_dim", json!(6)),
        ("gemma4", "/vision_config/rope_parameters/rope_type", json!("linear")),
        ("gemma4", "/text_config/pad_token_id", json!(512)),
        ("gemma4-vision", "/vision_config/num_key_value_heads", json!(3)),
        ("gemma4-vision", "/vision_config/standardize", json!("yes")),
        ("dots_ocr-bias", "/vision_config/rms_norm_eps", json!(-1.0)),
        ("dots_ocr-bias", "/vision_config/use_bias", json!("no")),
        ("deepseek_ocr", "/tile_tag", json!("1D")),
        ("deepseek_ocr", "/projector_config/projector_type", json!("mlp_gelu")),
        ("deepseek_ocr", "/language_config/use_mla", json!(true)),
        ("deepseek_ocr", "/language_config/topk_method", json!("noaux_tc")),
        ("deepseek_ocr", "/vision_config/width/sam_vit_b/heads", json!(5)),
        ("deepseek_ocr-windows", "/vision_config/width/clip-l-14-224/width", json!(36)),
        ("got_ocr2", "/vision_config/use_rel_pos", json!(false)),
        ("got_ocr2", "/vision_config/num_attention_heads", json!(5)),
        ("got_ocr2-windows", "/vision_config/patch_size", json!(7)),
        ("ovis2", "/vision_config/tokenize_function", json!("st_argmax")),
        ("ovis2", "/visual_indicator_token_ids", json!([1, 2])),
        ("ovis2-odd", "/vision_config/hidden_stride", json!(2)),
        ("deepseek_ocr2", "/vision_config/width/qwen2-0-5b/kv_heads", json!(3)),
        ("deepseek_ocr2", "/projector_config/input_dim", json!(64)),
        ("blip2", "/qformer_config/num_attention_heads", json!(3)),
        ("blip2", "/qformer_config/encoder_hidden_size", json!(20)),
        ("blip2-wide", "/vision_config/num_attention_heads", json!(5)),
        ("gemma4_unified", "/vision_config/output_proj_dims", json!(24)),
        ("gemma4_unified", "/vision_config/pooling_kernel_size", json!(1 << 20)),
        ("gemma4_unified", "/text_config/use_bidirectional_attention", json!("all")),
        ("kimi_vl", "/vision_config/init_pos_emb_width", json!(6)),
        ("kimi_vl", "/vision_config/merge_kernel_size", json!([2, 3])),
        ("kimi_vl", "/vision_config/merge_kernel_size", json!([1 << 20, 1 << 20])),
        ("kimi_k25-authors", "/vision_config/mm_projector_type", json!("mlp")),
        ("aria", "/vision_config/patch_size", json!(27)),
        ("aria", "/projector_patch_to_query_dict", json!({ "4900": 0 })),
        ("aria-layer", "/text_config/hidden_act", json!("gelu")),
        ("minicpmv4_6", "/insert_layer_id", json!(3)),
        ("minicpmv4_6", "/downsample_mode", json!("4x")),
        ("minicpmv4_6", "/merge_kernel_size", json!([4, 4])),
        ("aya_vision", "/vision_feature_select_strategy", json!("default")),
        ("aya_vision", "/alignment_intermediate_size", json!(41)),
        ("cohere2_vision", "/downsample_factor", json!(4)),
        ("internvl_chat", "/llm_config/model_type", json!("mistral")),
        ("internvl_chat", "/ps_version", json!("v1")),
        ("internvl_chat", "/force_image_size", json!(64)),
        ("internvl_chat", "/use_llm_lora", json!(16)),
        ("internvl_chat", "/vision_config/norm_type", json!("group_norm")),
        ("internvl_chat-internlm2", "/vision_config/layer_norm_eps", json!(1e-5)),
        ("molmo2", "/vit_config/image_num_pos", json!(50)),
        ("molmo2", "/adapter_config/vit_layers", json!([5])),
        ("molmo2", "/adapter_config/pooling_attention_mask", json!(false)),
        ("molmo2", "/adapter_config/text_hidden_size", json!(48)),
        ("molmo2", "/text_config/use_qk_norm", json!(false)),
        ("molmo2-olmo", "/text_config/qk_norm_type", json!("none")),
        ("molmo2-olmo", "/vision_config/head_dim", json!(8)),
        ("molmo2-olmo", "/image_patch_id", json!(512)),
        // A multiple of the patch, but an image would take gigabytes.
        ("molmo2-olmo", "/vision_config/image_size", json!([2_560, 2_560])),
    ];
    for (name, pointer, value) in cases {
        let change = |config: &mut Value| *config.pointer_mut(pointer).unwrap() = value;
        let why = load(name, &[], change).unwrap_err();
        let field = pointer.rsplit('/').next().unwrap();
        assert!(why.contains(field) && why.contains("config.json"), "{name}: {why}");
    }
}

/// For example a window with more places than a crop has patches.
#[test]
fn a_field_of_the_image_processor_without_a_valid_value_is_named() {
    const FILE: &str = "preprocessor_config.json";
    for (name, field, value) in [
        ("molmo2", "max_crops", json!(1_025)),
        ("molmo2", "overlap_margins", json!([4, 3])),
        ("molmo2", "pooling_size", json!([2, 8])),
        ("molmo2-olmo", "pooling_size", json!([1_024, 1_024])),
    ] {
        let why = load_changed(name, &[], FILE, |config| config[field] = value).unwrap_err();
        assert!(why.contains(FILE) && why.contains(field), "{name}: {why}");
    }
}

/// As `attribute_map` of HF `Qwen2_5_VLVisionConfig` and `Glm4vVisionConfig`.
#[test]
fn sizes_of_a_tower_may_have_other_names() {
    for name in ["qwen2_5_vl", "glm4v"] {
        let renamed = |config: &mut Value| {
            let vision = config["vision_config"].as_object_mut().unwrap();
            for (usual, other) in
                [("num_heads", "num_attention_heads"), ("depth", "num_hidden_layers")]
            {
                let value = vision.remove(usual).unwrap();
                vision.insert(other.to_owned(), value);
            }
        };
        assert!(load(name, &[], renamed).unwrap().media.is_some());
        let wrong = |config: &mut Value| config["vision_config"]["num_attention_heads"] = json!(5);
        let why = load(name, &[], wrong).unwrap_err();
        assert!(why.contains("heads` is 5"), "{why}");
    }
}

/// No field of `config.json` has it.
#[test]
fn the_token_of_an_image_is_the_tokenizers() {
    let why = load("internvl_chat", &["tokenizer.json"], |_| {}).unwrap_err();
    assert!(why.contains("tokenizer_config.json: `added_tokens_decoder` is missing"), "{why}");
    assert!(why.contains("<IMG_CONTEXT>"), "{why}");
    assert!(load("internvl_chat", &[], |_| {}).unwrap().media.is_some());
}

#[test]
fn a_tower_of_another_shape_is_refused() {
    let wider = |config: &mut Value| config["vision_config"]["hidden_size"] = json!(48);
    let why = load("llava", &[], wider).unwrap_err();
    assert!(why.contains("vision_tower"), "{why}");
}

/// The fault of one item leaves the others alone.
#[test]
fn an_item_that_does_not_fit_fails_alone() {
    let model = load("llava", &[], |_| {}).unwrap();
    let (fits, other) = (vec![7; 42 * 42 * 3], vec![7; 41 * 42 * 3]);
    let item = |shape: &'static [usize], pixels, num_embeds| MediaInput {
        tensors: vec![MediaTensorView { shape, data: MediaData::U8(pixels) }],
        num_embeds,
        grid: None,
    };
    let items = [
        item(&[42, 42, 3], &fits, 9),
        item(&[41, 42, 3], &other, 9),
        item(&[42, 42, 3], &fits, 8),
        MediaInput::default(),
        item(&[42, 42, 3], &fits, 9),
    ];
    let results = model.media.as_ref().unwrap().encode(&items);
    let fits: Vec<bool> = results.iter().map(Result::is_ok).collect();
    assert_eq!(fits, [true, false, false, false, true]);
}
