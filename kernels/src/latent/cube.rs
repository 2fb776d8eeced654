//! GPUs have no version: [`LatentProjections::new`] refuses weights on a GPU.

use burn_cubecl::tensor::CubeTensor;

use super::{LatentNorm, LatentProjections};
use crate::RotaryTable;

/// Is never called.
pub(crate) fn latent_queries(
    _: CubeTensor,
    _: &LatentProjections,
    _: &[u32],
    _: &RotaryTable,
) -> CubeTensor {
    unreachable!("latent_queries: latent attention runs on the CPU only")
}

/// Is never called.
pub(crate) fn latent_keys(_: CubeTensor, _: &LatentNorm, _: &[u32], _: &RotaryTable) -> CubeTensor {
    unreachable!("latent_keys: latent attention runs on the CPU only")
}

/// Is never called.
pub(crate) fn latent_values(_: CubeTensor, _: &LatentProjections) -> CubeTensor {
    unreachable!("latent_values: latent attention runs on the CPU only")
}
