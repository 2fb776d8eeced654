//! Kimi's delta rule: each row of a state has a decay of its own
//! (<https://arxiv.org/abs/2510.26692>). [`super::kimi_delta_rule`] has the formula.

use std::ops::Range;

use burn::tensor::Device;

use super::LinearHeads;
use super::prepare::normalize;
use super::recurrence::advance;
use super::shape::Tile;
use crate::KernelError;
use crate::device::Place;
use crate::kv_cache::KvLayer;
use crate::paged_attention::AttentionMetadata;
use crate::simd::{Isa, Kernel, LANES, Map, Simd, exp, map_in_place, softplus};
use crate::states::{Recurrence, advance_states};
use crate::threads::{SharedMut, for_each_rows};

const WHAT: &str = "Kimi's delta rule";

/// The decay of a row of a state, by its gate x.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum KimiDecay {
    /// `exp(−exp(A_log) · softplus(x))`.
    Softplus,
    /// `exp(bound · σ(exp(A_log) · x))`, with a bound below 0.
    Bounded(f32),
}

/// The heads and the weights of Kimi's delta rule.
#[derive(Debug)]
pub struct KimiDeltaRule {
    heads: LinearHeads,
    /// `exp(A_log)` of each head: `[num_heads]`.
    rates: Vec<f32>,
    /// The addends of gates: `[num_heads · key_dim]`.
    dt_bias: Vec<f32>,
    decay: KimiDecay,
    /// The place of the heads' states in the state of the layer.
    state_at: usize,
}

impl KimiDeltaRule {
    /// Returns a rule with the weights `a_log`, `[num_heads]`, and `dt_bias`,
    /// `[num_heads · key_dim]`. The states of its heads begin at the number `state_at` of the
    /// layer's state.
    ///
    /// # Errors
    /// Heads that do not fit together, weights of other lengths, or a device that is no CPU.
    pub fn new(
        heads: LinearHeads,
        a_log: &[f32],
        dt_bias: Vec<f32>,
        decay: KimiDecay,
        state_at: usize,
        device: &Device,
    ) -> Result<Self, KernelError> {
        heads.check()?;
        let LinearHeads { num_heads, key_dim, .. } = heads;
        KernelError::require_len(WHAT, "A_log", a_log.len(), num_heads)?;
        KernelError::require_len(WHAT, "dt_bias", dt_bias.len(), num_heads * key_dim)?;
        match Place::of(device, WHAT)? {
            Place::Cpu => {}
            #[cfg(feature = "gpu")]
            Place::Cube(device) => return Err(KernelError::cpu_only(WHAT, &device)),
        }
        let rates = a_log.iter().map(|a_log| a_log.exp()).collect();
        Ok(Self { heads, rates, dt_bias, decay, state_at })
    }

    pub(super) fn heads(&self) -> LinearHeads {
        self.heads
    }

    /// Returns `exp(A_log)` of a head, and the addend of the gate of a row.
    #[cfg(test)]
    pub(super) fn weights(&self, head: usize, row: usize) -> [f64; 2] {
        let bias = self.dt_bias[head * self.heads.key_dim + row];
        [f64::from(self.rates[head]), f64::from(bias)]
    }

    #[cfg(test)]
    pub(super) fn decay(&self) -> KimiDecay {
        self.decay
    }
}

/// The inputs of all tokens and heads.
pub(super) struct KimiTokens<'a> {
    /// `[num_tokens, heads.inputs()]`.
    pub(super) qkv: &'a mut [f32],
    /// Gates of the rows of states: `[num_tokens, num_heads · key_dim]`.
    pub(super) gates: &'a mut [f32],
    /// `[num_tokens, num_heads]`: b.
    pub(super) b: &'a [f32],
}

/// Takes the states over the tokens, into y. Normalises the queries and keys in place, and replaces
/// gates by decays.
pub(super) fn kimi(
    isa: Isa,
    rule: &KimiDeltaRule,
    tokens: KimiTokens<'_>,
    layer: &mut KvLayer,
    meta: &AttentionMetadata,
    y: &mut [f32],
) {
    let KimiTokens { qkv, gates, b } = tokens;
    let heads = rule.heads;
    normalize(isa, qkv, heads);
    for_each_rows(gates, rule.dt_bias.len(), |_, rows| isa.run(DecayRows { rule, rows }));
    let work = 2 * y.len() * heads.key_dim;
    let inputs = Inputs { heads, qkv, decays: gates, b };
    let over_tokens = OverTokens { isa, inputs, state_at: rule.state_at, y: SharedMut::new(y) };
    advance_states(layer, meta, work, &over_tokens);
}

/// The task of computing the decays of some tokens.
struct DecayRows<'a> {
    rule: &'a KimiDeltaRule,
    rows: &'a mut [f32],
}

