//! The native attention: tiles of queries that share a key-value head, over threads.

use std::ops::Range;

use burn_flex::FlexTensor;

use super::tile::TileTask;
use super::{AttentionMetadata, AttentionParams};
use crate::kv_cache::cpu::{Arenas, CpuKv, CpuKvData};
use crate::kv_cache::{KvLayer, KvLayout, KvStorage};
use crate::simd::{Element, Isa, Kernel, Simd};
use crate::tensors::{dense, dims2, from_rows, values};
use crate::threads::{SharedMut, for_each_piece};

/// Rows (query token, query head) of a tile, at most, unless one token has more heads a group.
const TILE_ROWS: usize = 32;

/// Attention on CPU tensors.
pub(crate) fn paged_attention(
    q: FlexTensor,
    layer: &KvLayer,
    meta: &AttentionMetadata,
    params: &AttentionParams,
) -> FlexTensor {
    let KvStorage::Cpu(kv) = layer.storage();
    let shape = [meta.num_tokens(), params.num_heads * kv.layout.head_dim];
    assert_eq!(dims2(&q), shape, "paged_attention: shape of q");
    let (heads, kv_heads) = (params.num_heads, kv.layout.num_kv_heads);
    assert!(heads.is_multiple_of(kv_heads), "paged_attention: {heads} heads over {kv_heads}");
    let q = dense(q);
    from_rows(attention(Isa::active(), values(&q), kv, meta, params), shape[0], shape[1])
}

/// Attention on one instruction set.
pub(super) fn attention(
    isa: Isa,
    q: &[f32],
    kv: &CpuKv,
    meta: &AttentionMetadata,
    params: &AttentionParams,
) -> Vec<f32> {
    let mut out = vec![0.0; q.len()];
    let (layout, o) = (&kv.layout, SharedMut::new(&mut out));
    match &kv.data {
        CpuKvData::F32(arenas) => isa.run(Batch { q, arenas, layout, meta, params, o }),
        CpuKvData::Bf16(arenas) => isa.run(Batch { q, arenas, layout, meta, params, o }),
    }
    out
}

/// The whole batch.
pub(super) struct Batch<'a, E: Element> {
    pub(super) q: &'a [f32],
    pub(super) arenas: &'a Arenas<E>,
    pub(super) layout: &'a KvLayout,
    pub(super) meta: &'a AttentionMetadata,
    pub(super) params: &'a AttentionParams,
    pub(super) o: SharedMut<'a, f32>,
}

/// Neighbouring query tokens of one sequence, for the query heads of one key-value head.
#[derive(Debug, Clone)]
pub(super) struct Tile {
    pub(super) seq: usize,
    pub(super) kv_head: usize,
    pub(super) tokens: Range<usize>,
}

impl<E: Element> Batch<'_, E> {
    /// Query heads of a key-value head.
    pub(super) fn group(&self) -> usize {
        self.params.num_heads / self.layout.num_kv_heads
    }

    fn tiles(&self) -> Vec<Tile> {
        let tokens_max = (TILE_ROWS / self.group()).max(1);
        let mut tiles = Vec::new();
        for seq in 0..self.meta.num_seqs() {
            let all = self.meta.tokens_of(seq);
            for start in all.clone().step_by(tokens_max) {
                let tokens = start..all.end.min(start + tokens_max);
                tiles.extend((0..self.layout.num_kv_heads).map(|kv_head| Tile {
                    seq,
                    kv_head,
                    tokens: tokens.clone(),
                }));
            }
        }
        tiles
    }

    /// Multiply-adds, roughly.
    fn work(&self) -> usize {
        let visible: usize = self.meta.positions.iter().map(|p| *p as usize + 1).sum();
        2 * visible * self.params.num_heads * self.layout.head_dim
    }
}

impl<E: Element> Kernel for Batch<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let tiles = self.tiles();
        for_each_piece(tiles.len(), self.work(), |i| {
            simd.enter(TileTask { batch: &self, tile: &tiles[i] });
        });
    }
}
