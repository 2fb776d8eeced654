//! Parts that the kernels for GPUs share. One source serves every runtime of CubeCL. The kernels
//! ask a device for its abilities and never assume them.
//!
//! All these kernels keep the crate's promises in the same way. The shape of the weights, the head
//! or the position decides how a sum is cut and in which order its parts are added. The batch never
//! decides it. Every multiplication that is added to something is an explicit `fma`, so that no
//! compiler rounds one variant of a kernel differently from another. Only products on tensor cores,
//! if they are asked for, differ.

pub(crate) mod caller_numbers;
mod ceilings;
mod devices;
mod math;
mod memory;
mod norm;
mod per_vector;
mod reduce;
mod tensors;
mod uploads;
pub(crate) mod weight_copies;
mod words;

pub(crate) use caller_numbers::upload_of_caller;
pub(crate) use ceilings::measure as measure_ceilings;
pub(crate) use devices::{devices, memory, name as device_name};
pub(crate) use math::{clamped, expm1, positive, softplus, tanh};
pub(crate) use memory::{reserved, reserved_words, resident, resident_pieces, runs_of_piece};
pub(crate) use norm::{Norm, add_normed, normed};
pub(crate) use per_vector::{VectorLaunch, VectorMap, per_vector};
pub(crate) use reduce::{lanes_sum, max_of_units, sum_of_units};
pub(crate) use tensors::{
    CUBES_MAX, Rows, buffer, cubes, device_error, device_tensor, float_tensor, into_tensor, upload,
    words_buffer,
};
pub(crate) use uploads::{Recording, StepInput, is_recording, upload_once};
pub(crate) use words::{CHUNK_WORDS, FourHalves, Vec4, WordFormat, Words, encode, halves, widen};

#[cfg(test)]
pub(crate) mod test_device;
