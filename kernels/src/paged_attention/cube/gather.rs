//! A sequence's keys and values as one matrix a head, in float16.

use cubecl::client::Client;
use cubecl::prelude::*;
use cubecl::server::Handle;

use crate::cube::{
    FourHalves, Vec4, WordFormat, Words, cubes, halves, upload, widen, words_buffer,
};
use crate::kv_cache::cube::{CubeKv, KvForm, Pages};

const UNITS: usize = 256;

/// Keys and values, `[kv_head][token][head_dim]`.
pub(super) struct Gathered {
    pub(super) keys: Handle,
    pub(super) values: Handle,
}

/// Gathers keys and values of the first `tokens` tokens of the sequence with this block table.
pub(super) fn gather(client: &Client, kv: &CubeKv, table: &[u32], tokens: usize) -> Gathered {
    let shape = kv.shape;
    let bytes = tokens * shape.num_kv_heads * shape.head_dim * size_of::<u16>();
    let gathered = Gathered { keys: client.empty(bytes), values: client.empty(bytes) };
    let chunks = tokens * shape.num_kv_heads * (shape.head_dim / kv.format.per_chunk());
    let table = upload(client, &table[..tokens.div_ceil(shape.block_size)]);
    let scales = kv.scales.as_ref();
    // SAFETY: a unit beyond the chunks does nothing; the table's blocks were checked against the
    // arena.
    unsafe {
        gather_kernel::launch_unchecked(
            client,
            cubes(chunks.div_ceil(UNITS)),
            CubeDim::new_1d(UNITS as u32),
            words_buffer(&kv.arena),
            scales.map(|[keys, _]| words_buffer(keys)).into(),
            scales.map(|[_, values]| words_buffer(values)).into(),
            words_buffer(&table),
            words_buffer(&gathered.keys),
            words_buffer(&gathered.values),
            chunks,
            tokens,
            kv.pages(),
            kv.form(),
        );
    }
    gathered
}

#[cube(launch_unchecked)]
fn gather_kernel(
    arena: &[Words],
    key_scales: ComptimeOption<&[f32]>,
    value_scales: ComptimeOption<&[f32]>,
    table: &[u32],
    to_keys: &mut [FourHalves],
    to_values: &mut [FourHalves],
    num_chunks: usize,
    tokens: usize,
    pages: Pages,
    #[comptime] form: KvForm,
) {
    let at = ABSOLUTE_POS;
    if at >= num_chunks {
        terminate!();
    }
    let (format, chunks) = comptime!((form.format, form.key_chunks()));
    let parts = comptime!(format.per_word());
    let (chunk, row) = (at % chunks, at / chunks);
    let (token, kv_head) = (row % tokens, row / tokens);
    let block = table[token / pages.block_size] as usize;
    let offset = token % pages.block_size;
    let key = arena[pages.key_at(block, kv_head, offset) + chunk * pages.block_size];
    let value = arena[pages.value_at(block, kv_head, offset, chunk)];
    let scale_at = pages.scale_at(block, kv_head, offset);
    let key_scale: ComptimeOption<f32> = key_scales.map(|scales| scales[scale_at]);
    let value_scale: ComptimeOption<f32> = value_scales.map(|scales| scales[scale_at]);
    let key_scale = Vec4::new(key_scale.unwrap_or_else(|| 1.0f32.runtime()));
    let value_scale = Vec4::new(value_scale.unwrap_or_else(|| 1.0f32.runtime()));
    let to = row * comptime!(form.head_dim / 4) + chunk * parts;
    #[unroll]
    for h in 0..parts {
        to_keys[to + h] = halves(widen(key, h, format) * key_scale, WordFormat::F16);
        to_values[to + h] = halves(widen(value, h, format) * value_scale, WordFormat::F16);
    }
}
