//! The body of the routes that take inputs: `/v1/embeddings`, `/pooling` and `/classify`.

use super::{fields::PoolingFields, input::InputFields};
use crate::{
    config::LimitSettings,
    server::http::{error::ApiError, parts::FromParts},
};

/// The body of a route that takes inputs.
pub(in crate::server) struct PoolingRequest {
    pub(super) input: InputFields,
    pub(super) fields: PoolingFields,
}

impl FromParts for PoolingRequest {
    type Parts = (InputFields, PoolingFields);

    fn from_parts((input, fields): Self::Parts) -> Result<Self, ApiError> {
        Ok(Self { input, fields })
    }

    fn check_limits(&self, limits: &LimitSettings) -> Result<(), ApiError> {
        self.input.check_limits(limits)
    }
}
