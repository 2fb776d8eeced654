//! The tokens of a row that `min_p`, `top_k` and `top_p` keep.

use cubecl::prelude::*;

use super::pick::{Source, logit};
use super::plan::NONE;
use super::threshold::{self, Weight};
use super::{MASKED, Scratch, UNITS, rank};

/// The tokens that truncation leaves.
#[derive(CubeType)]
pub(super) struct Kept {
    /// Tokens of higher ranks are kept.
    pub(super) rank: u32,
    /// Of the tokens of this rank, ids from here on are cut off.
    pub(super) first_cut: u32,
}

/// Returns the tokens that `min_p`, `top_k` and `top_p` keep, which are never masked ones.
#[cube]
pub(super) fn truncate(
    raw: &[f32],
    edited: &[f32],
    rows: &[u32],
    masks: &[u32],
    source: &Source,
    scratch: &mut Scratch,
    of_row: usize,
    max: f32,
) -> Kept {
    let (top_k, tail) = (rows[of_row + 2], f32::reinterpret(rows[of_row + 4]));
    let floor = max + f32::reinterpret(rows[of_row + 3]);
    let mut kept = rank(MASKED.runtime()) + 1u32;
    if floor > MASKED {
        kept = max_u32(kept, rank(floor));
    }
    if top_k > 0u32 {
        let (all, enough) = (0u32.runtime(), f32::cast_from(top_k));
        let kth = threshold::largest(
            raw,
            edited,
            masks,
            source,
            scratch,
            all,
            max,
            enough,
            Weight::Count,
        );
        kept = max_u32(kept, kth);
    }
    let mut first_cut = NONE.runtime();
    if tail >= 0.0f32 {
        let total = mass_above(raw, edited, masks, source, scratch, kept - 1u32, max);
        let enough = fma(-tail, total, total);
        let below = threshold::largest(
            raw,
            edited,
            masks,
            source,
            scratch,
            kept,
            max,
            enough,
            Weight::Mass,
        );
        let edge = max_u32(below + 1u32, kept);
        // Tied tokens stay as long as those before them weigh too little.
        let before = mass_above(raw, edited, masks, source, scratch, edge, max);
        let (tied, weight) = tied_at(raw, edited, masks, source, scratch, edge, max);
        let stay = ((enough - before) / weight).ceil();
        if tied > stay {
            let cut = tied - stay;
            first_cut = threshold::largest(
                raw,
                edited,
                masks,
                source,
                scratch,
                edge,
                max,
                cut,
                Weight::Tie,
            );
        }
        kept = edge;
    }
    Kept { rank: kept, first_cut }
}

/// Returns the weight of all tokens above `place` together, relative to the likeliest.
#[cube]
fn mass_above(
    raw: &[f32],
    edited: &[f32],
    masks: &[u32],
    source: &Source,
    scratch: &mut Scratch,
    place: u32,
    max: f32,
) -> f32 {
    let mut mass = 0.0f32.runtime();
    let mut id = UNIT_POS as usize;
    while id < source.vocab {
        let x = logit(raw, edited, masks, source, id);
        if rank(x) > place {
            mass += (x - max).exp();
        }
        id += UNITS;
    }
    scratch.sum(mass)
}

/// Returns how many tokens have rank `place`, and the weight of each of them.
#[cube]
fn tied_at(
    raw: &[f32],
    edited: &[f32],
    masks: &[u32],
    source: &Source,
    scratch: &mut Scratch,
    place: u32,
    max: f32,
) -> (f32, f32) {
    let mut tied = 0.0f32.runtime();
    let mut weight = 0.0f32.runtime();
    let mut id = UNIT_POS as usize;
    while id < source.vocab {
        let x = logit(raw, edited, masks, source, id);
        if rank(x) == place {
            tied += 1.0f32;
            weight = (x - max).exp();
        }
        id += UNITS;
    }
    let (weight, _) = scratch.best(weight, 0u32.runtime());
    (scratch.sum(tied), weight)
}

#[cube]
fn max_u32(a: u32, b: u32) -> u32 {
    select(a > b, a, b)
}
