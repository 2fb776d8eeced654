//! MoonViT as `config.json` describes it: in the form of the authors of Kimi-VL and Kimi K2.5, and
//! in that of HF `Kimi_K25Config`.

use playhouse_kernels::Activation;
use serde_json::Value;

use super::block::{BlockConfig, HeadNorms};
use super::config::{CLIP_SCALE, PixelScale, UNIT_SCALE, scale_of};
use super::moonvit;
use super::pixels::PatchSize;
use super::projector::{ProjectorConfig, ProjectorNorm};
use super::{VisionFamily, activation, token};
use crate::model::config::{ConfigError, Fields, NormConfig};
use crate::model::family::NormKind;

/// The norms of layers: torch's own numbers.
pub(super) const NORM: NormConfig =
    NormConfig { kind: NormKind::Layer { has_bias: true }, eps: 1e-5 };
/// The names of fields in the form of the authors of Kimi K2.5, and in that of transformers.
const OTHER_NAMES: &[(&str, &str)] = &[
    ("vt_hidden_size", "hidden_size"),
    ("vt_intermediate_size", "intermediate_size"),
    ("vt_num_attention_heads", "num_attention_heads"),
    ("vt_num_hidden_layers", "num_hidden_layers"),
    ("init_pos_emb_height", "pos_emb_height"),
    ("init_pos_emb_width", "pos_emb_width"),
];
/// The object with the fields of the processor in the form of these authors.
const PROCESSOR: &str = "media_proc_cfg";
const MERGE: &str = "merge_kernel_size";
/// The most patches on a side of a square, so that sizes of tensors do not overflow.
const MERGE_MAX: usize = 64;

/// The shape of a tower.
#[derive(Debug, Clone)]
pub(super) struct MoonConfig {
    pub(super) block: BlockConfig,
    pub(super) num_layers: usize,
    pub(super) patch: PatchSize,
    /// Places on a side of the grid of learned positions.
    pub(super) positions_side: usize,
    pub(super) rope_theta: f64,
    pub(super) projector_module: &'static str,
    pub(super) projector: ProjectorConfig,
}

impl MoonConfig {
    /// Reads the tower of a model whose `config.json` has the fields `outer`, for a text model of
    /// the width `outputs`.
    ///
    /// # Errors
    /// [`ConfigError`] if a field has no valid value.
    pub(super) fn read(
        family: VisionFamily,
        outer: &Fields,
        outputs: usize,
    ) -> Result<Self, ConfigError> {
        const HEADS: &str = "num_attention_heads";
        const SIDES: [&str; 2] = ["pos_emb_height", "pos_emb_width"];
        let vision = outer.nested("vision_config")?.unwrap_or_else(|| Fields::empty_in(outer));
        let fields = &vision.with_aliases(OTHER_NAMES);
        let size = |field: &str, default: usize| {
            Ok::<usize, ConfigError>(fields.size(field)?.unwrap_or(default))
        };
        let (hidden_size, num_heads) = (size("hidden_size", 1_152)?, size(HEADS, 16)?);
        if !hidden_size.is_multiple_of(4 * num_heads) {
            let expected = format!("a divisor of {hidden_size}, with heads of a multiple of 4");
            return Err(fields.invalid(HEADS, &expected));
        }
        let side = size(SIDES[0], 64)?;
        if size(SIDES[1], 64)? != side {
            return Err(fields.invalid(SIDES[1], &format!("{side}, as the height")));
        }
        let merge = merge_size(fields, MERGE)?;
        let is_k25 = family == VisionFamily::KimiK25;
        if is_k25 {
            require_plain(outer, fields, hidden_size)?;
        }
        Ok(Self {
            block: BlockConfig {
                names: &moonvit::BLOCK,
                hidden_size,
                intermediate_size: size("intermediate_size", 4_304)?,
                num_heads,
                num_kv_heads: num_heads,
                norm: NORM,
                activation: match is_k25 {
                    true => activation(fields, "hidden_act", Activation::GeluTanh)?,
                    false => Activation::GeluTanh,
                },
                qkv_bias: true,
                o_bias: true,
                mlp_bias: true,
                head_norms: HeadNorms::None,
                has_neighbour_pairs: true,
            },
            num_layers: size("num_hidden_layers", 27)?,
            patch: PatchSize { side: size("patch_size", 14)?, frames: 1 },
            positions_side: side,
            rope_theta: rope_theta(fields)?,
            projector_module: if is_k25 { "mm_projector" } else { "multi_modal_projector" },
            projector: ProjectorConfig {
                layers: if is_k25 { &["proj.0", "proj.2"] } else { &["linear_1", "linear_2"] },
                inner: Some(hidden_size * merge * merge),
                is_gated: false,
                activation: Activation::Gelu,
                has_bias: true,
                merge,
                averages: false,
                norm: ProjectorNorm::OfPatch("pre_norm", NORM),
                merging: None,
                last_norm: None,
                outputs,
            },
        })
    }
}

