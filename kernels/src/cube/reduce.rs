//! Sums in a fixed order, and the largest number.

use cubecl::prelude::*;

/// Returns the sum of the elements of a vector, added from the first to the last.
#[cube]
pub(crate) fn lanes_sum<N: Size>(vector: Vector<f32, N>) -> f32 {
    let mut sum = vector.extract(0usize);
    #[unroll]
    for i in 1..N::value() {
        sum += vector.extract(i);
    }
    sum
}

/// Adds `partial` of all `units` of the cube, a power of two, in a tree. Every unit gets the sum.
#[cube]
pub(crate) fn sum_of_units(partial: f32, #[comptime] units: usize) -> f32 {
    let mut sums = Shared::<[f32]>::new_slice(units);
    let unit = UNIT_POS as usize;
    sums[unit] = partial;
    sync_cube();
    #[unroll]
    for level in 0..comptime!(units.ilog2() as usize) {
        let step = comptime!(units >> (level + 1));
        if unit < step {
            let other = sums[unit + step];
            sums[unit] += other;
        }
        sync_cube();
    }
    sums[0]
}

/// Returns the largest `number` of all `units` of the cube, a power of two. Every unit
/// gets it. No number is NaN.
#[cube]
pub(crate) fn max_of_units(number: f32, #[comptime] units: usize) -> f32 {
    let mut numbers = Shared::<[f32]>::new_slice(units);
    let unit = UNIT_POS as usize;
    numbers[unit] = number;
    sync_cube();
    #[unroll]
    for level in 0..comptime!(units.ilog2() as usize) {
        let step = comptime!(units >> (level + 1));
        if unit < step {
            let (mine, other) = (numbers[unit], numbers[unit + step]);
            numbers[unit] = select(other > mine, other, mine);
        }
        sync_cube();
    }
    numbers[0]
}
