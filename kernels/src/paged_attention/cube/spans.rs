//! The kernel over spans.

mod item;
mod keys;
mod tile_memory;
mod values;

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use cubecl::server::Handle;

use super::join::join_kernel;
use super::plan::{PlanForm, Tile};
use super::{HIDDEN, SPAN};
use crate::WeightVector;
use crate::cube::{CUBES_MAX, Rows, Vec4, Words, buffer, cubes, words_buffer};
use crate::kv_cache::cube::{CubeKv, Pages};
use crate::paged_attention::{AttentionParams, DistanceBiases};
use item::Item;
use keys::{score, weigh};
use tile_memory::TileMemory;
use values::{add_values, join_span, join_totals, write_result};

/// Units that find a row's largest score and the sum of its weights.
pub(super) const UNITS_A_ROW: usize = 16;

/// The numbers that all cubes of a launch share.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct SpansLayout {
    /// The places in the plan of block tables, and of the positions that tokens see.
    tables_at: usize,
    seen_at: usize,
    /// Vectors from one token's queries to the next.
    q_stride: usize,
    num_heads: usize,
    scale: f32,
    soft_cap: f32,
    /// Elements from one head's biases of distances to the next, and before that of its own key.
    bias_stride: usize,
    bias_zero: usize,
    pages: Pages,
    #[cube(comptime)]
    tile: Tile,
}

/// Launches the kernel for a plan.
pub(super) fn launch(
    q: &Rows,
    kv: &CubeKv,
    params: &AttentionParams,
    plan: &PlanForm,
    words: &Handle,
    o: &CubeTensor,
) {
    let (tile, client) = (plan.tile, q.client());
    let records = plan.items * tile.tokens * params.num_heads;
    let records = tile.is_split.then(|| client.empty(records * tile.record_bytes()));
    let scales = kv.scales.as_ref();
    let of_heads = |vector: &WeightVector| words_buffer(vector.cube());
    let (slopes, sinks) = (params.alibi_slopes.as_ref(), params.sinks.as_ref());
    let biases = params.distance_biases.as_ref();
    let [bias_stride, bias_zero] = biases.map_or([0; 2], DistanceBiases::strides);
    let layout = SpansLayoutLaunch::new(
        plan.tables_at,
        plan.seen_at,
        q.stride(),
        params.num_heads,
        params.scale,
        params.soft_cap.unwrap_or(0.0),
        bias_stride,
        bias_zero,
        kv.pages(),
        tile,
    );
    // SAFETY: a cube beyond the items does nothing. The plan's tokens are rows of q, and its blocks
    // are those of tables that were checked against the arena. No position is behind the biases:
    // `paged_attention` checks it.
    unsafe {
        spans_kernel::launch_unchecked(
            client,
            grid(kv, plan),
            CubeDim::new_1d(SPAN as u32),
            q.arg(),
            words_buffer(&kv.arena),
            scales.map(|[keys, _]| words_buffer(keys)).into(),
            scales.map(|[_, values]| words_buffer(values)).into(),
            words_buffer(words),
            slopes.map(of_heads).into(),
            biases.map(|biases| of_heads(biases.on_device())).into(),
            sinks.filter(|_| !tile.is_split).map(of_heads).into(),
            records.as_ref().map_or_else(|| buffer(o), words_buffer),
            layout,
        );
        if let Some(records) = &records {
            let rows = q.rows * params.num_heads;
            join_kernel::launch_unchecked(
                client,
                cubes(rows),
                CubeDim::new_1d((tile.value_head_dim / 4).next_power_of_two() as u32),
                words_buffer(records),
                words_buffer(words),
                sinks.map(of_heads).into(),
                buffer(o),
                rows,
                plan.seen_at,
                plan.joins_at,
                params.num_heads,
                tile,
            );
        }
    }
}

/// Returns a grid with a cube for each tile of heads and item, and at most a few more.
fn grid(kv: &CubeKv, plan: &PlanForm) -> CubeCount {
    let x = kv.shape.num_kv_heads * plan.tile.per_group();
    let y = plan.items.min(CUBES_MAX);
    CubeCount::Static(x as u32, y as u32, plan.items.div_ceil(y) as u32)
}

/// Computes one item and tile of heads in each cube. `out` is the result, or records where each
/// cube has one span only. A record is a head's sums and a vector that begins with their largest
/// score and their weight.
#[cube(launch_unchecked)]
fn spans_kernel(
    q: &[Vec4],
    arena: &[Words],
    key_scales: ComptimeOption<&[f32]>,
    value_scales: ComptimeOption<&[f32]>,
    plan: &[u32],
    slopes: ComptimeOption<&[f32]>,
    biases: ComptimeOption<&[f32]>,
    sinks: ComptimeOption<&[f32]>,
    out: &mut [Vec4],
    layout: SpansLayout,
) {
    let index = (CUBE_POS_Z * CUBE_COUNT_Y + CUBE_POS_Y) as usize;
    if index >= plan[0] as usize {
        terminate!();
    }
    let item = Item::read(plan, &layout, index);
    let mut memory = TileMemory::new(comptime!(layout.tile));
    memory.begin(q, &layout, &item);
    sync_cube();
    for s in 0..item.num_spans {
        let start = (item.first_span + s) * SPAN;
        score(
            arena,
            key_scales,
            value_scales,
            plan,
            slopes,
            biases,
            &layout,
            &item,
            &mut memory,
            start,
        );
        sync_cube();
        weigh(&mut memory, comptime!(layout.tile.rows()));
        sync_cube();
        add_values(arena, &layout, &item, &mut memory, start);
        sync_cube();
        join_span(out, plan, &layout, &item, &mut memory, start);
        sync_cube();
        join_totals(plan, &layout, &item, &mut memory, start);
        sync_cube();
    }
    if comptime!(!layout.tile.is_split) {
        write_result(out, sinks, &layout, &item, &memory);
    }
}
