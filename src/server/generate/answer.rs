//! The parts that all answers of the generating routes have.

use serde::Serialize;
use utoipa::ToSchema;

use crate::api::{FinishReason, StopReason};

/// The first fields of every answer and chunk.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(in crate::server) struct Head {
    pub(in crate::server) id: String,
    object: &'static str,
    created: u64,
    model: String,
}

impl Head {
    pub(in crate::server) fn new(
        id: String,
        object: &'static str,
        model: String,
        created: u64,
    ) -> Self {
        Self { id, object, created, model }
    }
}

/// The stop string or token that ended a choice, other than the end-of-sequence token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub(in crate::server) enum StoppedBy {
    Token(u32),
    Text(String),
}

impl StoppedBy {
    pub(in crate::server) fn from(finish: &FinishReason) -> Option<Self> {
        match finish {
            FinishReason::Stop(Some(StopReason::Token(token))) => Some(Self::Token(*token)),
            FinishReason::Stop(Some(StopReason::String(text))) => Some(Self::Text(text.clone())),
            _ => None,
        }
    }
}
