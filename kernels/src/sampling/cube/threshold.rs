//! Thresholds of a row, found three bits at a time. A threshold is the largest `t` for which the
//! tokens from `t` on weigh enough. A pass over the row tries seven values, and eleven passes find
//! all 32 bits.

use cubecl::prelude::*;

use super::pick::{Source, logit};
use super::{Scratch, TRIED, UNITS, rank};

const PASSES: usize = 11;

/// The weight of a token, and the number to compare with a threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Weight {
    /// 1, compared by its rank.
    Count,
    /// Its probability relative to the likeliest if it is kept, else 0; compared by its rank, which
    /// must be above the threshold.
    Mass,
    /// 1 if its rank is `kept`, else 0; compared by its id.
    Tie,
}

/// Returns the largest threshold from which on tokens weigh at least `enough`, which is above 0.
/// Returns 0 if all tokens together weigh less.
#[cube]
pub(super) fn largest(
    raw: &[f32],
    edited: &[f32],
    masks: &[u32],
    source: &Source,
    scratch: &mut Scratch,
    kept: u32,
    max: f32,
    enough: f32,
    #[comptime] weight: Weight,
) -> u32 {
    let unit = UNIT_POS as usize;
    let mut found = 0u32.runtime();
    for pass in 0..PASSES {
        let shift = comptime!(3 * (PASSES - 1)) as u32 - 3u32 * pass as u32;
        let mut mine = Array::<f32>::new(TRIED);
        #[unroll]
        for i in 0..TRIED {
            mine[i] = 0.0f32;
        }
        let mut id = unit;
        while id < source.vocab {
            let x = logit(raw, edited, masks, source, id);
            let place = rank(x);
            let (held, weighs) = match comptime!(weight) {
                Weight::Count => (place, 1.0f32.runtime()),
                Weight::Mass => {
                    // Above means from the next rank on.
                    (place - 1u32, select(place >= kept, (x - max).exp(), 0.0f32.runtime()))
                }
                Weight::Tie => (id as u32, select(place == kept, 1.0f32.runtime(), 0.0f32)),
            };
            // The number of thresholds that it reaches, which are the first ones.
            if held >= found {
                let reached = min((held - found) >> shift, comptime!(TRIED as u32).runtime());
                #[unroll]
                for i in 0..TRIED {
                    if reached > comptime!(i as u32) {
                        mine[i] += weighs;
                    }
                }
            }
            id += UNITS;
        }
        #[unroll]
        for i in 0..TRIED {
            scratch.numbers[comptime!(i * UNITS) + unit] = mine[i];
        }
        sync_cube();
        let mut step = comptime!(UNITS / 2).runtime();
        while step > 0 {
            if unit < step {
                #[unroll]
                for i in 0..TRIED {
                    let other = scratch.numbers[comptime!(i * UNITS) + unit + step];
                    scratch.numbers[comptime!(i * UNITS) + unit] += other;
                }
            }
            sync_cube();
            step /= 2;
        }
        let mut digit = 0u32.runtime();
        #[unroll]
        for i in 0..TRIED {
            if scratch.numbers[comptime!(i * UNITS)] >= enough {
                digit = comptime!(i as u32 + 1).runtime();
            }
        }
        found += digit << shift;
        sync_cube();
    }
    found
}
