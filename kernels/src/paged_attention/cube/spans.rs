//! The kernel over spans.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use cubecl::server::Handle;

use super::join::{factors, join_kernel, sees};
use super::plan::{ITEM_WORDS, ITEMS_AT, PlanForm, Tile};
use super::{HIDDEN, SPAN};
use crate::cube::{CUBES_MAX, Rows, Vec4, Words, buffer, cubes, lanes_sum, widen, words_buffer};
use crate::kv_cache::cube::CubeKv;
use crate::paged_attention::AttentionParams;

/// Units that find a row's largest score and the sum of its weights.
pub(super) const UNITS_A_ROW: usize = 16;

/// Parts that the values of a span are summed in, so that few rows keep more units busy.
pub(super) const VALUE_PARTS: usize = 2;

/// Runs a plan.
pub(super) fn launch(
    q: &Rows,
    kv: &CubeKv,
    params: &AttentionParams,
    plan: &PlanForm,
    words: &Handle,
    o: &CubeTensor,
) {
    let (tile, client) = (plan.tile, q.client());
    let window = params.sliding_window.map_or(0, |window| window as usize);
    let record_bytes = (tile.head_dim + 4) * size_of::<f32>();
    let records = || client.empty(plan.items * tile.tokens * params.num_heads * record_bytes);
    let records = tile.is_split.then(records);
    let scales = kv.scales.as_ref();
    let y = plan.items.min(CUBES_MAX);
    let x = kv.shape.num_kv_heads * tile.per_group();
    let grid = CubeCount::Static(x as u32, y as u32, plan.items.div_ceil(y) as u32);
    // SAFETY: a cube beyond the items leaves; the plan's tokens are rows of q, and its blocks are
    // those of tables that were checked against the arena.
    unsafe {
        spans_kernel::launch_unchecked(
            client,
            grid,
            CubeDim::new_1d(SPAN as u32),
            q.arg(),
            words_buffer(&kv.keys),
            words_buffer(&kv.values),
            scales.map(|[keys, _]| words_buffer(keys)).into(),
            scales.map(|[_, values]| words_buffer(values)).into(),
            words_buffer(words),
            records.as_ref().map_or_else(|| buffer(o), words_buffer),
            plan.tables_at,
            plan.positions_at,
            q.stride(),
            kv.shape.block_size,
            kv.shape.num_kv_heads,
            params.num_heads,
            window,
            params.scale,
            params.soft_cap.unwrap_or(0.0),
            tile,
        );
        if let Some(records) = &records {
            let rows = q.rows * params.num_heads;
            join_kernel::launch_unchecked(
                client,
                cubes(rows),
                CubeDim::new_1d((tile.head_dim / 4).next_power_of_two() as u32),
                words_buffer(records),
                words_buffer(words),
                buffer(o),
                rows,
                plan.positions_at,
                plan.joins_at,
                params.num_heads,
                window,
                tile,
            );
        }
    }
}

