//! Adapters of experts on a GPU: results agree with the reference over matrices that have the
//! adapter's product in them. A token has the same bytes alone and in every batch, and one without
//! an adapter has those of the experts alone.

use burn::tensor::Device;

use super::cube_tests::{CLAMPED, FORMS, Form, Layer, SILU, SMALL};
use super::reference::{self, Expert};
use super::*;
use crate::cube::test_device::{bits, numbers, tensor, test_device, values};
use crate::{Activation, Choice, LoraPair, WeightDtype};

/// How much adapters change: so little that a product is not much larger than without them. The
/// rounding of one inner product is multiplied by the other.
const SCALE: f32 = 0.125;

/// The matrices of one adapter at some outputs of one expert's product.
struct Pair {
    a: Vec<f32>,
    b: Vec<f32>,
    rank: usize,
    first_output: usize,
}

impl Pair {
    fn new(rank: usize, inputs: usize, first_output: usize, outputs: usize, seed: usize) -> Self {
        let (a, b) = (numbers(rank * inputs, seed), numbers(outputs * rank, seed + 1));
        Self { a, b, rank, first_output }
    }

    fn view(&self) -> LoraPair<'_> {
        let Self { a, b, rank, first_output } = self;
        LoraPair { a, b, rank: *rank, scale: SCALE, first_output: *first_output }
    }

    /// Adds the product to a matrix of rows of `inputs`.
    fn merge(&self, matrix: &mut [f32], inputs: usize) {
        let rows = matrix.chunks_exact_mut(inputs).skip(self.first_output);
        for (row, b) in rows.zip(self.b.chunks_exact(self.rank)) {
            for (i, element) in row.iter_mut().enumerate() {
                let terms = b.iter().zip(self.a[i..].iter().step_by(inputs));
                let sum: f64 = terms.map(|(b, a)| f64::from(*b) * f64::from(*a)).sum();
                *element = (f64::from(*element) + f64::from(SCALE) * sum) as f32;
            }
        }
    }
}

/// An adapter's pairs, `[product][expert]`.
type Pairs = [Vec<Vec<Pair>>; 2];

/// Returns two adapters. The first one has ranks of its own for each half of each expert's inner
/// product, and none for every third expert. The second one changes the product back alone.
fn adapters(layer: &Layer) -> [Pairs; 2] {
    let Layer { hidden, inter, experts, activation, .. } = *layer;
    let halves = |expert: usize| -> Vec<Pair> {
        let half = |half| {
            let rank = 1 + (expert + half) % 3;
            Pair::new(rank, hidden, half * inter, inter, 40 * expert + 3 * half)
        };
        (0..activation.inputs()).map(half).collect()
    };
    let some = |expert: usize| if expert % 3 == 2 { Vec::new() } else { halves(expert) };
    let down =
        |seed: usize| move |expert: usize| vec![Pair::new(2, inter, 0, hidden, seed + 40 * expert)];
    [
        [(0..experts).map(some).collect(), (0..experts).map(down(7)).collect()],
        [(0..experts).map(|_| Vec::new()).collect(), (0..experts).map(down(11)).collect()],
    ]
}

fn packed(layer: &Layer, pairs: &Pairs, on: &Device) -> [Option<ExpertLora>; 2] {
    let Layer { hidden, inter, activation, .. } = *layer;
    let shapes = [[activation.inputs() * inter, hidden], [hidden, inter]];
    [0, 1].map(|product| {
        let views = pairs[product].iter().map(|pairs| pairs.iter().map(Pair::view).collect());
        let views: Vec<Vec<LoraPair<'_>>> = views.collect();
        let pack = || ExpertLora::pack(&views, shapes[product], WeightDtype::F32, on).unwrap();
        views.iter().any(|views| !views.is_empty()).then(pack)
    })
}

fn merged(layer: &Layer, form: Form, pairs: &Pairs) -> Vec<Expert> {
    let mut plain = layer.as_read(layer.plain(), form);
    for (e, expert) in plain.iter_mut().enumerate() {
        pairs[0][e].iter().for_each(|pair| pair.merge(&mut expert.gate_up, layer.hidden));
        pairs[1][e].iter().for_each(|pair| pair.merge(&mut expert.down, layer.inter));
    }
    plain
}

