//! The model families of this crate, one file each.

mod afmoe;
mod apertus;
mod arcee;
mod aria;
mod axk1;
mod baichuan;
mod bailing_moe;
mod bailing_moe_v2;
mod bailing_moe_v2_5;
mod bailing_moe_v3;
mod bamba;
mod biogpt;
mod bitnet;
mod blip2;
mod bloom;
mod chatglm;
mod codegen;
mod cohere;
mod cohere2;
mod cohere2_moe;
mod cwm;
mod dbrx;
mod deci_lm;
mod deepseek;
mod deepseek_ocr;
mod deepseek_v2;
mod deepseek_v3;
mod deepseek_v32;
mod dory;
mod dots1;
mod dots_ocr;
mod embedding_gemma2;
pub(super) mod encoders;
mod ernie4_5;
mod ernie4_5_moe;
mod exaone;
mod exaone4;
mod exaone4_5;
mod exaone_moe;
mod falcon;
mod falcon_h1;
mod falcon_mamba;
mod flex_olmo;
mod flint;
mod gemma;
mod gemma2;
mod gemma3;
mod gemma3n;
mod gemma4;
mod gemma4_unified;
mod glm;
mod glm4;
mod glm4_moe;
mod glm4_moe_lite;
mod glm_moe_dsa;
mod got_ocr2;
mod gpt2;
mod gpt_bigcode;
mod gpt_neo;
mod gpt_neox;
mod gpt_oss;
mod gptj;
mod granite;
mod granite_moe;
mod granite_moe_hybrid;
mod granite_moe_shared;
mod granite_moe_swa;
mod granite_speech;
mod granite_swa;
mod hearing;
mod helium;
mod hunyuan;
mod hunyuan_moe;
mod hy_v3;
mod hyperclovax;
mod in_tiles;
mod internlm;
mod internlm2;
mod internlm3;
mod interns1;
mod iquestcoder;
mod jais2;
mod jamba;
mod kimi_linear;
mod kimi_vl;
mod kolibri1;
mod laguna;
mod late_interaction;
mod lfm2;
mod lfm2_moe;
pub(super) mod llama;
mod llama4;
mod llava_next_video;
mod llava_onevision;
mod longcat_flash;
mod mamba;
mod mamba2;
mod mellum;
mod mimo;
mod mimo_v2_flash;
mod minicpm;
mod minicpm3;
mod minicpmv;
mod minimax;
mod minimax_m2;
mod minimax_text01;
mod ministral;
mod ministral3;
mod mistral;
mod mistral4;
mod mixtral;
mod molmo2;
mod mpt;
mod nanbeige;
mod nanochat;
mod nemotron;
mod nemotron_h;
mod nemotron_h_puzzle;
mod nemotron_vl;
mod olmo;
mod olmo2;
mod olmo3;
mod olmo_hybrid;
mod olmoe;
mod omni;
mod opt;
mod orion;
mod ouro;
mod ovis2;
mod paligemma;
mod pangu_embedded;
mod param2moe;
mod persimmon;
mod phi;
mod phi3;
mod phi3_v;
mod phi4_multimodal;
mod phimoe;
mod qwen2;
mod qwen2_moe;
mod qwen3;
mod qwen3_5;
mod qwen3_5_moe;
mod qwen3_moe;
mod qwen3_next;
mod qwen4_exp;
mod readers;
mod recurrent_gemma;
mod rnj1;
mod sarvam_mla;
mod sarvam_moe;
mod seed_oss;
mod smollm3;
mod solar;
mod solar_open;
mod stablelm;
mod starcoder2;
mod step3_text;
mod step3p5;
mod telechat2;
mod teleflm;
mod two_towers;
mod vaultgemma;
mod wrappers;
mod youtu;
mod zamba2;

