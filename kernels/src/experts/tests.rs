//! Comparisons with the reference, and with a linear layer for each choice of a token alone, byte
//! by byte.

use burn::tensor::{Device, TensorData};
use proptest::prelude::*;

use super::activation::activate;
use super::reference::Expert;
use super::*;
use crate::linear::cpu::multiply;
use crate::simd::Isa;
use crate::{
    Activation, ActivationDtype, Choice, Codes, Offsets, QuantizationScheme, QuantizedMatrix,
    ThreadPool, WeightDtype, WeightView,
};

const CLAMPED: ExpertActivation = ExpertActivation::ClampedSwiGlu { alpha: 1.702, limit: 0.4 };
const LIMITED: ExpertActivation = ExpertActivation::LimitedSwiGlu { limit: 0.4 };

/// Returns reproducible values in (-1, 1).
pub(super) fn values(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 8_388_608.0 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// The form in which weights are kept.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Form {
    Dense(WeightDtype),
    Quantized(QuantizationScheme, ActivationDtype),
    /// Columns in another order.
    Ordered(ActivationDtype),
    /// The first expert in f32, the others in bfloat16.
    Mixed,
}

const FORMS: [Form; 9] = [
    Form::Dense(WeightDtype::F32),
    Form::Dense(WeightDtype::Bf16),
    Form::Quantized(QuantizationScheme::Int8, ActivationDtype::Int8),
    Form::Quantized(QuantizationScheme::Int4 { group_size: 32 }, ActivationDtype::Int8),
    Form::Quantized(QuantizationScheme::Int4 { group_size: 64 }, ActivationDtype::F32),
    Form::Quantized(QuantizationScheme::Int8, ActivationDtype::Bf16),
    Form::Ordered(ActivationDtype::Int8),
    Form::Ordered(ActivationDtype::F32),
    Form::Mixed,
];

impl Form {
    fn pack(self, expert: usize, w: &[f32], inputs: usize) -> LinearWeight {
        let (parts, device) = ([WeightView::F32(w)], Device::flex());
        let dense = |dtype| LinearWeight::pack(&parts, inputs, dtype, &device).unwrap();
        match self {
            Self::Dense(dtype) => dense(dtype),
            Self::Mixed if expert == 0 => dense(WeightDtype::F32),
            Self::Mixed => dense(WeightDtype::Bf16),
            Self::Quantized(scheme, activations) => {
                let weight = LinearWeight::quantize(&parts, inputs, scheme, &device).unwrap();
                weight.with_activations(activations)
            }
            Self::Ordered(activations) => {
                let outputs = w.len() / inputs;
                let codes = Codes::I8(w.iter().map(|w| (w * 100.0) as i8).collect());
                let mut order: Vec<u32> = (0..inputs as u32).collect();
                order.rotate_left(expert % inputs);
                let scales = vec![0.01; outputs];
                let shape = [outputs, inputs];
                let order = (expert != 1).then_some(order);
                let matrix =
                    QuantizedMatrix::new(shape, inputs, codes, scales, Offsets::None, order);
                LinearWeight::pack_quantized(vec![matrix.unwrap()], activations, &device).unwrap()
            }
        }
    }
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
    activation: ExpertActivation::Gated(Activation::Silu),
    scale_input: false,
    has_bias: false,
};

impl Layer {
    pub(super) fn plain(&self) -> Vec<Expert> {
        let Self { hidden, inter, has_bias, activation, .. } = *self;
        let outputs = activation.inputs() * inter;
        let bias = |len, seed| if has_bias { values(len, seed) } else { vec![0.0; len] };
        let expert = |e: u32| Expert {
            gate_up: values(outputs * hidden, 10 * e + 1),
            down: values(hidden * inter, 10 * e + 2),
            gate_up_bias: bias(outputs, 10 * e + 3),
            down_bias: bias(hidden, 10 * e + 4),
        };
        (0..self.experts as u32).map(expert).collect()
    }

    pub(super) fn pack(&self, plain: &[Expert], form: Form) -> Experts {
        let pack = |matrix: fn(&Expert) -> &[f32], inputs| {
            let each = plain.iter().enumerate();
            each.map(|(e, expert)| form.pack(e, matrix(expert), inputs)).collect()
        };
        let bias = |bias: fn(&Expert) -> &[f32]| {
            let new = |e: &Expert| WeightVector::new(bias(e).to_vec(), &Device::flex()).unwrap();
            self.has_bias.then(|| plain.iter().map(new).collect())
        };
        let weights = ExpertWeights {
            gate_up: pack(|e| &e.gate_up, self.hidden),
            down: pack(|e| &e.down, self.inter),
            gate_up_bias: bias(|e| &e.gate_up_bias),
            down_bias: bias(|e| &e.down_bias),
        };
        Experts::new(weights, self.activation, self.scale_input).unwrap()
    }

