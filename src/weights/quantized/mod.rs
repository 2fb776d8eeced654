//! Ready-made quantized checkpoints of Hugging Face folders: a linear layer's weight in several
//! tensors, by the `quantization_config` of `config.json`.
//!
//! The existing tensors show which modules are quantized. A module that was left out (an ignore
//! list, `modules_to_not_convert`) has a plain `weight`.

mod awq;
mod bitnet;
mod bitsandbytes;
mod compressed_tensors;
mod float8;
mod gptq;
mod modelopt;
mod mxfp4;
mod parts;
mod sharing;
mod unpack;

use std::fmt;

use super::checkpoint::Checkpoint;
use super::{StoredMatrix, WeightsError};
use parts::Parts;
pub(super) use parts::e8m0;
pub use sharing::ScaleSharing;

/// How the weights of linear layers are stored in a Hugging Face folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Quantization {
    /// GPTQ, of GPTQModel, AutoGPTQ and others.
    Gptq(GptqFormat),
    /// AWQ in its GEMM layout: four bits, zero points.
    Awq {
        /// Inputs that share a scale. `None` means all of a row.
        group_size: Option<usize>,
    },
    /// compressed-tensors, of llm-compressor: `pack-quantized` or `int-quantized`. The tensors'
    /// shapes give the bits. Some modules may have floats of eight bits.
    CompressedTensors {
        /// The schemes of its groups of modules. The shape of scales shows which one a module has.
        sharing: Vec<ScaleSharing>,
    },
    /// Floats of eight bits with scales. They become floats of the model's dtype at load.
    Float8 {
        /// The kinds of scales that modules may have.
        sharing: Vec<ScaleSharing>,
    },
    /// NVFP4 of NVIDIA's Model Optimizer. Some modules may have floats of eight bits.
    ModelOpt {
        /// The groups of floats of four bits, and the kinds of scales of the others.
        sharing: Vec<ScaleSharing>,
    },
    /// bitsandbytes with 4 or 8 bits, which become floats of the model's dtype at load. The tensors
    /// show which ones a module has.
    BitsAndBytes,
    /// BitNet: weights of three values, which become floats of the model's dtype at load.
    BitNet {
        /// Whether weights are divided by the scale of their matrix. Otherwise they are
        /// multiplied.
        is_divided: bool,
    },
    /// MXFP4, of gpt-oss: floats of four bits in groups of 32. Only tensors of several experts.
    Mxfp4,
}

/// The properties in which GPTQ checkpoints differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GptqFormat {
    /// Bits of a weight, 4 or 8.
    pub bits: usize,
    /// Inputs that share a scale. `None` means all of a row.
    pub group_size: Option<usize>,
    /// Whether zero points are stored less one, as in the first version of the format.
    pub zeros_less_one: bool,
}

impl Quantization {
    /// Returns whether weights stay integers. Otherwise they become floats at load.
    pub(super) fn stays_quantized(&self) -> bool {
        !matches!(self, Self::Float8 { .. } | Self::BitsAndBytes | Self::BitNet { .. })
    }

    /// Returns whether the tensor `weight` of `module` is no matrix, but a part of one.
    pub(super) fn is_part(&self, checkpoint: &Checkpoint, module: &str) -> bool {
        match self {
            Self::BitsAndBytes => bitsandbytes::has(checkpoint, module),
            Self::BitNet { .. } => bitnet::has(checkpoint, module),
            Self::ModelOpt { .. } => modelopt::has(checkpoint, module),
            _ => false,
        }
    }

    /// Reads the weight `[out, in]` of `module`, if it is a quantized one.
    pub(super) fn read<'a>(
        &self,
        checkpoint: &'a Checkpoint,
        module: &str,
        shape: [usize; 2],
    ) -> Result<Option<StoredMatrix<'a>>, WeightsError> {
        let parts = Parts::new(checkpoint, module, shape);
        match self {
            Self::Gptq(format) => gptq::read(parts, format),
            Self::Awq { group_size } => awq::read(parts, *group_size),
            Self::CompressedTensors { sharing } => compressed_tensors::read(parts, sharing),
            Self::Float8 { sharing } => float8::read(parts, sharing),
            Self::ModelOpt { sharing } => modelopt::read(parts, sharing),
            Self::BitsAndBytes => bitsandbytes::read(parts),
            Self::BitNet { is_divided } => bitnet::read(parts, *is_divided),
            Self::Mxfp4 => Ok(None),
        }
    }

    /// Reads matrix `index` of the weight `[count, out, in]` of `module`, if it is a quantized one.
    pub(super) fn read_slice<'a>(
        &self,
        checkpoint: &'a Checkpoint,
        module: &str,
        (index, count): (usize, usize),
        shape: [usize; 2],
    ) -> Result<Option<StoredMatrix<'a>>, WeightsError> {
        let parts = Parts::new(checkpoint, module, shape).of(index, count);
        match self {
            Self::CompressedTensors { sharing }
            | Self::Float8 { sharing }
            | Self::ModelOpt { sharing } => float8::read(parts, sharing),
            Self::Gptq(_)
            | Self::Awq { .. }
            | Self::BitsAndBytes
            | Self::BitNet { .. }
            | Self::Mxfp4 => Ok(None),
        }
    }

    /// Reads matrix `index` of `count` matrices `[out, in]` of the tensor `name`, if the tensor is
    /// a quantized one.
    pub(super) fn read_fused<'a>(
        &self,
        checkpoint: &'a Checkpoint,
        name: &str,
        (index, count): (usize, usize),
        shape: [usize; 2],
    ) -> Result<Option<StoredMatrix<'a>>, WeightsError> {
        match self {
            Self::Mxfp4 if mxfp4::has(checkpoint, name) => {
                mxfp4::read(checkpoint, name, (index, count), shape).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Returns whether several tensors hold the tensor `name` of experts.
    pub(super) fn is_fused(&self, checkpoint: &Checkpoint, name: &str) -> bool {
        *self == Self::Mxfp4 && mxfp4::has(checkpoint, name)
    }
}

impl fmt::Display for Quantization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups = |size: &Option<usize>| match size {
            Some(size) => format!("groups of {size}"),
            None => "one group a row".to_owned(),
        };
        match self {
            Self::Gptq(GptqFormat { bits, group_size, .. }) => {
                write!(f, "GPTQ, {bits} bits, {}", groups(group_size))
            }
            Self::Awq { group_size } => write!(f, "AWQ, 4 bits, {}", groups(group_size)),
            Self::CompressedTensors { .. } => f.write_str("compressed-tensors"),
            Self::Float8 { sharing } => write!(f, "FP8, {}", sharing::listed(sharing)),
            Self::ModelOpt { .. } => f.write_str("Model Optimizer, NVFP4"),
            Self::BitsAndBytes => f.write_str("bitsandbytes"),
            Self::BitNet { .. } => f.write_str("BitNet, ternary"),
            Self::Mxfp4 => f.write_str("MXFP4"),
        }
    }
}
