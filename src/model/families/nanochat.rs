//! nanochat: HF `NanoChatForCausalLM`.
//!
//! Llama with squared ReLU in place of a gate, and a cap of logits. Norms have no weights. There
//! are norms of embeddings, and norms after the rotation of heads. Heads rotate backwards.

use super::{
    Bias, ConfigError, Defaults, Family, Fields, HeadNormRule, MlpNames, MlpRule, ModelConfig,
    NormKind, NormRule, WeightNames, llama,
};

pub(super) const FAMILY: Family = Family {
    architecture: "NanoChatForCausalLM",
    model_type: "nanochat",
    models: "nanochat",
    defaults: Defaults { intermediate_size: Some(8_192), ..llama::DEFAULTS },
    mlp_bias: Bias::Never,
    norm: NormRule { kind: NormKind::RmsUnweighted, eps: "rms_norm_eps" },
    mlp: MlpRule { is_gated: false, field: "hidden_act", activation: "relu2" },
    names: WeightNames {
        mlp: MlpNames { inner: &["mlp.fc1"], down_proj: "mlp.fc2" },
        ..llama::NAMES
    },
    adjust,
    ..llama::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    config.embedding.has_norm = true;
    for attention in config.attentions() {
        attention.head_norm = Some(HeadNormRule::Unit);
        attention.norms_after_rope = true;
        if let Some(rope) = &mut attention.rope {
            rope.is_backward = true;
        }
    }
    const CAP: &str = "final_logit_softcapping";
    let default = (!fields.has(CAP)).then_some(15.0);
    config.logits.soft_cap = fields.positive(CAP)?.or(default).map(|cap| cap as f32);
    Ok(())
}
