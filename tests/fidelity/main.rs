//! Compares models with Hugging Face transformers in float32. Log-probabilities agree within 1e-4,
//! greedy tokens are equal, and the bytes do not depend on how the work is split. `make_models.py`
//! made the models and their answers.

// Helpers of a test may unwrap, as tests may.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod encoders;
mod engine;
mod every_family;
mod golden;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod gpu;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod gpu_engine;
mod heads;
mod hearing;
mod languages;
mod late_chunking;
mod latent;
mod media_engine;
mod omni;
mod phi4;
mod pictures;
mod poolers;
mod prompts;
mod quantized;
mod random_vision;
mod rope;
mod runner;
mod sharpness;
mod short_context;
mod speech;
mod texts;
mod texts_engine;
mod vision;
mod vision_folders;

use std::path::{Path, PathBuf};

use golden::Golden;
use playhouse::model::{Dtype, LoadOptions, ModelConfig, load_model};
use playhouse_kernels::KvDtype;
use runner::{Answer, Chunking, Runner};

/// Largest accepted difference between a log-probability and transformers'.
const TOLERANCE: f64 = 1e-4;

macro_rules! models {
    ($list:ident: $($test:ident: $folder:literal,)*) => {
        pub(crate) const $list: &[&str] = &[$($folder),*];
        $(#[test] fn $test() { crate::check_model($folder); })*
    };
}

// The macro has to come before it.
mod newer;

models! {
    LLAMA_LINE:
    llama_tied: "llama-tied",
    llama_gqa_f16: "llama-gqa-f16",
    llama_biases_sharded: "llama-biases-sharded",
    llama_llama3: "llama-llama3",
    llama_linear: "llama-linear",
    llama_yarn: "llama-yarn",
    llama_dynamic: "llama-dynamic",
    llama_longrope: "llama-longrope",
    mistral_window: "mistral-window",
    qwen2_tied: "qwen2-tied",
    qwen2_window_mix: "qwen2-window-mix",
    qwen3_layer_types: "qwen3-layer-types",
}

models! {
    OTHER_FAMILIES:
    mistral_full: "mistral-full",
    qwen3_biases: "qwen3-biases",
    apertus: "apertus",
    apertus_llama3: "apertus-llama3",
    arcee: "arcee",
    arcee_biases: "arcee-biases",
    bloom: "bloom",
    bloom_six_heads: "bloom-six-heads",
    cohere: "cohere",
    cohere_norms: "cohere-norms",
    cohere2: "cohere2",
    cohere2_layer_types: "cohere2-layer-types",
    ernie4_5: "ernie4_5",
    ernie4_5_biases: "ernie4_5-biases",
    exaone4: "exaone4",
    exaone4_full: "exaone4-full",
    falcon_7b: "falcon-7b",
    falcon_groups: "falcon-groups",
    falcon_one_norm: "falcon-one-norm",
    falcon_alibi: "falcon-alibi",
    falcon_alibi_twelve_heads: "falcon-alibi-twelve-heads",
    falcon_in_turn: "falcon-in-turn",
    gemma: "gemma",
    gemma_one_kv_head: "gemma-one-kv-head",
    gemma2: "gemma2",
    gemma2_no_caps: "gemma2-no-caps",
    gemma3: "gemma3",
    gemma3_linear: "gemma3-linear",
    gemma3n: "gemma3n",
    gemma3n_own_keys: "gemma3n-own-keys",
    gemma4: "gemma4",
    gemma4_experts: "gemma4-experts",
    gemma4_biases: "gemma4-biases",
    glm: "glm",
    glm_no_bias: "glm-no-bias",
    glm4: "glm4",
    glm4_biases: "glm4-biases",
    gpt2: "gpt2",
    gpt2_inverse: "gpt2-inverse",
    gpt_neox: "gpt_neox",
    gpt_neox_in_turn: "gpt_neox-in-turn",
    granite: "granite",
    granite_biases: "granite-biases",
    hunyuan: "hunyuan",
    hunyuan_alpha: "hunyuan-alpha",
    mpt: "mpt",
    mpt_clip: "mpt-clip",
    nemotron: "nemotron",
    nemotron_biases: "nemotron-biases",
    olmo2: "olmo2",
    olmo2_biases: "olmo2-biases",
    olmo3: "olmo3",
    olmo3_yarn: "olmo3-yarn",
    opt: "opt",
    opt_no_bias: "opt-no-bias",
    opt_post_norm: "opt-post-norm",
    opt_no_final_norm: "opt-no-final-norm",
    phi3: "phi3",
    phi3_partial: "phi3-partial",
    seed_oss: "seed_oss",
    seed_oss_out_bias: "seed_oss-out-bias",
    smollm3: "smollm3",
    smollm3_windows: "smollm3-windows",
    stablelm: "stablelm",
    stablelm_parallel: "stablelm-parallel",
    starcoder2: "starcoder2",
    starcoder2_no_bias: "starcoder2-no-bias",
    mixtral: "mixtral",
    mixtral_window: "mixtral-window",
    qwen2_moe: "qwen2_moe",
    qwen2_moe_sparse: "qwen2_moe-sparse",
    qwen3_moe: "qwen3_moe",
    qwen3_moe_raw: "qwen3_moe-raw",
    olmoe: "olmoe",
    olmoe_clip: "olmoe-clip",
    granite_moe: "granite_moe",
    granite_moe_tied: "granite_moe-tied",
    ernie4_5_moe: "ernie4_5_moe",
    ernie4_5_moe_interval: "ernie4_5_moe-interval",
    glm4_moe: "glm4_moe",
    glm4_moe_raw: "glm4_moe-raw",
    hunyuan_moe: "hunyuan_moe",
    hunyuan_moe_one: "hunyuan_moe-one",
    deepseek_v2: "deepseek_v2",
    deepseek_v2_groups: "deepseek_v2-groups",
    deepseek_v3: "deepseek_v3",
    deepseek_v3_halves: "deepseek_v3-halves",
    deepseek_v3_float8: "deepseek_v3-float8",
    glm4_moe_lite: "glm4_moe_lite",
    glm4_moe_lite_listed: "glm4_moe_lite-listed",
    deepseek_v32: "deepseek_v32",
    deepseek_v32_listed: "deepseek_v32-listed",
    glm_moe_dsa: "glm_moe_dsa",
    glm_moe_dsa_groups: "glm_moe_dsa-groups",
    longcat_flash: "longcat_flash",
    longcat_flash_no_zeros: "longcat_flash-no-zeros",
    minicpm3: "minicpm3",
    minicpm3_one_query: "minicpm3-one-query",
    youtu: "youtu",
    youtu_halves: "youtu-halves",
    gpt_oss: "gpt_oss",
    gpt_oss_no_bias: "gpt_oss-no-bias",
    gpt_oss_mxfp4: "gpt_oss-mxfp4",
    llama4: "llama4",
    llama4_top_2: "llama4-top-2",
    gptj: "gptj",
    gptj_whole_heads: "gptj-whole-heads",
    gpt_bigcode: "gpt_bigcode",
    gpt_bigcode_heads: "gpt_bigcode-heads",
    helium: "helium",
    helium_biases: "helium-biases",
    ministral: "ministral",
    ministral_full: "ministral-full",
    ministral3: "ministral3",
    ministral3_window: "ministral3-window",
    olmo: "olmo",
    olmo_clip: "olmo-clip",
    phi: "phi",
    phi_partial: "phi-partial",
    vaultgemma: "vaultgemma",
    vaultgemma_no_caps: "vaultgemma-no-caps",
    dots1: "dots1",
    dots1_window: "dots1-window",
    flex_olmo: "flex_olmo",
    flex_olmo_norm: "flex_olmo-norm",
    granite_moe_shared: "granite_moe_shared",
    granite_moe_shared_none: "granite_moe_shared-none",
    internlm: "internlm",
    internlm_no_bias: "internlm-no-bias",
    minicpm: "minicpm",
    minicpm_longrope: "minicpm-longrope",
    internlm2: "internlm2",
    internlm2_biases: "internlm2-biases",
    internlm3: "internlm3",
    internlm3_biases: "internlm3-biases",
    qwen3_next: "qwen3_next",
    qwen3_next_layer_types: "qwen3_next-layer-types",
    qwen3_5: "qwen3_5",
    qwen3_5_interval: "qwen3_5-interval",
    qwen3_5_moe: "qwen3_5_moe",
    qwen3_5_moe_interval: "qwen3_5_moe-interval",
    lfm2: "lfm2",
    lfm2_biases: "lfm2-biases",
    lfm2_moe: "lfm2_moe",
    lfm2_moe_no_bias: "lfm2_moe-no-bias",
    minimax: "minimax",
    minimax_layer_types: "minimax-layer-types",
}

models! {
    STATES:
    mamba: "mamba",
    mamba_biases: "mamba-biases",
    falcon_mamba: "falcon_mamba",
    falcon_mamba_biases: "falcon_mamba-biases",
    mamba2: "mamba2",
    mamba2_limits: "mamba2-limits",
    bamba: "bamba",
    bamba_biases: "bamba-biases",
    jamba: "jamba",
    jamba_dense: "jamba-dense",
    granite_hybrid: "granite_hybrid",
    granite_hybrid_dense: "granite_hybrid-dense",
    granite_hybrid_attention: "granite_hybrid-attention",
    falcon_h1: "falcon_h1",
    falcon_h1_norms: "falcon_h1-norms",
    falcon_h1_norm_first: "falcon_h1-norm-first",
    nemotron_h: "nemotron_h",
    nemotron_h_biases: "nemotron_h-biases",
}

models! {
    SETTINGS:
    phi_head_norms: "phi-head-norms",
    bloom_norms_go_on: "bloom-norms-go-on",
    qwen2_moe_dense: "qwen2_moe-dense",
    qwen3_moe_windows: "qwen3_moe-windows",
    ernie4_5_moe_norm_min: "ernie4_5_moe-norm-min",
    hunyuan_moe_listed: "hunyuan_moe-listed",
    internlm3_biased: "internlm3-biased",
    nemotron_h_experts: "nemotron_h-experts",
    nemotron_h_latent_experts: "nemotron_h-latent-experts",
    gpt2_odd_heads: "gpt2-odd-heads",
    jamba_odd_heads: "jamba-odd-heads",
    persimmon: "persimmon",
    persimmon_no_head_norms: "persimmon-no-head-norms",
    codegen: "codegen",
    codegen_two_heads: "codegen-two-heads",
    exaone: "exaone",
    exaone_biases: "exaone-biases",
    jais2: "jais2",
    jais2_no_biases: "jais2-no-biases",
    minimax_m2: "minimax_m2",
    minimax_m2_partial: "minimax_m2-partial",
    solar_open: "solar_open",
    solar_open_groups: "solar_open-groups",
    cwm: "cwm",
    cwm_layer_types: "cwm-layer-types",
    hyperclovax: "hyperclovax",
    hyperclovax_norms_before: "hyperclovax-norms-before",
    iquestcoder: "iquestcoder",
    iquestcoder_biases: "iquestcoder-biases",
    gpt_neo: "gpt_neo",
    gpt_neo_windows: "gpt_neo-windows",
    phimoe: "phimoe",
    phimoe_windows: "phimoe-windows",
    dbrx: "dbrx",
    dbrx_plain: "dbrx-plain",
    afmoe: "afmoe",
    afmoe_biases: "afmoe-biases",
    exaone_moe: "exaone_moe",
    exaone_moe_listed: "exaone_moe-listed",
    recurrent_gemma: "recurrent_gemma",
    recurrent_gemma_wide: "recurrent_gemma-wide",
    hy_v3: "hy_v3",
    hy_v3_biases: "hy_v3-biases",
    mellum: "mellum",
    mellum_dense: "mellum-dense",
    biogpt: "biogpt",
    biogpt_unscaled: "biogpt-unscaled",
    nanochat: "nanochat",
    nanochat_biases: "nanochat-biases",
    chatglm: "chatglm",
    chatglm_all_heads: "chatglm-all-heads",
    mimo: "mimo",
    mimo_tied: "mimo-tied",
    orion: "orion",
    orion_tied: "orion-tied",
    pangu_embedded: "pangu_embedded",
    pangu_embedded_no_biases: "pangu_embedded-no-biases",
    deepseek: "deepseek",
    deepseek_normalized: "deepseek-normalized",
    bailing_moe: "bailing_moe",
    bailing_moe_dense: "bailing_moe-dense",
    bailing_moe_norm_head: "bailing_moe-norm-head",
    bailing_moe_v2: "bailing_moe_v2",
    bailing_moe_v2_plain: "bailing_moe_v2-plain",
    deci_lm: "deci_lm",
    deci_lm_heads: "deci_lm-heads",
    cohere2_moe: "cohere2_moe",
    cohere2_moe_sigmoid: "cohere2_moe-sigmoid",
    cohere2_moe_plain: "cohere2_moe-plain",
    granite_swa: "granite_swa",
    granite_swa_biases: "granite_swa-biases",
    granite_moe_swa: "granite_moe_swa",
    granite_moe_swa_alone: "granite_moe_swa-alone",
    sarvam_moe: "sarvam_moe",
    sarvam_moe_groups: "sarvam_moe-groups",
    sarvam_mla: "sarvam_mla",
    sarvam_mla_yarn: "sarvam_mla-yarn",
}

models! {
    MULTIMODAL:
    gemma3_vl: "gemma3_vl",
    gemma3_vl_inside: "gemma3_vl-inside",
    gemma3n_vl: "gemma3n_vl",
    gemma3n_vl_published: "gemma3n_vl-published",
    gemma4_vl: "gemma4_vl",
    gemma4_vl_published: "gemma4_vl-published",
    llama4_vl: "llama4_vl",
    llama4_vl_published: "llama4_vl-published",
    mistral3: "mistral3",
    mistral3_inside: "mistral3-inside",
    mistral3_experts: "mistral3-experts",
    llava: "llava",
    llava_inside: "llava-inside",
    llava_qwen2: "llava-qwen2",
    qwen2_vl: "qwen2_vl",
    qwen2_vl_inside: "qwen2_vl-inside",
    qwen2_5_vl: "qwen2_5_vl",
    qwen2_5_vl_nested: "qwen2_5_vl-nested",
    qwen3_vl: "qwen3_vl",
    qwen3_vl_tied: "qwen3_vl-tied",
    qwen3_vl_moe: "qwen3_vl_moe",
    qwen3_vl_moe_sparse: "qwen3_vl_moe-sparse",
    qwen3_5_vl: "qwen3_5_vl",
    qwen3_5_vl_tied: "qwen3_5_vl-tied",
    qwen3_5_moe_vl: "qwen3_5_moe_vl",
    qwen3_5_moe_vl_published: "qwen3_5_moe_vl-published",
    qwen4_exp_vl: "qwen4_exp_vl",
    qwen4_exp_vl_published: "qwen4_exp_vl-published",
    glm4v: "glm4v",
    glm4v_published: "glm4v-published",
    glm4v_moe: "glm4v_moe",
    glm4v_moe_published: "glm4v_moe-published",
}

/// Returns the folders of all recorded models.
fn models() -> impl Iterator<Item = &'static str> {
    served().chain(SETTINGS.iter().chain(newer::NEWER).copied())
}