/// Returns the patches on a side of a square: a number, or two equal ones.
fn merge_size(fields: &Fields, field: &str) -> Result<usize, ConfigError> {
    let merge = match fields.value(field).map(Value::as_array) {
        None => Some(2),
        Some(None) => fields.size(field)?,
        Some(Some(_)) => match *fields.indices(field)? {
            [rows, columns] if rows == columns => Some(rows),
            _ => None,
        },
    };
    let merge = merge.filter(|merge| (1..=MERGE_MAX).contains(merge));
    let expected = format!("two equal numbers from 1 to {MERGE_MAX}");
    merge.ok_or_else(|| fields.invalid(field, &expected))
}

/// Returns the base of the wavelengths.
fn rope_theta(fields: &Fields) -> Result<f64, ConfigError> {
    const TYPE: &str = "rope_type";
    let rope = fields.nested("rope_parameters")?.unwrap_or_else(|| Fields::empty_in(fields));
    if rope.text(TYPE)?.is_some_and(|name| !["axial", "default"].contains(&name)) {
        return Err(rope.invalid(TYPE, "\"axial\""));
    }
    Ok(rope.positive("rope_theta")?.unwrap_or(10_000.0))
}

/// Refuses the forms of Kimi K2.5's projector and positions that are not read.
fn require_plain(outer: &Fields, fields: &Fields, hidden_size: usize) -> Result<(), ConfigError> {
    const TYPE: &str = "mm_projector_type";
    const POSITIONS: &str = "pos_emb_type";
    if fields.text(TYPE)?.is_some_and(|name| name != "patchmerger") {
        return Err(fields.invalid(TYPE, "\"patchmerger\""));
    }
    if fields.text(POSITIONS)?.is_some_and(|name| name != "divided_fixed") {
        return Err(fields.invalid(POSITIONS, "\"divided_fixed\""));
    }
    for (fields, field) in [(outer, "projection_hidden_size"), (fields, "mm_hidden_size")] {
        if fields.size(field)?.is_some_and(|size| size != hidden_size) {
            return Err(fields.invalid(field, &format!("{hidden_size}, as in the tower")));
        }
    }
    // As in vLLM, which does not read the numbers.
    for (fields, field) in [(outer, "projection_layer_norm_eps"), (fields, "projector_ln_eps")] {
        if fields.positive(field)?.is_some_and(|eps| eps as f32 != NORM.eps) {
            return Err(fields.invalid(field, "1e-5"));
        }
    }
    Ok(())
}

/// The facts about the images of Kimi that their processor needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MoonImages {
    /// The token in the places of embeddings.
    pub(crate) placeholder: u32,
    /// Pixels on a side of a patch.
    pub(crate) patch: usize,
    /// Patches on a side of a square, which is one embedding.
    pub(crate) merge: usize,
}

impl MoonImages {
    /// Reads the facts of a model whose `config.json` has the fields `outer`.
    ///
    /// # Errors
    /// [`ConfigError`] if a field has no valid value.
    pub(crate) fn read(family: VisionFamily, outer: &Fields) -> Result<Self, ConfigError> {
        let vision_tower = MoonConfig::read(family, outer, 1)?;
        let placeholder = match token(outer, "image_token_id")? {
            Some(token) => token,
            None => token(outer, "media_placeholder_token_id")?.unwrap_or(163_605),
        };
        let (patch, merge) = (vision_tower.patch.side, vision_tower.projector.merge);
        Ok(Self { placeholder, patch, merge })
    }

    /// Returns the fields of an image processor, and whether they have the form of the authors of
    /// Kimi K2.5.
    pub(crate) fn processor(processor: &Fields) -> Result<(Fields, bool), ConfigError> {
        let own = processor.nested(PROCESSOR)?;
        let is_own = own.is_some();
        Ok((own.unwrap_or_else(|| processor.clone()), is_own))
    }

    /// Returns the patches on a side of a square by a processor with these fields.
    pub(crate) fn merge_of(processor: &Fields) -> Result<usize, ConfigError> {
        match processor.value(MERGE) {
            Some(_) => merge_size(processor, MERGE),
            None => Ok(processor.size("merge_size")?.unwrap_or(2)),
        }
    }
}

/// Returns how bytes become numbers, by the fields of an image processor.
pub(super) fn scale(family: VisionFamily, processor: &Fields) -> Result<PixelScale, ConfigError> {
    let default = if family == VisionFamily::KimiK25 { UNIT_SCALE } else { CLIP_SCALE };
    scale_of(&MoonImages::processor(processor)?.0, default)
}
