//! Adapters of experts on a GPU: two launches for each adapter and product, whatever the routing.
//! The device finds a row's expert in its choices, and the expert's matrices in a table.
//!
//! | | |
//! |---|---|
//! | launches | a cube for each row of the adapter and each of its ranks, then a unit for each row and output |
//! | bytes moved | for each row: A and B of its expert, its x once for each rank, and its y once |
//! | order of a sum | `A x`: each of 64 units adds every 64th input in order, and a tree folds the units. `B (A x)`: in the order of the rank, from zero, then added to y. Neither depends on other rows |

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use cubecl::server::Handle;

use super::plan::Plan;
use crate::cube::{
    Rows, buffer, cubes, float_tensor, reserved_words, sum_of_units, upload_of_caller, words_buffer,
};
use crate::experts::lora::WHAT;
use crate::lora::Block;
use crate::{KernelError, LoraPair};

/// Units of a cube that sums a row of A, and of one that adds to y.
const SUM_UNITS: usize = 64;
const UNITS: usize = 256;

/// The words of a block in the table, and their places.
const BLOCK_WORDS: usize = 7;
const A_START: usize = 0;
const B_START: usize = 1;
const RANK: usize = 2;
const FIRST_RANK: usize = 3;
const FIRST_OUTPUT: usize = 4;
const OUTPUTS: usize = 5;
const SCALE: usize = 6;

/// The matrices of one adapter for one product of all experts.
#[derive(Debug)]
pub(crate) struct CubeLora {
    /// `[expert][place of its first block, place behind its last]`, then the blocks.
    table: Handle,
    /// `[rank, inputs]` of each block.
    a: Handle,
    /// `[rank, outputs]` of each block, so that neighbouring units read neighbouring elements.
    b: Handle,
    /// The ranks of the expert that has most.
    rank: usize,
}

impl CubeLora {
    /// Copies the pairs of all experts, which have these blocks and so many inputs.
    ///
    /// # Errors
    /// More elements than kernels count, or the device refuses the memory.
    pub(in crate::experts) fn new(
        experts: &[Vec<LoraPair<'_>>],
        blocks: &[Vec<Block>],
        inputs: usize,
        device: &cubecl::Device,
    ) -> Result<Self, KernelError> {
        let all = || blocks.iter().flatten();
        let ranks: usize = all().map(|block| block.rank).sum();
        let of_b: usize = all().map(|block| block.rank * block.outputs).sum();
        let of_table = 2 * experts.len() + BLOCK_WORDS * all().count();
        let lens = [
            ("elements of all A", ranks * inputs),
            ("elements of all B", of_b),
            ("words of the table", of_table),
        ];
        for (field, len) in lens {
            let accepted = format!("at most {}", u32::MAX);
            KernelError::require(u32::try_from(len).is_ok(), WHAT, field, len as u64, accepted)?;
        }
        // All numbers below fit 32 bits, because the sums and the layer's outputs do.
        let (mut places, mut words) = (Vec::new(), Vec::new());
        let (mut a_len, mut b_len, mut rank) = (0, 0, 0);
        for blocks in blocks {
            let place = |words: &[u32]| (2 * experts.len() + words.len()) as u32;
            places.push(place(&words));
            for block in blocks {
                let Block { first_rank, rank, first_output, outputs, scale, .. } = *block;
                let numbers = [a_len, b_len, rank, first_rank, first_output, outputs];
                words.extend(numbers.map(|number| number as u32));
                words.push(scale.to_bits());
                a_len += rank * inputs;
                b_len += rank * outputs;
            }
            places.push(place(&words));
            rank = rank.max(blocks.iter().map(|block| block.rank).sum());
        }
        places.append(&mut words);
        let (mut a, mut b) = (Vec::with_capacity(a_len), Vec::with_capacity(b_len));
        for pair in experts.iter().flatten() {
            a.extend(pair.a.iter().map(|a| a.to_bits()));
            for j in 0..pair.rank {
                b.extend(pair.b.iter().skip(j).step_by(pair.rank).map(|b| b.to_bits()));
            }
        }
        let client = device.client();
        // An adapter may be unloaded. The driver then gets the memory back, but only when a thread
        // with the same pools allocates again: the pools go round among threads.
        let copied = |words: &[u32]| reserved_words(&client, words, WHAT);
        Ok(Self { table: copied(&places)?, a: copied(&a)?, b: copied(&b)?, rank })
    }

    /// Returns the bytes of the matrices.
    pub(in crate::experts) fn size_bytes(&self) -> usize {
        (self.a.size_in_used() + self.b.size_in_used()) as usize
    }
}

/// The input of a row of the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum InputOf {
    /// Its token's.
    Token,
    /// Its token's, multiplied by the weight of its expert.
    ScaledToken,
    /// Its own.
    Row,
}

/// The tokens of one adapter, on the device.
pub(super) struct Tokens {
    pub(super) words: Handle,
    pub(super) count: usize,
}

impl Tokens {
    /// Copies tokens to the device.
    pub(super) fn of(client: &cubecl::client::Client, tokens: &[u32]) -> Self {
        Self { words: upload_of_caller(client, tokens), count: tokens.len() }
    }
}

