//! Tests on a GPU. Results agree with the reference, and a token has the same bytes alone and in
//! every batch, whichever kernel multiplies it.

use burn::tensor::Device;

use super::reference::Expert;
use super::*;
use crate::cube::test_device::{bits, by_turns, numbers, tensor, test_device, values, vector};
use crate::{
    Activation, ActivationDtype, Choice, Codes, Offsets, QuantizationScheme, QuantizedMatrix,
    WeightDtype, WeightView,
};

pub(super) const SILU: ExpertActivation = ExpertActivation::Gated(Activation::Silu);
pub(super) const CLAMPED: ExpertActivation =
    ExpertActivation::ClampedSwiGlu { alpha: 1.702, limit: 0.4 };

/// The form in which weights are kept.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Form {
    Dense(WeightDtype),
    Quantized(QuantizationScheme),
    /// Columns in another order, in all experts but one.
    Ordered,
}

pub(super) const FORMS: [Form; 7] = [
    Form::Dense(WeightDtype::F32),
    Form::Dense(WeightDtype::F16),
    Form::Dense(WeightDtype::Bf16),
    Form::Quantized(QuantizationScheme::Int8),
    Form::Quantized(QuantizationScheme::Int4 { group_size: 32 }),
    Form::Quantized(QuantizationScheme::Int4 { group_size: 64 }),
    Form::Ordered,
];

impl Form {
    /// Returns the largest error, relative to the magnitudes that were summed.
    pub(super) fn tolerance(self) -> f64 {
        match self {
            Self::Dense(WeightDtype::F32) | Self::Ordered => 1e-5,
            Self::Dense(_) => 5e-3,
            Self::Quantized(QuantizationScheme::Int8) => 1e-2,
            Self::Quantized(QuantizationScheme::Int4 { .. }) => 8e-2,
        }
    }
}

/// Returns a weight, and the numbers that it stands for.
fn pack(form: Form, expert: usize, w: &[f32], inputs: usize, device: &Device) -> LinearWeight {
    let parts = [WeightView::F32(w)];
    match form {
        Form::Dense(dtype) => LinearWeight::pack(&parts, inputs, dtype, device).unwrap(),
        Form::Quantized(scheme) => LinearWeight::quantize(&parts, inputs, scheme, device).unwrap(),
        Form::Ordered => {
            let matrices = vec![ordered(expert, w, inputs)];
            LinearWeight::pack_quantized(matrices, ActivationDtype::F32, device).unwrap()
        }
    }
}

fn ordered(expert: usize, w: &[f32], inputs: usize) -> QuantizedMatrix {
    let outputs = w.len() / inputs;
    let codes = Codes::I8(w.iter().map(|w| (w * 100.0) as i8).collect());
    let mut order: Vec<u32> = (0..inputs as u32).collect();
    order.rotate_left(expert % inputs);
    let order = (expert != 1).then_some(order);
    let scales = vec![0.01; outputs];
    QuantizedMatrix::new([outputs, inputs], inputs, codes, scales, Offsets::None, order).unwrap()
}

/// The sizes of a layer, and the ways in which it differs from most.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layer {
    pub(super) hidden: usize,
    pub(super) inter: usize,
    pub(super) experts: usize,
    pub(super) activation: ExpertActivation,
    pub(super) scale_input: bool,
    pub(super) has_bias: bool,
}

pub(super) const SMALL: Layer = Layer {
    hidden: 40,
    inter: 32,
    experts: 5,
    activation: SILU,
    scale_input: false,
    has_bias: false,
};

impl Layer {
    pub(super) fn plain(&self) -> Vec<Expert> {
        let Self { hidden, inter, has_bias, activation, .. } = *self;
        let outputs = activation.inputs() * inter;
        let bias = |len, seed| if has_bias { numbers(len, seed) } else { vec![0.0; len] };
        let expert = |e: usize| Expert {
            gate_up: numbers(outputs * hidden, 10 * e + 1),
            down: numbers(hidden * inter, 10 * e + 2),
            gate_up_bias: bias(outputs, 10 * e + 3),
            down_bias: bias(hidden, 10 * e + 4),
        };
        (0..self.experts).map(expert).collect()
    }

    pub(super) fn pack(&self, plain: &[Expert], form: Form, device: &Device) -> Experts {
        let all = |matrix: fn(&Expert) -> &[f32], inputs| {
            let each = plain.iter().enumerate();
            each.map(|(e, expert)| pack(form, e, matrix(expert), inputs, device)).collect()
        };
        let bias = |bias: fn(&Expert) -> &[f32]| {
            self.has_bias.then(|| plain.iter().map(|e| vector(bias(e), device)).collect())
        };
        let weights = ExpertWeights {
            gate_up: all(|e| &e.gate_up, self.hidden),
            down: all(|e| &e.down, self.inter),
            gate_up_bias: bias(|e| &e.gate_up_bias),
            down_bias: bias(|e| &e.down_bias),
        };
        Experts::new(weights, self.activation, self.scale_input).unwrap()
    }

