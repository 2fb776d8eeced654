//! The tokens of a sequence as kernels find them.

use cubecl::prelude::*;

use super::plan::ITEM_WORDS;

/// The numbers that all units of a launch share.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct StateLayout {
    /// The first sequence of the launch among the plan's items.
    first_item: usize,
    block_size: usize,
    /// Numbers from one state to the next.
    stride: usize,
    /// The place of the recurrence's numbers in a state.
    state_at: usize,
}

/// The tokens of one sequence in a step, in order.
#[derive(CubeType)]
pub(crate) struct Tokens {
    /// The row of the first token in the batch.
    pub(crate) first_row: usize,
    pub(crate) count: usize,
    /// The position of the first token.
    start: usize,
    /// The place of the sequence's blocks in the plan.
    blocks: usize,
}

#[cube]
impl Tokens {
    /// Reads sequence `index` of a launch.
    pub(crate) fn read(plan: &[u32], layout: &StateLayout, index: usize) -> Tokens {
        let at = (layout.first_item + index) * ITEM_WORDS;
        Tokens {
            first_row: plan[at] as usize,
            count: plan[at + 1] as usize,
            start: plan[at + 2] as usize,
            blocks: plan[at + 3] as usize,
        }
    }

    /// Returns whether there is a state before the first token. Otherwise it is zero.
    pub(crate) fn has_state(&self) -> bool {
        self.start > 0
    }

    /// Returns whether token `t` of these is the first of its sequence.
    pub(crate) fn is_first(&self, t: usize) -> bool {
        self.start + t == 0
    }

    /// Returns the place of the state before the first token.
    pub(crate) fn state_before(&self, plan: &[u32], layout: &StateLayout) -> usize {
        plan[self.blocks] as usize * layout.stride + layout.state_at
    }

    /// Returns whether the state after token `t` of these is kept: at the end of a block, and after
    /// the last token.
    pub(crate) fn is_kept(&self, layout: &StateLayout, t: usize) -> bool {
        let offset = (self.start + t) % layout.block_size;
        offset + 1 == layout.block_size || t + 1 == self.count
    }

    /// Returns the place of the state after token `t`.
    pub(crate) fn state_after(&self, plan: &[u32], layout: &StateLayout, t: usize) -> usize {
        let first = self.start / layout.block_size;
        let block = (self.start + t) / layout.block_size - first;
        plan[self.blocks + 1 + block] as usize * layout.stride + layout.state_at
    }
}
