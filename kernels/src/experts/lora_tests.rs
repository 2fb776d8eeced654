//! Adapters of experts: compared with experts whose matrices have the adapter's product in them,
//! and byte by byte with the experts alone where a token has no adapter.

use burn::tensor::Device;

use super::tests::{Form, Layer, SMALL, bits, values};
use super::*;
use crate::simd::Isa;
use crate::{LoraPair, QuantizationScheme, WeightDtype};

const RANK: usize = 3;
const SCALE: f32 = 0.7;
const TOKENS: usize = 23;

/// The matrices of one adapter for one product of one expert.
struct Pair {
    a: Vec<f32>,
    b: Vec<f32>,
}

impl Pair {
    fn new([outputs, inputs]: [usize; 2], seed: u32) -> Self {
        Self { a: values(RANK * inputs, seed), b: values(outputs * RANK, seed + 1) }
    }

    fn view(&self) -> LoraPair<'_> {
        let Self { a, b } = self;
        LoraPair { a, b, rank: RANK, scale: SCALE, first_output: 0 }
    }

    /// Adds the product to a matrix `[outputs, inputs]`.
    fn merge(&self, matrix: &mut [f32], inputs: usize) {
        for (row, b) in matrix.chunks_exact_mut(inputs).zip(self.b.chunks_exact(RANK)) {
            for (i, element) in row.iter_mut().enumerate() {
                let sum: f64 = b
                    .iter()
                    .enumerate()
                    .map(|(r, b)| f64::from(*b) * f64::from(self.a[r * inputs + i]))
                    .sum();
                *element += (f64::from(SCALE) * sum) as f32;
            }
        }
    }
}

fn with_adapters(
    isa: Isa,
    x: &[f32],
    routing: &Routing,
    experts: &Experts,
    segments: &[ExpertSegment<'_>],
) -> Vec<f32> {
    let mut y = vec![f32::NAN; x.len()];
    cpu::mixture(isa, x, (routing, segments), experts, &mut y);
    y
}

/// The first adapter changes all products, and the second one `down` of every second expert.
fn check(layer: Layer, form: Form, top_k: usize) {
    let Layer { hidden, inter, experts: count, activation, .. } = layer;
    let shapes = [[activation.inputs() * inter, hidden], [hidden, inter]];
    let pairs: Vec<Vec<[Option<Pair>; 2]>> = (0..2)
        .map(|adapter| {
            let pair = |expert: usize, product: usize| {
                let is_changed = adapter == 0 || product == 1 && expert.is_multiple_of(2);
                let seed = (1_000 * adapter + 20 * expert + 7 * product) as u32;
                is_changed.then(|| Pair::new(shapes[product], seed))
            };
            (0..count).map(|expert| [pair(expert, 0), pair(expert, 1)]).collect()
        })
        .collect();
    let packed: Vec<[Option<ExpertLora>; 2]> = pairs
        .iter()
        .map(|adapter| {
            [0, 1].map(|product| {
                let views = adapter
                    .iter()
                    .map(|expert| expert[product].iter().map(Pair::view).collect::<Vec<_>>());
                let views: Vec<_> = views.collect();
                let has_some = views.iter().any(|views| !views.is_empty());
                let pack =
                    || ExpertLora::pack(&views, shapes[product], WeightDtype::F32, &Device::flex());
                has_some.then(|| pack().unwrap())
            })
        })
        .collect();
    let tokens: [Vec<u32>; 2] =
        [0, 1].map(|adapter| (0..TOKENS as u32).filter(|token| token % 3 == adapter).collect());
    let segments: Vec<ExpertSegment<'_>> = packed
        .iter()
        .zip(&tokens)
        .map(|(adapter, tokens)| ExpertSegment {
            tokens,
            weights: adapter.each_ref().map(Option::as_ref),
        })
        .collect();
    let plain = layer.plain();
    let experts = layer.pack(&plain, form);
    let merged: Vec<Experts> = pairs
        .iter()
        .map(|adapter| {
            let mut plain = layer.plain();
            for (expert, [inner, down]) in plain.iter_mut().zip(adapter) {
                inner.iter().for_each(|pair| pair.merge(&mut expert.gate_up, hidden));
                down.iter().for_each(|pair| pair.merge(&mut expert.down, inter));
            }
            layer.pack(&plain, form)
        })
        .collect();
    let x = values(TOKENS * hidden, 5);
    let routing = layer.routing(TOKENS, top_k, 6);
    for isa in Isa::available() {
        let y = with_adapters(isa, &x, &routing, &experts, &segments);
        let base = with_adapters(isa, &x, &routing, &experts, &[]);
        for token in 0..TOKENS {
            let row = token * hidden..(token + 1) * hidden;
            let y = &y[row.clone()];
            match token % 3 {
                2 => assert_eq!(bits(y), bits(&base[row]), "{}: token {token}", isa.name()),
                adapter => {
                    let one = &x[row];
                    let choices = &routing.choices()[token * top_k..][..top_k];
                    let routing = Routing::new(choices, top_k, count).unwrap();
                    let expected = with_adapters(isa, one, &routing, &merged[adapter], &[]);
                    if form == Form::Dense(WeightDtype::F32) {
                        for (y, expected) in y.iter().zip(&expected) {
                            let error = (y - expected).abs();
                            assert!(error < 2e-3 * expected.abs().max(1.0), "{y} {expected}");
                        }
                    }
                    let alone = ExpertSegment { tokens: &[0], ..segments[adapter] };
                    let alone = with_adapters(isa, one, &routing, &experts, &[alone]);
                    assert_eq!(bits(y), bits(&alone), "{}: token {token}", isa.name());
                }
            }
        }
    }
}

#[test]
fn rows_equal_their_own_experts_and_others_are_untouched() {
    let plain = Layer { activation: ExpertActivation::Plain(Activation::ReluSquared), ..SMALL };
    let scaled = Layer { scale_input: true, has_bias: true, ..SMALL };
    for layer in [SMALL, plain, scaled] {
        for form in [
            Form::Dense(WeightDtype::F32),
            Form::Dense(WeightDtype::Bf16),
            Form::Quantized(QuantizationScheme::Int8, crate::ActivationDtype::Int8),
        ] {
            check(layer, form, 1);
            check(layer, form, 3);
        }
    }
}