    /// Returns the numbers that weights in an order of their own stand for.
    pub(super) fn as_read(&self, mut plain: Vec<Expert>, form: Form) -> Vec<Expert> {
        for (e, expert) in plain.iter_mut().enumerate().filter(|_| form == Form::Ordered) {
            let as_read = |w: &mut Vec<f32>, inputs: usize| {
                let matrix = ordered(e, w, inputs);
                *w = (0..w.len() / inputs).flat_map(|o| matrix.row_f32(o)).collect();
            };
            as_read(&mut expert.gate_up, self.hidden);
            as_read(&mut expert.down, self.inter);
        }
        plain
    }

    /// Returns choices that spread over the experts, and repeat.
    pub(super) fn choices(&self, count: usize) -> Vec<Choice> {
        let draws = numbers(2 * count, 5);
        let choice = |draw: &[f32; 2]| Choice {
            expert: ((draw[0] + 1.0) / 2.0 * self.experts as f32) as u32 % self.experts as u32,
            weight: draw[1].abs(),
        };
        draws.as_chunks::<2>().0.iter().map(choice).collect()
    }
}

fn run(x: &[f32], choices: &[Choice], layer: &Layer, experts: &Experts, on: &Device) -> Vec<f32> {
    let top_k = choices.len() / (x.len() / layer.hidden);
    let routing = Routing::new(choices, top_k, layer.experts).unwrap();
    values(super::experts(tensor(x, layer.hidden, on), &routing, experts))
}

/// Compares a batch with the reference. Weights are compared with those before they were rounded,
/// and `tolerance` is relative to the magnitudes that were summed.
fn check(layer: Layer, form: Form, tokens: usize, top_k: usize, tolerance: f64, on: &Device) {
    let plain = layer.plain();
    let experts = layer.pack(&plain, form, on);
    let plain = layer.as_read(plain, form);
    let (x, choices) = (numbers(tokens * layer.hidden, 6), layer.choices(tokens * top_k));
    let y = run(&x, &choices, &layer, &experts, on);
    let rows = x.chunks_exact(layer.hidden).zip(y.chunks_exact(layer.hidden));
    for ((x, y), choices) in rows.zip(choices.chunks_exact(top_k)) {
        let exact = reference::token(x, choices, &plain, layer.activation, layer.scale_input);
        for (y, (exact, magnitude)) in y.iter().zip(exact) {
            let error = (f64::from(*y) - exact).abs();
            let bound = tolerance * (magnitude + 1.0);
            assert!(error <= bound, "{layer:?} {form:?} {tokens}: {y} {exact} {magnitude}");
        }
    }
}

#[test]
fn ragged_layers_agree_with_the_reference() {
    let Some(device) = test_device() else { return };
    let f32 = Form::Dense(WeightDtype::F32);
    // Whole panels and parts of them, blocks of inputs, one expert and one column.
    for (hidden, inter, experts, tokens, top_k) in [
        (1, 1, 1, 1, 1),
        (33, 7, 3, 2, 2),
        (64, 128, 4, 9, 3),
        (130, 66, 9, 5, 4),
        (260, 20, 2, 70, 2),
    ] {
        check(Layer { hidden, inter, experts, ..SMALL }, f32, tokens, top_k, 1e-5, &device);
    }
}

#[test]
fn every_activation_and_bias_agrees_with_the_reference() {
    let Some(device) = test_device() else { return };
    let f32 = Form::Dense(WeightDtype::F32);
    let gelu = ExpertActivation::Gated(Activation::GeluTanh);
    let relu = ExpertActivation::Gated(Activation::Relu);
    let plain = ExpertActivation::Plain(Activation::ReluSquared);
    let limited = ExpertActivation::LimitedSwiGlu { limit: 0.4 };
    let activations = [SILU, CLAMPED, limited, gelu, relu, plain];
    let inputs = [(false, true), (true, false), (true, true)];
    for (activation, (scale_input, has_bias)) in by_turns(&activations, &inputs) {
        let layer = Layer { activation, scale_input, has_bias, inter: 33, ..SMALL };
        check(layer, f32, 6, 2, 1e-5, &device);
    }
}

#[test]
fn every_form_of_weights_agrees_with_the_reference() {
    let Some(device) = test_device() else { return };
    let layer = Layer { hidden: 128, inter: 64, experts: 4, has_bias: true, ..SMALL };
    for form in FORMS {
        let tolerance = form.tolerance();
        // Few rows an expert, and many.
        for tokens in [3, 140] {
            check(layer, form, tokens, 2, tolerance, &device);
        }
    }
}

