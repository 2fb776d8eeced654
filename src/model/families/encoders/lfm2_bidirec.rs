//! LFM2.5 Embedding: `Lfm2BidirectionalModel` of Liquid AI's folders and of vLLM.
//!
//! LFM2 with attention to both sides, and with convolutions over the tokens around each one. The
//! vector of a text is by default that of the first token.

use super::{
    ConfigError, EncoderClass, EncoderHead, Family, Fields, Mixer, ModelConfig, PoolingField,
    RecurrentConfig, attend_to_both_sides, lfm2, require_flag,
};

pub(super) const FAMILY: Family = Family {
    architecture: "Lfm2BidirectionalModel",
    other_model_types: &["lfm2_bidirectional"],
    models: "LFM2.5 Embedding 350M",
    adjust,
    ..lfm2::FAMILY
};

/// The field of files of llama.cpp. Folders have the pooling in `modules.json`.
const POOLING: PoolingField =
    PoolingField { field: "emb_pooler", default: "cls", accepted: &["cls", "mean"] };

pub(super) const CLASSES: &[EncoderClass] = &[EncoderClass {
    architecture: "Lfm2BidirectionalModel",
    family: &FAMILY,
    head: EncoderHead::Pooled(POOLING),
}];

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    (lfm2::FAMILY.adjust)(fields, config)?;
    require_flag(fields, "is_causal", false)?;
    for layer in &mut config.layers {
        if let Mixer::Recurrent(RecurrentConfig::ShortConv(conv)) = &mut layer.mixer {
            conv.is_causal = false;
        }
    }
    attend_to_both_sides(config);
    Ok(())
}