/// A cube an item and tile of heads. `out` are records where a span is all that a cube does, each of
/// a head's sums and a vector that starts with their largest score and their weight; else the result.
#[cube(launch_unchecked)]
fn spans_kernel(
    q: &[Vec4],
    keys: &[Words],
    values: &[Words],
    key_scales: ComptimeOption<&[f32]>,
    value_scales: ComptimeOption<&[f32]>,
    plan: &[u32],
    out: &mut [Vec4],
    tables_at: usize,
    positions_at: usize,
    q_stride: usize,
    block_size: usize,
    num_kv_heads: usize,
    num_heads: usize,
    window: usize,
    scale: f32,
    soft_cap: f32,
    #[comptime] tile: Tile,
) {
    let item = (CUBE_POS_Z * CUBE_COUNT_Y + CUBE_POS_Y) as usize;
    if item >= plan[0] as usize {
        terminate!();
    }
    let rows = comptime!(tile.rows());
    let vectors = comptime!(tile.head_dim / 4);
    let parts = comptime!(tile.format.per_word());
    let chunks = comptime!(tile.head_dim / tile.format.per_chunk());
    let unit = UNIT_POS as usize;

    let of = ITEMS_AT + item * ITEM_WORDS;
    let first_token = plan[of] as usize;
    let tokens = plan[of + 1] as usize;
    let table = tables_at + plan[of + 2] as usize;
    let first_span = plan[of + 3] as usize;
    let num_spans = plan[of + 4] as usize;
    let kv_head = CUBE_POS_X as usize / comptime!(tile.per_group());
    let in_group = CUBE_POS_X as usize % comptime!(tile.per_group()) * comptime!(tile.heads);
    let first_head = kv_head * comptime!(tile.group) + in_group;
    let heads = min(comptime!(tile.heads).runtime(), comptime!(tile.group) - in_group);
    let last_position = plan[positions_at + first_token + tokens - 1] as usize;
    let mut positions = Array::<usize>::new(rows);
    #[unroll]
    for r in 0..rows {
        let token = first_token + min(comptime!(r / tile.heads).runtime(), tokens - 1);
        positions[r] = plan[positions_at + token] as usize;
    }

    let mut queries = Shared::<[Vec4]>::new_slice(comptime!(rows * vectors));
    let mut scores = Shared::<[f32]>::new_slice(comptime!(rows * SPAN));
    let mut row_maxima = Shared::<[f32]>::new_slice(comptime!(rows * UNITS_A_ROW));
    let mut row_totals = Shared::<[f32]>::new_slice(comptime!(rows * UNITS_A_ROW));
    // What the values of a span add up to, in parts; and all spans so far.
    let mut partial = Shared::<[Vec4]>::new_slice(comptime!(VALUE_PARTS * rows * vectors));
    let mut sums = Shared::<[Vec4]>::new_slice(comptime!(rows * vectors));
    let mut maxima = Shared::<[f32]>::new_slice(rows);
    let mut totals = Shared::<[f32]>::new_slice(rows);

    // Rows of a tile that are none repeat its last.
    let mut at = unit;
    while at < comptime!(rows * vectors) {
        let row = at / vectors;
        let token = first_token + min(row / comptime!(tile.heads), tokens - 1);
        let head = first_head + min(row % comptime!(tile.heads), heads - 1);
        queries[at] = q[token * q_stride + head * vectors + at % vectors];
        sums[at] = Vec4::new(0.0f32);
        at += SPAN;
    }
    if unit < rows {
        maxima[unit] = HIDDEN.runtime();
        totals[unit] = 0.0f32.runtime();
    }
    sync_cube();

    for s in 0..num_spans {
        let start = (first_span + s) * SPAN;

        // A unit a key: its scores with all queries.
        let key = start + unit;
        let mut dots = Array::<Vec4>::new(rows);
        #[unroll]
        for r in 0..rows {
            dots[r] = Vec4::new(0.0f32);
        }
        let mut key_scale = 1.0f32.runtime();
        if key <= last_position {
            let block = plan[table + key / block_size] as usize;
            let place = (block * num_kv_heads + kv_head) * block_size;
            let from = place * chunks + key % block_size;
            for chunk in 0..chunks {
                let words = keys[from + chunk * block_size];
                #[unroll]
                for h in 0..parts {
                    let numbers = widen(words, h, comptime!(tile.format));
                    #[unroll]
                    for r in 0..rows {
                        let query = queries[comptime!(r * vectors + h) + chunk * parts];
                        dots[r] = fma(query, numbers, dots[r]);
                    }
                }
            }
            let scale: ComptimeOption<f32> =
                key_scales.map(|scales| scales[place + key % block_size]);
            key_scale = scale.unwrap_or_else(|| 1.0f32.runtime());
        }
        #[unroll]
        for r in 0..rows {
            let mut score = lanes_sum(dots[r]) * key_scale * scale;
            if comptime!(tile.has_soft_cap) {
                score = capped(score, soft_cap);
            }
            let position = positions[r];
            let is_seen = key <= position && (window == 0 || key + window > position);
            scores[comptime!(r * SPAN) + unit] = select(is_seen, score, HIDDEN.runtime());
        }
        sync_cube();

        // Some units a row: from scores to weights, of which those of hidden keys are -1.
        let (row, lane) = (unit / UNITS_A_ROW, unit % UNITS_A_ROW);
        if row < rows {
            let mut largest = HIDDEN.runtime();
            for i in 0..comptime!(SPAN / UNITS_A_ROW) {
                largest = max(largest, scores[row * SPAN + i * UNITS_A_ROW + lane]);
            }
            row_maxima[unit] = largest;
        }
        sync_cube();
        if row < rows {
            let largest = row_maximum(&row_maxima, row);
            let mut total = 0.0f32.runtime();
            for i in 0..comptime!(SPAN / UNITS_A_ROW) {
                let at = row * SPAN + i * UNITS_A_ROW + lane;
                let score = scores[at];
                if score == HIDDEN {
                    scores[at] = (-1.0f32).runtime();
                } else {
                    let weight = (score - largest).exp();
                    scores[at] = weight;
                    total += weight;
                }
            }
            row_totals[unit] = total;
        }
        sync_cube();

        // A unit a row's chunk of dimensions, of half of the values.
        let count = min(SPAN.runtime(), last_position + 1 - start);
        let mut task = unit;
        while task < comptime!(VALUE_PARTS * rows * chunks) {
            let chunk = task % chunks;
            let row = task / chunks % rows;
            let part = task / comptime!(chunks * rows);
            let mut acc = Array::<Vec4>::new(parts);
            #[unroll]
            for h in 0..parts {
                acc[h] = Vec4::new(0.0f32);
            }
            let mut j = part * comptime!(SPAN / VALUE_PARTS);
            let end = min(j + comptime!(SPAN / VALUE_PARTS), count);
            while j < end {
                let weight = scores[row * SPAN + j];
                // Whatever a hidden key's value is, a NaN too, it must not be added.
                let is_hidden = weight < 0.0f32;
                if !is_hidden {
                    let key = start + j;
                    let block = plan[table + key / block_size] as usize;
                    let place = (block * num_kv_heads + kv_head) * block_size + key % block_size;
                    let words = values[place * chunks + chunk];
                    let scale: ComptimeOption<f32> = value_scales.map(|scales| scales[place]);
                    let weight = Vec4::new(weight * scale.unwrap_or_else(|| 1.0f32.runtime()));
                    #[unroll]
                    for h in 0..parts {
                        acc[h] = fma(weight, widen(words, h, comptime!(tile.format)), acc[h]);
                    }
                }
                j += 1;
            }
            #[unroll]
            for h in 0..parts {
                partial[task * parts + h] = acc[h];
            }
            task += SPAN;
        }
        sync_cube();

        // The parts added, and joined to the spans before.
        let mut at = unit;
        while at < comptime!(rows * vectors) {
            let row = at / vectors;
            let (token, in_tile) = (row / comptime!(tile.heads), row % comptime!(tile.heads));
            let of_row = first_token + min(token, tokens - 1);
            if sees(plan[positions_at + of_row] as usize, start, window) {
                let mut sum = partial[at];
                #[unroll]
                for part in 1..VALUE_PARTS {
                    sum += partial[comptime!(part * rows * vectors) + at];
                }
                let span_maximum = row_maximum(&row_maxima, row);
                if comptime!(tile.is_split) {
                    if token < tokens && in_tile < heads {
                        let record = (item * comptime!(tile.tokens) + token) * num_heads;
                        let to = (record + first_head + in_tile) * comptime!(vectors + 1);
                        out[to + at % vectors] = sum;
                        let vector = at % vectors;
                        if vector == 0 {
                            let mut of_head = Vec4::new(span_maximum);
                            of_head.insert(1usize, row_total(&row_totals, row));
                            out[to + vectors] = of_head;
                        }
                    }
                } else {
                    let (old, new, _) = factors(maxima[row], span_maximum);
                    sums[at] = fma(sum, Vec4::new(new), sums[at] * Vec4::new(old));
                }
            }
            at += SPAN;
        }
        sync_cube();
        if unit < rows {
            let of_row = first_token + min(unit / comptime!(tile.heads), tokens - 1);
            if sees(plan[positions_at + of_row] as usize, start, window) {
                let (old, new, largest) = factors(maxima[unit], row_maximum(&row_maxima, unit));
                maxima[unit] = largest;
                totals[unit] = fma(row_total(&row_totals, unit), new, totals[unit] * old);
            }
        }
        sync_cube();
    }

    if comptime!(!tile.is_split) {
        let mut at = unit;
        while at < comptime!(rows * vectors) {
            let row = at / vectors;
            let (token, head) = (row / comptime!(tile.heads), row % comptime!(tile.heads));
            if token < tokens && head < heads {
                let to = ((first_token + token) * num_heads + first_head + head) * vectors;
                out[to + at % vectors] = sums[at] / Vec4::new(totals[row]);
            }
            at += SPAN;
        }
    }
}

/// The largest score of a row, from what its units found.
#[cube]
fn row_maximum(row_maxima: &Shared<[f32]>, row: usize) -> f32 {
    let mut largest = row_maxima[row * UNITS_A_ROW];
    for lane in 1..UNITS_A_ROW {
        largest = max(largest, row_maxima[row * UNITS_A_ROW + lane]);
    }
    largest
}

/// The sum of a row's weights, from those of its units in order.
#[cube]
fn row_total(row_totals: &Shared<[f32]>, row: usize) -> f32 {
    let mut total = row_totals[row * UNITS_A_ROW];
    for lane in 1..UNITS_A_ROW {
        total += row_totals[row * UNITS_A_ROW + lane];
    }
    total
}

/// `cap · tanh(score / cap)`
#[cube]
fn capped(score: f32, cap: f32) -> f32 {
    let x = score / cap;
    // Where tanh is made of exponentials it overflows early; from here on it is ±1.
    let mut tanh = x.tanh();
    if x > 12.0f32 {
        tanh = 1.0f32;
    }
    if x < -12.0f32 {
        tanh = -1.0f32;
    }
    cap * tanh
}
