//! A decode step of a mixture of experts allocates nothing on the thread that computes it.
#![allow(clippy::unwrap_used)] // a test may unwrap

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use burn::tensor::{Device, Tensor};
use playhouse_kernels::{
    Activation, ActivationDtype, ExpertActivation, ExpertWeights, Experts, LinearWeight,
    QuantizationScheme, Router, RouterConfig, Scoring, WeightDtype, WeightView, experts, linear,
    recycle, route,
};

const HIDDEN: usize = 256;
const INTERMEDIATE: usize = 128;
const EXPERTS: usize = 12;
const TOP_K: usize = 3;

thread_local! {
    /// Allocations of this thread.
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator with a count for each thread.
struct Counting;

// SAFETY: every call goes to the system's allocator; counting touches neither memory nor arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn values(count: usize) -> Vec<f32> {
    (0..count).map(|i| (i as f32 * 0.37).sin() * 0.1).collect()
}

fn layer(pack: impl Fn(&[WeightView<'_>], usize) -> LinearWeight) -> Experts {
    let numbers = values(2 * INTERMEDIATE * HIDDEN);
    let down = &numbers[..INTERMEDIATE * HIDDEN];
    let all = |numbers: &[f32], inputs| {
        (0..EXPERTS).map(|_| pack(&[WeightView::F32(numbers)], inputs)).collect()
    };
    let weights = ExpertWeights {
        gate_up: all(&numbers, HIDDEN),
        down: all(down, INTERMEDIATE),
        gate_up_bias: None,
        down_bias: None,
    };
    Experts::new(weights, ExpertActivation::Gated(Activation::Silu), false).unwrap()
}

#[test]
fn a_decode_step_allocates_nothing() {
    let device = Device::flex();
    let config = RouterConfig {
        num_experts: EXPERTS,
        top_k: TOP_K,
        scoring: Scoring::Softmax,
        renormalize: true,
        min_sum: RouterConfig::MIN_SUM,
        jitter: 0.0,
        groups: None,
        scale: 1.0,
    };
    let router = Router::new(config, None).unwrap();
    let gate = values(EXPERTS * HIDDEN);
    let gate = [WeightView::F32(&gate)];
    let gate = LinearWeight::pack(&gate, HIDDEN, WeightDtype::F32, &device).unwrap();
    let scheme = QuantizationScheme::Int8;
    let quantize = |parts: &[WeightView<'_>], inputs| {
        LinearWeight::quantize(parts, inputs, scheme, &device).unwrap()
    };
    let layers = [
        layer(|parts, inputs| {
            LinearWeight::pack(parts, inputs, WeightDtype::Bf16, &device).unwrap()
        }),
        layer(quantize),
        layer(|parts, inputs| quantize(parts, inputs).with_activations(ActivationDtype::F32)),
    ];
    for layer in &layers {
        for tokens in [1, 5] {
            let x = Tensor::<2>::ones([tokens, HIDDEN], &device);
            let step = || {
                // The clone of a tensor allocates its shape, whatever operation takes it.
                let (a, b) = (x.clone(), x.clone());
                let before = COUNT.get();
                let routing = route(linear(a, &gate, None), &router);
                recycle(experts(b, &routing, layer));
                COUNT.get() - before
            };
            (0..50).for_each(|_| {
                step();
            });
            let allocations: usize = (0..50).map(|_| step()).sum();
            assert_eq!(allocations, 0, "{tokens} tokens");
        }
    }
}