/// Returns the folders of the models whose vocabulary is that of the recorded tokenizer.
fn served() -> impl Iterator<Item = &'static str> {
    LLAMA_LINE.iter().chain(OTHER_FAMILIES).chain(STATES).chain(MULTIMODAL).copied()
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fidelity/models").join(name)
}

fn runner(folder: &Path, dtype: Dtype, max_model_len: Option<usize>) -> Runner {
    let options = LoadOptions { dtype, max_model_len, ..LoadOptions::default() };
    Runner::new(load_model(folder, &options, &mut |_| {}).unwrap(), &options.device)
}

/// Compares one model with transformers, and its ways of running with each other.
fn check_model(name: &str) {
    let folder = folder(name);
    for run in Golden::read(&folder).runs {
        let runner = runner(&folder, Dtype::Float32, run.max_model_len);
        let prompts: Vec<_> = run.prompts.iter().map(|prompt| prompt.ids()).collect();
        let whole = runner.answer(&prompts, Chunking::Whole);
        for (prompt, answer) in run.prompts.iter().zip(&whole) {
            let difference = prompt.difference(answer);
            assert!(difference <= TOLERANCE, "{name}: log-probabilities differ by {difference}");
            assert_eq!(answer.greedy, prompt.greedy_token_ids, "{name}");
        }
        check_chunking(name, &runner, &prompts, &whole, &CHUNKINGS);
    }
}