    /// Returns choices that spread over the experts, and repeat.
    pub(super) fn routing(&self, tokens: usize, top_k: usize, seed: u32) -> Routing {
        let draws = values(2 * tokens * top_k, seed);
        let choices: Vec<Choice> = draws
            .as_chunks::<2>()
            .0
            .iter()
            .map(|[expert, weight]| Choice {
                expert: ((expert + 1.0) / 2.0 * self.experts as f32) as u32 % self.experts as u32,
                weight: weight.abs(),
            })
            .collect();
        Routing::new(&choices, top_k, self.experts).unwrap()
    }
}

fn run(isa: Isa, x: &[f32], routing: &Routing, experts: &Experts) -> Vec<f32> {
    let mut y = vec![f32::NAN; x.len()];
    cpu::mixture(isa, x, (routing, &[]), experts, &mut y);
    y
}

/// Computes a token with a linear layer for each of its choices.
fn alone(isa: Isa, x: &[f32], choices: &[Choice], experts: &Experts) -> Vec<f32> {
    let Experts { activation, scale_input, hidden, intermediate, .. } = experts;
    let weights = experts.on_cpu();
    let mut y = vec![0.0; *hidden];
    for Choice { expert, weight } in choices {
        let (expert, scale) = (*expert as usize, if *scale_input { *weight } else { 1.0 });
        let x: Vec<f32> = x.iter().map(|x| scale * x).collect();
        let bias = |biases: &Option<Vec<WeightVector>>| -> Option<Vec<f32>> {
            biases.as_ref().map(|biases| biases[expert].cpu().to_vec())
        };
        let mut gate_up = vec![f32::NAN; activation.inputs() * intermediate];
        let gate_up_bias = bias(&weights.gate_up_bias);
        multiply(isa, &x, &weights.gate_up[expert], gate_up_bias.as_deref(), &mut gate_up);
        let mut activated = vec![f32::NAN; *intermediate];
        activate(isa, *activation, &gate_up, *intermediate, &mut activated);
        let mut out = vec![f32::NAN; *hidden];
        let down_bias = bias(&weights.down_bias);
        multiply(isa, &activated, &weights.down[expert], down_bias.as_deref(), &mut out);
        let weight = if *scale_input { 1.0 } else { *weight };
        for (y, out) in y.iter_mut().zip(out) {
            *y += weight * out;
        }
    }
    y
}

fn of_token(routing: &Routing, token: usize) -> &[Choice] {
    &routing.choices()[token * routing.top_k()..][..routing.top_k()]
}

pub(super) fn bits(y: &[f32]) -> Vec<u32> {
    y.iter().map(|y| y.to_bits()).collect()
}

/// Asserts that a batch has the bytes of its tokens alone.
fn check_bytes(layer: Layer, form: Form, tokens: usize, top_k: usize, seed: u32) {
    let experts = layer.pack(&layer.plain(), form);
    let x = values(tokens * layer.hidden, seed);
    let routing = layer.routing(tokens, top_k, seed + 1);
    for isa in Isa::available() {
        let y = run(isa, &x, &routing, &experts);
        for (token, (x, y)) in
            x.chunks_exact(layer.hidden).zip(y.chunks_exact(layer.hidden)).enumerate()
        {
            let expected = alone(isa, x, of_token(&routing, token), &experts);
            let name = isa.name();
            assert_eq!(bits(y), bits(&expected), "{name} {form:?}: token {token} of {tokens}");
        }
    }
}

/// Asserts that results are near the reference. Weights of bfloat16 are compared with those before
/// they were rounded.
fn check_values(layer: Layer, dtype: WeightDtype, tokens: usize, top_k: usize, seed: u32) {
    let plain = layer.plain();
    let experts = layer.pack(&plain, Form::Dense(dtype));
    let x = values(tokens * layer.hidden, seed);
    let routing = layer.routing(tokens, top_k, seed + 1);
    for isa in Isa::available() {
        let y = run(isa, &x, &routing, &experts);
        let tolerance = if dtype == WeightDtype::F32 { 1e-5 } else { 1e-2 };
        for (token, (x, y)) in
            x.chunks_exact(layer.hidden).zip(y.chunks_exact(layer.hidden)).enumerate()
        {
            let Layer { activation, scale_input, .. } = layer;
            let choices = of_token(&routing, token);
            let exact = reference::token(x, choices, &plain, activation, scale_input);
            for (y, (exact, magnitude)) in y.iter().zip(exact) {
                let error = (f64::from(*y) - exact).abs();
                let name = isa.name();
                assert!(
                    error <= tolerance * (magnitude + 1.0),
                    "{name} {layer:?}: {y} {exact} {magnitude}"
                );
            }
        }
    }
}