/// Compares the bytes of some tokens of a large batch with those that a batch of them alone has.
fn check_batches(layer: Layer, form: Form, on: &Device) {
    let (tokens, top_k) = (110, 2);
    let (x, choices) = (numbers(tokens * layer.hidden, 7), layer.choices(tokens * top_k));
    let experts = layer.pack(&layer.plain(), form, on);
    let run = |from: usize, to: usize| {
        let x = &x[from * layer.hidden..to * layer.hidden];
        bits(&run(x, &choices[from * top_k..to * top_k], &layer, &experts, on))
    };
    let all = run(0, tokens);
    for (from, to) in [(0, 1), (109, 110), (40, 42), (7, 12), (3, 23), (10, 70)] {
        let expected = &all[from * layer.hidden..to * layer.hidden];
        assert!(run(from, to) == expected, "{layer:?} {form:?}: tokens {from} to {to}");
    }
}

#[test]
fn a_token_does_not_depend_on_its_batch() {
    let Some(device) = test_device() else { return };
    let layer = Layer { hidden: 136, inter: 70, experts: 3, activation: CLAMPED, ..SMALL };
    let layer = Layer { scale_input: true, has_bias: true, ..layer };
    for form in FORMS {
        // Groups of codes are whole.
        let whole = Layer { hidden: 128, inter: 64, ..layer };
        check_batches(if matches!(form, Form::Dense(_)) { layer } else { whole }, form, &device);
    }
}

#[test]
fn a_gate_within_the_product_equals_a_gate_after_it() {
    let Some(device) = test_device() else { return };
    // The gate is within the product for few rows of an expert, and after it for many.
    let layer = Layer { hidden: 128, inter: 64, experts: 3, ..SMALL };
    for (form, inter) in by_turns(&FORMS, &[64, 192]) {
        check_batches(Layer { inter, ..layer }, form, &device);
    }
    check_batches(Layer { scale_input: true, ..layer }, FORMS[0], &device);
}

#[test]
fn experts_without_tokens_are_not_read() {
    let Some(device) = test_device() else { return };
    let mut plain = SMALL.plain();
    for (e, expert) in plain.iter_mut().enumerate() {
        if e != 3 {
            expert.gate_up.fill(f32::NAN);
            expert.down.fill(f32::NAN);
        }
    }
    let experts = SMALL.pack(&plain, Form::Dense(WeightDtype::F32), &device);
    for tokens in [1, 30, 300] {
        let x = numbers(tokens * SMALL.hidden, 5);
        let choices = vec![Choice { expert: 3, weight: 0.5 }; tokens];
        let y = run(&x, &choices, &SMALL, &experts, &device);
        assert!(y.iter().all(|y| y.is_finite()), "{tokens} tokens");
    }
}

#[test]
fn a_batch_may_have_no_tokens() {
    let Some(device) = test_device() else { return };
    let experts = SMALL.pack(&SMALL.plain(), Form::Dense(WeightDtype::Bf16), &device);
    let none = Routing::new(&[], 2, SMALL.experts).unwrap();
    let empty = super::experts(Tensor::zeros([0, SMALL.hidden], &device), &none, &experts);
    assert_eq!(empty.dims(), [0, SMALL.hidden]);
    assert_eq!(experts.num_experts(), SMALL.experts);
    assert_eq!(experts.mapped_bytes(), 0);
    // Panels are whole: 64 gates and 64 rows of 40 and 32 inputs.
    assert_eq!(experts.size_bytes(), 2 * SMALL.experts * (64 * 40 + 64 * 32));
}

#[test]
fn experts_of_several_forms_or_devices_are_refused() {
    let Some(device) = test_device() else { return };
    let dense = |dtype, device: &Device| pack(Form::Dense(dtype), 0, &[0.0; 24], 4, device);
    let refused = |gate_up: Vec<LinearWeight>, expected: &str| {
        let down = || {
            LinearWeight::pack(&[WeightView::F32(&[0.0; 12])], 3, WeightDtype::F32, &device)
                .unwrap()
        };
        let down = gate_up.iter().map(|_| down()).collect();
        let weights = ExpertWeights { gate_up, down, gate_up_bias: None, down_bias: None };
        let error = Experts::new(weights, SILU, false).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    let f32 = || dense(WeightDtype::F32, &device);
    refused(vec![f32(), dense(WeightDtype::F16, &device)], "form of gate_up of parts[1]");
    let on_cpu = dense(WeightDtype::F32, &Device::flex());
    refused(vec![f32(), f32(), on_cpu], "device of gate_up of parts[2]");
}
