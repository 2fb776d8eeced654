//! InternLM2 and InternLM2.5: `InternLM2ForCausalLM` of their folders' own code, and of vLLM.
//!
//! Llama with one matrix for queries, keys and values, in groups of heads, and names of its own
//! (<https://arxiv.org/abs/2403.17297>).

use super::{AttentionNames, Bias, Family, LayerNorms, MlpNames, QkvNames, WeightNames, llama};

pub(super) const FAMILY: Family = Family {
    architecture: "InternLM2ForCausalLM",
    model_type: "internlm2",
    models: "InternLM2, InternLM2.5",
    qkv_bias: Bias::IfSet("bias"),
    o_bias: Bias::IfSet("bias"),
    mlp_bias: Bias::Never,
    names: WeightNames {
        embed_tokens: "model.tok_embeddings",
        norms: LayerNorms {
            before_attention: Some("attention_norm"),
            after_attention: None,
            before_mlp: Some("ffn_norm"),
            after_mlp: None,
        },
        attention: AttentionNames {
            qkv: QkvNames::Grouped("attention.wqkv"),
            q_norm: None,
            k_norm: None,
            o_proj: "attention.wo",
        },
        mlp: MlpNames {
            inner: &["feed_forward.w1", "feed_forward.w3"],
            down_proj: "feed_forward.w2",
        },
        lm_head: "output",
        ..llama::NAMES
    },
    ..llama::FAMILY
};
