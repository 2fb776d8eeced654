//! The one trait through which operations reach a backend. burn routes each call by the device of
//! its tensors; a backend implements the trait once, on its own tensor type.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, backend_extension};
use burn_flex::Flex;

use crate::kv_cache::KvLayer;
use crate::linear::LinearWeight;
use crate::paged_attention::{AttentionMetadata, AttentionParams};
use crate::qk_norm_rope::QkvHeads;
use crate::rope::RotaryTable;
use crate::weight_vector::WeightVector;
use crate::{kv_cache, linear, paged_attention, qk_norm_rope, rms_norm, rope, select_rows, swiglu};

/// The operations that a backend provides; the public function of the same name documents each.
#[backend_extension(Cube: cfg(feature = "gpu"), Flex)]
pub(crate) trait HotOps: Backend {
    /// See [`linear::linear`].
    fn linear(
        x: FloatTensor<Self>,
        weight: &LinearWeight,
        bias: Option<&WeightVector>,
    ) -> FloatTensor<Self>;
    /// See [`linear::linear_swiglu`].
    fn linear_swiglu(x: FloatTensor<Self>, weight: &LinearWeight) -> FloatTensor<Self>;
    /// See [`rms_norm::rms_norm`]; gives x back, too.
    fn rms_norm(
        x: FloatTensor<Self>,
        weight: &WeightVector,
        eps: f32,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);
    /// See [`rms_norm::add_rms_norm`].
    fn add_rms_norm(
        x: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        weight: &WeightVector,
        eps: f32,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);
    /// See [`rope::rope`].
    fn rope(
        x: FloatTensor<Self>,
        positions: &[u32],
        head_dim: usize,
        table: &RotaryTable,
    ) -> FloatTensor<Self>;
    /// See [`qk_norm_rope::qk_norm_rope`].
    fn qk_norm_rope(
        qkv: FloatTensor<Self>,
        heads: &QkvHeads,
        positions: &[u32],
        table: &RotaryTable,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);
    /// See [`swiglu::swiglu`].
    fn swiglu(gate_up: FloatTensor<Self>) -> FloatTensor<Self>;
    /// See [`kv_cache::reshape_and_cache`]; returns the number of tokens written.
    fn reshape_and_cache(
        k: FloatTensor<Self>,
        v: FloatTensor<Self>,
        layer: &mut KvLayer,
        slot_mapping: &[u32],
    ) -> usize;
    /// See [`paged_attention::paged_attention`].
    fn paged_attention(
        q: FloatTensor<Self>,
        layer: &KvLayer,
        meta: &AttentionMetadata,
        params: &AttentionParams,
    ) -> FloatTensor<Self>;
    /// See [`select_rows::select_rows`].
    fn select_rows(x: FloatTensor<Self>, rows: &[u32]) -> FloatTensor<Self>;
}

impl HotOps for Flex {
    fn linear(
        x: FloatTensor<Self>,
        weight: &LinearWeight,
        bias: Option<&WeightVector>,
    ) -> FloatTensor<Self> {
        linear::cpu::linear(x, weight, bias)
    }

    fn linear_swiglu(x: FloatTensor<Self>, weight: &LinearWeight) -> FloatTensor<Self> {
        linear::cpu::linear_swiglu(x, weight)
    }

    fn rms_norm(
        x: FloatTensor<Self>,
        weight: &WeightVector,
        eps: f32,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        rms_norm::cpu::rms_norm(x, weight, eps)
    }

    fn add_rms_norm(
        x: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        weight: &WeightVector,
        eps: f32,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        rms_norm::cpu::add_rms_norm(x, residual, weight, eps)
    }

    fn rope(
        x: FloatTensor<Self>,
        positions: &[u32],
        head_dim: usize,
        table: &RotaryTable,
    ) -> FloatTensor<Self> {
        rope::cpu::rope(x, positions, head_dim, table)
    }

    fn qk_norm_rope(
        qkv: FloatTensor<Self>,
        heads: &QkvHeads,
        positions: &[u32],
        table: &RotaryTable,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        qk_norm_rope::cpu::qk_norm_rope(qkv, heads, positions, table)
    }

    fn swiglu(gate_up: FloatTensor<Self>) -> FloatTensor<Self> {
        swiglu::cpu::swiglu(gate_up)
    }

    fn reshape_and_cache(
        k: FloatTensor<Self>,
        v: FloatTensor<Self>,
        layer: &mut KvLayer,
        slot_mapping: &[u32],
    ) -> usize {
        kv_cache::cpu::reshape_and_cache(k, v, layer, slot_mapping)
    }

    fn paged_attention(
        q: FloatTensor<Self>,
        layer: &KvLayer,
        meta: &AttentionMetadata,
        params: &AttentionParams,
    ) -> FloatTensor<Self> {
        paged_attention::cpu::paged_attention(q, layer, meta, params)
    }

    fn select_rows(x: FloatTensor<Self>, rows: &[u32]) -> FloatTensor<Self> {
        select_rows::cpu::select_rows(x, rows)
    }
}
