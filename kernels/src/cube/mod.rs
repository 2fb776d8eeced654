//! Parts that the kernels for GPUs share. One source serves every runtime of CubeCL. The kernels
//! ask a device for its abilities and never assume them.
//!
//! The crate keeps its promises here by the same means everywhere. The shape of the weights, the
//! head or the position decides how a sum is cut and in which order its parts are added. The batch
//! never does. Every multiplication that is added to something is an explicit `fma`, so that no
//! compiler rounds one variant of a kernel differently from another. Only tensor cores differ,
//! where they are asked for.

mod ceilings;
mod devices;
mod memory;
mod reduce;
mod tensors;
mod uploads;
pub(crate) mod weight_copies;
mod words;

pub(crate) use ceilings::measure as measure_ceilings;
pub(crate) use devices::{devices, memory};
pub(crate) use memory::{reserved, resident, resident_pieces, runs_of_piece};
pub(crate) use reduce::{lanes_sum, sum_of_units};
pub(crate) use tensors::{
    CUBES_MAX, Rows, buffer, cubes, device_error, device_tensor, float_tensor, into_tensor, upload,
    words_buffer,
};
pub(crate) use uploads::{Recording, StepInput, is_recording, upload_once};
#[cfg(test)]
pub(crate) use words::CHUNK_WORDS;
pub(crate) use words::{FourHalves, Vec4, WordFormat, Words, encode, halves, widen};

#[cfg(test)]
pub(crate) mod test_device;
