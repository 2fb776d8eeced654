//! Blocks by group of the KV cache.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::logic::request::ids::BlockId;

/// One list of blocks for each group of layers that share block tables. The null block stands where
/// a group no longer reads a block. A list that is not there is empty. Lists of a model with one
/// group need no memory beside that of the list.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct BlockIds(SmallVec<[Vec<BlockId>; 1]>);

impl BlockIds {
    /// Returns the blocks of one group, in the order of the tokens.
    #[must_use]
    pub fn group(&self, group: usize) -> &[BlockId] {
        self.0.get(group).map_or(&[], Vec::as_slice)
    }

    /// Returns the blocks of all groups, one group after another.
    pub fn iter(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.0.iter().flatten().copied()
    }

    /// Returns the number of blocks of all groups.
    #[must_use]
    pub fn num_blocks(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }

    /// Appends the blocks of each group to the same group's list.
    pub fn append(&mut self, other: &Self) {
        for (group, blocks) in other.0.iter().enumerate() {
            self.list(group).extend_from_slice(blocks);
        }
    }

    /// Returns the lists that exist, in the order of the groups.
    pub(super) fn lists(&self) -> &[Vec<BlockId>] {
        &self.0
    }

    /// Returns the list of one group. The list is created if it is not there.
    pub(super) fn list(&mut self, group: usize) -> &mut Vec<BlockId> {
        if self.0.len() <= group {
            self.0.resize_with(group + 1, Vec::new);
        }
        &mut self.0[group]
    }
}

/// The blocks of a model with one group.
impl From<Vec<BlockId>> for BlockIds {
    fn from(blocks: Vec<BlockId>) -> Self {
        Self(SmallVec::from_buf([blocks]))
    }
}

/// One list for each group.
impl FromIterator<Vec<BlockId>> for BlockIds {
    fn from_iter<T: IntoIterator<Item = Vec<BlockId>>>(lists: T) -> Self {
        Self(lists.into_iter().collect())
    }
}

impl PartialEq for BlockIds {
    fn eq(&self, other: &Self) -> bool {
        (0..self.0.len().max(other.0.len())).all(|group| self.group(group) == other.group(group))
    }
}

impl Eq for BlockIds {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_list_is_an_empty_one() {
        let mut blocks = BlockIds::default();
        assert_eq!((blocks.group(0), blocks.num_blocks()), (&[][..], 0));
        assert_eq!(blocks, BlockIds::from(Vec::new()));
        blocks.list(1).push(7);
        assert_ne!(blocks, BlockIds::default());
        assert_eq!((blocks.group(0), blocks.group(1)), (&[][..], &[7][..]));
    }

    #[test]
    fn each_group_is_appended_to_its_own_list() {
        let mut table = BlockIds::from(vec![1, 2]);
        let blocks = BlockIds::from_iter([vec![3], vec![4, 5]]);
        table.append(&blocks);
        table.append(&BlockIds::default());
        assert_eq!((table.group(0), table.group(1)), (&[1, 2, 3][..], &[4, 5][..]));
        assert_eq!(table.iter().collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
        assert_eq!(table.num_blocks(), 5);
    }

    #[test]
    fn one_group_takes_no_more_memory_than_its_list() {
        assert!(size_of::<BlockIds>() <= size_of::<Vec<BlockId>>() + size_of::<usize>());
        assert!(!BlockIds::from(vec![1]).0.spilled());
    }
}