// The vocabulary of the files in this folder.
use super::audio::{AudioFamily, SoundTower};
use super::config::{
    ActivationName, AltUpConfig, ConfigError, DeltaNetConfig, DeltaNetModules,
    EmbeddingProjections, Factors, FeedForward, Fields, GateClamp, GateForm, Gemma4Config,
    GriffinConfig, GroupScoring, HyperConfig, KimiDeltaConfig, LayerConfig, LightningConfig,
    LightningNames, LowRankQueries, Mamba2Fields, Mamba2Multipliers, Mamba2Norm, MambaConfig,
    MambaFields, MambaNorms, Mixer, MixerKind, MlpConfig, ModelConfig, MoeConfig, NgptConfig,
    NgramConfig, NormedResidual, OtherNorms, ParallelConfig, Passes, PerLayerConfig,
    RecurrentConfig, RopeScaling, SIZE_MAX, Scoring, Section, SharedBlocks, SharedExpert,
    ShortConvConfig, SkipConnection, StateLayers, TemperatureConfig, WindowRule, hybrid,
    inner_size, mixers_alone, read_alike,
};
use super::encoder_class::EncoderHead;
use super::family::{
    AttentionNames, AxesRule, Bias, Defaults, ExpertNames, Family, HeadNormRule, KvNames,
    LatentNames, LatentRule, LayerNorms, LayerRule, MlpNames, MlpRule, MoeNames, MtpForm, NormKind,
    NormRule, PositionRule, QkvNames, RopeRule, RotaryPart, SlidingRope, TextPlace, WeightNames,
    as_read,
};
use super::vision::VisionFamily;
use super::wrapper::{TextModel, TextSizes, Wrapper};
pub(super) use late_interaction::{COL_QWEN3_5, NEMOTRON_COL_EMBED};
pub(super) use two_towers::TWO_TOWERS;
pub(super) use wrappers::WRAPPERS;

/// Families whose layers some heads have that guess tokens.
pub(super) const QWEN3: Family = qwen3::FAMILY;
pub(super) const MISTRAL: Family = mistral::FAMILY;
pub(super) const LLAMA4: Family = llama4::FAMILY;
pub(super) const DEEPSEEK_V3: Family = deepseek_v3::FAMILY;

/// The families of this crate.
pub(super) const FAMILIES: &[&Family] = &[
    &llama::FAMILY,
    &mistral::FAMILY,
    &qwen2::FAMILY,
    &qwen3::FAMILY,
    &apertus::FAMILY,
    &arcee::FAMILY,
    &bloom::FAMILY,
    &cohere::FAMILY,
    &cohere2::FAMILY,
    &ernie4_5::FAMILY,
    &exaone4::FAMILY,
    &falcon::FAMILY,
    &gemma::FAMILY,
    &gemma2::FAMILY,
    &gemma3::FAMILY,
    &glm::FAMILY,
    &glm4::FAMILY,
    &gpt2::FAMILY,
    &gpt_neox::FAMILY,
    &granite::FAMILY,
    &hunyuan::FAMILY,
    &internlm2::FAMILY,
    &internlm3::FAMILY,
    &mpt::FAMILY,
    &nemotron::FAMILY,
    &olmo2::FAMILY,
    &olmo3::FAMILY,
    &opt::FAMILY,
    &phi3::FAMILY,
    &seed_oss::FAMILY,
    &smollm3::FAMILY,
    &stablelm::FAMILY,
    &starcoder2::FAMILY,
    &mixtral::FAMILY,
    &qwen2_moe::FAMILY,
    &qwen3_moe::FAMILY,
    &olmoe::FAMILY,
    &granite_moe::FAMILY,
    &ernie4_5_moe::FAMILY,
    &glm4_moe::FAMILY,
    &hunyuan_moe::FAMILY,
    &deepseek_v2::FAMILY,
    &deepseek_v3::FAMILY,
    &glm4_moe_lite::FAMILY,
    &minicpm3::FAMILY,
    &youtu::FAMILY,
    &longcat_flash::FAMILY,
    &deepseek_v32::FAMILY,
    &glm_moe_dsa::FAMILY,
    &gemma3n::FAMILY,
    &gemma4::FAMILY,
    &gpt_oss::FAMILY,
    &llama4::FAMILY,
    &dots1::FAMILY,
    &flex_olmo::FAMILY,
    &gpt_bigcode::FAMILY,
    &gptj::FAMILY,
    &granite_moe_shared::FAMILY,
    &helium::FAMILY,
    &internlm::FAMILY,
    &minicpm::FAMILY,
    &ministral::FAMILY,
    &ministral3::FAMILY,
    &olmo::FAMILY,
    &phi::FAMILY,
    &vaultgemma::FAMILY,
    &mamba::FAMILY,
    &mamba2::FAMILY,
    &falcon_mamba::FAMILY,
    &jamba::FAMILY,
    &bamba::FAMILY,
    &granite_moe_hybrid::FAMILY,
    &falcon_h1::FAMILY,
    &nemotron_h::FAMILY,
    &qwen3_next::FAMILY,
    &qwen3_5::FAMILY,
    &qwen3_5_moe::FAMILY,
    &qwen4_exp::FAMILY,
    &lfm2::FAMILY,
    &lfm2_moe::FAMILY,
    &minimax::FAMILY,
    &codegen::FAMILY,
    &exaone::FAMILY,
    &jais2::FAMILY,
    &minimax_m2::FAMILY,
    &persimmon::FAMILY,
    &solar_open::FAMILY,
    &cwm::FAMILY,
    &hyperclovax::FAMILY,
    &iquestcoder::FAMILY,
    &gpt_neo::FAMILY,
    &phimoe::FAMILY,
    &dbrx::FAMILY,
    &afmoe::FAMILY,
    &exaone_moe::FAMILY,
    &recurrent_gemma::FAMILY,
    &hy_v3::FAMILY,
    &mellum::FAMILY,
    &nanochat::FAMILY,
    &biogpt::FAMILY,
    &chatglm::FAMILY,
    &mimo::FAMILY,
    &orion::FAMILY,
    &deepseek::FAMILY,
    &bailing_moe::FAMILY,
    &bailing_moe_v2::FAMILY,
    &sarvam_moe::FAMILY,
    &sarvam_mla::FAMILY,
    &deci_lm::FAMILY,
    &cohere2_moe::FAMILY,
    &granite_swa::FAMILY,
    &granite_moe_swa::FAMILY,
    &pangu_embedded::FAMILY,
    &olmo_hybrid::FAMILY,
    &axk1::FAMILY,
    &mistral4::FAMILY,
    &mimo_v2_flash::FAMILY,
    &kimi_linear::FAMILY,
    &bailing_moe_v3::FAMILY,
    &bitnet::FAMILY,
    &laguna::FAMILY,
    &baichuan::FAMILY,
    &solar::FAMILY,
    &telechat2::FAMILY,
    &teleflm::FAMILY,
    &param2moe::FAMILY,
    &nanbeige::FAMILY,
    &rnj1::FAMILY,
    &ouro::FAMILY,
    &minimax_text01::FAMILY,
    &bailing_moe_v2_5::FAMILY,
    &zamba2::FAMILY,
    &step3p5::FAMILY,
    &step3_text::FAMILY,
    &nemotron_h_puzzle::FAMILY,
    &flint::FAMILY,
    &kolibri1::FAMILY,
    &dory::FAMILY,
];