impl Kernel for DecayRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { rule, rows } = self;
        for row in rows.chunks_exact_mut(rule.dt_bias.len()) {
            for (x, bias) in row.iter_mut().zip(&rule.dt_bias) {
                *x += bias;
            }
            for (gates, rate) in row.chunks_exact_mut(rule.heads.key_dim).zip(&rule.rates) {
                map_in_place(s, gates, Decay { rate: *rate, decay: rule.decay });
            }
        }
    }
}

/// The map from the gates of a head to decays.
#[derive(Clone, Copy)]
struct Decay {
    rate: f32,
    decay: KimiDecay,
}

impl Map for Decay {
    #[inline(always)]
    fn map<S: Simd>(self, s: S, x: S::V) -> S::V {
        let minus_rate = s.splat(-self.rate);
        match self.decay {
            KimiDecay::Softplus => exp(s, s.mul(softplus(s, x), minus_rate)),
            KimiDecay::Bounded(bound) => {
                let divisor = s.add(exp(s, s.mul(x, minus_rate)), s.splat(1.0));
                exp(s, s.div(s.splat(bound), divisor))
            }
        }
    }
}

#[derive(Clone, Copy)]
struct Inputs<'a> {
    heads: LinearHeads,
    qkv: &'a [f32],
    decays: &'a [f32],
    b: &'a [f32],
}

struct OverTokens<'a> {
    isa: Isa,
    inputs: Inputs<'a>,
    state_at: usize,
    /// `[num_tokens, num_heads · value_dim]`.
    y: SharedMut<'a, f32>,
}

impl Recurrence for OverTokens<'_> {
    fn num_parts(&self) -> usize {
        self.inputs.heads.num_tiles()
    }

    fn part(&self, part: usize) -> Range<usize> {
        let heads = self.inputs.heads;
        let Range { start, end } = heads.place(&heads.tile(part));
        self.state_at + start..self.state_at + end
    }

    fn advance(&self, part: usize, state: &mut [f32], rows: Range<usize>) {
        let Self { inputs, ref y, .. } = *self;
        let tile = inputs.heads.tile(part);
        self.isa.run(TileTask { inputs, tokens: rows, tile, state, y });
    }
}

/// The task of computing some tokens of one sequence for a tile of columns of one head.
struct TileTask<'a> {
    inputs: Inputs<'a>,
    tokens: Range<usize>,
    tile: Tile,
    /// The tile's part of the state, `[key_dim, tile's columns]`.
    state: &'a mut [f32],
    /// `[num_tokens, num_heads · value_dim]`.
    y: &'a SharedMut<'a, f32>,
}

impl Kernel for TileTask<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match self.tile.vectors {
            1 => self.tokens::<S, 1>(s),
            2 => self.tokens::<S, 2>(s),
            3 => self.tokens::<S, 3>(s),
            _ => self.tokens::<S, 4>(s),
        }
    }
}

impl TileTask<'_> {
    #[inline(always)]
    fn tokens<S: Simd, const N: usize>(self, s: S) {
        let Self { inputs, tile, .. } = self;
        let heads = inputs.heads;
        let (rows, _) = self.state.as_chunks_mut::<LANES>().0.as_chunks_mut::<N>();
        for token in self.tokens {
            let [q, k, v] = heads.rows_of(inputs.qkv, token, &tile);
            let mut padded = [[0.0; LANES]; N];
            padded.as_flattened_mut()[..v.len()].copy_from_slice(v);
            let mut values = [s.splat(0.0); N];
            for (value, v) in values.iter_mut().zip(&padded) {
                *value = s.load(v);
            }
            let place = token * heads.num_heads + tile.head;
            let decays = &inputs.decays[place * heads.key_dim..][..heads.key_dim];
            let beta = 1.0 / (1.0 + (-inputs.b[place]).exp());
            let read = forget(s, rows, decays, k);
            for (value, read) in values.iter_mut().zip(read) {
                *value = s.mul(s.fma(read, s.splat(-1.0), *value), s.splat(beta));
            }
            let y = advance(s, rows, [q, k], values, 1.0);
            for (out, y) in padded.iter_mut().zip(y) {
                s.store(out, y);
            }
            // SAFETY: no other piece has this tile of this token.
            let out = unsafe { self.y.slice(heads.output_at(token, &tile), v.len()) };
            out.copy_from_slice(&padded.as_flattened()[..v.len()]);
        }
    }
}

/// Multiplies each row of a state by its decay, and returns the product of the state with a key.
#[inline(always)]
fn forget<S: Simd, const N: usize>(
    s: S,
    rows: &mut [[[f32; LANES]; N]],
    decays: &[f32],
    k: &[f32],
) -> [S::V; N] {
    let mut read = [s.splat(0.0); N];
    for ((row, decay), k) in rows.iter_mut().zip(decays).zip(k) {
        let (decay, k) = (s.splat(*decay), s.splat(*k));
        for (x, sum) in row.iter_mut().zip(&mut read) {
            let kept = s.mul(s.load(x), decay);
            s.store(x, kept);
            *sum = s.fma(kept, k, *sum);
        }
    }
    read
}
