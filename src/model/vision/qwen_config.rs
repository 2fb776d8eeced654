//! The towers of Qwen2-VL, Qwen2.5-VL, Qwen3-VL, EXAONE 4.5, dots.ocr and Qwen's Omni models as
//! `vision_config` describes them.

use playhouse_kernels::Activation;

use super::block::{BlockConfig, BlockNames, HeadNorms};
use super::config::{CLIP_SCALE, PixelScale, UNIT_SCALE};
use super::pixels::PatchSize;
use super::qwen::{MergerNames, PATCHES, QwenConfig, QwenNames};
use super::{VisionFamily, activation};
use crate::model::config::{ConfigError, Fields, ModelConfig, NormConfig};
use crate::model::family::NormKind;

/// The field with the layers whose outputs join the first layers of the text model.
const DEEP: &str = "deepstack_visual_indexes";

const EPS: f32 = 1e-6;
const LAYER_NORM: NormConfig = NormConfig { kind: NormKind::Layer { has_bias: true }, eps: EPS };
const RMS_NORM: NormConfig = NormConfig { kind: NormKind::Rms, eps: EPS };

const QWEN2: QwenNames = QwenNames {
    block: BlockNames {
        attention_norm: "norm1",
        mlp_norm: "norm2",
        qkv: &["attn.qkv"],
        o: "attn.proj",
        inner: &["mlp.fc1"],
        down: "mlp.fc2",
        factors: None,
        head_norms: None,
    },
    merger: MERGER,
    deep_merger: MERGER,
};
const QWEN2_5: QwenNames = QwenNames {
    block: BlockNames {
        inner: &["mlp.gate_proj", "mlp.up_proj"],
        down: "mlp.down_proj",
        ..QWEN2.block
    },
    ..QWEN2
};
/// `DotsVisionTransformer` of the authors of dots.ocr.
const DOTS: QwenNames = QwenNames {
    block: BlockNames { inner: &["mlp.fc1", "mlp.fc3"], down: "mlp.fc2", ..QWEN2.block },
    ..QWEN2
};
const QWEN2_5_OMNI: QwenNames = QwenNames {
    block: BlockNames { qkv: &["attn.q", "attn.k", "attn.v"], ..QWEN2_5.block },
    ..QWEN2_5
};
const QWEN3: QwenNames = QwenNames {
    block: BlockNames { inner: &["mlp.linear_fc1"], down: "mlp.linear_fc2", ..QWEN2.block },
    merger: MergerNames {
        module: "merger",
        norm: "norm",
        inner: "linear_fc1",
        outer: "linear_fc2",
    },
    deep_merger: MergerNames {
        module: "deepstack_merger_list",
        norm: "norm",
        inner: "linear_fc1",
        outer: "linear_fc2",
    },
};
const QWEN3_OMNI: QwenNames = QwenNames {
    merger: MERGER,
    deep_merger: MergerNames { module: "merger_list", ..MERGER },
    ..QWEN3
};
const MERGER: MergerNames =
    MergerNames { module: "merger", norm: "ln_q", inner: "mlp.0", outer: "mlp.2" };

/// The tokens of HF `Qwen2VLConfig` and of most classes after it.
const QWEN2_TOKENS: MediaTokens =
    MediaTokens { places: [151_655, 151_656], marks: [151_652, 151_653] };
/// The same of HF `Qwen3_5Config`, `Qwen3_5MoeConfig` and `Qwen4ExpConfig`.
const QWEN3_5_TOKENS: MediaTokens =
    MediaTokens { places: [248_056, 248_057], marks: [248_053, 248_054] };

/// The tokens around and in an image or a video, if `config.json` has none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MediaTokens {
    /// The tokens in the places of embeddings: of an image, and of a video.
    pub(crate) places: [u32; 2],
    /// The token before these places, and the one after them.
    pub(crate) marks: [u32; 2],
}