/// Every way of running prompts except in one step.
const CHUNKINGS: [Chunking; 3] = [Chunking::Chunks(16), Chunking::Chunks(1), Chunking::Ragged];

/// Asserts that other ways of running `prompts` give the bytes of `whole`.
fn check_chunking(
    name: &str,
    runner: &Runner,
    prompts: &[&[u32]],
    whole: &[Answer],
    chunkings: &[Chunking],
) {
    for &chunking in chunkings {
        for (answer, expected) in runner.answer(prompts, chunking).iter().zip(whole) {
            assert_eq!(answer.greedy, expected.greedy, "{name} in {chunking:?}");
            assert!(answer.bits().eq(expected.bits()), "{name}: other bytes in {chunking:?}");
        }
    }
}

/// bfloat16 has eight bits of precision. The answer is close to transformers' in float32, and still
/// does not depend on chunking, to the last bit.
#[test]
fn bf16_is_close_and_independent_of_chunking() {
    let names = ["llama-biases-sharded", "qwen2-window-mix", "qwen3-layer-types"];
    for name in names.into_iter().chain(["mamba2-limits", "bamba", "falcon_h1"]) {
        let folder = folder(name);
        let run = Golden::read(&folder).runs.remove(0);
        let runner = runner(&folder, Dtype::Auto, None);
        let prompts: Vec<_> = run.prompts.iter().map(|prompt| prompt.ids()).collect();
        let whole = runner.answer(&prompts, Chunking::Whole);
        for (prompt, answer) in run.prompts.iter().zip(&whole) {
            let difference = prompt.mean_difference(answer);
            assert!(difference < 0.05, "{name}: mean difference {difference}");
        }
        check_chunking(name, &runner, &prompts, &whole, &CHUNKINGS);
    }
}

