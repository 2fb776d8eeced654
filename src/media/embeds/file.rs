//! One tensor in a file: of `torch.save`, which is an archive with a pickle, or of safetensors.

use safetensors::{Dtype, SafeTensors};

use crate::torch_file::{self, ARCHIVE, elements, pickle::StoredDtype};
pub(super) use crate::torch_file::{Elements, FileTensor};

/// Returns the tensor of a file.
///
/// # Errors
/// The reason why the file is none of one tensor.
pub(super) fn tensor(file: &[u8]) -> Result<FileTensor, String> {
    match file.starts_with(ARCHIVE) {
        true => torch_file::tensor(file),
        false => of_safetensors(file),
    }
}

/// Reads the only tensor of a file of safetensors.
fn of_safetensors(file: &[u8]) -> Result<FileTensor, String> {
    let neither = "it is neither a tensor of torch.save nor a safetensors file";
    let tensors = SafeTensors::deserialize(file).map_err(|error| format!("{neither}: {error}"))?;
    let [(_, tensor)] = &*tensors.tensors() else {
        return Err(format!("it holds {} tensors in the place of one", tensors.len()));
    };
    let dtype = match tensor.dtype() {
        Dtype::F64 => StoredDtype::F64,
        Dtype::F32 => StoredDtype::F32,
        Dtype::F16 => StoredDtype::F16,
        Dtype::BF16 => StoredDtype::Bf16,
        Dtype::I64 => StoredDtype::I64,
        Dtype::I32 => StoredDtype::I32,
        Dtype::I16 => StoredDtype::I16,
        Dtype::I8 => StoredDtype::I8,
        Dtype::U8 => StoredDtype::U8,
        other => return Err(format!("its elements are of {other:?}")),
    };
    Ok(FileTensor { shape: tensor.shape().to_vec(), elements: elements(tensor.data(), dtype) })
}