impl MediaTokens {
    /// Returns the defaults of a family with a tower of Qwen.
    pub(crate) fn of(family: VisionFamily) -> Self {
        match family {
            VisionFamily::Qwen3_5 => QWEN3_5_TOKENS,
            VisionFamily::Exaone4_5 => Self { places: [67, 68], ..QWEN2_TOKENS },
            VisionFamily::DotsOcr => Self { places: [151_665, 151_656], ..QWEN2_TOKENS },
            _ => QWEN2_TOKENS,
        }
    }
}

/// Returns the numbers of pixels in the class of a family's image processor.
pub(crate) fn scale(family: VisionFamily) -> PixelScale {
    match family {
        VisionFamily::Qwen3Vl | VisionFamily::Qwen3_5 => UNIT_SCALE,
        _ => CLIP_SCALE,
    }
}

/// Checks that the text model has an axis for each pair of a head.
pub(super) fn require_axes(outer: &Fields, text: &ModelConfig) -> Result<(), ConfigError> {
    let mut attentions = text.layers.iter().filter_map(|layer| layer.mixer.attention());
    let has_axes =
        attentions.any(|attention| attention.rope.as_ref().is_some_and(|rope| rope.axes.is_some()));
    let expected = "three numbers of pairs in the rope parameters, which add up to half of a head";
    has_axes.then_some(()).ok_or_else(|| outer.missing("mrope_section", expected))
}

/// Reads HF `Qwen2VLVisionConfig`.
pub(super) fn qwen2(fields: &Fields) -> Result<QwenConfig, ConfigError> {
    let hidden_size = fields.size("embed_dim")?.unwrap_or(1_280);
    let ratio = fields.positive("mlp_ratio")?.unwrap_or(4.0);
    let intermediate_size = (hidden_size as f64 * ratio) as usize;
    let sizes = Sizes { depth: 32, hidden_size, intermediate_size, patch_size: 14 };
    let out_hidden_size = fields.size("hidden_size")?.unwrap_or(3_584);
    let config = common(fields, &QWEN2, sizes, LAYER_NORM, Activation::QuickGelu)?;
    Ok(QwenConfig { out_hidden_size, ..config })
}

/// Reads HF `Qwen2_5_VLVisionConfig`.
pub(super) fn qwen2_5(fields: &Fields) -> Result<QwenConfig, ConfigError> {
    const WINDOW: &str = "window_size";
    let sizes = Sizes {
        depth: 32,
        hidden_size: fields.size("hidden_size")?.unwrap_or(3_584),
        intermediate_size: fields.size("intermediate_size")?.unwrap_or(3_420),
        patch_size: 14,
    };
    let config = common(fields, &QWEN2_5, sizes, RMS_NORM, Activation::Silu)?;
    let full_layers = match fields.value("fullatt_block_indexes") {
        None => vec![7, 15, 23, 31],
        Some(_) => fields.indices("fullatt_block_indexes")?,
    };
    let window = fields.size(WINDOW)?.unwrap_or(112) / config.merge / config.patch.side;
    if window == 0 {
        let expected = format!("at least {}, a square", config.merge * config.patch.side);
        return Err(fields.invalid(WINDOW, &expected));
    }
    Ok(QwenConfig { window: Some(window), full_layers, ..config })
}

