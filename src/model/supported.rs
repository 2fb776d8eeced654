//! The list of supported models that `playhouse models` prints.

use super::config::{WindowRule, gguf_architectures};
use super::families::FAMILIES;
use super::family::{Bias, Family, HeadNormRule, NormKind, PositionRule};

/// The models of one architecture.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct SupportedModels {
    /// Their entry in `architectures` of `config.json`.
    pub architecture: &'static str,
    /// Their `model_type`.
    pub model_type: &'static str,
    /// The published models.
    pub models: &'static str,
    /// The parts that differ from Llama, and the fields that turn parts on.
    pub options: Vec<String>,
}

/// Returns the models of each architecture of this crate.
#[must_use]
pub fn supported_models() -> Vec<SupportedModels> {
    FAMILIES.iter().map(|family| SupportedModels::of(family)).collect()
}

impl SupportedModels {
    fn of(family: &Family) -> Self {
        let mut options = Vec::new();
        let mut option = |text: &str| options.push(text.to_owned());
        match family.positions {
            PositionRule::Rotary { is_interleaved: true, .. } => {
                option("rotary pairs of neighbours")
            }
            PositionRule::Rotary { percent, .. } if percent < 100 => {
                option(&format!("{percent} % of a head rotates"));
            }
            PositionRule::Rotary { .. } => {}
            PositionRule::None if !family.names.mamba.is_empty() => option("no positions"),
            PositionRule::None if family.names.embed_positions.is_empty() => option("ALiBi"),
            PositionRule::None => option("learned positions"),
        }
        match family.windows {
            WindowRule::Never => {}
            WindowRule::Always => option("sliding window"),
            WindowRule::IfSet => option("sliding window (sliding_window)"),
            WindowRule::FromMaxWindowLayers
            | WindowRule::IfUsed
            | WindowRule::EveryOther
            | WindowRule::WithoutRope => {
                option("sliding window (use_sliding_window)");
            }
            WindowRule::ChunksWithRope => option("attention within chunks (attention_chunk_size)"),
            WindowRule::AllButEvery { period, .. } => {
                option(&format!("sliding window in {} layers of {period}", period - 1));
            }
        }
        if !matches!(family.norm.kind, NormKind::Rms | NormKind::RmsPlusOne) {
            option("layer norms");
        }
        if family.names.attention.q_norm.is_some() {
            option(match family.head_norm {
                HeadNormRule::RmsAcrossHeads => "norms over all heads",
                _ => "norms of heads",
            });
        }
        for kind in family.mixers.iter().filter(|kind| !kind.runs_on_gpus()) {
            option(&format!("{} (on CPUs only)", kind.name()));
        }
        if family.is_parallel {
            option("parallel blocks");
        }
        if !family.mlp.is_gated {
            option("MLP without a gate");
        }
        for bias in [family.qkv_bias, family.o_bias, family.mlp_bias] {
            if let Bias::IfSet(field) | Bias::UnlessUnset(field) = bias {
                let text = format!("biases ({field})");
                if !options.contains(&text) {
                    options.push(text);
                }
            }
        }
        let Family { architecture, model_type, models, .. } = *family;
        let in_gguf: Vec<&str> = gguf_architectures(architecture).collect();
        if !in_gguf.is_empty() {
            options.push(format!("GGUF ({})", in_gguf.join(", ")));
        }
        Self { architecture, model_type, models, options }
    }
}
