//! The native attention: tiles of queries that share a key-value head, in parts over threads.

use burn_flex::FlexTensor;

use super::plan::Plan;
use super::tile::{JoinTask, PartTask};
use super::{AttentionMetadata, AttentionParams};
use crate::kv_cache::cpu::{Arenas, CpuKv, CpuKvData};
use crate::kv_cache::{KvElement, KvLayer, KvLayout};
use crate::simd::{Isa, Kernel, Simd};
use crate::tensors::{dense, dims2, from_rows, values};
use crate::threads::{SharedMut, for_each_piece, zeros};

/// Attention on CPU tensors.
pub(crate) fn paged_attention(
    q: FlexTensor,
    layer: &KvLayer,
    meta: &AttentionMetadata,
    params: &AttentionParams,
) -> FlexTensor {
    let kv = layer.cpu();
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
    let layout = &kv.layout;
    let mut out = zeros(q.len(), params.num_heads * layout.head_dim);
    let plan = Plan::new(layout, meta, params);
    let mut records = vec![0.0; plan.records_len];
    let (o, records) = (SharedMut::new(&mut out), SharedMut::new(&mut records));
    match &kv.data {
        CpuKvData::F32(arenas) => {
            isa.run(Batch { q, arenas, layout, meta, params, plan, o, records });
        }
        CpuKvData::Bf16(arenas) => {
            isa.run(Batch { q, arenas, layout, meta, params, plan, o, records });
        }
        CpuKvData::Int8(arenas) => {
            isa.run(Batch { q, arenas, layout, meta, params, plan, o, records });
        }
    }
    out
}

/// The whole batch.
pub(super) struct Batch<'a, E: KvElement> {
    pub(super) q: &'a [f32],
    pub(super) arenas: &'a Arenas<E>,
    pub(super) layout: &'a KvLayout,
    pub(super) meta: &'a AttentionMetadata,
    pub(super) params: &'a AttentionParams,
    pub(super) plan: Plan,
    pub(super) o: SharedMut<'a, f32>,
    /// What the spans of tiles in several parts come to.
    pub(super) records: SharedMut<'a, f32>,
}

impl<E: KvElement> Batch<'_, E> {
    /// Multiply-adds, roughly.
    fn work(&self) -> usize {
        let visible: usize = self.meta.positions.iter().map(|p| *p as usize + 1).sum();
        2 * visible * self.params.num_heads * self.layout.head_dim
    }
}

impl<E: KvElement> Kernel for Batch<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let batch = &self;
        for_each_piece(self.plan.parts.len(), self.work(), |i| {
            simd.enter(PartTask { batch, part: &batch.plan.parts[i] });
        });
        let split: Vec<_> =
            self.plan.tiles.iter().filter_map(|tile| Some((tile, tile.records?))).collect();
        for_each_piece(split.len(), self.plan.records_len, |i| {
            let (tile, records) = split[i];
            simd.enter(JoinTask { batch, tile, records });
        });
    }
}
