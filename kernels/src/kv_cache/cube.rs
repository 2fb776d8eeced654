//! A GPU's arena, and the writes to it.
//!
//! The arena consists of chunks of four words. Keys are `[block][kv_head][chunk][offset]`.
//! Neighbouring units take one key each, so they load neighbouring chunks. Values are
//! `[block][kv_head][offset][chunk]`. Neighbouring units take neighbouring dimensions, so they load
//! neighbouring chunks, too. The scales of int8 are f32, `[block][kv_head][offset]`.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use cubecl::server::Handle;

use super::{KvCacheShape, KvDtype, KvLayer, KvStorage};
use crate::KernelError;
use crate::cube::{
    Rows, StepInput, Vec4, WordFormat, Words, cubes, device_name, encode, reserved, upload_once,
    words_buffer,
};

const UNITS: usize = 256;

/// The largest code. Codes go from −127 to 127.
const LARGEST_CODE: f32 = 127.0;

/// Rows whose largest element is below this are stored as zeros: 1 / scale would not fit an f32.
const SMALLEST: f32 = 128.0 * f32::MIN_POSITIVE;

/// One layer's keys and values.
#[derive(Debug)]
pub(crate) struct CubeKv {
    #[cfg(test)]
    device: cubecl::Device,
    pub(crate) shape: KvCacheShape,
    pub(crate) format: WordFormat,
    pub(crate) keys: Handle,
    pub(crate) values: Handle,
    /// The scales of keys and of values, if the format has scales.
    pub(crate) scales: Option<[Handle; 2]>,
}

impl From<KvDtype> for WordFormat {
    fn from(dtype: KvDtype) -> Self {
        match dtype {
            KvDtype::F32 => Self::F32,
            KvDtype::F16 => Self::F16,
            KvDtype::Bf16 => Self::Bf16,
            KvDtype::Int8 => Self::Int8,
        }
    }
}

impl CubeKv {
    /// Returns the arena of one layer. Its content is undefined until it is written.
    pub(crate) fn new(
        shape: &KvCacheShape,
        dtype: KvDtype,
        device: &cubecl::Device,
    ) -> Result<Self, KernelError> {
        const WHAT: &str = "KV cache";
        let format = WordFormat::from(dtype);
        if shape.values_in_keys {
            return Err(KernelError::UnsupportedForm {
                what: WHAT,
                form: "values that are parts of keys (multi-head latent attention)".to_owned(),
                device: format!("{device:?}"),
            });
        }
        let dims = [("head_dim", shape.head_dim), ("value_head_dim", shape.value_head_dim)];
        for (field, dim) in dims {
            if !dim.is_multiple_of(format.per_chunk()) || dim > HEAD_DIM_MAX {
                return Err(KernelError::UnsupportedForm {
                    what: WHAT,
                    form: format!("{field} {dim} in {dtype}"),
                    device: device_name(device),
                });
            }
        }
        let client = device.client();
        let tokens = shape.num_slots() * shape.num_kv_heads;
        let arena = |dim: usize| {
            reserved(&client, tokens * dim / format.per_word() * size_of::<u32>(), WHAT)
        };
        let (keys, values) = (arena(shape.head_dim)?, arena(shape.value_head_dim)?);
        let scales = || reserved(&client, tokens * size_of::<f32>(), WHAT);
        let scales = match dtype {
            KvDtype::Int8 => Some([scales()?, scales()?]),
            KvDtype::F32 | KvDtype::F16 | KvDtype::Bf16 => None,
        };
        Ok(Self {
            #[cfg(test)]
            device: device.clone(),
            shape: *shape,
            format,
            keys,
            values,
            scales,
        })
    }
}

/// Largest `head_dim` that the attention kernels have room for.
const HEAD_DIM_MAX: usize = 256;

/// Writes k and v to their slots. Returns the number of tokens.
pub(crate) fn reshape_and_cache(
    k: CubeTensor,
    v: CubeTensor,
    layer: &mut KvLayer,
    slot_mapping: &[u32],
) -> usize {
    let group = layer.group;
    let kv = match &layer.storage {
        KvStorage::Cube(kv) => kv,
        KvStorage::Cpu(_) => unreachable!("reshape_and_cache: k is on a GPU, the cache is not"),
    };
    let KvCacheShape { num_kv_heads, head_dim, value_head_dim, block_size, .. } = kv.shape;
    let (k, v) = (Rows::new(k), Rows::new(v));
    let tokens = slot_mapping.len();
    let (of_keys, of_values) = (num_kv_heads * head_dim, num_kv_heads * value_head_dim);
    assert_eq!([k.rows, k.cols], [tokens, of_keys], "reshape_and_cache: shape of k");
    assert_eq!([v.rows, v.cols], [tokens, of_values], "reshape_and_cache: shape of v");
    kv.shape.check_slots(slot_mapping);
    let chunks = head_dim.max(value_head_dim) / kv.format.per_chunk();
    let units = tokens * num_kv_heads * chunks;
    let slots = upload_once(k.client(), k.device(), StepInput::Slots(group), slot_mapping);
    let scales = kv.scales.as_ref();
    // SAFETY: a unit beyond the chunks does nothing; slots and widths were checked.
    unsafe {
        write_kernel::launch_unchecked(
            k.client(),
            cubes(units.div_ceil(UNITS)),
            CubeDim::new_1d(UNITS as u32),
            k.arg(),
            v.arg(),
            words_buffer(&slots),
            words_buffer(&kv.keys),
            words_buffer(&kv.values),
            scales.map(|[keys, _]| words_buffer(keys)).into(),
            scales.map(|[_, values]| words_buffer(values)).into(),
            units,
            k.stride(),
            v.stride(),
            block_size,
            num_kv_heads,
            head_dim,
            value_head_dim,
            kv.format,
        );
    }
    tokens
}

