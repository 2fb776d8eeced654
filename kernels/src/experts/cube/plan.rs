//! The order in which a batch's tokens meet the experts, made on the device. Only the number of
//! choices decides its shape.
//!
//! A cube has one expert. It counts the choices of lower experts, which is the place of its own
//! rows, and writes them in the order of their tokens. So cubes need not wait for each other.

use cubecl::client::Client;
use cubecl::prelude::*;
use cubecl::server::Handle;

use crate::Routing;
use crate::cube::{cubes, words_buffer};
use crate::linear::cube::{ITEM_WORDS, Items, TileKind};

/// Least and most units of a cube.
const UNITS_MIN: usize = 32;
const UNITS_MAX: usize = 256;

/// The places of items, so that each expert knows its own from the place of its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ItemPlaces {
    /// An item for each row, for few rows.
    ByRow,
    /// An item for each full tile of rows, and one more for each expert.
    ByTile,
}

/// A plan, `[rows]` each: the token of a row, its choice, and the row of a choice. A choice is
/// `token · top_k + place`. The items follow.
pub(super) struct Plan {
    words: Handle,
    /// `[choice][expert, weight]`
    choices: Handle,
    rows: usize,
    top_k: usize,
    kind: TileKind,
    num_items: usize,
}

impl Plan {
    /// Sorts the choices of a batch by expert. There is at least one.
    pub(super) fn sort(client: &Client, routing: &Routing) -> Self {
        let (rows, num_experts) = (routing.num_tokens() * routing.top_k(), routing.num_experts());
        let kind = TileKind::of(rows, num_experts);
        Self::cut(client, routing, kind, rows, num_experts)
    }

    /// Does the same for a kind of kernel.
    fn cut(
        client: &Client,
        routing: &Routing,
        kind: TileKind,
        rows: usize,
        num_experts: usize,
    ) -> Self {
        let by_tile = rows / kind.rows() + num_experts;
        let (places, num_items) = match rows <= by_tile {
            true => (ItemPlaces::ByRow, rows),
            false => (ItemPlaces::ByTile, by_tile),
        };
        let choices = routing.on_gpu(client);
        let words = client.empty((3 * rows + ITEM_WORDS * num_items) * size_of::<u32>());
        let units = rows.next_power_of_two().clamp(UNITS_MIN, UNITS_MAX);
        // SAFETY: a cube beyond the experts does nothing, and units stay within the choices. Each
        // expert has the items that its place gives it, all below `num_items`.
        unsafe {
            sort_kernel::launch_unchecked(
                client,
                cubes(num_experts),
                CubeDim::new_1d(units as u32),
                words_buffer(&choices),
                words_buffer(&words),
                rows,
                routing.top_k(),
                num_experts,
                kind.rows(),
                places,
                units,
            );
        }
        Self { words, choices, rows, top_k: routing.top_k(), kind, num_items }
    }

    /// Returns the number of rows: that of choices.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the choices of each token.
    pub(super) fn top_k(&self) -> usize {
        self.top_k
    }

    /// Returns the plan on the device. It begins with the token of each row.
    pub(super) fn tokens(&self) -> &Handle {
        &self.words
    }

    /// Returns the choices on the device, `[choice][expert, weight]`.
    pub(super) fn choices(&self) -> &Handle {
        &self.choices
    }

    /// Returns the work of the products.
    pub(super) fn items(&self) -> Items<'_> {
        Items { words: &self.words, at: 3 * self.rows, count: self.num_items, kind: self.kind }
    }
}

#[cube(launch_unchecked)]
fn sort_kernel(
    choices: &[u32],
    plan: &mut [u32],
    rows: usize,
    top_k: usize,
    num_experts: usize,
    tile: usize,
    #[comptime] places: ItemPlaces,
    #[comptime] units: usize,
) {
    let expert = CUBE_POS;
    if expert >= num_experts {
        terminate!();
    }
    let unit = UNIT_POS as usize;
    let per_unit = rows.div_ceil(units);
    let begin = min(unit * per_unit, rows);
    let end = min(begin + per_unit, rows);
    let mut lower = 0u32.runtime();
    let mut own = 0u32.runtime();
    let mut choice = begin;
    while choice < end {
        let of = choices[2 * choice] as usize;
        lower += select(of < expert, 1u32.runtime(), 0u32.runtime());
        own += select(of == expert, 1u32.runtime(), 0u32.runtime());
        choice += 1;
    }
    let (_, all_lower) = counted(lower, units);
    let (before, all_own) = counted(own, units);
    let first = all_lower as usize;
    let mut row = first + before as usize;
    let mut choice = begin;
    while choice < end {
        if choices[2 * choice] as usize == expert {
            plan[row] = (choice / top_k) as u32;
            plan[rows + row] = choice as u32;
            plan[2 * rows + choice] = row as u32;
            row += 1;
        }
        choice += 1;
    }
    let count = all_own as usize;
    let (begin, end) = match comptime!(places) {
        ItemPlaces::ByRow => (first, first + count),
        ItemPlaces::ByTile => (first / tile + expert, (first + count) / tile + expert + 1),
    };
    let mut item = begin + unit;
    while item < end {
        let skipped = min((item - begin) * tile, count);
        let at = 3 * rows + item * comptime!(ITEM_WORDS);
        plan[at] = expert as u32;
        plan[at + 1] = (first + skipped) as u32;
        plan[at + 2] = min(count - skipped, tile) as u32;
        item += units;
    }
}

