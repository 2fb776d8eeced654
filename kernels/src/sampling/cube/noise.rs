//! The host's noise, in float32: the same words of Philox, and a Gumbel variable that is exact to a
//! few units in the last place.

use cubecl::prelude::*;

const ROUNDS: usize = 10;

/// Returns the word of token `id`: its draw at this position under this seed.
#[cube]
pub(super) fn word(id: u32, seed: &Array<u32>, position: &Array<u32>) -> u32 {
    let (mut c0, mut c1) = (id / 4, 0u32.runtime());
    let (mut c2, mut c3) = (position[0usize], position[1usize]);
    let (mut k0, mut k1) = (seed[0usize], seed[1usize]);
    #[unroll]
    for _ in 0..ROUNDS {
        let (low0, high0) = (c0 * 0xD251_1F53u32, c0.mul_hi(0xD251_1F53u32.runtime()));
        let (low1, high1) = (c2 * 0xCD9E_8D57u32, c2.mul_hi(0xCD9E_8D57u32.runtime()));
        c0 = high1 ^ c1 ^ k0;
        c1 = low1;
        c2 = high0 ^ c3 ^ k1;
        c3 = low0;
        k0 += 0x9E37_79B9u32;
        k1 += 0xBB67_AE85u32;
    }
    let lane = id % 4;
    let low = select(lane == 0u32, c0, c1);
    let high = select(lane == 2u32, c2, c3);
    select(lane < 2u32, low, high)
}

/// Returns standard Gumbel noise, `-ln(-ln u)`, for the middle `u` of the word's 2^-32 wide cell.
#[cube]
pub(super) fn gumbel(word: u32) -> f32 {
    let cell = 2.328_306_4e-10f32;
    let below = (f32::cast_from(word) + 0.5f32) * cell;
    // Near 1 a float32 has too few digits, so there the distance to 1 is used.
    let above = (f32::cast_from(!word) + 0.5f32) * cell;
    let mut exponential = -below.ln();
    if above < 0.125f32 {
        // -ln(1 - y) = y + y²/2 + y³/3 + …
        let mut sum = fma(above, 0.125f32.runtime(), 0.142_857_15f32.runtime());
        sum = fma(above, sum, 0.166_666_67f32.runtime());
        sum = fma(above, sum, 0.2f32.runtime());
        sum = fma(above, sum, 0.25f32.runtime());
        sum = fma(above, sum, 0.333_333_34f32.runtime());
        sum = fma(above, sum, 0.5f32.runtime());
        sum = fma(above, sum, 1.0f32.runtime());
        exponential = above * sum;
    }
    -exponential.ln()
}
