//! The device that tests of GPU kernels run on.

use burn::tensor::{Device, Tensor, TensorData};
use cubecl::client::Client;

use crate::WeightVector;
use crate::device::Place;

/// Returns the first device of any runtime, software devices included. A test without a device
/// prints why and passes, unless `PLAYHOUSE_TEST_REQUIRE_GPU=1` makes it fail.
pub(crate) fn test_device() -> Option<Device> {
    let found = super::devices().into_iter().next();
    if found.is_none() {
        let is_required =
            std::env::var("PLAYHOUSE_TEST_REQUIRE_GPU").is_ok_and(|value| value == "1");
        assert!(
            !is_required,
            "PLAYHOUSE_TEST_REQUIRE_GPU=1, but no runtime of this build has a device"
        );
        eprintln!("skipped: no runtime of this build has a device");
    }
    found.map(|found| found.device)
}

/// Returns the same device, and the client that launches kernels on it.
pub(crate) fn test_client() -> Option<(Client, cubecl::Device)> {
    match Place::of(&test_device()?, "test") {
        Ok(Place::Cube(device)) => Some((device.client(), device)),
        _ => unreachable!("the test device is a GPU"),
    }
}

/// Pairs each case with one variant, by turns. A sweep, `PLAYHOUSE_TEST_SWEEP=1`, pairs it with
/// all: a software device compiles each kernel for seconds, so `.ci/long` alone does that.
pub(crate) fn by_turns<C: Clone, V: Clone>(cases: &[C], variants: &[V]) -> Vec<(C, V)> {
    let is_sweep = std::env::var("PLAYHOUSE_TEST_SWEEP").is_ok_and(|value| value == "1");
    let num_variants = if is_sweep { variants.len() } else { 1 };
    let of_case = |(i, case): (usize, &C)| {
        let variants = variants.iter().cycle().skip(i).take(num_variants);
        variants.map(|variant| (case.clone(), variant.clone())).collect::<Vec<_>>()
    };
    cases.iter().enumerate().flat_map(of_case).collect()
}

/// Returns rows of `width` on `device`.
pub(crate) fn tensor(data: &[f32], width: usize, device: &Device) -> Tensor<2> {
    Tensor::from_data(TensorData::new(data.to_vec(), [data.len() / width, width]), device)
}

/// Returns a vector on `device`.
pub(crate) fn vector(data: &[f32], device: &Device) -> WeightVector {
    WeightVector::new(data.to_vec(), device).unwrap()
}

/// Returns the elements of a tensor.
pub(crate) fn values(tensor: Tensor<2>) -> Vec<f32> {
    tensor.into_data().try_to_vec().unwrap()
}

/// Returns numbers within ±1 that do not repeat.
pub(crate) fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 31 + seed * 17) as f32 * 0.37).sin()).collect()
}

/// Returns the bits of numbers, for exact comparisons.
pub(crate) fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// Asserts that numbers differ by at most `bound`.
pub(crate) fn assert_near(got: &[f32], exact: &[f64], bound: f64, what: &str) {
    assert_eq!(got.len(), exact.len(), "{what}");
    for (i, (got, exact)) in got.iter().zip(exact).enumerate() {
        let error = (f64::from(*got) - exact).abs();
        assert!(error <= bound, "{what}: [{i}] is {got}, not {exact}");
    }
}
