//! The work that a request asks of the model.

use serde::{Deserialize, Serialize};

use super::{pooling_params::PoolingParams, sampling_params::SamplingParams};

/// The work of a request, with its parameters.
#[allow(clippy::large_enum_variant, reason = "nearly all requests generate")]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Work {
    /// Generates tokens after the prompt. The parameters are validated and normalized.
    Generate(SamplingParams),
    /// Computes numbers about the prompt. The parameters are validated and fit the model.
    Pool(PoolingParams),
}