#[test]
fn identities_add_their_input() {
    let layer = Layer { experts: 3, ..SMALL };
    let experts = layer.pack(&layer.plain(), Form::Dense(WeightDtype::F32));
    let experts = experts.with_identities(2).unwrap();
    let choice = |(expert, weight)| Choice { expert, weight };
    let choices = [(1, 0.5), (3, 2.0), (4, 0.75), (3, 0.25)].map(choice);
    let x = values(2 * layer.hidden, 1);
    for isa in Isa::available() {
        let routing = Routing::new(&choices, 2, 5).unwrap();
        let y = run(isa, &x, &routing, &experts);
        let (first, second) = x.split_at(layer.hidden);
        let of_expert = alone(isa, first, &choices[..1], &experts);
        let mixed = of_expert.iter().zip(first).map(|(y, x)| y + 2.0 * x);
        let plain = second.iter().map(|x| 0.75 * x + 0.25 * x);
        assert_eq!(y, mixed.chain(plain).collect::<Vec<f32>>(), "{}", isa.name());
        // No expert with weights is chosen.
        let routing = Routing::new(&choices[2..], 2, 5).unwrap();
        assert_eq!(run(isa, second, &routing, &experts), y[layer.hidden..]);
    }
    let scaled = Layer { scale_input: true, ..layer };
    let scaled = scaled.pack(&scaled.plain(), Form::Dense(WeightDtype::F32));
    assert!(scaled.with_identities(1).unwrap_err().to_string().contains("identities"));
}

