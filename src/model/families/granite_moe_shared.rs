//! Granite 3 with experts, and one expert of all tokens: HF `GraniteMoeSharedForCausalLM`.

use super::{
    ConfigError, Family, FeedForward, Fields, MlpNames, ModelConfig, MoeNames, SharedExpert,
    WeightNames, granite_moe,
};

pub(super) const FAMILY: Family = Family {
    architecture: "GraniteMoeSharedForCausalLM",
    model_type: "granitemoeshared",
    models: "Granite 3 with a shared expert",
    names: WeightNames {
        moe: MoeNames {
            shared: MlpNames {
                inner: &["shared_mlp.input_linear"],
                down_proj: "shared_mlp.output_linear",
            },
            ..granite_moe::FAMILY.names.moe
        },
        ..granite_moe::FAMILY.names
    },
    adjust,
    ..granite_moe::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    granite_moe::adjust(fields, config)?;
    let Some(intermediate_size) =
        fields.count("shared_intermediate_size")?.filter(|size| *size > 0)
    else {
        return Ok(());
    };
    for layer in &mut config.layers {
        if let FeedForward::Moe(moe) = &mut layer.feed_forward {
            moe.shared = Some(SharedExpert { intermediate_size, has_gate: false });
        }
    }
    Ok(())
}
