//! Qwen2.5-Omni, of which the thinker is served: it reads, sees and hears, and writes text
//! (<https://arxiv.org/abs/2503.20215>). The parts that speak are `talker` and `token2wav`.

use super::wrappers::{AXES, PLAIN, sizes};
use super::{AudioFamily, Defaults, Family, TextModel, TextPlace, VisionFamily, Wrapper, qwen2};

/// The class of the whole model. Those of the thinker alone and of published models are read as
/// this one.
const CLASS: &str = "Qwen2_5OmniForConditionalGeneration";

/// Qwen2.5-Omni.
pub(super) const QWEN2_5_OMNI: Wrapper = Wrapper {
    architecture: CLASS,
    model_type: "qwen2_5_omni",
    models: "Qwen2.5-Omni: texts, images, videos and sounds to text",
    texts: &[TextModel {
        family: Family {
            architecture: CLASS,
            model_type: "qwen2_5_omni_text",
            defaults: Defaults {
                num_key_value_heads: Some(4),
                rope_theta: 1_000_000.0,
                ..qwen2::FAMILY.defaults
            },
            rope: AXES,
            ..qwen2::FAMILY
        },
        sizes: sizes([152_064, 3_584, 18_944, 28, 28]),
        experts: &[],
    }],
    may_be_flat: false,
    places: &[TextPlace { base: "thinker.model", lm_head: "thinker.lm_head" }, PLAIN],
    unread: &[
        "thinker.audio_tower",
        "thinker.visual",
        "talker",
        "token2wav",
        "audio_tower",
        "visual",
    ],
    vision: &[VisionFamily::Qwen2_5Omni],
    audio: Some(AudioFamily::Qwen2_5Omni),
};