/// Adds the products of an adapter to the rows of its tokens. `x` has the inputs of the rows, and
/// `y` has a row for each row of the plan.
pub(super) fn add(
    y: &CubeTensor,
    x: &Rows,
    input: InputOf,
    plan: &Plan,
    tokens: &Tokens,
    weights: &CubeLora,
) {
    let [_, outputs] = y.meta.shape().dims::<2>();
    let count = tokens.count * plan.top_k();
    let low = float_tensor(x.client(), x.device(), [count, weights.rank]);
    // SAFETY: cubes and units beyond the rows do nothing, and tokens are below those of the plan.
    // The table has the places of each expert's matrices, all within their buffers.
    unsafe {
        expert_shrink_kernel::launch_unchecked(
            x.client(),
            cubes(count * weights.rank),
            CubeDim::new_1d(SUM_UNITS as u32),
            x.arg(),
            words_buffer(&tokens.words),
            words_buffer(plan.tokens()),
            words_buffer(plan.choices()),
            words_buffer(&weights.table),
            words_buffer(&weights.a),
            buffer(&low),
            count,
            weights.rank,
            plan.rows(),
            plan.top_k(),
            x.cols,
            x.stride() * x.lanes,
            input,
            SUM_UNITS,
        );
        expert_expand_kernel::launch_unchecked(
            x.client(),
            cubes((count * outputs).div_ceil(UNITS)),
            CubeDim::new_1d(UNITS as u32),
            buffer(&low),
            words_buffer(&tokens.words),
            words_buffer(plan.tokens()),
            words_buffer(plan.choices()),
            words_buffer(&weights.table),
            words_buffer(&weights.b),
            buffer(y),
            count * outputs,
            weights.rank,
            plan.rows(),
            plan.top_k(),
            outputs,
        );
    }
}

/// Computes an element of `scale · A x`: of row `CUBE_POS / rank` and rank `CUBE_POS % rank`. A
/// rank that the row's expert lacks becomes zero.
#[cube(launch_unchecked)]
fn expert_shrink_kernel(
    x: &[f32],
    tokens: &[u32],
    plan: &[u32],
    choices: &[u32],
    table: &[u32],
    a: &[f32],
    low: &mut [f32],
    count: usize,
    rank: usize,
    rows: usize,
    top_k: usize,
    inputs: usize,
    stride: usize,
    #[comptime] input: InputOf,
    #[comptime] units: usize,
) {
    if CUBE_POS >= count * rank {
        terminate!();
    }
    let (place, j) = (CUBE_POS / rank, CUBE_POS % rank);
    let token = tokens[place / top_k] as usize;
    let choice = token * top_k + place % top_k;
    let expert = choices[2 * choice] as usize;
    let mut block = table[2 * expert] as usize;
    let end = table[2 * expert + 1] as usize;
    let mut first = 0usize.runtime();
    let mut len = 0usize.runtime();
    let mut scale = 0.0f32.runtime();
    while block < end {
        let first_rank = table[block + comptime!(FIRST_RANK)] as usize;
        if j >= first_rank && j < first_rank + table[block + comptime!(RANK)] as usize {
            first = table[block + comptime!(A_START)] as usize + (j - first_rank) * inputs;
            len = inputs;
            scale = f32::reinterpret(table[block + comptime!(SCALE)]);
        }
        block += comptime!(BLOCK_WORDS);
    }
    let of_x = match comptime!(input) {
        InputOf::Token | InputOf::ScaledToken => token,
        InputOf::Row => plan[2 * rows + choice] as usize,
    };
    let factor = match comptime!(input) {
        InputOf::ScaledToken => f32::reinterpret(choices[2 * choice + 1]),
        InputOf::Token | InputOf::Row => 1.0f32.runtime(),
    };
    let mut sum = 0.0f32.runtime();
    let mut i = UNIT_POS as usize;
    while i < len {
        sum = fma(a[first + i], factor * x[of_x * stride + i], sum);
        i += units;
    }
    let sum = sum_of_units(sum, units);
    if UNIT_POS == 0 {
        low[CUBE_POS] = sum * scale;
    }
}

/// Adds an element of `B low` to y.
#[cube(launch_unchecked)]
fn expert_expand_kernel(
    low: &[f32],
    tokens: &[u32],
    plan: &[u32],
    choices: &[u32],
    table: &[u32],
    b: &[f32],
    y: &mut [f32],
    elements: usize,
    rank: usize,
    rows: usize,
    top_k: usize,
    width: usize,
) {
    let element = ABSOLUTE_POS;
    if element >= elements {
        terminate!();
    }
    let (place, output) = (element / width, element % width);
    let choice = tokens[place / top_k] as usize * top_k + place % top_k;
    let expert = choices[2 * choice] as usize;
    let at = plan[2 * rows + choice] as usize * width + output;
    let mut block = table[2 * expert] as usize;
    let end = table[2 * expert + 1] as usize;
    while block < end {
        let first_output = table[block + comptime!(FIRST_OUTPUT)] as usize;
        let outputs = table[block + comptime!(OUTPUTS)] as usize;
        if output >= first_output && output < first_output + outputs {
            let from = place * rank + table[block + comptime!(FIRST_RANK)] as usize;
            let first = table[block + comptime!(B_START)] as usize + output - first_output;
            let mut sum = 0.0f32.runtime();
            for j in 0..table[block + comptime!(RANK)] as usize {
                sum = fma(low[from + j], b[first + j * outputs], sum);
            }
            y[at] += sum;
        }
        block += comptime!(BLOCK_WORDS);
    }
}
