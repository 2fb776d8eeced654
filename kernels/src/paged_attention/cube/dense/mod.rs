//! Attention of long chunks on a device whose tensor cores multiply matrices of 16-bit numbers. The
//! kernel is cubek's. It needs each sequence's keys and values in one piece, so they are gathered
//! first. Gathering costs little compared with many queries. Queries are rounded before the launch,
//! because cubek takes queries and keys of one format. A device is tried before it is used
//! ([`trial`]).
//!
//! Queries, keys and values are rounded to float16. The cut of a prompt decides which of its tokens
//! are computed here, so a deterministic engine does not use this module.

mod trial;

use std::ops::Range;

use burn_cubecl::tensor::CubeTensor;
use cubecl::client::Client;
use cubecl::ir::ElemType;
use cubecl::prelude::*;
use cubecl::server::Handle;
use cubecl::zspace::{Shape, Strides};
use cubek::attention::forward::definition::{
    AttentionBlueprint, AttentionDims, AttentionGlobalTypes, AttentionOptions,
    AttentionPartitionSize, AttentionSetupError, AttentionStageSize, AttentionTileSize,
    AttentionTilingScheme, AttentionVectorSizes, HypercubeBlueprint,
};
use cubek::attention::forward::launch::{BlueprintStrategy, Strategy, launch_ref};
use cubek::std::cube_count::CubeCountStrategy;

use super::gather::{Gathered, gather};
use crate::cube::{Rows, WordFormat};
use crate::kv_cache::cube::CubeKv;
use crate::linear::cube::rounded;
use crate::paged_attention::{AttentionMask, AttentionMetadata, AttentionParams};
use crate::{KvCacheShape, TensorCores};

/// Side of the matrices that a plane multiplies.
const SIDE: u32 = 16;

/// Planes of a cube.
const PLANES: u32 = 4;

/// Number of queries of a cube.
const TILE: usize = (PLANES * SIDE) as usize;

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
    /// Returns the routine that `params` ask for, if there are long chunks and the device of `q`
    /// has it. cubek must compute this attention, and a trial must have been right.
    pub(super) fn of(
        q: &Rows,
        kv: &CubeKv,
        meta: &AttentionMetadata,
        params: &AttentionParams,
    ) -> Option<Self> {
        let is_asked = params.tensor_cores != TensorCores::Off && Self::computes(kv, params);
        let is_long = |seq| meta.tokens_of(seq).len() >= QUERIES_MIN;
        let is_used = is_asked && (0..meta.num_seqs()).any(is_long) && multiplies_f16(q.client());
        let routine = Self::Accelerated;
        (is_used && trial::passes(routine, q.device(), kv.shape.head_dim)).then_some(routine)
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

    /// Returns the queries of some tokens. Tensor cores multiply queries and keys of one format,
    /// and cubek does not convert them.
    fn queries(self, q: &Rows, tokens: Range<usize>) -> Queries {
        match self {
            Self::Accelerated => Queries {
                first: tokens.start,
                handle: rounded(q, tokens, WordFormat::F16),
                elem: half::f16::elem_type_native(),
                stride: q.cols,
            },
            #[cfg(test)]
            Self::Unit => Queries {
                first: 0,
                handle: q.tensor().handle.clone(),
                elem: f32::elem_type_native(),
                stride: q.stride() * q.lanes,
            },
        }
    }

    /// Returns the strategy for a launch. The one that cubek infers has other tiles where there
    /// are four times as many keys as queries, and cubek refuses those.
    fn strategy(
        self,
        client: &Client,
        dims: &AttentionDims,
        types: &AttentionGlobalTypes,
    ) -> Strategy {
        match self {
            Self::Accelerated => {
                let tile_size =
                    AttentionTileSize { seq_q: SIDE, head_dim: SIDE, seq_kv: SIDE, val_dim: SIDE };
                let (head_dim, val_dim) = (dims.head_dim as u32, dims.val_dim as u32);
                let partition_size = AttentionPartitionSize {
                    seq_q: 1,
                    head_dim: head_dim / SIDE,
                    seq_kv: 1,
                    val_dim: val_dim / SIDE,
                };
                let stage_size = AttentionStageSize { seq_q: PLANES };
                let tiling_scheme = AttentionTilingScheme { tile_size, partition_size, stage_size };
                let cubes = HypercubeBlueprint::builder();
                Strategy::BlackboxAccelerated(BlueprintStrategy::Forced(AttentionBlueprint {
                    hypercube_blueprint: cubes
                        .cube_count_strategy(CubeCountStrategy::Spread)
                        .build(),
                    check_bounds: tiling_scheme.check_bounds(dims),
                    tiling_scheme,
                    plane_dim: client.properties().hardware.plane_size_max,
                    two_rows_in_array_tile: false,
                    vector_sizes: AttentionVectorSizes::new_max(client, types),
                    masked: false,
                    causal: true,
                }))
            }
            #[cfg(test)]
            Self::Unit => Strategy::Unit(BlueprintStrategy::Inferred(())),
        }
    }
}

