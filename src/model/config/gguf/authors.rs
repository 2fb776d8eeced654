//! Architectures of llama.cpp for models whose code is in their authors' folders, as data.

use serde_json::json;

use super::architecture::Constant::{Count, Flag, HasTensor};
use super::architecture::{Architecture, Key, LayerTypes};
use super::architectures::{EXPERT_WIDTH, NORMALIZED, NUM_EXPERTS, PLAIN, Q_NORM, TOP_K};

const NUM_SHARED: Key = Key::integer("expert_shared_count", "num_shared_experts");
const DENSE_LAYERS: Key = Key::integer("leading_dense_block_count", "first_k_dense_replace");
const SCALE: Key = Key::number("expert_weights_scale", "routed_scaling_factor");

/// Every architecture of this kind that is read.
pub(super) const OF_AUTHORS: &[Architecture] = &[
    Architecture {
        name: "baichuan",
        class: "BaichuanForCausalLM",
        is_interleaved: true,
        adjust: |metadata| {
            // llama.cpp knows the models with ALiBi by their number of layers.
            if metadata.size("num_hidden_layers") != 40 {
                let class = json!(["BaiChuanForCausalLM"]);
                metadata.object.insert("architectures".to_owned(), class);
            }
            Ok(())
        },
        ..PLAIN
    },
    Architecture {
        name: "bailingmoe",
        class: "BailingMoeForCausalLM",
        is_interleaved: true,
        constants: &[("norm_topk_prob", Flag(false))],
        keys: &[NUM_EXPERTS, TOP_K, EXPERT_WIDTH, NORMALIZED, NUM_SHARED, DENSE_LAYERS, SCALE],
        adjust: |metadata| metadata.require_gating(1, "1, the softmax"),
        ..PLAIN
    },
    // Also Sarvam 30B.
    Architecture {
        name: "bailingmoe2",
        class: "BailingMoeV2ForCausalLM",
        constants: &[
            ("use_qk_norm", HasTensor(Q_NORM)),
            ("norm_topk_prob", Flag(false)),
            ("n_group", Count(1)),
            ("topk_group", Count(1)),
        ],
        keys: &[
            NUM_EXPERTS,
            TOP_K,
            EXPERT_WIDTH,
            NORMALIZED,
            NUM_SHARED,
            Key::integer(
                "expert_shared_feed_forward_length",
                "moe_shared_expert_intermediate_size",
            ),
            DENSE_LAYERS,
            SCALE,
            Key::integer("expert_group_count", "n_group"),
            Key::integer("expert_group_used_count", "topk_group"),
        ],
        adjust: |metadata| metadata.require_gating(2, "2, the sigmoid"),
        ..PLAIN
    },
    Architecture {
        name: "deepseek",
        class: "DeepseekForCausalLM",
        is_interleaved: true,
        keys: &[
            NUM_EXPERTS,
            TOP_K,
            EXPERT_WIDTH,
            Key::integer("expert_shared_count", "n_shared_experts"),
            DENSE_LAYERS,
        ],
        ..PLAIN
    },
    Architecture {
        name: "deci",
        class: "DeciLMForCausalLM",
        is_interleaved: true,
        layer_types: LayerTypes::Blocks,
        ..PLAIN
    },
    Architecture {
        name: "nanbeige",
        class: "NanbeigeForCausalLM",
        is_interleaved: true,
        keys: &[
            Key::integer("num_loops", "num_loops"),
            Key::flag("skip_loop_final_norm", "skip_loop_final_norm"),
        ],
        ..PLAIN
    },
    Architecture { name: "orion", class: "OrionForCausalLM", ..PLAIN },
    Architecture { name: "pangu-embedded", class: "PanguEmbeddedForCausalLM", ..PLAIN },
];
