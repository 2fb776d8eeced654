//! The operation on a GPU: its parts one after another, or all of them in one kernel with the write
//! to the KV cache.

mod cached;

use std::ops::Range;

use burn::backend::ops::FloatTensorOps;
use burn::tensor::{Shape, Slice};
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;

use super::{HeadNorm, QkvHeads};
use crate::elementwise::{ElementMap, cube::map_elements};
use crate::kv_cache::KvLayer;
use crate::kv_cache::cube::{on_gpu, reshape_and_cache};
use crate::profile::timed;
use crate::rope::{RotaryTable, cube::rope};
use crate::{layer_norm, rms_norm};

/// Splits, normalises and rotates.
pub(crate) fn qk_norm_rope(
    qkv: CubeTensor,
    heads: &QkvHeads,
    positions: &[u32],
    table: Option<&RotaryTable>,
) -> (CubeTensor, CubeTensor, CubeTensor) {
    let [rows, width] = qkv.meta.shape().dims::<2>();
    heads.check([rows, width], positions, table);
    let part = |columns: Range<usize>| {
        // A view of the same memory.
        CubeBackend::float_slice(qkv.clone(), &[Slice::from(0..rows), Slice::from(columns)])
    };
    let limited = |x: CubeTensor| match heads.clip {
        Some(limit) => map_elements(x, ElementMap::Clamp(limit)),
        None => x,
    };
    let rotated = |x: CubeTensor| {
        let x = limited(x);
        match table {
            Some(table) => rope(x, positions, heads.head_dim, table),
            None => x,
        }
    };
    let turned = |columns: Range<usize>, norm: Option<&HeadNorm>| {
        let x = part(columns);
        match norm {
            None => rotated(x),
            Some(norm) if heads.norms_after_rope => normed(rotated(x), norm, heads),
            Some(norm) => rotated(normed(x, norm, heads)),
        }
    };
    let [q, k, v] = heads.columns();
    (turned(q, heads.q_norm.as_ref()), turned(k, heads.k_norm.as_ref()), limited(part(v)))
}

/// Splits, normalises and rotates, and writes keys and values to the cache. Returns the queries.
pub(crate) fn qk_norm_rope_and_cache(
    qkv: CubeTensor,
    heads: &QkvHeads,
    positions: &[u32],
    table: Option<&RotaryTable>,
    layer: &mut KvLayer,
    slot_mapping: &[u32],
) -> CubeTensor {
    let kv = on_gpu(layer, "qk_norm_rope_and_cache");
    if cached::takes(heads, kv) {
        return timed("qk_norm_rope", || {
            cached::launch(qkv, heads, positions, table, kv, (layer.group(), slot_mapping))
        });
    }
    let (q, k, v) = timed("qk_norm_rope", || qk_norm_rope(qkv, heads, positions, table));
    timed("kv_write", || reshape_and_cache(k, v, layer, slot_mapping));
    q
}

/// Returns whether one kernel computes these heads and writes them to this layer.
#[cfg(test)]
pub(super) fn takes(heads: &QkvHeads, layer: &KvLayer) -> bool {
    cached::takes(heads, on_gpu(layer, "qk_norm_rope_and_cache"))
}

/// Normalises the heads of each row.
fn normed(x: CubeTensor, norm: &HeadNorm, heads: &QkvHeads) -> CubeTensor {
    let (dim, eps) = (heads.head_dim, heads.eps);
    let [rows, width] = x.meta.shape().dims::<2>();
    let each = |x: CubeTensor, norm: &dyn Fn(CubeTensor) -> CubeTensor| {
        let x = CubeBackend::float_reshape(x, Shape::new([rows * width / dim, dim]));
        CubeBackend::float_reshape(norm(x), Shape::new([rows, width]))
    };
    match norm {
        HeadNorm::Rms(weight) => each(x, &|x| rms_norm::cube::normed(x, Some(weight), eps)),
        HeadNorm::RmsAcrossHeads(weight) => rms_norm::cube::normed(x, Some(weight), eps),
        HeadNorm::Layer(weight) => {
            each(x, &|x| layer_norm::cube::normed(x, Some(weight), None, eps))
        }
        HeadNorm::LayerBiased { weight, bias } => {
            each(x, &|x| layer_norm::cube::normed(x, Some(weight), Some(bias), eps))
        }
        HeadNorm::Unit => each(x, &|x| rms_norm::cube::normed(x, None, eps)),
    }
}
