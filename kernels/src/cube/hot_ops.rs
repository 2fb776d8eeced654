//! The operations on CubeCL's backend.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;

use crate::hot_ops::HotOps;
use crate::kv_cache::KvLayer;
use crate::linear::LinearWeight;
use crate::paged_attention::{AttentionMetadata, AttentionParams};
use crate::qk_norm_rope::QkvHeads;
use crate::rope::RotaryTable;
use crate::weight_vector::WeightVector;
use crate::{kv_cache, linear, paged_attention, qk_norm_rope, rms_norm, rope, select_rows, swiglu};

impl HotOps for CubeBackend {
    fn linear(
        x: FloatTensor<Self>,
        weight: &LinearWeight,
        bias: Option<&WeightVector>,
    ) -> FloatTensor<Self> {
        linear::cube::linear(x, weight, bias)
    }

    fn linear_swiglu(x: FloatTensor<Self>, weight: &LinearWeight) -> FloatTensor<Self> {
        linear::cube::linear_swiglu(x, weight)
    }

    fn rms_norm(
        x: FloatTensor<Self>,
        weight: &WeightVector,
        eps: f32,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        (rms_norm::cube::rms_norm(x.clone(), weight, eps), x)
    }

    fn add_rms_norm(
        x: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        weight: &WeightVector,
        eps: f32,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        rms_norm::cube::add_rms_norm(x, residual, weight, eps)
    }

    fn rope(
        x: FloatTensor<Self>,
        positions: &[u32],
        head_dim: usize,
        table: &RotaryTable,
    ) -> FloatTensor<Self> {
        rope::cube::rope(x, positions, head_dim, table)
    }

    fn qk_norm_rope(
        qkv: FloatTensor<Self>,
        heads: &QkvHeads,
        positions: &[u32],
        table: &RotaryTable,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        qk_norm_rope::cube::qk_norm_rope(qkv, heads, positions, table)
    }

    fn swiglu(gate_up: FloatTensor<Self>) -> FloatTensor<Self> {
        swiglu::cube::swiglu(gate_up)
    }

    fn reshape_and_cache(
        k: FloatTensor<Self>,
        v: FloatTensor<Self>,
        layer: &mut KvLayer,
        slot_mapping: &[u32],
    ) -> usize {
        kv_cache::cube::reshape_and_cache(k, v, layer, slot_mapping)
    }

    fn paged_attention(
        q: FloatTensor<Self>,
        layer: &KvLayer,
        meta: &AttentionMetadata,
        params: &AttentionParams,
    ) -> FloatTensor<Self> {
        paged_attention::cube::paged_attention(q, layer, meta, params)
    }

    fn select_rows(x: FloatTensor<Self>, rows: &[u32]) -> FloatTensor<Self> {
        select_rows::cube::select_rows(x, rows)
    }
}