/// Reads `DotsVisionConfig` of the authors of dots.ocr: the tower of Qwen2-VL with other norms, and
/// with layers that have a gate.
pub(super) fn dots(fields: &Fields) -> Result<QwenConfig, ConfigError> {
    const HEADS: &str = "num_heads";
    const FRAMES: &str = "temporal_patch_size";
    const CAUSAL: &str = "is_causal";
    let fields = &match fields.size(HEADS)? {
        Some(_) => fields.clone(),
        None => fields.with(HEADS, 12.into()),
    };
    if fields.size(FRAMES)?.is_some_and(|frames| frames != 1) {
        return Err(fields.invalid(FRAMES, "1"));
    }
    if fields.size("num_channels")?.is_some_and(|channels| channels != 3) {
        return Err(fields.invalid("num_channels", "3"));
    }
    if fields.flag_or(CAUSAL, false)? {
        return Err(fields.invalid(CAUSAL, "false"));
    }
    let sizes = Sizes {
        depth: 42,
        hidden_size: fields.size("embed_dim")?.unwrap_or(1_536),
        intermediate_size: fields.size("intermediate_size")?.unwrap_or(4_224),
        patch_size: 14,
    };
    let eps = fields.positive("rms_norm_eps")?.unwrap_or(1e-5) as f32;
    let norm = NormConfig { kind: NormKind::Rms, eps };
    let config = common(fields, &DOTS, sizes, norm, Activation::Silu)?;
    let bias = fields.flag_or("use_bias", false)?;
    let last_norm = fields.flag_or("post_norm", true)?.then_some(("post_trunk_norm", norm));
    Ok(QwenConfig {
        block: BlockConfig { qkv_bias: bias, o_bias: bias, mlp_bias: bias, ..config.block },
        patch: PatchSize { frames: 1, ..config.patch },
        patch_module: "patch_embed.patchifier.proj",
        patch_bias: true,
        patch_norm: Some(("patch_embed.patchifier.norm", norm)),
        last_norm,
        merger_norm: LAYER_NORM,
        out_hidden_size: fields.size("hidden_size")?.unwrap_or(1_536),
        ..config
    })
}

/// Reads HF `Exaone4_5_VisionConfig`: the tower of Qwen2.5-VL, in which several heads share their
/// keys and values.
pub(super) fn exaone4_5(fields: &Fields) -> Result<QwenConfig, ConfigError> {
    const HEADS: &str = "num_key_value_heads";
    let config = qwen2_5(fields)?;
    let (num_heads, num_kv_heads) = (config.block.num_heads, fields.size(HEADS)?.unwrap_or(8));
    if !num_heads.is_multiple_of(num_kv_heads) {
        return Err(fields.invalid(HEADS, &format!("a divisor of num_heads, {num_heads}")));
    }
    Ok(QwenConfig { block: BlockConfig { num_kv_heads, ..config.block }, ..config })
}

/// Reads HF `Qwen2_5OmniVisionEncoderConfig`.
pub(super) fn qwen2_5_omni(fields: &Fields) -> Result<QwenConfig, ConfigError> {
    let config = qwen2_5(fields)?;
    let block = BlockConfig { names: &QWEN2_5_OMNI.block, ..config.block };
    Ok(QwenConfig { names: &QWEN2_5_OMNI, block, ..config })
}

/// Reads HF `Qwen3VLVisionConfig`.
pub(super) fn qwen3(fields: &Fields) -> Result<QwenConfig, ConfigError> {
    let config = without_deep_layers(fields)?;
    let deep_layers = match fields.value(DEEP) {
        None => vec![8, 16, 24],
        Some(_) => fields.indices(DEEP)?,
    };
    let are_in_order = deep_layers.is_sorted_by(|a, b| a < b);
    if !are_in_order || deep_layers.last().is_some_and(|last| *last >= config.depth) {
        let expected = format!("increasing numbers of layers below {}", config.depth);
        return Err(fields.invalid(DEEP, &expected));
    }
    Ok(QwenConfig { deep_layers, ..config })
}

/// Reads HF `Qwen3OmniMoeVisionEncoderConfig`.
pub(super) fn qwen3_omni(fields: &Fields) -> Result<QwenConfig, ConfigError> {
    Ok(QwenConfig { names: &QWEN3_OMNI, ..qwen3(fields)? })
}

/// Reads HF `Qwen3_5VisionConfig`. HF's class ignores a list of layers whose outputs join the text,
/// and vLLM reads it. No published model has one.
pub(super) fn qwen3_5(fields: &Fields) -> Result<QwenConfig, ConfigError> {
    match fields.indices(DEEP)?.is_empty() {
        true => without_deep_layers(fields),
        false => Err(fields.invalid(DEEP, "an empty list")),
    }
}

