//! Products of rows and weights on a GPU, by two kernels. The kernel for few rows divides the
//! inputs among units, so that enough loads are in flight. The kernel for many rows keeps a tile of
//! results in registers. Both sum in one order: first each block of inputs from zero, then the
//! blocks ([`block_len`]). The choice of the kernel therefore does not change a byte. If the engine
//! need not be deterministic, products of many rows use tensor cores ([`dense`]).

mod bias;
mod columns;
mod cut;
mod dense;
mod groups;
mod pack;
mod product;
mod rows;
mod skinny;
mod stack;
mod tiled;

use burn_cubecl::tensor::CubeTensor;

use super::LinearWeight;
use crate::WeightVector;
use crate::activation::{self, Activation};
use crate::cube::Rows;
pub(crate) use dense::{adopt_tuned_products, has_tensor_cores, rounded, tuned_products};
pub(crate) use groups::{ITEM_WORDS, Items, TileKind, grouped, grouped_swiglu, takes_swiglu};
pub(crate) use pack::CubeWeight;
pub(crate) use rows::tied_embedding;
pub(crate) use stack::CubeStack;

/// Number of outputs in a panel.
const PANEL: usize = 64;

/// Least number of inputs that are summed from zero before their sum is added to the result.
const BLOCK_MIN: usize = 32;

/// Most blocks of inputs.
const BLOCKS_MAX: usize = 64;

/// Returns the number of inputs of a block: a multiple of [`BLOCK_MIN`]. It depends on the weight
/// alone.
const fn block_len(inputs: usize) -> usize {
    let blocks = inputs.div_ceil(BLOCK_MIN * BLOCKS_MAX);
    if blocks == 0 { BLOCK_MIN } else { blocks * BLOCK_MIN }
}

/// Largest number of rows for which the kernel for few rows is faster. It reads the weight once for
/// every eight rows.
const SKINNY_ROWS_MAX: usize = 32;

/// Computes `x Wᵀ + b`.
pub(crate) fn linear(
    x: CubeTensor,
    weight: &LinearWeight,
    bias: Option<&WeightVector>,
) -> CubeTensor {
    let weight = packed(weight);
    let x = inputs(x, weight);
    if let Some(bias) = bias {
        assert_eq!(bias.len(), weight.outputs, "linear: length of the bias");
    }
    let y = x.sibling(x.rows, weight.outputs);
    match x.rows {
        0 => {}
        1..=SKINNY_ROWS_MAX => skinny::launch(&x, weight, bias, &y, false),
        _ => many_rows(&x, weight, bias, &y),
    }
    y
}

/// Computes `f(x Wᵀ + b)`.
pub(crate) fn linear_activated(
    x: CubeTensor,
    weight: &LinearWeight,
    bias: Option<&WeightVector>,
    activation: Activation,
) -> CubeTensor {
    activation::cube::activate(linear(x, weight, bias), activation)
}

/// Multiplies many rows, on tensor cores if the weight allows them.
fn many_rows(x: &Rows, weight: &CubeWeight, bias: Option<&WeightVector>, y: &CubeTensor) {
    let is_done = weight.dense.is_some_and(|dense| dense.launch(x, weight, y));
    match bias {
        Some(bias) if is_done => bias::add(y, bias),
        None if is_done => {}
        bias => tiled::launch(x, weight, bias, y),
    }
}

/// Computes `silu(gate) · up` for `[gate, up] = x Wᵀ`.
pub(crate) fn linear_swiglu(x: CubeTensor, weight: &LinearWeight) -> CubeTensor {
    let device_weight = packed(weight);
    let inter = device_weight.outputs / 2;
    let rows = x.meta.shape().dims::<2>()[0];
    // Gate and up of one result must lie at the same place in two panels.
    let is_fused = rows <= SKINNY_ROWS_MAX && inter.is_multiple_of(PANEL);
    if !is_fused {
        return activation::cube::gated(linear(x, weight, None), Activation::Silu);
    }
    let x = inputs(x, device_weight);
    let y = x.sibling(x.rows, inter);
    if x.rows > 0 {
        skinny::launch(&x, device_weight, None, &y, true);
    }
    y
}

/// Returns the inputs, in the order of the weight's columns.
fn inputs(x: CubeTensor, weight: &CubeWeight) -> Rows {
    let x = Rows::new(x);
    assert_eq!(x.cols, weight.inputs, "linear: width of x [{}, {}]", x.rows, x.cols);
    match weight.groups.as_ref().and_then(|groups| groups.input_order.as_ref()) {
        Some(order) => Rows::new(columns::in_order(&x, order)),
        None => x,
    }
}

fn packed(weight: &LinearWeight) -> &CubeWeight {
    let packed = weight.on_gpu();
    packed.unwrap_or_else(|| unreachable!("linear: x is on a GPU, the weight is not"))
}
