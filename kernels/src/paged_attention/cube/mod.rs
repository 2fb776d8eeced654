//! Attention on a GPU. One kernel computes decode tokens and prefill chunks.
//!
//! A cube takes a tile of queries that share a key-value head. It passes over spans of [`SPAN`]
//! keys at absolute positions. For the scores each unit has one key, and for the sum of the values
//! some dimensions. Where there are many tiles, a cube joins its own spans. Where there are few,
//! each span has a cube of its own ("Flash-Decoding", Dao et al. 2023), and a second kernel joins
//! their sums. Both do the same arithmetic in the same order, so the bytes are the same. In both a
//! head's sink joins after the last span.
//!
//! Long chunks use tensor cores instead, where the device has them, they are asked for, and a trial
//! computed right ([`dense`]).

mod dense;
mod gather;
mod join;
mod plan;
mod spans;

use burn_cubecl::tensor::CubeTensor;

use super::{AttentionMetadata, AttentionParams, DistanceBiases};
use crate::cube::{Rows, StepInput, is_recording, upload_once};
use crate::kv_cache::{KvLayer, KvStorage};
pub(super) use dense::Routine;
pub(crate) use plan::{Plan, PlanForm, PlanOf, takes_heads};

/// Keys of a span, and units of a cube.
const SPAN: usize = 128;

/// The score of a key that a query does not see. No sum of finite products comes near it.
const HIDDEN: f32 = -3.0e38;

/// Cubes that keep any GPU busy. With so many tiles, spans need no cubes of their own.
const CUBES_ENOUGH: usize = 1024;

/// Computes attention on GPU tensors.
pub(crate) fn paged_attention(
    q: CubeTensor,
    layer: &KvLayer,
    meta: &AttentionMetadata,
    params: &AttentionParams,
) -> CubeTensor {
    attention(q, layer, meta, params, CUBES_ENOUGH, None)
}

/// Computes the same. Spans have cubes of their own where the launch would otherwise have fewer
/// than `cubes_enough` cubes. `routine` computes long chunks, for every device and all parameters.
pub(super) fn attention(
    q: CubeTensor,
    layer: &KvLayer,
    meta: &AttentionMetadata,
    params: &AttentionParams,
    cubes_enough: usize,
    routine: Option<Routine>,
) -> CubeTensor {
    let kv = match layer.storage() {
        KvStorage::Cube(kv) => kv,
        KvStorage::Cpu(_) => unreachable!("paged_attention: q is on a GPU, the cache is not"),
    };
    params.check(kv.shape.num_kv_heads);
    let longest = meta.seq_lens.iter().max().map_or(0, |len| *len as usize);
    let most = params.distance_biases.as_ref().map_or(longest, DistanceBiases::positions);
    assert!(longest <= most, "paged_attention: {longest} tokens with biases of {most}");
    let q = Rows::new(q);
    let shape = [meta.num_tokens(), params.num_heads * kv.shape.head_dim];
    assert_eq!([q.rows, q.cols], shape, "paged_attention: shape of q");
    let o = q.sibling(q.rows, params.num_heads * kv.shape.value_head_dim);
    if q.rows > 0 {
        let shared_bytes = q.client().properties().hardware.max_shared_memory_size;
        let of = PlanOf::new(kv, params, layer.group(), shared_bytes, cubes_enough);
        // The dense kernel knows no mask but the causal one.
        let is_causal = meta.visible_ends.is_empty();
        let routine = match is_causal {
            true => routine.or_else(|| Routine::of(&q, kv, meta, params)),
            false => None,
        };
        let left = routine.map(|routine| dense::launch(&q, kv, meta, params, &o, routine));
        let plan = of.plan(meta, left.as_deref(), is_recording());
        if plan.form.items > 0 {
            let words = upload_once(q.client(), q.device(), StepInput::Plan(of), &plan.words);
            spans::launch(&q, kv, params, &plan.form, &words, &o);
        }
    }
    o
}
