//! What activations are when they meet weights of small integers.

use playhouse_kernels::{ActivationDtype, WeightDtype};

use super::ModelError;
use crate::config::{ActivationQuantization, Dtype};

/// What decides.
#[derive(Debug, Clone, Copy)]
pub(super) struct Circumstances {
    /// Whether weights are quantized here, in place of being read so.
    pub(super) at_load: bool,
    /// The type that was asked for.
    pub(super) requested: Dtype,
    /// The type of what is not quantized.
    pub(super) dtype: WeightDtype,
    pub(super) is_on_cpu: bool,
}

/// The quantized weights of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuantizedWeights {
    /// What they are, in words.
    pub format: String,
    /// What activations are when they meet them.
    pub activations: ActivationDtype,
}

impl ActivationQuantization {
    /// What activations are.
    ///
    /// # Errors
    /// 8 bits on a GPU, or beside float32, which was asked for as well.
    pub(super) fn resolve(self, given: Circumstances) -> Result<ActivationDtype, ModelError> {
        let is_exact = given.requested == Dtype::Float32;
        let int8 = match self {
            Self::None => false,
            Self::Int8 if !given.is_on_cpu => {
                let (why, accepted) = ("a GPU multiplies quantized weights as floats", "");
                return Err(ModelError::ActivationQuantization { why, accepted });
            }
            Self::Int8 if is_exact => {
                let (why, accepted) = ("dtype float32 rounds nothing", ", or another dtype");
                return Err(ModelError::ActivationQuantization { why, accepted });
            }
            Self::Int8 => true,
            Self::Auto if is_exact || !given.is_on_cpu => false,
            Self::Auto => given.at_load || given.dtype != WeightDtype::F32,
        };
        Ok(if int8 { ActivationDtype::Int8 } else { given.dtype.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPU: Circumstances = Circumstances {
        at_load: false,
        requested: Dtype::Auto,
        dtype: WeightDtype::Bf16,
        is_on_cpu: true,
    };

    fn auto(given: Circumstances) -> &'static str {
        ActivationQuantization::Auto.resolve(given).unwrap().name()
    }

    #[test]
    fn auto_takes_8_bits_where_they_are_fast_and_nothing_is_to_be_exact() {
        for at_load in [false, true] {
            let given = Circumstances { at_load, ..CPU };
            assert_eq!(auto(given), "int8");
            let on_gpu = Circumstances { is_on_cpu: false, ..given };
            assert_eq!(auto(on_gpu), "bfloat16");
            let exact =
                Circumstances { requested: Dtype::Float32, dtype: WeightDtype::F32, ..given };
            assert_eq!(auto(exact), "float32");
            // A checkpoint of float32 asks for no less; one that is quantized at load does.
            let stored = Circumstances { dtype: WeightDtype::F32, ..given };
            assert_eq!(auto(stored), if at_load { "int8" } else { "float32" });
        }
    }

    #[test]
    fn what_is_asked_for_is_done_or_refused() {
        let none = ActivationQuantization::None;
        assert_eq!(none.resolve(CPU).unwrap(), ActivationDtype::Bf16);
        let int8 = |given| ActivationQuantization::Int8.resolve(given).map_err(|e| e.to_string());
        assert_eq!(int8(CPU), Ok(ActivationDtype::Int8));
        let on_gpu = int8(Circumstances { is_on_cpu: false, ..CPU }).unwrap_err();
        assert!(on_gpu.contains("GPU") && on_gpu.contains("expected auto or none"), "{on_gpu}");
        let exact = Circumstances { requested: Dtype::Float32, dtype: WeightDtype::F32, ..CPU };
        let exact = int8(exact).unwrap_err();
        assert!(exact.contains("float32") && exact.ends_with("or another dtype"), "{exact}");
    }
}