/// Keys and values of fewer bits than the model's. The answers are close, and do not depend on
/// chunking, to the last bit.
///
/// In bfloat16 the worst prompt differs by 0.017, in int8 by three times as much. One step size of
/// int8 serves a whole row, because it depends on the row's largest element.
#[test]
fn narrower_kv_caches_are_close_and_independent_of_chunking() {
    for (kv_dtype, tolerance) in [(KvDtype::Bf16, 0.03), (KvDtype::Int8, 0.1)] {
        for name in LLAMA_LINE {
            let folder = folder(name);
            let run = Golden::read(&folder).runs.remove(0);
            let runner = runner(&folder, Dtype::Float32, run.max_model_len).with_kv_dtype(kv_dtype);
            let prompts: Vec<_> = run.prompts.iter().map(|prompt| prompt.ids()).collect();
            let whole = runner.answer(&prompts, Chunking::Whole);
            for (prompt, answer) in run.prompts.iter().zip(&whole) {
                let difference = prompt.mean_difference(answer);
                assert!(difference > 0.0, "{name}: {kv_dtype} is not in use");
                assert!(difference < tolerance, "{name}, {kv_dtype}: {difference}");
            }
            check_chunking(name, &runner, &prompts, &whole, &CHUNKINGS);
        }
    }
}

