//! NVIDIA's Model Optimizer (<https://github.com/NVIDIA/Model-Optimizer>): NVFP4, beside modules
//! with floats of eight bits.
//!
//! | tensor | shape | dtype |
//! |---|---|---|
//! | `weight` | `[out, in / 2]`: two codes a byte, the first in the low half | u8 |
//! | `weight_scale` | `[out, groups]` | F8_E4M3 |
//! | `weight_scale_2` | `[]` or `[1]`: the factor of all scales | f32 |
//! | `input_scale` | not read: activations stay floats, or have scales of their own | f32 |
//!
//! `w[o][i] = weight_scale_2 · weight_scale[o][g] · q[o][i]`, with the numbers of E2M1.

use super::compressed_tensors::{SmallFloats, read_small_floats};
use super::float8;
use super::parts::Parts;
use super::sharing::ScaleSharing;
use crate::weights::checkpoint::Checkpoint;
use crate::weights::{StoredMatrix, WeightsError};

const NVFP4: SmallFloats =
    SmallFloats { codes: CODES, global_scale: "weight_scale_2", is_divisor: false };
const CODES: &str = "weight";
const CODES_TYPE: &str = "U8";

/// The factors of inputs, which other algorithms divide weights by.
const INPUT_FACTORS: &str = "pre_quant_scale";

/// Returns whether the tensor `weight` of `module` has the codes of NVFP4.
pub(super) fn has(checkpoint: &Checkpoint, module: &str) -> bool {
    checkpoint.stored_dtype_name(&format!("{module}.{CODES}")) == Some(CODES_TYPE)
}

pub(super) fn read<'a>(
    parts: Parts<'a, '_>,
    sharing: &[ScaleSharing],
) -> Result<Option<StoredMatrix<'a>>, WeightsError> {
    if parts.has(INPUT_FACTORS) {
        let reason = "inputs would have to be multiplied by it; expected none";
        return Err(parts.invalid(INPUT_FACTORS, reason));
    }
    if !parts.is_of(CODES, CODES_TYPE) {
        return float8::read(parts, sharing);
    }
    if !parts.has(NVFP4.global_scale) {
        return Err(parts.invalid(NVFP4.global_scale, "it is missing beside codes of four bits"));
    }
    read_small_floats(parts, sharing, NVFP4).map(Some)
}
