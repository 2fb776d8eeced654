//! Long chunks on a device that multiplies matrices of 16-bit numbers itself, by its tensor cores. The
//! attention is cubek's, over a sequence's keys and values in one piece: they are gathered for it, which
//! is little beside what many queries cost.
//!
//! Queries, keys and values are rounded to float16, and which tokens come here follows from how a
//! prompt is cut: a deterministic engine does not.

use burn_cubecl::tensor::CubeTensor;
use cubecl::client::Client;
use cubecl::prelude::*;
use cubecl::server::Handle;
use cubecl::zspace::{Shape, Strides};
use cubek::attention::forward::definition::{
    AttentionGlobalTypes, AttentionOptions, AttentionSetupError,
};
use cubek::attention::forward::launch::{BlueprintStrategy, Strategy, launch_ref};
use cubek::attention::forward::routines::blackbox_accelerated::BlackboxAcceleratedStrategy;

use super::gather::{Gathered, gather};
use crate::TensorCores;
use crate::cube::{Rows, WordFormat};
use crate::kv_cache::cube::CubeKv;
use crate::paged_attention::{AttentionMetadata, AttentionParams};

/// Queries of a cube: 16 for each of its planes.
const TILE: usize = PLANES as usize * 16;
const PLANES: u8 = 4;

/// With fewer queries, gathering does not pay.
const QUERIES_MIN: usize = 128;

/// What computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::paged_attention) enum Routine {
    /// Tensor cores.
    Accelerated,
    /// The same attention without them, for tests.
    #[cfg(test)]
    Unit,
}

impl Routine {
    /// What `params` ask for, if the device of `client` has it and it computes that.
    pub(super) fn of(client: &Client, kv: &CubeKv, params: &AttentionParams) -> Option<Self> {
        let is_asked = params.tensor_cores != TensorCores::Off && computes(kv, params);
        (is_asked && multiplies_f16(client)).then_some(Self::Accelerated)
    }

    /// All that the device of `client` has.
    #[cfg(test)]
    pub(in crate::paged_attention) fn all(client: &Client) -> Vec<Self> {
        let accelerated = multiplies_f16(client).then_some(Self::Accelerated);
        [Self::Unit].into_iter().chain(accelerated).collect()
    }

    /// Queries of a launch, each of which goes over the keys of all of them.
    const fn stripe(self) -> usize {
        match self {
            Self::Accelerated => 16 * TILE,
            #[cfg(test)]
            Self::Unit => 2 * TILE,
        }
    }

    fn strategy(self) -> Strategy {
        match self {
            Self::Accelerated => {
                let sizes = BlackboxAcceleratedStrategy { num_planes: PLANES, seq_q: 1, seq_kv: 1 };
                Strategy::BlackboxAccelerated(BlueprintStrategy::Inferred(sizes))
            }
            #[cfg(test)]
            Self::Unit => Strategy::Unit(BlueprintStrategy::Inferred(())),
        }
    }
}

/// Whether it is the attention that cubek has, no window, no soft cap, the usual scale, and of keys and
/// values that are no more exact than float16 is.
pub(super) fn computes(kv: &CubeKv, params: &AttentionParams) -> bool {
    let usual_scale = (kv.shape.head_dim as f32).sqrt().recip();
    let has_usual_scale = (params.scale / usual_scale - 1.0).abs() < 1e-5;
    let is_plain = params.sliding_window.is_none() && params.soft_cap.is_none();
    let is_coarse = kv.format != WordFormat::F32;
    is_plain && is_coarse && has_usual_scale && kv.shape.head_dim.is_multiple_of(16)
}

/// Whether a device multiplies float16 through the runtime's matrices, with sums in f32.
fn multiplies_f16(client: &Client) -> bool {
    let (half, f32) = (half::f16::elem_type_native(), f32::elem_type_native());
    let mut configs = client.properties().features.matmul.cmma.iter();
    configs.any(|config| config.a_type == half && config.b_type == half && config.cd_type == f32)
}

/// Attention of the last tokens of long chunks into `o`; how many of each sequence's tokens are left,
/// from its first.
pub(super) fn launch(
    q: &Rows,
    kv: &CubeKv,
    meta: &AttentionMetadata,
    params: &AttentionParams,
    o: &CubeTensor,
    routine: Routine,
) -> Vec<usize> {
    let left_of = |seq: usize| {
        let tokens = meta.tokens_of(seq);
        let (count, end) = (tokens.len(), tokens.end);
        let taken = count / TILE * TILE;
        if count < QUERIES_MIN {
            return count;
        }
        let len = meta.seq_lens[seq] as usize;
        let gathered = gather(q.client(), kv, &meta.block_tables[seq], len);
        let stripes = (end - taken..end).step_by(routine.stripe());
        let is_done = stripes.into_iter().all(|first| {
            let stripe = Stripe { first, queries: routine.stripe().min(end - first), len };
            // A token of this chunk stands as far from the sequence's end as from the chunk's.
            let seen = len - (end - first - stripe.queries);
            stripe.launch(q, kv, &gathered, seen, params.num_heads, o, routine).is_ok()
        });
        if is_done { count - taken } else { count }
    };
    (0..meta.num_seqs()).map(left_of).collect()
}

/// Neighbouring queries of a sequence.
struct Stripe {
    /// The first one's row.
    first: usize,
    queries: usize,
    /// Tokens whose keys and values were gathered.
    len: usize,
}

impl Stripe {
    /// Attention of these queries to the first `seen` tokens, the last of which is the last query's own.
    ///
    /// # Errors
    /// The device, or this shape, does not suit the routine.
    #[expect(clippy::too_many_arguments, reason = "a kernel's")]
    fn launch(
        &self,
        q: &Rows,
        kv: &CubeKv,
        gathered: &Gathered,
        seen: usize,
        num_heads: usize,
        o: &CubeTensor,
        routine: Routine,
    ) -> Result<(), Box<AttentionSetupError>> {
        let (kv_heads, head_dim) = (kv.shape.num_kv_heads, kv.shape.head_dim);
        let group = num_heads / kv_heads;
        // Heads of a group share their keys: a stride of zero.
        let of_queries = |handle: &Handle, stride: usize| {
            let handle =
                handle.clone().offset_start((self.first * stride * size_of::<f32>()) as u64);
            let strides = [group * head_dim, head_dim, stride, 1];
            binding(handle, [kv_heads, group, self.queries, head_dim], strides)
        };
        let of_keys = |handle: &Handle| {
            let strides = [self.len * head_dim, 0, head_dim, 1];
            binding(handle.clone(), [kv_heads, group, seen, head_dim], strides)
        };
        let (f32, f16) = (f32::elem_type_native(), half::f16::elem_type_native());
        let mask = AttentionGlobalTypes::mask_dtype(q.client());
        let launched = launch_ref(
            routine.strategy(),
            q.client(),
            of_queries(&q.tensor().handle, q.stride() * q.lanes),
            of_keys(&gathered.keys),
            of_keys(&gathered.values),
            None,
            of_queries(&o.handle, num_heads * head_dim),
            &AttentionGlobalTypes { query: f32, key: f16, value: f16, mask, out: f32 },
            AttentionOptions { causal: true, ..AttentionOptions::default() },
        );
        launched.map_err(Box::new)
    }
}

fn binding(handle: Handle, shape: [usize; 4], strides: [usize; 4]) -> TensorBinding {
    // SAFETY: the last row of the shape is within what the handle was made for.
    unsafe { TensorBinding::from_raw_parts(handle, Strides::new(&strides), Shape::new(shape)) }
}
