//! The choice of the best experts, and of the groups that they are taken from.

use cubecl::prelude::*;

use super::Form;

/// The rank of an expert that cannot be chosen: below that of every number.
const TAKEN: u32 = 0;

/// The memory of a cube.
#[derive(CubeType)]
pub(super) struct Memory {
    /// The ranks of the numbers that experts are chosen by, or [`TAKEN`].
    pub(super) ranks: Shared<[u32]>,
    /// The same of the groups.
    group_ranks: Shared<[u32]>,
    /// The best of each unit: its rank and its index.
    best: Shared<[u32]>,
    best_at: Shared<[u32]>,
    pub(super) chosen: Shared<[u32]>,
    pub(super) weights: Shared<[f32]>,
}

#[cube]
impl Memory {
    pub(super) fn new(#[comptime] form: Form) -> Memory {
        Memory {
            ranks: Shared::<[u32]>::new_slice(comptime!(form.num_experts)),
            group_ranks: Shared::<[u32]>::new_slice(comptime!(form.num_groups)),
            best: Shared::<[u32]>::new_slice(comptime!(form.units)),
            best_at: Shared::<[u32]>::new_slice(comptime!(form.units)),
            chosen: Shared::<[u32]>::new_slice(comptime!(form.top_k)),
            weights: Shared::<[f32]>::new_slice(comptime!(form.top_k)),
        }
    }
}

/// Returns a number's place among all numbers, as an integer above [`TAKEN`]: larger for larger
/// numbers, and the largest for NaN.
#[cube]
pub(super) fn rank(x: f32) -> u32 {
    let bits = u32::reinterpret(x);
    let magnitude = bits & 0x7fff_ffffu32;
    // Both zeros are one number.
    let bits = select(magnitude == 0u32, 0u32.runtime(), bits);
    let flip = select(bits >= 0x8000_0000u32, 0xffff_ffffu32, 0x8000_0000u32);
    select(magnitude > 0x7f80_0000u32, 0xffff_ffffu32.runtime(), bits ^ flip)
}

/// Returns the number of a rank.
#[cube]
fn of_rank(rank: u32) -> f32 {
    let flip = select(rank >= 0x8000_0000u32, 0x8000_0000u32.runtime(), 0xffff_ffffu32.runtime());
    f32::reinterpret(rank ^ flip)
}

/// Takes the experts of all groups but the best.
#[cube]
pub(super) fn close_groups(memory: &mut Memory, #[comptime] form: Form) {
    let (groups, units) = comptime!((form.num_groups, form.units));
    let size = comptime!(form.group_size());
    let unit = UNIT_POS as usize;
    let mut group = unit;
    while group < groups {
        let mut best = TAKEN.runtime();
        let mut second = TAKEN.runtime();
        for i in 0..size {
            let other = memory.ranks[group * size + i];
            if other > best {
                second = best;
                best = other;
            } else if other > second {
                second = other;
            }
        }
        memory.group_ranks[group] = best;
        if comptime!(form.is_by_two) {
            memory.group_ranks[group] = rank(of_rank(best) + of_rank(second));
        }
        group += units;
    }
    sync_cube();
    for _ in 0..comptime!(form.num_chosen) {
        let _ = take_best(memory, true, groups, units);
    }
    // A group that was chosen is taken now, and its experts are open.
    let mut e = unit;
    while e < comptime!(form.num_experts) {
        if memory.group_ranks[e / size] != TAKEN {
            memory.ranks[e] = TAKEN;
        }
        e += units;
    }
    sync_cube();
}

/// Returns the best expert, or group, that is not taken, and takes it. Of equal ones the lower
/// index comes first.
#[cube]
pub(super) fn take_best(
    memory: &mut Memory,
    #[comptime] is_group: bool,
    #[comptime] count: usize,
    #[comptime] units: usize,
) -> u32 {
    let unit = UNIT_POS as usize;
    let mut best = TAKEN.runtime();
    let mut at = 0u32.runtime();
    let mut i = unit;
    while i < count {
        let other = if comptime!(is_group) { memory.group_ranks[i] } else { memory.ranks[i] };
        if other > best {
            best = other;
            at = i as u32;
        }
        i += units;
    }
    memory.best[unit] = best;
    memory.best_at[unit] = at;
    sync_cube();
    #[unroll]
    for level in 0..comptime!(units.ilog2() as usize) {
        let step = comptime!(units >> (level + 1));
        if unit < step {
            let (other, other_at) = (memory.best[unit + step], memory.best_at[unit + step]);
            let (mine, mine_at) = (memory.best[unit], memory.best_at[unit]);
            if other > mine || (other == mine && other_at < mine_at) {
                memory.best[unit] = other;
                memory.best_at[unit] = other_at;
            }
        }
        sync_cube();
    }
    let taken = memory.best_at[0];
    if unit == 0 {
        if comptime!(is_group) {
            memory.group_ranks[taken as usize] = TAKEN;
        } else {
            memory.ranks[taken as usize] = TAKEN;
        }
    }
    sync_cube();
    taken
}
