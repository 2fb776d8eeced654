//! The supported architectures of llama.cpp whose layers carry states, as data: scans, delta rules,
//! short convolutions and lightning attention.

use super::architecture::Constant::{Count, Flag, HasTensorIn};
use super::architecture::{Architecture, Key, LayerTypes, Variant};
use super::architectures::{
    EXPERT_WIDTH, GRANITE_MOE, NORMALIZED, NORMS, NUM_EXPERTS, PLAIN, POST_ATTENTION, TOP_K,
};
use super::metadata::Metadata;
use super::sigmoids::unused;
use crate::gguf::GgufError;
use crate::model::family::LayerNorms;

/// Mamba 2 beside attention.
const MAMBA: [Key; 4] = [
    Key::integer("ssm.conv_kernel", "mamba_d_conv"),
    Key::integer("ssm.state_size", "mamba_d_state"),
    Key::integer("ssm.group_count", "mamba_n_groups"),
    Key::integer("ssm.time_step_rank", "mamba_n_heads"),
];

/// The key of LFM2 that encoders alone have.
const CAUSAL: &str = "attention.causal";

/// Models whose layers are one part each.
const NEMOTRON_H: Architecture = Architecture {
    name: "nemotron_h",
    class: "NemotronHForCausalLM",
    is_interleaved: true,
    layer_types: LayerTypes::Parts("mlp"),
    norms: LayerNorms { before_mlp: Some("attn_norm"), ..NORMS },
    constants: &[
        ("use_conv_bias", HasTensorIn("ssm_conv1d.bias")),
        ("mlp_bias", HasTensorIn("ffn_up.bias")),
        ("norm_topk_prob", Flag(false)),
        ("n_group", Count(1)),
        ("topk_group", Count(1)),
        ("routed_scaling_factor", Count(1)),
    ],
    keys: &[
        Key::integer("ssm.conv_kernel", "conv_kernel"),
        Key::integer("ssm.state_size", "ssm_state_size"),
        Key::integer("ssm.group_count", "n_groups"),
        Key::integer("ssm.time_step_rank", "mamba_num_heads"),
    ],
    adjust: |metadata| metadata.head_of("ssm.inner_size", "mamba_num_heads", "mamba_head_dim"),
    ..PLAIN
};

const DELTA_NET: [Key; 5] = [
    Key::integer("full_attention_interval", "full_attention_interval"),
    Key::integer("ssm.conv_kernel", "linear_conv_kernel_dim"),
    Key::integer("ssm.state_size", "linear_key_head_dim"),
    Key::integer("ssm.group_count", "linear_num_key_heads"),
    Key::integer("ssm.time_step_rank", "linear_num_value_heads"),
];
/// A token of text has the same position on all axes.
pub(super) const SECTIONS: Key = unused("rope.dimension_sections");

fn delta_net(metadata: &mut Metadata<'_>) -> Result<(), GgufError> {
    metadata.head_of("ssm.inner_size", "linear_num_value_heads", "linear_value_head_dim")?;
    metadata.recurrent_layers()
}

