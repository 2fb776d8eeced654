//! The writes of keys and values.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{CubeKv, KvForm, Pages, on_gpu};
use crate::KvCacheShape;
use crate::cube::{
    Rows, StepInput, Vec4, WordFormat, Words, cubes, encode, upload_once, words_buffer,
};
use crate::kv_cache::KvLayer;

const UNITS: usize = 256;

/// The largest code. Codes go from −127 to 127.
const LARGEST_CODE: f32 = 127.0;

/// Rows whose largest element is below this are stored as zeros: 1 / scale would not fit an f32.
const SMALLEST: f32 = 128.0 * f32::MIN_POSITIVE;

/// Writes k and v to their slots. Returns the number of tokens.
pub(crate) fn reshape_and_cache(
    k: CubeTensor,
    v: CubeTensor,
    layer: &mut KvLayer,
    slot_mapping: &[u32],
) -> usize {
    let kv = on_gpu(layer, "reshape_and_cache");
    let KvCacheShape { num_kv_heads, head_dim, value_head_dim, values_in_keys, .. } = kv.shape;
    assert!(!values_in_keys, "reshape_and_cache: values are parts of keys");
    let (k, v) = (Rows::new(k), Rows::new(v));
    let tokens = slot_mapping.len();
    let (of_keys, of_values) = (num_kv_heads * head_dim, num_kv_heads * value_head_dim);
    assert_eq!([k.rows, k.cols], [tokens, of_keys], "reshape_and_cache: shape of k");
    assert_eq!([v.rows, v.cols], [tokens, of_values], "reshape_and_cache: shape of v");
    write_rows(&k, Some(&v), kv, layer.group(), slot_mapping)
}

/// Writes k, whose first elements are the values, to its slots. Returns the number of tokens.
pub(crate) fn cache_keys(k: CubeTensor, layer: &mut KvLayer, slot_mapping: &[u32]) -> usize {
    let kv = on_gpu(layer, "cache_keys");
    let KvCacheShape { num_kv_heads, head_dim, values_in_keys, .. } = kv.shape;
    assert!(values_in_keys, "cache_keys: values are stored beside keys");
    let k = Rows::new(k);
    let shape = [slot_mapping.len(), num_kv_heads * head_dim];
    assert_eq!([k.rows, k.cols], shape, "cache_keys: shape of k");
    write_rows(&k, None, kv, layer.group(), slot_mapping)
}

/// Writes rows of a layer in a group of layers. Returns the number of tokens.
pub(crate) fn write_rows(
    k: &Rows,
    v: Option<&Rows>,
    kv: &CubeKv,
    group: usize,
    slot_mapping: &[u32],
) -> usize {
    kv.shape.check_slots(slot_mapping);
    let (form, tokens) = (kv.form(), slot_mapping.len());
    let of_values = if v.is_some() { form.value_chunks() } else { 0 };
    let units = tokens * kv.shape.num_kv_heads * form.key_chunks().max(of_values);
    let slots = upload_once(k.client(), k.device(), StepInput::Slots(group), slot_mapping);
    let scales = kv.scales.as_ref();
    // SAFETY: a unit beyond the chunks does nothing; slots and widths were checked.
    unsafe {
        write_kernel::launch_unchecked(
            k.client(),
            cubes(units.div_ceil(UNITS)),
            CubeDim::new_1d(UNITS as u32),
            k.arg(),
            v.map(Rows::arg).into(),
            words_buffer(&slots),
            words_buffer(&kv.arena),
            scales.map(|[keys, _]| words_buffer(keys)).into(),
            scales.filter(|_| v.is_some()).map(|[_, values]| words_buffer(values)).into(),
            units,
            k.stride(),
            v.map_or(0, Rows::stride),
            kv.pages(),
            form,
        );
    }
    tokens
}

/// Writes one chunk of a key and one of a value in each unit, as far as both have that many.
#[cube(launch_unchecked)]
fn write_kernel(
    k: &[Vec4],
    v: ComptimeOption<&[Vec4]>,
    slots: &[u32],
    arena: &mut [Words],
    key_scales: ComptimeOption<&mut [f32]>,
    value_scales: ComptimeOption<&mut [f32]>,
    units: usize,
    k_stride: usize,
    v_stride: usize,
    pages: Pages,
    #[comptime] form: KvForm,
) {
    let unit = ABSOLUTE_POS;
    if unit >= units {
        terminate!();
    }
    let (head_dim, value_head_dim) = comptime!((form.head_dim, form.value_head_dim));
    let key_chunks = comptime!(form.key_chunks());
    let value_chunks = comptime!(if v.is_some() { form.value_chunks() } else { 0 });
    let chunks = comptime!(if key_chunks > value_chunks { key_chunks } else { value_chunks });
    let chunk = unit % chunks;
    let head = unit / chunks % pages.num_kv_heads;
    let token = unit / chunks / pages.num_kv_heads;
    let slot = slots[token] as usize;
    let (block, offset) = (slot / pages.block_size, slot % pages.block_size);
    let scale_at = pages.scale_at(block, head, offset);

    if chunk < key_chunks {
        let from = token * k_stride + head * comptime!(head_dim / 4);
        let (key, scale) = coded(k, from, chunk, head_dim, comptime!(form.format));
        arena[pages.key_at(block, head, offset) + chunk * pages.block_size] = key;
        if comptime!(form.format == WordFormat::Int8) {
            key_scales.unwrap()[scale_at] = scale;
        }
    }
    if chunk < value_chunks {
        let from = token * v_stride + head * comptime!(value_head_dim / 4);
        if comptime!(v.is_some()) {
            let (value, scale) =
                coded(v.unwrap(), from, chunk, value_head_dim, comptime!(form.format));
            arena[pages.value_at(block, head, offset, chunk)] = value;
            if comptime!(form.format == WordFormat::Int8) {
                value_scales.unwrap()[scale_at] = scale;
            }
        }
    }
}

/// Returns one chunk of a row, and the row's scale. The row is the `head_dim` numbers from `start`
/// on.
#[cube]
pub(crate) fn coded(
    rows: &[Vec4],
    start: usize,
    chunk: usize,
    #[comptime] head_dim: usize,
    #[comptime] format: WordFormat,
) -> (Words, f32) {
    let parts = comptime!(format.per_word());
    let mut words = Words::new(0u32);
    let mut scale = 1.0f32;
    if comptime!(format == WordFormat::Int8) {
        // The bits of magnitudes, read as integers, have the order of the magnitudes. NaN is the
        // largest.
        let mut largest = 0u32;
        for i in 0..comptime!(head_dim / 4) {
            let bits = Words::reinterpret(rows[start + i]) & Words::new(0x7fff_ffffu32);
            #[unroll]
            for lane in 0..4usize {
                largest = max(largest, bits.extract(lane));
            }
        }
        let largest = f32::reinterpret(largest);
        // A NaN is not below `SMALLEST`, so it stays a NaN.
        scale = largest / LARGEST_CODE;
        let mut inverse = LARGEST_CODE / largest;
        if largest < SMALLEST {
            scale = 0.0f32;
            inverse = 0.0f32;
        }
        #[unroll]
        for h in 0..parts {
            let numbers = rows[start + chunk * parts + h] * Vector::new(inverse);
            words |= encode(numbers.round(), h, format);
        }
    } else {
        #[unroll]
        for h in 0..parts {
            words |= encode(rows[start + chunk * parts + h], h, format);
        }
    }
    (words, scale)
}
