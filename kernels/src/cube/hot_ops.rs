//! The operations on CubeCL's backend.

use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;

use crate::hot_ops::HotOps;
use crate::kv_cache::KvLayer;
use crate::linear::LinearWeight;
use crate::paged_attention::{AttentionMetadata, AttentionParams};
use crate::rope::RotaryTable;
use crate::{kv_cache, linear, paged_attention, rms_norm, rope, select_rows, swiglu};

impl HotOps for CubeBackend {
    fn linear(x: FloatTensor<Self>, weight: &LinearWeight) -> FloatTensor<Self> {
        linear::cube::linear(x, weight, None)
    }

    fn linear_bias(
        x: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        weight: &LinearWeight,
    ) -> FloatTensor<Self> {
        linear::cube::linear(x, weight, Some(bias))
    }

    fn linear_swiglu(x: FloatTensor<Self>, weight: &LinearWeight) -> FloatTensor<Self> {
        linear::cube::linear_swiglu(x, weight)
    }

    fn rms_norm(x: FloatTensor<Self>, weight: FloatTensor<Self>, eps: f32) -> FloatTensor<Self> {
        rms_norm::cube::rms_norm(x, weight, eps)
    }

    fn add_rms_norm(
        x: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        weight: FloatTensor<Self>,
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