/// Reads the fields that HF `Qwen3VLVisionConfig` and `Qwen3_5VisionConfig` share.
fn without_deep_layers(fields: &Fields) -> Result<QwenConfig, ConfigError> {
    const PLACES: &str = "num_position_embeddings";
    let sizes = Sizes {
        depth: 27,
        hidden_size: fields.size("hidden_size")?.unwrap_or(1_152),
        intermediate_size: fields.size("intermediate_size")?.unwrap_or(4_304),
        patch_size: 16,
    };
    let config = common(fields, &QWEN3, sizes, LAYER_NORM, Activation::GeluTanh)?;
    let places = fields.size(PLACES)?.unwrap_or(2_304);
    if places.isqrt().pow(2) != places {
        return Err(fields.invalid(PLACES, "a square number"));
    }
    Ok(QwenConfig { positions_side: Some(places.isqrt()), patch_bias: true, ..config })
}

/// Sizes whose fields or defaults differ between the classes. `depth` and `patch_size` are
/// defaults.
struct Sizes {
    depth: usize,
    hidden_size: usize,
    intermediate_size: usize,
    patch_size: usize,
}

/// Reads the fields that all classes have.
fn common(
    fields: &Fields,
    names: &'static QwenNames,
    sizes: Sizes,
    norm: NormConfig,
    default: Activation,
) -> Result<QwenConfig, ConfigError> {
    const HEADS: &str = "num_heads";
    let Sizes { depth, hidden_size, intermediate_size, patch_size } = sizes;
    let num_heads = fields.size(HEADS)?.unwrap_or(16);
    if !hidden_size.is_multiple_of(4 * num_heads) {
        let expected = format!("a divisor of {hidden_size}, with heads of a multiple of 4");
        return Err(fields.invalid(HEADS, &expected));
    }
    for field in ["in_channels", "in_chans"] {
        if fields.size(field)?.is_some_and(|channels| channels != 3) {
            return Err(fields.invalid(field, "3"));
        }
    }
    let rope = fields.nested("rope_parameters")?;
    let theta = rope.map(|rope| rope.positive("rope_theta")).transpose()?.flatten();
    Ok(QwenConfig {
        names,
        block: BlockConfig {
            names: &names.block,
            hidden_size,
            intermediate_size,
            num_heads,
            num_kv_heads: num_heads,
            norm,
            activation: activation(fields, "hidden_act", default)?,
            qkv_bias: true,
            o_bias: true,
            mlp_bias: true,
            head_norms: HeadNorms::None,
            has_neighbour_pairs: false,
        },
        depth: fields.size("depth")?.unwrap_or(depth),
        patch: PatchSize {
            side: fields.size("patch_size")?.unwrap_or(patch_size),
            frames: fields.size("temporal_patch_size")?.unwrap_or(2),
        },
        patch_module: PATCHES,
        patch_bias: false,
        patch_norm: None,
        last_norm: None,
        merge: fields.size("spatial_merge_size")?.unwrap_or(2),
        out_hidden_size: fields.size("out_hidden_size")?.unwrap_or(3_584),
        merger_norm: norm,
        rope_theta: theta.unwrap_or(10_000.0),
        window: None,
        full_layers: Vec::new(),
        positions_side: None,
        deep_layers: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::config::fields;

    #[test]
    fn towers_of_qwen3_5_have_no_deep_layers() {
        for listed in [json!(null), json!([])] {
            let config = qwen3_5(&fields(json!({ DEEP: listed }))).unwrap();
            assert!(config.deep_layers.is_empty());
        }
        let deep = fields(json!({ DEEP: [1, 2] }));
        assert!(qwen3_5(&deep).unwrap_err().to_string().contains(DEEP));
        assert_eq!(qwen3(&deep).unwrap().deep_layers, [1, 2]);
    }

    /// As HF `Qwen2VLConfig` and `Qwen3_5Config`.
    #[test]
    fn tokens_have_the_defaults_of_their_classes() {
        let tokens = MediaTokens::of(VisionFamily::Qwen3_5);
        assert_eq!((tokens.places, tokens.marks), ([248_056, 248_057], [248_053, 248_054]));
        let tokens = MediaTokens::of(VisionFamily::Qwen3Vl);
        assert_eq!((tokens.places, tokens.marks), ([151_655, 151_656], [151_652, 151_653]));
    }
}