#[test]
fn every_recorded_model_is_tested() {
    let mut recorded: Vec<_> = std::fs::read_dir(folder(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    recorded.sort();
    let mut tested: Vec<_> = models().collect();
    tested.sort_unstable();
    assert_eq!(recorded, tested);
}

/// `playhouse models` says so.
#[test]
fn every_family_has_two_recorded_models() {
    // Some models name the class of another family, and their `model_type` tells them apart.
    let architecture = |folder: PathBuf| match ModelConfig::from_dir(&folder, None) {
        Ok(config) => config.architecture().to_owned(),
        Err(_) => {
            let file = std::fs::read(folder.join("config.json")).unwrap();
            let config: serde_json::Value = serde_json::from_slice(&file).unwrap();
            match config["architectures"][0].as_str().unwrap() {
                // The same model, whole and without the parts that speak.
                "Qwen2_5OmniModel" => "Qwen2_5OmniForConditionalGeneration".to_owned(),
                name => name.replace("ThinkerFor", "For"),
            }
        }
    };
    let folders = models().map(folder).chain(vision::folders()).chain(speech::folders());
    let folders = folders.chain(hearing::folders()).chain(texts::folders()).chain(phi4::folders());
    let recorded: Vec<String> = folders.chain(omni::folders()).map(architecture).collect();
    // `encoders` has the models of encoders.
    let supported = playhouse::model::supported_models();
    let families = supported.iter().filter(|model| !model.is_encoder());
    let count = |family: &str| recorded.iter().filter(|name| *name == family).count();
    let names = families.map(|family| family.architecture);
    let lacking: Vec<_> = names.filter(|name| count(name) < 2).collect();
    assert!(lacking.is_empty(), "{lacking:?}");
}