/// Writes one chunk of a key and one of a value in each unit, as far as both have that many.
/// Is never called: [`CubeKv::new`] refuses values that are parts of keys.
pub(crate) fn cache_keys(_: CubeTensor, _: &mut KvLayer, _: &[u32]) -> usize {
    unreachable!("cache_keys: no GPU has a cache of this form")
}

#[cube(launch_unchecked)]
fn write_kernel(
    k: &[Vec4],
    v: &[Vec4],
    slots: &[u32],
    keys: &mut [Words],
    values: &mut [Words],
    key_scales: ComptimeOption<&mut [f32]>,
    value_scales: ComptimeOption<&mut [f32]>,
    units: usize,
    k_stride: usize,
    v_stride: usize,
    block_size: usize,
    num_kv_heads: usize,
    #[comptime] head_dim: usize,
    #[comptime] value_head_dim: usize,
    #[comptime] format: WordFormat,
) {
    let unit = ABSOLUTE_POS;
    if unit >= units {
        terminate!();
    }
    let key_chunks = comptime!(head_dim / format.per_chunk());
    let value_chunks = comptime!(value_head_dim / format.per_chunk());
    let chunks = comptime!(if key_chunks > value_chunks { key_chunks } else { value_chunks });
    let chunk = unit % chunks;
    let head = unit / chunks % num_kv_heads;
    let token = unit / chunks / num_kv_heads;
    let slot = slots[token] as usize;
    let (block, offset) = (slot / block_size, slot % block_size);
    let place = (block * num_kv_heads + head) * block_size;

    if chunk < key_chunks {
        let from = token * k_stride + head * comptime!(head_dim / 4);
        let (key, scale) = coded(k, from, chunk, head_dim, format);
        keys[place * key_chunks + chunk * block_size + offset] = key;
        if comptime!(format == WordFormat::Int8) {
            key_scales.unwrap()[place + offset] = scale;
        }
    }
    if chunk < value_chunks {
        let from = token * v_stride + head * comptime!(value_head_dim / 4);
        let (value, scale) = coded(v, from, chunk, value_head_dim, format);
        values[(place + offset) * value_chunks + chunk] = value;
        if comptime!(format == WordFormat::Int8) {
            value_scales.unwrap()[place + offset] = scale;
        }
    }
}

/// Returns one chunk of a row, and the row's scale. The row is the `head_dim` numbers from `start`
/// on.
#[cube]
fn coded(
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

/// An arena copied back to the host, for tests.
#[cfg(test)]
pub(crate) struct Stored<'a> {
    kv: &'a CubeKv,
    keys: Vec<u32>,
    values: Vec<u32>,
    scales: Option<[Vec<u32>; 2]>,
}

#[cfg(test)]
impl<'a> Stored<'a> {
    pub(crate) fn read(kv: &'a CubeKv) -> Self {
        let client = kv.device.client();
        let read = |handle: &Handle| -> Vec<u32> {
            bytemuck::pod_collect_to_vec(&client.read_one(handle.clone()).unwrap()[..])
        };
        let scales = kv.scales.as_ref().map(|scales| [read(&scales[0]), read(&scales[1])]);
        Self { kv, keys: read(&kv.keys), values: read(&kv.values), scales }
    }

    /// Returns one key and value in f32.
    pub(crate) fn at(&self, slot: usize, head: usize) -> [Vec<f32>; 2] {
        let KvCacheShape { num_kv_heads, head_dim, value_head_dim, block_size, .. } = self.kv.shape;
        let (format, per_chunk) = (self.kv.format, self.kv.format.per_chunk());
        let (key_chunks, value_chunks) = (head_dim / per_chunk, value_head_dim / per_chunk);
        let place = (slot / block_size * num_kv_heads + head) * block_size;
        let offset = slot % block_size;
        let number = |words: &[u32], chunk: usize, d: usize| {
            let (word, shift) = format.place(d % per_chunk);
            let bits = words[chunk * crate::cube::CHUNK_WORDS + word] >> shift;
            match format {
                WordFormat::F32 => f32::from_bits(bits),
                WordFormat::F16 => half::f16::from_bits(bits as u16).to_f32(),
                WordFormat::Bf16 => f32::from_bits(bits << 16),
                _ => f32::from(bits as u8 as i8),
            }
        };
        let scale = |which: usize| {
            let scales = self.scales.as_ref();
            scales.map_or(1.0, |scales| f32::from_bits(scales[which][place + offset]))
        };
        let key_chunk = |d: usize| place * key_chunks + d / per_chunk * block_size + offset;
        let value_chunk = |d: usize| (place + offset) * value_chunks + d / per_chunk;
        let key = |d| number(&self.keys, key_chunk(d), d) * scale(0);
        let value = |d| number(&self.values, value_chunk(d), d) * scale(1);
        [(0..head_dim).map(key).collect(), (0..value_head_dim).map(value).collect()]
    }
}