/// Queries as a routine reads them.
struct Queries {
    handle: Handle,
    elem: ElemType,
    /// The token of the first row in `handle`.
    first: usize,
    /// Elements from one query to the next.
    stride: usize,
}

/// Returns whether a device multiplies float16 through the runtime's matrices, with sums in f32.
fn multiplies_f16(client: &Client) -> bool {
    let (half, f32) = (half::f16::elem_type_native(), f32::elem_type_native());
    let mut configs = client.properties().features.matmul.cmma.iter();
    configs.any(|config| {
        let types = (config.a_type, config.b_type, config.cd_type);
        types == (half, half, f32) && (config.m, config.n, config.k) == (SIDE, SIDE, SIDE)
    })
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
        let queries = routine.queries(q, end - taken..end);
        let KvCacheShape { num_kv_heads, head_dim, .. } = kv.shape;
        let group = params.num_heads / num_kv_heads;
        let heads = Heads { kv: num_kv_heads, group, dim: head_dim };
        let stripes = (end - taken..end).step_by(routine.stripe());
        let is_done = stripes.into_iter().all(|first| {
            let stripe = Stripe { first, queries: routine.stripe().min(end - first), len };
            // The chunk ends where the sequence ends, so a token is equally far from both ends.
            let seen = len - (end - first - stripe.queries);
            let o = &o.handle;
            stripe.launch(q.client(), &queries, &gathered, seen, heads, o, routine).is_ok()
        });
        if is_done { count - taken } else { count }
    };
    (0..meta.num_seqs()).map(left_of).collect()
}

/// The heads of a layer.
#[derive(Clone, Copy)]
struct Heads {
    /// Number of key-value heads.
    kv: usize,
    /// Number of heads of queries that share a key-value head.
    group: usize,
    /// Width of a head.
    dim: usize,
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
        client: &Client,
        q: &Queries,
        gathered: &Gathered,
        seen: usize,
        heads: Heads,
        o: &Handle,
        routine: Routine,
    ) -> Result<(), Box<AttentionSetupError>> {
        let Heads { kv: kv_heads, group, dim: head_dim } = heads;
        // Heads of a group share their keys, which a stride of zero expresses.
        let of_queries = |handle: &Handle, row: usize, stride: usize, elem: ElemType| {
            let handle = handle.clone().offset_start((row * stride * elem.size()) as u64);
            let strides = [group * head_dim, head_dim, stride, 1];
            binding(handle, [kv_heads, group, self.queries, head_dim], strides)
        };
        let of_keys = |handle: &Handle| {
            let strides = [self.len * head_dim, 0, head_dim, 1];
            binding(handle.clone(), [kv_heads, group, seen, head_dim], strides)
        };
        let (f32, f16) = (f32::elem_type_native(), half::f16::elem_type_native());
        let mask = AttentionGlobalTypes::mask_dtype(client);
        let types = AttentionGlobalTypes { query: q.elem, key: f16, value: f16, mask, out: f32 };
        let dims = AttentionDims {
            batch: kv_heads,
            num_heads: group,
            seq_q: self.queries,
            seq_kv: seen,
            head_dim,
            val_dim: head_dim,
        };
        let launched = launch_ref(
            routine.strategy(client, &dims, &types),
            client,
            of_queries(&q.handle, self.first - q.first, q.stride, q.elem),
            of_keys(&gathered.keys),
            of_keys(&gathered.values),
            None,
            of_queries(o, self.first, kv_heads * group * head_dim, f32),
            &types,
            AttentionOptions { causal: true, ..AttentionOptions::default() },
        );
        launched.map_err(Box::new)
    }
}

fn binding(handle: Handle, shape: [usize; 4], strides: [usize; 4]) -> TensorBinding {
    // SAFETY: the handle was made for at least this many rows.
    unsafe { TensorBinding::from_raw_parts(handle, Strides::new(&strides), Shape::new(shape)) }
}
