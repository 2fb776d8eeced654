//! The kinds of mixers, and the devices that have kernels for them.

use super::{DeltaNetConfig, LayerConfig, Mixer, RecurrentConfig};

/// A kind of mixer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MixerKind {
    Attention,
    /// Attention whose biases of ALiBi are rounded to bfloat16.
    RoundedAlibi,
    /// Attention to both sides, with biases by the distance of tokens.
    RelativePositions,
    /// Attention to both sides, with terms by contents and positions.
    Disentangled,
    Latent,
    /// Latent attention to both sides.
    LatentBothSides,
    Mamba,
    Mamba2,
    DeltaNet,
    /// Embeddings of n-grams before a gated delta rule.
    Ngrams,
    KimiDelta,
    ShortConv,
    Lightning,
    Griffin,
}

impl MixerKind {
    /// Returns its name for users.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Attention => "attention",
            Self::RoundedAlibi => "ALiBi rounded to bfloat16",
            Self::RelativePositions => "relative positions",
            Self::Disentangled => "disentangled attention",
            Self::Latent => "latent attention (MLA)",
            Self::LatentBothSides => "latent attention (MLA) to both sides",
            Self::Mamba => "Mamba",
            Self::Mamba2 => "Mamba 2",
            Self::DeltaNet => "gated delta rules",
            Self::Ngrams => "embeddings of n-grams",
            Self::KimiDelta => "Kimi's delta rules",
            Self::ShortConv => "short convolutions",
            Self::Lightning => "lightning attention",
            Self::Griffin => "gated linear recurrences (RG-LRU)",
        }
    }

    /// Returns whether GPUs have kernels for it. The CPU has kernels for all kinds.
    pub(crate) fn runs_on_gpus(self) -> bool {
        match self {
            // The rows of n-grams are computed on the CPU, from states that the device holds.
            Self::RoundedAlibi
            | Self::Disentangled
            | Self::KimiDelta
            | Self::LatentBothSides
            | Self::Ngrams => false,
            Self::Attention
            | Self::RelativePositions
            | Self::Latent
            | Self::Mamba
            | Self::Mamba2
            | Self::DeltaNet
            | Self::ShortConv
            | Self::Lightning
            | Self::Griffin => true,
        }
    }
}

/// Returns the kinds of the layers' mixers, each once.
pub(crate) fn kinds(layers: &[LayerConfig]) -> Vec<MixerKind> {
    let mut kinds = Vec::new();
    for kind in layers.iter().flat_map(|layer| of_mixer(&layer.mixer)).flatten() {
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    kinds
}

/// Returns the kinds of a mixer. Two mixers may be parallel, or one may read n-grams.
fn of_mixer(mixer: &Mixer) -> [Option<MixerKind>; 2] {
    let attention = mixer.attention().map(|attention| match attention.distance_biases {
        _ if attention.disentangled.is_some() => MixerKind::Disentangled,
        Some(_) => MixerKind::RelativePositions,
        None if attention.alibi.is_some() && !attention.is_causal => MixerKind::RelativePositions,
        None if attention.rounds_alibi => MixerKind::RoundedAlibi,
        None => MixerKind::Attention,
    });
    let other = match mixer {
        Mixer::Attention(_) | Mixer::None => None,
        Mixer::Latent(latent) if latent.is_causal => Some(MixerKind::Latent),
        Mixer::Latent(_) => Some(MixerKind::LatentBothSides),
        Mixer::Mamba(_) => Some(MixerKind::Mamba),
        Mixer::Mamba2(_) | Mixer::Parallel(_) => Some(MixerKind::Mamba2),
        Mixer::Recurrent(RecurrentConfig::DeltaNet(_)) => Some(MixerKind::DeltaNet),
        Mixer::Recurrent(RecurrentConfig::ShortConv(_)) => Some(MixerKind::ShortConv),
        Mixer::Recurrent(RecurrentConfig::Lightning(_)) => Some(MixerKind::Lightning),
        Mixer::Recurrent(RecurrentConfig::Griffin(_)) => Some(MixerKind::Griffin),
        Mixer::Recurrent(RecurrentConfig::Kimi(_)) => Some(MixerKind::KimiDelta),
    };
    let ngrams = match mixer {
        Mixer::Recurrent(RecurrentConfig::DeltaNet(DeltaNetConfig { ngrams: Some(_), .. })) => {
            Some(MixerKind::Ngrams)
        }
        _ => None,
    };
    [attention.or(ngrams), other]
}
