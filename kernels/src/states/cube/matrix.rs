//! States that are a matrix `[key_dim, value_dim]` for each head: `S ← d·S + k·aᵀ`, and the result
//! is `Sᵀq`. The row `a` depends on the [`MatrixRule`].
//!
//! Columns do not depend on each other, so a cube has some neighbouring columns of one head of one
//! sequence. A unit has one column and a part of the rows, which stay in its registers. Parts are
//! summed in their order. The shape alone decides the parts, so a token's bytes do not depend on
//! the batch or on chunks.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use cubecl::server::Handle;

use super::{StateLayout, States, Tokens};
use crate::WeightVector;
use crate::cube::{Rows, buffer, cubes, words_buffer};

/// Most columns of a cube.
const COLUMNS_MAX: usize = 64;

/// Most units of a cube.
const UNITS_MAX: usize = 256;

/// Most rows of a unit whose loop is written out, so that they are in registers.
const UNROLLED_MAX: usize = 64;

/// The row that a token adds to the state, times its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum MatrixRule {
    /// `g·v`.
    Value,
    /// `g·(v − d·Sᵀk)`.
    Delta,
}

/// Heads, and the places of their inputs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MatrixHeads {
    pub(crate) num_key_heads: usize,
    pub(crate) num_heads: usize,
    pub(crate) key_dim: usize,
    pub(crate) value_dim: usize,
    /// The first columns of queries and of keys in the rows of `keys`, and of values in the rows of
    /// `values`.
    pub(crate) columns: [usize; 3],
}

/// The inputs of all tokens.
pub(crate) struct MatrixInputs<'a> {
    /// The rows with queries and keys, and those with values.
    pub(crate) keys: &'a Rows,
    pub(crate) values: &'a Rows,
    /// `d` and `g`: `[num_tokens, num_heads, 2]`, or `[num_heads, 2]` for all tokens.
    pub(crate) factors: &'a Handle,
    pub(crate) has_factors_by_token: bool,
    /// The factor of a value that is added to the result: `[num_heads]`.
    pub(crate) skip: Option<&'a WeightVector>,
}

/// The numbers that all cubes of a launch share.
#[derive(CubeType, CubeLaunch)]
struct MatrixLayout {
    /// Cubes of the launch.
    cubes: usize,
    num_heads: usize,
    /// Heads of a key head.
    group: usize,
    keys_stride: usize,
    values_stride: usize,
    q_at: usize,
    k_at: usize,
    v_at: usize,
    /// Factors from one token to the next; 0 if all tokens share them.
    factors_stride: usize,
    states: StateLayout,
    #[cube(comptime)]
    form: MatrixForm,
}

/// The constants that a kernel is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct MatrixForm {
    rule: MatrixRule,
    key_dim: usize,
    value_dim: usize,
    /// Columns of a cube, and parts that its rows are cut in.
    columns: usize,
    parts: usize,
}

impl MatrixForm {
    fn new(rule: MatrixRule, key_dim: usize, value_dim: usize) -> Self {
        let columns = value_dim.next_power_of_two().min(COLUMNS_MAX);
        let parts = key_dim.next_power_of_two().min(UNITS_MAX / columns);
        Self { rule, key_dim, value_dim, columns, parts }
    }

    const fn units(self) -> usize {
        self.columns * self.parts
    }

    /// Returns the cubes of a head.
    const fn tiles(self) -> usize {
        self.value_dim.div_ceil(self.columns)
    }

    /// Returns the rows of a unit.
    const fn rows(self) -> usize {
        self.key_dim.div_ceil(self.parts)
    }

    const fn is_unrolled(self) -> bool {
        self.rows() <= UNROLLED_MAX
    }
}

/// Takes the states over the tokens of a step. Returns `[num_tokens, num_heads · value_dim]`.
pub(crate) fn advance(
    rule: MatrixRule,
    heads: MatrixHeads,
    inputs: &MatrixInputs<'_>,
    states: &States<'_>,
) -> CubeTensor {
    let MatrixHeads { num_heads, num_key_heads, columns: [q_at, k_at, v_at], .. } = heads;
    let form = MatrixForm::new(rule, heads.key_dim, heads.value_dim);
    let MatrixInputs { keys, values, .. } = *inputs;
    let y = values.sibling(values.rows, num_heads * heads.value_dim);
    states.launches(|num_seqs, layout| {
        let count = num_seqs * num_heads * form.tiles();
        let layout = MatrixLayoutLaunch::new(
            count,
            num_heads,
            num_heads / num_key_heads,
            keys.stride() * keys.lanes,
            values.stride() * values.lanes,
            q_at,
            k_at,
            v_at,
            if inputs.has_factors_by_token { 2 * num_heads } else { 0 },
            layout,
            form,
        );
        // SAFETY: a cube beyond the heads does nothing. The caller checked the widths of its rows,
        // and `States` the blocks and the room of a state.
        unsafe {
            matrix_kernel::launch_unchecked(
                values.client(),
                cubes(count),
                CubeDim::new_1d(form.units() as u32),
                keys.arg(),
                values.arg(),
                words_buffer(inputs.factors),
                inputs.skip.map(|skip| words_buffer(skip.cube())).into(),
                words_buffer(states.plan()),
                words_buffer(states.pages()),
                buffer(&y),
                layout,
            );
        }
    });
    y
}

