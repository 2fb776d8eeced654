//! Architectures of llama.cpp whose experts have sigmoid scores, as data.

use super::architecture::Constant::{Count, Flag};
use super::architecture::{ALWAYS_WINDOW, Architecture, Form, Key, SAME_BASE, WINDOW};
use super::architectures::{EXPERT_WIDTH, NORMALIZED, NUM_EXPERTS, PLAIN, TOP_K};
use super::metadata::Metadata;
use crate::gguf::GgufError;

const DENSE_LAYERS: Key = Key::integer("leading_dense_block_count", "first_k_dense_replace");
const GROUPS: [Key; 2] = [
    Key::integer("expert_group_count", "n_group"),
    Key::integer("expert_group_used_count", "topk_group"),
];
const SCALE: Key = Key::number("expert_weights_scale", "routed_scaling_factor");

/// DeepSeek V3's attention to tokens that an indexer chooses. Contexts are at most as long as its
/// choice, so that nothing reads its other sizes.
const INDEXED: Architecture = Architecture {
    name: "deepseek32",
    class: "DeepseekV32ForCausalLM",
    is_interleaved: true,
    constants: &[
        ("norm_topk_prob", Flag(false)),
        ("routed_scaling_factor", Count(1)),
        ("n_group", Count(1)),
        ("topk_group", Count(1)),
        ("first_k_dense_replace", Count(0)),
        ("num_nextn_predict_layers", Count(0)),
    ],
    keys: &[
        NUM_EXPERTS,
        TOP_K,
        EXPERT_WIDTH,
        NORMALIZED,
        Key::integer("expert_shared_count", "n_shared_experts"),
        DENSE_LAYERS,
        GROUPS[0],
        GROUPS[1],
        SCALE,
        Key::integer("attention.indexer.top_k", "index_topk"),
        unused("attention.indexer.head_count"),
        unused("attention.indexer.key_length"),
        unused("attention.indexer.types"),
    ],
    adjust: |metadata| {
        metadata.latent_scaling()?;
        of_sigmoids(metadata)
    },
    ..PLAIN
};

/// Every architecture of this kind that is read, except those among the others.
pub(super) const SIGMOIDS: &[Architecture] = &[
    Architecture {
        name: "afmoe",
        class: "AfmoeForCausalLM",
        constants: &[
            ("mup_enabled", Flag(true)),
            ("route_norm", Flag(false)),
            ("num_dense_layers", Count(0)),
            ("num_shared_experts", Count(0)),
        ],
        keys: &[
            WINDOW,
            SAME_BASE,
            NUM_EXPERTS,
            TOP_K,
            EXPERT_WIDTH,
            Key::flag("expert_weights_norm", "route_norm"),
            Key::number("expert_weights_scale", "route_scale"),
            Key::integer("expert_shared_count", "num_shared_experts"),
            Key::integer("leading_dense_block_count", "num_dense_layers"),
        ],
        adjust: |metadata| {
            metadata.require_window()?;
            of_sigmoids(metadata)
        },
        ..PLAIN
    },
    INDEXED,
    Architecture {
        name: "dots1",
        class: "Dots1ForCausalLM",
        constants: &[("norm_topk_prob", Flag(false)), ("routed_scaling_factor", Count(1))],
        keys: &[
            WINDOW,
            NUM_EXPERTS,
            TOP_K,
            EXPERT_WIDTH,
            NORMALIZED,
            Key::integer("expert_shared_count", "n_shared_experts"),
            DENSE_LAYERS,
            GROUPS[0],
            GROUPS[1],
            SCALE,
        ],
        adjust: of_sigmoids,
        ..PLAIN
    },
    Architecture {
        name: "exaone-moe",
        class: "ExaoneMoeForCausalLM",
        constants: &[
            ("norm_topk_prob", Flag(false)),
            ("routed_scaling_factor", Count(1)),
            ("first_k_dense_replace", Count(0)),
            ("num_shared_experts", Count(0)),
        ],
        keys: &[
            ALWAYS_WINDOW,
            SAME_BASE,
            NUM_EXPERTS,
            TOP_K,
            EXPERT_WIDTH,
            NORMALIZED,
            Key::integer("expert_shared_count", "num_shared_experts"),
            DENSE_LAYERS,
            GROUPS[0],
            GROUPS[1],
            SCALE,
        ],
        adjust: of_sigmoids,
        ..PLAIN
    },
    Architecture { name: "glm-dsa", class: "GlmMoeDsaForCausalLM", adjust: of_sigmoids, ..INDEXED },
    Architecture {
        name: "hy_v3",
        class: "HYV3ForCausalLM",
        constants: &[
            ("route_norm", Flag(false)),
            ("router_scaling_factor", Count(1)),
            ("num_nextn_predict_layers", Count(0)),
        ],
        keys: &[
            NUM_EXPERTS,
            TOP_K,
            EXPERT_WIDTH,
            Key::flag("expert_weights_norm", "route_norm"),
            Key::number("expert_weights_scale", "router_scaling_factor"),
        ],
        adjust: |metadata| {
            metadata.shared_experts()?;
            metadata.sparse_layers();
            of_sigmoids(metadata)
        },
        ..PLAIN
    },
];

pub(super) const fn unused(name: &'static str) -> Key {
    Key { name, field: "", form: Form::Unused }
}

fn of_sigmoids(metadata: &mut Metadata<'_>) -> Result<(), GgufError> {
    metadata.require_gating(2, "2, the sigmoid")
}

impl Metadata<'_> {
    /// Sets the layers that have experts, which no key tells.
    fn sparse_layers(&mut self) {
        let router = |layer| format!("blk.{layer}.ffn_gate_inp.weight");
        let kind = |layer: u64| match self.file.tensor(&router(layer)).is_some() {
            true => "sparse",
            false => "dense",
        };
        // The config refuses more layers than this.
        let count = self.size("num_hidden_layers").min(1 << 16);
        let kinds: Vec<&str> = (0..count).map(kind).collect();
        self.object.insert("mlp_layer_types".to_owned(), kinds.into());
    }

    /// Sets the number of experts of all tokens by their width together.
    fn shared_experts(&mut self) -> Result<(), GgufError> {
        let key = self.key("expert_shared_feed_forward_length");
        let each = self.size("moe_intermediate_size");
        let Some(all) = self.file.unsigned(&key)? else { return Ok(()) };
        match all.checked_div(each).filter(|count| *count > 0 && count * each == all) {
            Some(count) => {
                self.set("num_shared_experts", key, count);
                Ok(())
            }
            None => {
                let expected = format!("a multiple of {each}, the width of an expert");
                Err(self.file.unexpected(&key, expected))
            }
        }
    }
}
