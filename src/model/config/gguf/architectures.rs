//! The supported architectures of llama.cpp, as data.
//!
//! Keys, names and constants are those of its converter (`conversion` in llama.cpp) and of its
//! loader (`load_arch_hparams` in `src/models`). Fields are those of the Hugging Face config class.

use serde_json::json;

use super::architecture::Constant::{ByTensor, Count, Flag, HasTensor, LacksTensor};
use super::architecture::{
    ALWAYS_WINDOW, Architecture, Form, Key, LayerTypes, SAME_BASE, Variant, WINDOW,
};
use super::metadata::Metadata;
use super::with_states::SECTIONS;
use crate::gguf::GgufError;
use crate::model::family::LayerNorms;

/// The usual names of norms.
pub(super) const NORMS: LayerNorms = LayerNorms {
    before_attention: Some("attn_norm"),
    after_attention: Some("post_attention_norm"),
    before_mlp: Some("ffn_norm"),
    after_mlp: Some("post_ffw_norm"),
};

/// The names where the converter takes Hugging Face's `post_attention_layernorm` by its name.
pub(super) const POST_ATTENTION: LayerNorms =
    LayerNorms { after_attention: None, before_mlp: Some("post_attention_norm"), ..NORMS };

/// An architecture without peculiarities.
pub(super) const PLAIN: Architecture = Architecture {
    name: "",
    class: "",
    variants: &[],
    is_interleaved: false,
    is_permuted_whole: false,
    is_multiplied: false,
    layer_types: LayerTypes::Other,
    layers: "blk",
    norms: NORMS,
    constants: &[],
    keys: &[],
    adjust: |_| Ok(()),
};

pub(super) const NUM_EXPERTS: Key = Key::integer("expert_count", "num_experts");
pub(super) const TOP_K: Key = Key::integer("expert_used_count", "num_experts_per_tok");
pub(super) const EXPERT_WIDTH: Key =
    Key::integer("expert_feed_forward_length", "moe_intermediate_size");
pub(super) const NORMALIZED: Key = Key::flag("expert_weights_norm", "norm_topk_prob");
const SHARED_WIDTH: &str = "expert_shared_feed_forward_length";
pub(super) const Q_NORM: &str = "blk.0.attn_q_norm.weight";

const GRANITE: &[Key] = &[
    Key::number("attention.scale", "attention_multiplier"),
    Key::number("embedding_scale", "embedding_multiplier"),
    Key::number("residual_scale", "residual_multiplier"),
    Key::number("logit_scale", "logits_scaling"),
];

pub(super) const GRANITE_MOE: &[Key] =
    &[GRANITE[0], GRANITE[1], GRANITE[2], GRANITE[3], NUM_EXPERTS, TOP_K];

