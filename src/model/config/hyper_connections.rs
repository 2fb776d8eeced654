//! Several residual streams with gates: HF `Qwen4ExpTextGatedResidual`.

use super::{ConfigError, Fields, SIZE_MAX};

/// The most residual streams, far above any real number.
const STREAMS_MAX: usize = 64;

/// Several residual streams (hyper-connections: <https://arxiv.org/abs/2409.19606>). A part of a
/// layer reads their weighted mean. Its output is added to each of them with a factor of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HyperConfig {
    /// Residual streams; at least 2.
    pub count: usize,
    /// The width between the two projections of the streams' weights.
    pub rank: usize,
}

impl HyperConfig {
    /// Reads the fields of HF `Qwen4ExpTextConfig`.
    pub(crate) fn read(fields: &Fields) -> Result<Self, ConfigError> {
        let count = fields.size("hc_count")?.unwrap_or(4);
        let hidden = fields.required_size("hidden_size")?;
        if !(2..=STREAMS_MAX).contains(&count) || count * hidden > SIZE_MAX {
            let expected = format!(
                "an integer from 2 to {STREAMS_MAX}, and streams of at most {SIZE_MAX} numbers"
            );
            return Err(fields.invalid("hc_count", &expected));
        }
        Ok(Self { count, rank: fields.size("hc_lowrank")?.unwrap_or(320) })
    }
}