/// Computes some columns of one head of one sequence in each cube.
#[cube(launch_unchecked)]
fn matrix_kernel(
    keys: &[f32],
    values: &[f32],
    factors: &[f32],
    skip: ComptimeOption<&[f32]>,
    plan: &[u32],
    pages: &mut [f32],
    y: &mut [f32],
    layout: MatrixLayout,
) {
    let cube = CUBE_POS;
    if cube >= layout.cubes {
        terminate!();
    }
    let form = comptime!(layout.form);
    let (rows, columns) = comptime!((form.rows(), form.columns));
    let value_dim = comptime!(form.value_dim);
    let tile = cube % comptime!(form.tiles());
    let head = cube / comptime!(form.tiles()) % layout.num_heads;
    let tokens =
        Tokens::read(plan, &layout.states, cube / comptime!(form.tiles()) / layout.num_heads);
    let unit = UNIT_POS as usize;
    let (part, lane) = (unit / columns, unit % columns);
    // The columns of the last cube may be beyond the state. Their units compute the last column.
    let wanted = tile * columns + lane;
    let column = min(wanted, comptime!(value_dim - 1).runtime());
    let first_row = part * rows;
    let of_unit = head * comptime!(form.key_dim * value_dim) + first_row * value_dim + column;

    let mut sums = Shared::<[f32]>::new_slice(comptime!(form.units()));
    let at = tokens.state_before(plan, &layout.states) + of_unit;
    let mut state = loaded(&*pages, at, value_dim, first_row, tokens.has_state(), form);
    for t in 0..tokens.count {
        let token = tokens.first_row + t;
        let of_factors = token * layout.factors_stride + 2 * head;
        let (decay, gain) = (factors[of_factors], factors[of_factors + 1]);
        let v = values[token * layout.values_stride + layout.v_at + head * value_dim + column];
        let of_keys =
            token * layout.keys_stride + head / layout.group * comptime!(form.key_dim) + first_row;
        let k = loaded(keys, of_keys + layout.k_at, 1usize, first_row, true, form);
        let added = added(&state, &k, &mut sums, v, decay, gain, form);
        let mut result = 0.0f32.runtime();
        #[unroll(form.is_unrolled())]
        for i in 0..rows {
            let next = fma(k[i], added, state[i] * decay);
            state[i] = next;
            if first_row + i < comptime!(form.key_dim) {
                result = fma(next, keys[of_keys + layout.q_at + i], result);
            }
        }
        let mut result = sum_of_parts(&mut sums, result, form);
        if comptime!(skip.is_some()) {
            result = fma(v, skip.unwrap()[head], result);
        }
        if part == 0 && wanted < value_dim {
            y[(token * layout.num_heads + head) * value_dim + column] = result;
        }
        if tokens.is_kept(&layout.states, t) && wanted < value_dim {
            let at = tokens.state_after(plan, &layout.states, t);
            keep(&state, pages, at + of_unit, first_row, form);
        }
    }
}

/// Returns the numbers of a unit's rows, `step` apart from place `at` on. Rows beyond the state,
/// and all of them if none `are_there`, are 0.
#[cube]
fn loaded(
    numbers: &[f32],
    at: usize,
    #[comptime] step: usize,
    first_row: usize,
    are_there: bool,
    #[comptime] form: MatrixForm,
) -> Array<f32> {
    let mut rows = Array::<f32>::new(comptime!(form.rows()));
    #[unroll(form.is_unrolled())]
    for i in 0..comptime!(form.rows()) {
        rows[i] = 0.0f32;
        if are_there && first_row + i < comptime!(form.key_dim) {
            rows[i] = numbers[at + i * step];
        }
    }
    rows
}

/// Returns the number that a token adds to a column of the state, times its key.
#[cube]
fn added(
    state: &Array<f32>,
    k: &Array<f32>,
    sums: &mut Shared<[f32]>,
    v: f32,
    decay: f32,
    gain: f32,
    #[comptime] form: MatrixForm,
) -> f32 {
    let mut added = v * gain;
    if comptime!(form.rule == MatrixRule::Delta) {
        let mut read = 0.0f32.runtime();
        #[unroll(form.is_unrolled())]
        for i in 0..comptime!(form.rows()) {
            read = fma(state[i], k[i], read);
        }
        added = fma(-decay, sum_of_parts(sums, read, form), v) * gain;
    }
    added
}

/// Writes a unit's rows of the state to the places from `at` on.
#[cube]
fn keep(
    state: &Array<f32>,
    pages: &mut [f32],
    at: usize,
    first_row: usize,
    #[comptime] form: MatrixForm,
) {
    #[unroll(form.is_unrolled())]
    for i in 0..comptime!(form.rows()) {
        if first_row + i < comptime!(form.key_dim) {
            pages[at + i * comptime!(form.value_dim)] = state[i];
        }
    }
}

/// Returns the sum of a column's numbers of all parts, in their order. Every unit gets that of its
/// column.
#[cube]
fn sum_of_parts(sums: &mut Shared<[f32]>, number: f32, #[comptime] form: MatrixForm) -> f32 {
    if comptime!(form.parts == 1) {
        number
    } else {
        let unit = UNIT_POS as usize;
        let lane = unit % comptime!(form.columns);
        sums[unit] = number;
        sync_cube();
        let mut sum = sums[lane];
        #[unroll]
        for part in 1..comptime!(form.parts) {
            sum += sums[comptime!(part * form.columns) + lane];
        }
        // The next sum is written to the same places.
        sync_cube();
        sum
    }
}
