//! Checks that every block is in use or free, and that every tail has one owner.

use std::collections::BTreeSet;

use super::record::Record;
use crate::logic::{
    kv_cache::{KvCacheManager, KvKind, KvSpec, block_pool::NULL_BLOCK},
    request::ids::BlockId,
};

/// Checks that each block is the null block, or free, or used by as many tables as its reference
/// count says. Only a group of a window has null blocks, before all others. Returns the number of
/// used blocks. `references` is reused from check to check.
pub(super) fn check_blocks(
    manager: &KvCacheManager,
    spec: &KvSpec,
    references: &mut Vec<u32>,
    record: &Record,
) -> usize {
    let pool = manager.pool();
    let num_blocks = pool.num_usable() + 1;
    references.clear();
    references.resize(num_blocks, 0);
    for (request, table) in manager.tables() {
        let of_groups = spec.groups.iter().enumerate().flat_map(|(group, of)| {
            let may_pass = of.kind != KvKind::Full;
            let is_passed = move |block: &BlockId| *block == NULL_BLOCK && may_pass;
            table.group(group).iter().copied().skip_while(is_passed)
        });
        for block in of_groups {
            match references.get_mut(block as usize).filter(|_| block != NULL_BLOCK) {
                Some(count) => *count += 1,
                None => {
                    record
                        .violate(|| format!("the table of request {request} holds block {block}"));
                }
            }
        }
    }
    let mut num_held = 0;
    for (block, &count) in references.iter().enumerate().skip(1) {
        let counted = pool.ref_cnt(block as BlockId);
        num_held += usize::from(counted > 0);
        if counted != count {
            record.violate(|| {
                format!("block {block} counts {counted} references, tables hold {count}")
            });
        }
    }
    for block in pool.free_block_ids() {
        let references = &mut references[block as usize];
        if *references != 0 {
            record.violate(|| format!("block {block} is free and in use, or free twice"));
        }
        *references = u32::MAX;
    }
    if num_held + pool.num_free() != pool.num_usable() {
        let (free, all) = (pool.num_free(), pool.num_usable());
        record.violate(|| format!("{num_held} blocks held, {free} free, of {all}"));
    }
    num_held
}

/// Checks the tails. A held tail is the last block of each of its request's tables, and of no
/// other. A kept tail is on free blocks that cannot be hit. Returns the number of tails.
pub(super) fn check_tails(manager: &KvCacheManager, record: &Record) -> usize {
    let (pool, mut num_tails) = (manager.pool(), 0);
    for (request, tail) in manager.held_tails() {
        num_tails += 1;
        let is_last = |(group, block): (usize, &BlockId)| {
            let table = manager.block_ids(request).map(|blocks| blocks.group(group));
            let table = table.unwrap_or_default();
            (table.len(), table.last()) == (tail.index + 1, Some(block))
        };
        // A full block can be hit, so it may have more users.
        let is_own = |block: &BlockId| pool.ref_cnt(*block) == 1 || pool.is_cached(*block);
        if !tail.blocks.iter().enumerate().all(is_last) || !tail.blocks.iter().all(is_own) {
            record.violate(|| format!("{tail:?} is not the end of request {request}'s table"));
        }
    }
    let mut blocks = BTreeSet::new();
    for (request, tail) in manager.kept_tails() {
        num_tails += 1;
        let is_free = |block: &BlockId| pool.ref_cnt(*block) == 0 && !pool.is_cached(*block);
        let waits = manager.block_ids(request).is_none();
        let is_own = tail.blocks.iter().all(|block| blocks.insert(*block));
        if !tail.blocks.iter().all(is_free) || !waits || !is_own {
            record.violate(|| {
                format!("{tail:?} is kept for request {request}, but not for it alone")
            });
        }
    }
    num_tails
}
