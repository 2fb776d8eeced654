//! The dtype of activations that are multiplied with quantized weights.

use playhouse_kernels::{ActivationDtype, WeightDtype};

use super::ModelError;
use crate::config::{ActivationQuantization, Dtype};

/// The facts that the dtype depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Circumstances {
    /// Whether weights are quantized at load. Otherwise they are quantized in the checkpoint.
    pub(super) at_load: bool,
    /// The setting `dtype`.
    pub(super) requested: Dtype,
    /// The type of the weights that are not quantized.
    pub(super) dtype: WeightDtype,
    pub(super) is_on_cpu: bool,
}

/// The quantized weights of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuantizedWeights {
    /// Their format, in words.
    pub format: String,
    /// The dtype of the activations that are multiplied with them.
    pub activations: ActivationDtype,
}

impl ActivationQuantization {
    /// Returns the dtype of activations that are multiplied with quantized weights.
    ///
    /// # Errors
    /// [`ModelError::ActivationQuantization`] if 8 bits are set for a GPU or together with float32.
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
    fn auto_takes_8_bits_on_a_cpu_unless_float32_is_asked_for() {
        for at_load in [false, true] {
            let given = Circumstances { at_load, ..CPU };
            assert_eq!(auto(given), "int8");
            let on_gpu = Circumstances { is_on_cpu: false, ..given };
            assert_eq!(auto(on_gpu), "bfloat16");
            let exact =
                Circumstances { requested: Dtype::Float32, dtype: WeightDtype::F32, ..given };
            assert_eq!(auto(exact), "float32");
            // A float32 checkpoint keeps float32 activations, unless it is quantized at load.
            let stored = Circumstances { dtype: WeightDtype::F32, ..given };
            assert_eq!(auto(stored), if at_load { "int8" } else { "float32" });
        }
    }

    #[test]
    fn an_explicit_setting_is_obeyed_or_rejected() {
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
