//! The one trait through which operations reach a backend. burn routes each call by the device of
//! its tensors. A backend implements the trait once, on its own tensor type.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, backend_extension};
#[cfg(feature = "gpu")]
use burn_cubecl::CubeBackend;
use burn_flex::Flex;

use crate::activation::Activation;
use crate::causal_conv::CausalConv;
use crate::elementwise::ElementMap;
use crate::experts::{ExpertSegment, Experts};
use crate::gated_norm::GatedNorm;
use crate::kv_cache::KvLayer;
use crate::latent::{LatentNorm, LatentProjections};
use crate::linear::LinearWeight;
use crate::linear_attention::{GatedDeltaRule, KimiDeltaRule, LightningAttention};
use crate::lora::LoraSegment;
use crate::paged_attention::{AttentionMetadata, AttentionParams};
use crate::qk_norm_rope::QkvHeads;
use crate::rg_lru::RgLru;
use crate::rope::RotaryTable;
use crate::router::{Router, Routing};
use crate::selective_scan::SelectiveScan;
use crate::ssd::Ssd;
use crate::weight_vector::WeightVector;
use crate::{
    activation, causal_conv, cross_attention, elementwise, encoder_attention, experts, gated_norm,
    kv_cache, latent, layer_norm, linear, linear_attention, lora, paged_attention, qk_norm_rope,
    rg_lru, rms_norm, rope, router, select_rows, selective_scan, ssd,
};

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
    /// See [`linear::linear_activated`].
    linear::linear_activated(
        x: (FloatTensor<Self>),
        weight: (&LinearWeight),
        bias: (Option<&WeightVector>),
        activation: (Activation),
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
    /// See [`layer_norm::layer_norm`]; returns x, too.
    layer_norm::layer_norm(
        x: (FloatTensor<Self>),
        weight: (Option<&WeightVector>),
        bias: (Option<&WeightVector>),
        eps: (f32),
    ) -> ((FloatTensor<Self>, FloatTensor<Self>));
    /// See [`layer_norm::add_layer_norm`].
    layer_norm::add_layer_norm(
        x: (FloatTensor<Self>),
        residual: (FloatTensor<Self>),
        weight: (Option<&WeightVector>),
        bias: (Option<&WeightVector>),
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
        table: (Option<&RotaryTable>),
    ) -> ((FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>));
    /// See [`qk_norm_rope::qk_norm_rope_and_cache`].
    qk_norm_rope::qk_norm_rope_and_cache(
        qkv: (FloatTensor<Self>),
        heads: (&QkvHeads),
        positions: (&[u32]),
        table: (Option<&RotaryTable>),
        layer: (&mut KvLayer),
        slot_mapping: (&[u32]),
    ) -> (FloatTensor<Self>);
    /// See [`activation::activate`].
    activation::activate(
        x: (FloatTensor<Self>),
        activation: (Activation),
    ) -> (FloatTensor<Self>);
    /// See [`activation::gated`].
    activation::gated(
        gate_up: (FloatTensor<Self>),
        activation: (Activation),
    ) -> (FloatTensor<Self>);
    /// See [`elementwise`].
    elementwise::map_elements(x: (FloatTensor<Self>), map: (ElementMap)) -> (FloatTensor<Self>);
    /// See [`elementwise::add_scaled`].
    elementwise::add_scaled(
        x: (FloatTensor<Self>),
        y: (FloatTensor<Self>),
        factor: (f32),
    ) -> (FloatTensor<Self>);
    /// See [`elementwise::scale_rows`].
    elementwise::scale_rows(x: (FloatTensor<Self>), factors: (&[f32])) -> (FloatTensor<Self>);
    /// See [`elementwise::gate_rows`].
    elementwise::gate_rows(
        x: (FloatTensor<Self>),
        gate: (FloatTensor<Self>),
    ) -> (FloatTensor<Self>);
    /// See [`kv_cache::reshape_and_cache`]; returns the number of tokens written.
    kv_cache::reshape_and_cache(
        k: (FloatTensor<Self>),
        v: (FloatTensor<Self>),
        layer: (&mut KvLayer),
        slot_mapping: (&[u32]),
    ) -> (usize);
    /// See [`kv_cache::cache_keys`]; returns the number of tokens written.
    kv_cache::cache_keys(
        k: (FloatTensor<Self>),
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
    /// See [`encoder_attention::encoder_attention`].
    encoder_attention::encoder_attention(
        q: (FloatTensor<Self>),
        k: (FloatTensor<Self>),
        v: (FloatTensor<Self>),
        num_kv_heads: (usize),
        meta: (&AttentionMetadata),
        params: (&AttentionParams),
    ) -> (FloatTensor<Self>);
    /// See [`encoder_attention::encoder_self_attention`].
    encoder_attention::encoder_self_attention(
        qkv: (FloatTensor<Self>),
        heads: (&QkvHeads),
        positions: (&[u32]),
        table: (Option<&RotaryTable>),
        meta: (&AttentionMetadata),
        params: (&AttentionParams),
    ) -> (FloatTensor<Self>);
    /// See [`cross_attention::cross_attention`].
    cross_attention::cross_attention(
        q: (FloatTensor<Self>),
        k: (FloatTensor<Self>),
        v: (FloatTensor<Self>),
        num_kv_heads: (usize),
        params: (&AttentionParams),
    ) -> (FloatTensor<Self>);
    /// See [`latent::latent_queries`].
    latent::latent_queries(
        q: (FloatTensor<Self>),
        projections: (&LatentProjections),
        positions: (&[u32]),
        table: (&RotaryTable),
    ) -> (FloatTensor<Self>);
    /// See [`latent::latent_keys`].
    latent::latent_keys(
        kv: (FloatTensor<Self>),
        norm: (&LatentNorm),
        positions: (&[u32]),
        table: (&RotaryTable),
    ) -> (FloatTensor<Self>);
    /// See [`latent::latent_values`].
    latent::latent_values(
        latents: (FloatTensor<Self>),
        projections: (&LatentProjections),
    ) -> (FloatTensor<Self>);
    /// See [`causal_conv::causal_conv`].
    causal_conv::causal_conv(
        x: (FloatTensor<Self>),
        column: (usize),
        conv: (&CausalConv),
        layer: (&mut KvLayer),
        meta: (&AttentionMetadata),
    ) -> (FloatTensor<Self>);
    /// See [`ssd::ssd`].
    ssd::ssd(
        xbc: (FloatTensor<Self>),
        dt: (FloatTensor<Self>),
        column: (usize),
        model: (&Ssd),
        layer: (&mut KvLayer),
        meta: (&AttentionMetadata),
    ) -> (FloatTensor<Self>);
    /// See [`selective_scan::selective_scan`].
    selective_scan::selective_scan(
        x: (FloatTensor<Self>),
        dt: (FloatTensor<Self>),
        b: (FloatTensor<Self>),
        c: (FloatTensor<Self>),
        scan: (&SelectiveScan),
        layer: (&mut KvLayer),
        meta: (&AttentionMetadata),
    ) -> (FloatTensor<Self>);
    /// See [`rg_lru::rg_lru`].
    rg_lru::rg_lru(
        x: (FloatTensor<Self>),
        gates: (FloatTensor<Self>),
        unit: (&RgLru),
        layer: (&mut KvLayer),
        meta: (&AttentionMetadata),
    ) -> (FloatTensor<Self>);
    /// See [`gated_norm::gated_norm`].
    gated_norm::gated_norm(
        x: (FloatTensor<Self>),
        gate: (FloatTensor<Self>),
        column: (usize),
        norm: (&GatedNorm),
    ) -> (FloatTensor<Self>);
    /// See [`select_rows::select_rows`].
    select_rows::select_rows(x: (FloatTensor<Self>), rows: (&[u32])) -> (FloatTensor<Self>);
    /// See [`lora::add_lora`].
    lora::add_lora(
        y: (FloatTensor<Self>),
        x: (FloatTensor<Self>),
        segments: (&[LoraSegment<'_>]),
    ) -> (FloatTensor<Self>);
    /// See [`lora::set_rows`].
    lora::set_rows(
        y: (FloatTensor<Self>),
        x: (FloatTensor<Self>),
        rows: (&[u32]),
    ) -> (FloatTensor<Self>);
    /// See [`router::route`].
    router::route(logits: (FloatTensor<Self>), router: (&Router)) -> (Routing);
    /// See [`experts::experts`].
    experts::experts(
        x: (FloatTensor<Self>),
        routing: (&Routing),
        experts: (&Experts),
    ) -> (FloatTensor<Self>);
    /// See [`experts::experts_with_lora`].
    experts::experts_with_lora(
        x: (FloatTensor<Self>),
        routing: (&Routing),
        experts: (&Experts),
        segments: (&[ExpertSegment<'_>]),
    ) -> (FloatTensor<Self>);
    /// See [`linear_attention::gated_delta_rule`].
    linear_attention::gated_delta_rule(
        qkv: (FloatTensor<Self>),
        gates: (FloatTensor<Self>),
        rule: (&GatedDeltaRule),
        layer: (&mut KvLayer),
        meta: (&AttentionMetadata),
    ) -> (FloatTensor<Self>);
    /// See [`linear_attention::kimi_delta_rule`].
    linear_attention::kimi_delta_rule(
        qkv: (FloatTensor<Self>),
        gates: (FloatTensor<Self>),
        b: (FloatTensor<Self>),
        rule: (&KimiDeltaRule),
        layer: (&mut KvLayer),
        meta: (&AttentionMetadata),
    ) -> (FloatTensor<Self>);
    /// See [`linear_attention::lightning_attention`].
    linear_attention::lightning_attention(
        qkv: (FloatTensor<Self>),
        attention: (&LightningAttention),
        layer: (&mut KvLayer),
        meta: (&AttentionMetadata),
    ) -> (FloatTensor<Self>);
}