/// Other entries of `architectures`, each with its `model_type`: code in folders, whose weights and
/// fields are those of the family.
const SPELLINGS: &[(&str, &str, &Family)] = &[
    ("LLaMAForCausalLM", "llama", &llama::FAMILY),
    ("AquilaForCausalLM", "aquila", &llama::FAMILY),
    ("AquilaModel", "aquila", &llama::FAMILY),
    ("XverseForCausalLM", "xverse", &llama::FAMILY),
    ("MPTForCausalLM", "mpt", &mpt::FAMILY),
    ("PhiMoEForCausalLM", "phimoe", &phimoe::FAMILY),
    ("ExaoneMoEForCausalLM", "exaone_moe", &exaone_moe::FAMILY),
    ("StableLMEpochForCausalLM", "stablelm_epoch", &stablelm::FAMILY),
    ("Ernie4_5_ForCausalLM", "ernie4_5", &ernie4_5::FAMILY),
    ("RWForCausalLM", "RefinedWebModel", &falcon::FAMILY),
    ("ChatGLMModel", "chatglm", &chatglm::FAMILY),
    ("TeleChat3ForCausalLM", "telechat3", &llama::FAMILY),
    ("TeleChatForCausalLM", "telechat", &telechat2::FAMILY),
    (baichuan::FIRST, "baichuan", &baichuan::FAMILY),
    ("MiMoV2ForCausalLM", "mimo_v2", &mimo_v2_flash::FAMILY),
    ("BailingHybridForCausalLM", "bailing_hybrid", &bailing_moe_v3::FAMILY),
    ("MiniMaxM1ForCausalLM", "minimax_m1", &minimax_text01::FAMILY),
];