fn run(
    x: &[f32],
    choices: &[Choice],
    (layer, experts): (&Layer, &Experts),
    segments: &[ExpertSegment<'_>],
    on: &Device,
) -> Vec<f32> {
    let top_k = choices.len() / (x.len() / layer.hidden);
    let routing = Routing::new(choices, top_k, layer.experts).unwrap();
    values(experts_with_lora(tensor(x, layer.hidden, on), &routing, experts, segments))
}

/// Tokens have the first adapter, the second one and none, by turns.
fn check(layer: Layer, form: Form, num_tokens: usize, top_k: usize, on: &Device) {
    let pairs = adapters(&layer);
    let packed = pairs.each_ref().map(|pairs| packed(&layer, pairs, on));
    let tokens = [0, 1].map(|adapter| -> Vec<u32> {
        (0..num_tokens as u32).rev().filter(|token| token % 3 == adapter).collect()
    });
    let segments: Vec<ExpertSegment<'_>> = packed
        .iter()
        .zip(&tokens)
        .map(|(packed, tokens)| ExpertSegment {
            tokens,
            weights: packed.each_ref().map(Option::as_ref),
        })
        .collect();
    let merged = pairs.each_ref().map(|pairs| merged(&layer, form, pairs));
    let experts = layer.pack(&layer.plain(), form, on);
    let both = (&layer, &experts);
    let (x, choices) = (numbers(num_tokens * layer.hidden, 6), layer.choices(num_tokens * top_k));
    let y = run(&x, &choices, both, &segments, on);
    let base = run(&x, &choices, both, &[], on);
    let rows = x.chunks_exact(layer.hidden).zip(choices.chunks_exact(top_k));
    for (token, (x, choices)) in rows.enumerate() {
        let (what, at) = (format!("{layer:?} {form:?} {token} of {num_tokens}"), token * x.len());
        let y = &y[at..at + x.len()];
        let Some(merged) = merged.get(token % 3) else {
            assert_eq!(bits(y), bits(&base[at..at + x.len()]), "{what}");
            continue;
        };
        let exact = reference::token(x, choices, merged, layer.activation, layer.scale_input);
        for (y, (exact, magnitude)) in y.iter().zip(exact) {
            let error = (f64::from(*y) - exact).abs();
            assert!(error <= form.tolerance() * (magnitude + 1.0), "{what}: {y} {exact}");
        }
        // A software device is slow.
        if token < 6 {
            let alone = ExpertSegment { tokens: &[0], ..segments[token % 3] };
            assert_eq!(bits(y), bits(&run(x, choices, both, &[alone], on)), "{what}");
        }
    }
}

#[test]
fn adapters_of_ragged_layers_agree_with_the_reference() {
    let Some(device) = test_device() else { return };
    let f32 = Form::Dense(WeightDtype::F32);
    for (hidden, inter, experts, tokens, top_k) in
        [(1, 1, 1, 1, 1), (33, 7, 3, 2, 2), (130, 66, 9, 5, 4), (260, 20, 2, 70, 2)]
    {
        check(Layer { hidden, inter, experts, ..SMALL }, f32, tokens, top_k, &device);
    }
}

#[test]
fn adapters_over_every_activation_agree_with_the_reference() {
    let Some(device) = test_device() else { return };
    let plain = ExpertActivation::Plain(Activation::ReluSquared);
    for (activation, scale_input) in [(CLAMPED, false), (plain, false), (SILU, true)] {
        let layer = Layer { activation, scale_input, has_bias: true, inter: 33, ..SMALL };
        check(layer, Form::Dense(WeightDtype::F32), 6, 2, &device);
    }
}

#[test]
fn adapters_over_every_form_of_weights_agree_with_the_reference() {
    let Some(device) = test_device() else { return };
    let layer = Layer { hidden: 128, inter: 64, experts: 4, has_bias: true, ..SMALL };
    for form in FORMS {
        // Few rows an expert, and many.
        for tokens in [4, 140] {
            check(layer, form, tokens, 2, &device);
        }
    }
}

#[test]
fn matrices_that_do_not_fit_are_refused() {
    for device in [Some(Device::flex()), test_device()].into_iter().flatten() {
        let refused = |experts: &[Vec<LoraPair<'_>>]| {
            let packed = ExpertLora::pack(experts, [4, 3], WeightDtype::F32, &device);
            packed.map(|_| ()).unwrap_err().to_string()
        };
        let (a, b) = ([0.0; 6], [0.0; 8]);
        let good = LoraPair { a: &a, b: &b, rank: 2, scale: 1.0, first_output: 0 };
        assert!(refused(&[Vec::new(), Vec::new()]).contains("pairs is 0"));
        assert!(refused(&[vec![good], vec![LoraPair { a: &a[1..], ..good }]]).contains("[0].a"));
        assert!(refused(&[vec![LoraPair { first_output: 1, ..good }]]).contains("up to 4"));
        let packed = ExpertLora::pack(&[vec![good], vec![]], [4, 3], WeightDtype::F32, &device);
        assert!(packed.unwrap().size_bytes() >= (6 + 8) * 4);
    }
}

/// A replay could not renew the tokens.
#[test]
fn a_step_with_adapters_is_not_recorded() {
    let Some(device) = test_device() else { return };
    let packed = packed(&SMALL, &adapters(&SMALL)[0], &device);
    let weights = packed.each_ref().map(Option::as_ref);
    let experts = SMALL.pack(&SMALL.plain(), Form::Dense(WeightDtype::F32), &device);
    let routing = Routing::new(&SMALL.choices(2), 2, SMALL.experts).unwrap();
    let routing = routing.to_device(&device).unwrap();
    let x = tensor(&numbers(SMALL.hidden, 1), SMALL.hidden, &device);
    for (tokens, expected) in [(&[][..], false), (&[0][..], true)] {
        let segments = [ExpertSegment { tokens, weights }];
        let run = || experts_with_lora(x.clone(), &routing, &experts, &segments);
        let (_, is_of_caller) = crate::cube::caller_numbers::noted(run);
        assert_eq!(is_of_caller, expected, "{tokens:?}");
    }
}
