//! The rotation on a GPU, one unit for each pair or for each element that passes.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use cubecl::server::Handle;

use super::{RotaryStorage, RotaryTable};
use crate::cube::{Rows, StepInput, buffer, cubes, upload, upload_once, words_buffer};

const UNITS: usize = 256;

/// `cos` and `sin`, each `[max_position, rotary_dim / 2]` f32.
#[derive(Debug)]
pub(crate) struct CubeRotary {
    cos: Handle,
    sin: Handle,
}

impl CubeRotary {
    pub(crate) fn new(device: &cubecl::Device, cos: &[f32], sin: &[f32]) -> Self {
        let client = device.client();
        let [cos, sin] = [cos, sin].map(|table| upload(&client, bytemuck::cast_slice(table)));
        Self { cos, sin }
    }
}

/// Returns the cosines and sines of a table on a GPU.
pub(crate) fn rotary(table: &RotaryTable) -> [&Handle; 2] {
    match &table.storage {
        RotaryStorage::Cube(CubeRotary { cos, sin }) => [cos, sin],
        RotaryStorage::Cpu { .. } => unreachable!("rope: the table lies on another device than x"),
    }
}

/// Rotates every head by its token's position.
pub(crate) fn rope(
    x: CubeTensor,
    positions: &[u32],
    head_dim: usize,
    table: &RotaryTable,
) -> CubeTensor {
    let x = Rows::new(x);
    super::check([x.rows, x.cols], positions, head_dim, table);
    let [cos, sin] = rotary(table);
    let y = x.sibling(x.rows, x.cols);
    let half = table.rotary_dim / 2;
    // The unit of a rotated element writes its partner in the second half, too.
    let units = x.rows * (x.cols / head_dim) * (head_dim - half);
    let positions = upload_once(x.client(), x.device(), StepInput::Positions, positions);
    // SAFETY: a unit beyond the elements does nothing; positions and dimensions were checked.
    unsafe {
        rope_kernel::launch_unchecked(
            x.client(),
            cubes(units.div_ceil(UNITS)),
            CubeDim::new_1d(UNITS as u32),
            x.arg(),
            words_buffer(&positions),
            words_buffer(cos),
            words_buffer(sin),
            buffer(&y),
            units,
            x.cols / head_dim,
            x.stride() * x.lanes,
            head_dim,
            half,
        );
    }
    y
}

#[cube(launch_unchecked)]
fn rope_kernel(
    x: &[f32],
    positions: &[u32],
    cos: &[f32],
    sin: &[f32],
    y: &mut [f32],
    units: usize,
    num_heads: usize,
    stride: usize,
    #[comptime] head_dim: usize,
    #[comptime] half: usize,
) {
    let unit = ABSOLUTE_POS;
    if unit >= units {
        terminate!();
    }
    let units_per_head = comptime!(head_dim - half);
    let i = unit % units_per_head;
    let head = unit / units_per_head % num_heads;
    let token = unit / units_per_head / num_heads;
    let from = token * stride + head * head_dim;
    let to = (token * num_heads + head) * head_dim;
    if i < half {
        let at = positions[token] as usize * half + i;
        let (cos, sin) = (cos[at], sin[at]);
        let (a, b) = (x[from + i], x[from + i + half]);
        y[to + i] = fma(-b, sin, a * cos);
        y[to + i + half] = fma(a, sin, b * cos);
    } else {
        y[to + i + half] = x[from + i + half];
    }
}
