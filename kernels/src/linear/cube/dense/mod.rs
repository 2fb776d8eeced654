//! Many rows on a device that multiplies matrices of 16-bit numbers itself, by its tensor cores. The
//! product is cubek's, of one of two matrices: the weight laid out for as long as the product takes,
//! which reads and writes it once more and is little beside what many rows cost; or, where it has 16
//! bits, its panels as they lie, each a matrix of its own.
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
use cubek::matmul::definition::MatmulSetupError;

use super::{CubeWeight, PANEL};
use crate::TensorCores;
use crate::cube::{Rows, WordFormat, weight_copies};
pub(crate) use choice::{adopt_tuned_products, tuned_products};
use layout::Matrices;
use routine::Routine;

/// Rows up to which panels may be worth being read as they lie: narrow matrices make more of reading
/// rows.
const PANELS_ROWS_MAX: usize = 256;

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
        let measure = |way: Way| self.multiply(way, rows.clone(), weight, y);
        let run = |way: Way| {
            if !way.by_panels {
                weight_copies::note(layout::weight_bytes(weight));
            }
            measure(way)
        };
        let ways = self.ways(x, weight);
        if !self.is_tuned {
            return ways.into_iter().any(|way| run(way).is_ok());
        }
        let shape = [x.rows, weight.inputs, weight.outputs];
        match choice::chosen(&weight.device, weight.format, shape, &ways, &y.handle, measure) {
            Some(way) => run(way).is_ok(),
            None => false,
        }
    }

    /// The ways that such a product may go; the first is what is taken unmeasured.
    fn ways(self, x: &Rows, weight: &CubeWeight) -> Vec<Way> {
        let is_of_panels =
            weight.format == self.half.words() && weight.outputs.is_multiple_of(PANEL);
        let by_panels: &[_] = match is_of_panels && x.rows <= PANELS_ROWS_MAX {
            true => &[true, false],
            false => &[false],
        };
        let all = by_panels.iter().flat_map(|by_panels| {
            Routine::ALL.into_iter().map(|routine| Way { routine, by_panels: *by_panels })
        });
        all.collect()
    }

    /// # Errors
    /// The device, or these shapes, do not suit the way.
    fn multiply(
        self,
        way: Way,
        rows: Matrices,
        weight: &CubeWeight,
        y: &CubeTensor,
    ) -> Result<(), MatmulSetupError> {
        let (columns, results) = match way.by_panels {
            true => (layout::of_panels(weight), layout::of_panels_of_results(y)),
            false => (layout::of_weight(&y.client, weight, self.half), layout::of_results(y)),
        };
        way.routine.multiply(&y.client, self.half, rows, columns, results)
    }
}

/// A way to make a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Way {
    routine: Routine,
    /// Of the weight's panels as they lie.
    by_panels: bool,
}

impl Way {
    const BY_PANELS: &str = " by panels";

    fn name(self) -> String {
        format!("{}{}", self.routine.name(), if self.by_panels { Self::BY_PANELS } else { "" })
    }

    fn named(name: &str) -> Option<Self> {
        let bare = name.strip_suffix(Self::BY_PANELS);
        let routine = Routine::named(bare.unwrap_or(name))?;
        Some(Self { routine, by_panels: bare.is_some() })
    }
}

/// Whether the device of `client` multiplies matrices of either format.
pub(crate) fn has_tensor_cores(client: &Client) -> bool {
    [HalfFormat::F16, HalfFormat::Bf16].into_iter().any(|half| half.is_multiplied_by(client))
}

/// A format of 16 bits that a device multiplies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
