//! The values of a span, added with their weights and joined to the spans before.

use cubecl::prelude::*;

use super::item::Item;
use super::tile_memory::TileMemory;
use super::{SPAN, SpansLayout};
use crate::cube::{Vec4, Words, widen};
use crate::paged_attention::cube::join::{factors, result};

/// Adds values: each unit has a chunk of dimensions and a part of the values, for all rows.
#[cube]
pub(super) fn add_values(
    arena: &[Words],
    layout: &SpansLayout,
    item: &Item,
    memory: &mut TileMemory,
    start: usize,
) {
    let rows = comptime!(layout.tile.rows());
    let format = comptime!(layout.tile.format);
    let parts = comptime!(format.per_word());
    let chunks = comptime!(layout.tile.value_head_dim / format.per_chunk());
    let value_parts = comptime!(layout.tile.value_parts());
    let of_part = comptime!(SPAN / value_parts);
    let loads = comptime!(layout.tile.loads());
    let mut task = UNIT_POS as usize;
    while task < comptime!(value_parts * chunks) {
        let (chunk, part) = (task % chunks, task / chunks);
        let mut acc = Array::<Vec4>::new(comptime!(rows * parts));
        #[unroll]
        for i in 0..comptime!(rows * parts) {
            acc[i] = Vec4::new(0.0f32);
        }
        let mut j = part * of_part;
        let end = min(j + of_part, item.last_position + 1 - start);
        while j < end {
            // Values behind the last repeat it, and are hidden.
            let mut words = Array::<Words>::new(loads);
            #[unroll]
            for i in 0..loads {
                let place = memory.value_places[j + i] as usize;
                words[i] = arena[layout.pages.value_chunk_at(place, chunk)];
            }
            #[unroll]
            for i in 0..loads {
                let mut scale = 1.0f32.runtime();
                if comptime!(layout.tile.has_scales()) {
                    scale = memory.value_scales[j + i];
                }
                let mut numbers = Array::<Vec4>::new(parts);
                #[unroll]
                for h in 0..parts {
                    numbers[h] = widen(words[i], h, format);
                }
                #[unroll]
                for r in 0..rows {
                    let weight = memory.scores[comptime!(r * SPAN + i) + j];
                    // A hidden key's value must not be added, because it may be a NaN.
                    let is_hidden = weight < 0.0f32;
                    if !is_hidden {
                        let weight = Vec4::new(weight * scale);
                        #[unroll]
                        for h in 0..parts {
                            let at = comptime!(r * parts + h);
                            acc[at] = fma(weight, numbers[h], acc[at]);
                        }
                    }
                }
            }
            j += loads;
        }
        let vectors = comptime!(chunks * parts);
        #[unroll]
        for r in 0..rows {
            #[unroll]
            for h in 0..parts {
                let to = (part * rows + r) * vectors + chunk * parts + h;
                memory.partial[to] = acc[comptime!(r * parts + h)];
            }
        }
        task += SPAN;
    }
}

/// Adds the parts of a span's sums and joins them to the spans before. Where a cube has one span
/// only, writes its record instead.
#[cube]
pub(super) fn join_span(
    out: &mut [Vec4],
    plan: &[u32],
    layout: &SpansLayout,
    item: &Item,
    memory: &mut TileMemory,
    start: usize,
) {
    let (rows, vectors) = comptime!((layout.tile.rows(), layout.tile.value_head_dim / 4));
    let mut at = UNIT_POS as usize;
    while at < comptime!(rows * vectors) {
        let row = at / vectors;
        if item.sees(plan, layout, row, start) {
            let mut sum = memory.partial[at];
            #[unroll]
            for part in 1..comptime!(layout.tile.value_parts()) {
                sum += memory.partial[comptime!(part * rows * vectors) + at];
            }
            let span_maximum = memory.maximum(row);
            if comptime!(layout.tile.is_split) {
                record(out, layout, item, memory, row, at, sum, span_maximum);
            } else {
                let (old, new, _) = factors(memory.maxima[row], span_maximum);
                memory.sums[at] = fma(sum, Vec4::new(new), memory.sums[at] * Vec4::new(old));
            }
        }
        at += SPAN;
    }
}

/// Writes vector `at` of a span's sums of row `row` to its place among the records. The first
/// vector of a row also writes the rest of the record.
#[cube]
fn record(
    out: &mut [Vec4],
    layout: &SpansLayout,
    item: &Item,
    memory: &mut TileMemory,
    row: usize,
    at: usize,
    sum: Vec4,
    span_maximum: f32,
) {
    let vectors = comptime!(layout.tile.value_head_dim / 4);
    let (token, in_tile) = (row / comptime!(layout.tile.heads), row % comptime!(layout.tile.heads));
    if token < item.tokens && in_tile < item.heads {
        let record = (item.index * comptime!(layout.tile.tokens) + token) * layout.num_heads;
        let to = (record + item.first_head + in_tile) * comptime!(vectors + 1);
        out[to + at % vectors] = sum;
        let vector = at % vectors;
        if vector == 0 {
            let mut of_head = Vec4::new(span_maximum);
            of_head.insert(1usize, memory.total(row));
            out[to + vectors] = of_head;
        }
    }
}

/// Joins largest score and sum of weights to those of the spans before, one unit a row.
#[cube]
pub(super) fn join_totals(
    plan: &[u32],
    layout: &SpansLayout,
    item: &Item,
    memory: &mut TileMemory,
    start: usize,
) {
    let unit = UNIT_POS as usize;
    if unit < comptime!(layout.tile.rows()) {
        let is_seen = item.sees(plan, layout, unit, start);
        if is_seen {
            let (old, new, largest) = factors(memory.maxima[unit], memory.maximum(unit));
            memory.maxima[unit] = largest;
            memory.totals[unit] = fma(memory.total(unit), new, memory.totals[unit] * old);
        }
    }
}

/// Writes the result of a cube that has all spans.
#[cube]
pub(super) fn write_result(
    out: &mut [Vec4],
    sinks: ComptimeOption<&[f32]>,
    layout: &SpansLayout,
    item: &Item,
    memory: &TileMemory,
) {
    let (rows, vectors) = comptime!((layout.tile.rows(), layout.tile.value_head_dim / 4));
    let mut at = UNIT_POS as usize;
    while at < comptime!(rows * vectors) {
        let row = at / vectors;
        let (token, in_tile) =
            (row / comptime!(layout.tile.heads), row % comptime!(layout.tile.heads));
        if token < item.tokens && in_tile < item.heads {
            let head = item.first_head + in_tile;
            let to = ((item.first_token + token) * layout.num_heads + head) * vectors;
            let (total, largest) = (memory.totals[row], memory.maxima[row]);
            out[to + at % vectors] = result(memory.sums[at], total, largest, sinks, head);
        }
        at += SPAN;
    }
}
