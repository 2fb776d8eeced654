//! The errors of adapters as clients see them: vLLM's statuses and words where it has a clean one.

use crate::{
    engine::LoraError,
    server::http::error::{ApiError, RETRY_AFTER_DEFAULT},
};

impl From<LoraError> for ApiError {
    fn from(error: LoraError) -> Self {
        let message = error.to_string();
        match error {
            LoraError::Empty | LoraError::AlreadyLoaded { .. } | LoraError::BaseModel { .. } => {
                Self::invalid_user_input(message)
            }
            LoraError::Unknown { .. } | LoraError::NoFiles { .. } => {
                Self::not_found_object(message)
            }
            LoraError::Panicked(_) => Self::internal(message),
            LoraError::Disabled | LoraError::Adapter { .. } | LoraError::Refused { .. } => {
                Self::bad_request(message)
            }
            LoraError::NoAnswer { .. } => Self::unavailable(message, RETRY_AFTER_DEFAULT),
        }
    }
}
