//! The native attention: tiles of queries that share a key-value head, in parts that threads share.

use std::cell::Cell;

use burn_flex::FlexTensor;

use super::plan::Plan;
use super::tile::{JoinTask, PartTask};
use super::{AttentionMetadata, AttentionParams};
use crate::kv_cache::cpu::{Arenas, CpuKv, CpuKvData};
use crate::kv_cache::{KvElement, KvLayer, KvLayout};
use crate::simd::{Isa, Kernel, Simd};
use crate::tensors::{dense, dims2, values, values_mut};
use crate::threads::{SharedMut, for_each_piece, for_each_piece_of_stream};
use crate::workspace::{Scratch, give_back, tensor};

/// Computes attention on CPU tensors.
pub(crate) fn paged_attention(
    q: FlexTensor,
    layer: &KvLayer,
    meta: &AttentionMetadata,
    params: &AttentionParams,
) -> FlexTensor {
    let kv = layer.cpu();
    let (tokens, heads) = (meta.num_tokens(), params.num_heads);
    let shape = [tokens, heads * kv.layout.head_dim];
    assert_eq!(dims2(&q), shape, "paged_attention: shape of q");
    params.check(kv.layout.num_kv_heads);
    let q = dense(q);
    let mut o = tensor(tokens, heads * kv.layout.value_head_dim);
    attention(Isa::active(), values(&q), kv, meta, params, values_mut(&mut o));
    give_back(q);
    o
}

thread_local! {
    /// The last plan, kept so that the next one reuses its memory.
    static PLAN: Cell<Plan> = Cell::default();
}

/// Computes attention on one instruction set into o, `[num_tokens, num_heads * value_head_dim]`.
pub(crate) fn attention(
    isa: Isa,
    q: &[f32],
    kv: &CpuKv,
    meta: &AttentionMetadata,
    params: &AttentionParams,
    o: &mut [f32],
) {
    let layout = &kv.layout;
    let mut plan = PLAN.take();
    plan.cut(layout, meta, params);
    let mut records = Scratch::new(plan.records_len);
    let (plan_ref, o, records) = (&plan, SharedMut::new(o), SharedMut::new(&mut records));
    match &kv.data {
        CpuKvData::F32(arenas) => {
            isa.run(Batch { q, arenas, layout, meta, params, plan: plan_ref, o, records });
        }
        CpuKvData::Bf16(arenas) => {
            isa.run(Batch { q, arenas, layout, meta, params, plan: plan_ref, o, records });
        }
        CpuKvData::Int8(arenas) => {
            isa.run(Batch { q, arenas, layout, meta, params, plan: plan_ref, o, records });
        }
    }
    PLAN.set(plan);
}

/// The whole batch.
pub(super) struct Batch<'a, E: KvElement> {
    pub(super) q: &'a [f32],
    pub(super) arenas: &'a Arenas<E>,
    pub(super) layout: &'a KvLayout,
    pub(super) meta: &'a AttentionMetadata,
    pub(super) params: &'a AttentionParams,
    pub(super) plan: &'a Plan,
    pub(super) o: SharedMut<'a, f32>,
    /// The sums of spans, for tiles in several parts.
    pub(super) records: SharedMut<'a, f32>,
}

impl<E: KvElement> Batch<'_, E> {
    /// Returns the rough number of multiply-adds.
    fn work(&self) -> usize {
        let visible: usize = self.meta.positions.iter().map(|p| *p as usize + 1).sum();
        visible * self.params.num_heads * (self.layout.head_dim + self.layout.value_head_dim)
    }
}

impl<E: KvElement> Kernel for Batch<'_, E> {
    type Output = ();
    /// Formats that take several dimensions a step multiply them in pairs.
    const HAS_PAIRS: bool = E::INPUTS > 1;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let batch = &self;
        for_each_piece_of_stream(self.plan.parts.len(), self.work(), |i| {
            simd.enter(PartTask { batch, part: &batch.plan.parts[i] });
        });
        for_each_piece(self.plan.tiles.len(), self.plan.records_len, |i| {
            let tile = &batch.plan.tiles[i];
            if let Some(records) = tile.records {
                simd.enter(JoinTask { batch, tile, records });
            }
        });
    }
}
