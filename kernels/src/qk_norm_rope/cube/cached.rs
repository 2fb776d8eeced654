//! One kernel from the product of queries, keys and values to the KV cache, one cube a head of a
//! token. A unit has four elements of the head. The units share the head, because a rotation pairs
//! elements of two units, and because a chunk of the cache may have those of several.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::super::{HeadNorm, QkvHeads};
use crate::WeightVector;
use crate::cube::{
    Rows, StepInput, Vec4, WordFormat, Words, buffer, clamped, cubes, lanes_sum, sum_of_units,
    upload_once, words_buffer,
};
use crate::kv_cache::cube::{CubeKv, KvForm, Pages, coded};
use crate::rope::{RotaryTable, cube::rotary};

/// Elements of a unit.
const LANES: usize = 4;
/// Most units of a cube.
const UNITS_MAX: usize = 256;

/// The properties of heads that the kernel is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct HeadForm {
    head_dim: usize,
    /// Elements that the rotation pairs with the next as many. 0 without a rotation.
    half: usize,
    /// Whether queries, and whether keys, are normalised.
    norms: [bool; 2],
    is_clipped: bool,
}

impl HeadForm {
    fn of(heads: &QkvHeads, table: Option<&RotaryTable>) -> Self {
        Self {
            head_dim: heads.head_dim,
            half: table.map_or(0, |table| table.rotary_dim() / 2),
            norms: [heads.q_norm.is_some(), heads.k_norm.is_some()],
            is_clipped: heads.clip.is_some(),
        }
    }

    /// Returns the units that have elements.
    const fn vectors(self) -> usize {
        self.head_dim / LANES
    }

    /// Returns the units of a cube: as many as a norm of the head has, so that it sums in the same
    /// order.
    const fn units(self) -> usize {
        self.vectors().next_power_of_two()
    }
}

/// The numbers that all cubes of a launch share.
#[derive(CubeType, CubeLaunch)]
struct HeadLayout {
    /// Heads of all tokens: queries, keys and values.
    count: usize,
    /// Heads of a token's queries.
    num_heads: usize,
    /// Vectors from one token to the next.
    stride: usize,
    eps: f32,
    clip: f32,
    #[cube(comptime)]
    form: HeadForm,
}

/// Returns whether the kernel computes these heads for this cache.
pub(super) fn takes(heads: &QkvHeads, kv: &CubeKv) -> bool {
    let is_of_a_head =
        |norm: &Option<HeadNorm>| matches!(norm, None | Some(HeadNorm::Rms(_) | HeadNorm::Unit));
    let is_normed = heads.q_norm.is_some() || heads.k_norm.is_some();
    let dim = heads.head_dim;
    is_of_a_head(&heads.q_norm)
        && is_of_a_head(&heads.k_norm)
        && !(heads.norms_after_rope && is_normed)
        && dim.is_multiple_of(LANES)
        && dim <= LANES * UNITS_MAX
        && !kv.shape.values_in_keys
        && [kv.shape.head_dim, kv.shape.value_head_dim] == [dim, dim]
        && kv.shape.num_kv_heads == heads.num_kv_heads
}

/// Normalises, limits and rotates, and writes keys and values to the slots of a group of layers.
/// Returns the queries.
pub(super) fn launch(
    qkv: CubeTensor,
    heads: &QkvHeads,
    positions: &[u32],
    table: Option<&RotaryTable>,
    kv: &CubeKv,
    (group, slot_mapping): (usize, &[u32]),
) -> CubeTensor {
    let qkv = Rows::new(qkv);
    heads.check([qkv.rows, qkv.cols], positions, table);
    assert_eq!(slot_mapping.len(), qkv.rows, "qk_norm_rope_and_cache: one slot a token");
    kv.shape.check_slots(slot_mapping);
    let (client, device) = (qkv.client(), qkv.device());
    let q = qkv.sibling(qkv.rows, heads.q_size());
    let slots = upload_once(client, device, StepInput::Slots(group), slot_mapping);
    let positions = table.map(|_| upload_once(client, device, StepInput::Positions, positions));
    let angles = table.map(rotary);
    let form = HeadForm::of(heads, table);
    let count = qkv.rows * (heads.num_heads + 2 * heads.num_kv_heads);
    let (clip, stride) = (heads.clip.unwrap_or(0.0), qkv.stride());
    let layout = HeadLayoutLaunch::new(count, heads.num_heads, stride, heads.eps, clip, form);
    let scales = kv.scales.as_ref();
    // SAFETY: a cube beyond the heads does nothing, and a head's vectors lie within its row. The
    // widths, positions and slots were checked.
    unsafe {
        qkv_kernel::launch_unchecked(
            client,
            cubes(count),
            CubeDim::new_1d(form.units() as u32),
            qkv.arg(),
            positions.as_ref().map(words_buffer).into(),
            angles.map(|[cos, _]| words_buffer(cos)).into(),
            angles.map(|[_, sin]| words_buffer(sin)).into(),
            weight(&heads.q_norm).map(words).into(),
            weight(&heads.k_norm).map(words).into(),
            words_buffer(&slots),
            buffer(&q),
            words_buffer(&kv.arena),
            scales.map(|[keys, _]| words_buffer(keys)).into(),
            scales.map(|[_, values]| words_buffer(values)).into(),
            layout,
            kv.pages(),
            kv.form(),
        );
    }
    q
}

fn weight(norm: &Option<HeadNorm>) -> Option<&WeightVector> {
    match norm {
        Some(HeadNorm::Rms(weight)) => Some(weight),
        _ => None,
    }
}

