//! Many rows on a device that multiplies matrices of 16-bit numbers itself, by its tensor cores. The
//! weight is laid out as such a matrix for as long as the product takes: that reads and writes it
//! once more, which is little beside what the rows cost. The product itself is cubek's.
//!
//! Rows are rounded to 16 bits as well, and how a sum is cut is the routine's affair: a row's bytes
//! may differ from those that the other kernels give, and with its batch. So a deterministic engine
//! does not come here.

mod choice;
mod layout;
mod routine;

use burn_cubecl::tensor::CubeTensor;
use cubecl::client::Client;
use cubecl::ir::ElemType;
use cubecl::prelude::*;

use super::CubeWeight;
use crate::TensorCores;
use crate::cube::{Rows, WordFormat};
pub(crate) use choice::{adopt_tuned_products, tuned_products};
use routine::Routine;

/// Products of many rows with one weight.
#[derive(Debug, Clone, Copy)]
pub(super) struct DenseProducts {
    half: HalfFormat,
    is_tuned: bool,
}

impl DenseProducts {
    /// Those with `weight`, where its device makes them and it is asked to.
    pub(super) fn new(weight: &CubeWeight, asked: TensorCores) -> Option<Self> {
        let half = HalfFormat::of(&weight.device.client(), weight.format)?;
        let is_tuned = match asked {
            TensorCores::Off => return None,
            TensorCores::On => false,
            TensorCores::Tuned => true,
        };
        Some(Self { half, is_tuned })
    }

    /// `x Wᵀ` into `y`, `[rows, outputs]` f32; whether there is a routine that makes it.
    pub(super) fn launch(self, x: &Rows, weight: &CubeWeight, y: &CubeTensor) -> bool {
        // Neighbours are moved by fours, and routines load by eights.
        if x.lanes != 4 || !weight.inputs.is_multiple_of(8) || !weight.outputs.is_multiple_of(8) {
            return false;
        }
        let rows = layout::of_rows(x, self.half);
        let columns = layout::of_weight(x.client(), weight, self.half);
        let run = |routine: Routine| routine.multiply(self.half, rows.clone(), columns.clone(), y);
        if !self.is_tuned {
            return Routine::ALL.into_iter().any(|routine| run(routine).is_ok());
        }
        let shape = [x.rows, weight.inputs, weight.outputs];
        match choice::chosen(x.client(), &weight.device, self.half, shape, &y.handle, run) {
            Some(routine) => run(routine).is_ok(),
            None => false,
        }
    }
}

/// Whether the device of `client` multiplies matrices of either format.
pub(crate) fn has_tensor_cores(client: &Client) -> bool {
    [HalfFormat::F16, HalfFormat::Bf16].into_iter().any(|half| half.is_multiplied_by(client))
}

/// A format of 16 bits that a device multiplies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum HalfFormat {
    F16,
    Bf16,
}

impl HalfFormat {
    /// The format that products with a weight of `format` are made in: its own, or for codes
    /// whichever the device has; `None` where it has none, or where the weight is f32.
    fn of(client: &Client, format: WordFormat) -> Option<Self> {
        let wanted: &[Self] = match format {
            WordFormat::F32 | WordFormat::Int8 => &[],
            WordFormat::F16 => &[Self::F16],
            WordFormat::Bf16 => &[Self::Bf16],
            WordFormat::Uint8 | WordFormat::Uint4 => &[Self::Bf16, Self::F16],
        };
        wanted.iter().copied().find(|half| half.is_multiplied_by(client))
    }

    /// Whether the device of `client` multiplies matrices of it, with sums in f32.
    fn is_multiplied_by(self, client: &Client) -> bool {
        let (half, f32) = (self.elem(), f32::elem_type_native());
        let matmul = &client.properties().features.matmul;
        matmul
            .cmma
            .iter()
            .chain(&matmul.mma)
            .any(|config| config.a_type == half && config.b_type == half && config.cd_type == f32)
    }

    fn elem(self) -> ElemType {
        match self {
            Self::F16 => half::f16::elem_type_native(),
            Self::Bf16 => half::bf16::elem_type_native(),
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        }
    }

    fn named(name: &str) -> Option<Self> {
        [Self::F16, Self::Bf16].into_iter().find(|half| half.name() == name)
    }

    /// How fields of words hold it.
    const fn words(self) -> WordFormat {
        match self {
            Self::F16 => WordFormat::F16,
            Self::Bf16 => WordFormat::Bf16,
        }
    }
}

#[cfg(test)]
mod tests;
