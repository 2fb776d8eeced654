//! Latent attention on a GPU: one launch multiplies the rows of all heads with the heads' matrices,
//! and one puts the results in their places and rotates the rest.

use burn::backend::ops::FloatTensorOps;
use burn::tensor::{Shape, Slice};
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{LatentNorm, LatentProjections, Sizes, WHAT};
use crate::cube::{Norm, Rows, StepInput, buffer, cubes, normed, upload_once, words_buffer};
use crate::linear::cube::{CubeStack, ITEM_WORDS, Items, TileKind, grouped};
use crate::rope::cube::rotary;
use crate::{KernelError, LinearWeight, RotaryTable, rope};

const UNITS: usize = 256;

/// The matrices of all heads.
#[derive(Debug)]
pub(crate) struct CubeProjections {
    /// None where values alone are computed.
    keys: Option<CubeStack>,
    values: CubeStack,
}

impl CubeProjections {
    /// Moves the matrices behind one another.
    ///
    /// # Errors
    /// Matrices of different forms, or the device refuses the memory.
    pub(super) fn new(
        keys: Vec<LinearWeight>,
        values: Vec<LinearWeight>,
    ) -> Result<Self, KernelError> {
        Ok(Self {
            keys: match keys.is_empty() {
                true => None,
                false => Some(CubeStack::new(keys, None, WHAT, "keys")?),
            },
            values: CubeStack::new(values, None, WHAT, "values")?,
        })
    }
}

/// Returns the queries.
pub(crate) fn latent_queries(
    q: CubeTensor,
    projections: &LatentProjections,
    positions: &[u32],
    table: &RotaryTable,
) -> CubeTensor {
    let Sizes { heads, nope, rope, rank, .. } = projections.sizes;
    let [tokens, width] = q.meta.shape().dims::<2>();
    assert_eq!(width, heads * (nope + rope), "latent_queries: width of q [{tokens}, {width}]");
    assert_eq!(table.rotary_dim(), rope, "latent_queries: elements of the table");
    rope::check([tokens, rope], positions, rope, table);
    let q = Rows::new(q);
    if tokens == 0 {
        return q.sibling(0, heads * (rank + rope));
    }
    let by_head = Shape::new([tokens * heads, nope + rope]);
    let kept = CubeBackend::float_reshape(q.tensor().clone(), by_head);
    let of_heads = [Slice::from(0..tokens * heads), Slice::from(0..nope)];
    let kept = Rows::new(CubeBackend::float_slice(kept, &of_heads));
    let Some(keys) = &projections.on_gpu().keys else {
        unreachable!("the projections have no keys")
    };
    let products = by_matrix(&kept, keys, heads);
    let tails = Tails { x: &q, head_stride: nope + rope, first: nope, positions, table };
    joined(&products, heads, rank, Some(tails))
}

/// Returns the keys.
pub(crate) fn latent_keys(
    kv: CubeTensor,
    norm: &LatentNorm,
    positions: &[u32],
    table: &RotaryTable,
) -> CubeTensor {
    let [tokens, width] = kv.meta.shape().dims::<2>();
    let (rank, rope) = (norm.weight.len(), table.rotary_dim());
    assert_eq!(width, rank + rope, "latent_keys: width of kv [{tokens}, {width}]");
    rope::check([tokens, rope], positions, rope, table);
    let kv = Rows::new(kv);
    if tokens == 0 {
        return kv.sibling(0, width);
    }
    let latents = [Slice::from(0..tokens), Slice::from(0..rank)];
    let latents = CubeBackend::float_slice(kv.tensor().clone(), &latents);
    let LatentNorm { weight, eps } = norm;
    let norm = Norm { weight: Some(weight), bias: None, eps: *eps, is_centered: false };
    let tails = Tails { x: &kv, head_stride: 0, first: rank, positions, table };
    joined(&Rows::new(normed(latents, norm)), 1, rank, Some(tails))
}

/// Returns the values.
pub(crate) fn latent_values(latents: CubeTensor, projections: &LatentProjections) -> CubeTensor {
    let Sizes { heads, rank, value, .. } = projections.sizes;
    let [tokens, width] = latents.meta.shape().dims::<2>();
    assert_eq!(width, heads * rank, "latent_values: width of latents [{tokens}, {width}]");
    let latents = CubeBackend::float_reshape(latents, Shape::new([tokens * heads, rank]));
    let latents = Rows::new(latents);
    if tokens == 0 {
        return latents.sibling(0, heads * value);
    }
    let products = by_matrix(&latents, &projections.on_gpu().values, heads);
    joined(&products, heads, value, None)
}

