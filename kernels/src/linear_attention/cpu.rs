//! Linear attention on the CPU: a piece is a tile of a head of a sequence, whose state stays in the
//! cache over all tokens.

use std::ops::Range;

use burn_flex::FlexTensor;

use super::kimi::{KimiDeltaRule, KimiTokens, kimi};
use super::prepare::{fill_factors, normalize};
use super::recurrence::{Delta, Inputs, Rule, Sum, TileTask};
use super::{GatedDeltaRule, LightningAttention};
use crate::kv_cache::KvLayer;
use crate::paged_attention::AttentionMetadata;
use crate::simd::Isa;
use crate::states::{Recurrence, advance_states};
use crate::tensors::{dense, dims2, values, values_mut};
use crate::threads::SharedMut;
use crate::workspace::{Scratch, give_back, owned, tensor};

/// Takes the states of the gated delta rule over the tokens.
pub(crate) fn gated_delta_rule(
    qkv: FlexTensor,
    gates: FlexTensor,
    rule: &GatedDeltaRule,
    layer: &mut KvLayer,
    meta: &AttentionMetadata,
) -> FlexTensor {
    let (heads, tokens) = (rule.heads, meta.num_tokens());
    assert_eq!(dims2(&qkv), [tokens, heads.inputs()], "gated_delta_rule: shape of qkv");
    assert_eq!(dims2(&gates), [tokens, 2 * heads.num_heads], "gated_delta_rule: shape of gates");
    let (mut qkv, gates) = (owned(qkv), dense(gates));
    let mut y = tensor(tokens, heads.outputs());
    let inputs = (values_mut(&mut qkv), values(&gates));
    delta(Isa::active(), rule, inputs, layer, meta, values_mut(&mut y));
    give_back(qkv);
    give_back(gates);
    y
}

/// Does the same on one instruction set, into y. Normalises the queries and keys in place.
pub(super) fn delta(
    isa: Isa,
    rule: &GatedDeltaRule,
    (qkv, gates): (&mut [f32], &[f32]),
    layer: &mut KvLayer,
    meta: &AttentionMetadata,
    y: &mut [f32],
) {
    let heads = rule.heads;
    normalize(isa, qkv, heads);
    let mut factors = Scratch::new(meta.num_tokens() * heads.num_heads);
    fill_factors(rule, gates, &mut factors);
    let inputs = Inputs { heads, qkv, factors: &factors, factors_per_token: heads.num_heads };
    over_tokens(isa, Delta, inputs, rule.state_at, layer, meta, y);
}

/// Takes the states of Kimi's delta rule over the tokens.
pub(crate) fn kimi_delta_rule(
    qkv: FlexTensor,
    gates: FlexTensor,
    b: FlexTensor,
    rule: &KimiDeltaRule,
    layer: &mut KvLayer,
    meta: &AttentionMetadata,
) -> FlexTensor {
    let (heads, tokens) = (rule.heads(), meta.num_tokens());
    assert_eq!(dims2(&qkv), [tokens, heads.inputs()], "kimi_delta_rule: shape of qkv");
    let of_rows = [tokens, heads.num_heads * heads.key_dim];
    assert_eq!(dims2(&gates), of_rows, "kimi_delta_rule: shape of gates");
    assert_eq!(dims2(&b), [tokens, heads.num_heads], "kimi_delta_rule: shape of b");
    let (mut qkv, mut gates, b) = (owned(qkv), owned(gates), dense(b));
    let mut y = tensor(tokens, heads.outputs());
    let inputs =
        KimiTokens { qkv: values_mut(&mut qkv), gates: values_mut(&mut gates), b: values(&b) };
    kimi(Isa::active(), rule, inputs, layer, meta, values_mut(&mut y));
    for read in [qkv, gates, b] {
        give_back(read);
    }
    y
}

/// Takes the states of lightning attention over the tokens.
pub(crate) fn lightning_attention(
    qkv: FlexTensor,
    attention: &LightningAttention,
    layer: &mut KvLayer,
    meta: &AttentionMetadata,
) -> FlexTensor {
    let (heads, tokens) = (attention.heads, meta.num_tokens());
    assert_eq!(dims2(&qkv), [tokens, heads.inputs()], "lightning_attention: shape of qkv");
    let qkv = dense(qkv);
    let mut y = tensor(tokens, heads.outputs());
    lightning(Isa::active(), attention, values(&qkv), layer, meta, values_mut(&mut y));
    give_back(qkv);
    y
}

/// Does the same on one instruction set, into y.
pub(super) fn lightning(
    isa: Isa,
    attention: &LightningAttention,
    qkv: &[f32],
    layer: &mut KvLayer,
    meta: &AttentionMetadata,
    y: &mut [f32],
) {
    let LightningAttention { heads, ref factors, state_at } = *attention;
    let (factors, _) = factors.cpu().as_chunks();
    let inputs = Inputs { heads, qkv, factors, factors_per_token: 0 };
    over_tokens(isa, Sum, inputs, state_at, layer, meta, y);
}

fn over_tokens<R: Rule>(
    isa: Isa,
    rule: R,
    inputs: Inputs<'_>,
    state_at: usize,
    layer: &mut KvLayer,
    meta: &AttentionMetadata,
    y: &mut [f32],
) {
    let work = 2 * y.len() * inputs.heads.key_dim;
    let over_tokens = OverTokens { isa, rule, inputs, state_at, y: SharedMut::new(y) };
    advance_states(layer, meta, work, &over_tokens);
}

struct OverTokens<'a, R> {
    isa: Isa,
    rule: R,
    inputs: Inputs<'a>,
    state_at: usize,
    /// `[num_tokens, num_heads · value_dim]`.
    y: SharedMut<'a, f32>,
}

impl<R: Rule> Recurrence for OverTokens<'_, R> {
    fn num_parts(&self) -> usize {
        self.inputs.heads.num_tiles()
    }

    fn part(&self, part: usize) -> Range<usize> {
        let heads = self.inputs.heads;
        let Range { start, end } = heads.place(&heads.tile(part));
        self.state_at + start..self.state_at + end
    }

    fn advance(&self, part: usize, state: &mut [f32], rows: Range<usize>) {
        let Self { rule, inputs, ref y, .. } = *self;
        let tile = inputs.heads.tile(part);
        self.isa.run(TileTask { rule, inputs, tokens: rows, tile, state, y });
    }
}
