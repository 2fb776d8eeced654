//! Rotary position embedding (Su et al. 2021), in the half-split ("NeoX") convention of HF's
//! `rotate_half`.
//!
//! For a head `x` and `i < rotary_dim / 2`, let c and s be the table's cosine and sine at the
//! token's position. Then `y[i] = x[i]·c[i] − x[i + r/2]·s[i]` and
//! `y[i + r/2] = x[i + r/2]·c[i] + x[i]·s[i]`. Elements from `rotary_dim` on pass unchanged. All
//! f32; x `[num_tokens, heads · head_dim]`. Bytes moved: `8 · x.len()`, in place where the tensor
//! is not shared. Tolerance: one rounding more than the formula (`1e-6 · |x|`).

pub(crate) mod cpu;
#[cfg(feature = "gpu")]
pub(crate) mod cube;
#[cfg(test)]
#[cfg(feature = "gpu")]
mod cube_tests;
#[cfg(test)]
mod tests;

use burn::backend::Dispatch;
use burn::tensor::{Device, Tensor};

use crate::KernelError;
use crate::device::Place;
use crate::hot_ops::HotOps;

/// Cosines and sines by position, on their device.
#[derive(Debug)]
pub struct RotaryTable {
    storage: RotaryStorage,
    rotary_dim: usize,
    max_position: usize,
}

/// The table in memory: cosines and sines, `[max_position, rotary_dim / 2]` each.
#[derive(Debug)]
enum RotaryStorage {
    Cpu {
        cos: Vec<f32>,
        sin: Vec<f32>,
    },
    #[cfg(feature = "gpu")]
    Cube(cube::CubeRotary),
}

impl RotaryTable {
    /// Takes `cos` and `sin`, each row-major `[max_position, rotary_dim / 2]`, for heads whose
    /// first `rotary_dim` elements rotate.
    ///
    /// # Errors
    /// An odd or zero `rotary_dim`, tables that are not a whole number of rows or differ in length,
    /// or a device without kernels.
    pub fn new(
        cos: Vec<f32>,
        sin: Vec<f32>,
        rotary_dim: usize,
        device: &Device,
    ) -> Result<Self, KernelError> {
        const WHAT: &str = "rotary table";
        let place = Place::of(device, WHAT)?;
        let even = rotary_dim > 0 && rotary_dim.is_multiple_of(2);
        KernelError::require(even, WHAT, "rotary_dim", rotary_dim as u64, "even, at least 2")?;
        let max_position = cos.len() / (rotary_dim / 2);
        KernelError::require_len(WHAT, "cos", cos.len(), max_position * (rotary_dim / 2))?;
        KernelError::require_len(WHAT, "sin", sin.len(), cos.len())?;
        let storage = match place {
            Place::Cpu => RotaryStorage::Cpu { cos, sin },
            #[cfg(feature = "gpu")]
            Place::Cube(device) => RotaryStorage::Cube(cube::CubeRotary::new(&device, &cos, &sin)),
        };
        Ok(Self { storage, rotary_dim, max_position })
    }

    /// Returns the number of positions. Valid positions are below it.
    #[must_use]
    pub fn max_position(&self) -> usize {
        self.max_position
    }

    /// Returns the elements of a head that rotate.
    #[must_use]
    pub fn rotary_dim(&self) -> usize {
        self.rotary_dim
    }
}

/// Rotates every head of x `[num_tokens, heads * head_dim]` by its token's position.
///
/// # Panics
/// If the width of `x` is not a multiple of `head_dim`, or `head_dim` is below the table's
/// `rotary_dim`. Also if the number of positions is not that of tokens, or a position is outside
/// the table.
#[must_use]
pub fn rope(x: Tensor<2>, positions: &[u32], head_dim: usize, table: &RotaryTable) -> Tensor<2> {
    Tensor::from_dispatch(Dispatch::rope(x.into_dispatch(), positions, head_dim, table))
}

/// Asserts the conditions of [`rope`] on its arguments.
pub(crate) fn check(
    [tokens, width]: [usize; 2],
    positions: &[u32],
    head_dim: usize,
    table: &RotaryTable,
) {
    let (rotary_dim, max_position) = (table.rotary_dim, table.max_position);
    assert_eq!(tokens, positions.len(), "rope: one position a token");
    assert!(width.is_multiple_of(head_dim), "rope: width {width} in heads of {head_dim}");
    assert!(rotary_dim <= head_dim, "rope: {rotary_dim} of {head_dim}");
    let are_inside = positions.iter().all(|p| (*p as usize) < max_position);
    assert!(are_inside, "rope: a position is outside the table of {max_position}");
}
