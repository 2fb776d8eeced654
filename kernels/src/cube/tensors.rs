//! Conversions between burn's device tensors and the arguments of kernels.

use burn::backend::{BackendTensor, DispatchTensor, DispatchTensorKind};
use burn::tensor::{DType, Shape, Tensor};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::client::Client;
use cubecl::prelude::*;
use cubecl::server::{Handle, ServerError};

use crate::KernelError;

/// Most cubes of one dimension of a grid: the number that every runtime takes.
pub(crate) const CUBES_MAX: usize = 65_535;

/// Elements of a vector load: 128 bits of f32.
const LANES: usize = 4;

/// Rows of f32, each contiguous.
pub(crate) struct Rows {
    tensor: CubeTensor,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    /// Elements from one row to the next.
    stride: usize,
    /// Elements of a vector load: 4 where `cols` allows, else 1. It follows from the width alone.
    pub(crate) lanes: usize,
}

impl Rows {
    /// Takes the rows of `x`, `[rows, cols]` f32; copies them only where vectors cannot read them.
    pub(crate) fn new(x: CubeTensor) -> Self {
        assert_eq!(x.dtype, DType::F32, "activations are f32");
        let [rows, cols] = x.meta.shape().dims::<2>();
        let lanes = if cols.is_multiple_of(LANES) { LANES } else { 1 };
        let strides = x.meta.strides();
        let is_readable = !x.meta.is_tiled()
            && (cols == 1 || strides[1] == 1)
            && (rows <= 1 || (strides[0] >= cols && strides[0].is_multiple_of(lanes)));
        let tensor = if is_readable { x } else { into_contiguous(x) };
        let stride = if rows <= 1 { cols } else { tensor.meta.strides()[0] };
        Self { tensor, rows, cols, stride, lanes }
    }

    /// Returns the vectors of a row.
    pub(crate) fn vectors(&self) -> usize {
        self.cols / self.lanes
    }

    /// Returns the vectors from one row to the next.
    pub(crate) fn stride(&self) -> usize {
        self.stride / self.lanes
    }

    pub(crate) fn tensor(&self) -> &CubeTensor {
        &self.tensor
    }

    pub(crate) fn client(&self) -> &Client {
        &self.tensor.client
    }

    pub(crate) fn device(&self) -> &cubecl::Device {
        &self.tensor.device
    }

    pub(crate) fn arg(&self) -> BufferArg {
        buffer(&self.tensor)
    }

    /// Returns a tensor `[rows, cols]` on the same device, not yet written.
    pub(crate) fn sibling(&self, rows: usize, cols: usize) -> CubeTensor {
        float_tensor(&self.tensor.client, &self.tensor.device, [rows, cols])
    }
}

/// Returns a dense f32 tensor `[rows, cols]`, not yet written.
pub(crate) fn float_tensor(
    client: &Client,
    device: &cubecl::Device,
    [rows, cols]: [usize; 2],
) -> CubeTensor {
    // No runtime has empty buffers.
    let handle = client.empty((rows * cols).max(1) * size_of::<f32>());
    let shape = Shape::new([rows, cols]);
    CubeTensor::new_contiguous(client.clone(), device.clone(), shape, handle, DType::F32)
}

/// Returns the GPU's tensor behind `tensor`, or `tensor` itself if it is on no GPU.
#[expect(clippy::result_large_err, reason = "the returned tensor is no error")]
pub(crate) fn device_tensor(tensor: Tensor<2>) -> Result<CubeTensor, Tensor<2>> {
    let DispatchTensor { kind, autodiff } = tensor.into_dispatch();
    match kind {
        DispatchTensorKind::Cube(BackendTensor::Float(tensor)) => Ok(tensor),
        kind => Err(Tensor::from_dispatch(DispatchTensor { kind, autodiff })),
    }
}

/// Returns the error of a device.
pub(crate) fn device_error(error: ServerError) -> KernelError {
    KernelError::device(error.to_string())
}

/// Returns the tensor as a tensor of burn's.
pub(crate) fn into_tensor(tensor: CubeTensor) -> Tensor<2> {
    Tensor::from_dispatch(DispatchTensor {
        kind: DispatchTensorKind::Cube(BackendTensor::Float(tensor)),
        autodiff: Default::default(),
    })
}

/// Returns the whole buffer of a dense tensor, or of [`Rows`].
pub(crate) fn buffer(tensor: &CubeTensor) -> BufferArg {
    words_buffer(&tensor.handle)
}

/// Returns a buffer of 32-bit elements.
pub(crate) fn words_buffer(handle: &Handle) -> BufferArg {
    let len = handle.size_in_used() as usize / size_of::<u32>();
    // SAFETY: the length is the buffer's own.
    unsafe { BufferArg::from_raw_parts(handle.clone(), len) }
}

/// Copies numbers of the host to the device; at least one, because no runtime has empty buffers.
pub(crate) fn upload(client: &Client, numbers: &[u32]) -> Handle {
    let numbers = if numbers.is_empty() { &[0] } else { numbers };
    client.create_from_slice(bytemuck::cast_slice(numbers))
}

/// Returns a grid of at least `count` cubes. A cube finds its work by `CUBE_POS`, or has none.
pub(crate) fn cubes(count: usize) -> CubeCount {
    let x = count.min(CUBES_MAX);
    CubeCount::Static(x as u32, count.div_ceil(x.max(1)) as u32, 1)
}

#[cfg(test)]
mod tests {
    use cubecl::server::IoError;

    use super::*;

    /// Errors come as text through burn. The text is cubecl's, and may change with it.
    #[test]
    fn a_device_without_memory_is_distinguished_from_a_broken_one() {
        let told = |error: IoError| match device_error(error.into()) {
            KernelError::Device { is_out_of_memory, .. } => is_out_of_memory,
            other => unreachable!("{other}"),
        };
        let backtrace = cubecl_environment::backtrace::BackTrace::capture;
        assert!(told(IoError::OutOfMemory { size: 7, backtrace: backtrace() }));
        assert!(!told(IoError::BufferTooBig { size: 7, backtrace: backtrace() }));
    }
}