/// Models that transformers finds by their `model_type`, and whose entry of `architectures` is that
/// of another family.
const BY_MODEL_TYPE: &[(&str, &str, &Family)] = &[
    ("LlamaForCausalLM", "internlm3", &internlm3::FAMILY),
    ("LlamaForCausalLM", "exaone", &exaone::FAMILY),
    // transformers 5 has its config, and Llama's class for it.
    ("LlamaForCausalLM", "iquestcoder", &iquestcoder::FAMILY),
    ("Glm4MoeForCausalLM", "sarvam_moe", &sarvam_moe::FAMILY),
    ("DeepseekV3ForCausalLM", "sarvam_mla", &sarvam_mla::FAMILY),
];

/// Returns the family of a model, of which `family` has the entry of `architectures`.
pub(super) fn of_model_type(family: &'static Family, model_type: Option<&str>) -> &'static Family {
    let is_named = |(architecture, other, _): &&(&str, &str, _)| {
        *architecture == family.architecture && Some(*other) == model_type
    };
    BY_MODEL_TYPE.iter().find(is_named).map_or(family, |(_, _, family)| *family)
}

/// The meaning of an entry of `architectures`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Entry {
    /// The family of a text model.
    Family(&'static Family),
    /// A multimodal class, whose text model is served.
    Wrapper(&'static Wrapper),
}

/// Returns the meaning of the `architectures` entry `name`.
pub(super) fn by_architecture(name: &str) -> Option<Entry> {
    entries().find(|(architecture, _)| *architecture == name).map(|(_, entry)| entry)
}

/// Returns the family of text models whose `architectures` entry is `name`.
pub(super) fn text_family(name: &str) -> Option<&'static Family> {
    match by_architecture(name)? {
        Entry::Family(family) => Some(family),
        Entry::Wrapper(_) => None,
    }
}

/// Code in folders that ranks with a multimodal class, which is the second name.
pub(super) const RANKERS: &[(&str, &str)] =
    &[("JinaVLForRanking", "Qwen2VLForConditionalGeneration")];

/// Returns the multimodal classes that only pool, with their heads. Those of two towers are apart.
pub(super) fn pooled_wrappers() -> impl Iterator<Item = &'static (Wrapper, EncoderHead)> {
    let retrievers = late_interaction::LATE_INTERACTION.iter().chain(nemotron_vl::NEMOTRON_VL);
    retrievers.chain(embedding_gemma2::EMBEDDING_GEMMA2)
}

/// Returns the longest context of a multimodal class without the setting, if it is not that of all
/// its positions.
pub(super) fn usual_length(wrapper: &Wrapper) -> Option<usize> {
    let is_long = embedding_gemma2::EMBEDDING_GEMMA2.iter().any(|(known, _)| known == wrapper);
    is_long.then_some(embedding_gemma2::USUAL_LENGTH)
}

/// Returns the multimodal class that the `architectures` entry `name` is, or has another head of.
pub(super) fn wrapper_of(name: &str) -> Option<&'static Wrapper> {
    let ranker = RANKERS.iter().find(|(known, _)| *known == name);
    let name = ranker.map_or(name, |(_, base)| *base);
    let that_pool = pooled_wrappers().map(|(wrapper, _)| wrapper);
    let mut all = WRAPPERS.iter().chain(TWO_TOWERS).chain(that_pool);
    all.find(|wrapper| {
        wrapper.architecture == name || wrapper.classifier().as_deref() == Some(name)
    })
}

/// Returns the `architectures` entries of these families.
pub(super) fn architectures() -> Vec<&'static str> {
    entries().map(|(architecture, _)| architecture).collect()
}

/// Returns each entry of `architectures` with its meaning.
pub(super) fn entries() -> impl Iterator<Item = (&'static str, Entry)> {
    let own = FAMILIES.iter().map(|family| (family.architecture, Entry::Family(family)));
    let others = SPELLINGS.iter();
    let others = others.map(|(architecture, _, family)| (*architecture, Entry::Family(family)));
    let wrappers = WRAPPERS.iter().map(|wrapper| (wrapper.architecture, Entry::Wrapper(wrapper)));
    own.chain(others).chain(wrappers)
}

/// Returns whether models of `family` have this `model_type`.
pub(super) fn is_model_type(family: &Family, model_type: &str) -> bool {
    let mut others = SPELLINGS.iter().filter(|(_, _, other)| *other == family);
    family.has_model_type(model_type) || others.any(|(_, other, _)| *other == model_type)
}