fn words(vector: &WeightVector) -> BufferArg {
    words_buffer(vector.cube())
}

#[cube(launch_unchecked)]
fn qkv_kernel(
    qkv: &[Vec4],
    positions: ComptimeOption<&[u32]>,
    cos: ComptimeOption<&[f32]>,
    sin: ComptimeOption<&[f32]>,
    q_weight: ComptimeOption<&[Vec4]>,
    k_weight: ComptimeOption<&[Vec4]>,
    slots: &[u32],
    q: &mut [Vec4],
    arena: &mut [Words],
    key_scales: ComptimeOption<&mut [f32]>,
    value_scales: ComptimeOption<&mut [f32]>,
    layout: HeadLayout,
    pages: Pages,
    #[comptime] kv: KvForm,
) {
    if CUBE_POS >= layout.count {
        terminate!();
    }
    let form = comptime!(layout.form);
    let vectors = comptime!(form.vectors());
    let unit = UNIT_POS as usize;
    let (num_heads, num_kv_heads) = (layout.num_heads, pages.num_kv_heads);
    let heads = num_heads + 2 * num_kv_heads;
    let (token, head) = (CUBE_POS / heads, CUBE_POS % heads);
    let (is_query, is_value) = (head < num_heads, head >= num_heads + num_kv_heads);

    let mut x = Vec4::new(0.0f32);
    if unit < vectors {
        x = qkv[token * layout.stride + head * vectors + unit];
    }
    if comptime!(form.norms[0] || form.norms[1]) {
        let squares = lanes_sum(fma(x, x, Vec4::new(0.0f32)));
        let mean = sum_of_units(squares, comptime!(form.units()))
            / f32::cast_from(comptime!(form.head_dim));
        let standard = x * Vec4::new(1.0f32 / (mean + layout.eps).sqrt());
        if comptime!(form.norms[0]) {
            let normed = weighted(standard, q_weight, unit, vectors);
            if is_query {
                x = normed;
            }
        }
        if comptime!(form.norms[1]) {
            let normed = weighted(standard, k_weight, unit, vectors);
            if !is_query && !is_value {
                x = normed;
            }
        }
    }
    if comptime!(form.is_clipped) {
        x = clamped(x, Vec4::new(layout.clip));
    }
    if comptime!(form.half > 0) {
        let position = positions.unwrap()[token] as usize;
        let turned = rotated(x, position, cos.unwrap(), sin.unwrap(), form);
        if !is_value {
            x = turned;
        }
    }

    let mut row = Shared::<[Vec4]>::new_slice(vectors);
    if unit < vectors {
        row[unit] = x;
        if is_query {
            q[(token * num_heads + head) * vectors + unit] = x;
        }
    }
    sync_cube();
    if !is_query && unit < comptime!(kv.key_chunks()) {
        let slot = slots[token] as usize;
        let (block, offset) = (slot / pages.block_size, slot % pages.block_size);
        let of_kind = head - num_heads;
        let (chunk, scale) =
            coded(row.inner_ref(), 0usize, unit, comptime!(kv.head_dim), comptime!(kv.format));
        if is_value {
            let kv_head = of_kind - num_kv_heads;
            arena[pages.value_at(block, kv_head, offset, unit)] = chunk;
            if comptime!(kv.format == WordFormat::Int8) {
                value_scales.unwrap()[pages.scale_at(block, kv_head, offset)] = scale;
            }
        } else {
            arena[pages.key_at(block, of_kind, offset) + unit * pages.block_size] = chunk;
            if comptime!(kv.format == WordFormat::Int8) {
                key_scales.unwrap()[pages.scale_at(block, of_kind, offset)] = scale;
            }
        }
    }
}

/// Returns a unit's elements of a head times the norm's weight, which is 1 where it is missing.
#[cube]
fn weighted(
    standard: Vec4,
    weight: ComptimeOption<&[Vec4]>,
    unit: usize,
    #[comptime] vectors: usize,
) -> Vec4 {
    // Units without elements read those of the last one.
    let at = min(unit, comptime!(vectors - 1));
    let weight: ComptimeOption<Vec4> = weight.map(|weight| weight[at]);
    let weight = weight.unwrap_or_else(|| Vec4::new(1.0f32));
    fma(standard, weight, Vec4::new(0.0f32))
}

/// Returns a unit's elements of a head, of which it has `x`, after the rotation.
#[cube]
fn rotated(x: Vec4, position: usize, cos: &[f32], sin: &[f32], #[comptime] form: HeadForm) -> Vec4 {
    let (unit, half) = (UNIT_POS as usize, comptime!(form.half));
    let mut head = Shared::<[f32]>::new_slice(comptime!(form.units() * LANES));
    #[unroll]
    for lane in 0..LANES {
        head[unit * LANES + lane] = x.extract(lane);
    }
    sync_cube();
    let mut turned = Vec4::new(0.0f32);
    #[unroll]
    for lane in 0..LANES {
        let i = unit * LANES + lane;
        // The first element of the pair, or any where there is no pair.
        let first = select(i < half, i, select(i < comptime!(2 * half), i - half, 0usize));
        let (a, b) = (head[first], head[first + half]);
        let (cos, sin) = (cos[position * half + first], sin[position * half + first]);
        let of_first = fma(-b, sin, a * cos);
        let of_second = fma(a, sin, b * cos);
        let of_pair = select(i < half, of_first, of_second);
        turned.insert(lane, select(i < comptime!(2 * half), of_pair, x.extract(lane)));
    }
    turned
}