/// Returns the products of the rows `[token][head]` of x with the matrices of their heads:
/// `[head][token]`.
fn by_matrix(x: &Rows, stack: &CubeStack, heads: usize) -> Rows {
    let tokens = x.rows / heads;
    let kind = TileKind::of(x.rows, heads);
    let input = StepInput::HeadRows { heads, tokens };
    let words = upload_once(x.client(), x.device(), input, &head_rows(heads, tokens, kind));
    let count = heads * tokens.div_ceil(kind.rows());
    let items = Items { words: &words, at: x.rows, count, kind };
    let y = x.sibling(x.rows, stack.outputs());
    grouped(x, Some(&words), stack, &items, &y);
    Rows::new(y)
}

/// Returns the row of x for each row `[head][token]`, then the items of the products.
fn head_rows(heads: usize, tokens: usize, kind: TileKind) -> Vec<u32> {
    let rows = heads * tokens;
    let items = heads * tokens.div_ceil(kind.rows());
    let mut words = Vec::with_capacity(rows + ITEM_WORDS * items);
    words.extend((0..rows).map(|row| (row % tokens * heads + row / tokens) as u32));
    for head in 0..heads {
        for first in (0..tokens).step_by(kind.rows()) {
            let count = kind.rows().min(tokens - first);
            words.extend([head, head * tokens + first, count].map(|x| x as u32));
        }
    }
    words
}

/// The parts of heads that rotate, in rows of tokens.
struct Tails<'a> {
    x: &'a Rows,
    /// Elements from one head to the next; 0 for one head.
    head_stride: usize,
    /// The first element of a head's part.
    first: usize,
    positions: &'a [u32],
    table: &'a RotaryTable,
}

/// Returns `[num_tokens, heads · (width + rope)]`: for each head its row of `parts`,
/// `[head][token]` of `width` elements, then its rotated tail.
fn joined(parts: &Rows, heads: usize, width: usize, tails: Option<Tails<'_>>) -> CubeTensor {
    let tokens = parts.rows / heads;
    let rope = tails.as_ref().map_or(0, |tails| tails.table.rotary_dim());
    let y = parts.sibling(tokens, heads * (width + rope));
    let units = tokens * heads * (width + rope);
    let stride = tails.as_ref().map_or(0, |tails| tails.x.stride() * tails.x.lanes);
    let layout = JoinLayoutLaunch::new(
        units,
        tokens,
        heads,
        stride,
        tails.as_ref().map_or(0, |tails| tails.head_stride),
        tails.as_ref().map_or(0, |tails| tails.first),
        width,
        rope,
    );
    let (client, device) = (parts.client(), parts.device());
    let positions = tails
        .as_ref()
        .map(|tails| upload_once(client, device, StepInput::Positions, tails.positions));
    let angles = tails.as_ref().map(|tails| rotary(tails.table));
    // SAFETY: a unit beyond the elements does nothing. Widths and positions were checked.
    unsafe {
        latent_join_kernel::launch_unchecked(
            client,
            cubes(units.div_ceil(UNITS)),
            CubeDim::new_1d(UNITS as u32),
            parts.arg(),
            tails.as_ref().map(|tails| tails.x.arg()).into(),
            positions.as_ref().map(words_buffer).into(),
            angles.map(|[cos, _]| words_buffer(cos)).into(),
            angles.map(|[_, sin]| words_buffer(sin)).into(),
            buffer(&y),
            layout,
        );
    }
    y
}

/// The numbers that all units of a launch share.
#[derive(CubeType, CubeLaunch)]
struct JoinLayout {
    /// Units of the launch.
    units: usize,
    tokens: usize,
    heads: usize,
    /// Elements from one token's tails to the next, from one head's to the next, and before the
    /// first.
    stride: usize,
    head_stride: usize,
    first: usize,
    #[cube(comptime)]
    width: usize,
    #[cube(comptime)]
    rope: usize,
}

#[cube(launch_unchecked)]
fn latent_join_kernel(
    parts: &[f32],
    tails: ComptimeOption<&[f32]>,
    positions: ComptimeOption<&[u32]>,
    cos: ComptimeOption<&[f32]>,
    sin: ComptimeOption<&[f32]>,
    y: &mut [f32],
    layout: JoinLayout,
) {
    let unit = ABSOLUTE_POS;
    if unit >= layout.units {
        terminate!();
    }
    let (width, half) = comptime!((layout.width, layout.rope / 2));
    let head_dim = comptime!(layout.width + layout.rope);
    let (i, row) = (unit % head_dim, unit / head_dim);
    let (head, token) = (row % layout.heads, row / layout.heads);
    if i < width {
        y[unit] = parts[(head * layout.tokens + token) * width + i];
    }
    if i >= width {
        let of_tail = i - width;
        if comptime!(tails.is_some()) {
            let pair = of_tail % half;
            let from = token * layout.stride + head * layout.head_stride + layout.first + pair;
            let (a, b) = (tails.unwrap()[from], tails.unwrap()[from + half]);
            let at = positions.unwrap()[token] as usize * half + pair;
            let (cos, sin) = (cos.unwrap()[at], sin.unwrap()[at]);
            let is_first = i < width + half;
            y[unit] = select(is_first, fma(-b, sin, a * cos), fma(a, sin, b * cos));
        }
    }
}
