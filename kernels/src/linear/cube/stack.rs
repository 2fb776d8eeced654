//! Matrices of one shape and form, one behind the other in one buffer. A kernel then takes any of
//! them, and needs no buffer for each.

use cubecl::client::Client;
use cubecl::prelude::*;
use cubecl::server::Handle;

use super::CubeWeight;
use super::pack::CubeGroups;
use crate::cube::{cubes, reserved, resident, words_buffer};
use crate::{KernelError, LinearWeight, WeightVector};

const UNITS: usize = 256;

/// Several matrices.
#[derive(Debug)]
pub(crate) struct CubeStack {
    /// The buffers of all matrices, with the shape of one.
    pub(super) weight: CubeWeight,
    /// `[matrix][outputs]`
    pub(super) biases: Option<Handle>,
}

impl CubeStack {
    /// Moves matrices of one shape behind one another. `what` and `field` name them in errors.
    ///
    /// # Errors
    /// No matrices, matrices that are not on a GPU or differ in form, or the device refuses the
    /// memory.
    pub(crate) fn new(
        weights: Vec<LinearWeight>,
        biases: Option<Vec<WeightVector>>,
        what: &'static str,
        field: &str,
    ) -> Result<Self, KernelError> {
        let mut parts: Vec<&CubeWeight> = Vec::new();
        for (i, weight) in weights.iter().enumerate() {
            let part =
                weight.on_gpu().filter(|part| parts.first().is_none_or(|one| alike(one, part)));
            let field = format!("form of {field}");
            parts.push(part.ok_or(KernelError::PartsDiffer { what, field, part: i })?);
        }
        let [first, ..] = parts[..] else {
            return Err(KernelError::Length { what, field: field.to_owned(), got: 0, expected: 1 });
        };
        let client = first.device.client();
        let stack = |handles: Vec<&Handle>| stacked(&client, &handles, what);
        let words = stack(parts.iter().map(|part| &part.words).collect())?;
        let groups = match &first.groups {
            None => None,
            Some(CubeGroups { size, .. }) => {
                let groups: Vec<&CubeGroups> =
                    parts.iter().filter_map(|p| p.groups.as_ref()).collect();
                let factors = stack(groups.iter().map(|groups| &groups.factors).collect())?;
                let input_order = stacked_orders(&client, &groups, first.inputs, what)?;
                Some(CubeGroups { size: *size, factors, input_order })
            }
        };
        let biases = biases.map(|biases| stack(biases.iter().map(WeightVector::cube).collect()));
        let (device, format) = (first.device.clone(), first.format);
        let (outputs, inputs) = (first.outputs, first.inputs);
        let weight = CubeWeight { device, words, format, outputs, inputs, groups, dense: None };
        Ok(Self { weight, biases: biases.transpose()? })
    }

    /// Returns the client of the device.
    pub(crate) fn client(&self) -> Client {
        self.weight.device.client()
    }

    /// Returns the bytes of all matrices.
    pub(crate) fn size_bytes(&self) -> usize {
        self.weight.size_bytes()
    }

    /// Returns the width of a result.
    pub(crate) fn outputs(&self) -> usize {
        self.weight.outputs
    }

    /// Returns the input of each column, `[matrix][inputs]`, where it is not the column's own
    /// index.
    pub(crate) fn input_order(&self) -> Option<&Handle> {
        self.weight.groups.as_ref()?.input_order.as_ref()
    }
}

/// Returns whether one kernel can take both.
fn alike(one: &CubeWeight, other: &CubeWeight) -> bool {
    one.format == other.format
        && one.groups.as_ref().map(|groups| groups.size)
            == other.groups.as_ref().map(|groups| groups.size)
}

/// Returns the orders of all matrices, or `None` where no matrix has one.
fn stacked_orders(
    client: &Client,
    groups: &[&CubeGroups],
    inputs: usize,
    what: &'static str,
) -> Result<Option<Handle>, KernelError> {
    if groups.iter().all(|groups| groups.input_order.is_none()) {
        return Ok(None);
    }
    let as_they_are = resident(client, (0..inputs as u32).collect(), what)?;
    let orders = groups.iter().map(|groups| groups.input_order.as_ref().unwrap_or(&as_they_are));
    stacked(client, &orders.collect::<Vec<_>>(), what).map(Some)
}

/// Returns a buffer with the words of all parts, one behind the other.
fn stacked(client: &Client, parts: &[&Handle], what: &'static str) -> Result<Handle, KernelError> {
    let bytes = parts.iter().map(|part| part.size_in_used()).sum::<u64>() as usize;
    let all = reserved(client, bytes, what)?;
    let mut first = 0;
    for part in parts {
        let words = part.size_in_used() as usize / size_of::<u32>();
        // SAFETY: a unit beyond the words does nothing, and all parts have room one by one.
        unsafe {
            copy_kernel::launch_unchecked(
                client,
                cubes(words.div_ceil(UNITS)),
                CubeDim::new_1d(UNITS as u32),
                words_buffer(part),
                words_buffer(&all),
                first,
                words,
            );
        }
        first += words;
    }
    Ok(all)
}

#[cube(launch_unchecked)]
fn copy_kernel(from: &[u32], to: &mut [u32], first: usize, words: usize) {
    let word = ABSOLUTE_POS;
    if word >= words {
        terminate!();
    }
    to[first + word] = from[word];
}