/// Every architecture with states that is read.
pub(super) const WITH_STATES: &[Architecture] = &[
    Architecture {
        name: "falcon-h1",
        class: "FalconH1ForCausalLM",
        is_multiplied: true,
        constants: &[
            ("mamba_conv_bias", HasTensorIn("ssm_conv1d.bias")),
            ("mamba_rms_norm", HasTensorIn("ssm_norm.weight")),
            ("mamba_norm_before_gate", Flag(false)),
        ],
        keys: &[
            MAMBA[0],
            MAMBA[1],
            MAMBA[2],
            MAMBA[3],
            Key::integer("ssm.inner_size", "mamba_d_ssm"),
        ],
        adjust: |metadata| metadata.head_of("ssm.inner_size", "mamba_n_heads", "mamba_d_head"),
        ..PLAIN
    },
    Architecture {
        name: "granitehybrid",
        class: "GraniteMoeHybridForCausalLM",
        // The converter writes true for Bamba alone.
        variants: &[Variant::with("rope.scaling.finetuned", "BambaForCausalLM")],
        is_interleaved: true,
        is_permuted_whole: true,
        layer_types: LayerTypes::KeyHeads(["mamba", "attention"]),
        constants: &[
            ("mamba_conv_bias", HasTensorIn("ssm_conv1d.bias")),
            ("num_experts", Count(0)),
        ],
        keys: &[
            GRANITE_MOE[0],
            GRANITE_MOE[1],
            GRANITE_MOE[2],
            GRANITE_MOE[3],
            NUM_EXPERTS,
            TOP_K,
            MAMBA[0],
            MAMBA[1],
            MAMBA[2],
            MAMBA[3],
        ],
        adjust: |metadata| {
            metadata.head_of("ssm.inner_size", "mamba_n_heads", "mamba_d_head")?;
            metadata.expansion("ssm.inner_size", "mamba_expand")?;
            if metadata.is_class("BambaForCausalLM") {
                // All but the number of experts that a token takes, which means nothing.
                metadata.bamba(&GRANITE_MOE[..5]);
                return Ok(());
            }
            metadata.granite_positions();
            metadata.shared_width()
        },
        ..PLAIN
    },
    Architecture {
        name: "jamba",
        class: "JambaForCausalLM",
        layer_types: LayerTypes::KeyHeads(["mamba", "attention"]),
        constants: &[
            ("mamba_conv_bias", HasTensorIn("ssm_conv1d.bias")),
            ("num_experts", Count(1)),
        ],
        keys: &[
            NUM_EXPERTS,
            TOP_K,
            MAMBA[0],
            MAMBA[1],
            Key::integer("ssm.time_step_rank", "mamba_dt_rank"),
        ],
        adjust: |metadata| {
            metadata.expansion("ssm.inner_size", "mamba_expand")?;
            metadata.jamba_periods()
        },
        ..PLAIN
    },
    Architecture {
        name: "lfm2",
        class: "Lfm2ForCausalLM",
        variants: &[Variant {
            key: CAUSAL,
            least: 0,
            tensor: None,
            class: "Lfm2BidirectionalModel",
        }],
        layer_types: LayerTypes::KeyHeads(["conv", "full_attention"]),
        // The key has the width after the adjustment.
        constants: &[("block_auto_adjust_ff_dim", Flag(false))],
        keys: &[Key::integer("shortconv.l_cache", "conv_L_cache")],
        adjust: |metadata| {
            let key = metadata.key(CAUSAL);
            match metadata.file.flag(&key)? {
                Some(true) => Err(metadata.file.unexpected(&key, "false, or no such key")),
                Some(false) => metadata.pooling(),
                None => Ok(()),
            }
        },
        ..PLAIN
    },
    Architecture {
        name: "lfm2moe",
        class: "Lfm2MoeForCausalLM",
        layer_types: LayerTypes::KeyHeads(["conv", "full_attention"]),
        constants: &[("norm_topk_prob", Flag(true)), ("routed_scaling_factor", Count(1))],
        keys: &[
            Key::integer("shortconv.l_cache", "conv_L_cache"),
            NUM_EXPERTS,
            TOP_K,
            EXPERT_WIDTH,
            Key::integer("leading_dense_block_count", "num_dense_layers"),
            Key::number("expert_weights_scale", "routed_scaling_factor"),
        ],
        adjust: |metadata| metadata.require_gating(2, "2, the sigmoid"),
        ..PLAIN
    },
    Architecture {
        name: "mamba",
        class: "MambaForCausalLM",
        variants: &[Variant::with("ssm.dt_b_c_rms", "FalconMambaForCausalLM")],
        constants: &[("use_conv_bias", HasTensorIn("ssm_conv1d.bias"))],
        keys: &[
            Key::integer("ssm.conv_kernel", "conv_kernel"),
            Key::integer("ssm.inner_size", "intermediate_size"),
            Key::integer("ssm.state_size", "state_size"),
            Key::integer("ssm.time_step_rank", "time_step_rank"),
        ],
        ..PLAIN
    },
    Architecture {
        name: "mamba2",
        class: "Mamba2ForCausalLM",
        constants: &[("use_conv_bias", HasTensorIn("ssm_conv1d.bias"))],
        keys: &[
            Key::integer("ssm.conv_kernel", "conv_kernel"),
            Key::integer("ssm.state_size", "state_size"),
            Key::integer("ssm.group_count", "n_groups"),
            Key::integer("ssm.time_step_rank", "num_heads"),
        ],
        adjust: |metadata| {
            metadata.head_of("ssm.inner_size", "num_heads", "head_dim")?;
            metadata.expansion("ssm.inner_size", "expand")
        },
        ..PLAIN
    },
    Architecture {
        name: "minimax-01",
        class: "MiniMaxForCausalLM",
        keys: &[NUM_EXPERTS, TOP_K],
        adjust: |metadata| {
            metadata.lightning_layers()?;
            metadata.rotary_dim()?;
            metadata.minimax_factors()
        },
        ..PLAIN
    },
    NEMOTRON_H,
    Architecture {
        name: "nemotron_h_moe",
        layer_types: LayerTypes::Parts("moe"),
        keys: &[
            NEMOTRON_H.keys[0],
            NEMOTRON_H.keys[1],
            NEMOTRON_H.keys[2],
            NEMOTRON_H.keys[3],
            NUM_EXPERTS,
            TOP_K,
            EXPERT_WIDTH,
            NORMALIZED,
            Key::integer(
                "expert_shared_feed_forward_length",
                "moe_shared_expert_intermediate_size",
            ),
            Key::integer("expert_group_count", "n_group"),
            Key::integer("expert_group_used_count", "topk_group"),
            Key::number("expert_weights_scale", "routed_scaling_factor"),
            Key::integer("moe_latent_size", "moe_latent_size"),
        ],
        adjust: |metadata| {
            (NEMOTRON_H.adjust)(metadata)?;
            metadata.require_gating(2, "2, the sigmoid")
        },
        ..NEMOTRON_H
    },
    Architecture {
        name: "qwen35",
        class: "Qwen3_5ForCausalLM",
        norms: POST_ATTENTION,
        keys: &[DELTA_NET[0], DELTA_NET[1], DELTA_NET[2], DELTA_NET[3], DELTA_NET[4], SECTIONS],
        adjust: delta_net,
        ..PLAIN
    },
    Architecture {
        name: "qwen35moe",
        class: "Qwen3_5MoeForCausalLM",
        norms: POST_ATTENTION,
        keys: &[
            NUM_EXPERTS,
            TOP_K,
            EXPERT_WIDTH,
            Key::integer("expert_shared_feed_forward_length", "shared_expert_intermediate_size"),
            DELTA_NET[0],
            DELTA_NET[1],
            DELTA_NET[2],
            DELTA_NET[3],
            DELTA_NET[4],
            SECTIONS,
        ],
        adjust: delta_net,
        ..PLAIN
    },
    Architecture {
        name: "qwen3next",
        class: "Qwen3NextForCausalLM",
        norms: POST_ATTENTION,
        constants: &[("norm_topk_prob", Flag(true))],
        keys: &[
            NUM_EXPERTS,
            TOP_K,
            EXPERT_WIDTH,
            NORMALIZED,
            Key::integer("expert_shared_feed_forward_length", "shared_expert_intermediate_size"),
            DELTA_NET[0],
            DELTA_NET[1],
            DELTA_NET[2],
            DELTA_NET[3],
            DELTA_NET[4],
        ],
        adjust: delta_net,
        ..PLAIN
    },
];