/// Every architecture that is read, except those with states, those with sigmoid scores in
/// `sigmoids`, those in `authors`, and Gemma 3n and 4.
pub(super) const ARCHITECTURES: &[Architecture] = &[
    Architecture {
        name: "llama",
        class: "LlamaForCausalLM",
        variants: &[
            Variant::with("expert_count", "MixtralForCausalLM"),
            Variant::with("attention.sliding_window", "MistralForCausalLM"),
        ],
        is_interleaved: true,
        keys: &[WINDOW, NUM_EXPERTS, TOP_K],
        ..PLAIN
    },
    Architecture { name: "qwen2", class: "Qwen2ForCausalLM", ..PLAIN },
    Architecture { name: "qwen3", class: "Qwen3ForCausalLM", ..PLAIN },
    Architecture { name: "apertus", class: "ApertusForCausalLM", ..PLAIN },
    Architecture { name: "arcee", class: "ArceeForCausalLM", is_interleaved: true, ..PLAIN },
    Architecture { name: "bloom", class: "BloomForCausalLM", ..PLAIN },
    Architecture { name: "chatglm", class: "GlmForCausalLM", is_interleaved: true, ..PLAIN },
    Architecture {
        name: "command-r",
        class: "CohereForCausalLM",
        is_interleaved: true,
        constants: &[("use_qk_norm", HasTensor(Q_NORM))],
        keys: &[Key::number("logit_scale", "logit_scale")],
        ..PLAIN
    },
    Architecture {
        name: "cohere2",
        class: "Cohere2ForCausalLM",
        is_interleaved: true,
        keys: &[Key::number("logit_scale", "logit_scale"), ALWAYS_WINDOW, SAME_BASE],
        ..PLAIN
    },
    Architecture {
        name: "dbrx",
        class: "DbrxForCausalLM",
        norms: LayerNorms { before_mlp: Some("attn_output_norm"), ..NORMS },
        keys: &[
            Key::integer("attention.head_count_kv", "attn_config.kv_n_heads"),
            Key::number("attention.clamp_kqv", "attn_config.clip_qkv"),
            Key::integer("feed_forward_length", "ffn_config.ffn_hidden_size"),
            Key::integer("expert_count", "ffn_config.moe_num_experts"),
            Key::integer("expert_used_count", "ffn_config.moe_top_k"),
        ],
        ..PLAIN
    },
    Architecture {
        name: "deepseek2",
        class: "DeepseekV2ForCausalLM",
        // Experts with sigmoid scores, which the first files with such experts do not mention.
        variants: &[Variant {
            key: "expert_gating_func",
            least: 2,
            tensor: Some(".exp_probs_b.bias"),
            class: "DeepseekV3ForCausalLM",
        }],
        is_interleaved: true,
        constants: &[("norm_topk_prob", Flag(false)), ("routed_scaling_factor", Count(1))],
        keys: &[
            NUM_EXPERTS,
            TOP_K,
            EXPERT_WIDTH,
            NORMALIZED,
            Key::integer("expert_shared_count", "n_shared_experts"),
            Key::integer("leading_dense_block_count", "first_k_dense_replace"),
            Key::integer("expert_group_count", "n_group"),
            Key::integer("expert_group_used_count", "topk_group"),
            Key::number("expert_weights_scale", "routed_scaling_factor"),
        ],
        adjust: |metadata| {
            metadata.latent_scaling()?;
            if metadata.size("num_experts") == 0 {
                // A dense model.
                metadata.object.insert("architectures".to_owned(), json!(["YoutuForCausalLM"]));
                return Ok(());
            }
            metadata.old_groups();
            if metadata.size("n_group") > 1 && metadata.is_class("DeepseekV2ForCausalLM") {
                let method = "group_limited_greedy";
                metadata.object.insert("topk_method".to_owned(), method.into());
            }
            metadata.require_gating_up_to(2, "1, the softmax, or 2, the sigmoid")
        },
        ..PLAIN
    },
    Architecture { name: "ernie4_5", class: "Ernie4_5ForCausalLM", is_interleaved: true, ..PLAIN },
    Architecture {
        name: "ernie4_5-moe",
        class: "Ernie4_5_MoeForCausalLM",
        is_interleaved: true,
        constants: &[("moe_num_shared_experts", Count(0))],
        keys: &[
            NUM_EXPERTS,
            TOP_K,
            EXPERT_WIDTH,
            Key::integer("expert_shared_count", "moe_num_shared_experts"),
            Key::integer("leading_dense_block_count", "moe_layer_start_index"),
            Key::integer("interleave_moe_layer_step", "moe_layer_interval"),
        ],
        ..PLAIN
    },
    Architecture { name: "exaone", class: "ExaoneForCausalLM", ..PLAIN },
    Architecture {
        name: "exaone4",
        class: "Exaone4ForCausalLM",
        keys: &[WINDOW, SAME_BASE],
        ..PLAIN
    },
    Architecture {
        name: "falcon",
        class: "FalconForCausalLM",
        // These blocks with one norm compute what the older ones do.
        constants: &[
            ("new_decoder_architecture", Flag(true)),
            ("num_ln_in_parallel_attn", ByTensor("blk.0.attn_norm_2.weight", 2, 1)),
        ],
        ..PLAIN
    },
    Architecture { name: "gemma", class: "GemmaForCausalLM", ..PLAIN },
    Architecture {
        name: "gemma2",
        class: "Gemma2ForCausalLM",
        keys: &[
            ALWAYS_WINDOW,
            SAME_BASE,
            Key::number("attn_logit_softcapping", "attn_logit_softcapping"),
            Key::number("final_logit_softcapping", "final_logit_softcapping"),
        ],
        adjust: |metadata| gemma_scale(metadata, 46),
        ..PLAIN
    },
    Architecture {
        name: "gemma3",
        class: "Gemma3ForCausalLM",
        keys: &[
            WINDOW,
            Key::number("rope.freq_base_swa", "rope_local_base_freq"),
            Key::number("final_logit_softcapping", "final_logit_softcapping"),
        ],
        adjust: |metadata| gemma_scale(metadata, 62),
        ..PLAIN
    },
    // Also the text models of GLM-4.1V and, in the next one, GLM-4.5V.
    Architecture {
        name: "glm4",
        class: "Glm4ForCausalLM",
        is_interleaved: true,
        keys: &[SECTIONS],
        ..PLAIN
    },
    Architecture {
        name: "glm4moe",
        class: "Glm4MoeForCausalLM",
        norms: POST_ATTENTION,
        constants: &[("use_qk_norm", HasTensor(Q_NORM)), ("norm_topk_prob", Flag(false))],
        keys: &[
            NUM_EXPERTS,
            TOP_K,
            EXPERT_WIDTH,
            NORMALIZED,
            Key::integer("expert_shared_count", "n_shared_experts"),
            Key::integer("leading_dense_block_count", "first_k_dense_replace"),
            Key::integer("expert_group_count", "n_group"),
            Key::integer("expert_group_used_count", "topk_group"),
            Key::number("expert_weights_scale", "routed_scaling_factor"),
            SECTIONS,
        ],
        adjust: |metadata| metadata.require_gating(2, "2, the sigmoid"),
        ..PLAIN
    },
    Architecture { name: "gpt2", class: "GPT2LMHeadModel", ..PLAIN },
    Architecture {
        name: "gpt-oss",
        class: "GptOssForCausalLM",
        norms: POST_ATTENTION,
        keys: &[
            NUM_EXPERTS,
            TOP_K,
            Key::integer("expert_feed_forward_length", "intermediate_size"),
            ALWAYS_WINDOW,
            SAME_BASE,
        ],
        adjust: |metadata| {
            // llama.cpp rounds the ends of YaRN's ramp, and the model's authors do not.
            metadata.set_in_rope("truncate", false);
            metadata.require_gating(3, "3, the softmax of the chosen")
        },
        ..PLAIN
    },
    Architecture {
        name: "gptneox",
        class: "GPTNeoXForCausalLM",
        keys: &[Key::flag("use_parallel_residual", "use_parallel_residual")],
        ..PLAIN
    },
    Architecture {
        name: "granite",
        class: "GraniteForCausalLM",
        is_interleaved: true,
        keys: GRANITE,
        adjust: |metadata| metadata.require_positions(),
        ..PLAIN
    },
    Architecture {
        name: "granitemoe",
        class: "GraniteMoeForCausalLM",
        variants: &[Variant::with(SHARED_WIDTH, "GraniteMoeSharedForCausalLM")],
        is_interleaved: true,
        keys: &[
            GRANITE_MOE[0],
            GRANITE_MOE[1],
            GRANITE_MOE[2],
            GRANITE_MOE[3],
            NUM_EXPERTS,
            TOP_K,
            Key::integer(SHARED_WIDTH, "shared_intermediate_size"),
        ],
        adjust: |metadata| metadata.require_positions(),
        ..PLAIN
    },
    Architecture { name: "hunyuan-dense", class: "HunYuanDenseV1ForCausalLM", ..PLAIN },
    Architecture {
        name: "hunyuan-moe",
        class: "HunYuanMoEV1ForCausalLM",
        keys: &[
            NUM_EXPERTS,
            TOP_K,
            // Its class has one width for all.
            Key::equal("expert_feed_forward_length", "feed_forward_length"),
            Key::equal("expert_shared_feed_forward_length", "feed_forward_length"),
        ],
        ..PLAIN
    },
    Architecture {
        name: "internlm2",
        class: "InternLM2ForCausalLM",
        is_interleaved: true,
        ..PLAIN
    },
    Architecture { name: "jais2", class: "Jais2ForCausalLM", ..PLAIN },
    Architecture {
        name: "llama4",
        class: "Llama4ForCausalLM",
        is_interleaved: true,
        // Every fourth layer reads all tokens, without positions, as by default in its class. The
        // constants of llama.cpp for these layers are the defaults, too.
        constants: &[("attention_chunk_size", Count(8_192))],
        keys: &[
            NUM_EXPERTS,
            TOP_K,
            Key::integer("feed_forward_length", "intermediate_size_mlp"),
            Key::integer("expert_feed_forward_length", "intermediate_size"),
            Key::integer("interleave_moe_layer_step", "interleave_moe_layer_step"),
        ],
        adjust: |metadata| {
            // Maverick has 128 experts, and no norms of heads.
            let has_norms = metadata.size("num_experts") != 128;
            metadata.object.insert("use_qk_norm".to_owned(), has_norms.into());
            metadata.require_gating(2, "2, the sigmoid")
        },
        ..PLAIN
    },
    Architecture {
        name: "mellum",
        class: "MellumForCausalLM",
        constants: &[("norm_topk_prob", Flag(true))],
        keys: &[WINDOW, NUM_EXPERTS, TOP_K, EXPERT_WIDTH, NORMALIZED],
        adjust: |metadata| {
            metadata.default_window_pattern(4);
            Ok(())
        },
        ..PLAIN
    },
    Architecture {
        name: "minicpm",
        class: "MiniCPMForCausalLM",
        is_interleaved: true,
        // The published models' factors, for files from before the keys. llama.cpp divides logits
        // by the inverse of the right number there.
        constants: &[("scale_emb", Count(12)), ("dim_model_base", Count(256))],
        keys: &[Key::number("embedding_scale", "scale_emb")],
        adjust: |metadata| metadata.minicpm_scales(),
        ..PLAIN
    },
    Architecture {
        name: "minicpm3",
        class: "MiniCPM3ForCausalLM",
        constants: &[("scale_emb", Count(12)), ("dim_model_base", Count(256))],
        ..PLAIN
    },
    Architecture {
        name: "minimax-m2",
        class: "MiniMaxM2ForCausalLM",
        keys: &[
            NUM_EXPERTS,
            TOP_K,
            Key::integer("expert_feed_forward_length", "intermediate_size"),
        ],
        adjust: |metadata| metadata.require_gating(2, "2, the sigmoid"),
        ..PLAIN
    },
    Architecture {
        name: "mistral3",
        class: "Ministral3ForCausalLM",
        is_interleaved: true,
        keys: &[WINDOW],
        adjust: |metadata| metadata.mistral_scaling(),
        ..PLAIN
    },
    Architecture {
        name: "mpt",
        class: "MptForCausalLM",
        keys: &[
            Key::number("attention.clamp_kqv", "attn_config.clip_qkv"),
            Key::number("attention.max_alibi_bias", "attn_config.alibi_bias_max"),
        ],
        adjust: |metadata| metadata.require_alibi(),
        ..PLAIN
    },
    Architecture { name: "nemotron", class: "NemotronForCausalLM", ..PLAIN },
    Architecture {
        name: "olmo",
        class: "OlmoForCausalLM",
        is_interleaved: true,
        keys: &[Key::number("attention.clamp_kqv", "clip_qkv")],
        adjust: |metadata| metadata.require_unbiased(),
        ..PLAIN
    },
    Architecture {
        name: "olmo2",
        class: "Olmo2ForCausalLM",
        variants: &[Variant::with("attention.sliding_window", "Olmo3ForCausalLM")],
        keys: &[WINDOW, SAME_BASE],
        ..PLAIN
    },
    Architecture {
        name: "olmoe",
        class: "OlmoeForCausalLM",
        constants: &[("norm_topk_prob", Flag(false))],
        keys: &[NUM_EXPERTS, TOP_K, NORMALIZED],
        ..PLAIN
    },
    Architecture { name: "phi2", class: "PhiForCausalLM", ..PLAIN },
    Architecture { name: "phi3", class: "Phi3ForCausalLM", keys: &[WINDOW], ..PLAIN },
    Architecture {
        name: "phimoe",
        class: "PhimoeForCausalLM",
        constants: &[("lm_head_bias", HasTensor("output.bias"))],
        keys: &[WINDOW, NUM_EXPERTS, TOP_K],
        ..PLAIN
    },
    Architecture {
        name: "qwen2moe",
        class: "Qwen2MoeForCausalLM",
        constants: &[("norm_topk_prob", Flag(false))],
        keys: &[
            NUM_EXPERTS,
            TOP_K,
            EXPERT_WIDTH,
            NORMALIZED,
            Key::integer("expert_shared_feed_forward_length", "shared_expert_intermediate_size"),
        ],
        ..PLAIN
    },
    Architecture {
        name: "qwen3moe",
        class: "Qwen3MoeForCausalLM",
        constants: &[("norm_topk_prob", Flag(true))],
        keys: &[NUM_EXPERTS, TOP_K, EXPERT_WIDTH, NORMALIZED],
        ..PLAIN
    },
    Architecture { name: "seed_oss", class: "SeedOssForCausalLM", norms: POST_ATTENTION, ..PLAIN },
    Architecture { name: "smollm3", class: "SmolLM3ForCausalLM", is_interleaved: true, ..PLAIN },
    Architecture {
        name: "stablelm",
        class: "StableLmForCausalLM",
        // The converter writes its key by another default than the config class has.
        constants: &[
            ("qk_layernorm", HasTensor(Q_NORM)),
            ("use_parallel_residual", LacksTensor("blk.0.ffn_norm.weight")),
        ],
        keys: &[Key { name: "use_parallel_residual", field: "", form: Form::Unused }],
        ..PLAIN
    },
    Architecture {
        name: "starcoder",
        class: "GPTBigCodeForCausalLM",
        adjust: |metadata| metadata.multi_query(),
        ..PLAIN
    },
    Architecture { name: "starcoder2", class: "Starcoder2ForCausalLM", ..PLAIN },
    Architecture {
        name: "xverse",
        class: "LlamaForCausalLM",
        is_interleaved: true,
        // The converter orders the rows of fewer key heads otherwise. Published models have none.
        keys: &[Key::equal("attention.head_count_kv", "attention.head_count")],
        ..PLAIN
    },
];

/// Sets the factor of scores, which no key has. It is the root of the width of a head, except in
/// the 27B models, which have `layers` layers: the root of the hidden size for each head.
fn gemma_scale(metadata: &mut Metadata<'_>, layers: u64) -> Result<(), GgufError> {
    let size = |field: &str| metadata.size(field);
    let scalar = match size("num_hidden_layers") == layers {
        true => size("hidden_size").checked_div(size("num_attention_heads")).unwrap_or(0),
        false => size("head_dim"),
    };
    metadata.object.insert("query_pre_attn_scalar".to_owned(), scalar.into());
    Ok(())
}
