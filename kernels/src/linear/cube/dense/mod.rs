//! Many rows on a device whose tensor cores multiply matrices of 16-bit numbers. The product is
//! cubek's, with one of two forms of the weight. One is the weight laid out anew for as long as the
//! product takes. This reads and writes it once more, which is little beside the cost of many rows.
//! The other, where the weight has 16 bits, is its panels as they lie, each a matrix of its own.
//!
//! Rows are rounded to 16 bits as well, and the routine decides how a sum is cut. A row's bytes may
//! therefore differ from those of the other kernels, and from batch to batch. So a deterministic
//! engine does not use these products.

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
pub(crate) use layout::rounded;
use routine::Routine;

/// Most rows for which it may be faster to read panels as they lie. With narrow matrices, rows are
/// read more often.
const PANELS_ROWS_MAX: usize = 256;

/// Products of many rows with one weight.
#[derive(Debug, Clone, Copy)]
pub(super) struct DenseProducts {
    half: HalfFormat,
    is_tuned: bool,
}

impl DenseProducts {
    /// Returns the products with `weight`, where its device supports them and `asked` allows them.
    pub(super) fn new(weight: &CubeWeight, asked: TensorCores) -> Option<Self> {
        let half = HalfFormat::of(&weight.device.client(), weight.format)?;
        let is_tuned = match asked {
            TensorCores::Off => return None,
            TensorCores::On => false,
            TensorCores::Tuned => true,
        };
        Some(Self { half, is_tuned })
    }

    /// Computes `x Wᵀ` into `y`, `[rows, outputs]` f32. Returns whether some routine can do it.
    pub(super) fn launch(self, x: &Rows, weight: &CubeWeight, y: &CubeTensor) -> bool {
        // Elements are copied in fours, and routines load them in eights.
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

    /// Returns the possible ways for such a product. The first is used where none is measured.
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
    /// The device or the shapes do not suit the way.
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

/// A way to compute a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Way {
    routine: Routine,
    /// Whether it reads the weight's panels as they lie.
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

/// Returns whether the device of `client` multiplies matrices of either format.
pub(crate) fn has_tensor_cores(client: &Client) -> bool {
    [HalfFormat::F16, HalfFormat::Bf16].into_iter().any(|half| half.is_multiplied_by(client))
}

/// A format of 16 bits whose matrices a device multiplies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HalfFormat {
    F16,
    Bf16,
}

impl HalfFormat {
    /// Returns the format of products with a weight of `format`: its own, or for codes one that the
    /// device has. Returns `None` where the device has none, or where the weight is f32.
    fn of(client: &Client, format: WordFormat) -> Option<Self> {
        let wanted: &[Self] = match format {
            WordFormat::F32 | WordFormat::Int8 => &[],
            WordFormat::F16 => &[Self::F16],
            WordFormat::Bf16 => &[Self::Bf16],
            WordFormat::Uint8 | WordFormat::Uint4 => &[Self::Bf16, Self::F16],
        };
        wanted.iter().copied().find(|half| half.is_multiplied_by(client))
    }

    /// Returns whether the device of `client` multiplies matrices of it, with sums in f32.
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

    /// Returns the format of words that hold it.
    const fn words(self) -> WordFormat {
        match self {
            Self::F16 => WordFormat::F16,
            Self::Bf16 => WordFormat::Bf16,
        }
    }
}

#[cfg(test)]
mod tests;