/// Returns the sum of the numbers of lower units, and that of all units.
#[cube]
fn counted(number: u32, #[comptime] units: usize) -> (u32, u32) {
    let mut sums = Shared::<[u32]>::new_slice(units);
    let unit = UNIT_POS as usize;
    sums[unit] = number;
    sync_cube();
    #[unroll]
    for level in 0..comptime!(units.ilog2() as usize) {
        let step = comptime!(1usize << level);
        let mut lower = 0u32.runtime();
        if unit >= step {
            lower = sums[unit - step];
        }
        sync_cube();
        sums[unit] += lower;
        sync_cube();
    }
    (sums[unit] - number, sums[comptime!(units - 1)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Choice;
    use crate::cube::test_device::test_client;

    fn sorted(
        experts: &[u32],
        top_k: usize,
        num_experts: usize,
        kind: TileKind,
    ) -> (Vec<u32>, usize) {
        let (client, _) = test_client().unwrap();
        let choices: Vec<Choice> =
            experts.iter().map(|expert| Choice { expert: *expert, weight: 1.0 }).collect();
        let routing = Routing::new(&choices, top_k, num_experts).unwrap();
        let plan = Plan::cut(&client, &routing, kind, experts.len(), num_experts);
        let words = bytemuck::pod_collect_to_vec(&client.read_one(plan.words).unwrap()[..]);
        (words, plan.num_items)
    }

    /// Compares a plan with a stable sort, and the items with the rows that they must cover.
    fn check(experts: &[u32], top_k: usize, num_experts: usize, kind: TileKind) {
        let (words, num_items) = sorted(experts, top_k, num_experts, kind);
        let rows = experts.len();
        let mut choices: Vec<u32> = (0..rows as u32).collect();
        choices.sort_by_key(|choice| experts[*choice as usize]);
        assert_eq!(words[rows..2 * rows], choices);
        for (row, choice) in choices.iter().enumerate() {
            assert_eq!(words[row], choice / top_k as u32, "token of row {row}");
            assert_eq!(words[2 * rows + *choice as usize], row as u32, "row of choice {choice}");
        }
        let mut next = 0;
        let items = words[3 * rows..].chunks_exact(ITEM_WORDS).take(num_items);
        for item in items.filter(|item| item[2] > 0) {
            assert_eq!(item[1], next);
            let of_item = &choices[next as usize..(next + item[2]) as usize];
            assert!(of_item.iter().all(|choice| experts[*choice as usize] == item[0]));
            assert!(item[2] as usize <= kind.rows());
            // A tile that is not full is the last of its expert.
            let last = choices.get((next + item[2]) as usize);
            let is_last = last.is_none_or(|choice| experts[*choice as usize] != item[0]);
            assert!(item[2] as usize == kind.rows() || is_last, "{item:?}");
            next += item[2];
        }
        assert_eq!(next as usize, rows, "rows of all items");
    }

    #[test]
    fn the_device_sorts_choices_and_cuts_them_into_items() {
        if test_client().is_none() {
            return;
        }
        for kind in [TileKind::Skinny, TileKind::Tiled] {
            check(&[3, 1, 1, 0, 3, 1], 2, 5, kind);
            check(&[4], 1, 5, kind);
            check(&[0; 700], 7, 3, kind);
            check(&[2; 700], 7, 3, kind);
            for (tokens, top_k, experts) in [(33, 8, 128), (300, 4, 7), (64, 2, 2), (9, 1, 1)] {
                let draws = |i: u32| i.wrapping_mul(2_654_435_761) >> 7;
                let choices: Vec<u32> = (0..tokens * top_k).map(|i| draws(i) % experts).collect();
                check(&choices, top_k as usize, experts as usize, kind);
            }
        }
    }
}
