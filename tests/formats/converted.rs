//! GGUF files that llama.cpp's converter made, compared with transformers in float32 over the same
//! weights. `convert_models.py` made them. Those of dbrx and phimoe were written with the
//! converter's names and keys, but without its program.

use std::fs;
use std::path::{Path, PathBuf};

use playhouse::model::{Dtype, LoadOptions};

use crate::logits::{Prompt, check_with};

/// The largest difference from transformers, in units of the spread of logits. Recorded logits have
/// four digits after the point.
const TOLERANCE: f64 = 1e-4;

fn path(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats/converted").join(file)
}

fn check(name: &str) {
    let golden = fs::read(path(&format!("{name}.golden.json"))).unwrap();
    let prompts: Vec<Prompt> = serde_json::from_slice(&golden).unwrap();
    let options =
        LoadOptions { dtype: Dtype::Float32, max_model_len: Some(64), ..LoadOptions::default() };
    check_with(&options, &path(&format!("{name}.gguf")), &prompts, TOLERANCE);
}

macro_rules! models {
    ($($test:ident: $file:literal,)*) => {
        const MODELS: &[&str] = &[$($file),*];
        $(#[test] fn $test() { check($file); })*
    };
}

models! {
    afmoe: "afmoe",
    apertus_llama3: "apertus-llama3",
    arcee: "arcee",
    baichuan: "baichuan",
    baichuan_alibi: "baichuan-alibi",
    bailing_moe: "bailing_moe",
    bailing_moe_v2: "bailing_moe_v2",
    bamba: "bamba",
    bamba_biases: "bamba-biases",
    bloom: "bloom",
    bloom_six_heads: "bloom-six-heads",
    chatglm: "chatglm",
    cohere: "cohere",
    cohere_norms: "cohere-norms",
    cohere2: "cohere2",
    dbrx: "dbrx",
    deci_lm: "deci_lm",
    deepseek: "deepseek",
    deepseek_v2: "deepseek_v2",
    deepseek_v2_groups: "deepseek_v2-groups",
    deepseek_v3: "deepseek_v3",
    deepseek_v32: "deepseek_v32",
    dots1: "dots1",
    ernie4_5: "ernie4_5",
    ernie4_5_moe: "ernie4_5_moe",
    ernie4_5_moe_interval: "ernie4_5_moe-interval",
    exaone: "exaone",
    exaone4: "exaone4",
    exaone_moe: "exaone_moe",
    falcon_7b: "falcon-7b",
    falcon_groups: "falcon-groups",
    falcon_one_norm: "falcon-one-norm",
    falcon_h1: "falcon_h1",
    falcon_h1_norms: "falcon_h1-norms",
    falcon_mamba: "falcon_mamba",
    gemma: "gemma",
    gemma2: "gemma2",
    gemma3: "gemma3",
    gemma3_linear: "gemma3-linear",
    gemma3n: "gemma3n",
    gemma3n_own_keys: "gemma3n-own-keys",
    gemma4: "gemma4",
    gemma4_experts: "gemma4-experts",
    glm: "glm",
    glm4: "glm4",
    glm4_moe: "glm4_moe",
    glm4_moe_raw: "glm4_moe-raw",
    glm4_moe_lite: "glm4_moe_lite",
    glm4v: "glm4v",
    glm4v_moe: "glm4v_moe",
    glm_moe_dsa: "glm_moe_dsa",
    gpt2: "gpt2",
    gpt_bigcode: "gpt_bigcode",
    gpt_neox: "gpt_neox",
    gpt_neox_in_turn: "gpt_neox-in-turn",
    gpt_oss: "gpt_oss",
    gpt_oss_mxfp4: "gpt_oss-mxfp4",
    granite: "granite",
    granite_hybrid: "granite_hybrid",
    granite_hybrid_dense: "granite_hybrid-dense",
    granite_moe: "granite_moe",
    granite_moe_shared: "granite_moe_shared",
    hunyuan: "hunyuan",
    hunyuan_alpha: "hunyuan-alpha",
    hunyuan_moe_one: "hunyuan_moe-one",
    hy_v3: "hy_v3",
    internlm2: "internlm2",
    internlm3: "internlm3",
    iquestcoder: "iquestcoder",
    jais2: "jais2",
    jamba: "jamba",
    lfm2: "lfm2",
    lfm2_moe: "lfm2_moe",
    llama_linear: "llama-linear",
    llama4: "llama4",
    mamba: "mamba",
    mamba2: "mamba2",
    mellum: "mellum",
    minicpm: "minicpm",
    minicpm3: "minicpm3",
    minimax: "minimax",
    minimax_m2_partial: "minimax_m2-partial",
    ministral3: "ministral3",
    mixtral: "mixtral",
    mpt: "mpt",
    mpt_clip: "mpt-clip",
    nanbeige: "nanbeige",
    nemotron: "nemotron",
    nemotron_biases: "nemotron-biases",
    nemotron_h: "nemotron_h",
    nemotron_h_experts: "nemotron_h-experts",
    nemotron_h_latent_experts: "nemotron_h-latent-experts",
    olmo: "olmo",
    olmo_clip: "olmo-clip",
    olmo2: "olmo2",
    olmo3: "olmo3",
    olmo3_yarn: "olmo3-yarn",
    olmoe: "olmoe",
    orion: "orion",
    pangu_embedded: "pangu_embedded",
    phi: "phi",
    phi3: "phi3",
    phi3_partial: "phi3-partial",
    phimoe: "phimoe",
    qwen2_moe: "qwen2_moe",
    qwen2_vl: "qwen2_vl",
    qwen3_5: "qwen3_5",
    qwen3_5_interval: "qwen3_5-interval",
    qwen3_5_moe: "qwen3_5_moe",
    qwen3_moe: "qwen3_moe",
    qwen3_next: "qwen3_next",
    qwen3_vl: "qwen3_vl",
    qwen3_vl_moe: "qwen3_vl_moe",
    seed_oss: "seed_oss",
    smollm3: "smollm3",
    solar_open: "solar_open",
    stablelm: "stablelm",
    stablelm_parallel: "stablelm-parallel",
    starcoder2: "starcoder2",
    xverse: "xverse",
    youtu: "youtu",
}

#[test]
fn every_file_is_tested() {
    let files = fs::read_dir(path("")).unwrap().map(|file| file.unwrap().path());
    let models = files.filter(|file| file.extension().is_some_and(|end| end == "gguf"));
    let mut names: Vec<_> =
        models.map(|file| file.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    names.sort();
    assert_eq!(names, MODELS);
}
