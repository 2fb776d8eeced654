//! The step from the keys of a span to the weights of its values.

use cubecl::prelude::*;

use super::item::Item;
use super::tile_memory::TileMemory;
use super::{HIDDEN, SPAN, SpansLayout, UNITS_A_ROW};
use crate::cube::{Vec4, Words, lanes_sum, widen};

/// Computes the scores of each unit's key with all queries, and the place of the key's value.
#[cube]
pub(super) fn score(
    arena: &[Words],
    key_scales: ComptimeOption<&[f32]>,
    value_scales: ComptimeOption<&[f32]>,
    plan: &[u32],
    slopes: ComptimeOption<&[f32]>,
    biases: ComptimeOption<&[f32]>,
    layout: &SpansLayout,
    item: &Item,
    memory: &mut TileMemory,
    start: usize,
) {
    let rows = comptime!(layout.tile.rows());
    let format = comptime!(layout.tile.format);
    let chunks = comptime!(layout.tile.head_dim / format.per_chunk());
    let unit = UNIT_POS as usize;
    let key = start + unit;
    let mut dots = Array::<Vec4>::new(rows);
    #[unroll]
    for r in 0..rows {
        dots[r] = Vec4::new(0.0f32);
    }
    // Keys behind the sequence repeat its last, and are hidden below.
    let near = min(key, item.last_position);
    let (block, offset) = item.place(plan, layout, near);
    let from = layout.pages.key_at(block, item.kv_head, offset);
    memory.value_places[unit] = layout.pages.value_at(block, item.kv_head, offset, 0) as u32;
    let mut chunk = 0usize;
    let loads = comptime!(layout.tile.loads());
    while chunk + loads <= chunks {
        add_products(arena, layout, memory, &mut dots, from, chunk, loads);
        chunk += loads;
    }
    while chunk < chunks {
        add_products(arena, layout, memory, &mut dots, from, chunk, 1usize);
        chunk += 1;
    }
    let mut key_scale = 1.0f32.runtime();
    if comptime!(key_scales.is_some()) {
        let scale_at = layout.pages.scale_at(block, item.kv_head, offset);
        key_scale = key_scales.unwrap()[scale_at];
        memory.value_scales[unit] = value_scales.unwrap()[scale_at];
    }
    #[unroll]
    for r in 0..rows {
        let mut score = lanes_sum(dots[r]) * key_scale * layout.scale;
        if comptime!(layout.tile.has_soft_cap) {
            score = capped(score, layout.soft_cap);
        }
        let position = item.last_seen[r];
        if comptime!(slopes.is_some()) {
            let head = min(comptime!(r % layout.tile.heads).runtime(), item.heads - 1);
            let distance = f32::cast_from(key) - f32::cast_from(position);
            score = fma(slopes.unwrap()[item.first_head + head], distance, score);
        }
        if comptime!(biases.is_some()) {
            let head = min(comptime!(r % layout.tile.heads).runtime(), item.heads - 1);
            let row = (item.first_head + head) * layout.bias_stride + layout.bias_zero;
            score += biases.unwrap()[row + near - item.positions[r]];
        }
        let is_seen = key <= position && key >= item.first_seen[r];
        memory.scores[comptime!(r * SPAN) + unit] = select(is_seen, score, HIDDEN.runtime());
    }
}

/// Adds the products of `count` chunks of a key, of which `chunk` is the first, with all queries.
#[cube]
fn add_products(
    arena: &[Words],
    layout: &SpansLayout,
    memory: &mut TileMemory,
    dots: &mut Array<Vec4>,
    from: usize,
    chunk: usize,
    #[comptime] count: usize,
) {
    let (rows, vectors) = comptime!((layout.tile.rows(), layout.tile.head_dim / 4));
    let format = comptime!(layout.tile.format);
    let parts = comptime!(format.per_word());
    // Loads that are in flight together.
    let mut words = Array::<Words>::new(count);
    #[unroll]
    for i in 0..count {
        words[i] = arena[from + (chunk + i) * layout.pages.block_size];
    }
    #[unroll]
    for i in 0..count {
        #[unroll]
        for h in 0..parts {
            let numbers = widen(words[i], h, format);
            #[unroll]
            for r in 0..rows {
                let query = memory.queries[comptime!(r * vectors + i * parts + h) + chunk * parts];
                dots[r] = fma(query, numbers, dots[r]);
            }
        }
    }
}

/// Turns scores into weights, with several units a row. The weights of hidden keys are -1.
#[cube]
pub(super) fn weigh(memory: &mut TileMemory, #[comptime] rows: usize) {
    let unit = UNIT_POS as usize;
    let (row, lane) = (unit / UNITS_A_ROW, unit % UNITS_A_ROW);
    if row < rows {
        let mut largest = HIDDEN.runtime();
        for i in 0..comptime!(SPAN / UNITS_A_ROW) {
            largest = max(largest, memory.scores[row * SPAN + i * UNITS_A_ROW + lane]);
        }
        memory.row_maxima[unit] = largest;
    }
    sync_cube();
    if row < rows {
        let largest = memory.maximum(row);
        let mut total = 0.0f32.runtime();
        for i in 0..comptime!(SPAN / UNITS_A_ROW) {
            let at = row * SPAN + i * UNITS_A_ROW + lane;
            let score = memory.scores[at];
            if score == HIDDEN {
                memory.scores[at] = (-1.0f32).runtime();
            } else {
                let weight = (score - largest).exp();
                memory.scores[at] = weight;
                total += weight;
            }
        }
        memory.row_totals[unit] = total;
    }
}

/// Returns `cap · tanh(score / cap)`.
#[cube]
fn capped(score: f32, cap: f32) -> f32 {
    let x = score / cap;
    // A tanh that is computed from exponentials overflows early. From here on it is ±1.
    let mut tanh = x.tanh();
    if x > 12.0f32 {
        tanh = 1.0f32;
    }
    if x < -12.0f32 {
        tanh = -1.0f32;
    }
    cap * tanh
}
