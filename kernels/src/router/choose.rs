//! The choice of the best of a list, and of the groups that the list is taken from.

use super::{Choice, ExpertGroups, GroupScore};
use crate::workspace::Scratch;

/// Returns whether `a` comes before `b`. NaN is above every number.
#[inline(always)]
fn is_above(a: f32, b: f32) -> bool {
    a > b || (a.is_nan() && !b.is_nan())
}

/// Fills `best` with the candidates of the largest keys, the best first. Of equal ones the earlier
/// comes first. Weights become the keys. There are at least as many candidates as places.
#[inline(always)]
fn choose(candidates: impl Iterator<Item = (usize, f32)>, best: &mut [Choice]) {
    let mut len = 0;
    for (index, key) in candidates {
        if len < best.len() {
            len += 1;
        } else if !is_above(key, best[len - 1].weight) {
            continue;
        }
        let mut place = len - 1;
        while place > 0 && is_above(key, best[place - 1].weight) {
            best[place] = best[place - 1];
            place -= 1;
        }
        best[place] = Choice { expert: index as u32, weight: key };
    }
}

/// Fills `best` with the experts of the largest keys, of the best groups where there are groups.
#[inline(always)]
pub(super) fn choose_experts(keys: &[f32], groups: Option<&ExpertGroups>, best: &mut [Choice]) {
    let Some(groups) = groups else {
        return choose(keys.iter().copied().enumerate(), best);
    };
    let size = keys.len() / groups.num_groups;
    let mut open = Scratch::<Choice>::new(groups.num_chosen);
    let group_keys = keys.chunks_exact(size).map(|keys| group_key(keys, groups.by));
    choose(group_keys.enumerate(), &mut open);
    // In the order of experts, so that the lower index comes first.
    open.sort_unstable_by_key(|group| group.expert);
    let experts = open.iter().flat_map(|group| {
        let first = group.expert as usize * size;
        (first..).zip(keys[first..first + size].iter().copied())
    });
    choose(experts, best);
}

/// Returns the quality of a group of experts with these keys.
#[inline(always)]
fn group_key(keys: &[f32], by: GroupScore) -> f32 {
    let mut best = [Choice { expert: 0, weight: 0.0 }; 2];
    match by {
        GroupScore::Max => {
            choose(keys.iter().copied().enumerate(), &mut best[..1]);
            best[0].weight
        }
        GroupScore::TopTwoSum => {
            choose(keys.iter().copied().enumerate(), &mut best);
            best[0].weight + best[1].weight
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(keys: &[f32], groups: Option<ExpertGroups>, k: usize) -> Vec<u32> {
        let mut best = vec![Choice { expert: u32::MAX, weight: 0.0 }; k];
        choose_experts(keys, groups.as_ref(), &mut best);
        best.into_iter().map(|choice| choice.expert).collect()
    }

    #[test]
    fn the_lower_index_comes_first_where_keys_are_equal() {
        assert_eq!(chosen(&[1.0, 2.0, 2.0, 1.0, 2.0], None, 4), [1, 2, 4, 0]);
        assert_eq!(chosen(&[0.0, -0.0, 0.0], None, 2), [0, 1]);
        assert_eq!(chosen(&[f32::NEG_INFINITY; 3], None, 3), [0, 1, 2]);
    }

    #[test]
    fn what_is_no_number_comes_first() {
        assert_eq!(chosen(&[1.0, f32::INFINITY, f32::NAN, f32::NAN], None, 3), [2, 3, 1]);
    }

    #[test]
    fn groups_are_chosen_by_their_best_or_their_best_two() {
        let keys = [9.0, 0.0, 5.0, 5.0, 4.0, 7.0, 5.0, 5.0];
        let groups = |num_chosen, by| Some(ExpertGroups { num_groups: 4, num_chosen, by });
        assert_eq!(chosen(&keys, groups(1, GroupScore::Max), 2), [0, 1]);
        assert_eq!(chosen(&keys, groups(2, GroupScore::Max), 3), [0, 5, 4]);
        assert_eq!(chosen(&keys, groups(1, GroupScore::TopTwoSum), 2), [5, 4]);
        // The second and the fourth group are equal; experts come in their own order.
        assert_eq!(chosen(&keys, groups(2, GroupScore::TopTwoSum), 4), [5, 2, 3, 4]);
        assert_eq!(chosen(&keys, groups(4, GroupScore::TopTwoSum), 3), [0, 5, 2]);
    }
}
