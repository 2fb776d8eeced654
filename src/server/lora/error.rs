//! The errors of adapters as clients see them: vLLM's statuses and words where it has a clean one.

use std::time::Duration;

use crate::{
    engine::LoraError,
    server::http::error::{ApiError, RETRY_AFTER_DEFAULT},
};

/// Time after which a client may ask again for an adapter whose files are slow.
const RETRY_AFTER: Duration = Duration::from_secs(10);

impl From<LoraError> for ApiError {
    fn from(error: LoraError) -> Self {
        let message = error.to_string();
        match error {
            LoraError::Empty | LoraError::AlreadyLoaded { .. } | LoraError::BaseModel { .. } => {
                Self::invalid_user_input(message)
            }
            LoraError::Unknown { .. } | LoraError::NoFiles { .. } | LoraError::Hub { .. } => {
                Self::not_found_object(message)
            }
            LoraError::TooLong { .. } => Self::unavailable(message, RETRY_AFTER),
            LoraError::Panicked(_) => Self::internal(message),
            LoraError::Disabled | LoraError::Adapter { .. } | LoraError::Refused { .. } => {
                Self::bad_request(message)
            }
            LoraError::NoAnswer { .. } => Self::unavailable(message, RETRY_AFTER_DEFAULT),
        }
    }
}
