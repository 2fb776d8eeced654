//! Attention of long chunks on a device whose tensor cores multiply matrices of 16-bit numbers. The
//! kernel is cubek's. It needs each sequence's keys and values in one piece, so they are gathered
//! first. Gathering costs little compared with many queries.
//!
//! Queries, keys and values are rounded to float16. The cut of a prompt decides which of its tokens
//! are computed here, so a deterministic engine does not use this module.

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
use crate::cube::{Rows, WordFormat};
use crate::kv_cache::cube::CubeKv;
use crate::paged_attention::{AttentionMask, AttentionMetadata, AttentionParams};
use crate::{KvCacheShape, TensorCores};

/// Number of queries of a cube: 16 for each of its planes.
const TILE: usize = PLANES as usize * 16;
const PLANES: u8 = 4;

/// Smallest number of queries for which gathering saves time.
const QUERIES_MIN: usize = 128;

/// The part of a device that computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::paged_attention) enum Routine {
    /// Tensor cores.
    Accelerated,
    /// The same attention without them, for tests.
    #[cfg(test)]
    Unit,
}

impl Routine {
    /// Returns the routine that `params` ask for, if the device of `client` has it and cubek
    /// computes this attention.
    pub(super) fn of(client: &Client, kv: &CubeKv, params: &AttentionParams) -> Option<Self> {
        let is_asked = params.tensor_cores != TensorCores::Off && Self::computes(kv, params);
        (is_asked && multiplies_f16(client)).then_some(Self::Accelerated)
    }

    /// Returns whether cubek computes this attention: all keys up to the query, the usual scale,
    /// values as wide as keys, and nothing added to scores or their sum. Keys and values must not
    /// be more exact than float16.
    pub(in crate::paged_attention) fn computes(kv: &CubeKv, params: &AttentionParams) -> bool {
        let KvCacheShape { head_dim, value_head_dim, .. } = kv.shape;
        let AttentionParams { mask, soft_cap, alibi_slopes, distance_biases, sinks, .. } = params;
        let usual_scale = (head_dim as f32).sqrt().recip();
        let has_usual_scale = (params.scale / usual_scale - 1.0).abs() < 1e-5;
        let is_plain = *mask == AttentionMask::Full
            && soft_cap.is_none()
            && alibi_slopes.is_none()
            && distance_biases.is_none()
            && sinks.is_none();
        let is_coarse = kv.format != WordFormat::F32;
        let takes_width = head_dim == value_head_dim && head_dim.is_multiple_of(16);
        is_plain && is_coarse && has_usual_scale && takes_width
    }

    /// Returns all routines that the device of `client` has.
    #[cfg(test)]
    pub(in crate::paged_attention) fn all(client: &Client) -> Vec<Self> {
        let accelerated = multiplies_f16(client).then_some(Self::Accelerated);
        [Self::Unit].into_iter().chain(accelerated).collect()
    }

    /// Returns the number of queries of a launch. Each query reads the keys of all queries of its
    /// launch.
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

/// Returns whether a device multiplies float16 through the runtime's matrices, with sums in f32.
fn multiplies_f16(client: &Client) -> bool {
    let (half, f32) = (half::f16::elem_type_native(), f32::elem_type_native());
    let mut configs = client.properties().features.matmul.cmma.iter();
    configs.any(|config| config.a_type == half && config.b_type == half && config.cd_type == f32)
}

/// Computes attention of the last tokens of long chunks into `o`. Returns how many of each
/// sequence's tokens, from its first, are left to compute.
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
            // The chunk ends where the sequence ends, so a token is equally far from both ends.
            let seen = len - (end - first - stripe.queries);
            stripe.launch(q, kv, &gathered, seen, params.num_heads, o, routine).is_ok()
        });
        if is_done { count - taken } else { count }
    };
    (0..meta.num_seqs()).map(left_of).collect()
}

/// Neighbouring queries of a sequence.
struct Stripe {
    /// Row of the first query.
    first: usize,
    queries: usize,
    /// Number of tokens whose keys and values were gathered.
    len: usize,
}

impl Stripe {
    /// Computes attention of these queries to the first `seen` tokens. The last of those tokens
    /// belongs to the last query.
    ///
    /// # Errors
    /// If the routine does not support the device or this shape.
    #[expect(clippy::too_many_arguments, reason = "the arguments of a kernel")]
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
        // Heads of a group share their keys, which a stride of zero expresses.
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
    // SAFETY: the handle was made for at least this many rows.
    unsafe { TensorBinding::from_raw_parts(handle, Strides::new(&strides), Shape::new(shape)) }
}
