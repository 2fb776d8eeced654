//! The one trait through which operations reach a backend. burn routes each call by the device of
//! its tensors. A backend implements the trait once, on its own tensor type.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, backend_extension};
#[cfg(feature = "gpu")]
use burn_cubecl::CubeBackend;
use burn_flex::Flex;

use crate::kv_cache::KvLayer;
use crate::linear::LinearWeight;
use crate::paged_attention::{AttentionMetadata, AttentionParams};
use crate::qk_norm_rope::QkvHeads;
use crate::rope::RotaryTable;
use crate::weight_vector::WeightVector;
use crate::{kv_cache, linear, paged_attention, qk_norm_rope, rms_norm, rope, select_rows, swiglu};

/// Declares each operation `module::name` once: in the trait, and for both backends. Their versions
/// are the functions `module::cpu::name` and `module::cube::name`. Types stand in parentheses,
/// because `backend_extension` reads them as they were written.
macro_rules! hot_ops {
    ($(
        $(#[$doc:meta])*
        $module:ident::$name:ident($($arg:ident: ($($type:tt)+)),+ $(,)?) -> ($($output:tt)+);
    )+) => {
        /// The operations that a backend provides. The public function of the same name documents
        /// each.
        #[backend_extension(Cube: cfg(feature = "gpu"), Flex)]
        pub(crate) trait HotOps: Backend {
            $($(#[$doc])* fn $name($($arg: $($type)+),+) -> $($output)+;)+
        }

        impl HotOps for Flex {
            $(fn $name($($arg: $($type)+),+) -> $($output)+ { $module::cpu::$name($($arg),+) })+
        }

        #[cfg(feature = "gpu")]
        impl HotOps for CubeBackend {
            $(fn $name($($arg: $($type)+),+) -> $($output)+ { $module::cube::$name($($arg),+) })+
        }
    };
}

hot_ops! {
    /// See [`linear::linear`].
    linear::linear(
        x: (FloatTensor<Self>),
        weight: (&LinearWeight),
        bias: (Option<&WeightVector>),
    ) -> (FloatTensor<Self>);
    /// See [`linear::linear_swiglu`].
    linear::linear_swiglu(x: (FloatTensor<Self>), weight: (&LinearWeight)) -> (FloatTensor<Self>);
    /// See [`rms_norm::rms_norm`]; returns x, too.
    rms_norm::rms_norm(
        x: (FloatTensor<Self>),
        weight: (&WeightVector),
        eps: (f32),
    ) -> ((FloatTensor<Self>, FloatTensor<Self>));
    /// See [`rms_norm::add_rms_norm`].
    rms_norm::add_rms_norm(
        x: (FloatTensor<Self>),
        residual: (FloatTensor<Self>),
        weight: (&WeightVector),
        eps: (f32),
    ) -> ((FloatTensor<Self>, FloatTensor<Self>));
    /// See [`rope::rope`].
    rope::rope(
        x: (FloatTensor<Self>),
        positions: (&[u32]),
        head_dim: (usize),
        table: (&RotaryTable),
    ) -> (FloatTensor<Self>);
    /// See [`qk_norm_rope::qk_norm_rope`].
    qk_norm_rope::qk_norm_rope(
        qkv: (FloatTensor<Self>),
        heads: (&QkvHeads),
        positions: (&[u32]),
        table: (&RotaryTable),
    ) -> ((FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>));
    /// See [`swiglu::swiglu`].
    swiglu::swiglu(gate_up: (FloatTensor<Self>)) -> (FloatTensor<Self>);
    /// See [`kv_cache::reshape_and_cache`]; returns the number of tokens written.
    kv_cache::reshape_and_cache(
        k: (FloatTensor<Self>),
        v: (FloatTensor<Self>),
        layer: (&mut KvLayer),
        slot_mapping: (&[u32]),
    ) -> (usize);
    /// See [`paged_attention::paged_attention`].
    paged_attention::paged_attention(
        q: (FloatTensor<Self>),
        layer: (&KvLayer),
        meta: (&AttentionMetadata),
        params: (&AttentionParams),
    ) -> (FloatTensor<Self>);
    /// See [`select_rows::select_rows`].
    select_rows::select_rows(x: (FloatTensor<Self>), rows: (&[u32])) -> (FloatTensor<Self>);
}