fn any_activation() -> impl Strategy<Value = ExpertActivation> {
    let gated = vec![Activation::Silu, Activation::GeluTanh, Activation::Relu];
    let plain = ExpertActivation::Plain(Activation::ReluSquared);
    let gated = prop::sample::select(gated).prop_map(ExpertActivation::Gated);
    prop_oneof![gated, Just(CLAMPED), Just(LIMITED), Just(plain)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn any_layer_agrees_with_the_reference(
        hidden in 1usize..80,
        inter in 1usize..80,
        experts in 1usize..9,
        tokens in 0usize..20,
        top_k in 1usize..4,
        activation in any_activation(),
        scale_input: bool,
        has_bias: bool,
        seed in 0u32..1000,
    ) {
        let layer = Layer { hidden, inter, experts, activation, scale_input, has_bias };
        check_values(layer, WeightDtype::F32, tokens, top_k, seed);
        check_values(layer, WeightDtype::Bf16, tokens, top_k, seed);
    }

    #[test]
    fn any_batch_has_the_bytes_of_its_tokens_alone(
        hidden in 1usize..70,
        inter in 1usize..70,
        experts in 2usize..9,
        tokens in 1usize..30,
        top_k in 1usize..4,
        form in 0..FORMS.len(),
        activation in any_activation(),
        scale_input: bool,
        has_bias: bool,
        seed in 0u32..1000,
    ) {
        // Groups of codes are whole.
        let (hidden, inter) = (2 * hidden, 2 * inter);
        let layer = Layer { hidden, inter, experts, activation, scale_input, has_bias };
        check_bytes(layer, FORMS[form], tokens, top_k, seed);
    }
}

/// Products that are large enough for several threads, with fused gates and without.
#[test]
fn large_batches_have_the_bytes_of_their_tokens_alone() {
    for form in FORMS {
        for (inter, tokens, top_k) in [(256, 1, 4), (256, 70, 2), (100, 9, 3)] {
            let layer = Layer { hidden: 320, inter, experts: 6, ..SMALL };
            check_bytes(layer, form, tokens, top_k, 3);
        }
    }
}

#[test]
fn every_number_of_threads_gives_the_same_bytes() {
    let layer = Layer { hidden: 256, inter: 192, experts: 7, ..SMALL };
    let x = values(40 * layer.hidden, 1);
    for form in FORMS {
        let experts = layer.pack(&layer.plain(), form);
        for tokens in [1, 2, 40] {
            let (x, routing) = (&x[..tokens * layer.hidden], layer.routing(tokens, 3, 2));
            let on = |threads| {
                let pool = ThreadPool::new(threads, false).unwrap();
                pool.install(|| bits(&run(Isa::active(), x, &routing, &experts)))
            };
            let one = on(1);
            assert_eq!(on(2), one, "{form:?} {tokens}");
            assert_eq!(on(5), one, "{form:?} {tokens}");
        }
    }
}

#[test]
fn all_tokens_on_one_expert_leave_the_others_alone() {
    for form in FORMS {
        let mut plain = SMALL.plain();
        // Reading another expert would show.
        for (e, expert) in plain.iter_mut().enumerate() {
            if e != 3 && matches!(form, Form::Dense(_)) {
                expert.gate_up.fill(f32::NAN);
                expert.down.fill(f32::NAN);
            }
        }
        let experts = SMALL.pack(&plain, form);
        let choices = [Choice { expert: 3, weight: 0.5 }; 30];
        let routing = Routing::new(&choices, 1, SMALL.experts).unwrap();
        let x = values(30 * SMALL.hidden, 5);
        for isa in Isa::available() {
            let y = run(isa, &x, &routing, &experts);
            let rows = x.chunks_exact(SMALL.hidden).zip(y.chunks_exact(SMALL.hidden));
            for (x, y) in rows {
                assert!(y.iter().all(|y| y.is_finite()), "{} {form:?}", isa.name());
                assert_eq!(bits(y), bits(&alone(isa, x, &choices[..1], &experts)));
            }
        }
    }
}

#[test]
fn the_activation_of_gpt_oss_clamps() {
    let x = [9.0, 0.2, f32::NAN, -5.0, 7.0, 0.1, 0.1, -8.0];
    for isa in Isa::available() {
        let mut y = [0.0; 4];
        activate(isa, CLAMPED, &x, 4, &mut y);
        let gated = |gate: f64| gate / (1.0 + (-1.702 * gate).exp());
        let expected = [1.4 * gated(0.4), 1.1 * gated(0.2), f64::NAN, 0.6 * gated(-5.0)];
        for (y, expected) in y.into_iter().zip(expected) {
            let error = (f64::from(y) - expected).abs();
            assert!(error < 1e-6 || (y.is_nan() && expected.is_nan()), "{y} {expected}");
        }
    }
}

#[test]
fn the_activation_of_step_limits_the_activated_gate() {
    let x = [9.0, 0.2, f32::NAN, -5.0, 7.0, 0.1, 0.1, -8.0];
    for isa in Isa::available() {
        let mut y = [0.0; 4];
        activate(isa, LIMITED, &x, 4, &mut y);
        let gated = |gate: f64| gate / (1.0 + (-gate).exp());
        let expected = [0.4 * 0.4, 0.1 * gated(0.2), f64::NAN, -0.4 * gated(-5.0)];
        for (y, expected) in y.into_iter().zip(expected) {
            let error = (f64::from(y) - expected).abs();
            assert!(error < 1e-6 || (y.is_nan() && expected.is_nan()), "{y} {expected}");
        }
    }
}

#[test]
fn the_operation_takes_tensors() {
    let (plain, device) = (SMALL.plain(), Device::flex());
    let experts = SMALL.pack(&plain, Form::Dense(WeightDtype::F32));
    let (x, routing) = (values(3 * SMALL.hidden, 1), SMALL.routing(3, 2, 8));
    let tensor = Tensor::<2>::from_data(TensorData::new(x.clone(), [3, SMALL.hidden]), &device);
    let y = super::experts(tensor, &routing, &experts);
    let y: Vec<f32> = y.into_data().try_to_vec().unwrap();
    assert_eq!(bits(&y), bits(&run(Isa::active(), &x, &routing, &experts)));
    let none = Routing::new(&[], 2, SMALL.experts).unwrap();
    let empty = super::experts(Tensor::zeros([0, SMALL.hidden], &device), &none, &experts);
    assert_eq!(empty.dims(), [0, SMALL.hidden]);
    assert_eq!(experts.num_experts(), SMALL.experts);
    assert_eq!(experts.mapped_bytes(), 0);
    assert!(experts.size_bytes() >= 4 * SMALL.experts * 3 * SMALL.hidden * SMALL.inter);
}

#[test]
fn weights_that_do_not_fit_are_refused() {
    let device = Device::flex();
    let weight = |outputs, inputs| {
        let w = vec![0.0; outputs * inputs];
        LinearWeight::pack(&[WeightView::F32(&w)], inputs, WeightDtype::F32, &device).unwrap()
    };
    let bias = |len| WeightVector::new(vec![0.0; len], &device).unwrap();
    let refused = |gate_up, down, down_bias, field: &str| {
        let weights = ExpertWeights { gate_up, down, gate_up_bias: None, down_bias };
        let error = Experts::new(weights, ExpertActivation::Gated(Activation::Silu), false)
            .unwrap_err()
            .to_string();
        assert!(error.contains(field), "{error}");
    };
    refused(vec![], vec![], None, "number of experts");
    refused(vec![weight(6, 4)], vec![], None, "down");
    refused(vec![weight(7, 4)], vec![weight(4, 3)], None, "out_features of gate_up[0]");
    refused(vec![weight(6, 4)], vec![weight(4, 2)], None, "in_features of down[0]");
    let two = || vec![weight(4, 3), weight(5, 3)];
    refused(vec![weight(6, 4), weight(6, 4)], two(), None, "out_features of down[1]");
    let biases = Some(vec![bias(3)]);
    refused(vec![weight(6, 4)], vec![weight(4, 3)], biases, "down_bias[0]");
}
