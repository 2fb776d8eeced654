//! Giga Embeddings: `DeepseekV3BidirectionalModel` of its authors' folder and of vLLM.
//!
//! DeepSeek V3 with attention to both sides. The vector of a text is that of the files of
//! sentence-transformers, by default that of the last token.

use super::{
    ConfigError, EncoderClass, EncoderHead, Family, Fields, Mixer, MixerKind, ModelConfig,
    PoolingField, attend_to_both_sides, deepseek_v3, require_flag,
};

pub(super) const FAMILY: Family = Family {
    architecture: "DeepseekV3BidirectionalModel",
    model_type: "deepseek_v3_bidirec",
    other_model_types: &[],
    models: "Giga Embeddings Instruct 10B A1.8B",
    mixers: &[MixerKind::LatentBothSides],
    adjust,
    ..deepseek_v3::FAMILY
};

/// As in vLLM, where no file has a pooling.
const POOLING: PoolingField =
    PoolingField { field: "pooling", default: "last", accepted: &["last", "mean", "cls"] };

pub(super) const CLASSES: &[EncoderClass] = &[EncoderClass {
    architecture: "DeepseekV3BidirectionalModel",
    family: &FAMILY,
    head: EncoderHead::Pooled(POOLING),
}];

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    (deepseek_v3::FAMILY.adjust)(fields, config)?;
    require_flag(fields, "is_causal", false)?;
    for layer in &mut config.layers {
        if let Mixer::Latent(latent) = &mut layer.mixer {
            latent.is_causal = false;
        }
    }
    attend_to_both_sides(config);
    Ok(())
}
