//! Matrices of one shape and form, one behind the other in one buffer. A kernel then takes any of
//! them, and needs no buffer for each.

use std::ops::Range;

use cubecl::client::Client;
use cubecl::prelude::*;
use cubecl::server::Handle;

use super::CubeWeight;
use super::pack::CubeGroups;
use crate::cube::{CHUNK_WORDS, cubes, reserved, resident, words_buffer};
use crate::{KernelError, LinearWeight, WeightVector};

const UNITS: usize = 256;

/// Most vectors in a stack: kernels count them in 32 bits. That is 64 GiB of vectors of four words.
const VECTORS_MAX: u64 = u32::MAX as u64;

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
    let words = parts.iter().map(|part| part.size_in_used() / size_of::<u32>() as u64);
    let places = Places::of(words.collect(), what)?;
    let all = reserved(client, places.bytes, what)?;
    for (part, Range { start, end }) in parts.iter().zip(&places.parts) {
        let vectors = end - start;
        // SAFETY: a unit beyond the vectors does nothing, and all parts have room one by one.
        unsafe {
            stack_kernel::launch_unchecked(
                client,
                cubes(vectors.div_ceil(UNITS)),
                CubeDim::new_1d(UNITS as u32),
                places.lanes,
                words_buffer(part),
                words_buffer(&all),
                *start,
                vectors,
            );
        }
    }
    Ok(all)
}

/// The places of parts in a stack.
#[derive(Debug, PartialEq, Eq)]
struct Places {
    /// The bytes of all parts.
    bytes: usize,
    /// The words of a vector.
    lanes: usize,
    /// The vectors of each part. All numbers fit the 32 bits of a kernel.
    parts: Vec<Range<usize>>,
}

impl Places {
    /// Returns the places of parts that have so many words each.
    ///
    /// # Errors
    /// [`KernelError::StackTooLarge`] if a kernel cannot count all vectors.
    fn of(words: Vec<u64>, what: &'static str) -> Result<Self, KernelError> {
        // Matrices and their factors consist of whole chunks. Biases and orders may not.
        let is_whole = words.iter().all(|words| words.is_multiple_of(CHUNK_WORDS as u64));
        let lanes = if is_whole { CHUNK_WORDS } else { 1 };
        let vector_bytes = (lanes * size_of::<u32>()) as u64;
        let vectors = words.iter().map(|words| words / lanes as u64);
        let (count, all) = (words.len(), vectors.clone().fold(0, u64::saturating_add));
        if all > VECTORS_MAX {
            let (bytes, most) = (all.saturating_mul(vector_bytes), VECTORS_MAX * vector_bytes);
            return Err(KernelError::StackTooLarge { what, count, bytes, most });
        }
        let mut first = 0;
        let parts = vectors.map(|vectors| {
            let start = first;
            first += vectors as usize;
            start..first
        });
        let parts = parts.collect();
        Ok(Self { bytes: (all * vector_bytes) as usize, lanes, parts })
    }
}

#[cube(launch_unchecked)]
fn stack_kernel<N: Size>(
    from: &[Vector<u32, N>],
    to: &mut [Vector<u32, N>],
    first: usize,
    vectors: usize,
) {
    let vector = ABSOLUTE_POS;
    if vector >= vectors {
        terminate!();
    }
    to[first + vector] = from[vector];
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHAT: &str = "experts";
    /// Words of 16 GiB: the first number that 32 bits do not hold.
    const WORDS: u64 = 1 << 32;

    #[test]
    fn parts_lie_one_behind_the_other() {
        let places = Places::of(vec![8, 0, 12], WHAT).unwrap();
        assert_eq!(places, Places { bytes: 80, lanes: 4, parts: vec![0..2, 2..2, 2..5] });
        let places = Places::of(vec![8, 3], WHAT).unwrap();
        assert_eq!(places, Places { bytes: 44, lanes: 1, parts: vec![0..8, 8..11] });
    }

    #[test]
    fn a_stack_above_16_gib_has_places_that_32_bits_count() {
        // 128 experts of 256 MiB: 32 GiB.
        let places = Places::of(vec![WORDS / 64; 128], WHAT).unwrap();
        assert_eq!((places.bytes, places.lanes), (32 << 30, 4));
        assert_eq!(places.parts[127], 127 << 24..128 << 24);
        assert!(places.parts[127].end < 1 << 32);
        let whole = Places::of(vec![4 * WORDS - 4], WHAT).unwrap();
        assert_eq!(whole.parts, vec![0..(1 << 32) - 1]);
    }

    #[test]
    fn a_stack_that_32_bits_do_not_count_is_refused_with_its_size() {
        let refused = Places::of(vec![2 * WORDS, 2 * WORDS], WHAT).unwrap_err();
        let (bytes, most) = (64 << 30, (64 << 30) - 16);
        assert_eq!(refused, KernelError::StackTooLarge { what: WHAT, count: 2, bytes, most });
        assert_eq!(
            refused.to_string(),
            "experts: 2 matrices take 68719476736 bytes, but kernels reach only 68719476720"
        );
        assert!(Places::of(vec![WORDS - 1, 0], WHAT).is_ok());
        assert!(Places::of(vec![WORDS - 1, 1], WHAT).is_err(), "vectors of one word");
        assert!(Places::of(vec![u64::MAX / 2; 3], WHAT).is_err());
    }
}
